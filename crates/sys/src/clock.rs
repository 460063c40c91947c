//! Time as a parameter, so that a test decides what time it is.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

/// Tells the time.
pub trait Clock: Debug + Send + Sync {
    /// The time of day, for records that people read.
    fn now(&self) -> SystemTime;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// Returns for how long this machine has been on, also while it was suspended.
#[must_use]
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// The clock of this machine.
#[derive(Debug)]
pub struct SystemClock(std::time::Instant);

impl SystemClock {
    /// Starts a clock whose monotonic time is zero now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where time comes in")]
    pub fn start() -> SystemClock {
        SystemClock(std::time::Instant::now())
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes in")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}
