//! `ab`: alternating, untraced runs of a command with and without a change, and the significance of the difference.
//!
//! Calls are skipped by a filter in the kernel that returns 0 in their place, so that the runs are as fast as the program would be without the calls.
//! If calls have to be intercepted (for their file, or a delay), they are in both kinds of runs, so that the overhead cancels out.

mod answer;
mod change;
mod copy;
mod json;
mod run;
pub mod statistics;
mod text;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sys::clock::Clock;

use self::answer::{InterceptedCall, RunVariant};
pub use self::change::{CallClass, CallDifference};
use self::copy::{CommandEnvironment, Copies};
pub use self::json::{SCHEMA, render as json};
use self::run::{CallPolicy, Output, RunResult, run};
pub use self::text::{render as text, sentence};
use report::figure::nanoseconds;
use report::samples::Samples;

/// The default number of pairs of runs.
const PAIRS: usize = 15;
/// The fewest pairs for a statistical result.
const FEWEST: usize = 5;
/// After this long no more than the fewest pairs are made where the user does not say how many.
const LONG: Duration = Duration::from_secs(60);

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AbError {
    /// The kernel has no such call; nothing ran.
    #[error("cannot find a call {0:?} on this architecture")]
    NoCall(String),
    /// The program would take 0 for an answer that it is not; nothing ran.
    #[error("cannot skip {name}: the program would take 0 for its result")]
    NotSkippable {
        /// The call.
        name: &'static str,
    },
    /// The call is not made on a descriptor, so that it has no path; nothing ran.
    #[error("cannot match the files of {name}: the call has no descriptor")]
    NoPath {
        /// The call.
        name: &'static str,
    },
    /// A pattern of files without calls; nothing ran.
    #[error("cannot restrict calls with --under: no call is skipped or delayed")]
    NothingUnder,
    /// Nothing is changed; nothing ran.
    #[error("cannot compare a command with itself")]
    NoChange,
    /// There is no command.
    #[error("cannot run a command: none is given")]
    NoCommand,
    /// The user's own files could lose data that the program takes to be durable; nothing ran.
    #[error("cannot skip syncs on your own files without --yes or --copy")]
    Unsafe,
    /// The command works on files outside the copy; it ran once, with every call made.
    #[error("cannot skip calls outside the copy: {}", list(.0))]
    Outside(Vec<(String, u64)>),
    /// No copy could be made; nothing ran.
    #[error("cannot copy {path:?}")]
    Copy {
        /// What was to be copied.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The kernel does not filter calls; nothing ran.
    #[error("cannot filter system calls")]
    Filter(#[source] io::Error),
    /// The program could not be started.
    #[error("cannot run {program:?}")]
    Start {
        /// The program.
        program: OsString,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program could not be waited for.
    #[error("cannot wait for the program")]
    Wait(#[source] io::Error),
    /// The user ended it before there was a pair of runs.
    #[error("interrupted")]
    Interrupted,
}

/// Writes files and how often they were met: `/a (2 calls), /b (1 call), and 3 more`.
fn list(files: &[(String, u64)]) -> String {
    let calls =
        |count: u64| if count == 1 { "1 call".to_owned() } else { format!("{count} calls") };
    let mut parts: Vec<String> =
        files.iter().take(3).map(|(file, count)| format!("{file} ({})", calls(*count))).collect();
    if files.len() > 3 {
        parts.push(format!("and {} more", files.len() - 3));
    }
    parts.join(", ")
}

/// Which of the user's files are at stake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DataRisk {
    /// None were given: a change that could lose something is refused.
    Nothing,
    /// Every run gets a fresh copy of these; calls on files outside of them are refused.
    Copies(Vec<PathBuf>),
    /// The user agreed: the command runs on the real files.
    Agreed,
}

/// The plan of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// All variables that it gets.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory that it runs in; absolute.
    pub directory: PathBuf,
    /// Where copies may be made if not beside the files.
    pub temp_dir: PathBuf,
    /// What differs.
    pub change: CallDifference,
    /// Which files are at stake.
    pub stake: DataRisk,
    /// How many pairs of runs; without a number, 15, or 5 of a command that takes long.
    pub pairs: Option<usize>,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The command, as it was given.
    pub command: Vec<OsString>,
    /// What differed.
    pub change: CallDifference,
    /// How many calls of a run matched, in the run that counted.
    pub matched: u64,
    /// The files of the matching calls in the run that counted, the most frequent first; none of calls without one.
    pub files: Vec<(Option<PathBuf>, u64)>,
    /// Wall times in nanoseconds without the change.
    pub without: Samples,
    /// Wall times in nanoseconds with it.
    pub with: Samples,
    /// For how long threads were held in a run with the change, in nanoseconds.
    pub held: Samples,
    /// How runs ended other than with 0: in words, and how many of them.
    pub failures: BTreeMap<String, usize>,
    /// Whether the runs with the change ended as those without.
    pub same_end: bool,
    /// The user ended it early.
    pub interrupted: bool,
    /// Whether the runs had copies of files to work on.
    pub in_copies: bool,
}

impl Comparison {
    /// Returns how likely chance made the difference.
    #[must_use]
    pub fn chance(&self) -> f64 {
        statistics::chance_of_no_difference(&self.with, &self.without)
    }

    /// Returns the ratio of the medians, with its interval.
    #[must_use]
    pub fn interval(&self) -> statistics::Interval {
        statistics::ratio_of_medians(&self.with, &self.without)
    }

    /// Returns whether the runs differ by more than chance.
    #[must_use]
    pub fn differs(&self) -> bool {
        let interval = self.interval();
        self.chance() < 0.05 && !(interval.low..=interval.high).contains(&1.0)
    }
}

/// Runs the command once to count, then in pairs; `progress` is called before each run, with its number and the total.
///
/// # Errors
///
/// There is nothing to show; [`AbError`] says what ran.
pub fn compare(
    plan: &ComparisonPlan,
    clock: &dyn Clock,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Comparison, AbError> {
    if plan.change.is_empty() {
        return Err(AbError::NoChange);
    }
    if plan.change.loses() && plan.stake == DataRisk::Nothing {
        return Err(AbError::Unsafe);
    }
    let bench = AlternatingRuns { plan, clock, stop };
    let pairs = plan.pairs.unwrap_or(PAIRS).max(1);
    progress("the first run, which counts", 0, pairs);
    let first = bench.first()?;
    let mut comparison = Comparison {
        command: plan.command.clone(),
        change: plan.change.clone(),
        matched: first.asked.matched,
        files: by_frequency(first.asked),
        without: Samples::default(),
        with: Samples::default(),
        held: Samples::default(),
        failures: BTreeMap::new(),
        same_end: true,
        interrupted: false,
        in_copies: matches!(plan.stake, DataRisk::Copies(_)),
    };
    let nothing_matches = plan.change.kinds().next().is_some() && comparison.matched == 0;
    if nothing_matches && plan.change.environment().is_empty() {
        return Ok(comparison);
    }
    let start = clock.monotonic();
    for number in 0..pairs {
        let long = clock.monotonic().saturating_sub(start) > LONG;
        if plan.pairs.is_none() && number >= FEWEST && long {
            break;
        }
        progress("pairs of runs", number, pairs);
        match bench.pair(number) {
            Ok((without, with)) => {
                comparison.without.push(nanoseconds(without.wall));
                comparison.with.push(nanoseconds(with.wall));
                comparison.held.push(nanoseconds(with.asked.held));
                comparison.same_end &= with.status == without.status;
                for status in [without.status, with.status].iter().filter(|s| !s.success()) {
                    *comparison.failures.entry(ending(*status)).or_default() += 1;
                }
            }
            Err(AbError::Interrupted) if !comparison.with.is_empty() => {
                comparison.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(comparison)
}

fn by_frequency(asked: InterceptedCall) -> Vec<(Option<PathBuf>, u64)> {
    let mut files: Vec<_> = asked.files.into_iter().collect();
    files.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    files
}

/// Writes how a program ended: `with status 1`, `by signal 9`.
fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with status {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "in a way that is not known".to_owned(),
    }
}

struct AlternatingRuns<'a> {
    plan: &'a ComparisonPlan,
    clock: &'a dyn Clock,
    stop: &'a AtomicBool,
}

impl AlternatingRuns<'_> {
    /// Makes the run that warms the caches, shows the command's output, and counts; every call is made.
    fn first(&self) -> Result<RunResult, AbError> {
        let copies = self.copies()?;
        let ran =
            self.run(copies.as_ref(), (RunVariant::Without, CallPolicy::Ask), Output::Shown)?;
        if let (Some(copies), true) = (&copies, self.plan.change.loses()) {
            let outside: Vec<(String, u64)> = by_frequency(ran.asked.clone())
                .into_iter()
                .filter(|(file, _)| !file.as_ref().is_some_and(|file| copies.hold(file)))
                .map(|(file, count)| {
                    let name = file.map(|file| file.display().to_string());
                    (name.unwrap_or_else(|| "everything".to_owned()), count)
                })
                .collect();
            if !outside.is_empty() {
                return Err(AbError::Outside(outside));
            }
        }
        Ok(ran)
    }

    /// Makes a run without and one with the change; which is first alternates.
    fn pair(&self, number: usize) -> Result<(RunResult, RunResult), AbError> {
        let how = if self.plan.change.asks() { CallPolicy::Ask } else { CallPolicy::Filter };
        let one = |arm| {
            let copies = self.copies()?;
            self.run(copies.as_ref(), (arm, how), Output::Dropped)
        };
        if number.is_multiple_of(2) {
            let without = one(RunVariant::Without)?;
            Ok((without, one(RunVariant::With)?))
        } else {
            let with = one(RunVariant::With)?;
            Ok((one(RunVariant::Without)?, with))
        }
    }

    fn copies(&self) -> Result<Option<Copies>, AbError> {
        match &self.plan.stake {
            DataRisk::Copies(originals) => {
                Copies::make(originals, Path::new(&self.plan.temp_dir)).map(Some)
            }
            DataRisk::Nothing | DataRisk::Agreed => Ok(None),
        }
    }

    fn run(
        &self,
        copies: Option<&Copies>,
        how: (RunVariant, CallPolicy),
        output: Output,
    ) -> Result<RunResult, AbError> {
        let way = CommandEnvironment {
            command: self.plan.command.clone(),
            environment: self.plan.environment.clone(),
            directory: self.plan.directory.clone(),
        };
        let way = copies.map_or_else(|| way.clone(), |copies| copies.lead(&way));
        run(&way, &self.plan.change, how, output, self.clock, self.stop)
    }
}

#[cfg(test)]
mod tests;
