//! `unjank bus expect`: whether traffic is as rules want it, as an exit status for a test run.

mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capture::expect::{CheckProblem, ExpectReport, ExpectRules, SCHEMA, junit};
use capture::model::{Ending, read};
use check::result_file::ResultFile;
use clap::Args;
use report::paint::Tone;
use report::text::{Charset, visible};
use serde::Serialize;

use super::buses::Buses;
use super::input::open;
use super::output;
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// Check the traffic of a command, or a recording, against rules.
///
/// Exits with 0 if all rules are kept, 1 if one is broken, 2 if they cannot be judged: an error, a command that failed or
/// took too long, a recording that is truncated or holds chosen messages only. The result is printed in any case.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank bus expect -f rules.txt -- ./tests/start",
    override_usage = "unjank bus expect -f RULES [OPTIONS] -- CMD…\n       unjank bus expect -f RULES [OPTIONS] FILE"
)]
pub(super) struct Expect {
    /// The file of rules, one on each line (docs/bus-expect.md): "called org.a.B.C within 200ms", "no errors".
    #[arg(short = 'f', long = "rules", value_name = "RULES")]
    rule_file: PathBuf,
    /// Print one JSON document (fields: docs/bus-expect.md); the output of the command goes to stderr.
    #[arg(long)]
    json: bool,
    /// Also write a JUnit report for continuous integration; replaces the file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// End the command after this time; 0 means no limit.
    #[arg(long, value_name = "TIME", value_parser = ::report::duration::parse, default_value = "10m")]
    time_limit: Duration,
    #[command(flatten)]
    buses: Buses,
    /// A recording; - for stdin.
    #[arg(value_name = "FILE", required_unless_present = "command")]
    file: Option<PathBuf>,
    /// The command whose traffic is checked.
    #[arg(last = true, value_name = "CMD", conflicts_with = "file")]
    command: Vec<OsString>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a ExpectReport,
}

impl Expect {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        // First of all: no verdict of an earlier check stays, whatever keeps this one from giving one. What cannot be
        // written is told before anything is run for it.
        let mut others = vec![("the file of rules", &*self.rule_file)];
        others.extend(self.file.as_deref().map(|path| ("the recording", path)));
        // A bare name of a program is searched in PATH.
        let program = self.command.first().map(Path::new);
        let program = program.filter(|path| path.components().count() > 1);
        others.extend(program.map(|path| ("the command", path)));
        let prepare = |path: &Path| ResultFile::prepare(path, output::replace, &others);
        let junit_file = self.junit.as_deref().map(prepare).transpose()?;
        let cannot =
            || Error::new(FailureCategory::User, format!("read {}", self.rule_file.display()));
        let text =
            std::fs::read_to_string(&self.rule_file).map_err(|error| cannot().because(error))?;
        let rules: ExpectRules = text.parse().map_err(|error| cannot().because(error))?;
        let report = match &self.file {
            Some(file) => {
                let capture = open(file)?;
                let model = read(capture.events(), |_, _, _| Ending::Continue);
                ExpectReport::of(&rules, &model, self.buses.matched())
            }
            None => {
                let printing =
                    if self.json { watch::Printing::Apart } else { watch::Printing::Beside };
                watch::run(&rules, &self.buses, &self.command, self.time_limit, printing)?
            }
        };
        if let Some(file) = junit_file {
            let name = self.rule_file.file_name().unwrap_or_default().to_string_lossy();
            file.write(&junit(&report, &name))?;
        }
        screen::verdict_stays(self.print(&report))?;
        if report.faults.is_empty() {
            return Ok(if report.kept { Verdict::Yes } else { Verdict::No });
        }
        Err(self.not_checked(&report))
    }

    fn print(&self, report: &ExpectReport) -> Result<(), Error> {
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        if self.json {
            let text = serde_json::to_string_pretty(&Document { schema: SCHEMA, report }).map_err(
                |error| Error::new(FailureCategory::Internal, "write the document").because(error),
            )?;
            writeln!(stdout, "{text}")?;
        } else {
            let paint = screen::paint();
            if !report.matched.is_empty() {
                let matched = report.matched.join(" or ");
                let matched = visible(&matched, Charset::Unicode);
                writeln!(stdout, "Only messages that match {matched} were checked.")?;
            }
            for outcome in &report.outcomes {
                let (word, tone) = if outcome.kept {
                    ("● kept  ", Tone::Good)
                } else {
                    ("▲ broken", Tone::Bad)
                };
                let said = format!("{}: {}", outcome.rule, outcome.found);
                let said = visible(&said, Charset::Unicode);
                writeln!(stdout, "{}  {said}", paint.set(tone, word))?;
                for example in &outcome.examples {
                    writeln!(stdout, "            {}", visible(example, Charset::Unicode))?;
                }
            }
        }
        stdout.flush()?;
        Ok(())
    }

    /// Says why what was found is no verdict.
    fn not_checked(&self, report: &ExpectReport) -> Error {
        let what = match (&self.file, self.command.first()) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(program)) => program.display().to_string(),
            (None, None) => String::new(),
        };
        let causes: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        let mut error =
            Error::new(FailureCategory::User, format!("check {what}")).because(causes.join("; "));
        for fault in &report.faults {
            error = match fault {
                CheckProblem::Damaged { .. } => {
                    error.hint("record with unjank bus record or busctl capture --size=0, which do not truncate messages")
                }
                CheckProblem::Lost { .. } => error.hint(
                    "add \"no lost\" or \"at most N lost\" to the rules",
                ),
                CheckProblem::Matched { .. } => error.hint(
                    "record without --match; or check what was recorded with the same --match, in the same order",
                ),
                CheckProblem::TimeLimit { .. } => error.hint("raise the limit with --time-limit"),
                _ => error,
            };
        }
        error
    }
}
