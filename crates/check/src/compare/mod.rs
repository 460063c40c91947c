//! Compares two reports by call and by code path.

mod page;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::page::render as page;
pub use self::text::render as text;

use report::paragraph::counted;
use trace::report::TraceReport;
use trace::report::schema::{ThreadStalls, TraceMethod};
use trace::report::spelling::shown_command;
use trace::report::verdict::time;
use trace::syscall::SyscallClass;

/// The name and version of the comparison as JSON; a field may be added without a new version, never changed or removed.
pub const SCHEMA: &str = "unjank.trace-compare/1";

/// Changes of less than this part may be chance in one run each.
const CHANCE: f64 = 0.2;
/// Smaller changes are not significant, in nanoseconds.
const NOTHING_NS: u64 = 100_000;

/// Two reports side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The finding in a sentence or two.
    pub verdict: String,
    /// How long each recording lasted, in nanoseconds.
    pub length_ns: [u64; 2],
    /// How each main thread stalled.
    pub main: [ThreadStalls; 2],
    /// By kind of call, the largest change first.
    pub calls: Vec<PathDifference>,
    /// By code path, the largest change first.
    pub paths: Vec<PathDifference>,
    /// The reasons why the two are hard to compare, one sentence each.
    pub doubts: Vec<String>,
}

/// One call or code path before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathDifference {
    /// What it is.
    pub name: String,
    /// What kind of call it is.
    pub class: SyscallClass,
    /// Before; zeros if it was not there.
    pub before: ComparisonSide,
    /// After; zeros if it is gone.
    pub after: ComparisonSide,
}

/// Sums on one side, idle waits left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ComparisonSide {
    /// How many calls.
    pub count: u64,
    /// Time in them, in nanoseconds.
    pub wall_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
}

/// Which way something went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trend {
    /// Less time.
    Faster,
    /// More time.
    Slower,
    /// No difference that means anything.
    Same,
}

impl Trend {
    /// Returns the arrow that stands for it.
    #[must_use]
    pub fn arrow(self) -> &'static str {
        match self {
            Trend::Faster => "↓",
            Trend::Slower => "↑",
            Trend::Same => "=",
        }
    }
}

/// Returns the direction of a change.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "compared with a fifth")]
pub fn direction(before_ns: u64, after_ns: u64) -> Trend {
    let larger = before_ns.max(after_ns);
    let difference = before_ns.abs_diff(after_ns);
    if difference < NOTHING_NS || (difference as f64) < CHANCE * larger as f64 {
        Trend::Same
    } else if after_ns < before_ns {
        Trend::Faster
    } else {
        Trend::Slower
    }
}

/// Compares two reports.
#[must_use]
pub fn compare(before: &TraceReport, after: &TraceReport) -> Comparison {
    let stalls = |report: &TraceReport| report.main().map(|main| main.stalls).unwrap_or_default();
    let mut comparison = Comparison {
        schema: SCHEMA,
        verdict: String::new(),
        length_ns: [before.length_ns, after.length_ns],
        main: [stalls(before), stalls(after)],
        calls: changes(calls(before), calls(after)),
        paths: changes(paths(before), paths(after)),
        doubts: doubts(before, after),
    };
    comparison.verdict = verdict(&comparison);
    comparison
}

type Sums = BTreeMap<String, (SyscallClass, ComparisonSide)>;

fn calls(report: &TraceReport) -> Sums {
    let mut sums = Sums::new();
    for kind in &report.calls {
        let side = ComparisonSide {
            count: kind.count.saturating_sub(kind.idle),
            wall_ns: kind.wall_ns.saturating_sub(kind.idle_ns),
            longest_ns: kind.longest_ns,
        };
        sums.insert(kind.name.clone(), (kind.class, side));
    }
    sums
}

fn paths(report: &TraceReport) -> Sums {
    let mut sums = Sums::new();
    for path in report.paths.iter().filter(|path| path.how == TraceMethod::Stall) {
        let class =
            report.calls.get(path.call as usize).map_or(SyscallClass::Other, |kind| kind.class);
        let (_, side) =
            sums.entry(report.path_title(path)).or_insert((class, ComparisonSide::default()));
        side.count += path.count;
        side.wall_ns = side.wall_ns.saturating_add(path.wall_ns);
        side.longest_ns = side.longest_ns.max(path.longest_ns);
    }
    sums
}

fn changes(before: Sums, mut after: Sums) -> Vec<PathDifference> {
    let mut changes: Vec<PathDifference> = before
        .into_iter()
        .map(|(name, (class, before))| {
            let after = after.remove(&name).map(|(_, side)| side).unwrap_or_default();
            PathDifference { name, class, before, after }
        })
        .collect();
    changes.extend(after.into_iter().map(|(name, (class, after))| PathDifference {
        name,
        class,
        before: ComparisonSide::default(),
        after,
    }));
    changes.sort_by_key(|change| {
        std::cmp::Reverse(change.before.wall_ns.abs_diff(change.after.wall_ns))
    });
    changes
}

fn doubts(before: &TraceReport, after: &TraceReport) -> Vec<String> {
    let mut doubts = vec![
        "one run each: a change of less than a fifth may be chance; trace ab repeats and tells"
            .to_owned(),
    ];
    let mut differ = |what: &str, one: &str, other: &str| {
        if one != other {
            doubts.push(format!("the {what} differs: {one} and {other}"));
        }
    };
    let command = |report: &TraceReport| shown_command(&report.command);
    differ("command", &command(before), &command(after));
    differ("backend", &before.watch.backend, &after.watch.backend);
    differ("set of watched calls", &before.watch.calls, &after.watch.calls);
    differ("threshold", &time(before.watch.threshold_ns), &time(after.watch.threshold_ns));
    differ("kernel", &before.provenance.kernel, &after.provenance.kernel);
    differ("processor", &before.provenance.processor, &after.provenance.processor);
    doubts
}

fn verdict(comparison: &Comparison) -> String {
    let [before, after] = comparison.main;
    let frames = |stalls: ThreadStalls| {
        counted(usize::try_from(stalls.frames).unwrap_or(usize::MAX), "frame")
    };
    let mut sentence = match direction(before.wall_ns, after.wall_ns) {
        _ if before.frames == 0 && after.frames == 0 => {
            "The main thread misses no frame, before and after.".to_owned()
        }
        Trend::Same => format!(
            "The main thread waits as long as before: {} then, {} now.",
            frames(before),
            frames(after)
        ),
        direction => format!(
            "The main thread waits {}: {} missed before, {} after; {} and {} in slow calls.",
            if direction == Trend::Faster { "less" } else { "longer" },
            frames(before),
            frames(after),
            time(before.wall_ns),
            time(after.wall_ns)
        ),
    };
    let changed = comparison
        .paths
        .iter()
        .find(|change| direction(change.before.wall_ns, change.after.wall_ns) != Trend::Same);
    if let Some(change) = changed {
        let (before, after) = (change.before.wall_ns, change.after.wall_ns);
        sentence.push_str(&match (before, after) {
            (before, 0) => format!(" {} is gone: it took {}.", change.name, time(before)),
            (0, after) => format!(" {} is new: it takes {}.", change.name, time(after)),
            _ => format!(" {} went from {} to {}.", change.name, time(before), time(after)),
        });
    }
    sentence
}

#[cfg(test)]
mod tests;
