//! A row of a benchmark: ours beside the peer's, and what was promised.

use serde::Serialize;

use report::figure::{Quantity, ratio};
use report::paint::Tone;
use report::samples::Samples;

use crate::paired::PairedRatio;

/// One figure, measured on both sides in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureRow {
    /// The name by which `--only` chooses it: `write-tmpfs`.
    pub id: &'static str,
    /// What is measured, for a person.
    pub title: String,
    /// What the samples count.
    pub quantity: Quantity,
    /// Our measurements.
    pub ours: Samples,
    /// The peer's measurements.
    pub peer: Samples,
    /// What ours must reach beside the peer's.
    pub target: Option<FigureTarget>,
    /// How it was measured, where that is not plain.
    pub note: String,
}

/// What our median must be: a part or a multiple of the peer's, or a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureTarget {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
    /// Ours must be at most this, in the unit of the samples, whatever the peer's is.
    Within(f64),
    /// Ours must be at least this, in the unit of the samples, whatever the peer's is.
    Reaching(f64),
    /// Nothing was promised, and there is nothing to compare with.
    Alone,
}

/// Whether a row reaches its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reached {
    /// It does.
    Pass,
    /// The target lies within the interval of the ratio, or there are too few rounds for one: another run may find the opposite.
    NotResolved,
    /// It does not.
    FallsShort,
    /// The run is a quick one, whose few rounds prove nothing about a time, a rate or a size.
    NotJudged,
    /// There is none.
    NoTarget,
    /// One side was not measured.
    NotMeasured,
}

impl FigureRow {
    /// Returns our median as a part of the peer's; of sides that were measured in turns the median of the rounds' ratios.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.paired().map_or_else(|| self.ratio_of_medians(), |paired| paired.median)
    }

    /// Returns our median as a part of the peer's.
    #[must_use]
    pub(crate) fn ratio_of_medians(&self) -> f64 {
        self.ours.median() / self.peer.median()
    }

    /// Returns the ratio by rounds, with its interval, of sides that were measured in turns.
    #[must_use]
    pub fn paired(&self) -> Option<PairedRatio> {
        PairedRatio::of(&self.ours, &self.peer)
    }

    /// Returns whether more of it is better, as of a rate.
    #[must_use]
    pub(crate) fn more_is_better(&self) -> bool {
        self.quantity == Quantity::Rate
    }

    /// Compares the ratio with the target.
    #[must_use]
    pub fn reached(&self) -> Reached {
        let reaches = match self.target {
            Some(FigureTarget::Within(most)) if !self.ours.is_empty() => {
                Some(self.ours.median() <= most)
            }
            Some(FigureTarget::Reaching(least)) if !self.ours.is_empty() => {
                Some(self.ours.median() >= least)
            }
            Some(FigureTarget::Alone) if !self.ours.is_empty() => return Reached::NoTarget,
            _ if self.ours.is_empty() || self.peer.is_empty() => return Reached::NotMeasured,
            Some(FigureTarget::AtMost(most)) => match self.paired() {
                Some(paired) => paired.is_at_most(most),
                None => Some(self.ratio() <= most),
            },
            Some(FigureTarget::AtLeast(least)) => match self.paired() {
                Some(paired) => paired.is_at_least(least),
                None => Some(self.ratio() >= least),
            },
            _ => return Reached::NoTarget,
        };
        match reaches {
            Some(true) => Reached::Pass,
            Some(false) => Reached::FallsShort,
            None => Reached::NotResolved,
        }
    }

    /// Returns whether one round is enough to judge it: of what must never happen, once is too often.
    #[must_use]
    pub(crate) fn is_judged_at_once(&self) -> bool {
        matches!(self.target, Some(FigureTarget::Within(most)) if most <= 0.0)
    }

    /// Returns whether there is nothing to compare it with, which is no gap.
    #[must_use]
    pub(crate) fn is_alone(&self) -> bool {
        let needs_none = matches!(
            self.target,
            Some(FigureTarget::Within(_) | FigureTarget::Reaching(_) | FigureTarget::Alone)
        );
        self.peer.is_empty() && needs_none
    }

    /// Writes the ratio: `1/15`, `x 12`, with its interval where there is one; nothing without a peer.
    #[must_use]
    pub fn show_ratio(&self) -> String {
        if self.peer.is_empty() {
            return String::new();
        }
        if let Some(paired) = self.paired() {
            return paired.to_string();
        }
        ratio(self.ours.median(), self.peer.median())
    }

    /// Writes the ratio without its interval, for where there is little room.
    #[must_use]
    pub(crate) fn show_short_ratio(&self) -> String {
        match self.paired() {
            Some(PairedRatio { median, .. }) if !self.peer.is_empty() => format!("x {median:.3}"),
            _ => self.show_ratio(),
        }
    }

    /// Writes the target: `<= 1/15`, `>= x 10`, `<= 150 us`; nothing where nothing was promised.
    #[must_use]
    pub(crate) fn show_target(&self) -> String {
        match self.target {
            None | Some(FigureTarget::Alone) => String::new(),
            Some(FigureTarget::AtMost(most)) => format!("<= {}", whole(ratio(most, 1.0))),
            Some(FigureTarget::AtLeast(least)) => format!(">= {}", whole(ratio(least, 1.0))),
            Some(FigureTarget::Within(most)) => format!("<= {}", self.quantity.show(most)),
            Some(FigureTarget::Reaching(least)) => format!(">= {}", self.quantity.show(least)),
        }
    }

    /// Returns the ratio to the peer's median at which the target is just reached.
    #[must_use]
    pub(crate) fn promised_ratio(&self) -> Option<f64> {
        match self.target? {
            FigureTarget::AtMost(ratio) | FigureTarget::AtLeast(ratio) => Some(ratio),
            FigureTarget::Within(most) | FigureTarget::Reaching(most) => {
                Some(most / self.peer.median()).filter(|ratio| ratio.is_finite())
            }
            FigureTarget::Alone => None,
        }
    }
}

