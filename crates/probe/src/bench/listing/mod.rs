//! `bench listing`: a large directory into another process, beside the bare system calls and the programs a user would run.

mod client;
mod commands;
mod corpus;
mod figures;
mod raw;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use session::clock::Clock;
use session::listing::WorkerProgram;

pub use super::cold::Cold;
pub use client::{Keeps, Seen, client};
pub use commands::{Peer, PeerError};
pub use corpus::Corpus;
pub use figures::FIGURES;

use super::lab::{BenchError, Effort, Measuring};
use super::row::Row;
use super::run::{self, LISTING, Needs, Progress, Run, Setting};
use crate::report::provenance::Provenance;

/// The entries that the figures are promised for.
pub const ENTRIES: u32 = 500_000;
/// Growth is measured from this part of the entries on.
const PART: u32 = 5;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// The directory.
    pub large: Corpus,
    /// One with a fifth of the entries.
    pub small: Corpus,
    /// This program, which lists for us as a user would call it: `unjank ls`.
    pub program: PathBuf,
    /// Our worker: `unjank listing-worker`.
    pub worker: WorkerProgram,
    /// The client whose memory is measured, without the directory: a process that lists and says what it took.
    pub client: Vec<String>,
    /// More programs to compare with.
    pub peers: Vec<Peer>,
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

/// Makes the two directories in `parent`.
///
/// # Errors
///
/// The disk is full, or the user ended it; nothing is left.
pub fn corpora(
    parent: &std::path::Path,
    entries: u32,
    stop: &AtomicBool,
) -> Result<[Corpus; 2], BenchError> {
    let make = |count| Corpus::make(parent, count, stop);
    Ok([make(entries)?, make((entries / PART).max(1))?])
}

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
    let about = (setting, provenance, LISTING);
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
