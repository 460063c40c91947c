//! Time limits that hold for what hangs, and not for what waits for a processor.

use std::time::Duration;

use sys::processor::ProcessorWait;

/// The longest time limit: with a thousand commands at once, each waits for the processor.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// A time limit on the monotonic clock, which is extended for what is ready to run, or spent a third of it without a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimit {
    until: Duration,
    patience: Duration,
    latest: Duration,
    /// The wait for a processor at the last look.
    waited: Duration,
}

impl TimeLimit {
    /// Returns the limit of work that began at `began` and may take `patience`.
    pub(super) fn new(began: Duration, patience: Duration) -> TimeLimit {
        let until = began + patience;
        TimeLimit { until, patience, latest: began + LONGEST, waited: Duration::ZERO }
    }

    /// Returns when the limit has to be looked at.
    pub(super) fn until(&self) -> Duration {
        self.until
    }

    /// Returns whether the limit has passed. `wait` tells how the work waits for a processor.
    pub(super) fn has_passed(
        &mut self,
        now: Duration,
        wait: impl FnOnce() -> ProcessorWait,
    ) -> bool {
        if self.until <= now {
            let ProcessorWait { so_far, is_ready } = wait();
            if is_ready || so_far.saturating_sub(self.waited) * 3 >= self.patience {
                self.until = (now + self.patience).min(self.latest);
            }
            self.waited = so_far;
        }
        self.until <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn waited(so_far: Duration) -> ProcessorWait {
        ProcessorWait { so_far, is_ready: false }
    }

    #[test]
    fn what_hangs_is_given_up_after_its_time() {
        let mut limit = TimeLimit::new(SECOND, PATIENCE);
        assert!(!limit.has_passed(PATIENCE, || unreachable!("it is not time")));
        assert!(limit.has_passed(SECOND + PATIENCE, || waited(SECOND)));
    }

    #[test]
    fn what_waits_for_a_processor_gets_more_time_and_not_for_ever() {
        let mut limit = TimeLimit::new(SECOND, PATIENCE);
        let mut now = SECOND + PATIENCE;
        while now < SECOND + LONGEST {
            assert!(!limit.has_passed(now, || waited(now / 2)), "{now:?}");
            now = limit.until();
        }
        assert!(limit.has_passed(now, || waited(now / 2)));
    }

    #[test]
    fn a_wait_for_a_processor_counts_once() {
        let mut limit = TimeLimit::new(SECOND, PATIENCE);
        assert!(!limit.has_passed(SECOND + PATIENCE, || waited(PATIENCE / 2)));
        assert!(limit.has_passed(SECOND + 2 * PATIENCE, || waited(PATIENCE / 2)));
    }

    #[test]
    fn what_is_ready_and_never_ran_gets_more_time() {
        let ready = || ProcessorWait { so_far: Duration::ZERO, is_ready: true };
        let mut limit = TimeLimit::new(SECOND, PATIENCE);
        assert!(!limit.has_passed(SECOND + PATIENCE, ready));
        assert!(limit.has_passed(SECOND + 2 * PATIENCE, ProcessorWait::default));
        let mut limit = TimeLimit::new(SECOND, PATIENCE);
        assert!(limit.has_passed(SECOND + LONGEST, ready));
    }
}
