//! What benchmarks and doctor measure in: private sessions with a bus, databases to begin with, and the place on the disk.
//!
//! Begin with [`BenchSession`](session::BenchSession), [`keys::changesets`] and [`MeasuredDirectory`](place::MeasuredDirectory).
//! README.md has an example.

pub mod keys;
pub mod place;
pub mod session;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
