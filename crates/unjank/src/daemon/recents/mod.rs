//! Recent documents in the daemon.

pub mod places;
