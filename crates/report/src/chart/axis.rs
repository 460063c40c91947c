//! Axes: from a value to a place, and the values that are worth a tick.

/// A horizontal axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    left: f64,
    right: f64,
    scale: Scale,
}

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// Evenly, with a tick each so much.
    Linear(f64),
    /// By powers of this base.
    Logarithmic(f64),
    /// By powers of ten, with two and five times each between them.
    Halves,
}

/// An axis has at most so many ticks.
const MOST_TICKS: usize = 7;

impl Axis {
    /// Makes an axis from zero to a value at or above `most` that is round when counted in `unit`.
    pub(super) fn linear(most: f64, unit: f64, left: f64, right: f64) -> Axis {
        let most = if most > 0.0 { most } else { unit };
        let step = step(most / unit) * unit;
        let to = (most / step).ceil() * step;
        Axis { from: 0.0, to, left, right, scale: Scale::Linear(step) }
    }

    /// Makes an axis from zero to `most`, above zero, whose ticks others choose.
    pub(super) fn until(most: f64, left: f64, right: f64) -> Axis {
        Axis { from: 0.0, to: most, left, right, scale: Scale::Linear(most) }
    }

    /// Makes an axis of powers of `base` around `least` and `most`, both above zero.
    pub(super) fn logarithmic(least: f64, most: f64, base: f64, left: f64, right: f64) -> Axis {
        if base.to_bits() == 10_f64.to_bits() && least > 0.0 && most / least < HALVES {
            let (from, to) = (below(least), above(most.max(least * 1.5)));
            return Axis { from, to, left, right, scale: Scale::Halves };
        }
        // A hair's breadth of tolerance: the logarithm of a power is not always whole.
        let from = base.powf((least.log(base) + 1e-9).floor());
        let to = base.powf((most.log(base) - 1e-9).ceil());
        let to = if to > from { to } else { from * base };
        Axis { from, to, left, right, scale: Scale::Logarithmic(base) }
    }

    /// Returns the place of `value`, never outside the axis.
    pub(super) fn place(self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Logarithmic(_) | Scale::Halves => {
                (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
            }
            Scale::Linear(_) => (value - self.from) / (self.to - self.from),
        };
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    pub(super) fn ends(self) -> (f64, f64) {
        (self.left, self.right)
    }

    /// Returns the values at the ends.
    pub(super) fn values(self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Returns the values to write below the axis.
    pub(super) fn ticks(self) -> Vec<f64> {
        let all: Vec<f64> = match self.scale {
            Scale::Logarithmic(base) => {
                let steps = (self.to / self.from).log(base).round();
                count(steps).map(|power| self.from * base.powf(power)).collect()
            }
            Scale::Halves => std::iter::successors(Some(self.from), |tick| Some(above(tick * 1.5)))
                .take_while(|tick| *tick <= self.to * 1.01)
                .collect(),
            Scale::Linear(step) => {
                count((self.to / step).round()).map(|number| number * step).collect()
            }
        };
        let every = all.len().div_ceil(MOST_TICKS);
        all.into_iter().step_by(every.max(1)).collect()
    }
}

/// Below this ratio a logarithmic axis of powers of ten has ticks between them, and does not end at a power only.
const HALVES: f64 = 60.0;

/// Returns the next of 1, 2 and 5 times a power of ten at or above `value`.
fn above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= value * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Returns the next of them at or below `value`.
fn below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * power <= value * 1.001);
    factor.unwrap_or(1.0) * power
}

/// Returns 0, 1, … `last`, for a small whole `last`.
fn count(last: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(0.0), |number| Some(number + 1.0))
        .take_while(move |number| *number <= last)
}

/// Returns 1, 2 or 5 times a power of ten, of which three to six go into `most`.
fn step(most: f64) -> f64 {
    let raw = most / 5.0;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = match raw / power {
        factor if factor <= 1.0 => 1.0,
        factor if factor <= 2.0 => 2.0,
        factor if factor <= 5.0 => 5.0,
        _ => 10.0,
    };
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_starts_at_zero_and_ends_at_a_round_value() {
        let axis = Axis::linear(17.3, 1.0, 100.0, 200.0);
        assert_eq!(axis.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!((axis.place(0.0), axis.place(10.0), axis.place(99.0)), (100.0, 150.0, 200.0));
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten() {
        let axis = Axis::logarithmic(0.3, 40.0, 10.0, 0.0, 300.0);
        let ticks: Vec<String> = axis.ticks().iter().map(|tick| format!("{tick:.1}")).collect();
        assert_eq!(ticks, ["0.1", "1.0", "10.0", "100.0"]);
        assert!((axis.place(1.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_short_logarithmic_axis_ends_near_its_values() {
        let axis = |least, most| Axis::logarithmic(least, most, 10.0, 0.0, 1.0);
        assert_eq!(axis(930.0, 17_600.0).ticks(), [500.0, 1e3, 2e3, 5e3, 1e4, 2e4]);
        assert_eq!(axis(1.0, 10.0).ticks(), [1.0, 2.0, 5.0, 10.0]);
        for (least, most) in [(0.021, 1.19), (5.0, 299.0), (0.5, 0.5), (2.0, 2.1), (9.99, 10.01)] {
            let axis = axis(least, most);
            let (from, to) = axis.values();
            assert!(from <= least * 1.002 && most <= to * 1.002, "{least} {most}");
            assert!((2..=MOST_TICKS).contains(&axis.ticks().len()), "{:?}", axis.ticks());
        }
    }

    #[test]
    fn bytes_have_round_ticks_in_their_own_unit() {
        let mebi = 1_048_576.0;
        let ticks: Vec<f64> = Axis::linear(2.7 * mebi, mebi, 0.0, 1.0).ticks();
        assert_eq!(ticks, [0.0, mebi, 2.0 * mebi, 3.0 * mebi]);
        let axis = Axis::logarithmic(1024.0, mebi, 2.0, 0.0, 1.0);
        assert_eq!((axis.ticks()[0], axis.place(mebi)), (1024.0, 1.0));
    }

    #[test]
    fn no_axis_has_more_than_seven_ticks() {
        for most in [0.0, 1e-9, 3.0, 9.99, 10.0, 1e12] {
            assert!(
                (2..=MOST_TICKS).contains(&Axis::linear(most, 1.0, 0.0, 1.0).ticks().len()),
                "{most}"
            );
        }
        assert!(Axis::logarithmic(1e-9, 1e9, 10.0, 0.0, 1.0).ticks().len() <= MOST_TICKS);
    }
}
