//! `unjank trace check`: whether a program keeps to its limits and its baseline, as an exit status for a test run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use check::baseline::{self, Baseline, BaselineJudgement, BaselineRules, UserPlaces};
use check::limits::{CheckOutcome, CheckRule};
use check::output::{self, CheckDocument};
use check::result_file::{OtherFile, ResultFile, ResultFileError, open_for_all};
use check::window::{WindowWatcher, XDisplay};
use clap::Args;
use trace::backend::ProgramStdout;
use trace::recording::Exit;
use trace::report::spelling::shown_command;
use trace::report::{TraceReport, data};

use super::options::{Output, TraceArguments, read};
use super::replaced_file::ReplacedFile;
use super::run::{limit, record};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

impl From<ResultFileError> for Error {
    fn from(error: ResultFileError) -> Error {
        let what = format!("write {}", error.path.display());
        // Its text alone: a result whose reader is gone is missing, which closed output is not.
        let told = Error::new(FailureCategory::User, what).because_of(&error.source);
        if error.is_needed { told.hint("name another file for the result") } else { told }
    }
}

/// Check a command, or an existing report, against limits and a baseline of allowed waits.
///
/// Exits with 0 if all limits are kept, 1 if one is broken, 2 on an error or if the command fails.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank trace check --max-main-block 50ms --max fsync=0 -- ./tests/start",
    override_usage = "unjank trace check LIMITS… [OPTIONS] -- CMD…\n       unjank trace check LIMITS… FILE.html"
)]
pub(super) struct Check {
    /// The longest permitted stall of the main thread: 50ms.
    #[arg(long, value_name = "TIME", value_parser = CheckRule::main_block)]
    max_main_block: Option<CheckRule>,
    /// The permitted number of frames that the main thread misses.
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
    /// The permitted number of calls: fsync=0.
    #[arg(long, value_name = "CALL=N", value_parser = CheckRule::count)]
    max: Vec<CheckRule>,
    /// The permitted total time of a call: fdatasync=20ms.
    #[arg(long, value_name = "CALL=TIME", value_parser = CheckRule::wall)]
    max_wall: Vec<CheckRule>,
    /// The permitted number of failures of a call: openat=10.
    #[arg(long, value_name = "CALL=N", value_parser = CheckRule::errors)]
    max_errors: Vec<CheckRule>,
    /// The waits that the main thread may make; a new one breaks the check.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Make the baseline of what the runs show, or adapt it; reasons in it stay. Checks nothing.
    #[arg(long, requires = "baseline")]
    update_baseline: bool,
    /// The number of runs for --update-baseline.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// The further runs in which a finding that chance may have made has to come again.
    #[arg(long, value_name = "N", default_value_t = 2)]
    confirm: u8,
    /// Write JUnit XML; a file of an earlier check is removed on an error, too.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write SARIF 2.1.0; a file of an earlier check is removed on an error, too.
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Print annotations for a code host on stdout, and the rest on stderr.
    #[arg(long, value_name = "HOST", conflicts_with = "json", value_parser = ["github", "gitlab"])]
    annotations: Option<String>,
    #[command(flatten)]
    how: TraceArguments,
    /// Write the report of the command, one HTML page.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Replace the report if it exists.
    #[arg(long)]
    force: bool,
    /// Print one JSON document (fields: docs/trace-check.md).
    #[arg(long)]
    json: bool,
    /// A command after --, or a report.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD|FILE")]
    target: Vec<OsString>,
}

/// The files that a check writes.
#[derive(Debug)]
struct CheckResults {
    junit: Option<ResultFile>,
    sarif: Option<ResultFile>,
}

