//! `bench listing`: a large directory into another process, beside the bare system calls and the programs a user would run.

mod client;
mod commands;
mod corpus;
mod figures;
mod raw;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use session::clock::Clock;
use session::listing::WorkerProgram;

pub use super::cold::Cold;
pub use client::{Keeps, Seen, client};
pub use commands::{Peer, PeerError};
pub use corpus::Corpus;
pub use figures::FIGURES;

use super::lab::{BenchError, Effort};
use super::row::Row;
use super::run::{LISTING, Run, Setting, chain};
use crate::report::figure::nanoseconds;
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
pub struct Figure {
    /// The name by which `--only` chooses it.
    pub id: &'static str,
    /// What is measured.
    pub about: &'static str,
    /// How long it takes with 500,000 entries, in seconds.
    pub seconds: u32,
    /// Measures it.
    pub run: fn(&Lab<'_>) -> Result<Vec<Row>, BenchError>,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure").field("id", &self.id).finish_non_exhaustive()
    }
}

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

/// Chooses figures by name; all of them if `only` is empty.
#[must_use]
pub fn chosen(only: &[String]) -> Vec<&'static Figure> {
    let wanted = |figure: &&Figure| only.is_empty() || only.iter().any(|id| id == figure.id);
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
    let mut run = Run {
        rows: Vec::new(),
        missing: Vec::new(),
        interrupted: false,
        setting,
        provenance,
        terms: LISTING,
    };
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
}
