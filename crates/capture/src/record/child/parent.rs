//! The parent's side: receives items from the child and returns their memory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sys::shared::Slots;

use super::protocol::{self, ChunkFrame, EndFrame, FromChild, FromParent, LONGEST, ReceivedItem};
use crate::record::bus_stream::LaneEnd;
use crate::record::memory::Memory;
use crate::record::reader::Times;
use crate::record::ring::{Chunk, RingItem, TakeResult};
use crate::record::scheduling::nanoseconds;

/// Receives the child's items.
#[derive(Debug)]
pub(in crate::record) struct Taker {
    socket: OwnedFd,
    slots: Arc<Slots>,
    times: Times,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    buffer: Vec<u8>,
    /// Whether the child has sent its last item.
    over: bool,
    /// Why buses ended by themselves; empty before the child's last item.
    ends: Option<Vec<(u16, LaneEnd)>>,
}

impl Taker {
    pub(super) fn new(socket: OwnedFd, slots: Arc<Slots>, times: &Times) -> Taker {
        let state = State { buffer: vec![0; LONGEST], over: false, ends: None };
        Taker { socket, slots, times: times.clone(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics between two related changes under this lock, so its data is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the child's first message.
    pub(super) fn answer(&self, patience: Duration) -> io::Result<FromChild> {
        let until = self.times.now().saturating_add(nanoseconds(patience));
        let mut state = self.state();
        while !sys::socket::wait_readable(&self.socket, Some(patience))? {
            if self.times.now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let arrived = protocol::receive(&self.socket, &mut state.buffer)?;
        arrived.map(|arrived| arrived.frame).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Returns the next item; waits for at most `patience`.
    pub(in crate::record) fn take(&self, patience: Duration) -> TakeResult {
        let mut state = self.state();
        if state.over {
            return TakeResult::Over;
        }
        if !sys::socket::wait_readable(&self.socket, Some(patience)).unwrap_or(true) {
            return TakeResult::Quiet;
        }
        let arrived = match protocol::receive(&self.socket, &mut state.buffer) {
            Ok(Some(arrived)) => arrived,
            Ok(None) => {
                state.over = true;
                return TakeResult::Over;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return TakeResult::Quiet,
            Err(error) => {
                state.over = true;
                state.ends = Some(vec![(0, LaneEnd::Broken(error))]);
                return TakeResult::Over;
            }
        };
        let ReceivedItem { frame, memory } = arrived;
        let item = match frame {
            FromChild::Bus(bus) => RingItem::Bus(bus),
            FromChild::Peers(peers) => RingItem::Peers(peers),
            FromChild::Dropped(dropped) => RingItem::Dropped(dropped),
            FromChild::End(end) => RingItem::End(end),
            FromChild::Chunk(frame) => {
                let memory = match frame.slot {
                    Some(slot) => self.slots.take(slot).map(Memory::Slot),
                    None => memory.map(Memory::Passed),
                };
                match memory.and_then(|memory| chunk(frame, memory)) {
                    Some(chunk) => RingItem::Chunk(chunk),
                    None => return TakeResult::Quiet,
                }
            }
            FromChild::Over(ends) => {
                state.over = true;
                state.ends = Some(ends.into_iter().map(|(bus, end)| (bus, end.into())).collect());
                return TakeResult::Over;
            }
            // The last item came before.
            FromChild::Begun | FromChild::Refused { .. } => return TakeResult::Quiet,
        };
        TakeResult::Item(item)
    }

    /// Returns the memory of a chunk to the child.
    pub(in crate::record) fn give_back(&self, chunk: Chunk) {
        let number = chunk.number;
        // The child may fill it as soon as it receives this message.
        drop(chunk);
        self.say(FromParent::GiveBack(number));
    }

    /// Tells the child to stop reading.
    pub(in crate::record) fn stop(&self) {
        self.say(FromParent::Stop);
    }

    fn say(&self, frame: FromParent) {
        // A child that has ended has released everything.
        let _ = protocol::send(&self.socket, &frame, None);
    }

    /// Drops all further items, and returns why buses ended by themselves; empty if the child does not say so in time.
    pub(super) fn finish(&self, patience: Duration) -> Option<Vec<(u16, LaneEnd)>> {
        let until = self.times.now().saturating_add(nanoseconds(patience));
        loop {
            match self.take(patience) {
                TakeResult::Item(RingItem::Chunk(chunk)) => self.give_back(chunk),
                TakeResult::Item(_) => (),
                TakeResult::Over => return self.state().ends.take(),
                TakeResult::Quiet if self.times.now() >= until => return None,
                TakeResult::Quiet => (),
            }
        }
    }
}

/// Finds the messages of a chunk by the lengths in their headers.
fn chunk(frame: ChunkFrame, bytes: Memory) -> Option<Chunk> {
    let mut marks = Vec::new();
    let mut end = 0;
    for (at, count) in frame.runs {
        for _ in 0..count {
            let length = wire::length(bytes.get(end..)?).ok()?;
            end = end.checked_add(usize::try_from(length).ok()?)?;
            marks.push((at, end));
        }
    }
    let ChunkFrame { number, bus, dropped, .. } = frame;
    (end <= bytes.len()).then_some(Chunk { number, bus, dropped, bytes, filled: end, marks })
}

impl From<EndFrame> for LaneEnd {
    fn from(end: EndFrame) -> LaneEnd {
        match end {
            EndFrame::Closed => LaneEnd::Closed,
            EndFrame::Broken(text) => LaneEnd::Broken(io::Error::other(text)),
        }
    }
}
