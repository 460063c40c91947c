//! The daemon: one thread owns all state and handles a closed set of events, one thread owns the disk.

mod blame;
mod disk;
mod environment;
mod handover;
pub mod host;
pub mod index;
pub mod listing;
mod owner;
mod part;
pub mod program;
pub mod recents;
mod senders;
mod systemd;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bus::server::{Blame, Server, ServerError, Takeover};
use part::Part;
use session::clock::Clock;
use session::settings::engine::{Engine, Options, Places};
use store::disk::Disk;

pub use environment::{Environment, EnvironmentError};
pub use systemd::Notifier;

/// The name that dconf's clients call.
const DCONF: &str = "ca.desrt.dconf";

/// Everything that a daemon depends on.
#[derive(Debug)]
pub struct Config {
    /// The bus, or the session bus that the environment names.
    pub address: Option<String>,
    /// Where databases are.
    pub places: Places,
    /// How the engine works.
    pub options: Options,
    /// What the engine writes to.
    pub disk: Arc<dyn Disk>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The directory for the file that keeps two daemons of one bus from writing at once.
    pub lock_dir: PathBuf,
    /// Whether a name that has an owner is taken over, if that owner lets it.
    pub takeover: Takeover,
    /// Whether settings are served.
    pub settings: Settings,
    /// How listings are served, if they are.
    pub listings: Option<listing::Options>,
    /// How host commands are served, if they are.
    pub host: Option<host::Options>,
    /// How recent documents are served, if they are.
    pub recents: Option<recents::Options>,
    /// How the index of plugins and applications is kept current, if it is.
    pub index: Option<index::Options>,
    /// How long nothing must happen before the daemon ends; `None` is for ever.
    pub idle_exit: Option<Duration>,
    /// Whether calls are recorded for `dconf blame`.
    pub blame: Blame,
    /// Who started us and wants to know when we are ready.
    pub notifier: Notifier,
}

/// Whether a daemon is the settings service of its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// It is.
    Served,
    /// It has nothing to do with the bus.
    Left,
}

/// Why a daemon did not serve, or stopped serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// There is no runtime, thread or signal handler; nothing was served.
    #[error("cannot start")]
    NotStarted(#[source] io::Error),
    /// There is no bus or no name; nothing was served.
    #[error(transparent)]
    NotServing(#[from] ServerError),
    /// The disk thread ended. What was not acknowledged may be lost.
    #[error("the disk thread ended in the middle of its work")]
    DiskThreadGone,
}

/// Serves until a signal, the loss of the bus or of the name, or idleness ends it; everything accepted is stored then.
///
/// Blocks the calling thread, which owns all state meanwhile.
///
/// # Errors
///
/// The variant says whether anything was served.
pub fn run(config: Config) -> Result<(), DaemonError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DaemonError::NotStarted)?;
    match config.settings {
        Settings::Served => runtime.block_on(serve(config)),
        Settings::Left => runtime.block_on(serve_others(config)),
    }
}

/// Starts to serve listings, if they are to be; after signals are caught, so that the socket never outlives us.
fn start_listings(config: &mut Config) -> Result<Option<listing::Service>, DaemonError> {
    let listings = config.listings.take().map(listing::Service::start);
    listings.transpose().map_err(DaemonError::NotStarted)
}

/// Starts to keep the index of plugins and applications current, if it is to be.
fn start_index(config: &mut Config) -> Result<Option<index::Service>, DaemonError> {
    let index = config.index.take().map(index::Service::start);
    index.transpose().map_err(DaemonError::NotStarted)
}

/// Starts to watch and serve recent documents, if they are to be.
fn start_recents(config: &mut Config) -> Result<Option<recents::Service>, DaemonError> {
    let recents = config.recents.take().map(recents::Service::start);
    recents.transpose().map_err(DaemonError::NotStarted)
}

/// Serves listings, host commands and recent documents alone, until a signal or until nobody has wanted any for long enough.
async fn serve_others(mut config: Config) -> Result<(), DaemonError> {
    let mut signals = owner::Signals::listen().map_err(DaemonError::NotStarted)?;
    let listings = start_listings(&mut config)?;
    let host = config.host.take().map(host::Service::start).transpose()?;
    let recents = start_recents(&mut config)?;
    let _index = start_index(&mut config)?;
    config.notifier.ready();
    let is_idle = || {
        listings.as_ref().is_none_or(listing::Service::is_idle)
            && host.as_ref().is_none_or(host::Service::is_idle)
            && recents.as_ref().is_none_or(recents::Service::is_idle)
    };
    let why = loop {
        let idle = async {
            match config.idle_exit {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            name = signals.next() => break name,
            () = listing::left(listings.as_ref()) => {}
            () = Part::left(host.as_ref().map(host::Service::part)) => {}
            () = Part::left(recents.as_ref().map(recents::Service::part)) => {}
            () = Part::ended(host.as_ref().map(host::Service::part)) => break "the name of host commands is lost",
            () = idle, if is_idle() => if is_idle() { break "idle" },
        }
    };
    tracing::info!(why, "ending");
    config.notifier.stopping();
    Ok(())
}

async fn serve(mut config: Config) -> Result<(), DaemonError> {
    let mut server = Server::connect(config.address.as_deref(), config.blame).await?;
    let signals = owner::Signals::listen().map_err(DaemonError::NotStarted)?;
    let listings = start_listings(&mut config)?;
    let host = config.host.take().map(host::Service::start).transpose()?;
    let recents = start_recents(&mut config)?;
    let _index = start_index(&mut config)?;
    let lock = handover::Lock::new(&config.lock_dir, server.bus_id());
    let disk = disk::DiskThread::start(lock).map_err(DaemonError::NotStarted)?;
    let engine = Engine::new(
        config.places,
        config.options,
        server.unique_name().to_owned(),
        config.disk,
        config.clock.clone(),
    );
    server.own(DCONF, config.takeover).await?;
    tracing::info!(name = DCONF, as_ = server.unique_name(), "serving");
    config.notifier.ready();
    let owner = owner::Owner {
        watch: watch::Watch::new(),
        listings,
        host,
        recents,
        server,
        engine,
        disk,
        signals,
        senders: senders::Senders::default(),
        blame: blame::Record::new(config.blame),
        clock: config.clock,
        idle_exit: config.idle_exit,
        notifier: config.notifier,
    };
    owner.serve(DCONF).await
}
