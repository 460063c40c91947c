//! The bytes of one bus: split into messages in place, or counted and dropped when there is no room.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sys::processor::ProcessorOf;

use super::connection::BusMonitor;
use super::memory::CHUNK;
use super::ring::{Chunk, RingItem, RingProducer};
use super::scheduling::ReadVolume;
use crate::capture::{Dropped, RecordingEnd};

/// Splits the bytes of one bus into messages and puts them into chunks of the ring.
#[derive(Debug)]
pub(super) struct BusBuffer {
    bus: u16,
    source: OwnedFd,
    /// The process of the bus, if it is known.
    processor: Option<ProcessorOf>,
    /// The chunk that is being filled; `None` while there is no room.
    chunk: Option<Chunk>,
    /// When the first message in the chunk arrived.
    since: u64,
    /// The first bytes of a message whose length is not known yet, while there is no room.
    begun: Vec<u8>,
    /// How many bytes of a dropped message are still to be read.
    skip: usize,
    dropped: Option<Dropped>,
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadOutcome {
    pub(super) came: ReadVolume,
    /// Whether more bytes may be readable.
    pub(super) more: bool,
}

/// Why the recording of a bus ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneEnd {
    /// The bus has ended, or has closed the connection.
    #[error("the bus closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection to the bus broke")]
    Broken(#[source] io::Error),
    /// The process that reads the bus was ended; messages that it had not passed on are lost.
    #[error("the process that reads the bus was ended")]
    Killed {
        /// The signal that ended it, if it was a signal.
        signal: Option<i32>,
    },
    /// The bus sent an invalid message.
    #[error("the bus sent an invalid message")]
    NoMessage(#[source] wire::WireError),
}

impl BusBuffer {
    /// Begins with the bytes that a monitor has received already.
    pub(super) fn new(
        bus: u16,
        monitor: BusMonitor,
        producer: &mut RingProducer,
        now: u64,
    ) -> Result<BusBuffer, LaneEnd> {
        let BusMonitor { descriptor, begun, bus_process, .. } = monitor;
        let mut lane = BusBuffer {
            bus,
            source: descriptor,
            processor: bus_process.and_then(|process| ProcessorOf::process(process).ok()),
            chunk: producer.chunk(bus, begun.len() + wire::FIXED),
            since: 0,
            begun: Vec::new(),
            skip: 0,
            dropped: None,
        };
        if let Some(chunk) = &mut lane.chunk {
            chunk.bytes[..begun.len()].copy_from_slice(&begun);
            chunk.filled = begun.len();
            lane.frame(producer, now)?;
        } else {
            lane.count(&begun, producer, now)?;
        }
        Ok(lane)
    }

    pub(super) fn source(&self) -> &OwnedFd {
        &self.source
    }

    /// Returns the processor on which the process of the bus ran last.
    pub(super) fn processor(&self) -> Option<usize> {
        self.processor.as_ref()?.last().ok()
    }

    pub(super) fn bus(&self) -> u16 {
        self.bus
    }

    /// Returns since when the oldest message waits to be passed on.
    pub(super) fn waiting_since(&self) -> Option<u64> {
        let chunk = self.chunk.as_ref()?;
        (!chunk.marks.is_empty() || chunk.dropped.is_some()).then_some(self.since)
    }

    /// Reads once.
    pub(super) fn read(
        &mut self,
        producer: &mut RingProducer,
        scratch: &mut [u8],
        now: impl FnOnce() -> u64,
    ) -> Result<ReadOutcome, LaneEnd> {
        if self.skip > 0 {
            let wanted = self.skip.min(scratch.len());
            let count = receive(&self.source, &mut scratch[..wanted])?;
            self.skip -= count;
            return Ok(ReadOutcome {
                came: ReadVolume { bytes: count, messages: 0 },
                more: count == wanted,
            });
        }
        if self.chunk.is_none() {
            self.chunk = producer.chunk(self.bus, wire::FIXED);
            if let Some(chunk) = &mut self.chunk {
                chunk.dropped = self.dropped.take();
                chunk.bytes[..self.begun.len()].copy_from_slice(&self.begun);
                chunk.filled = self.begun.len();
                self.since = now_or(self.since, chunk.dropped);
                self.begun.clear();
            }
        }
        let Some(chunk) = &mut self.chunk else {
            let held = self.begun.len();
            scratch[..held].copy_from_slice(&self.begun);
            let count = receive(&self.source, &mut scratch[held..])?;
            let now = now();
            let more = held + count == scratch.len();
            self.begun.clear();
            let messages = self.count(&scratch[..held + count], producer, now)?;
            return Ok(ReadOutcome { came: ReadVolume { bytes: count, messages }, more });
        };
        let room = &mut chunk.bytes[chunk.filled..];
        let size = room.len();
        let count = receive(&self.source, room)?;
        chunk.filled += count;
        let messages = if count > 0 { self.frame(producer, now())? } else { 0 };
        Ok(ReadOutcome { came: ReadVolume { bytes: count, messages }, more: count == size })
    }

    /// Finds the complete messages, and begins another chunk if the next one does not fit; returns how many there are.
    fn frame(&mut self, producer: &mut RingProducer, now: u64) -> Result<usize, LaneEnd> {
        let Some(chunk) = &mut self.chunk else { return Ok(0) };
        let before = chunk.marks.len();
        let mut at = chunk.whole();
        let need = loop {
            let rest = &chunk.bytes[at..chunk.filled];
            if rest.len() < wire::FIXED {
                break wire::FIXED;
            }
            let length = length(rest)?;
            if rest.len() < length {
                break length;
            }
            at += length;
            chunk.marks.push((now, at));
        };
        let messages = chunk.marks.len() - before;
        if before == 0 && messages > 0 {
            self.since = now;
        }
        if at + need > chunk.bytes.len() {
            self.turn(need, producer, now)?;
        }
        Ok(messages)
    }

    /// Passes the chunk on and begins another with room for `need` bytes.
    fn turn(&mut self, need: usize, producer: &mut RingProducer, now: u64) -> Result<(), LaneEnd> {
        let Some(chunk) = self.chunk.take() else { return Ok(()) };
        let rest = chunk.bytes[chunk.whole()..chunk.filled].to_vec();
        // The chunk is passed on before room is requested: an empty chunk returns its memory, which becomes that room.
        let handed_over = !chunk.marks.is_empty();
        let dropped = chunk.dropped.filter(|_| !handed_over);
        if handed_over {
            producer.put(RingItem::Chunk(chunk))
        } else {
            producer.give_back(chunk)
        }
        match producer.chunk(self.bus, need) {
            Some(mut next) => {
                next.dropped = dropped;
                next.bytes[..rest.len()].copy_from_slice(&rest);
                next.filled = rest.len();
                self.chunk = Some(next);
                Ok(())
            }
            None => {
                self.dropped = dropped;
                self.count(&rest, producer, now).map(|_| ())
            }
        }
    }

    /// Passes the messages on that wait, if there is room for another chunk.
    pub(super) fn hand_over(&mut self, producer: &mut RingProducer) {
        let Some(chunk) = &self.chunk else { return };
        let rest = chunk.filled - chunk.whole();
        // A message that is longer than a chunk already has a chunk of its own.
        if chunk.marks.is_empty() && chunk.dropped.is_none() || rest + wire::FIXED > CHUNK {
            return;
        }
        let Some(mut next) = producer.chunk(self.bus, CHUNK) else { return };
        let whole = chunk.whole();
        next.bytes[..rest].copy_from_slice(&chunk.bytes[whole..chunk.filled]);
        next.filled = rest;
        if let Some(done) = self.chunk.replace(next) {
            producer.put(RingItem::Chunk(done));
        }
        // An incomplete message may need more room than the new chunk has.
        let needs = self.chunk.as_ref().and_then(|chunk| length(&chunk.bytes[..rest]).ok());
        if let Some(need) = needs.filter(|need| *need > CHUNK) {
            // It had room in the old chunk, which was longer, where an invalid length would have been noticed.
            let _ = self.turn(need, producer, self.since);
        }
    }

    /// Passes everything on, followed by the end of the recording of this bus. Nothing more is read.
    pub(super) fn finish(&mut self, producer: &mut RingProducer, now: u64) {
        match self.chunk.take() {
            Some(chunk) if !chunk.marks.is_empty() || chunk.dropped.is_some() => {
                producer.put(RingItem::Chunk(chunk));
            }
            _ => {}
        }
        if let Some(dropped) = self.dropped.take() {
            producer.put(RingItem::Dropped(dropped));
        }
        producer.put(RingItem::End(RecordingEnd { bus: self.bus, at: now }));
    }

    /// Counts the messages that are dropped because there is no room, and returns their number.
    fn count(
        &mut self,
        mut bytes: &[u8],
        producer: &mut RingProducer,
        now: u64,
    ) -> Result<usize, LaneEnd> {
        let mut count = 0;
        while bytes.len() >= wire::FIXED {
            let length = length(bytes)?;
            count += 1;
            let dropped = self.dropped.get_or_insert(Dropped {
                bus: self.bus,
                from: now,
                ..Dropped::default()
            });
            dropped.count += 1;
            dropped.bytes += u64::try_from(length).unwrap_or(0);
            dropped.to = now;
            self.skip = length.saturating_sub(bytes.len());
            bytes = bytes.get(length..).unwrap_or_default();
        }
        self.begun = bytes.to_vec();
        if count > 0 {
            producer.missed(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(count)
    }
}

fn now_or(since: u64, dropped: Option<Dropped>) -> u64 {
    dropped.map_or(since, |dropped| dropped.to)
}

fn length(bytes: &[u8]) -> Result<usize, LaneEnd> {
    let length = wire::length(bytes).map_err(LaneEnd::NoMessage)?;
    Ok(usize::try_from(length).unwrap_or(usize::MAX))
}

/// Reads without waiting; returns 0 if nothing is readable.
fn receive(source: &OwnedFd, buffer: &mut [u8]) -> Result<usize, LaneEnd> {
    loop {
        match rustix::io::read(source, &mut *buffer) {
            Ok(0) => return Err(LaneEnd::Closed),
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Err(LaneEnd::Closed),
            Err(error) => return Err(LaneEnd::Broken(error.into())),
        }
    }
}