impl Check {
    pub(super) fn run(mut self) -> Result<Verdict, Error> {
        // First of all: no verdict of an earlier check stays, whatever keeps this one from giving one.
        let results = self.results()?;
        self.refuse_beside_update()?;
        let rules: Vec<CheckRule> = self
            .max_main_block
            .take()
            .into_iter()
            .chain(self.max_frames.map(CheckRule::FramesMissed))
            .chain(std::mem::take(&mut self.max))
            .chain(std::mem::take(&mut self.max_wall))
            .chain(std::mem::take(&mut self.max_errors))
            .collect();
        if rules.is_empty() && self.baseline.is_none() {
            return Err(Error::new(FailureCategory::User, "check: no limit is given").hint(
                "give one, for example --max-main-block 50ms or --max fsync=0, or a --baseline",
            ));
        }
        self.how.keeps_all = self.baseline.is_some();
        if let (true, Some(path)) = (self.update_baseline, self.baseline.clone()) {
            return self.update(&path);
        }
        let baseline = self.baseline.as_deref().map(read_baseline).transpose()?;
        let missing = || {
            Error::new(FailureCategory::User, "read the baseline: there is no such file")
                .hint("make it with --update-baseline")
        };
        let baseline = baseline.map(|found| found.ok_or_else(missing)).transpose()?;
        let windows = self.windows();
        let shown = |report: &TraceReport| windows.as_ref()?.shown_in(report);
        let report = self.report()?;
        let outcomes: Vec<CheckOutcome> = rules.iter().map(|rule| rule.check(&report)).collect();
        let judgement = match &baseline {
            None => BaselineJudgement::default(),
            Some(baseline) => {
                let first = baseline::judge(
                    &report,
                    baseline,
                    &UserPlaces::from_variables(variable),
                    shown(&report),
                );
                let again = if self.is_command() { usize::from(self.confirm) } else { 0 };
                baseline::confirm(first, again, || {
                    let report = self.record_once()?;
                    Ok::<_, Error>(baseline::judge(
                        &report,
                        baseline,
                        &UserPlaces::from_variables(variable),
                        shown(&report),
                    ))
                })?
            }
        };
        self.print(&report, &judgement, &outcomes, results)
    }

    /// Prepares the files of the verdict, which must be none of the others.
    fn results(&self) -> Result<CheckResults, Error> {
        let mut others: Vec<OtherFile<'_>> = Vec::new();
        others.extend(self.baseline.as_deref().map(|path| ("--baseline", path)));
        others.extend(self.output.as_deref().map(|path| ("--output", path)));
        let target = self.target.first().map(Path::new);
        // A bare name of a program is searched in PATH.
        let is_file = |path: &&Path| !self.is_command() || path.components().count() > 1;
        others.extend(target.filter(is_file).map(|path| ("what is checked", path)));
        let sarif = self.sarif.as_deref();
        let beside_junit: Vec<_> =
            others.iter().copied().chain(sarif.map(|path| ("--sarif", path))).collect();
        let prepare = |path: Option<&Path>, others: &[OtherFile<'_>]| {
            path.map(|path| ResultFile::prepare(path, open_for_all, others)).transpose()
        };
        let junit = prepare(self.junit.as_deref(), &beside_junit)?;
        let sarif = prepare(sarif, &others)?;
        Ok(CheckResults { junit, sarif })
    }

    /// Refuses what an update would not do: a limit that nothing is held against, a file that gets no verdict.
    fn refuse_beside_update(&self) -> Result<(), Error> {
        let given = [
            ("--max-main-block", self.max_main_block.is_some()),
            ("--max-frames", self.max_frames.is_some()),
            ("--max", !self.max.is_empty()),
            ("--max-wall", !self.max_wall.is_empty()),
            ("--max-errors", !self.max_errors.is_empty()),
            ("--junit", self.junit.is_some()),
            ("--sarif", self.sarif.is_some()),
            ("--annotations", self.annotations.is_some()),
            ("--json", self.json),
        ];
        let first = given.iter().find(|(_, is_given)| *is_given && self.update_baseline);
        first.map_or(Ok(()), |(option, _)| {
            let what = format!("use {option} with --update-baseline, which checks nothing");
            Err(Error::new(FailureCategory::User, what)
                .hint(format!("update the baseline first, then check with {option}")))
        })
    }

    /// Runs the command several times and replaces the baseline by what they showed.
    fn update(mut self, path: &Path) -> Result<Verdict, Error> {
        let cannot = || Error::new(FailureCategory::User, format!("update {}", path.display()));
        read_baseline(path)?;
        let replaced = ReplacedFile::prepare(path).map_err(|error| cannot().because(error))?;
        let windows = self.windows();
        let shown = |report: &TraceReport| windows.as_ref()?.shown_in(report);
        let first = self.report()?;
        let mut runs = vec![(shown(&first), first)];
        while self.is_command() && runs.len() < usize::from(self.runs) {
            let next = self.record_once()?;
            runs.push((shown(&next), next));
        }
        // Others may have replaced it during the runs: another check, or a person who wrote a reason.
        let lock = replaced.lock();
        let old = read_baseline(path)?;
        let rules = old.as_ref().map_or_else(BaselineRules::default, Baseline::rules);
        let updated =
            baseline::update(&runs, old.as_ref(), &UserPlaces::from_variables(variable), rules)
                .map_err(|error| cannot().because(error))?;
        let text = updated.baseline.render();
        store::publish::publish(&*store::disk::real(), path, text.as_bytes())
            .map_err(|error| cannot().because(error))?;
        drop(lock);
        screen::tell(screen::stdout(), &output::changes(&updated.changes, screen::paint()))?;
        Ok(Verdict::Yes)
    }

