//! The times in which a watched program was stopped by a signal or frozen, by looks at its state.

use std::time::{Duration, SystemTime};

use super::{WatchEvent, WatchSummary};
use crate::backend::procfs;

/// Stops that are kept until the thread looks for events again.
const KEPT: usize = 64;

/// A time in which a program was stopped or frozen, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct StoppedTime {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Whether it has not ended yet.
    pub(super) goes_on: bool,
}

/// Follows when one program is stopped.
#[derive(Debug, Default)]
pub(super) struct StopTracker {
    since_ns: Option<u64>,
    ended: Vec<StoppedTime>,
}

impl StopTracker {
    /// Looks at a process; returns the stop that has ended since the last look.
    pub(super) fn look(&mut self, process: u32, now_ns: u64) -> Option<StoppedTime> {
        self.note(procfs::stopped_by(process).is_some(), now_ns)
    }

    fn note(&mut self, is_stopped: bool, now_ns: u64) -> Option<StoppedTime> {
        if is_stopped {
            self.since_ns.get_or_insert(now_ns);
            return None;
        }
        let ended = StoppedTime { from_ns: self.since_ns.take()?, to_ns: now_ns, goes_on: false };
        if self.ended.len() < KEPT {
            self.ended.push(ended);
        }
        Some(ended)
    }

    /// Returns the stop that goes on.
    pub(super) fn open(&self, now_ns: u64) -> Option<StoppedTime> {
        Some(StoppedTime { from_ns: self.since_ns?, to_ns: now_ns, goes_on: true })
    }

    /// Returns for how long it was stopped between two moments.
    pub(super) fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let all = self.ended.iter().copied().chain(self.open(to_ns));
        let inside =
            all.map(|stop| stop.to_ns.min(to_ns).saturating_sub(stop.from_ns.max(from_ns)));
        inside.sum()
    }

    /// Forgets stops that have ended: the thread has looked for events since.
    pub(super) fn forget(&mut self) {
        self.ended.clear();
    }
}

impl StoppedTime {
    /// Returns the event that tells of it, if it was long; `at` is the time of day when it began.
    pub(super) fn event(
        self,
        process: u32,
        threshold_ns: u64,
        at: SystemTime,
        summary: &mut WatchSummary,
    ) -> Option<WatchEvent> {
        let length_ns = self.to_ns.saturating_sub(self.from_ns);
        if length_ns < threshold_ns {
            return None;
        }
        summary.reported += 1;
        let length = Duration::from_nanos(length_ns);
        Some(WatchEvent::Stopped { process, at, length, goes_on: self.goes_on })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_lasts_from_the_first_look_that_finds_it_to_the_next_one_that_does_not() {
        let mut stops = StopTracker::default();
        let stop = |from_ns, to_ns, goes_on| StoppedTime { from_ns, to_ns, goes_on };
        assert_eq!(stops.note(false, 10), None);
        assert_eq!((stops.note(true, 20), stops.note(true, 30)), (None, None));
        assert_eq!(stops.open(35), Some(stop(20, 35, true)));
        assert_eq!(stops.between(0, 35), 15);
        assert_eq!(stops.note(false, 40), Some(stop(20, 40, false)));
        assert_eq!((stops.open(50), stops.between(25, 100)), (None, 15));
        stops.forget();
        assert_eq!(stops.between(0, 100), 0);
    }
}
