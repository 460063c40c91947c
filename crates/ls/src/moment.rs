//! Times of files as text, in the styles of GNU `ls`; what minutes have in common is worked out once.

use jiff::Timestamp;
use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use jiff::tz::TimeZone;

use super::size::{right, zero_padded};

/// A moment, in seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// Whole seconds; before 1970 they are negative.
    pub(super) seconds: i64,
    /// The rest, under a thousand million.
    pub(super) nanos: u32,
}

/// How times are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimeStyle {
    /// `Nov 21 14:17`, and the year instead of the time for what is not of the last half year.
    Locale,
    /// `2026-11-21 14:17:03.123456789 +0000`.
    FullIso,
    /// `2026-11-21 14:17`.
    LongIso,
    /// `11-21 14:17`, and `2026-11-21 ` for what is not recent.
    Iso,
    /// As strftime(3): what is recent, and what is not.
    Own { recent: String, older: String },
}

impl TimeStyle {
    /// Reads what `--time-style` and `TIME_STYLE` say; `posix-` means the style of the locale where it is C.
    pub(super) fn parse(text: &str, is_posix: bool) -> Option<TimeStyle> {
        if let Some(format) = text.strip_prefix('+') {
            let (older, recent) = format.split_once('\n').unwrap_or((format, format));
            return Some(TimeStyle::Own { recent: recent.to_owned(), older: older.to_owned() });
        }
        let text = match text.strip_prefix("posix-") {
            Some(_) if is_posix => "locale",
            Some(style) => style,
            None => text,
        };
        match text {
            "full-iso" => Some(TimeStyle::FullIso),
            "long-iso" => Some(TimeStyle::LongIso),
            "iso" => Some(TimeStyle::Iso),
            "locale" => Some(TimeStyle::Locale),
            _ => None,
        }
    }
}

/// Half of the mean year.
const HALF_A_YEAR: i64 = 31_556_952 / 2;
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
/// Places in the memory of minutes; a power of two.
const REMEMBERED: usize = 1024;

/// Writes times; each thread has its own.
#[derive(Clone, Debug)]
pub(super) struct Times {
    style: TimeStyle,
    zone: TimeZone,
    clock: fn() -> Moment,
    /// When the clock was last asked.
    now: Moment,
    /// What was written for a minute lately: its number, whether it was recent, the text and how much of it.
    memory: Vec<(i64, bool, [u8; 20], u8)>,
}

impl Times {
    /// Writes in `style` for a reader in `zone` at the moments that `clock` tells.
    pub(super) fn new(style: TimeStyle, zone: TimeZone, clock: fn() -> Moment) -> Times {
        let memory = vec![(i64::MIN, false, [0; 20], 0); REMEMBERED];
        Times { style, zone, clock, now: clock(), memory }
    }

    /// Returns the columns of a time that is not known: those of the first moment of 1970.
    pub(super) fn expected_width(&mut self) -> usize {
        let mut out = Vec::new();
        self.write(Moment::default(), &mut out);
        out.len()
    }

    /// Appends the text of `time`.
    pub(super) fn write(&mut self, time: Moment, out: &mut Vec<u8>) {
        if time > self.now {
            // It may have changed since the clock was asked.
            self.now = (self.clock)();
        }
        let half_a_year_ago = Moment { seconds: self.now.seconds - HALF_A_YEAR, ..self.now };
        let recent = time > half_a_year_ago && time <= self.now;
        match self.style {
            TimeStyle::Own { .. } => self.write_own(time, recent, out),
            TimeStyle::FullIso => {
                // Seconds and fractions differ; what remains is remembered.
                let start = out.len();
                self.write_minute(time, recent, out);
                if out.len() == start {
                    return;
                }
                let zone = out.split_off(start + 16);
                out.push(b':');
                zero_padded(time.seconds.rem_euclid(60).unsigned_abs(), 2, out);
                out.push(b'.');
                zero_padded(time.nanos.into(), 9, out);
                out.extend_from_slice(&zone);
            }
            _ => self.write_minute(time, recent, out),
        }
    }

