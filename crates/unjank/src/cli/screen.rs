//! What the screen can show: its width, colour, and the progress of long work.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use probe::report::paint::Paint;

/// Lines are no longer than this however wide the screen is.
const WIDEST: usize = 110;
/// The width of a screen that does not say, and of a pipe without `COLUMNS`.
const USUAL: usize = 80;
/// Nothing is written for a narrower screen than this.
const NARROWEST: usize = 20;

/// Returns the number of columns to write in on stdout.
pub(crate) fn width() -> usize {
    columns(io::stdout())
}

/// Returns the number of columns to write in on stderr.
pub(crate) fn error_width() -> usize {
    columns(io::stderr())
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn columns(stream: impl AsFd) -> usize {
    let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
    // Only a terminal has a size; what it says counts before what a shell exported once.
    let screen = rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    let known = screen.filter(|&columns| columns > 0).or_else(asked);
    known.filter(|&columns| columns > 0).map_or(USUAL, |columns| columns.clamp(NARROWEST, WIDEST))
}

/// Returns whether stdout shows colours: a terminal, and no `NO_COLOR`.
pub(crate) fn paint() -> Paint {
    colours(&io::stdout())
}

/// Returns whether stderr shows colours.
pub(crate) fn error_paint() -> Paint {
    colours(&io::stderr())
}

/// Returns whether stdout is a terminal on which any place can be written.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
pub(crate) fn is_addressable() -> bool {
    let terminal = std::env::var_os("TERM").filter(|terminal| !terminal.is_empty());
    io::stdout().is_terminal() && terminal.is_some_and(|terminal| terminal != "dumb")
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn colours(stream: &impl IsTerminal) -> Paint {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if stream.is_terminal() && !refused { Paint::On } else { Paint::Off }
}

/// Work under way: a bar on a terminal, a line a step on a pipe; both on stderr.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shows nothing yet.
    pub(crate) fn start() -> Progress {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {msg}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr()).with_style(style)
        });
        Progress { bar }
    }

    /// Says what is being done now, and how much of the expected time lies behind.
    pub(crate) fn step(&self, text: &str, done: Duration, whole: Duration) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match &self.bar {
            Some(bar) => {
                bar.set_length(millis(whole).max(1));
                bar.set_position(millis(done));
                bar.set_message(text.to_owned());
                bar.tick();
            }
            // Nobody is left to be told when stderr is gone; the work goes on.
            None => drop(writeln!(io::stderr().lock(), "{text}")),
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
