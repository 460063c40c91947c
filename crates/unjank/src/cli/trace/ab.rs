//! `unjank trace ab`: what would be if calls were free.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use check::ab::{self, AbError, CallDifference, Comparison, ComparisonPlan, DataRisk};
use clap::Args;
use report::provenance::Provenance;
use sys::clock::{Clock, SystemClock};

use crate::cli::progress::Progress;
use crate::cli::{interrupt, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// Measure how much faster a command would be without some calls.
///
/// Runs a command with and without a change, alternating, untraced.
///
/// A skipped call succeeds without being executed, so data that the program takes to be on the disk is
/// not. Therefore either --copy or --yes is required. The first run is not measured; it shows the output of the command and counts the calls.
/// Exits with 0 if the change makes a difference, 1 if none is shown, 2 on an error.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank trace ab --skip fsync,fdatasync --copy ~/.config -- kwriteconfig5 --key a b"
)]
pub(super) struct Ab {
    /// Number of pairs of runs; by default 15, or 5 for a slow command.
    #[arg(short = 'n', long = "pairs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pairs: Option<u16>,
    /// Skip these calls, which then succeed: fsync,fdatasync.
    #[arg(long, value_name = "CALLS", value_delimiter = ',')]
    skip: Vec<String>,
    /// Delay the beginning of a call: openat=50ms.
    #[arg(long, value_name = "CALL=TIME", value_parser = delay)]
    delay: Vec<(String, Duration)>,
    /// Only calls on files whose path matches: '*/.cache/*'.
    #[arg(long, value_name = "GLOB")]
    under: Option<OsString>,
    /// Set a variable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = clap::builder::OsStringValueParser::new())]
    env: Vec<OsString>,
    /// Run in a fresh temporary copy of this file or directory: paths in the command, in its variables and its
    /// current directory are changed to match.
    #[arg(long, value_name = "PATH")]
    copy: Vec<PathBuf>,
    /// Permit skipping calls on your own files.
    #[arg(long)]
    yes: bool,
    /// Print one JSON document (fields: docs/trace.md).
    #[arg(long)]
    json: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Ab {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let json = self.json;
        let plan = self.plan()?;
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let progress = Progress::start();
        let is_terminal = screen::is_error_terminal();
        let mut said = String::new();
        let compared = ab::compare(&plan, &clock, &stop, &mut |what, done, whole| {
            // A pipe gets each stage once, a terminal sees the bar move.
            if what == said && !is_terminal {
                return;
            }
            what.clone_into(&mut said);
            let count = |number: usize| Duration::from_millis(u64::try_from(number).unwrap_or(0));
            progress.step(what, count(done), count(whole));
        });
        progress.end();
        let comparison = compared.map_err(told)?;
        print(&comparison, json, &clock)?;
        if comparison.interrupted {
            return Err(Error::new(FailureCategory::User, "finish").because("interrupted"));
        }
        Ok(if comparison.differs() { Verdict::Yes } else { Verdict::No })
    }

    /// Turns the options into a plan; reads the environment.
    fn plan(self) -> Result<ComparisonPlan, Error> {
        let mut change = CallDifference::default().skip(&self.skip).map_err(told)?;
        for (call, by) in &self.delay {
            change = change.delay(call, *by).map_err(told)?;
        }
        if let Some(pattern) = self.under {
            change = change.under(pattern.into_encoded_bytes()).map_err(told)?;
        }
        for variable in &self.env {
            let (name, value) = assignment(variable)?;
            change = change.set(name, value);
        }
        let stake = match (self.yes, self.copy.is_empty()) {
            (true, _) => DataRisk::Agreed,
            (false, true) => DataRisk::Nothing,
            (false, false) => DataRisk::Copies(
                self.copy.iter().map(|path| canonical(path)).collect::<Result<_, _>>()?,
            ),
        };
        let directory = std::env::current_dir().map_err(|error| {
            Error::new(FailureCategory::Config, "find this directory").because(error)
        })?;
        Ok(ComparisonPlan {
            command: self.command,
            environment: std::env::vars_os().collect(),
            directory,
            temp_dir: std::env::temp_dir(),
            change,
            stake,
            pairs: self.pairs.map(usize::from),
        })
    }
}

fn print(comparison: &Comparison, json: bool, clock: &dyn Clock) -> Result<(), Error> {
    let output = if json {
        let provenance = Provenance::of_this_machine(crate::cli::command_line(), clock.now());
        ab::json(comparison, &provenance).map_err(|error| {
            Error::new(FailureCategory::Internal, "write the document").because(error)
        })?
    } else {
        ab::text(comparison, screen::width(), screen::paint())
    };
    let mut stdout = if json { screen::json() } else { screen::stdout() };
    stdout.write_all(output.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Turns what went wrong into what the user is told.
fn told(error: AbError) -> Error {
    let kind = match &error {
        AbError::Filter(_) | AbError::Wait(_) => FailureCategory::Config,
        _ => FailureCategory::User,
    };
    if matches!(error, AbError::Interrupted) {
        return Error::new(FailureCategory::User, "finish").because("interrupted");
    }
    let hints: &[&str] = match &error {
        AbError::Unsafe => &[
            "--copy PATH runs the command in a temporary copy of the files that it writes",
            "--yes agrees that a power cut meanwhile may lose what it writes",
        ],
        AbError::Outside(_) => {
            &["add --copy for these files too, or narrow down with --under, or agree with --yes"]
        }
        AbError::NoChange => {
            &["say what differs: --skip fsync,fdatasync, --delay CALL=50ms or --env NAME=VALUE"]
        }
        AbError::NotSkippable { .. } => &["--delay CALL=50ms shows what waits for it"],
        AbError::NothingUnder => &["add --skip or --delay"],
        _ => &[],
    };
    // The texts begin with "cannot", which the error's own text adds.
    let text = error.to_string();
    let what = text.strip_prefix("cannot ").unwrap_or(&text).to_owned();
    let mut told = Error::new(kind, what);
    if let Some(source) = std::error::Error::source(&error) {
        told = told.because_of(source);
    }
    hints.iter().fold(told, |told, hint| told.hint(*hint))
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| {
        Error::new(FailureCategory::User, format!("copy {}", path.display())).because(error)
    })
}

/// Reads `NAME=VALUE`.
fn assignment(text: &OsString) -> Result<(OsString, OsString), Error> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if at > 0 => {
            let part = |bytes| std::ffi::OsStr::from_bytes(bytes).to_owned();
            Ok((part(&bytes[..at]), part(&bytes[at + 1..])))
        }
        _ => Err(Error::new(FailureCategory::User, format!("set {text:?}"))
            .because("it does not have the form NAME=VALUE")),
    }
}

/// Reads `CALL=TIME`.
fn delay(text: &str) -> Result<(String, Duration), String> {
    let (call, by) = text.split_once('=').ok_or("say a call and a time: openat=50ms")?;
    Ok((call.to_owned(), ::report::duration::parse(by).map_err(|error| error.to_string())?))
}
