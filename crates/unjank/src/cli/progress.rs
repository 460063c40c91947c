//! The progress of long work: a bar on a terminal, a line for each step elsewhere.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::text::spelled;

use super::screen::{charset, is_error_terminal, stderr};

/// Work under way: a bar on a terminal, a line a step on a pipe; both on stderr.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shows nothing yet.
    pub(crate) fn start() -> Progress {
        let bar = is_error_terminal().then(|| {
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
                bar.set_message(spelled(text, charset()).into_owned());
                bar.tick();
            }
            // Nobody is left to be told when stderr is gone; the work goes on.
            None => drop(writeln!(stderr(), "{}", spelled(text, charset()))),
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
