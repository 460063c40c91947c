//! `unjank trace check`: whether a program keeps to its limits, as an exit status for a test run.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use clap::Args;
use probe::report::paint::Tone;
use probe::trace::check::{Outcome, Rule};
use probe::trace::recording::Exit;
use probe::trace::report::Report;

use super::options::{How, Output, read};
use super::run::record;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, Kind, Verdict};

/// Check a command, or a report that exists, against limits.
///
/// Exits with 0 if all are kept, 1 if one is broken, 2 on an error or if the command fails.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank trace check --max-main-block 50ms --max fsync=0 -- ./tests/start",
    override_usage = "unjank trace check LIMITS… [OPTIONS] -- CMD…\n       unjank trace check LIMITS… FILE.html"
)]
pub(super) struct Check {
    /// The main thread stands still no longer than this: 50ms.
    #[arg(long, value_name = "TIME", value_parser = main_block)]
    max_main_block: Option<Rule>,
    /// The main thread misses no more frames than this.
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
    /// A call is made at most so often: fsync=0.
    #[arg(long, value_name = "CALL=N", value_parser = count)]
    max: Vec<Rule>,
    /// A call takes at most so long in all: fdatasync=20ms.
    #[arg(long, value_name = "CALL=TIME", value_parser = wall)]
    max_wall: Vec<Rule>,
    /// A call fails at most so often: openat=10.
    #[arg(long, value_name = "CALL=N", value_parser = errors)]
    max_errors: Vec<Rule>,
    #[command(flatten)]
    how: How,
    /// Write the report of the command, one HTML page.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<std::path::PathBuf>,
    /// Replace the report if it exists.
    #[arg(long)]
    force: bool,
    /// Print one JSON document (docs/trace.md has its fields).
    #[arg(long)]
    json: bool,
    /// A command after --, or a report.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD|FILE")]
    target: Vec<OsString>,
}

fn main_block(text: &str) -> Result<Rule, String> {
    Rule::main_block(text).map_err(|error| error.to_string())
}

fn count(text: &str) -> Result<Rule, String> {
    Rule::count(text).map_err(|error| error.to_string())
}

fn wall(text: &str) -> Result<Rule, String> {
    Rule::wall(text).map_err(|error| error.to_string())
}

fn errors(text: &str) -> Result<Rule, String> {
    Rule::errors(text).map_err(|error| error.to_string())
}

#[derive(serde::Serialize)]
struct Document<'a> {
    schema: &'static str,
    kept: bool,
    outcomes: &'a [Outcome],
    verdict: &'a str,
}

impl Check {
    pub(super) fn run(mut self) -> Result<Verdict, Error> {
        let rules: Vec<Rule> = self
            .max_main_block
            .take()
            .into_iter()
            .chain(self.max_frames.map(Rule::FramesMissed))
            .chain(std::mem::take(&mut self.max))
            .chain(std::mem::take(&mut self.max_wall))
            .chain(std::mem::take(&mut self.max_errors))
            .collect();
        if rules.is_empty() {
            return Err(Error::new(Kind::User, "check without a limit")
                .hint("--max-main-block 50ms, --max fsync=0"));
        }
        let report = self.report()?;
        let outcomes: Vec<Outcome> = rules.iter().map(|rule| rule.check(&report)).collect();
        let kept = outcomes.iter().all(|outcome| outcome.kept);
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        if self.json {
            let document = Document {
                schema: "unjank.trace.check/1",
                kept,
                outcomes: &outcomes,
                verdict: &report.verdict,
            };
            let text = serde_json::to_string_pretty(&document)
                .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?;
            writeln!(stdout, "{text}")?;
        } else {
            let paint = screen::paint();
            for outcome in &outcomes {
                let (word, tone) = if outcome.kept {
                    ("● kept  ", Tone::Good)
                } else {
                    ("▲ broken", Tone::Bad)
                };
                let text = screen::sentence(&outcome.text);
                writeln!(stdout, "{}  {text}", paint.set(tone, word))?;
            }
            if !kept {
                sayln!(stdout, "{}", report.verdict)?;
            }
        }
        stdout.flush()?;
        Ok(if kept { Verdict::Yes } else { Verdict::No })
    }

    /// Reads the report, or runs the command.
    fn report(&mut self) -> Result<Report, Error> {
        if let ([file], false) = (&self.target[..], is_after_dashes())
            && is_report(Path::new(file))
        {
            return read(Path::new(file));
        }
        let opened = self.output.take().map(|path| Output::page(path, self.force).open());
        let opened = opened.transpose()?;
        let name = self.target.first().cloned().unwrap_or_default();
        let recorded = record(&self.how, std::mem::take(&mut self.target))?;
        if let Some(opened) = opened {
            opened.write_quietly(&recorded.report)?;
        }
        let cannot = || Error::new(Kind::User, format!("check {}", name.display()));
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

/// Says whether what was typed has `--` in it: what follows is a command then, whatever it is called.
fn is_after_dashes() -> bool {
    std::env::args_os().any(|argument| argument == OsStr::new("--"))
}

/// Says whether a file begins as a page or as JSON does, which no program does.
fn is_report(path: &Path) -> bool {
    let mut first = [0_u8; 1];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && matches!(first, [b'<' | b'{'])
}
