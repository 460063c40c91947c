//! Sleeps between samples, so that sampling does not exceed its share of a CPU.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// Limits the rate of sampling.
#[derive(Debug)]
pub(crate) struct SamplingPacer {
    period: Duration,
    budget: f64,
    /// The CPU time of the thread after the last sleep.
    used: Duration,
    /// The CPU time of a round, smoothed.
    cost: Duration,
    rested: Duration,
    rounds: u32,
    longest: u32,
}

/// Returns the processor time of this thread.
pub(super) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The longest sleep, in periods: after a stack that was expensive to capture, sampling must continue soon.
const LONGEST: u32 = 8;

/// Returns how long to sleep after a round of `cost`, so that rounds use no more than the share `budget` and occur every
/// `period`; the result is at most `longest` periods.
fn rest_after(cost: Duration, period: Duration, budget: f64, longest: u32) -> Duration {
    let needed = cost.mul_f64((1.0 / budget.clamp(0.0001, 1.0) - 1.0).max(0.0));
    needed.clamp(period, period * longest)
}

impl SamplingPacer {
    /// Creates a pacer for a round every `period`, or less often if a round takes more than the share `budget` of a CPU.
    #[must_use]
    pub(crate) fn new(period: Duration, budget: f64) -> SamplingPacer {
        let used = cpu_time();
        SamplingPacer {
            period,
            budget,
            used,
            cost: Duration::ZERO,
            rested: Duration::ZERO,
            rounds: 0,
            longest: LONGEST,
        }
    }

    /// Limits a sleep to so many periods, even if the budget is exceeded.
    #[must_use]
    pub(crate) fn at_most(self, longest: u32) -> SamplingPacer {
        SamplingPacer { longest, ..self }
    }

    /// Waits until the next round is due.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub(crate) fn rest(&mut self) -> io::Result<()> {
        let used = cpu_time();
        let cost = used.saturating_sub(self.used);
        // The cost of a round changes little; the smoothed cost forgets the capture of a stack soon.
        self.cost = (self.cost * 7 + cost) / 8;
        let rest = rest_after(self.cost, self.period, self.budget, self.longest);
        let time = Timespec {
            tv_sec: i64::try_from(rest.as_secs()).unwrap_or(1),
            tv_nsec: rest.subsec_nanos().into(),
        };
        let nothing: &mut [PollFd<'_>] = &mut [];
        match poll(nothing, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        self.used = used;
        self.rested += rest;
        self.rounds = self.rounds.saturating_add(1);
        Ok(())
    }

    /// Returns the mean length of a sleep.
    #[must_use]
    pub(crate) fn mean(&self) -> Duration {
        self.rested.checked_div(self.rounds).unwrap_or(self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_round_is_followed_by_a_long_rest() {
        let [micro, milli] = [Duration::from_micros(1), Duration::from_millis(1)];
        assert_eq!(rest_after(2 * micro, milli, 0.01, 8), milli);
        assert_eq!(rest_after(50 * micro, milli, 0.01, 8), 4950 * micro);
        assert_eq!(rest_after(Duration::from_secs(9), milli, 0.01, 8), 8 * milli);
    }
}
