//! The events that the owner of all state of host commands handles, one after the other.

use std::io;

use bus::server::flatpak::Incoming;
use host::command::StartError;
use host::keeper::KeeperReport;

use super::callers::Identity;
use super::sandboxes::Places;
use super::start::Started;

/// An event of the service.
#[derive(Debug)]
pub(super) enum Event {
    /// Something arrived on the bus.
    Incoming(Incoming),
    /// A caller was identified by its files.
    Identified {
        /// The number of the job.
        job: u64,
        /// The identity.
        identity: Identity,
    },
    /// A command was started, or could not be.
    Started {
        /// The number of the job.
        job: u64,
        /// What came of it.
        result: Result<Started, StartError>,
    },
    /// The service manager has returned the environment of the session; `None` without a service manager.
    Environment(io::Result<Option<Vec<String>>>),
    /// A command has ended and can be reaped.
    Ended(u32),
    /// A keeper has sent a report; `None` when its connection is closed.
    Kept(u64, Option<KeeperReport>),
    /// A keeper has ended and can be reaped.
    KeeperEnded(u64),
    /// The files for sandboxes were made, or could not be.
    Session(io::Result<Places>),
    /// The service is to end.
    Stop,
    /// A deadline has passed.
    Tick,
}
