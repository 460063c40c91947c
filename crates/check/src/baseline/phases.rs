//! The phases of a program's life: what it says itself, else what its window and its event loop show.

use trace::report::TraceReport;
use trace::report::schema::{Slow, TraceMethod};

/// What the phases of a recording were taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseSource {
    /// The program's own marks.
    Marks,
    /// The moment at which a window was shown, and the waits of the event loop.
    Window,
    /// The waits of the event loop alone.
    EventLoop,
}

/// The phases of a recording, each from its beginning to that of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramPhases {
    /// What they were taken from.
    pub source: PhaseSource,
    begins: Vec<(u64, String)>,
}

/// The first phase, which each recording begins with.
const START: &str = "start";

impl ProgramPhases {
    /// Finds the phases of a recording in which a window was shown at `window_ns`, if one was.
    ///
    /// With marks, each begins the phase of its name. Otherwise `first-frame` begins when the window is shown, `idle` when
    /// the event loop has had nothing to do for `quiet_ns`, and `quit` after the last such wait.
    #[must_use]
    pub fn find(report: &TraceReport, quiet_ns: u64, window_ns: Option<u64>) -> ProgramPhases {
        let mut begins = vec![(0, START.to_owned())];
        if !report.marks.is_empty() {
            let marks = report.marks.iter().map(|mark| (mark.at_ns, mark.name.clone()));
            begins.extend(marks);
            begins.dedup_by(|next, before| next.1 == before.1);
            return ProgramPhases { source: PhaseSource::Marks, begins };
        }
        let is_quiet = |slow: &&Slow| {
            Some(slow.thread) == report.main_thread
                && slow.how == TraceMethod::Idle
                && slow.wall_ns >= quiet_ns
                && window_ns.is_none_or(|shown| slow.at_ns.saturating_add(slow.wall_ns) > shown)
        };
        let mut quiet = report.slow.iter().filter(is_quiet);
        begins.extend(window_ns.map(|at| (at, "first-frame".to_owned())));
        if let Some(first) = quiet.next() {
            let last = quiet.next_back().unwrap_or(first);
            begins.push((first.at_ns.max(window_ns.unwrap_or(0)), "idle".to_owned()));
            if !last.running {
                begins.push((last.at_ns.saturating_add(last.wall_ns), "quit".to_owned()));
            }
        }
        let source = if window_ns.is_some() { PhaseSource::Window } else { PhaseSource::EventLoop };
        ProgramPhases { source, begins }
    }

    /// Returns the phase at a moment.
    #[must_use]
    pub fn at(&self, at_ns: u64) -> &str {
        let found = self.begins.iter().rev().find(|(begin, _)| *begin <= at_ns);
        found.map_or(START, |(_, name)| name)
    }

    /// Returns the names of the phases, in the order in which they first came.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (_, name) in &self.begins {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }
}
