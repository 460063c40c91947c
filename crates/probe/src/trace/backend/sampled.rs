//! Which calls are so often fast that the exits of most of them need not be seen, where the user allows it.
//!
//! Of the two stops of a call the one at the exit is spared. Without it a call is counted, and no more is known of it.

use std::collections::HashMap;

use crate::trace::recorder::Recorder;
use crate::trace::recording::Total;

/// A call that takes longer is not fast, in nanoseconds.
const FAST_NS: u64 = 20_000;

/// Calls of a kind whose exits are seen before any is not.
const FIRST: u32 = 64;

/// One of so many exits is seen afterwards.
const ONE_IN: u32 = 16;

/// Counts are halved at this, so that what was long ago weighs less.
const FORGETS: u32 = 512;

/// What is known of the calls with one number.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Seen lately, and how many of those were not fast.
    seen: u32,
    not_fast: u32,
    /// Since the last exit that was seen.
    unseen: u32,
    all_seen: u64,
    all_ns: u64,
}

/// Decides, and counts what is not seen.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    kinds: HashMap<u32, Kind>,
    unseen: HashMap<(u32, u32), u64>,
}

impl Sampled {
    /// Notes how long a call took whose exit was seen.
    pub(super) fn seen(&mut self, number: u32, wall_ns: u64) {
        let kind = self.kinds.entry(number).or_default();
        kind.seen += 1;
        kind.not_fast += u32::from(wall_ns > FAST_NS);
        kind.all_seen += 1;
        kind.all_ns = kind.all_ns.saturating_add(wall_ns);
        if kind.seen >= FORGETS {
            kind.seen /= 2;
            kind.not_fast /= 2;
        }
    }

    /// Says whether the exit of this call may go unseen; counts it if so.
    pub(super) fn passes(&mut self, thread: u32, number: u32) -> bool {
        let Some(kind) = self.kinds.get_mut(&number) else { return false };
        let is_fast = kind.seen >= FIRST && kind.not_fast.saturating_mul(100) <= kind.seen;
        if !is_fast || kind.unseen >= ONE_IN - 1 {
            kind.unseen = 0;
            return false;
        }
        kind.unseen += 1;
        *self.unseen.entry((thread, number)).or_default() += 1;
        true
    }

    /// Adds the calls that were not seen to the sums, each as long as the seen ones were on average; says what was done.
    pub(super) fn add_to(&self, recorder: &mut Recorder) -> Option<String> {
        let mut all = 0_u64;
        for ((thread, number), count) in &self.unseen {
            let kind = self.kinds.get(number).copied().unwrap_or_default();
            let each_ns = kind.all_ns / kind.all_seen.max(1);
            let wall_ns = each_ns.saturating_mul(*count);
            let mut total = Total { count: *count, wall_ns, ..Total::default() };
            total.histogram.add_many(crate::trace::histogram::bucket(each_ns), *count);
            recorder.total(*thread, *number, &total);
            all += count;
        }
        (all > 0).then(|| {
            format!("{all} calls of kinds that are fast nearly always were counted only: their time is that of others like them, and their errors and what was slow among them are not known.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_exits_of_fast_calls_go_unseen_and_none_of_slow_ones() {
        let mut sampled = Sampled::default();
        let mut unseen = [0, 0];
        for call in 0..10_000_u64 {
            // The second kind is slow twice in a hundred.
            for (number, wall_ns) in [(0, 900), (1, if call % 50 == 0 { 90_000 } else { 900 })] {
                if sampled.passes(7, number) {
                    unseen[number as usize] += 1;
                } else {
                    sampled.seen(number, wall_ns);
                }
            }
        }
        assert!((9_000..9_400).contains(&unseen[0]), "{unseen:?}");
        assert_eq!(unseen[1], 0, "{unseen:?}");
    }

    #[test]
    fn a_kind_that_becomes_slow_is_seen_again() {
        let mut sampled = Sampled::default();
        (0..200).for_each(|_| sampled.seen(3, 1000));
        assert!(sampled.passes(1, 3));
        (0..20).for_each(|_| sampled.seen(3, 1_000_000));
        assert!(!sampled.passes(1, 3));
    }
}
