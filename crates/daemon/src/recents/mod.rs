//! Recent documents in the daemon: additions are written to the lists of GTK and KDE programs, changes of those lists are imported, and
//! `org.unjank.Recent1` answers.
//!
//! It shares no state with the settings, so it has a connection and two threads of its own: one answers calls, one writes files.

mod caller;
mod owner;
pub mod places;
mod quota;
pub mod settings;
mod watch;
mod work;

use std::io;
use std::sync::Arc;

use bus::server::Takeover;
use host::identity::ProcessDirectory;
use recents::RecentsFiles;
use store::disk::Disk;
use sys::clock::Clock;

use super::service_thread::RunningService;

/// The options and dependencies of the service.
#[derive(Debug)]
pub struct RecentsServiceOptions {
    /// The address of the bus; `None` for the session bus of the environment.
    pub address: Option<String>,
    /// Whether the name is taken over from an owner that allows its replacement.
    pub takeover: Takeover,
    /// The files of recent documents.
    pub places: RecentsFiles,
    /// The directories by which callers are identified.
    pub host: ProcessDirectory,
    /// The file systems that are written to.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The running service. Dropping it writes pending changes and releases the bus name.
#[derive(Debug)]
pub struct RecentsService(RunningService);

impl RecentsService {
    /// Starts to watch and to serve. Without a bus, or if another daemon owns the name, it only watches; if another
    /// process watches, it only serves.
    ///
    /// # Errors
    ///
    /// The thread could not be started.
    pub fn start(options: RecentsServiceOptions) -> io::Result<RecentsService> {
        let serve = move |state: &_, stopped| {
            if let Err(error) = owner::serve(options, state, stopped) {
                tracing::warn!(%error, "cannot serve recent documents");
            }
        };
        RunningService::start("recents", serve).map(RecentsService)
    }

    /// Returns whether no write and no answer is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// The service thread.
    pub(super) fn part(&self) -> &RunningService {
        &self.0
    }
}
