//! What came and is not taken yet: memory with a limit between the thread that reads and the one that writes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bus::capture::{Bus, Dropped, Peer};

/// The usual size of a chunk: it stays in a processor's cache while it is filled and emptied.
pub(super) const CHUNK: usize = 1 << 18;
/// How much of the memory is kept for later when nothing needs it.
const KEPT: usize = 16 * CHUNK;
/// What a connection is taken to need.
const PEER: usize = 1024;

/// Messages of one bus, one after the other.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bus: u16,
    /// What was missed before the first of them.
    pub(super) dropped: Option<Dropped>,
    pub(super) bytes: Vec<u8>,
    /// How much of the bytes is filled.
    pub(super) filled: usize,
    /// When each came, and where it ends.
    pub(super) marks: Vec<(u64, usize)>,
}

impl Chunk {
    /// Returns where the last whole message ends.
    pub(super) fn whole(&self) -> usize {
        self.marks.last().map_or(0, |(_, end)| *end)
    }
}

/// One thing that is to be taken.
#[derive(Debug)]
pub(super) enum Item {
    Bus(Bus),
    Peers(Vec<Peer>),
    Chunk(Chunk),
    Dropped(Dropped),
}

/// How many things came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages that are recorded, or wait for it.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that had no room.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    spare: Vec<Chunk>,
    /// How much memory there is, in chunks that are filled, waiting, being taken or spare.
    used: usize,
    tally: Tally,
    over: bool,
}

/// The memory, and who waits for it.
#[derive(Debug)]
pub(super) struct Ring {
    state: Mutex<State>,
    came: Condvar,
    limit: usize,
}

/// What a taker finds.
pub(super) enum Taken {
    Item(Item),
    Quiet,
    Over,
}

impl Ring {
    /// Makes one that uses at most about `limit` bytes, but two chunks in any case.
    pub(super) fn new(limit: usize) -> Ring {
        let limit = limit.max(2 * CHUNK);
        Ring { state: Mutex::default(), came: Condvar::new(), limit }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock leaves things half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an empty chunk for a message of at least `length` bytes; none if there is no room.
    pub(super) fn chunk(&self, bus: u16, length: usize) -> Option<Chunk> {
        let mut state = self.state();
        let size = length.max(CHUNK);
        if size == CHUNK
            && let Some(chunk) = state.spare.pop()
        {
            return Some(Chunk { bus, ..chunk });
        }
        while state.used + size > self.limit {
            let chunk = state.spare.pop()?;
            state.used -= chunk.bytes.len();
        }
        state.used += size;
        drop(state);
        Some(Chunk { bus, bytes: vec![0; size], ..Chunk::default() })
    }

    /// Takes back a chunk that is not needed any more.
    pub(super) fn give_back(&self, mut chunk: Chunk) {
        let mut state = self.state();
        if chunk.bytes.len() != CHUNK || state.spare.len() * CHUNK >= KEPT {
            state.used -= chunk.bytes.len();
            drop(state);
            return;
        }
        chunk.marks.clear();
        (chunk.filled, chunk.dropped) = (0, None);
        state.spare.push(chunk);
    }

    /// Adds something behind all else.
    pub(super) fn put(&self, item: Item) {
        let mut state = self.state();
        match &item {
            Item::Chunk(chunk) => {
                state.tally.messages += u64::try_from(chunk.marks.len()).unwrap_or(0);
                state.tally.bytes += u64::try_from(chunk.whole()).unwrap_or(0);
            }
            Item::Peers(peers) => {
                let size = peers.len() * PEER;
                // Who comes and goes faster than it can be written is not worth losing messages for.
                if state.used + size > self.limit {
                    return;
                }
                state.used += size;
            }
            Item::Bus(_) | Item::Dropped(_) => {}
        }
        state.items.push_back(item);
        drop(state);
        self.came.notify_one();
    }

    /// Counts messages that had no room.
    pub(super) fn missed(&self, count: u64) {
        self.state().tally.dropped += count;
    }

    /// Says whether all that was put is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.state().items.is_empty()
    }

    pub(super) fn tally(&self) -> Tally {
        self.state().tally
    }

    /// Says that nothing will be put any more.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.came.notify_all();
    }

    /// Takes the next thing; waits for it at most so long.
    pub(super) fn take(&self, patience: Duration) -> Taken {
        let waits = |state: &mut State| state.items.is_empty() && !state.over;
        let waited = self.came.wait_timeout_while(self.state(), patience, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.items.pop_front() {
            Some(item) => {
                if let Item::Peers(peers) = &item {
                    state.used -= peers.len() * PEER;
                }
                Taken::Item(item)
            }
            None if state.over => Taken::Over,
            None => Taken::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_limit_and_is_used_again() {
        let ring = Ring::new(3 * CHUNK);
        let one = ring.chunk(0, 16).unwrap();
        let _two = ring.chunk(0, 16).unwrap();
        assert!(ring.chunk(0, 2 * CHUNK).is_none());
        let _three = ring.chunk(0, 16).unwrap();
        assert!(ring.chunk(0, 16).is_none());
        ring.give_back(one);
        assert!(ring.chunk(0, CHUNK + 1).is_none());
        assert!(ring.chunk(0, 16).is_some());
    }

    #[test]
    fn a_spare_chunk_makes_room_for_a_longer_one() {
        let ring = Ring::new(3 * CHUNK);
        let one = ring.chunk(0, 16).unwrap();
        let two = ring.chunk(0, 16).unwrap();
        ring.give_back(one);
        ring.give_back(two);
        let long = ring.chunk(0, 3 * CHUNK).unwrap();
        assert_eq!(long.bytes.len(), 3 * CHUNK);
        ring.give_back(long);
        assert!(ring.chunk(0, 3 * CHUNK).is_some());
    }

    #[test]
    fn what_was_put_is_taken_in_order_and_then_it_is_over() {
        let ring = Ring::new(0);
        for bus in 0..2 {
            ring.put(Item::Bus(Bus { bus, ..Bus::default() }));
        }
        ring.end();
        for number in 0..2 {
            assert!(
                matches!(ring.take(Duration::ZERO), Taken::Item(Item::Bus(bus)) if bus.bus == number)
            );
        }
        assert!(matches!(ring.take(Duration::MAX), Taken::Over));
    }
}
