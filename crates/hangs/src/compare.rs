//! Whether hangs became more or fewer: rates before and after a moment, with the interval of their ratio.
//!
//! Hangs are counted per hour in which programs were followed. The interval is the exact one of two Poisson rates (given the
//! sum of both counts the share of one is binomial); hangs that come in bursts make it too narrow, which docs/hangs.md says.

use std::path::Path;

use serde::Serialize;

use crate::history::{HangHistory, TimeSpan, file_of};
use crate::model::{Hang, HangCause};
use crate::remedy::remedies_of;
use crate::store::StoredHistory;

/// The least time that has to be watched on each side, in nanoseconds.
const LEAST_NS: u64 = 180_000_000_000;

/// Hangs and the time in which they were counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HangRate {
    /// How many hangs.
    pub hangs: u64,
    /// For how long programs were followed, in nanoseconds.
    pub watched_ns: u64,
    /// All of their time, in nanoseconds.
    pub total_ns: u64,
    /// Whether hangs of a program are missing, because it was erased: the rate was higher.
    pub has_erased_program: bool,
}

impl HangRate {
    /// Sums up a history. Hangs in a time whose watching is not counted would make the rate too high; they are left out.
    #[must_use]
    pub fn of(history: &HangHistory) -> HangRate {
        let (uncounted, their_ns) = history.uncounted;
        let total_ns =
            history.hangs.iter().fold(0_u64, |sum, hang| sum.saturating_add(hang.length_ns));
        HangRate {
            hangs: history.hangs.len().saturating_sub(uncounted) as u64,
            watched_ns: history.coverage.watched_ns,
            total_ns: total_ns.saturating_sub(their_ns),
            has_erased_program: history.has_erased_program(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    fn hours(&self) -> f64 {
        self.watched_ns as f64 / 3.6e12
    }

    /// Returns the hangs an hour; `None` if nothing was watched.
    #[must_use]
    pub fn an_hour(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
        let hangs = self.hangs as f64;
        (self.watched_ns > 0).then(|| hangs / self.hours())
    }
}

/// The answer of a comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateDifference {
    /// Too little was watched on one side.
    NotEnough,
    /// Hangs of a program are missing on one side, because it was erased.
    Erased,
    /// No difference is shown.
    None,
    /// There are fewer hangs after the moment.
    Fewer,
    /// There are more.
    More,
}

/// A comparison of two rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateComparison {
    /// Before the moment.
    pub before: HangRate,
    /// After it.
    pub after: HangRate,
    /// The rate after by the rate before, with the ends of its 95 % interval; an end that is not bounded is missing.
    pub ratio: Option<(Option<f64>, Option<f64>, Option<f64>)>,
    /// The answer.
    pub difference: RateDifference,
}

/// Which hangs are counted on both sides.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ComparedHangs {
    /// Those of this program.
    pub program: Option<String>,
    /// Those of this cause.
    pub cause: Option<HangCause>,
    /// Those that waited for this file: its path, or the end of it from a `/` on.
    pub file: Option<String>,
    /// Those that this part of unjank removes.
    pub part: Option<String>,
}

impl ComparedHangs {
    /// Returns whether a hang is one of them, whatever its program.
    fn has(&self, hang: &Hang) -> bool {
        let is_of_part =
            |part: &String| remedies_of(hang).iter().any(|remedy| remedy.part() == Some(&**part));
        self.cause.is_none_or(|cause| cause == hang.cause)
            && self.file.as_ref().is_none_or(|file| is_named(hang, file))
            && self.part.as_ref().is_none_or(is_of_part)
    }

    /// Returns the rates before and after a moment.
    #[must_use]
    pub fn rates(&self, stored: &StoredHistory, at_ns: u64, now_ns: u64) -> (HangRate, HangRate) {
        let rate = |from_ns, to_ns| {
            let (span, program) = (TimeSpan { from_ns, to_ns }, self.program.as_deref());
            let keeps = |hang: &Hang| self.has(hang);
            HangRate::of(&HangHistory::select_where(stored, span, program, now_ns, &keeps))
        };
        (rate(0, at_ns.saturating_sub(1)), rate(at_ns, u64::MAX))
    }
}

/// Returns whether a hang waited for the file that is meant.
fn is_named(hang: &Hang, meant: &str) -> bool {
    // What is stored of an excluded one is no path.
    file_of(hang).is_some_and(|file| file == meant || Path::new(file).ends_with(meant))
}

