//! Moments as the list of recent documents stores them.

use std::time::{Duration, SystemTime};

/// A moment, in microseconds since 1970; before that it is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Takes the time of a clock; what is beyond 290,000 years is cut to that.
    #[must_use]
    pub fn of(time: SystemTime) -> Timestamp {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            Err(before) => {
                let before = i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX);
                Timestamp(-before)
            }
        }
    }

    /// Returns the moment that is `duration` earlier.
    #[must_use]
    pub fn before(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the moment that is `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}
