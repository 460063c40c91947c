//! Moments as people write them: `3 days ago`, `yesterday`, `10:30`, `2026-11-21T10:30`.

use std::time::SystemTime;

use jiff::civil::{DateTime, Time};
use jiff::{Span, Timestamp, Zoned};

/// Reads a moment before `now`. A time of day that is still to come means that of yesterday.
///
/// # Errors
///
/// A sentence that says how moments are written.
pub fn parse(text: &str, now: &Zoned) -> Result<SystemTime, String> {
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

/// Returns how a person said a moment that [`parse`] read as `time`. A time of day that was taken as yesterday's says so.
#[must_use]
pub fn name(said: &str, time: SystemTime, now: &Zoned) -> String {
    let day =
        Timestamp::try_from(time).unwrap_or_default().to_zoned(now.time_zone().clone()).date();
    let said = said.trim();
    let is_time = said.parse::<Time>().is_ok() && said.parse::<DateTime>().is_err();
    if is_time && day != now.date() { format!("{said} yesterday") } else { said.to_owned() }
}

/// Writes a moment for a person in the time zone of `now`: a moment of today without its date.
#[must_use]
pub fn show(time: SystemTime, now: &Zoned) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default().to_zoned(now.time_zone().clone());
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

    #[test]
    fn a_moment_of_today_is_shown_without_its_date() {
        let now: Zoned = "2026-11-21T12:00:00+01:00[+01:00]".parse().unwrap();
        let shown = |utc: &str| show(utc.parse::<Timestamp>().unwrap().into(), &now);
        assert_eq!(shown("2026-11-21T08:00:01Z"), "09:00:01");
        assert_eq!(shown("2026-11-20T22:59:59Z"), "2026-11-20 23:59:59");
    }

    #[test]
    fn a_time_of_day_that_is_taken_as_yesterdays_says_so() {
        let now: Zoned = "2026-11-21T12:00:00+01:00[+01:00]".parse().unwrap();
        let named = |said: &str| name(said, parse(said, &now).unwrap(), &now);
        assert_eq!(named("11:59"), "11:59");
        assert_eq!(named(" 14:00"), "14:00 yesterday");
        for said in ["yesterday", "3 days ago", "2026-11-20", "2026-11-20T14:00"] {
            assert_eq!(named(said), said);
        }
    }

    fn local_utc(time: SystemTime) -> String {
        Timestamp::try_from(time).unwrap().to_string()
    }
}
