//! What the programs of unjank are made of, as a library so that tests can run the daemon in their own process.

pub mod daemon;
