//! The waits of all threads of a machine, as many as fit.

use std::collections::{BTreeMap, VecDeque};

use super::event::{ThreadIdentity, ThreadWait};

/// The counters of a thread at a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CounterMark {
    pub(crate) at_ns: u64,
    pub(crate) processor_ns: u64,
    pub(crate) ready_ns: u64,
}

/// What was added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HistoryItem {
    Wait,
    /// The counters of a thread that woke another one.
    Mark,
}

/// What is known of one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadHistory {
    /// Its waits, in the order of their ends.
    pub(crate) waits: VecDeque<ThreadWait>,
    /// Its counters, in the order of time.
    pub(crate) marks: VecDeque<CounterMark>,
}

/// Keeps the waits of threads, the latest ones.
#[derive(Debug)]
pub struct WakeupHistory {
    threads: BTreeMap<ThreadIdentity, ThreadHistory>,
    /// What there is, in the order in which it was added, and of whom.
    order: VecDeque<(HistoryItem, ThreadIdentity)>,
    waits: usize,
    limit: usize,
    dropped: u64,
    /// The end of the latest wait that was dropped.
    dropped_to_ns: u64,
    lost: u64,
}

fn insert<T>(items: &mut VecDeque<T>, item: T, key: impl Fn(&T) -> u64) {
    // Nearly always it is the last one.
    let at = items.iter().rposition(|other| key(other) <= key(&item)).map_or(0, |at| at + 1);
    items.insert(at, item);
}

impl WakeupHistory {
    /// Makes one that keeps at most `limit` waits.
    #[must_use]
    pub fn new(limit: usize) -> WakeupHistory {
        WakeupHistory {
            threads: BTreeMap::new(),
            order: VecDeque::new(),
            waits: 0,
            limit: limit.max(1),
            dropped: 0,
            dropped_to_ns: 0,
            lost: 0,
        }
    }

    /// Adds a wait, and drops the oldest one if there are too many.
    ///
    /// Waits of one thread may come in any order; one that ends before it begins counts as none.
    pub fn add(&mut self, mut wait: ThreadWait) {
        wait.from_ns = wait.from_ns.min(wait.to_ns);
        let mark = CounterMark {
            at_ns: wait.to_ns,
            processor_ns: wait.processor_ns,
            ready_ns: wait.ready_ns,
        };
        let by_source = wait.sources.first().filter(|source| !source.context.is_interrupt());
        if let Some((source, [processor_ns, ready_ns])) = by_source.zip(wait.source_counters) {
            let mark = CounterMark { at_ns: source.at_ns, processor_ns, ready_ns };
            let marks = &mut self.threads.entry(source.who).or_default().marks;
            insert(marks, mark, |mark| mark.at_ns);
            self.order.push_back((HistoryItem::Mark, source.who));
        }
        self.order.push_back((HistoryItem::Wait, wait.who));
        let thread = self.threads.entry(wait.who).or_default();
        insert(&mut thread.marks, mark, |mark| mark.at_ns);
        insert(&mut thread.waits, wait, |wait| wait.to_ns);
        self.waits += 1;
        while self.waits > self.limit || self.order.len() > 2 * self.limit {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((item, who)) = self.order.pop_front() else { return };
        let Some(thread) = self.threads.get_mut(&who) else { return };
        if item == HistoryItem::Mark {
            thread.marks.pop_front();
        } else if let Some(wait) = thread.waits.pop_front() {
            self.waits -= 1;
            self.dropped += 1;
            self.dropped_to_ns = self.dropped_to_ns.max(wait.to_ns);
            let old = thread.marks.partition_point(|mark| mark.at_ns < wait.from_ns);
            thread.marks.drain(..old);
        }
        if thread.waits.is_empty() && thread.marks.is_empty() {
            self.threads.remove(&who);
        }
    }

    /// Counts wake-ups that were lost before they came here.
    pub fn count_lost(&mut self, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
    }

    /// Returns how many waits were lost, and how many were dropped for want of room.
    #[must_use]
    pub fn losses(&self) -> (u64, u64) {
        (self.lost, self.dropped)
    }

    /// Returns how many waits there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waits
    }

    /// Returns whether there are no waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waits == 0
    }

    /// Returns the thread that had this number at a moment; of several the last one that had begun.
    #[must_use]
    pub fn identity(&self, thread: u32, at_ns: u64) -> Option<ThreadIdentity> {
        let range =
            ThreadIdentity { thread, began: 0 }..=ThreadIdentity { thread, began: u32::MAX };
        let began = |known: &ThreadHistory| known.marks.front().map(|mark| mark.at_ns);
        let known = self.threads.range(range);
        let begun = known.filter(|(_, known)| began(known).is_some_and(|began| began <= at_ns));
        begun.max_by_key(|(_, known)| began(known)).map(|(who, _)| *who)
    }

    /// Returns the waits of a thread, in the order of their ends.
    pub fn waits(&self, who: ThreadIdentity) -> impl Iterator<Item = &ThreadWait> {
        self.threads.get(&who).into_iter().flat_map(|known| known.waits.iter())
    }

    pub(crate) fn thread(&self, who: ThreadIdentity) -> Option<&ThreadHistory> {
        self.threads.get(&who)
    }

    /// Returns whether something of the time from `from_ns` on is missing.
    pub(crate) fn has_losses_since(&self, from_ns: u64) -> bool {
        self.lost > 0 || self.dropped > 0 && self.dropped_to_ns >= from_ns
    }
}

impl ThreadHistory {
    /// Returns the waits that overlap with a time.
    pub(crate) fn waits_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &ThreadWait> {
        let first = self.waits.partition_point(|wait| wait.to_ns <= from_ns);
        let rest = self.waits.range(first..);
        rest.filter(move |wait| wait.from_ns < to_ns)
    }

    /// Returns when the thread was made, and by whom, if that is known.
    pub(crate) fn birth(&self) -> Option<&ThreadWait> {
        self.waits.iter().find(|wait| wait.is_birth())
    }

    /// Returns when it was made, as far as that is known; else 0.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.birth().map_or(0, |birth| birth.to_ns)
    }

    /// Returns the time on a processor and ready between two moments, if there are counters around them; none of both is more than
    /// the time between.
    pub(crate) fn used(&self, from_ns: u64, to_ns: u64) -> Option<[u64; 2]> {
        let after = self.marks.partition_point(|mark| mark.at_ns <= from_ns);
        let before = self.marks.get(after.checked_sub(1)?)?;
        let end = self.marks.partition_point(|mark| mark.at_ns < to_ns);
        let end = self.marks.get(end)?;
        let length = to_ns.saturating_sub(from_ns);
        let processor = end.processor_ns.saturating_sub(before.processor_ns).min(length);
        let ready = end.ready_ns.saturating_sub(before.ready_ns).min(length - processor);
        Some([processor, ready])
    }
}
