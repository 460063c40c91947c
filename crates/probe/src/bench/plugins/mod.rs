//! `bench plugins`: the index of plugins and applications, beside KDE's cache, Qt's own search and GLib.

mod figures;
mod kservice;
mod peer;
mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use session::clock::Clock;

pub use super::cold::Cold;
pub use figures::FIGURES;
pub use peer::{Peer, PeerError};
pub use world::{APP, World};

use super::lab::{BenchError, Effort};
use super::row::Row;
use super::run::{PLUGINS, Run, Setting, chain};
use crate::report::figure::nanoseconds;
use crate::report::provenance::Provenance;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Where indexes and caches are while we measure.
    pub world: World,
    /// This program.
    pub program: PathBuf,
    /// The arguments with which it asks in a process of its own, before what is asked.
    pub client: Vec<String>,
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
pub struct Figure {
    /// The name by which `--only` chooses it.
    pub id: &'static str,
    /// What is measured.
    pub about: &'static str,
    /// How long it takes, in seconds.
    pub seconds: u32,
    /// Whether it needs the right to drop caches, peers of the user, or nothing.
    pub needs: Needs,
    /// Measures it.
    pub run: fn(&Lab<'_>) -> Result<Vec<Row>, BenchError>,
}

/// What a figure needs that not everybody has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The right to drop the kernel's caches.
    Cold,
    /// A program that the user names.
    Peers,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Chooses figures by name; without names, all that can be measured here.
#[must_use]
pub fn chosen(only: &[String], lab: &Lab<'_>) -> Vec<&'static Figure> {
    let can = |figure: &Figure| match figure.needs {
        Needs::Nothing => true,
        Needs::Cold => lab.cold == Cold::Measured,
        Needs::Peers => !lab.peers.is_empty(),
    };
    let wanted = |figure: &&Figure| match only {
        [] => can(figure),
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
    let mut run = Run { rows, missing, interrupted: false, setting, provenance, terms: PLUGINS };
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
