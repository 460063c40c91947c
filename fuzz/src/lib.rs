//! Bodies of the fuzz targets: plain functions of bytes that panic when something is wrong.
//!
//! A test of the crate that a body is about replays it over `corpus/<target>`, so the gate runs it without a fuzzer.
//! `cargo +nightly fuzz run <target>` from the root of the repository looks for more.

// Tests of `session`, which replay a body, know it by this name.

pub mod bus;
pub mod catalogue;
pub mod check;
pub mod gvariant;
pub mod gvdb;
pub mod hangs;
pub mod host;
pub mod kernel;
pub mod listing;
pub mod recents;
pub mod stacks;
pub mod trace;
pub mod xbel;
