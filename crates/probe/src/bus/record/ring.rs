//! What came and is not taken yet: memory with a limit between the thread that reads and the one that writes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use sys::sched::Hurry;
use sys::shared::{Counters, Slots};

use super::memory::{Memory, MemorySource};

use crate::bus::capture::{Bus, Dropped, Peer, RecordingEnd};

/// The usual size of a chunk: it stays in a processor's cache while it is filled and emptied.
pub(super) const CHUNK: usize = 1 << 18;
/// So many empty chunks are made ahead of need. New memory takes several times as long as the copy into it, and whoever
/// empties a socket has no time for that.
const READY: usize = 32;
/// What a connection is taken to need.
const PEER: usize = 1024;

/// Messages of one bus, one after the other.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// By which the process that has made it knows it, while another one has it.
    pub(super) number: u64,
    pub(super) bus: u16,
    /// What was missed before the first of them.
    pub(super) dropped: Option<Dropped>,
    pub(super) bytes: Memory,
    /// How much of the bytes is filled.
    pub(super) filled: usize,
    /// When each came, and where it ends.
    pub(super) marks: Vec<(u64, usize)>,
}

impl Chunk {
    fn clear(&mut self) {
        self.marks.clear();
        (self.filled, self.dropped) = (0, None);
    }

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
    End(RecordingEnd),
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
    /// Those that were used last come last, and are used next: a processor may have them in its cache still.
    spare: VecDeque<Chunk>,
    /// How many empty chunks the reader has.
    held: usize,
    tally: Tally,
    over: bool,
}

/// The memory, and who waits for it.
#[derive(Debug)]
pub(super) struct Ring {
    state: Mutex<State>,
    came: Condvar,
    /// There are few empty chunks, or it is over.
    runs_low: Condvar,
    /// How much memory there is, in chunks that are filled, waiting, being taken or spare.
    used: AtomicUsize,
    limit: usize,
    memory: MemorySource,
    /// What another process reads of the tally.
    counters: Option<Arc<Counters<3>>>,
    /// How many empty chunks are made, and kept, at most: not all that there may be, which others need, too.
    ready: usize,
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
        Ring::of(limit, MemorySource::Own, None)
    }

    /// Makes one whose chunks lie in memory that another process sees, too, as it sees the tally.
    pub(super) fn shared(limit: usize, slots: Arc<Slots>, counters: Arc<Counters<3>>) -> Ring {
        Ring::of(limit, MemorySource::shared(slots), Some(counters))
    }

    /// Returns how many chunks one of this limit has at most.
    pub(super) fn chunks(limit: usize) -> usize {
        limit.max(2 * CHUNK) / CHUNK
    }

    fn of(limit: usize, memory: MemorySource, counters: Option<Arc<Counters<3>>>) -> Ring {
        let limit = limit.max(2 * CHUNK);
        Ring {
            state: Mutex::default(),
            came: Condvar::new(),
            runs_low: Condvar::new(),
            used: AtomicUsize::new(0),
            limit,
            memory,
            counters,
            ready: READY.min(limit / CHUNK / 2),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock leaves things half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state unless somebody else has it.
    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Counts memory as used if there is room; says whether there is.
    fn reserve(&self, size: usize) -> bool {
        let more = |used: usize| used.checked_add(size).filter(|used| *used <= self.limit);
        // It is a count alone; chunks are handed on under the lock.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Does the same, and gives away empty chunks for it.
    fn reserve_from(&self, spare: &mut VecDeque<Chunk>, size: usize) -> bool {
        while !self.reserve(size) {
            let Some(chunk) = spare.pop_front() else { return false };
            self.free(chunk);
        }
        true
    }

    /// Gives the memory of a chunk away, so that it is there before anybody counts on it.
    fn free(&self, chunk: Chunk) {
        let size = chunk.bytes.len();
        chunk.bytes.free();
        self.release(size);
    }

    fn release(&self, size: usize) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }

    /// Says whether empty chunks are to be made, and may be.
    fn is_low(&self, state: &State) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        // What is in use for a moment comes back.
        state.spare.len() + state.held < self.ready * 3 / 4 && used + CHUNK <= self.limit
    }

    /// Makes empty chunks whenever there are few, until it is over.
    pub(super) fn keep_ready(&self) {
        let waits = |state: &mut State| !state.over && !self.is_low(state);
        loop {
            let waited = self.runs_low.wait_while(self.state(), waits);
            if waited.unwrap_or_else(PoisonError::into_inner).over {
                return;
            }
            // Who is not allowed to hurry makes them in time all the same, unless the machine is busy.
            let hurry = Hurry::begin().ok();
            while self.make_one() {}
            drop(hurry);
        }
    }

    /// Makes an empty chunk if there is room and need for it; says whether it did.
    fn make_one(&self) -> bool {
        let state = self.state();
        if state.over || state.spare.len() + state.held >= self.ready || !self.reserve(CHUNK) {
            return false;
        }
        drop(state);
        // Memory is given when something is written into it; zeros are promised without that.
        let Some(mut bytes) = self.memory.make(CHUNK) else {
            self.release(CHUNK);
            return false;
        };
        bytes.fill(u8::MAX);
        self.state().spare.push_front(Chunk { bytes, ..Chunk::default() });
        true
    }

    /// Takes back a chunk that is not needed any more.
    pub(super) fn give_back(&self, mut chunk: Chunk) {
        chunk.clear();
        let mut state = self.state();
        if chunk.bytes.len() != CHUNK || state.spare.len() + state.held >= self.ready {
            drop(state);
            self.free(chunk);
            return;
        }
        state.spare.push_back(chunk);
    }

    /// Adds something behind all else.
    pub(super) fn put(&self, item: Item) {
        let mut state = self.state();
        self.add(&mut state, item);
        drop(state);
        self.came.notify_one();
    }

    fn add(&self, state: &mut State, item: Item) {
        match &item {
            Item::Chunk(chunk) => {
                state.tally.messages += u64::try_from(chunk.marks.len()).unwrap_or(0);
                state.tally.bytes += u64::try_from(chunk.whole()).unwrap_or(0);
            }
            Item::Peers(peers) => {
                let size = peers.len() * PEER;
                // Who comes and goes faster than it can be written is not worth losing messages for.
                if !self.reserve_from(&mut state.spare, size) {
                    return;
                }
            }
            Item::Bus(_) | Item::Dropped(_) | Item::End(_) => {}
        }
        state.items.push_back(item);
    }

    pub(super) fn tally(&self) -> Tally {
        self.state().tally
    }

    /// Says that nothing will be put any more.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.came.notify_all();
        self.runs_low.notify_all();
    }

    /// Takes the next thing; waits for it at most so long.
    pub(super) fn take(&self, patience: Duration) -> Taken {
        let waits = |state: &mut State| state.items.is_empty() && !state.over;
        let waited = self.came.wait_timeout_while(self.state(), patience, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.items.pop_front() {
            Some(item) => {
                if let Item::Peers(peers) = &item {
                    self.release(peers.len() * PEER);
                }
                Taken::Item(item)
            }
            None if state.over => Taken::Over,
            None => Taken::Quiet,
        }
    }
}

