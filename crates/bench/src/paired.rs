//! The ratio of two sides that were measured in turns: a ratio for each round, their median, and the interval of that.
//!
//! What a machine does beside changes from round to round and is the same for both sides of one: the ratios of rounds differ by
//! less than the measurements do.

use std::fmt;

use report::samples::Samples;
use serde::Serialize;

/// How sure the interval is to hold the ratio: at most this share of intervals lies wholly on either side of it.
const TAIL: f64 = 0.025;

/// The ratio of two sides by rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedRatio {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The lower end of the interval that holds it in 95 of 100 cases; none of fewer than six rounds.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// How many rounds there were.
    pub rounds: usize,
}

impl PairedRatio {
    /// Divides the median of each round of ours by the peer's of the same round; `None` unless both have the same rounds.
    ///
    /// The interval is that of the sign test: its ends are ratios that were measured, and nothing is assumed of how ratios are
    /// distributed.
    #[must_use]
    pub fn of(ours: &Samples, peer: &Samples) -> Option<PairedRatio> {
        let (ours, peer) = (ours.rounds(), peer.rounds());
        if ours.is_empty() || ours.len() != peer.len() {
            return None;
        }
        let ratios = ours.iter().zip(&peer).map(|(ours, peer)| ours.median() / peer.median());
        let ratios: Samples = ratios.collect();
        // A round without a measurement has no ratio.
        if ratios.len() != ours.len() {
            return None;
        }
        let sorted = ratios.sorted();
        let outside = left_out(sorted.len());
        let end = |at: Option<usize>| sorted.get(at?).copied();
        Some(PairedRatio {
            median: ratios.median(),
            low: end(outside),
            high: end(outside.map(|outside| sorted.len() - 1 - outside)),
            rounds: sorted.len(),
        })
    }

    /// Returns whether the ratio is at most this; `None` if the interval goes beyond it at both ends, or there is none.
    #[must_use]
    pub(crate) fn is_at_most(&self, most: f64) -> Option<bool> {
        match (self.low?, self.high?) {
            (_, high) if high <= most => Some(true),
            (low, _) if low > most => Some(false),
            _ => None,
        }
    }

    /// Returns whether the ratio is at least this; `None` as above.
    #[must_use]
    pub(crate) fn is_at_least(&self, least: f64) -> Option<bool> {
        match (self.low?, self.high?) {
            (low, _) if low >= least => Some(true),
            (_, high) if high < least => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for PairedRatio {
    /// `x 1.004 [0.991 … 1.013]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x {:.3}", self.median)?;
        match (self.low, self.high) {
            (Some(low), Some(high)) => write!(f, " [{low:.3} … {high:.3}]"),
            _ => Ok(()),
        }
    }
}

/// Returns how many of `count` sorted values lie below the interval, and as many above it: the most of which the chance is small
/// that the middle lies there, by the binomial distribution. `None` if even the least and the most may not hold it.
fn left_out(count: usize) -> Option<usize> {
    // The chance that exactly `at` of the values lie below the middle.
    let mut chance = 0.5_f64.powi(i32::try_from(count).ok()?);
    let (mut below, mut at) = (0.0, 0_u32);
    let whole = f64::from(u32::try_from(count).ok()?);
    let mut found = None;
    while below + chance <= TAIL {
        below += chance;
        found = usize::try_from(at).ok();
        chance *= (whole - f64::from(at)) / f64::from(at + 1);
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(rounds: &[&[f64]]) -> Samples {
        let mut samples = Samples::default();
        for round in rounds {
            round.iter().for_each(|value| samples.push(*value));
            samples.end_round();
        }
        samples
    }

    #[test]
    fn as_many_are_left_out_as_the_tables_of_the_sign_test_say() {
        // The ranks of the 95 % interval of a median, less one.
        let table =
            [(5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (12, Some(2)), (15, Some(3))];
        for (count, outside) in
            table.into_iter().chain([(20, Some(5)), (30, Some(9)), (100, Some(39))])
        {
            assert_eq!(left_out(count), outside, "{count}");
        }
        assert_eq!(left_out(0), None);
    }

    #[test]
    fn what_differs_from_round_to_round_and_not_between_the_sides_is_not_in_the_ratio() {
        // The machine is up to four times slower in some rounds, ours 1 % slower in all.
        let speeds = [1.0, 4.0, 2.0, 1.5, 3.0, 1.0, 2.5, 1.2, 1.9];
        let peer: Vec<Vec<f64>> =
            speeds.iter().map(|s| vec![s * 90.0, s * 100.0, s * 130.0]).collect();
        let ours: Vec<Vec<f64>> =
            peer.iter().map(|r| r.iter().map(|t| t * 1.01).collect()).collect();
        let both =
            [&ours, &peer].map(|side| rounds(&side.iter().map(|r| &**r).collect::<Vec<_>>()));
        let ratio = PairedRatio::of(&both[0], &both[1]).unwrap();
        assert_eq!(ratio.rounds, 9);
        for value in [Some(ratio.median), ratio.low, ratio.high] {
            assert!((value.unwrap() - 1.01).abs() < 1e-9, "{ratio:?}");
        }
        assert_eq!([1.011, 1.009].map(|most| ratio.is_at_most(most)), [Some(true), Some(false)]);
        assert_eq!([1.009, 1.011].map(|least| ratio.is_at_least(least)), [Some(true), Some(false)]);
    }

    #[test]
    fn the_ends_are_ratios_that_were_measured_and_few_rounds_have_none() {
        let peer = rounds(&[&[1.0][..]; 9]);
        let of = [0.9, 1.3, 1.0, 1.02, 0.98, 1.1, 1.01, 0.99, 1.03];
        let ours: Vec<[f64; 1]> = of.iter().map(|value| [*value]).collect();
        let side =
            |count: usize| rounds(&ours.iter().take(count).map(|r| &r[..]).collect::<Vec<_>>());
        let ratio = PairedRatio::of(&side(9), &peer).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (Some(0.98), 1.01, Some(1.1)));
        assert_eq!(ratio.to_string(), "x 1.010 [0.980 … 1.100]");
        let few = PairedRatio::of(&side(5), &rounds(&[&[1.0][..]; 5])).unwrap();
        assert_eq!((few.low, few.high), (None, None));
        assert_eq!([few.is_at_most(9.0), few.is_at_least(0.0)], [None; 2]);
        assert_eq!(few.to_string(), "x 1.000");
    }

    #[test]
    fn sides_without_the_same_rounds_have_no_ratio_by_rounds() {
        let plain: Samples = [1.0].into_iter().collect();
        assert_eq!(PairedRatio::of(&plain, &plain), None);
        assert_eq!(PairedRatio::of(&rounds(&[&[1.0]]), &rounds(&[&[1.0], &[1.0]])), None);
        assert_eq!(PairedRatio::of(&rounds(&[&[1.0], &[]]), &rounds(&[&[1.0], &[1.0]])), None);
    }
}