/// Takes zeros after the point away: a promise is exact.
fn whole(ratio: String) -> String {
    if ratio.contains('.') {
        ratio.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        ratio
    }
}

impl Reached {
    /// Returns the word, with its shape; nothing where nothing was promised.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Reached::Pass => "● pass",
            Reached::FallsShort => "▲ short",
            Reached::NotResolved => "○ not resolved",
            Reached::NotJudged => "not judged",
            Reached::NoTarget => "",
            Reached::NotMeasured => "not measured",
        }
    }

    /// Returns the tone in which the word is set.
    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            Reached::Pass => Tone::Good,
            Reached::FallsShort => Tone::Bad,
            Reached::NotResolved => Tone::Warn,
            Reached::NotJudged | Reached::NoTarget | Reached::NotMeasured => Tone::Dim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, peer: f64, target: FigureTarget) -> FigureRow {
        FigureRow {
            id: "x",
            title: String::new(),
            quantity: Quantity::Time,
            ours: [ours].into_iter().collect(),
            peer: [peer].into_iter().collect(),
            target: Some(target),
            note: String::new(),
        }
    }

    #[test]
    fn a_target_is_a_part_or_a_multiple_of_the_peers_median() {
        assert_eq!(row(1.0, 15.0, FigureTarget::AtMost(1.0 / 15.0)).reached(), Reached::Pass);
        assert_eq!(row(1.1, 15.0, FigureTarget::AtMost(1.0 / 15.0)).reached(), Reached::FallsShort);
        assert_eq!(row(960.0, 96.0, FigureTarget::AtLeast(10.0)).reached(), Reached::Pass);
        assert_eq!(row(950.0, 96.0, FigureTarget::AtLeast(10.0)).reached(), Reached::FallsShort);
    }

    #[test]
    fn a_ratio_whose_interval_has_the_target_in_it_is_not_resolved() {
        let with = |ratios: &[f64], target| {
            let mut row = row(1.0, 1.0, target);
            (row.ours, row.peer) = Default::default();
            for ratio in ratios {
                row.ours.push(*ratio);
                row.ours.end_round();
                row.peer.push(1.0);
                row.peer.end_round();
            }
            row.reached()
        };
        let steady = [1.0, 1.001, 1.002, 1.003, 0.999, 0.998, 1.004];
        let spread = [1.0, 1.001, 1.03, 1.05, 0.9, 0.95, 0.97];
        let slow = [1.02, 1.03, 1.0, 1.05, 0.9, 1.04, 1.1];
        let slower = [1.02, 1.03, 1.011, 1.05, 1.012, 1.04, 1.1];
        assert_eq!(with(&steady, FigureTarget::AtMost(1.01)), Reached::Pass);
        assert_eq!(with(&spread, FigureTarget::AtMost(1.01)), Reached::NotResolved);
        assert_eq!(with(&slow, FigureTarget::AtMost(1.01)), Reached::NotResolved);
        assert_eq!(with(&slower, FigureTarget::AtMost(1.01)), Reached::FallsShort);
        assert_eq!(with(&steady[..3], FigureTarget::AtMost(1.01)), Reached::NotResolved, "few");
        assert_eq!(with(&steady, FigureTarget::AtLeast(0.9)), Reached::Pass);
        assert_eq!(with(&spread, FigureTarget::AtLeast(0.91)), Reached::NotResolved);
        assert_eq!(with(&spread, FigureTarget::AtLeast(1.04)), Reached::NotResolved);
        assert_eq!(with(&slow, FigureTarget::AtLeast(1.2)), Reached::FallsShort);
    }

    #[test]
    fn what_was_not_measured_does_not_pass() {
        let mut row = row(1.0, 15.0, FigureTarget::AtMost(1.0));
        row.peer = Samples::default();
        assert_eq!(row.reached(), Reached::NotMeasured);
    }

    #[test]
    fn targets_are_written_as_ratios() {
        let show = |target| row(1.0, 1.0, target).show_target();
        assert_eq!(show(FigureTarget::AtMost(1.0 / 300.0)), "<= 1/300");
        assert_eq!(show(FigureTarget::AtMost(2.0 / 3.0)), "<= 1/1.5");
        assert_eq!(show(FigureTarget::AtMost(1.0 / 5.0)), "<= 1/5");
        assert_eq!(show(FigureTarget::AtLeast(10.0)), ">= x 10");
        assert!(show(FigureTarget::Within(150_000.0)).starts_with("<= 150"));
    }

    #[test]
    fn a_limit_needs_no_peer() {
        let mut limited = row(100.0, 50.0, FigureTarget::Within(150.0));
        assert_eq!(limited.promised_ratio(), Some(3.0));
        limited.peer = Samples::default();
        assert_eq!((limited.reached(), limited.promised_ratio()), (Reached::Pass, None));
        assert_eq!(row(151.0, 50.0, FigureTarget::Within(150.0)).reached(), Reached::FallsShort);
        let mut reaching = row(99.0, 50.0, FigureTarget::Reaching(99.0));
        reaching.quantity = Quantity::Share;
        reaching.peer = Samples::default();
        assert_eq!((reaching.reached(), &*reaching.show_target()), (Reached::Pass, ">= 99.0 %"));
        assert_eq!(row(98.9, 50.0, FigureTarget::Reaching(99.0)).reached(), Reached::FallsShort);
        reaching.target = Some(FigureTarget::Alone);
        assert!(reaching.is_alone() && reaching.reached() == Reached::NoTarget);
        reaching.ours = Samples::default();
        assert_eq!(reaching.reached(), Reached::NotMeasured);
    }
}
