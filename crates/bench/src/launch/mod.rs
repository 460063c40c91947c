//! `bench launch`: how long a program takes to start while something works in the background, for every combination of scheduler, throttling and manner of the background.
//!
//! A *cell* is one combination. Cells are visited in turn, some launches a visit, so that what changes on the machine meanwhile changes all of them.
//! Each launch is a line of a file as soon as it is measured; a run that was cut short goes on where it ended.

pub mod background;
pub mod cell;
mod cgroups;
mod disturbance;
pub mod foreground;
pub mod ground;
pub mod guardian;
pub mod impact;
pub mod json;
pub mod matrix;
pub mod page;
pub mod sample;
mod scene;
pub mod summary;
mod teardown;
pub mod text;

use std::io;

use slowdisk::ModelError;

/// Why a measurement could not be made. What was measured before is in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A step failed for this reason.
    #[error("cannot {step}")]
    Step {
        /// What was to be done.
        step: String,
        /// Why it was not.
        source: io::Error,
    },
    /// There is no model disk.
    #[error("cannot make the disk")]
    Disk(#[from] ModelError),
    /// A program did not do its work.
    #[error("cannot run {program}: {said}")]
    Program {
        /// Its name.
        program: String,
        /// What it said.
        said: String,
    },
    /// A line of the samples' file is not ours.
    #[error("cannot read line {line} of {path}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The user ended it.
    #[error("cannot finish: interrupted")]
    Stopped,
}

/// Names the step at which an error came.
fn step(step: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchError {
    move |source| LaunchError::Step { step: step.into(), source }
}
