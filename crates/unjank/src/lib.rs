//! What the programs of unjank are made of, as a library: each program links what it uses, and tests run the daemon in their own process.

#[cfg(feature = "full")]
pub mod cli;
/// The client of host commands alone.
#[cfg(not(feature = "full"))]
#[path = "cli/small.rs"]
#[allow(dead_code, reason = "other commands use the rest of the files that all share")]
pub mod cli;
#[cfg_attr(
    not(feature = "full"),
    allow(dead_code, reason = "other commands use the rest of the errors")
)]
mod error;
