//! Times as people write them: moments (`3 days ago`, `yesterday`, `10:30`, `2026-11-21T10:30`) and durations (`50ms`, `2h`).

use std::time::{Duration, SystemTime};

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

/// Reads a moment; a time that has not been today yet was yesterday.
pub(crate) fn parse(text: &str, now: &Zoned) -> Result<SystemTime, String> {
    let local = |moment: DateTime| moment.to_zoned(now.time_zone().clone()).ok();
    let text = text.trim();
    let span = || text.strip_suffix("ago").unwrap_or(text).trim().parse::<Span>().ok();
    let moment = match text {
        "now" => Some(now.clone()),
        "today" => now.start_of_day().ok(),
        "yesterday" => now.yesterday().and_then(|day| day.start_of_day()).ok(),
        _ => None,
    };
    let moment = moment
        .or_else(|| Some(text.parse::<Timestamp>().ok()?.to_zoned(now.time_zone().clone())))
        .or_else(|| text.parse::<DateTime>().ok().and_then(local))
        .or_else(|| {
            let time = text.parse::<Time>().ok()?;
            let today = local(now.date().to_datetime(time))?;
            if today <= *now {
                Some(today)
            } else {
                local(now.date().yesterday().ok()?.to_datetime(time))
            }
        })
        .or_else(|| now.checked_sub(span()?.abs()).ok());
    moment.map(|moment| moment.timestamp().into()).ok_or_else(|| {
        "say how long ago (2h, 3 days) or when (yesterday, 10:30, 2026-11-21T10:30)".to_owned()
    })
}

/// Reads a duration with its unit: `50ms`, `100 us`, `2s`, `1m`, `3h`, `1d`. Nothing is `0`, of any unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let said = "say a number and d, h, m, s, ms or us, for example 2h or 100us";
    let seconds: f64 = number.trim().parse().map_err(|_| said.to_owned())?;
    let scale = match unit {
        "d" => 86400.0,
        "h" => 3600.0,
        "m" | "min" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        "" if seconds == 0.0 => 1.0,
        _ => return Err(said.to_owned()),
    };
    Duration::try_from_secs_f64(seconds * scale).map_err(|_| format!("{text} is no time"))
}

/// Returns the moment where the user is.
pub(crate) fn local(time: SystemTime) -> Zoned {
    Timestamp::try_from(time).unwrap_or_default().to_zoned(TimeZone::system())
}

/// Writes a moment for a person: today without its date.
pub(crate) fn show(time: SystemTime, now: &Zoned) -> String {
    let time = local(time);
    let format = if time.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    time.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let now: Zoned = "2026-11-21T12:00:00+00:00[UTC]".parse().unwrap();
        let read = |text: &str| parse(text, &now).map(local_utc);
        for (text, wanted) in [
            ("2h", "2026-11-21T10:00:00Z"),
            ("3 days ago", "2026-11-18T12:00:00Z"),
            ("90 min", "2026-11-21T10:30:00Z"),
            ("today", "2026-11-21T00:00:00Z"),
            ("yesterday", "2026-11-20T00:00:00Z"),
            ("10:30", "2026-11-21T10:30:00Z"),
            ("13:30", "2026-11-20T13:30:00Z"),
            ("2026-11-01", "2026-11-01T00:00:00Z"),
            ("2026-11-01T08:00", "2026-11-01T08:00:00Z"),
            ("2026-11-01 08:00:30", "2026-11-01T08:00:30Z"),
            ("2026-11-01T08:00:00+02:00", "2026-11-01T06:00:00Z"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(wanted), "{text}");
        }
        for text in ["", "soon", "25:00", "2026-13-01"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    fn local_utc(time: SystemTime) -> String {
        Timestamp::try_from(time).unwrap().to_string()
    }

    #[test]
    fn a_duration_has_a_unit_unless_it_is_nothing() {
        assert!(duration("soon").unwrap_err().contains("for example 2h"));
        assert_eq!(duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("0.5 ms"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("20 µs"), Ok(Duration::from_micros(20)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for wrong in ["100", "", "soon", "-1ms", "1e400s", "NaNs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
