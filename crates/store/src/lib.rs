//! Bytes that survive: files replaced as a whole, batches, journals and streams, and the disk they are proved on.
//!
//! Begin with [`publish`](publish::publish), which replaces a file, [`Journal`](journal::Journal), which appends records, and
//! [`Disk`](disk::Disk), of which [`disk::real`] is the machine's and [`SimDisk`](sim::SimDisk) a simulated one.
//! README.md has an example.

pub mod commit;
pub mod disk;
pub mod generation;
pub mod journal;
pub mod publish;
pub mod sim;
pub mod snapshots;
pub mod stream;
pub mod trust;
pub mod turns;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
