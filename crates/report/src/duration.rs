//! Durations as people write them: `50ms`, `100 us`, `2h`, `1h 30m`, `2 days`.

use std::time::Duration;

/// What to say instead of a text that is no duration.
pub const EXPECTED: &str =
    "a number with a unit (w, d, h, m, s, ms, us or ns), for example 2h or 100us";

/// A text that is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {EXPECTED}")]
pub struct DurationError;

/// Reads a duration: numbers with their units, added up. `0` needs no unit.
///
/// # Errors
///
/// The text is no duration, a number is negative, or the sum is too large for a [`Duration`].
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim();
    if !rest.is_empty() && rest.bytes().all(|digit| digit == b'0') {
        return Ok(Duration::ZERO);
    }
    let mut sum = None;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(char::is_alphabetic).ok_or(DurationError)?);
        let end = after.find(|letter: char| !letter.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let number: f64 = number.trim().parse().map_err(|_| DurationError)?;
        let part = Duration::try_from_secs_f64(number * seconds(unit).ok_or(DurationError)?);
        let part = part.map_err(|_| DurationError)?;
        sum = Some(sum.unwrap_or(Duration::ZERO).checked_add(part).ok_or(DurationError)?);
        rest = after.trim_start();
    }
    sum.ok_or(DurationError)
}

fn seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "w" | "week" | "weeks" => 604_800.0,
        "d" | "day" | "days" => 86_400.0,
        "h" | "hour" | "hours" => 3_600.0,
        "m" | "min" | "minute" | "minutes" => 60.0,
        "s" | "sec" | "second" | "seconds" => 1.0,
        "ms" => 1e-3,
        // The sign of micro, and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_unless_it_is_nothing() {
        for (text, wanted) in [
            ("100us", Duration::from_micros(100)),
            ("0.5 ms", Duration::from_micros(500)),
            ("20 µs", Duration::from_micros(20)),
            ("0.0083s", Duration::from_micros(8300)),
            ("16.667ms", Duration::from_micros(16_667)),
            ("7ns", Duration::from_nanos(7)),
            ("2m", Duration::from_secs(120)),
            ("30 min", Duration::from_secs(1800)),
            ("1h 30m", Duration::from_secs(5400)),
            ("1h30m", Duration::from_secs(5400)),
            (" 2 days ", Duration::from_secs(172_800)),
            ("0s", Duration::ZERO),
            ("0", Duration::ZERO),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for wrong in
            ["100", "8.3", "", " ", "soon", "-1ms", "1e400s", "NaNs", "infs", "1h 30", "5 apples"]
        {
            assert_eq!(parse(wrong), Err(DurationError), "{wrong}");
        }
        assert!(DurationError.to_string().contains("for example 2h"));
    }
}
