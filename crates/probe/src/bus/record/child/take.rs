//! The parent's side: things are taken as they come, and memory is given back.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sys::shared::Slots;

use super::frame::{self, Arrived, ChunkFrame, EndFrame, FromChild, FromParent, LONGEST};
use crate::bus::record::lane::LaneEnd;
use crate::bus::record::memory::Memory;
use crate::bus::record::reader::{Times, nanoseconds};
use crate::bus::record::ring::{Chunk, Item, Taken};
use crate::bus::wire;

/// Takes what the child has.
#[derive(Debug)]
pub(in crate::bus::record) struct Taker {
    socket: OwnedFd,
    slots: Arc<Slots>,
    times: Times,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    buffer: Vec<u8>,
    /// Whether nothing will come any more.
    over: bool,
    /// Why buses ended by themselves, once the child has said so.
    ends: Option<Vec<(u16, LaneEnd)>>,
}

impl Taker {
    pub(super) fn new(socket: OwnedFd, slots: Arc<Slots>, times: &Times) -> Taker {
        let state = State { buffer: vec![0; LONGEST], over: false, ends: None };
        Taker { socket, slots, times: times.clone(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock leaves things half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the child's first word.
    pub(super) fn answer(&self, patience: Duration) -> io::Result<FromChild> {
        let until = self.times.now().saturating_add(nanoseconds(patience));
        let mut state = self.state();
        while !sys::socket::wait_readable(&self.socket, Some(patience))? {
            if self.times.now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let arrived = frame::receive(&self.socket, &mut state.buffer)?;
        arrived.map(|arrived| arrived.frame).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Takes the next thing; waits for it at most so long.
    pub(in crate::bus::record) fn take(&self, patience: Duration) -> Taken {
        let mut state = self.state();
        if state.over {
            return Taken::Over;
        }
        if !sys::socket::wait_readable(&self.socket, Some(patience)).unwrap_or(true) {
            return Taken::Quiet;
        }
        let arrived = match frame::receive(&self.socket, &mut state.buffer) {
            Ok(Some(arrived)) => arrived,
            Ok(None) => {
                state.over = true;
                return Taken::Over;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Taken::Quiet,
            Err(error) => {
                state.over = true;
                state.ends = Some(vec![(0, LaneEnd::Broken(error))]);
                return Taken::Over;
            }
        };
        let Arrived { frame, memory } = arrived;
        let item = match frame {
            FromChild::Bus(bus) => Item::Bus(bus),
            FromChild::Peers(peers) => Item::Peers(peers),
            FromChild::Dropped(dropped) => Item::Dropped(dropped),
            FromChild::End(end) => Item::End(end),
            FromChild::Chunk(frame) => {
                let memory = match frame.slot {
                    Some(slot) => self.slots.take(slot).map(Memory::Slot),
                    None => memory.map(Memory::Passed),
                };
                match memory.and_then(|memory| chunk(frame, memory)) {
                    Some(chunk) => Item::Chunk(chunk),
                    None => return Taken::Quiet,
                }
            }
            FromChild::Over(ends) => {
                state.over = true;
                state.ends = Some(ends.into_iter().map(|(bus, end)| (bus, end.into())).collect());
                return Taken::Over;
            }
            // It said that already.
            FromChild::Begun | FromChild::Refused { .. } => return Taken::Quiet,
        };
        Taken::Item(item)
    }

    /// Gives the memory of a chunk back to the child.
    pub(in crate::bus::record) fn give_back(&self, chunk: Chunk) {
        let number = chunk.number;
        // The child may use it as soon as it is told.
        drop(chunk);
        self.say(FromParent::GiveBack(number));
    }

    /// Has the child stop reading.
    pub(in crate::bus::record) fn stop(&self) {
        self.say(FromParent::Stop);
    }

    fn say(&self, frame: FromParent) {
        // A child that is gone has let go of everything.
        let _ = frame::send(&self.socket, &frame, None);
    }

    /// Lets go of all that is left, and returns why buses ended by themselves; nothing if the child has not said so in time.
    pub(super) fn finish(&self, patience: Duration) -> Option<Vec<(u16, LaneEnd)>> {
        let until = self.times.now().saturating_add(nanoseconds(patience));
        loop {
            match self.take(patience) {
                Taken::Item(Item::Chunk(chunk)) => self.give_back(chunk),
                Taken::Item(_) => (),
                Taken::Over => return self.state().ends.take(),
                Taken::Quiet if self.times.now() >= until => return None,
                Taken::Quiet => (),
            }
        }
    }
}

/// Finds the messages of a chunk: each says how long it is.
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
