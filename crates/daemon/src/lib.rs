//! The daemon: one thread owns all state and handles a closed set of events, one thread owns the disk.
//!
//! Begin with [`Config`] and [`run`]; [`DaemonEnvironment`] makes the one of the variables of the session. README.md has an example.

mod blame;
mod disk;
mod environment;
mod handover;
pub mod host;
pub mod index;
pub mod listing;
mod owner;
pub mod program;
pub mod recents;
mod senders;
mod service_thread;
mod systemd;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bus::server::{CallRecording, Server, ServerError, Takeover};
use service_thread::RunningService;
use settings::engine::{DatabaseDirectories, Engine, EngineOptions};
use store::disk::Disk;
use sys::clock::Clock;

pub use environment::{DaemonEnvironment, EnvironmentError};
pub use systemd::Notifier;

/// The name that dconf's clients call.
const DCONF: &str = "ca.desrt.dconf";

/// Everything that a daemon depends on.
#[derive(Debug)]
pub struct Config {
    /// The address of the bus; `None` for the session bus of the environment.
    pub address: Option<String>,
    /// The directories of databases.
    pub places: DatabaseDirectories,
    /// How the engine works.
    pub options: EngineOptions,
    /// The file systems that the engine writes to.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The directory for the file that keeps two daemons of one bus from writing at once.
    pub lock_dir: PathBuf,
    /// Whether a name is taken over from an owner that allows its replacement.
    pub takeover: Takeover,
    /// Whether settings are served.
    pub settings: SettingsRole,
    /// How listings are served, if they are.
    pub listings: Option<listing::ListingServiceOptions>,
    /// How host commands are served, if they are.
    pub host: Option<host::HostServiceOptions>,
    /// How recent documents are served, if they are.
    pub recents: Option<recents::RecentsServiceOptions>,
    /// How the index of plugins and applications is kept current, if it is.
    pub index: Option<index::IndexServiceOptions>,
    /// The idle time after which the daemon ends; `None` for never.
    pub idle_exit: Option<Duration>,
    /// Whether calls are recorded for `dconf blame`.
    pub blame: CallRecording,
    /// The service manager that is told when the daemon is ready.
    pub notifier: Notifier,
}

/// Whether a daemon is the settings service of its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsRole {
    /// It owns the name and serves settings.
    Served,
    /// It does not use the bus.
    Left,
}

/// Why a daemon did not serve, or stopped serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// A runtime, thread or signal handler could not be made; nothing was served.
    #[error("cannot start")]
    NotStarted(#[source] io::Error),
    /// There is no bus or no name; nothing was served.
    #[error(transparent)]
    NotServing(#[from] ServerError),
    /// The disk thread ended. What was not acknowledged may be lost.
    #[error("the disk thread ended in the middle of its work")]
    DiskThreadGone,
}

/// Serves until a signal, the loss of the bus or of the name, or idleness ends it; at that point everything accepted is stored.
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
        SettingsRole::Served => runtime.block_on(serve(config)),
        SettingsRole::Left => runtime.block_on(serve_others(config)),
    }
}

/// Starts to serve listings if configured. Signals are caught before, so that the socket never outlives the daemon.
fn start_listings(config: &mut Config) -> Result<Option<listing::ListingService>, DaemonError> {
    let listings = config.listings.take().map(listing::ListingService::start);
    listings.transpose().map_err(DaemonError::NotStarted)
}

/// Starts to keep the index of plugins and applications current, if configured.
fn start_index(config: &mut Config) -> Result<Option<index::IndexService>, DaemonError> {
    let index = config.index.take().map(index::IndexService::start);
    index.transpose().map_err(DaemonError::NotStarted)
}

/// Starts to watch and serve recent documents, if configured.
fn start_recents(config: &mut Config) -> Result<Option<recents::RecentsService>, DaemonError> {
    let recents = config.recents.take().map(recents::RecentsService::start);
    recents.transpose().map_err(DaemonError::NotStarted)
}

/// Serves listings, host commands and recent documents without settings, until a signal or idleness ends it.
async fn serve_others(mut config: Config) -> Result<(), DaemonError> {
    let mut signals = owner::Signals::listen().map_err(DaemonError::NotStarted)?;
    let listings = start_listings(&mut config)?;
    let host = config.host.take().map(host::HostService::start).transpose()?;
    let recents = start_recents(&mut config)?;
    let _index = start_index(&mut config)?;
    config.notifier.ready();
    let is_idle = || {
        listings.as_ref().is_none_or(listing::ListingService::is_idle)
            && host.as_ref().is_none_or(host::HostService::is_idle)
            && recents.as_ref().is_none_or(recents::RecentsService::is_idle)
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
            () = RunningService::left(host.as_ref().map(host::HostService::part)) => {}
            () = RunningService::left(recents.as_ref().map(recents::RecentsService::part)) => {}
            () = RunningService::ended(host.as_ref().map(host::HostService::part)) => break "the name of host commands is lost",
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
    let host = config.host.take().map(host::HostService::start).transpose()?;
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
        held: None,
        blame: blame::Record::new(config.blame),
        clock: config.clock,
        idle_exit: config.idle_exit,
        notifier: config.notifier,
    };
    owner.serve(DCONF).await
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
