//! Recent documents in the daemon: what programs add is written for GTK and KDE, what those write is taken in, and
//! `org.unjank.Recent1` answers.
//!
//! It shares no state with the settings, so it has threads and a connection of its own: one answers, one waits for disks.

mod caller;
mod hub;
pub mod places;
mod quota;
pub mod settings;
mod watch;
mod work;

use std::io;
use std::sync::Arc;

use bus::server::Takeover;
use session::clock::Clock;
use session::host::identity::Host;
use session::recents::Places;
use store::disk::Disk;

use super::part::Part;

/// What the service depends on.
#[derive(Debug)]
pub struct Options {
    /// The bus, or the session bus that the environment names.
    pub address: Option<String>,
    /// Whether the name is taken over from an owner that lets it.
    pub takeover: Takeover,
    /// Where everything is.
    pub places: Places,
    /// How callers are told apart.
    pub host: Host,
    /// What is written to.
    pub disk: Arc<dyn Disk>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// The running service. Dropping it writes what is not written yet, and gives the name back.
#[derive(Debug)]
pub struct Service(Part);

impl Service {
    /// Starts to watch and to serve. Without a bus, or where another daemon has the name, it only watches; where another
    /// one watches, it only serves.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(options: Options) -> io::Result<Service> {
        let serve = move |state: &_, stopped| {
            if let Err(error) = hub::serve(options, state, stopped) {
                tracing::warn!(%error, "cannot serve recent documents");
            }
        };
        Part::start("recents", serve).map(Service)
    }

    /// Says whether nothing is to be written or answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// The thread that serves.
    pub(super) fn part(&self) -> &Part {
        &self.0
    }
}
