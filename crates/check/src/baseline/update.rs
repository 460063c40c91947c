//! A baseline from what several runs showed; what a person wrote into the old one stays.

use std::collections::{BTreeMap, BTreeSet};

use trace::report::TraceReport;
use trace::report::verdict::time;

use super::BaselineRules;
use super::file::{AllowedWait, Baseline, BaselineError, BaselineHeader, PhaseBudget, SCHEMA};
use super::judge::{blind_spots, named, program, unexplained_ns};
use super::lines::LineIndex;
use super::phases::ProgramPhases;
use super::places::UserPlaces;
use super::waits::{FoundWait, MainThreadWaits, WaitKey};
use crate::ending;

/// Why runs do not make a baseline.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateError {
    /// Nothing ran.
    #[error("there is no run to make a baseline of")]
    NoRun,
    /// A run could not be seen whole.
    #[error("run {run} cannot be in a baseline: {why}")]
    Blind {
        /// Its number, from 1.
        run: usize,
        /// What hides a wait.
        why: String,
    },
    /// There would be more in the file than is read of one.
    #[error("the runs show more than a baseline can hold")]
    TooMuch(#[source] BaselineError),
    /// The runs are not of one program.
    #[error("run {run} is of {program:?}, the first one of {first:?}")]
    OtherProgram {
        /// Its number, from 1.
        run: usize,
        /// The program.
        program: String,
        /// The program of the first run.
        first: String,
    },
}

/// What an update changed: a line, or what short waits and unexplained time may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineChange {
    /// The wait is new.
    Added(String),
    /// More or longer waits are allowed than before.
    Raised(String),
    /// Fewer or shorter ones.
    Lowered(String),
    /// The wait did not come any more.
    Removed(String),
}

/// A baseline, and what is different from the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineUpdate {
    /// The new baseline.
    pub baseline: Baseline,
    /// The changes: additions, then what was raised, lowered and removed.
    pub changes: Vec<BaselineChange>,
}

/// What the runs showed of one line.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    runs: u64,
    most: u64,
    least: u64,
    longest_ns: u64,
}

impl Seen {
    fn add(&mut self, count: u64, blocked_ns: u64) {
        self.least = if self.runs == 0 { count } else { self.least.min(count) };
        self.runs += 1;
        self.most = self.most.max(count);
        self.longest_ns = self.longest_ns.max(blocked_ns);
    }
}

/// Makes a baseline of the reports of several runs, each behind the moment at which its window was shown, if one was.
///
/// Lines of `old` whose waits were seen keep their patterns and reasons.
///
/// # Errors
///
/// [`UpdateError`]; a run in which something could not be seen is in no baseline.
pub fn update(
    runs: &[(Option<u64>, TraceReport)],
    old: Option<&Baseline>,
    places: &UserPlaces,
    rules: BaselineRules,
) -> Result<BaselineUpdate, UpdateError> {
    let (_, first) = runs.first().ok_or(UpdateError::NoRun)?;
    let old_lines = old.map(|old| old.waits.as_slice()).unwrap_or_default();
    let old_by_key = LineIndex::new(old_lines);
    let mut header = BaselineHeader {
        schema: SCHEMA.to_owned(),
        program: program(first).to_owned(),
        runs: runs.len() as u64,
        calls: first.watch.calls.clone(),
        threshold: first.watch.threshold_ns,
        floor: rules.floor_ns,
        quiet: rules.quiet_ns,
        factor: rules.factor,
        plus: rules.plus_ns,
        unexplained: 0,
    };
    let mut phases: Vec<PhaseBudget> = Vec::new();
    let mut keys = BTreeSet::new();
    let mut found_in_runs = Vec::new();
    for (number, (window_ns, report)) in (1..).zip(runs) {
        if let Some(why) =
            ending::failure(report).or_else(|| blind_spots(report).into_iter().next())
        {
            return Err(UpdateError::Blind { run: number, why });
        }
        if program(report) != header.program {
            let (program, first) = (program(report).to_owned(), header.program.clone());
            return Err(UpdateError::OtherProgram { run: number, program, first });
        }
        header.unexplained = header.unexplained.max(unexplained_ns(report));
        let found = ProgramPhases::find(report, rules.quiet_ns, *window_ns);
        let waits = MainThreadWaits::find(report, &found, places, rules.floor_ns);
        add_phases(&mut phases, &found, &waits);
        for wait in &waits.found {
            // A line that a person made wider stays as wide.
            let line = old_by_key.find(wait, places).map(|at| old_lines[at].key());
            keys.insert(line.unwrap_or_else(|| wait.key.clone()));
        }
        found_in_runs.push(waits.found);
    }
    let waits = keys.into_iter().map(|key| line(key, &old_by_key)).collect();
    let mut baseline = Baseline { header, phases, waits };
    baseline.sort();
    count(&mut baseline, &found_in_runs, places);
    // What is written has to be read again by each check.
    Baseline::read(baseline.render().as_bytes()).map_err(UpdateError::TooMuch)?;
    let changes = changes(old, &baseline);
    Ok(BaselineUpdate { baseline, changes })
}

