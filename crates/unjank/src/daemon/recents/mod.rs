//! Recent documents in the daemon: what programs add is written for GTK and KDE, what those write is taken in, and
//! `org.unjank.Recent1` answers.
//!
//! It shares no state with the settings, so it has threads and a connection of its own: one answers, one waits for disks.

mod caller;
mod hub;
pub mod places;
mod watch;
mod work;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use bus::server::Takeover;
use session::clock::Clock;
use session::host::identity::Host;
use session::recents::Places;
use store::disk::Disk;
use tokio::sync::{Notify, oneshot};

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
pub struct Service {
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

/// What the one who decides when the daemon ends wants to know.
#[derive(Debug, Default)]
struct State {
    busy: AtomicBool,
    /// A time without work began.
    left: Notify,
}

impl State {
    fn set_busy(&self, busy: bool) {
        if self.busy.swap(busy, Ordering::AcqRel) && !busy {
            self.left.notify_one();
        }
    }
}

impl Service {
    /// Starts to watch and to serve. Without a bus, or where another daemon has the name, it only watches; where another
    /// one watches, it only serves.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(options: Options) -> io::Result<Service> {
        let state = Arc::new(State::default());
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let serve = move || match hub::serve(options, &shared, stopped) {
            Ok(()) => shared.set_busy(false),
            Err(error) => {
                tracing::warn!(%error, "cannot serve recent documents");
                shared.set_busy(false);
            }
        };
        let thread = thread::Builder::new().name("recents".to_owned()).spawn(serve)?;
        Ok(Service { stop: Some(stop), thread: Some(thread), state })
    }

    /// Says whether nothing is to be written or answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.state.busy.load(Ordering::Acquire)
    }

    /// Waits until the service becomes idle, once for each time.
    pub async fn left(&self) {
        self.state.left.notified().await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has logged why, if it did not end well.
            let _ = thread.join();
        }
    }
}

/// Waits until a service has become idle, for ever without one.
pub(super) async fn left(service: Option<&Service>) {
    match service {
        Some(service) => service.left().await,
        None => std::future::pending().await,
    }
}
