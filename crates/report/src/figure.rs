//! How a figure is written: durations, frames, sizes, rates and ratios, with two or three digits.

use std::time::Duration;

use super::samples::Samples;

/// What a number counts; it decides the unit in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Nanoseconds.
    Time,
    /// Bytes.
    Size,
    /// Events per second.
    Rate,
    /// Things.
    Count,
    /// Percent.
    Share,
}

impl Quantity {
    /// Writes `value`: `11.4 ms`, `274 KiB`, `96.0 /s`, `1000`.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let unit = self.unit_of(value);
        unit.join(&unit.digits(value))
    }

    /// Writes the median between the extremes, in one unit: `0.74 s [0.71 … 0.90], n = 10`.
    #[must_use]
    pub fn show_spread(self, samples: &Samples) -> String {
        let unit = self.unit_of(samples.median());
        format!(
            "{} [{} … {}], n = {}",
            unit.join(&unit.digits(samples.median())),
            unit.digits(samples.min()),
            unit.digits(samples.max()),
            samples.len()
        )
    }

    /// Writes a value that is round in itself: `10 ms`, `64 KiB`.
    pub(super) fn show_round(self, value: f64) -> String {
        // Tens of seconds are no round number of minutes.
        let shown = if self == Quantity::Time { value.min(SECOND) } else { value };
        let unit = self.unit_of(shown);
        unit.join(&unit.round(value))
    }

    /// Returns the number of which powers are round.
    pub(super) fn base(self) -> f64 {
        match self {
            Quantity::Size => 2.0,
            Quantity::Time | Quantity::Rate | Quantity::Count | Quantity::Share => 10.0,
        }
    }

    /// Returns the unit that leaves one to three digits before the point.
    pub(super) fn unit_of(self, value: f64) -> Unit {
        let units: &[Unit] = match self {
            Quantity::Time => &TIME,
            Quantity::Size => &SIZE,
            Quantity::Rate => &RATE,
            Quantity::Count => &COUNT,
            Quantity::Share => &SHARE,
        };
        // A value that three digits would round up to the next unit is shown in that unit.
        let largest = units.iter().rev().find(|unit| value.abs() >= unit.scale * 0.999_5);
        *largest.unwrap_or(&units[0])
    }
}

/// A second in the unit of [`Quantity::Time`].
const SECOND: f64 = 1e9;

/// A name for a multiple of what a [`Quantity`] counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    name: &'static str,
    scale: f64,
    whole: bool,
}

const fn unit(name: &'static str, scale: f64) -> Unit {
    Unit { name, scale, whole: false }
}

const fn whole(name: &'static str) -> Unit {
    Unit { name, scale: 1.0, whole: true }
}

const TIME: [Unit; 5] =
    [unit("ns", 1.0), unit("µs", 1e3), unit("ms", 1e6), unit("s", 1e9), unit("min", 60e9)];
const SIZE: [Unit; 5] = [
    whole("B"),
    unit("KiB", 1024.0),
    unit("MiB", 1_048_576.0),
    unit("GiB", 1_073_741_824.0),
    unit("TiB", 1_099_511_627_776.0),
];
const RATE: [Unit; 1] = [unit("/s", 1.0)];
const COUNT: [Unit; 1] = [whole("")];
const SHARE: [Unit; 1] = [unit("%", 1.0)];

impl Unit {
    pub(super) fn digits(self, value: f64) -> String {
        let value = value / self.scale;
        if self.whole { format!("{value:.0}") } else { three_digits(value) }
    }

    pub(super) fn join(self, digits: &str) -> String {
        if self.name.is_empty() { digits.to_owned() } else { format!("{digits} {}", self.name) }
    }