/// Adds the phases of a run in their order, each with what its short waits took.
fn add_phases(phases: &mut Vec<PhaseBudget>, found: &ProgramPhases, waits: &MainThreadWaits) {
    let mut behind = 0;
    for name in found.names() {
        let short = waits.short_ns.get(name).copied().unwrap_or(0);
        let at = phases.iter().position(|known| known.phase == name).unwrap_or_else(|| {
            let budget = PhaseBudget { phase: name.to_owned(), short: 0, runs: 0 };
            phases.insert(behind.min(phases.len()), budget);
            behind.min(phases.len() - 1)
        });
        behind = at + 1;
        phases[at].runs += 1;
        phases[at].short = phases[at].short.max(short);
    }
}

/// Returns the line of a key, which allows nothing yet.
fn line(key: WaitKey, old_lines: &LineIndex) -> AllowedWait {
    let old = old_lines.get(&key);
    AllowedWait {
        phase: key.phase,
        call: key.call,
        path: key.path,
        function: old.map_or(key.function, |old| old.function.clone()),
        count: 0,
        least: 0,
        time: 0,
        reason: old.map(|old| old.reason.clone()).unwrap_or_default(),
        line: 0,
    }
}

/// Has each line allow what its runs need, with the waits divided among the lines as each check divides them: what was not
/// seen of a wait may fit a new line better than the old one that it was found by. Lines without a wait go.
fn count(baseline: &mut Baseline, runs: &[Vec<FoundWait>], places: &UserPlaces) {
    let mut seen = vec![Seen::default(); baseline.waits.len()];
    let lines = LineIndex::new(&baseline.waits);
    for waits in runs {
        let mut run: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for wait in waits {
            let Some(at) = lines.find(wait, places) else { continue };
            let sum = run.entry(at).or_default();
            *sum = (sum.0 + wait.count, sum.1.saturating_add(wait.blocked_ns));
        }
        for (at, (count, blocked_ns)) in run {
            seen[at].add(count, blocked_ns);
        }
    }
    for (line, seen) in baseline.waits.iter_mut().zip(seen) {
        line.count = seen.most;
        line.least = if seen.runs < baseline.header.runs { 0 } else { seen.least };
        line.time = seen.longest_ns;
    }
    baseline.waits.retain(|line| line.count > 0);
}

fn changes(old: Option<&Baseline>, new: &Baseline) -> Vec<BaselineChange> {
    let old_lines = old.map(|old| old.waits.as_slice()).unwrap_or_default();
    let [old_by_key, new_by_key] = [old_lines, &new.waits].map(LineIndex::new);
    let rules = new.rules();
    let mut changes = Vec::new();
    for line in &new.waits {
        let name = named(&line.key());
        changes.extend(match old_by_key.get(&line.key()) {
            None => Some(BaselineChange::Added(name)),
            Some(old) => change(&name, (old.count, line.count), (old.time, line.time), rules),
        });
    }
    let old_header = old.map_or(&new.header, |old| &old.header);
    let unexplained = (old_header.unexplained, new.header.unexplained);
    changes.extend(change("time that is not explained", (0, 0), unexplained, rules));
    for before in old.map(|old| old.phases.as_slice()).unwrap_or_default() {
        let after = new.phases.iter().find(|phase| phase.phase == before.phase);
        let name = format!("short waits of the phase {}", before.phase);
        let change =
            |after: &PhaseBudget| change(&name, (0, 0), (before.short, after.short), rules);
        changes.extend(after.and_then(change));
    }
    for line in old_lines.iter().filter(|old| new_by_key.get(&old.key()).is_none()) {
        let reason = match line.reason.as_str() {
            "" => String::new(),
            reason => format!(" (its reason was: {reason})"),
        };
        changes.push(BaselineChange::Removed(named(&line.key()) + &reason));
    }
    changes.sort_by_key(|change| match change {
        BaselineChange::Added(_) => 0,
        BaselineChange::Raised(_) => 1,
        BaselineChange::Lowered(_) => 2,
        BaselineChange::Removed(_) => 3,
    });
    changes
}

/// Returns what an update changed from old to new: other counts, and times of which the longer one would break a baseline with
/// the shorter one.
fn change(
    name: &str,
    counts: (u64, u64),
    times: (u64, u64),
    rules: BaselineRules,
) -> Option<BaselineChange> {
    let is_longer = times.1 > rules.allowed_ns(times.0);
    let is_shorter = times.0 > rules.allowed_ns(times.1);
    let mut parts = Vec::new();
    if counts.0 != counts.1 {
        parts.push(format!("{} times, before {}", counts.1, counts.0));
    }
    if is_longer || is_shorter {
        parts.push(format!("{}, before {}", time(times.1), time(times.0)));
    }
    let text = format!("{name}: {}", parts.join("; "));
    // What is raised in one way has to be agreed to, whatever else is lowered.
    if counts.1 > counts.0 || is_longer {
        Some(BaselineChange::Raised(text))
    } else {
        (!parts.is_empty()).then_some(BaselineChange::Lowered(text))
    }
}