/// What the thread that reads has of the ring. The ring's lock may be held by a thread that the system has stopped for
/// others, for as long as they like to run; meanwhile a bus would keep what is not read. So nothing here waits for the
/// lock, except for room for a message that is longer than a chunk.
#[derive(Debug)]
pub(super) struct RingProducer {
    ring: Arc<Ring>,
    /// Those that were used last come last.
    empty: Vec<Chunk>,
    /// What is to be put.
    out: Vec<Item>,
    missed: u64,
}

impl RingProducer {
    pub(super) fn of(ring: Arc<Ring>) -> RingProducer {
        RingProducer { ring, empty: Vec::new(), out: Vec::new(), missed: 0 }
    }

    /// Returns an empty chunk for a message of at least `length` bytes; none if there is no room.
    pub(super) fn chunk(&mut self, bus: u16, length: usize) -> Option<Chunk> {
        let size = length.max(CHUNK);
        if size == CHUNK {
            if self.empty.is_empty() {
                self.try_exchange();
            }
            if let Some(chunk) = self.empty.pop() {
                return Some(Chunk { bus, ..chunk });
            }
        }
        if !self.ring.reserve(size) {
            if size == CHUNK {
                return None;
            }
            let mut state = self.ring.state();
            state.spare.extend(self.empty.drain(..));
            if !self.ring.reserve_from(&mut state.spare, size) {
                return None;
            }
        }
        let Some(bytes) = self.ring.memory.make(size) else {
            self.ring.release(size);
            return None;
        };
        Some(Chunk { bus, bytes, ..Chunk::default() })
    }

    /// Takes back a chunk that is not needed any more.
    pub(super) fn give_back(&mut self, mut chunk: Chunk) {
        if chunk.bytes.len() == CHUNK {
            chunk.clear();
            self.empty.push(chunk);
        } else {
            self.ring.give_back(chunk);
        }
    }

    /// Adds something behind all else.
    pub(super) fn put(&mut self, item: Item) {
        self.out.push(item);
        self.try_exchange();
    }

    /// Counts messages that had no room.
    pub(super) fn missed(&mut self, count: u64) {
        self.missed += count;
    }

    /// Says whether all that was put is taken; not that it is, while somebody else has the lock.
    pub(super) fn is_taken(&self) -> bool {
        self.out.is_empty() && self.ring.try_state().is_some_and(|state| state.items.is_empty())
    }

    /// Puts and takes what there is, unless somebody else has the lock; says whether all is done.
    pub(super) fn try_exchange(&mut self) -> bool {
        let ring = Arc::clone(&self.ring);
        let Some(state) = ring.try_state() else { return false };
        self.exchange_with(&ring, state);
        true
    }

    /// Puts what there is, and nothing will be put any more.
    pub(super) fn end(&mut self) {
        self.exchange();
        self.ring.end();
    }

