//! `recent private`: nothing is remembered for a while.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use daemon::recents::places;
use recents::policy::Private as Mode;
use recents::{RecentTime, Recents, RecentsFiles, writer};
use sys::clock::{Clock, SystemClock};

use super::preload;
use crate::cli::moment;
use crate::error::{Error, FailureCategory, Verdict};

/// Record nothing for a while.
///
/// Example: unjank recent private on --for 1h
///
/// Without an argument, it shows whether private mode is on; the exit status is then 1 if it
/// is off. With a command after --, that program and its children cannot write any list of recent documents.
#[derive(Debug, Args)]
pub(super) struct Private {
    /// Turn it on or off.
    state: Option<State>,
    /// Turn it off after this time: 1h, 30 min, 2 days.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// A program whose documents are not recorded, and its arguments.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["state", "time"])]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Record nothing from now on.
    On,
    /// Record documents again.
    Off,
}

impl Private {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?;
        if !self.command.is_empty() {
            let paths = guarded(recents.places())?;
            return Err(preload::run(&self.command, places::PRIVATE, &paths));
        }
        match (self.state, self.time) {
            (None, None) => status(&recents, out),
            (Some(State::Off), None) => {
                let (disk, clock) = (recents.disk(), recents.clock());
                let was_on = Mode::turn_off(disk, recents.places(), clock).map_err(|error| {
                    Error::new(FailureCategory::Config, "end private mode").because(error)
                })?;
                // What programs wrote into the shared lists meanwhile is known by its time, and goes.
                write(&mut recents);
                writeln!(
                    out,
                    "Private mode {} off.",
                    if was_on { "is now" } else { "was already" }
                )?;
                Ok(Verdict::Yes)
            }
            (Some(State::On) | None, time) => {
                // What is there by now stays; what a program adds to it later goes.
                write(&mut recents);
                let mode = match time {
                    Some(time) => Mode::Until(recents.now().after(time)),
                    None => Mode::WithoutEnd,
                };
                let done = mode.turn_on(recents.disk(), recents.places(), recents.clock());
                done.map_err(|error| {
                    Error::new(FailureCategory::Config, "turn private mode on").because(error)
                })?;
                writeln!(out, "{}", says(mode))?;
                Ok(Verdict::Yes)
            }
            (Some(State::Off), Some(_)) => {
                Err(Error::new(FailureCategory::User, "turn private mode off for a while")
                    .hint("unjank recent private off"))
            }
        }
    }
}

/// Takes in what other programs wrote, and out what they must not have; if that fails, the next round does it.
fn write(recents: &mut Recents) {
    if let Err(error) = writer::write(recents) {
        tracing::warn!(%error, "cannot write the lists that other programs read");
    }
}

/// Returns what a private program must not write, a path each line.
fn guarded(places: &RecentsFiles) -> Result<OsString, Error> {
    let mut lines = OsString::new();
    for path in forget::guarded(places) {
        if path.as_os_str().as_bytes().contains(&b'\n') {
            return Err(Error::new(FailureCategory::Config, format!("guard {path:?}"))
                .hint("move it to a path without line breaks"));
        }
        lines.push(path);
        lines.push("\n");
    }
    Ok(lines)
}

fn status(recents: &Recents, out: &mut dyn Write) -> Result<Verdict, Error> {
    match Mode::read(recents.disk(), recents.places(), recents.now()) {
        Some(mode) => {
            writeln!(out, "{}", says(mode))?;
            Ok(Verdict::Yes)
        }
        None => {
            writeln!(out, "Private mode is off.")?;
            Ok(Verdict::No)
        }
    }
}

/// Says until when nothing is remembered.
pub(super) fn says(mode: Mode) -> String {
    match mode {
        Mode::WithoutEnd => "Private mode is on until it is turned off.".to_owned(),
        Mode::Until(RecentTime(until)) => {
            let now = moment::local(SystemClock::start().now());
            let until = Duration::from_micros(until.unsigned_abs());
            let until = std::time::SystemTime::UNIX_EPOCH + until;
            format!("Private mode is on until {}.", report::moment::show(until, &now))
        }
    }
}

/// Reads how long private mode stays on.
fn duration(text: &str) -> Result<Duration, String> {
    match ::report::duration::parse(text) {
        Ok(Duration::ZERO) => Err("private mode needs a time that is longer than 0".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}