/// Compares two rates.
#[must_use]
pub fn compare(before: HangRate, after: HangRate) -> RateComparison {
    let without = match before.watched_ns.min(after.watched_ns) >= LEAST_NS {
        false => Some(RateDifference::NotEnough),
        true if before.has_erased_program || after.has_erased_program => {
            Some(RateDifference::Erased)
        }
        true => (before.hangs + after.hangs == 0).then_some(RateDifference::None),
    };
    if let Some(difference) = without {
        return RateComparison { before, after, ratio: None, difference };
    }
    let (low, high) = share_interval(after.hangs, before.hangs + after.hangs);
    // The share of hangs that came after, made a ratio of rates.
    let to_ratio =
        |share: f64| (share < 1.0).then(|| share / (1.0 - share) * before.hours() / after.hours());
    let point = before
        .an_hour()
        .zip(after.an_hour())
        .and_then(|(before, after)| (before > 0.0).then_some(after / before));
    let (low, high) = (to_ratio(low), to_ratio(high));
    let difference = match (low, high) {
        (_, Some(high)) if high < 1.0 => RateDifference::Fewer,
        (Some(low), _) if low > 1.0 => RateDifference::More,
        (None, _) => RateDifference::More,
        _ => RateDifference::None,
    };
    RateComparison { before, after, ratio: Some((point, low, high)), difference }
}

/// Returns the exact 95 % interval of a share of which `hits` of `all` are seen (Clopper and Pearson).
fn share_interval(hits: u64, all: u64) -> (f64, f64) {
    let low = match hits {
        0 => 0.0,
        _ => solve(|share| 1.0 - cumulated(hits - 1, all, share), 0.025),
    };
    let high = match hits == all {
        true => 1.0,
        false => 1.0 - solve(|rest| cumulated(hits, all, 1.0 - rest), 0.025),
    };
    (low, high)
}

/// Finds where a function that rises from 0 to 1 reaches `wanted`.
fn solve(rising: impl Fn(f64) -> f64, wanted: f64) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if rising(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the probability that at most `most` of `all` draws hit, each with the probability `share`.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn cumulated(most: u64, all: u64, share: f64) -> f64 {
    if share <= 0.0 {
        return 1.0;
    }
    if share >= 1.0 {
        return if most >= all { 1.0 } else { 0.0 };
    }
    let mut log_term = all as f64 * (1.0 - share).ln();
    let step = share.ln() - (1.0 - share).ln();
    let mut sum = log_term.exp();
    for count in 1..=most.min(all) {
        log_term += ((all - count + 1) as f64).ln() - (count as f64).ln() + step;
        sum += log_term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(hangs: u64, hours: u64) -> HangRate {
        HangRate {
            hangs,
            watched_ns: hours * 3_600_000_000_000,
            total_ns: 0,
            has_erased_program: false,
        }
    }

    #[test]
    fn the_interval_of_a_share_is_that_of_the_tables() {
        for (hits, all, low, high) in [
            (0, 10, 0.0, 0.3085),
            (5, 10, 0.1871, 0.8129),
            (10, 10, 0.6915, 1.0),
            (2, 20, 0.0123, 0.317),
        ] {
            let (found_low, found_high) = share_interval(hits, all);
            assert!((found_low - low).abs() < 1e-3, "{hits} of {all}: {found_low}");
            assert!((found_high - high).abs() < 1e-3, "{hits} of {all}: {found_high}");
        }
    }

    #[test]
    fn a_difference_is_told_only_where_it_is_clear() {
        let told = |before, after| compare(before, after).difference;
        assert_eq!(told(rate(40, 10), rate(2, 10)), RateDifference::Fewer);
        assert_eq!(told(rate(2, 10), rate(40, 10)), RateDifference::More);
        assert_eq!(told(rate(3, 10), rate(2, 10)), RateDifference::None);
        assert_eq!(told(rate(0, 10), rate(0, 10)), RateDifference::None);
        assert_eq!(told(rate(40, 10), rate(0, 0)), RateDifference::NotEnough);
        let erased = HangRate { has_erased_program: true, ..rate(2, 10) };
        assert_eq!(told(erased, rate(40, 10)), RateDifference::Erased);
        assert_eq!(told(rate(40, 10), erased), RateDifference::Erased);
        // Twice as long on one side.
        assert_eq!(told(rate(20, 10), rate(40, 20)), RateDifference::None);
    }
}
