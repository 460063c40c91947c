//! What programs read about hangs; docs/hangs.md describes the fields.

use serde::Serialize;
use trace::report::account::TimeParts;

use crate::compare::{ComparedHangs, HangRate, RateComparison};
use crate::history::{HangGroup, HangHistory, WatchCoverage};
use crate::model::{
    CallShare, DiskUse, Hang, HangCause, HangChain, HangFrame, STEP_BOUNDS_NS, StepHistogram,
};
use crate::remedy::{AppliedRemedies, HangAdvice, advise};
use crate::store::StoredHistory;

/// The parts that a recorder tells apart. Those of `trace` that it does not see would be a 0 that says they never were.
#[derive(Debug, Serialize)]
struct PartsDocument {
    processor_ns: u64,
    ready_ns: u64,
    fault_ns: u64,
    call_ns: u64,
    lock_ns: u64,
    stopped_ns: u64,
    idle_ns: u64,
    child_ns: u64,
    tracer_ns: u64,
    unknown_ns: u64,
}

impl PartsDocument {
    fn of(parts: &TimeParts) -> PartsDocument {
        PartsDocument {
            processor_ns: parts.processor_ns,
            ready_ns: parts.ready_ns,
            fault_ns: parts.fault_ns,
            call_ns: parts.call_ns,
            lock_ns: parts.lock_ns,
            stopped_ns: parts.stopped_ns,
            idle_ns: parts.idle_ns,
            child_ns: parts.child_ns,
            tracer_ns: parts.tracer_ns,
            unknown_ns: parts.unknown_ns,
        }
    }
}

/// A hang.
#[derive(Debug, Serialize)]
pub struct HangDocument<'a> {
    number: u64,
    started_unix_ns: u64,
    length_ns: u64,
    uncertain_ns: u64,
    goes_on: bool,
    process: u32,
    process_began_unix_ns: Option<u64>,
    program: &'a str,
    unit: &'a str,
    cause: HangCause,
    parts: PartsDocument,
    calls: &'a [CallShare],
    frames: &'a [HangFrame],
    blamed: Option<u32>,
    pressure_percent: Option<[f64; 3]>,
    unseen: Vec<&'static str>,
    chain: Option<&'a HangChain>,
    disk_use: Option<&'a DiskUse>,
    kernel_functions: &'a [String],
    command: Option<String>,
    remedy: Option<HangAdvice>,
}

impl<'a> HangDocument<'a> {
    /// Describes a hang where none of the parts is on that remove causes.
    #[must_use]
    pub fn of(hang: &'a Hang) -> HangDocument<'a> {
        HangDocument::beside(hang, &AppliedRemedies::NONE)
    }

    /// Describes a hang beside what is on.
    #[must_use]
    pub fn beside(hang: &'a Hang, applied: &AppliedRemedies) -> HangDocument<'a> {
        let remedy = advise(hang, applied);
        HangDocument {
            number: hang.number,
            started_unix_ns: hang.started_ns,
            length_ns: hang.length_ns,
            uncertain_ns: hang.uncertain_ns,
            goes_on: hang.goes_on,
            process: hang.process,
            process_began_unix_ns: Some(hang.process_began_ns).filter(|began| *began > 0),
            program: &hang.program,
            unit: &hang.unit,
            cause: hang.cause,
            parts: PartsDocument::of(&hang.parts),
            calls: &hang.calls,
            frames: &hang.frames,
            blamed: hang.blamed,
            pressure_percent: hang
                .pressure
                .map(|shares| shares.map(|share| f64::from(share) / 100.0)),
            unseen: hang.unseen.sentences(!hang.frames.is_empty()),
            chain: hang.chain.as_ref(),
            disk_use: hang.disk_use.as_ref(),
            kernel_functions: &hang.kernel_functions,
            command: remedy.and_then(|remedy| remedy.command()),
            remedy,
        }
    }
}

#[derive(Debug, Serialize)]
struct GapDocument {
    from_unix_ns: u64,
    to_unix_ns: u64,
}

#[derive(Debug, Serialize)]
struct CoverageDocument {
    recorder_ns: u64,
    watched_ns: u64,
    interval_ns: u64,
    gaps: Vec<GapDocument>,
    not_counted_ns: u64,
    erased_before_unix_ns: Option<u64>,
    programs_over_limit: u32,
    programs_refused: u32,
    hangs_lost: u64,
    stalled_ns: u64,
}

impl CoverageDocument {
    fn of(coverage: &WatchCoverage) -> CoverageDocument {
        let gaps = coverage.gaps.iter();
        CoverageDocument {
            recorder_ns: coverage.recorder_ns,
            watched_ns: coverage.watched_ns,
            interval_ns: coverage.interval_ns,
            gaps: gaps
                .map(|gap| GapDocument { from_unix_ns: gap.from_ns, to_unix_ns: gap.to_ns })
                .collect(),
            not_counted_ns: coverage.not_counted_ns,
            erased_before_unix_ns: coverage.erased_before_ns,
            programs_over_limit: coverage.over_limit,
            programs_refused: coverage.refused,
            hangs_lost: coverage.lost,
            stalled_ns: coverage.stalled_ns,
        }
    }
}

#[derive(Debug, Serialize)]
struct ProgramDocument<'a> {
    program: &'a str,
    watched_ns: u64,
    present_ns: u64,
    processes: u32,
    without_loop: u32,
    late_ns: u64,
    steps: StepHistogram,
}

/// What `unjank hangs --json` prints.
#[derive(Debug, Serialize)]
pub struct HangListDocument<'a> {
    hangs: Vec<HangDocument<'a>>,
    coverage: CoverageDocument,
    step_bounds_ns: &'static [u64],
    programs: Vec<ProgramDocument<'a>>,
    damage: Option<&'a str>,
}