    fn write_minute(&mut self, time: Moment, recent: bool, out: &mut Vec<u8>) {
        // Offsets from UTC are of whole minutes since 1972, but were not before.
        let minute = time.seconds.div_euclid(60);
        let place = usize::try_from(minute.rem_euclid(1024)).unwrap_or(0);
        if let Some((known, of_recent, text, length)) = self.memory.get(place)
            && (*known, *of_recent) == (minute, recent)
        {
            out.extend_from_slice(&text[..usize::from(*length)]);
            return;
        }
        let start = out.len();
        let Some(local) = local(&self.zone, time) else {
            // Beyond the calendar: GNU ls writes the number.
            out.extend_from_slice(time.seconds.to_string().as_bytes());
            return;
        };
        let date = |out: &mut Vec<u8>| {
            number(local.year(), 4, out);
            out.push(b'-');
            number(local.month(), 2, out);
            out.push(b'-');
            number(local.day(), 2, out);
        };
        let clock = |out: &mut Vec<u8>| {
            number(local.hour(), 2, out);
            out.push(b':');
            number(local.minute(), 2, out);
        };
        match self.style {
            TimeStyle::Locale => {
                let month = usize::try_from(local.month() - 1).unwrap_or(0);
                out.extend_from_slice(MONTHS[month.min(11)]);
                out.push(b' ');
                right(u64::from(local.day().unsigned_abs()), 2, out);
                if recent {
                    out.push(b' ');
                    clock(out);
                } else {
                    out.extend_from_slice(b"  ");
                    number(local.year(), 1, out);
                }
            }
            TimeStyle::Iso if recent => {
                number(local.month(), 2, out);
                out.push(b'-');
                number(local.day(), 2, out);
                out.push(b' ');
                clock(out);
            }
            TimeStyle::Iso => {
                date(out);
                out.push(b' ');
            }
            _ => {
                date(out);
                out.push(b' ');
                clock(out);
                if self.style == TimeStyle::FullIso {
                    let offset = local.offset().seconds();
                    out.extend_from_slice(if offset < 0 { b" -" } else { b" +" });
                    let minutes = u64::from(offset.unsigned_abs() / 60);
                    zero_padded(minutes / 60, 2, out);
                    zero_padded(minutes % 60, 2, out);
                }
            }
        }
        let text = &out[start..];
        let whole_minutes = local.offset().seconds() % 60 == 0;
        let mut kept = [0; 20];
        // A longer one has a year of five digits: rare enough to be written anew.
        if let (true, Some(place), Some(kept_text), Ok(length)) = (
            whole_minutes,
            self.memory.get_mut(place),
            kept.get_mut(..text.len()),
            u8::try_from(text.len()),
        ) {
            kept_text.copy_from_slice(text);
            *place = (minute, recent, kept, length);
        }
    }

    fn write_own(&self, time: Moment, recent: bool, out: &mut Vec<u8>) {
        let TimeStyle::Own { recent: format, older } = &self.style else { return };
        let format = if recent { format } else { older };
        match local(&self.zone, time) {
            Some(local) => {
                let mut text = String::new();
                let config = Config::new().custom(PosixCustom::new()).lenient(true);
                let broken_down = BrokenDownTime::from(&local);
                if broken_down.format_with_config(&config, format, &mut text).is_ok() {
                    out.extend_from_slice(text.as_bytes());
                }
            }
            None => out.extend_from_slice(time.seconds.to_string().as_bytes()),
        }
    }
}

/// Returns the moment where the reader is; nothing beyond the years that the calendar has.
fn local(zone: &TimeZone, time: Moment) -> Option<jiff::Zoned> {
    let nanos = i32::try_from(time.nanos).ok()?;
    Some(Timestamp::new(time.seconds, nanos).ok()?.to_zoned(zone.clone()))
}

/// Appends a number of at least `width` digits.
fn number(number: impl Into<i64>, width: usize, out: &mut Vec<u8>) {
    let number = number.into();
    if number < 0 {
        out.push(b'-');
    }
    zero_padded(number.unsigned_abs(), width, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment { seconds: 1_795_270_623, nanos: 0 };

    fn shown(style: &str, zone: &str, seconds: i64, nanos: u32) -> String {
        let style = TimeStyle::parse(style, false).unwrap();
        let mut times = Times::new(style, TimeZone::get(zone).unwrap(), || NOW);
        let mut out = Vec::new();
        times.write(Moment { seconds, nanos }, &mut out);
        let mut again = Vec::new();
        times.write(Moment { seconds, nanos }, &mut again);
        assert_eq!(out, again, "what is remembered is the same");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_changes_while_it_is_listed_is_recent() {
        use std::sync::atomic::{AtomicI64, Ordering};
        static SECONDS: AtomicI64 = AtomicI64::new(0);
        let clock =
            || Moment { seconds: NOW.seconds + SECONDS.fetch_add(60, Ordering::Relaxed), nanos: 0 };
        let style = TimeStyle::parse("locale", false).unwrap();
        let mut times = Times::new(style, TimeZone::UTC, clock);
        let mut text = |later: i64| {
            let mut out = Vec::new();
            times.write(Moment { seconds: NOW.seconds + later, nanos: 0 }, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert!(text(30).contains(':'), "it changed after the clock was asked first");
        assert!(!text(7200).contains(':'), "it is of the future");
    }

    #[test]
    fn recent_times_have_no_year() {
        assert_eq!(shown("locale", "UTC", 1_795_270_623, 0), "Nov 21 14:17");
        assert_eq!(shown("locale", "UTC", 1_795_270_624, 0), "Nov 21  2026", "not yet");
        assert_eq!(shown("locale", "UTC", 0, 0), "Jan  1  1970");
        assert_eq!(shown("iso", "UTC", 0, 0), "1970-01-01 ");
        assert_eq!(shown("iso", "UTC", 1_795_270_623, 0), "11-21 14:17");
    }

    #[test]
    fn times_are_those_of_the_readers_zone() {
        assert_eq!(
            shown("full-iso", "Asia/Kolkata", 1_795_270_623, 5),
            "2026-11-21 19:47:03.000000005 +0530"
        );
        assert_eq!(shown("long-iso", "America/New_York", 1_795_270_623, 0), "2026-11-21 09:17");
        assert_eq!(shown("+%Y %H:%M:%S", "UTC", 61, 0), "1970 00:01:01");
        assert_eq!(
            shown("full-iso", "UTC", -1, 999_999_999),
            "1969-12-31 23:59:59.999999999 +0000"
        );
    }

    #[test]
    fn no_time_is_too_far_away() {
        for seconds in [i64::MIN, i64::MAX, 1 << 40] {
            assert_eq!(shown("long-iso", "UTC", seconds, 0), seconds.to_string());
        }
    }
}
