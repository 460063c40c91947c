//! Time as a parameter, so that a test decides what time it is.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

/// Tells the time.
pub trait Clock: Debug + Send + Sync {
    /// The time of day, for records that people read.
    fn now(&self) -> SystemTime;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// For how long the machine has been on, as [`since_boot`] says.
    fn since_boot(&self) -> Duration {
        since_boot()
    }
    /// Which start of the machine that counts from, as [`boot_id`] says.
    fn boot_id(&self) -> String {
        boot_id()
    }
}

/// Returns for how long this machine has been on, also while it was suspended.
#[must_use]
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the ID of this start of the machine; empty if it cannot be read.
#[must_use]
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim_end().to_owned()
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
