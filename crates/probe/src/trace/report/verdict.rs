//! The finding in a sentence or two.

use super::schema::{CodePath, How, Report, Thread};
use super::spelling::tilde;
use crate::report::figure::{Quantity, frame_count};
use crate::report::grade::feeling;
use crate::report::paragraph::counted;

/// Writes a time of the report.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn time(ns: u64) -> String {
    Quantity::Time.show(ns as f64)
}

/// Writes a time in the report's frames, without the word.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn frames_of(ns: u64, report: &Report) -> String {
    frame_count(ns as f64, std::time::Duration::from_nanos(report.frame_ns))
}

impl Report {
    /// Returns the name of a call by its index; none is called `?`.
    #[must_use]
    pub fn call_name(&self, at: u32) -> &str {
        item(&self.calls, at).map_or("?", |call| &call.name)
    }

    /// Returns the thread whose waits a person feels.
    #[must_use]
    pub fn main(&self) -> Option<&Thread> {
        item(&self.threads, self.main_thread?)
    }

    /// Returns the name of the program that a process ran: the last component of its path.
    #[must_use]
    pub fn program(&self, process: u32) -> &str {
        let found = self.processes.iter().find(|known| known.id == process);
        let path = found.map_or("", |process| &process.executable);
        let name = path.rsplit('/').next().unwrap_or_default();
        let command = || self.command.first().and_then(|word| word.rsplit('/').next());
        if name.is_empty() { command().unwrap_or("the program") } else { name }
    }

    /// Writes what a target is called on a screen.
    #[must_use]
    pub fn target_name(&self, at: u32) -> Option<String> {
        let target = item(&self.targets, at)?;
        let home = self.home.as_deref();
        let mut name = tilde(&target.name, home);
        if let Some(to) = &target.to {
            name.push_str(" -> ");
            name.push_str(&tilde(to, home));
        }
        if let Some(request) = &target.request {
            name = format!("{request} of {name}");
        }
        Some(name)
    }

    /// Writes the frame to blame of a path, or that there is none.
    #[must_use]
    pub fn blamed(&self, path: &CodePath) -> Option<&str> {
        Some(&item(&self.frames, path.frame?)?.name)
    }

    /// Writes a path without what it worked on: `fdatasync by KConfig::sync()`.
    #[must_use]
    pub fn path_title(&self, path: &CodePath) -> String {
        let call = self.call_name(path.call);
        self.blamed(path).map_or_else(|| call.to_owned(), |frame| format!("{call} by {frame}"))
    }

    /// Writes what a path is: `fdatasync of ~/x by KConfig::sync`, with so many targets as there are.
    #[must_use]
    pub fn path_name(&self, path: &CodePath) -> String {
        let mut name = self.call_name(path.call).to_owned();
        let first = path.targets.first().and_then(|share| self.target_name(share.index));
        match (first, path.targets.len()) {
            (Some(target), 1) => name.push_str(&format!(" of {target}")),
            (Some(target), more) => name.push_str(&format!(" of {target} and {} more", more - 1)),
            (None, _) => (),
        }
        if let Some(frame) = self.blamed(path) {
            name.push_str(&format!(" by {frame}"));
        }
        name
    }
}

fn item<T>(all: &[T], at: u32) -> Option<&T> {
    all.get(usize::try_from(at).ok()?)
}

/// Says what a report found.
pub(super) fn verdict(report: &Report) -> String {
    let Some(main) = report.main() else {
        return "Nothing was seen: no process made a call that was watched.".to_owned();
    };
    let program = report.program(main.process);
    let stalls = &main.stalls;
    let worst = report.paths.iter().find(|path| path.how == How::Stall && path.on_main > 0);
    let mut sentence = match (stalls.missed, worst) {
        (0, _) if report.sums.slow == 0 => format!(
            "{program} never waited {} in one call; {} took {} in all.",
            time(report.watch.threshold_ns),
            counted(usize::try_from(report.sums.count).unwrap_or(usize::MAX), "call"),
            time(report.sums.wall_ns)
        ),
        (0, _) => format!(
            "The main thread of {program} never waited a whole frame; its longest stall took {} ({} frames).",
            time(stalls.longest_ns),
            frames_of(stalls.longest_ns, report)
        ),
        (missed, worst) => {
            let times = counted(usize::try_from(missed).unwrap_or(usize::MAX), "time");
            #[expect(clippy::cast_precision_loss, reason = "compared with a tenth of a second")]
            let feeling = feeling(stalls.longest_ns as f64);
            let feeling = feeling.map_or(String::new(), |word| format!(", {word}"));
            let mut sentence = format!(
                "The main thread of {program} stood still for more than a frame {times}, {} frames in all; the longest took {}{feeling}.",
                stalls.frames,
                time(stalls.longest_ns)
            );
            if let Some(path) = worst {
                sentence.push_str(&format!(
                    " Most of it: {} {}, {}.",
                    path.count,
                    report.path_name(path),
                    time(path.wall_ns)
                ));
            }
            sentence
        }
    };
    if report.watch.lost > 0 || report.slow_left_out > 0 && report.slow.is_empty() {
        sentence.push_str(&format!(" {} events were lost.", report.watch.lost));
    }
    sentence
}
