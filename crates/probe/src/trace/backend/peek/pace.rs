//! Rests between looks, so that looking never takes more than its share of a CPU.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// Keeps a pace.
#[derive(Debug)]
pub struct Pace {
    period: Duration,
    budget: f64,
    /// CPU time of our thread after the last rest.
    used: Duration,
    /// What a round costs, smoothed.
    cost: Duration,
    rested: Duration,
    rounds: u32,
    longest: u32,
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The longest rest, in periods: a stack that was dear to collect must not hide what comes next.
const LONGEST: u32 = 8;

/// Returns how long to rest after a round of `cost`, to use no more than the share `budget` and to come every `period`,
/// but no longer than `longest` periods.
fn rest_after(cost: Duration, period: Duration, budget: f64, longest: u32) -> Duration {
    let needed = cost.mul_f64((1.0 / budget.clamp(0.0001, 1.0) - 1.0).max(0.0));
    needed.clamp(period, period * longest)
}

impl Pace {
    /// Makes one that comes every `period`, or less often where a round costs more than the share `budget` of a CPU.
    #[must_use]
    pub fn new(period: Duration, budget: f64) -> Pace {
        let used = cpu_time();
        Pace {
            period,
            budget,
            used,
            cost: Duration::ZERO,
            rested: Duration::ZERO,
            rounds: 0,
            longest: LONGEST,
        }
    }

    /// Rests for no more than so many periods, whatever share of a CPU that takes.
    #[must_use]
    pub fn at_most(self, longest: u32) -> Pace {
        Pace { longest, ..self }
    }

    /// Waits until the next round is due.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub fn rest(&mut self) -> io::Result<()> {
        let used = cpu_time();
        let cost = used.saturating_sub(self.used);
        // What one round costs changes little; a stack that was collected is not held against the next rounds for long.
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

    /// Returns how long it rested between rounds in the mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
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
