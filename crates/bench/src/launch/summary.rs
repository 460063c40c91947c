//! What the samples say: for each cell its median and p95, and how they stand to the cell that it is compared with.

use serde::Serialize;

use super::cell::{LoadClass, MatrixCell, Measure, Throttling};
use super::sample::Sample;
use crate::lab::Effort;
use crate::row::Reached;
use check::ab::statistics::{Interval, ratio_of_medians};
use report::samples::Samples;

/// What a ratio must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// The median at most this, the p95 at most that.
    AtMost(f64, f64),
    /// The median at least this.
    AtLeast(f64),
}

/// One cell.
#[derive(Clone, Debug)]
pub struct CellRow {
    /// Which.
    pub cell: MatrixCell,
    /// Its samples, times in nanoseconds, rates in bytes a second.
    pub samples: Samples,
    /// The phases in which they were taken, one for each.
    pub phases: Vec<String>,
    /// The ratio to what it is compared with; NaN without that.
    pub ratio: Interval,
    /// The ratio of its p95 to the other's median.
    pub p95_ratio: f64,
    /// The share of written bytes that went out in the idle class.
    pub idle_share: Option<f64>,
    /// The share that it must be.
    pub promised_share: Option<f64>,
    /// What was promised.
    pub promise: Option<Promise>,
    /// How much was measured: a quick run is not judged.
    pub effort: Effort,
    /// Launches that did not end with 0.
    pub failed: usize,
    /// Launches that other programs disturbed: none of the samples above, unless there are no others.
    pub disturbed: usize,
}

impl CellRow {
    /// Returns whether what was promised is kept; there is no target where nothing was promised, or nothing to compare with was measured.
    #[must_use]
    pub fn reached(&self) -> Reached {
        match (self.is_kept(), self.effort) {
            (None, _) => Reached::NoTarget,
            (Some(_), Effort::Quick) => Reached::NotJudged,
            (Some(true), Effort::Full) => Reached::Pass,
            (Some(false), Effort::Full) => Reached::FallsShort,
        }
    }

    /// Compares what was measured with what was promised, however much was measured.
    fn is_kept(&self) -> Option<bool> {
        if !self.ratio.ratio.is_finite() {
            return None;
        }
        // A promise is given with two digits after the point, and so kept.
        let rounded = |ratio: f64| (ratio * 100.0).round() / 100.0;
        let ratio = self.promise.map(|promise| match promise {
            Promise::AtMost(median, p95) => {
                rounded(self.ratio.ratio) <= median && rounded(self.p95_ratio) <= p95
            }
            Promise::AtLeast(median) => rounded(self.ratio.ratio) >= median,
        });
        let share = self.promised_share.zip(self.idle_share);
        match (ratio, share.map(|(promised, share)| rounded(share) >= promised)) {
            (Some(one), Some(two)) => Some(one && two),
            (one, two) => one.or(two),
        }
    }
}

/// Returns the cell that `cell` is compared with.
fn reference(cell: &MatrixCell) -> MatrixCell {
    match cell.measure {
        Measure::Launch => cell.unloaded(),
        Measure::Whole => MatrixCell { class: LoadClass::Plain, ..cell.clone() },
        Measure::Alone | Measure::Shared => MatrixCell { measure: Measure::Alone, ..cell.clone() },
    }
}

/// Returns what `unjank run` promises for a cell: the table of this project, for the disk that it was written for.
fn promise(cell: &MatrixCell) -> Option<Promise> {
    if cell.class != LoadClass::Run || cell.disk != "model:emmc" {
        return None;
    }
    match (cell.measure, &*cell.scheduler, cell.wbt) {
        (Measure::Launch, "none" | "mq-deadline", Throttling::Default) => {
            Some(Promise::AtMost(1.15, 1.5))
        }
        (Measure::Launch, "none", Throttling::Off) => Some(Promise::AtMost(1.3, 2.0)),
        (Measure::Launch, "bfq", Throttling::Default) => Some(Promise::AtMost(1.1, 1.3)),
        // The median of several is what counts.
        (Measure::Whole, ..) => Some(Promise::AtMost(1.1, f64::INFINITY)),
        (Measure::Shared, ..) => Some(Promise::AtLeast(0.4)),
        _ => None,
    }
}

/// Returns the share of written bytes that is promised to go out in the idle class, of a whole job.
fn promised_share(cell: &MatrixCell) -> Option<f64> {
    if cell.class != LoadClass::Run || cell.measure != Measure::Whole {
        return None;
    }
    match &*cell.background {
        "flatpak" => Some(0.9),
        "tar" | "cp" => Some(0.98),
        _ => None,
    }
}

