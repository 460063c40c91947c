//! `bench plugins`: the index of plugins and applications, beside KDE's cache, Qt's own search and GLib.

mod figures;
mod kservice;
mod peer;
mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use session::clock::Clock;

pub use super::cold::Cold;
pub use figures::FIGURES;
pub use peer::{Peer, PeerError};
pub use world::{APP, World};

use super::lab::{BenchError, Effort, Measuring};
use super::row::Row;
use super::run::{self, Needs, PLUGINS, Progress, Run, Setting};
use crate::report::provenance::Provenance;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Where indexes and caches are while we measure.
    pub world: World,
    /// This program.
    pub program: PathBuf,
    /// The small program that makes an index current, and asks one in a process of its own.
    pub index: PathBuf,
    /// More programs to compare with.
    pub peers: Vec<Peer>,
    /// The application that is asked for, as `org.kde.dolphin`.
    pub app: String,
    /// The MIME type that is asked for.
    pub mime_type: String,
    /// Whether caches may be dropped between rounds.
    pub cold: Cold,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

/// One figure, or a few that are measured together.
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<Row>, BenchError>>;

/// Chooses figures by name; without names, all that can be measured here.
#[must_use]
pub fn chosen(only: &[String], lab: &Lab<'_>) -> Vec<&'static Figure> {
    run::chosen(FIGURES, only, |needs| match needs {
        Needs::Nothing => true,
        Needs::Cold => lab.cold == Cold::Measured,
        Needs::Peers => !lab.peers.is_empty(),
    })
}

/// Measures `figures`.
pub fn measure(
    figures: &[&'static Figure],
    lab: &Lab<'_>,
    setting: Setting,
    provenance: Provenance,
    progress: Progress<'_>,
) -> Run {
    let about = (setting, provenance, PLUGINS);
    run::measure(figures, |figure| (figure.run)(lab), lab.stop, about, progress)
}

impl Measuring for Lab<'_> {
    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}

impl Lab<'_> {
    /// Says so if caches may not be dropped.
    fn forget(&self) -> Result<(), BenchError> {
        if self.cold == Cold::LeftOut {
            return Err(BenchError::NoPlace("only root may drop the kernel's caches"));
        }
        super::cold::forget(self.world.path())
    }
}

/// Returns an error of a program's.
fn cannot(program: impl AsRef<Path>, cause: impl ToString) -> BenchError {
    let program = program.as_ref().display().to_string();
    BenchError::Peer { program, cause: cause.to_string() }
}
