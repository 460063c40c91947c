//! `bench listing`: a large directory into another process, beside the bare system calls and the programs a user would run.

mod client;
mod commands;
mod corpus;
mod figures;
mod raw;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use listing::WorkerProgram;
use sys::clock::Clock;

pub use super::cold::Cold;
pub use client::{ClientView, Keeps, client};
pub use commands::{ListingPeer, PeerError};
pub use corpus::Corpus;
pub use figures::FIGURES;

use super::lab::{BenchError, Effort, Measuring};
use super::names::{BenchNames, LISTING, Needs};
use super::row::FigureRow;
use super::run;

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
    pub peers: Vec<ListingPeer>,
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

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = LISTING;

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