/// Sums up `samples`: a row for each cell, in the order of its first sample's kind, queue and background.
#[must_use]
pub fn rows(samples: &[Sample], effort: Effort) -> Vec<CellRow> {
    let mut cells: Vec<&MatrixCell> = Vec::new();
    for sample in samples {
        if !cells.contains(&&sample.cell) {
            cells.push(&sample.cell);
        }
    }
    let place = |cell: &MatrixCell| {
        let find = |same: &dyn Fn(&MatrixCell) -> bool| cells.iter().position(|other| same(other));
        (
            cell.measure,
            find(&|other| other.disk == cell.disk),
            find(&|other| other.scheduler == cell.scheduler && other.wbt == cell.wbt),
            find(&|other| other.background == cell.background),
            cell.class,
        )
    };
    let mut ordered = cells.clone();
    ordered.sort_by_key(|cell| place(cell));
    ordered.into_iter().map(|cell| row(cell, samples, effort)).collect()
}

fn row(cell: &MatrixCell, all: &[Sample], effort: Effort) -> CellRow {
    let counted = |cell: &MatrixCell| -> Vec<&Sample> {
        let own = || all.iter().filter(|sample| sample.cell == *cell);
        let calm: Vec<&Sample> = own().filter(|sample| !sample.is_disturbed()).collect();
        if calm.is_empty() { own().collect() } else { calm }
    };
    let of = |cell: &MatrixCell| -> Samples {
        let scale = match cell.measure {
            Measure::Launch | Measure::Whole => 1e6,
            Measure::Alone | Measure::Shared => 1.0,
        };
        counted(cell).iter().map(|sample| sample.value * scale).collect()
    };
    let own = || all.iter().filter(|sample| sample.cell == *cell);
    let (samples, other) = (of(cell), of(&reference(cell)));
    let sum = |of: fn(&Sample) -> Option<u64>| own().filter_map(of).sum::<u64>();
    let idle = sum(|sample| sample.context.idle_bytes);
    let written = idle + sum(|sample| sample.context.other_bytes);
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    let idle_share = (written > 0).then(|| idle as f64 / written as f64);
    let ok = |sample: &&Sample| sample.context.ended.is_empty() || sample.context.ended == "0";
    CellRow {
        cell: cell.clone(),
        phases: counted(cell).iter().map(|sample| sample.context.phase.clone()).collect(),
        ratio: ratio_of_medians(&samples, &other),
        p95_ratio: samples.p95() / other.median(),
        samples,
        idle_share: idle_share.filter(|_| cell.class != LoadClass::Unloaded),
        promised_share: promised_share(cell),
        promise: promise(cell),
        effort,
        failed: own().filter(|sample| !ok(sample)).count(),
        disturbed: own().filter(|sample| sample.is_disturbed()).count(),
    }
}

/// Says in one sentence what came of it.
#[must_use]
pub fn verdict(rows: &[CellRow]) -> String {
    let kept = rows.iter().filter(|row| row.reached() == Reached::Pass).count();
    let short: Vec<String> = rows
        .iter()
        .filter(|row| row.reached() == Reached::FallsShort)
        .map(|row| {
            format!("{} of {} ({})", row.cell.measure.name(), row.cell.background, row.cell.queue())
        })
        .collect();
    let worst = |class: LoadClass| {
        let launches = rows.iter().filter(|row| {
            row.cell.measure == Measure::Launch
                && row.cell.class == class
                && row.ratio.ratio.is_finite()
        });
        launches.map(|row| row.ratio.ratio).fold(f64::NAN, f64::max)
    };
    let mut sentence = match (worst(LoadClass::Plain), worst(LoadClass::Run)) {
        (plain, run) if plain.is_finite() && run.is_finite() => format!(
            "Under load a launch takes up to {plain:.2} times as long, and up to {run:.2} times with unjank run."
        ),
        (plain, _) if plain.is_finite() => {
            format!("Under load a launch takes up to {plain:.2} times as long.")
        }
        (_, run) if run.is_finite() => {
            format!("Beside a job under unjank run a launch takes up to {run:.2} times as long.")
        }
        _ => format!("{} measured.", report::paragraph::counted(rows.len(), "cell")),
    };
    match (kept, short.len()) {
        (0, 0) => (),
        (1, 0) => sentence.push_str(" The one promise is kept."),
        (kept, 0) => sentence.push_str(&format!(" All {kept} promises are kept.")),
        (kept, broken) => sentence.push_str(&format!(
            " {broken} of {} {} not kept: {}.",
            report::paragraph::counted(kept + broken, "promise"),
            if broken == 1 { "is" } else { "are" },
            short.join("; ")
        )),
    }
    sentence
}