    pub(super) fn scale(self) -> f64 {
        self.scale
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// Writes a value that is round in itself: `10`, `0.5`.
    pub(super) fn round(self, value: f64) -> String {
        let value = value / self.scale;
        // Six digits after the point are more than a tick has and fewer than an error of rounding shows.
        format!("{}", (value * 1e6).round() / 1e6)
    }
}

/// Writes a duration: `430 ns`, `11.4 ms`, `2.17 s`.
#[must_use]
pub fn duration(duration: Duration) -> String {
    Quantity::Time.show(nanoseconds(duration))
}

/// Writes a duration in frames: `0.7 frames`, `1138 frames`, `0.001 frames`.
#[must_use]
pub fn frames(duration: Duration, frame: Duration) -> String {
    format!("{} frames", frame_count(nanoseconds(duration), frame))
}

/// Writes how many frames `time_ns` nanoseconds are: `0.7`, `1138`, `< 0.001`.
#[must_use]
pub fn frame_count(time_ns: f64, frame: Duration) -> String {
    let count = time_ns / nanoseconds(frame).max(1.0);
    match count {
        count if count >= 9.95 => format!("{count:.0}"),
        count if count >= 0.095 => format!("{count:.1}"),
        count if count >= 0.009_5 => format!("{count:.2}"),
        count if count >= 0.000_95 => format!("{count:.3}"),
        _ => "< 0.001".to_owned(),
    }
}

/// Writes how often `base` goes into `value`: `x 1.24`, `x 38`, `1/15`, `1/2.3`.
#[must_use]
pub fn ratio(value: f64, base: f64) -> String {
    let times =
        |ratio: f64| if ratio >= 9.95 { format!("{ratio:.0}") } else { two_or_three(ratio) };
    match value / base {
        ratio if !ratio.is_finite() || ratio <= 0.0 => "-".to_owned(),
        ratio if ratio < 0.995 => format!("1/{}", times(ratio.recip())),
        ratio => format!("x {}", times(ratio)),
    }
}

/// Returns a duration as a number of nanoseconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
pub fn nanoseconds(duration: Duration) -> f64 {
    // By way of seconds 16.667 ms were 16667000.000000002 ns.
    duration.as_nanos() as f64
}

/// Writes `430`, `11.4`, `2.17`, `0.31`, `0`.
pub(super) fn three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        // Nothing at all has no digits that could be wrong.
        size if size <= 0.0 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

/// Writes `1.24`, `2.3`, `5.0`: small multiples need the second digit after the point, large ones do not.
fn two_or_three(value: f64) -> String {
    if value < 1.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(quantity: Quantity, values: &[f64]) -> String {
        values.iter().map(|&value| quantity.show(value)).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn a_duration_leaves_two_or_three_digits() {
        assert_eq!(
            all(Quantity::Time, &[0.0, 4.31, 87.0, 430.0, 999.4, 999.6, 8_305.0, 11_390_000.0]),
            "0 ns | 4.31 ns | 87.0 ns | 430 ns | 999 ns | 1.00 µs | 8.30 µs | 11.4 ms"
        );
        assert_eq!(
            all(Quantity::Time, &[99_960_000.0, 999_600_000.0, 2.17e9, 59.98e9, 3.6e12]),
            "100 ms | 1.00 s | 2.17 s | 1.00 min | 60.0 min"
        );
        assert_eq!(duration(Duration::from_millis(740)), "740 ms");
    }

    #[test]
    fn sizes_rates_and_counts_have_their_units() {
        assert_eq!(
            all(Quantity::Size, &[0.0, 17.0, 1023.0, 1024.0, 280_809.0, 138.5e6]),
            "0 B | 17 B | 1023 B | 1.00 KiB | 274 KiB | 132 MiB"
        );
        assert_eq!(all(Quantity::Rate, &[96.0, 1234.0]), "96.0 /s | 1234 /s");
        assert_eq!(all(Quantity::Count, &[3.0, 1998.0]), "3 | 1998");
        assert_eq!(
            all(Quantity::Share, &[0.0, 0.29, 98.7, 100.0]),
            "0 % | 0.29 % | 98.7 % | 100 %"
        );
    }

    #[test]
    fn frames_say_how_long_a_person_waits() {
        let frame = Duration::from_micros(16_700);
        let show = |micros: u64| frames(Duration::from_micros(micros), frame);
        assert_eq!(show(11_690), "0.7 frames");
        assert_eq!(show(19_000_000), "1138 frames");
        assert_eq!(show(1_670), "0.1 frames");
        assert_eq!(show(430), "0.03 frames");
        assert_eq!(show(33), "0.002 frames");
        assert_eq!(show(1), "< 0.001 frames");
    }

    #[test]
    fn a_ratio_is_a_multiple_or_a_part_and_never_a_percentage() {
        let show = |value: f64| ratio(value, 100.0);
        assert_eq!(
            [124.0, 100.0, 99.6, 99.0, 43.0, 6.5, 3800.0, 0.3, 0.0].map(show).join(" | "),
            "x 1.24 | x 1.00 | x 1.00 | 1/1.01 | 1/2.3 | 1/15 | x 38 | 1/333 | -"
        );
        assert_eq!(ratio(1.0, 0.0), "-");
    }

    #[test]
    fn a_median_stands_with_its_spread_in_one_unit() {
        let samples: Samples = [0.71e9, 0.74e9, 0.90e9].into_iter().collect();
        assert_eq!(Quantity::Time.show_spread(&samples), "740 ms [710 … 900], n = 3");
        let samples: Samples = [0.9e6, 2.0e6, 1001.0e6].into_iter().collect();
        assert_eq!(Quantity::Time.show_spread(&samples), "2.00 ms [0.90 … 1001], n = 3");
    }
}
