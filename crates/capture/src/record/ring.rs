//! The ring: bounded memory between the reading thread (producer) and the writing thread (consumer).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use sys::sched::RealtimeGuard;
use sys::shared::{Counters, Slots};

use super::memory::{CHUNK, Memory, MemorySource};

use crate::capture::{CapturedBus, Dropped, PeerRecord, RecordingEnd};

/// The number of empty chunks that are allocated ahead of need. New memory takes several times as long as the copy into
/// it, for which the reading thread has no time.
const READY: usize = 32;
/// The assumed memory for the description of a connection.
const PEER: usize = 1024;

/// Messages of one bus, one after the other.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// The number by which its maker identifies it while another process holds it.
    pub(super) number: u64,
    pub(super) bus: u16,
    /// The messages that were dropped before the first of them.
    pub(super) dropped: Option<Dropped>,
    pub(super) bytes: Memory,
    /// How many bytes are filled.
    pub(super) filled: usize,
    /// The time of arrival and the end of each message.
    pub(super) marks: Vec<(u64, usize)>,
}

impl Chunk {
    fn clear(&mut self) {
        self.marks.clear();
        (self.filled, self.dropped) = (0, None);
    }

    /// Returns the end of the last complete message.
    pub(super) fn whole(&self) -> usize {
        self.marks.last().map_or(0, |(_, end)| *end)
    }
}

/// One item for the consumer.
#[derive(Debug)]
pub(super) enum RingItem {
    Bus(CapturedBus),
    Peers(Vec<PeerRecord>),
    Chunk(Chunk),
    Dropped(Dropped),
    End(RecordingEnd),
}

/// The number of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageTally {
    /// Messages that are recorded or wait to be.
    pub messages: u64,
    /// The bytes of these messages.
    pub bytes: u64,
    /// Messages that were dropped because there was no room.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<RingItem>,
    /// Empty chunks. The last one was used last and is used next: it may still be in a processor's cache.
    spare: VecDeque<Chunk>,
    /// How many empty chunks the producer holds.
    held: usize,
    tally: MessageTally,
    over: bool,
}

/// The chunks and the items, with the conditions on which threads wait.
#[derive(Debug)]
pub(super) struct Ring {
    state: Mutex<State>,
    came: Condvar,
    /// Signalled when there are few empty chunks, or when the recording has ended.
    runs_low: Condvar,
    /// The memory of all chunks: filled, waiting, being consumed or empty.
    used: AtomicUsize,
    limit: usize,
    memory: MemorySource,
    /// The counters that another process reads.
    counters: Option<Arc<Counters<3>>>,
    /// The most empty chunks that are allocated and kept: fewer than the limit allows, because other programs need memory, too.
    ready: usize,
}

/// The result of taking an item.
pub(super) enum TakeResult {
    Item(RingItem),
    Quiet,
    Over,
}

impl Ring {
    /// Creates a ring of at most about `limit` bytes, but at least two chunks.
    pub(super) fn new(limit: usize) -> Ring {
        Ring::of(limit, MemorySource::Own, None)
    }

    /// Creates a ring whose chunks and counters lie in memory that is shared with another process.
    pub(super) fn shared(limit: usize, slots: Arc<Slots>, counters: Arc<Counters<3>>) -> Ring {
        Ring::of(limit, MemorySource::shared(slots), Some(counters))
    }

    /// Returns the most chunks of a ring with this limit.
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
        // No code panics between two related changes under this lock, so its data is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state unless another thread holds the lock.
    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reserves memory if there is room; returns whether there is.
    fn reserve(&self, size: usize) -> bool {
        let more = |used: usize| used.checked_add(size).filter(|used| *used <= self.limit);
        // This is only a counter; chunks are passed on under the lock.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Reserves memory, and frees empty chunks for it if necessary.
    fn reserve_from(&self, spare: &mut VecDeque<Chunk>, size: usize) -> bool {
        while !self.reserve(size) {
            let Some(chunk) = spare.pop_front() else { return false };
            self.free(chunk);
        }
        true
    }

    /// Frees the memory of a chunk before the counter says that there is room.
    fn free(&self, chunk: Chunk) {
        let size = chunk.bytes.len();
        chunk.bytes.free();
        self.release(size);
    }

    fn release(&self, size: usize) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }

