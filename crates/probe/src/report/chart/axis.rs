//! Axes: from a value to a place, and the values that are worth a tick.

/// A horizontal axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    left: f64,
    right: f64,
    logarithmic: bool,
}

/// An axis has at most so many ticks.
const MOST_TICKS: usize = 7;

impl Axis {
    /// Makes an axis from zero to a round value at or above `most`.
    pub(super) fn linear(most: f64, left: f64, right: f64) -> Axis {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Axis { from: 0.0, to: (most / step).ceil() * step, left, right, logarithmic: false }
    }

    /// Makes an axis of powers of ten around `least` and `most`, both above zero.
    pub(super) fn logarithmic(least: f64, most: f64, left: f64, right: f64) -> Axis {
        let from = 10_f64.powf(least.log10().floor());
        let to = 10_f64.powf(most.log10().ceil());
        Axis { from, to: if to > from { to } else { from * 10.0 }, left, right, logarithmic: true }
    }

    /// Returns the place of `value`, never outside the axis.
    pub(super) fn place(self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    pub(super) fn ends(self) -> (f64, f64) {
        (self.left, self.right)
    }

    /// Returns the values to write below the axis.
    pub(super) fn ticks(self) -> Vec<f64> {
        let all: Vec<f64> = if self.logarithmic {
            let steps = (self.to / self.from).log10().round();
            count(steps).map(|power| self.from * 10_f64.powf(power)).collect()
        } else {
            let step = step(self.to);
            count((self.to / step).round()).map(|number| number * step).collect()
        };
        let every = all.len().div_ceil(MOST_TICKS);
        all.into_iter().step_by(every.max(1)).collect()
    }
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
        let axis = Axis::linear(17.3, 100.0, 200.0);
        assert_eq!(axis.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!((axis.place(0.0), axis.place(10.0), axis.place(99.0)), (100.0, 150.0, 200.0));
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten() {
        let axis = Axis::logarithmic(0.3, 40.0, 0.0, 300.0);
        let ticks: Vec<String> = axis.ticks().iter().map(|tick| format!("{tick:.1}")).collect();
        assert_eq!(ticks, ["0.1", "1.0", "10.0", "100.0"]);
        assert!((axis.place(1.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn no_axis_has_more_than_seven_ticks() {
        for most in [0.0, 1e-9, 3.0, 9.99, 10.0, 1e12] {
            assert!(
                (2..=MOST_TICKS).contains(&Axis::linear(most, 0.0, 1.0).ticks().len()),
                "{most}"
            );
        }
        assert!(Axis::logarithmic(1e-9, 1e9, 0.0, 1.0).ticks().len() <= MOST_TICKS);
    }
}
