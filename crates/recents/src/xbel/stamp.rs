//! Times as bookmarks have them: ISO 8601 with as many digits as the writer liked, in UTC if nothing is said.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::RecentTime;

/// The years that GLib reads, in microseconds.
const FIRST: i64 = -62_135_596_800_000_000;
const LAST: i64 = 253_402_207_199_999_999;

/// Reads a time; `None` if it is none.
pub(super) fn read(text: &str) -> Option<RecentTime> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(RecentTime(time.as_microsecond()));
    }
    let time = text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(RecentTime(time.timestamp().as_microsecond()))
}

/// Writes a time with six digits behind the second, as GLib and KDE do.
pub(super) fn write(time: RecentTime) -> String {
    let time = jiff::Timestamp::from_microsecond(time.0.clamp(FIRST, LAST)).unwrap_or_default();
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_writer_are_read() {
        for (text, micros) in [
            ("2026-11-21T17:33:11.395718Z", 1_795_282_391_395_718),
            ("2026-11-21T17:33:14.431000Z", 1_795_282_394_431_000),
            ("2026-11-21T17:33:14Z", 1_795_282_394_000_000),
            (" 2026-11-21T18:33:14+01:00", 1_795_282_394_000_000),
            ("2026-11-21T17:33:14", 1_795_282_394_000_000),
        ] {
            assert_eq!(read(text), Some(RecentTime(micros)), "{text}");
        }
        for text in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-21T17:33:14.Z"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_is_written_so_that_it_is_read_again() {
        for micros in [0, -1, 1_795_282_391_395_718, FIRST, LAST, 1_795_282_394_000_000] {
            let text = write(RecentTime(micros));
            assert_eq!(read(&text), Some(RecentTime(micros)), "{text}");
        }
        assert_eq!(write(RecentTime(1_795_282_394_431_000)), "2026-11-21T17:33:14.431000Z");
        assert_eq!(write(RecentTime(i64::MAX)), write(RecentTime(LAST)));
        assert_eq!(write(RecentTime(i64::MIN)), "0001-01-01T00:00:00.000000Z");
    }
}
