//! `unjank trace CMD` and `unjank trace attach PID`: a program is recorded, and its report goes where the user wants it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use trace::backend::{
    self, ProgramStdout, ProgramToStart, RecordingLimit, RecordingOutcome, RemainingProcesses,
    TraceTarget,
};
use trace::recording::Exit;
use trace::report::TraceReport;

use super::options::{Output, TraceArguments, told};
use super::signals;
use crate::cli::interrupt;
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// A program that was recorded.
pub(super) struct Recorded {
    /// What was found.
    pub(super) report: TraceReport,
    /// How it ended, if it has.
    pub(super) exit: Option<Exit>,
    /// What keeps it alive if it has not.
    rest: Option<RemainingProcesses>,
}

/// Returns when a recording ends: with the command, or with all that it started.
pub(super) fn limit(follow: bool) -> RecordingLimit {
    if follow { RecordingLimit::AllEnded } else { RecordingLimit::ProgramEnded }
}

/// Runs a command and records it until it has ended, or until all that it started has.
pub(super) fn record(
    how: &TraceArguments,
    command: Vec<OsString>,
    stdout: ProgramStdout,
    until: RecordingLimit,
) -> Result<Recorded, Error> {
    let command = ProgramToStart { arguments: command, stdout, ..ProgramToStart::default() };
    let watched = signals::flag();
    let mut options = how.options(TraceTarget::Run(command));
    options.until = until;
    let outcome = backend::run(&options, &watched.stop);
    watched.recorded.store(true, Ordering::Relaxed);
    let RecordingOutcome { recording, process, rest } = outcome.map_err(|error| told(&error))?;
    let exit = recording.processes.get(&process).and_then(|process| process.exit);
    Ok(Recorded { report: how.report_of(&recording), exit, rest })
}

impl Recorded {
    /// Waits for the program if it goes on, and returns how it ended.
    fn end(self) -> Option<Exit> {
        let Some(rest) = self.rest else { return self.exit };
        let who = if self.exit.is_some() {
            "What the program started goes on, and with it"
        } else {
            "The program goes on, and with it"
        };
        let _ = writeln!(screen::stderr(), "\n{who} unjank, which has to answer its calls.");
        rest.wait().or(self.exit)
    }
}

/// Runs a command, writes its report, and ends as the command did.
pub(super) fn run(
    how: &TraceArguments,
    output: &Output,
    command: Vec<OsString>,
    until: RecordingLimit,
) -> ExitCode {
    let done = output.open().and_then(|opened| {
        let recorded = record(how, command, ProgramStdout::Ours, until)?;
        // The program's end stands even if the report cannot be written, but the error is what the user has to know.
        let written = opened.write(&recorded.report);
        let exit = recorded.end();
        written?;
        // Without its status a program that failed would count as one that did not.
        let exit = exit.ok_or_else(|| {
            Error::new(FailureCategory::Busy, "tell how the program ended")
                .because("its status was lost; is SIGCHLD ignored?")
        })?;
        Ok(status(exit))
    });
    done.unwrap_or_else(|error| error.report())
}

/// Returns the exit status for how a program ended: its own, or 128 and the signal's number as a shell has it.
fn status(exit: Exit) -> ExitCode {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
    };
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

/// Record a running program.
///
/// After the time, or with Ctrl-C, the program is detached and
/// continues. Exits with 0 after detaching, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace attach --for 10s -o report.html 4711")]
pub(super) struct Attach {
    /// How long to record.
    #[arg(long = "for", value_name = "TIME", value_parser = ::report::duration::parse)]
    length: Option<Duration>,
    #[command(flatten)]
    how: TraceArguments,
    #[command(flatten)]
    output: Output,
    /// The process ID.
    #[arg(value_name = "PID", value_parser = number)]
    process: u32,
}

fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "a process has a number; `pidof NAME` finds it".to_owned())
}

impl Attach {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let opened = self.output.open()?;
        let stop = interrupt::flag();
        if let Some(length) = self.length {
            let refused = |error| {
                Error::new(FailureCategory::Busy, format!("trace process {}", self.process))
                    .because(error)
            };
            after(length, &stop).map_err(refused)?;
        }
        let options = self.how.options(TraceTarget::Attach(self.process));
        let outcome = backend::run(&options, &stop).map_err(|error| told(&error))?;
        if outcome.recording.processes.is_empty() {
            return Err(Error::new(
                FailureCategory::User,
                format!("find process {}", self.process),
            )
            .because("it ended at once"));
        }
        opened.write(&self.how.report_of(&outcome.recording))?;
        Ok(Verdict::Yes)
    }
}

/// Sets a flag after a time.
fn after(length: Duration, flag: &Arc<AtomicBool>) -> io::Result<()> {
    let flag = Arc::clone(flag);
    sys::thread::spawn("length", move || {
        let (_sender, never) = mpsc::channel::<()>();
        // Nobody sends: it ends when the time is up.
        let _ = never.recv_timeout(length);
        flag.store(true, Ordering::Relaxed);
    })?;
    Ok(())
}
