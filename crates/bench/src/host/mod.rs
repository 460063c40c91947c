//! `bench host`: a command on the host through our service and through another, and what that costs beside the command by itself.

mod bare;
mod figures;
mod service;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use sys::clock::Clock;

pub use bare::Bare;
pub use figures::FIGURES;
pub use service::HostServiceFixture;

use super::lab::{BenchError, Effort, Measuring};
use super::names::{BenchNames, HOST};
use super::row::FigureRow;
use super::run;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Our service, on a bus of its own.
    pub ours: HostServiceFixture,
    /// The service to compare with, on another.
    pub peer: HostServiceFixture,
    /// This program, which runs host commands as a user would call it: `unjank host`.
    pub program: PathBuf,
    /// The same as a small program of its own.
    pub small: PathBuf,
    /// The least client and service; none where there is no C compiler.
    pub bare: Option<Bare>,
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
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<FigureRow>, BenchError>>;

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = HOST;

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}
