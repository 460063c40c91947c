//! `bench recents`: remembering a document, beside what KDE's and GTK's programs do for it.

mod figures;
mod home;
mod peers;
mod watched;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use session::clock::Clock;

pub use figures::FIGURES;
pub use peers::{Display, Peer, PeerError, Programs};

use self::home::Home;
use super::lab::{BenchError, Effort};
use super::row::Row;
use super::run::{RECENTS, Run, Setting, chain};
use crate::report::figure::nanoseconds;
use crate::report::provenance::Provenance;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Where homes are made.
    pub dir: PathBuf,
    /// Where programs are looked for.
    pub program_path: OsString,
    /// This program, which adds as a user would call it: `unjank recent add`.
    pub program: PathBuf,
    /// KDE's and GTK's.
    pub programs: Programs,
    /// For GTK's.
    pub display: Option<Display>,
    /// More programs to compare with.
    pub peers: Vec<Peer>,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

/// One figure, or a few that are measured together.
pub struct Figure {
    /// The name by which `--only` chooses it.
    pub id: &'static str,
    /// What is measured.
    pub about: &'static str,
    /// How long it takes, in seconds.
    pub seconds: u32,
    /// Measures it.
    pub run: fn(&Lab<'_>) -> Result<Vec<Row>, BenchError>,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Chooses figures by name; without names all that can be measured.
#[must_use]
pub fn chosen(only: &[String], lab: &Lab<'_>) -> Vec<&'static Figure> {
    let wanted = |figure: &&Figure| match only {
        [] => figure.id != "peers" || !lab.peers.is_empty(),
        only => only.iter().any(|id| id == figure.id),
    };
    FIGURES.iter().filter(wanted).collect()
}

/// Measures `figures`; `progress` hears of each before it begins, with the seconds behind and the seconds in all.
pub fn measure(
    figures: &[&'static Figure],
    lab: &Lab<'_>,
    setting: Setting,
    provenance: Provenance,
    progress: &mut dyn FnMut(&str, u32, u32),
) -> Run {
    let (rows, missing) = (Vec::new(), Vec::new());
    let mut run = Run { rows, missing, interrupted: false, setting, provenance, terms: RECENTS };
    let whole = figures.iter().map(|figure| figure.seconds).sum();
    let mut done = 0;
    for figure in figures {
        progress(figure.about, done, whole);
        done += figure.seconds;
        match (figure.run)(lab) {
            Ok(rows) => run.rows.extend(rows),
            Err(_) if lab.stop.load(Ordering::Relaxed) => {
                run.interrupted = true;
                break;
            }
            Err(error) => run.missing.push((figure.id, chain(&error))),
        }
    }
    run
}

impl Lab<'_> {
    /// Runs `work` and returns how long it took, in nanoseconds.
    fn time<T>(&self, work: impl FnOnce() -> T) -> (f64, T) {
        let start = self.clock.monotonic();
        let result = work();
        (nanoseconds(self.clock.monotonic().saturating_sub(start)), result)
    }

    /// Says whether to go on.
    fn go_on(&self) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// Makes a home with so many documents in its lists.
    fn home(&self, entries: u32) -> Result<Home, BenchError> {
        self.go_on()?;
        let display = self.display.as_ref().map(|display| display.name.clone());
        Home::make(&self.dir, &self.program_path, display, entries)
    }

    /// Returns KDE's program, or why there is none.
    fn kde(&self) -> Result<&Path, BenchError> {
        self.programs.kde.as_deref().map_err(|why| cannot("recent_kde", why))
    }

    /// Returns GTK's program, or why there is none.
    fn gtk(&self) -> Result<&Path, BenchError> {
        if self.display.is_none() {
            return Err(cannot("recent_gtk", "Xvfb is not installed"));
        }
        self.programs.gtk.as_deref().map_err(|why| cannot("recent_gtk", why))
    }
}

/// Returns an error of a program's.
fn cannot(program: impl AsRef<Path>, cause: impl ToString) -> BenchError {
    let program = program.as_ref().display().to_string();
    BenchError::Peer { program, cause: cause.to_string() }
}
