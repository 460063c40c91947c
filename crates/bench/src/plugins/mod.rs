//! `bench plugins`: the index of plugins and applications, beside KDE's cache, Qt's own search and GLib.

mod figures;
mod kservice;
mod peer;
mod world;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use sys::clock::Clock;

pub use super::cold::Cold;
pub use figures::FIGURES;
pub use peer::{PeerError, PluginPeer};
pub use world::{APP, BenchTree};

use super::lab::{BenchError, Effort, Measuring, cannot};
use super::names::{BenchNames, Needs, PLUGINS};
use super::row::FigureRow;
use super::run;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Where indexes and caches are while we measure.
    pub world: BenchTree,
    /// This program.
    pub program: PathBuf,
    /// The small program that makes an index current, and asks one in a process of its own.
    pub index: PathBuf,
    /// More programs to compare with.
    pub peers: Vec<PluginPeer>,
    /// The application that is asked for, as `org.kde.dolphin`.
    pub app: String,
    /// The MIME type to query.
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
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<FigureRow>, BenchError>>;

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = PLUGINS;

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }

    fn has(&self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            Needs::Cold => self.cold == Cold::Measured,
            Needs::Peers => !self.peers.is_empty(),
        }
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
