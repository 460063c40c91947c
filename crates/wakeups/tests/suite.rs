//! The tests of the crate, one program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chains;
mod kernel;
mod properties;