    fn print(
        &self,
        report: &TraceReport,
        judgement: &BaselineJudgement,
        outcomes: &[CheckOutcome],
        results: CheckResults,
    ) -> Result<Verdict, Error> {
        let baseline = self.baseline.as_ref().map(|path| path.display().to_string());
        let command = shown_command(&report.command);
        let root = std::env::current_dir().map_err(|error| {
            Error::new(FailureCategory::Config, "find this directory").because(error)
        })?;
        let document = CheckDocument {
            program: report.main().map_or("", |main| report.program(main.process)),
            command: &command,
            baseline: baseline.as_deref(),
            root: &root,
            began_ms: report.began_ms,
            length_ns: report.length_ns,
            verdict: &report.verdict,
            version: env!("CARGO_PKG_VERSION"),
            judgement,
            outcomes,
        };
        let internal = |error: serde_json::Error| {
            Error::new(FailureCategory::Internal, "write the document").because(error)
        };
        let data = match self.annotations.as_deref() {
            Some("github") => {
                let commands = output::github(&document);
                // A command begins its line, whatever the program has left on it.
                let begin = if commands.is_empty() || !self.is_command() { "" } else { "\n" };
                format!("{begin}{commands}")
            }
            Some(_) => output::gitlab(&document).map_err(internal)?,
            None if self.json => output::json(&document).map_err(internal)?,
            None => String::new(),
        };
        if let Some(file) = results.junit {
            file.write(&output::junit(&document))?;
        }
        if let Some(file) = results.sarif {
            file.write(&output::sarif(&document).map_err(internal)?)?;
        }
        if !self.json {
            let is_data = self.annotations.is_some();
            let out = if is_data { screen::stderr() } else { screen::stdout() };
            screen::tell(out, &output::text(&document, screen::paint()))?;
        }
        screen::tell(screen::json(), &data)?;
        Ok(if document.is_kept() { Verdict::Yes } else { Verdict::No })
    }

    /// Watches the display of the command for its window, if there is one.
    fn windows(&self) -> Option<WindowWatcher> {
        let display = self.baseline.as_ref().and_then(|_| XDisplay::from_variables(variable))?;
        // A display that cannot be watched leaves out a phase; a baseline that has it says so.
        WindowWatcher::start(&display).ok().filter(|_| self.is_command())
    }

    /// Returns whether the target is a command, which can be repeated.
    fn is_command(&self) -> bool {
        let [file] = &self.target[..] else { return true };
        is_after_dashes() || !data::is_report(Path::new(file))
    }

    /// Reads the report, or runs the command and writes its page.
    fn report(&mut self) -> Result<TraceReport, Error> {
        if !self.is_command() {
            return read(Path::new(&self.target[0]));
        }
        let opened = self.output.take().map(|path| Output::page(path, self.force).open());
        let opened = opened.transpose()?;
        let report = self.record_once()?;
        if let Some(opened) = opened {
            opened.write_quietly(&report)?;
        }
        Ok(report)
    }

    /// Runs the command, which has to end with 0.
    fn record_once(&self) -> Result<TraceReport, Error> {
        let name = self.target.first().cloned().unwrap_or_default();
        // Who reads one document on stdout cannot tell what the program wrote before it.
        let is_document = self.json || self.annotations.as_deref() == Some("gitlab");
        let stdout = if is_document { ProgramStdout::Stderr } else { ProgramStdout::Ours };
        let recorded = record(&self.how, self.target.clone(), stdout, limit(false))?;
        let cannot = || Error::new(FailureCategory::User, format!("check {}", name.display()));
        match recorded.exit {
            Some(Exit::Code(0)) => Ok(recorded.report),
            Some(Exit::Code(code)) => {
                Err(cannot().because(format!("it failed with status {code}")))
            }
            Some(Exit::Signal(signal)) => {
                Err(cannot().because(format!("it was ended by signal {signal}")))
            }
            None => Err(cannot().because("interrupted")),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Reads a baseline; none if there is no file.
fn read_baseline(path: &Path) -> Result<Option<Baseline>, Error> {
    Baseline::open(path).map_err(|error| {
        let cannot = Error::new(FailureCategory::User, format!("read {}", path.display()));
        cannot.because(error).hint("make a new one with --update-baseline in another file")
    })
}

/// Says whether what was typed has `--` in it: what follows is a command then, whatever it is called.
fn is_after_dashes() -> bool {
    std::env::args_os().any(|argument| argument == OsStr::new("--"))
}
