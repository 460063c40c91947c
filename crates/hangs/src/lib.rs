//! `hangs`: a flight recorder for the interface threads of a desktop session, and the answers from what it recorded.
//!
//! Begin with [`recorder::record`], which follows the interactive programs of a user and stores their hangs,
//! [`store::read`], which reads them, and [`history::HangHistory`], which selects, sums up and compares.
//! README.md has an example; `docs/hangs.md` of the repository says what a hang is.

#[doc(hidden)] // For tests and fuzz targets.
pub mod codec;
pub mod compare;
pub mod excluded;
pub mod history;
pub mod json;
pub mod kernel;
pub mod model;
pub mod page;
pub mod recorder;
pub mod remedy;
pub mod store;
pub mod summary;
pub mod text;
mod unseen;
pub mod watch;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
