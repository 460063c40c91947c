//! Moments as the list of recent documents stores them.

use std::time::{Duration, SystemTime};

/// A moment, in microseconds since 1970; before that it is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecentTime(pub i64);

impl RecentTime {
    /// Takes the time of a clock; what is beyond 290,000 years is cut to that.
    #[must_use]
    pub fn of(time: SystemTime) -> RecentTime {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => RecentTime(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            Err(before) => {
                let before = i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX);
                RecentTime(-before)
            }
        }
    }

    /// Returns the moment that is `duration` earlier.
    #[must_use]
    pub fn before(self, duration: Duration) -> RecentTime {
        RecentTime(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the moment that is `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> RecentTime {
        RecentTime(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}
