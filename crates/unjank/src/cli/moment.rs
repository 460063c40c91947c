//! Moments where the user is.

use std::time::SystemTime;

use jiff::{Timestamp, Zoned};

/// Returns the local time zone.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn local_zone() -> jiff::tz::TimeZone {
    report::time_zone::local(std::env::var_os("TZ").as_deref())
}

/// Returns the moment where the user is.
pub(crate) fn local(time: SystemTime) -> Zoned {
    Timestamp::try_from(time).unwrap_or_default().to_zoned(local_zone())
}
