//! `bench host`: a command on the host through our service and through another, and what that costs beside the command by itself.

mod figures;
mod service;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use session::clock::Clock;

pub use figures::FIGURES;
pub use service::Service;

use super::lab::{BenchError, Effort};
use super::row::Row;
use super::run::{HOST, Run, Setting, chain};
use crate::report::figure::nanoseconds;
use crate::report::provenance::Provenance;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Our service, on a bus of its own.
    pub ours: Service,
    /// The service to compare with, on another.
    pub peer: Service,
    /// This program, which runs host commands as a user would call it: `unjank host`.
    pub program: PathBuf,
    /// The client that comes with Flatpak, unmodified.
    pub spawn: PathBuf,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

/// One figure.
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
    let (rows, missing) = (Vec::new(), Vec::new());
    let mut run = Run { rows, missing, interrupted: false, setting, provenance, terms: HOST };
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
