//! `bench recents`: remembering a document, beside what KDE's and GTK's programs do for it.

mod figures;
mod home;
mod peers;
mod watched;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sys::clock::Clock;

pub use figures::FIGURES;
pub use peers::{Display, PeerError, Programs, RecentsPeer};

use self::home::Home;
use super::lab::{BenchError, Effort, Measuring, cannot};
use super::names::{BenchNames, Needs, RECENTS};
use super::row::FigureRow;
use super::run;

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
    pub peers: Vec<RecentsPeer>,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

/// One figure, or a few that are measured together.
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<FigureRow>, BenchError>>;

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = RECENTS;

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }

    fn has(&self, needs: Needs) -> bool {
        needs != Needs::Peers || !self.peers.is_empty()
    }
}

impl Lab<'_> {
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