/// Returns what a reader must know of the figures: launches that other programs disturbed, and samples without the kernel's traces.
#[must_use]
pub fn notes(rows: &[CellRow], samples: &[Sample]) -> Vec<String> {
    let mut notes = Vec::new();
    let disturbed: usize = rows.iter().map(|row| row.disturbed).sum();
    if disturbed > 0 {
        notes.push(format!(
            "other programs used more than a tenth of the processors during {}: kept, but in no figure of a cell that has calm ones",
            if disturbed == 1 { "1 launch".to_owned() } else { format!("{disturbed} launches") }
        ));
    }
    if samples.iter().any(|sample| sample.context.idle_bytes.is_none()) {
        notes.push("in which class bytes went out is told by the kernel's traces, which were not there for some samples: mount -t tracefs tracefs /sys/kernel/tracing".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::sample;
    use super::*;

    fn samples(run: [f64; 5]) -> Vec<Sample> {
        let unloaded = [700.0, 690.0, 710.0].map(|ms| sample("none", LoadClass::Unloaded, ms));
        let plain = [1200.0, 1300.0, 1400.0].map(|ms| sample("none", LoadClass::Plain, ms));
        let run = run.map(|ms| sample("none", LoadClass::Run, ms));
        unloaded.into_iter().chain(plain).chain(run).collect()
    }

    #[test]
    fn a_cell_is_compared_with_the_unloaded_one_of_its_queue() {
        let rows = rows(&samples([700.0, 710.0, 720.0, 730.0, 740.0]), Effort::Full);
        let classes: Vec<LoadClass> = rows.iter().map(|row| row.cell.class).collect();
        assert_eq!(classes, [LoadClass::Unloaded, LoadClass::Plain, LoadClass::Run]);
        assert!((rows[1].ratio.ratio - 1300.0 / 700.0).abs() < 1e-9);
        assert!(
            rows[1].ratio.low <= rows[1].ratio.ratio && rows[1].ratio.ratio <= rows[1].ratio.high
        );
        assert_eq!((rows[1].reached(), rows[2].reached()), (Reached::NoTarget, Reached::Pass));
        assert!(verdict(&rows).ends_with(" The one promise is kept."), "{}", verdict(&rows));
    }

    #[test]
    fn a_slow_median_and_a_slow_tail_break_the_promise() {
        let slow = rows(&samples([900.0; 5]), Effort::Full);
        assert_eq!(slow[2].reached(), Reached::FallsShort);
        let tail = rows(&samples([700.0, 700.0, 700.0, 700.0, 2000.0]), Effort::Full);
        assert!(tail[2].ratio.ratio < 1.01);
        assert_eq!(tail[2].reached(), Reached::FallsShort);
        assert!(verdict(&tail).contains("not kept: launch of tar (none)"), "{}", verdict(&tail));
    }

    #[test]
    fn a_quick_run_breaks_no_promise() {
        let slow = rows(&samples([900.0; 5]), Effort::Quick);
        assert_eq!((slow[1].reached(), slow[2].reached()), (Reached::NoTarget, Reached::NotJudged));
        assert!(!verdict(&slow).contains("promise"), "{}", verdict(&slow));
    }

    #[test]
    fn a_disturbed_launch_is_in_no_figure_of_a_cell_with_calm_ones() {
        let mut samples = samples([700.0, 710.0, 720.0, 730.0, 740.0]);
        let mut disturbed = sample("none", LoadClass::Run, 9000.0);
        disturbed.context.others_share = Some(0.5);
        samples.push(disturbed.clone());
        let among = &rows(&samples, Effort::Full)[2];
        assert_eq!((among.samples.len(), among.disturbed, among.reached()), (5, 1, Reached::Pass));
        assert_eq!(among.phases.len(), 5);
        let alone = &rows(&[disturbed], Effort::Full)[0];
        assert_eq!((alone.samples.len(), alone.disturbed), (1, 1));
    }

    #[test]
    fn without_an_unloaded_cell_nothing_is_promised() {
        let alone = rows(&[sample("none", LoadClass::Run, 5000.0)], Effort::Full);
        assert_eq!(alone[0].reached(), Reached::NoTarget);
        assert!(alone[0].ratio.ratio.is_nan());
    }
}
