//! What the programs of unjank are made of, as a library: each program links what it uses, and tests run the daemon in their own process.

pub mod cli;
pub mod daemon;
mod error;
