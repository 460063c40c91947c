//! One bus's bytes as they come: cut into messages where they lie, or counted and let go when there is no room.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sys::processor::ProcessorOf;

use super::connection::Monitor;
use super::pace::Came;
use super::ring::{CHUNK, Chunk, Item, RingProducer};
use crate::bus::capture::{Dropped, RecordingEnd};
use crate::bus::wire;

/// Where messages of one bus go.
#[derive(Debug)]
pub(super) struct Lane {
    bus: u16,
    source: OwnedFd,
    /// Where the bus runs, if that is known.
    processor: Option<ProcessorOf>,
    /// What is being filled; none while there is no room.
    chunk: Option<Chunk>,
    /// When the first message in it came.
    since: u64,
    /// The begin of a message that is too short to say how long it will be, while there is no room.
    begun: Vec<u8>,
    /// How many bytes of a message that has no room are still to come.
    skip: usize,
    dropped: Option<Dropped>,
}

/// What one read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) came: Came,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Why no more messages come from a bus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneEnd {
    /// The bus has ended, or has closed the connection.
    #[error("the bus closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection to the bus broke")]
    Broken(#[source] io::Error),
    /// The process that reads the bus was ended; what it had not handed over is lost.
    #[error("the process that reads the bus was ended")]
    Killed {
        /// The signal that ended it, if one did.
        signal: Option<i32>,
    },
    /// What came is no message.
    #[error("the bus sent what is no message")]
    NoMessage(#[source] wire::WireError),
}

impl Lane {
    /// Begins with what a monitor has already got.
    pub(super) fn new(
        bus: u16,
        monitor: Monitor,
        producer: &mut RingProducer,
        now: u64,
    ) -> Result<Lane, LaneEnd> {
        let Monitor { descriptor, begun, bus_process, .. } = monitor;
        let mut lane = Lane {
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

    /// Returns the processor on which the bus ran last.
    pub(super) fn processor(&self) -> Option<usize> {
        self.processor.as_ref()?.last().ok()
    }

    pub(super) fn bus(&self) -> u16 {
        self.bus
    }

    /// Returns since when a message waits to be handed over.
    pub(super) fn waiting_since(&self) -> Option<u64> {
        let chunk = self.chunk.as_ref()?;
        (!chunk.marks.is_empty() || chunk.dropped.is_some()).then_some(self.since)
    }

    /// Reads what there is, once.
    pub(super) fn read(
        &mut self,
        producer: &mut RingProducer,
        scratch: &mut [u8],
        now: impl FnOnce() -> u64,
    ) -> Result<Found, LaneEnd> {
        if self.skip > 0 {
            let wanted = self.skip.min(scratch.len());
            let count = receive(&self.source, &mut scratch[..wanted])?;
            self.skip -= count;
            return Ok(Found { came: Came { bytes: count, messages: 0 }, more: count == wanted });
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
            return Ok(Found { came: Came { bytes: count, messages }, more });
        };
        let room = &mut chunk.bytes[chunk.filled..];
        let size = room.len();
        let count = receive(&self.source, room)?;
        chunk.filled += count;
        let messages = if count > 0 { self.frame(producer, now())? } else { 0 };
        Ok(Found { came: Came { bytes: count, messages }, more: count == size })
    }

    /// Finds the messages that are whole now, and goes on in another chunk if the next does not fit; returns how many.
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

    /// Hands the chunk over and goes on in another with room for `need` bytes.
    fn turn(&mut self, need: usize, producer: &mut RingProducer, now: u64) -> Result<(), LaneEnd> {
        let Some(chunk) = self.chunk.take() else { return Ok(()) };
        let rest = chunk.bytes[chunk.whole()..chunk.filled].to_vec();
        // The chunk is put before room is asked for: if it has nothing, its memory is that room.
        let handed_over = !chunk.marks.is_empty();
        let dropped = chunk.dropped.filter(|_| !handed_over);
        if handed_over {
            producer.put(Item::Chunk(chunk))
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

    /// Hands over what waits, if there is room to go on.
    pub(super) fn hand_over(&mut self, producer: &mut RingProducer) {
        let Some(chunk) = &self.chunk else { return };
        let rest = chunk.filled - chunk.whole();
        // A message that is longer than a chunk has one of its own already.
        if chunk.marks.is_empty() && chunk.dropped.is_none() || rest + wire::FIXED > CHUNK {
            return;
        }
        let Some(mut next) = producer.chunk(self.bus, CHUNK) else { return };
        let whole = chunk.whole();
        next.bytes[..rest].copy_from_slice(&chunk.bytes[whole..chunk.filled]);
        next.filled = rest;
        if let Some(done) = self.chunk.replace(next) {
            producer.put(Item::Chunk(done));
        }
        // What has begun may need more room than the new chunk has.
        let needs = self.chunk.as_ref().and_then(|chunk| length(&chunk.bytes[..rest]).ok());
        if let Some(need) = needs.filter(|need| *need > CHUNK) {
            // It fitted the old one, which was longer; an error would have been seen there.
            let _ = self.turn(need, producer, self.since);
        }
    }

    /// Hands over everything, and that the recording of this bus ended; nothing more is read.
    pub(super) fn finish(&mut self, producer: &mut RingProducer, now: u64) {
        match self.chunk.take() {
            Some(chunk) if !chunk.marks.is_empty() || chunk.dropped.is_some() => {
                producer.put(Item::Chunk(chunk));
            }
            _ => {}
        }
        if let Some(dropped) = self.dropped.take() {
            producer.put(Item::Dropped(dropped));
        }
        producer.put(Item::End(RecordingEnd { bus: self.bus, at: now }));
    }

    /// Counts messages for which there is no room, and returns how many.
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

/// Reads without waiting; 0 is that there is nothing.
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
