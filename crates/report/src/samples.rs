//! A set of measurements and what stands for it.

/// Measurements of one quantity, at least one, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    values: Vec<f64>,
    /// How many there were at the end of each round.
    round_ends: Vec<usize>,
}

impl FromIterator<f64> for Samples {
    /// Keeps the finite values.
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Samples {
        let values = values.into_iter().filter(|value| value.is_finite()).collect();
        Samples { values, round_ends: Vec::new() }
    }
}

impl Samples {
    /// Adds a measurement.
    pub fn push(&mut self, value: f64) {
        if value.is_finite() {
            self.values.push(value);
        }
    }

    /// Adds the measurements of another set.
    pub fn extend(&mut self, other: &Samples) {
        self.values.extend_from_slice(&other.values);
    }

    /// Ends a round: what was measured since the last end belongs together, and to the round of this number of another set.
    pub fn end_round(&mut self) {
        self.round_ends.push(self.values.len());
    }

    /// Returns the measurements of each round that has ended; none if rounds were not told apart.
    #[must_use]
    pub fn rounds(&self) -> Vec<Samples> {
        let begins = std::iter::once(&0).chain(&self.round_ends);
        let of = |(begin, end): (&usize, &usize)| self.values[*begin..*end].iter().copied();
        begins.zip(&self.round_ends).map(|round| of(round).collect()).collect()
    }

    /// Returns the number of measurements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Says whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the measurements in the order in which they were made.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the measurements from the smallest to the largest.
    #[must_use]
    pub fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Returns the value below which `share` (0 to 1) of the measurements lie, between two of them
    /// in proportion; NaN if nothing was measured.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let sorted = self.sorted();
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let place = share.clamp(0.0, 1.0) * last as f64;
        let below = index(place.floor()).min(last);
        let above = index(place.ceil()).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
    }

    /// Returns the value in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the value that 19 of 20 stay below.
    #[must_use]
    pub fn p95(&self) -> f64 {
        self.quantile(0.95)
    }

    /// Returns the smallest value.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    /// Returns the largest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }
}

/// Turns a place that is known to be small, whole and not negative into an index.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "below the number of samples"
)]
fn index(place: f64) -> usize {
    place as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let samples: Samples = [4.0, 1.0, 3.0, 2.0].into_iter().collect();
        assert_eq!((samples.min(), samples.median(), samples.max()), (1.0, 2.5, 4.0));
        assert_eq!(samples.values(), [4.0, 1.0, 3.0, 2.0], "the order of measuring is kept");
    }

    #[test]
    fn one_sample_is_all_its_quantiles_and_none_has_none() {
        let one: Samples = [7.0].into_iter().collect();
        assert_eq!((one.median(), one.p95()), (7.0, 7.0));
        assert!(Samples::default().median().is_nan());
        assert!([f64::NAN].into_iter().collect::<Samples>().is_empty());
    }

    #[test]
    fn measurements_of_a_round_belong_together() {
        let mut samples: Samples = [1.0, 2.0].into_iter().collect();
        assert!(samples.rounds().is_empty());
        samples.end_round();
        samples.push(3.0);
        samples.end_round();
        samples.push(4.0);
        let rounds = samples.rounds();
        assert_eq!(rounds.len(), 2, "the last one has not ended");
        assert_eq!((rounds[0].values(), rounds[1].values()), (&[1.0, 2.0][..], &[3.0][..]));
    }

    #[test]
    fn nineteen_of_twenty_stay_below_the_p95() {
        let samples: Samples = (0..=100).map(f64::from).collect();
        assert_eq!(samples.p95(), 95.0);
    }
}