    /// Puts and takes what there is.
    fn exchange(&mut self) {
        let ring = Arc::clone(&self.ring);
        let state = ring.state();
        self.exchange_with(&ring, state);
    }

    fn exchange_with(&mut self, ring: &Ring, mut state: MutexGuard<'_, State>) {
        let has_news = !self.out.is_empty();
        self.out.drain(..).for_each(|item| ring.add(&mut state, item));
        state.tally.dropped += std::mem::take(&mut self.missed);
        if let Some(counters) = &ring.counters {
            let Tally { messages, bytes, dropped } = state.tally;
            counters.store([messages, bytes, dropped]);
        }
        let wanted = ring.ready.saturating_sub(self.empty.len()).min(state.spare.len());
        let first = state.spare.len() - wanted;
        self.empty.extend(state.spare.drain(first..));
        state.held = self.empty.len();
        let is_low = ring.is_low(&state);
        drop(state);
        if has_news {
            ring.came.notify_one();
        }
        if is_low {
            ring.runs_low.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_limit_and_is_used_again() {
        let ring = Arc::new(Ring::new(3 * CHUNK));
        let mut producer = RingProducer::of(Arc::clone(&ring));
        let one = producer.chunk(0, 16).unwrap();
        let _two = producer.chunk(0, 16).unwrap();
        assert!(producer.chunk(0, 2 * CHUNK).is_none());
        let _three = producer.chunk(0, 16).unwrap();
        assert!(producer.chunk(0, 16).is_none());
        ring.give_back(one);
        assert!(producer.chunk(0, CHUNK + 1).is_none());
        assert!(producer.chunk(0, 16).is_some());
    }

    #[test]
    fn a_spare_chunk_makes_room_for_a_longer_one() {
        let ring = Arc::new(Ring::new(3 * CHUNK));
        let mut producer = RingProducer::of(Arc::clone(&ring));
        let one = producer.chunk(0, 16).unwrap();
        let two = producer.chunk(0, 16).unwrap();
        ring.give_back(one);
        producer.give_back(two);
        let long = producer.chunk(0, 3 * CHUNK).unwrap();
        assert_eq!(long.bytes.len(), 3 * CHUNK);
        ring.give_back(long);
        assert!(producer.chunk(0, 3 * CHUNK).is_some());
    }

    #[test]
    fn empty_chunks_are_made_ahead_within_the_limit_and_the_last_used_comes_first() {
        let ring = Arc::new(Ring::new(8 * CHUNK));
        let mut producer = RingProducer::of(Arc::clone(&ring));
        let mut used = producer.chunk(0, 16).unwrap();
        used.bytes[0] = 1;
        ring.give_back(used);
        while ring.make_one() {}
        let made: Vec<Chunk> = std::iter::from_fn(|| producer.chunk(0, 16)).collect();
        assert_eq!(
            made.iter().map(|it| it.bytes[0]).collect::<Vec<_>>(),
            [1, 255, 255, 255, 0, 0, 0, 0]
        );
        assert!(!ring.make_one() && !ring.reserve(PEER));
        // After a flood, half of the room is there for what is no chunk.
        made.into_iter().for_each(|chunk| ring.give_back(chunk));
        assert!(ring.reserve(4 * CHUNK) && !ring.reserve(1));
    }

    #[test]
    fn who_makes_empty_chunks_makes_some_again_when_they_run_low_and_ends() {
        let ring = Arc::new(Ring::new(3 * READY * CHUNK));
        let mut producer = RingProducer::of(Arc::clone(&ring));
        std::thread::scope(|scope| {
            let maker = sys::thread::spawn_scoped(scope, "maker", || ring.keep_ready()).unwrap();
            let mut taken = Vec::new();
            while taken.len() < 2 * READY {
                while producer.empty.is_empty() {
                    std::thread::yield_now();
                    producer.exchange();
                }
                taken.push(producer.chunk(0, 16).unwrap());
            }
            ring.end();
            maker.join().unwrap();
            assert!(taken.iter().all(|chunk| chunk.bytes[0] == u8::MAX));
        });
    }

    #[test]
    fn who_reads_goes_on_while_somebody_has_the_lock() {
        let ring = Arc::new(Ring::new(4 * CHUNK));
        let mut producer = RingProducer::of(Arc::clone(&ring));
        while ring.make_one() {}
        producer.exchange();
        let state = ring.state();
        for bus in 0..4 {
            let mut chunk = producer.chunk(bus, 16).unwrap();
            chunk.marks.push((1, 16));
            producer.put(Item::Chunk(chunk));
        }
        assert!(producer.chunk(0, 16).is_none());
        producer.missed(7);
        assert!(!producer.is_taken() && !producer.try_exchange());
        assert_eq!(state.tally, Tally::default());
        drop(state);
        assert!(producer.try_exchange());
        assert_eq!(ring.tally(), Tally { messages: 4, bytes: 64, dropped: 7 });
        for number in 0..4 {
            let taken = ring.take(Duration::ZERO);
            assert!(matches!(taken, Taken::Item(Item::Chunk(chunk)) if chunk.bus == number));
        }
        assert!(producer.is_taken());
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
