//! `bench host`: a command on the host through our service and through another, and what that costs beside the command by itself.

mod figures;
mod service;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use session::clock::Clock;

pub use figures::FIGURES;
pub use service::Service;

use super::lab::{BenchError, Effort, Measuring};
use super::row::Row;
use super::run::{self, HOST, Progress, Run, Setting};
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

/// One figure, or a few that are measured together.
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<Row>, BenchError>>;

/// Chooses figures by name; all of them if `only` is empty.
#[must_use]
pub fn chosen(only: &[String]) -> Vec<&'static Figure> {
    run::chosen(FIGURES, only, |_| true)
}

/// Measures `figures`.
pub fn measure(
    figures: &[&'static Figure],
    lab: &Lab<'_>,
    setting: Setting,
    provenance: Provenance,
    progress: Progress<'_>,
) -> Run {
    let about = (setting, provenance, HOST);
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
