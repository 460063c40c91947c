//! `recent private`: nothing is remembered for a while.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::daemon::recents::places;
use clap::{Args, ValueEnum};
use session::clock::{Clock, SystemClock};
use session::recents::policy::Private as Mode;
use session::recents::{Places, Recents, Timestamp, forget, writer};

use super::preload;
use crate::cli::moment;
use crate::error::{Error, Kind, Verdict};

/// Remember nothing for a while.
///
/// Example: unjank recent private on --for 1h
///
/// Without a word it says whether private mode is on; the exit status is then 1 if it is off.
/// With a command behind -- that program, and what it starts, cannot write any list of recent documents.
#[derive(Debug, Args)]
pub(super) struct Private {
    /// Turn it on or off.
    state: Option<State>,
    /// How long it stays on: 1h, 30 min, 2 days. Without this until it is turned off.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// A program of which nothing is remembered, and its arguments.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["state", "time"])]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Nothing is remembered from now on.
    On,
    /// Documents are remembered again.
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
                let now = recents.now();
                let was_on = Mode::turn_off(recents.disk(), recents.places(), now)
                    .map_err(|error| Error::new(Kind::Config, "end private mode").because(error))?;
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
                mode.turn_on(recents.disk(), recents.places(), recents.now()).map_err(|error| {
                    Error::new(Kind::Config, "turn private mode on").because(error)
                })?;
                writeln!(out, "{}", says(mode))?;
                Ok(Verdict::Yes)
            }
            (Some(State::Off), Some(_)) => {
                Err(Error::new(Kind::User, "turn private mode off for a while")
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
fn guarded(places: &Places) -> Result<OsString, Error> {
    let mut lines = OsString::new();
    for path in forget::guarded(places) {
        if path.as_os_str().as_bytes().contains(&b'\n') {
            return Err(Error::new(Kind::Config, format!("guard {path:?}"))
                .hint("its path must have no line break"));
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
        Mode::Until(Timestamp(until)) => {
            let now = moment::local(SystemClock::start().now());
            let until = Duration::from_micros(until.unsigned_abs());
            let until = std::time::SystemTime::UNIX_EPOCH + until;
            format!("Private mode is on until {}.", moment::show(until, &now))
        }
    }
}

/// Reads a length of time as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    let span: Result<jiff::Span, _> = text.trim().parse();
    let now = moment::local(SystemClock::start().now());
    let time = span.ok().and_then(|span| span.to_duration(&now).ok());
    let time = time.and_then(|time| Duration::try_from(time).ok()).filter(|time| !time.is_zero());
    time.ok_or_else(|| "say how long: 1h, 30 min, 2 days".to_owned())
}