impl<'a> HangListDocument<'a> {
    /// Describes a history, beside what is on.
    #[must_use]
    pub fn of(history: &'a HangHistory, applied: &AppliedRemedies) -> HangListDocument<'a> {
        let programs = history.programs.iter();
        HangListDocument {
            hangs: history.hangs.iter().map(|hang| HangDocument::beside(hang, applied)).collect(),
            coverage: CoverageDocument::of(&history.coverage),
            step_bounds_ns: &STEP_BOUNDS_NS,
            programs: programs
                .map(|(program, of)| ProgramDocument {
                    program,
                    watched_ns: of.watched_ns,
                    present_ns: of.present_ns,
                    processes: of.processes,
                    without_loop: of.without_loop,
                    late_ns: of.late_ns,
                    steps: of.steps,
                })
                .collect(),
            damage: history.damage.as_deref(),
        }
    }
}

/// What `unjank hangs top --json` prints.
#[derive(Debug, Serialize)]
pub struct HangTopDocument<'a> {
    by: &'a str,
    groups: &'a [HangGroup],
    coverage: CoverageDocument,
    damage: Option<&'a str>,
}

impl<'a> HangTopDocument<'a> {
    /// Describes groups of hangs.
    #[must_use]
    pub fn of(
        by: &'a str,
        groups: &'a [HangGroup],
        history: &'a HangHistory,
    ) -> HangTopDocument<'a> {
        let coverage = CoverageDocument::of(&history.coverage);
        HangTopDocument { by, groups, coverage, damage: history.damage.as_deref() }
    }
}

#[derive(Debug, Serialize)]
struct RatesDocument {
    before: HangRate,
    after: HangRate,
}

/// What `unjank hangs compare --json` prints.
#[derive(Debug, Serialize)]
pub struct HangComparisonDocument {
    at_unix_ns: u64,
    counted: ComparedHangs,
    #[serde(flatten)]
    comparison: RateComparison,
    all: Option<RatesDocument>,
    erased_before_unix_ns: Option<u64>,
    damage: Option<String>,
}

impl HangComparisonDocument {
    /// Describes a comparison around a moment of what is in `stored`. `all` are the rates of all hangs, where only those are counted
    /// that a part removes.
    #[must_use]
    pub fn of(
        at_unix_ns: u64,
        counted: ComparedHangs,
        comparison: RateComparison,
        all: Option<(HangRate, HangRate)>,
        stored: &StoredHistory,
        now_ns: u64,
    ) -> HangComparisonDocument {
        HangComparisonDocument {
            at_unix_ns,
            counted,
            comparison,
            all: all.map(|(before, after)| RatesDocument { before, after }),
            erased_before_unix_ns: stored.erased_before(now_ns),
            damage: stored.damage(),
        }
    }
}