    /// Returns whether empty chunks are needed and may be allocated.
    fn is_low(&self, state: &State) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        // Chunks that are in use now are returned soon.
        state.spare.len() + state.held < self.ready * 3 / 4 && used + CHUNK <= self.limit
    }

    /// Allocates empty chunks whenever there are few, until the recording ends.
    pub(super) fn keep_ready(&self) {
        let waits = |state: &mut State| !state.over && !self.is_low(state);
        loop {
            let waited = self.runs_low.wait_while(self.state(), waits);
            if waited.unwrap_or_else(PoisonError::into_inner).over {
                return;
            }
            // Without this priority the chunks are still allocated in time, unless the machine is busy.
            let hurry = RealtimeGuard::begin().ok();
            while self.make_one() {}
            drop(hurry);
        }
    }

    /// Allocates an empty chunk if there is room and need; returns whether it did.
    fn make_one(&self) -> bool {
        let state = self.state();
        if state.over || state.spare.len() + state.held >= self.ready || !self.reserve(CHUNK) {
            return false;
        }
        drop(state);
        // The kernel provides a page when it is written first; zeroed memory is only a promise before.
        let Some(mut bytes) = self.memory.make(CHUNK) else {
            self.release(CHUNK);
            return false;
        };
        bytes.fill(u8::MAX);
        self.state().spare.push_front(Chunk { bytes, ..Chunk::default() });
        true
    }

    /// Takes a chunk back that is not needed any more.
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

    /// Appends an item.
    pub(super) fn put(&self, item: RingItem) {
        let mut state = self.state();
        self.add(&mut state, item);
        drop(state);
        self.came.notify_one();
    }

    fn add(&self, state: &mut State, item: RingItem) {
        match &item {
            RingItem::Chunk(chunk) => {
                state.tally.messages += u64::try_from(chunk.marks.len()).unwrap_or(0);
                state.tally.bytes += u64::try_from(chunk.whole()).unwrap_or(0);
            }
            RingItem::Peers(peers) => {
                let size = peers.len() * PEER;
                // Connections that come and go faster than they can be written must not displace messages.
                if !self.reserve_from(&mut state.spare, size) {
                    return;
                }
            }
            RingItem::Bus(_) | RingItem::Dropped(_) | RingItem::End(_) => {}
        }
        state.items.push_back(item);
    }

    pub(super) fn tally(&self) -> MessageTally {
        self.state().tally
    }

    /// Marks the end: no item follows.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.came.notify_all();
        self.runs_low.notify_all();
    }

    /// Returns the next item; waits for at most `patience`.
    pub(super) fn take(&self, patience: Duration) -> TakeResult {
        let waits = |state: &mut State| state.items.is_empty() && !state.over;
        let waited = self.came.wait_timeout_while(self.state(), patience, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.items.pop_front() {
            Some(item) => {
                if let RingItem::Peers(peers) = &item {
                    self.release(peers.len() * PEER);
                }
                TakeResult::Item(item)
            }
            None if state.over => TakeResult::Over,
            None => TakeResult::Quiet,
        }
    }
}

/// The producer's part of the ring. The ring's lock may be held by a thread that the scheduler has preempted for any
/// time, while the bus would have to buffer messages. So the producer never waits for the
/// lock, except for the room of a message that is longer than a chunk.
#[derive(Debug)]
pub(super) struct RingProducer {
    ring: Arc<Ring>,
    /// Empty chunks; the last one was used last.
    empty: Vec<Chunk>,
    /// Items that are not in the ring yet.
    out: Vec<RingItem>,
    missed: u64,
}

impl RingProducer {
    pub(super) fn of(ring: Arc<Ring>) -> RingProducer {
        RingProducer { ring, empty: Vec::new(), out: Vec::new(), missed: 0 }
    }

    /// Returns an empty chunk for a message of at least `length` bytes; `None` if there is no room.
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

    /// Takes a chunk back that is not needed any more.
    pub(super) fn give_back(&mut self, mut chunk: Chunk) {
        if chunk.bytes.len() == CHUNK {
            chunk.clear();
            self.empty.push(chunk);
        } else {
            self.ring.give_back(chunk);
        }
    }

    /// Appends an item.
    pub(super) fn put(&mut self, item: RingItem) {
        self.out.push(item);
        self.try_exchange();
    }

    /// Counts messages that are dropped because there is no room.
    pub(super) fn missed(&mut self, count: u64) {
        self.missed += count;
    }

    /// Returns whether the consumer has taken everything; `false` while another thread holds the lock.
    pub(super) fn is_taken(&self) -> bool {
        self.out.is_empty() && self.ring.try_state().is_some_and(|state| state.items.is_empty())
    }

    /// Passes items on and takes empty chunks, unless another thread holds the lock; returns whether everything is done.
    pub(super) fn try_exchange(&mut self) -> bool {
        let ring = Arc::clone(&self.ring);
        let Some(state) = ring.try_state() else { return false };
        self.exchange_with(&ring, state);
        true
    }

    /// Passes the last items on and marks the end.
    pub(super) fn end(&mut self) {
        self.exchange();
        self.ring.end();
    }

    /// Passes items on and takes empty chunks.
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
            let MessageTally { messages, bytes, dropped } = state.tally;
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
        // After a flood, half of the room is free for items that are no chunks.
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
            producer.put(RingItem::Chunk(chunk));
        }
        assert!(producer.chunk(0, 16).is_none());
        producer.missed(7);
        assert!(!producer.is_taken() && !producer.try_exchange());
        assert_eq!(state.tally, MessageTally::default());
        drop(state);
        assert!(producer.try_exchange());
        assert_eq!(ring.tally(), MessageTally { messages: 4, bytes: 64, dropped: 7 });
        for number in 0..4 {
            let taken = ring.take(Duration::ZERO);
            assert!(
                matches!(taken, TakeResult::Item(RingItem::Chunk(chunk)) if chunk.bus == number)
            );
        }
        assert!(producer.is_taken());
    }

    #[test]
    fn what_was_put_is_taken_in_order_and_then_it_is_over() {
        let ring = Ring::new(0);
        for bus in 0..2 {
            ring.put(RingItem::Bus(CapturedBus { bus, ..CapturedBus::default() }));
        }
        ring.end();
        for number in 0..2 {
            assert!(
                matches!(ring.take(Duration::ZERO), TakeResult::Item(RingItem::Bus(bus)) if bus.bus == number)
            );
        }
        assert!(matches!(ring.take(Duration::MAX), TakeResult::Over));
    }
}
