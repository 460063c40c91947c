//! A host command that runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A command that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// The connection that requested it, which alone may send it signals and is told of its end.
    pub(super) sender: String,
    /// Its process.
    pub(super) pidfd: Arc<OwnedFd>,
    /// Its number in the log.
    pub(super) id: u64,
    /// When it was requested.
    pub(super) began: Duration,
    /// The application that requested it.
    pub(super) application: Arc<str>,
    /// The number of its keeper, if it has one.
    pub(super) keeper: Option<u64>,
}
