//! Host commands: the service that sandboxed programs ask to run something outside.
//!
//! It shares no state with the settings, so it has a thread and a connection of its own; whatever a command does, no
//! setting waits for it.

mod callers;
mod commands;
mod event;
mod journal;
mod keeper_reports;
mod keepers;
mod limit;
mod owner;
mod policy;
mod quota;
mod running;
mod sandboxes;
mod start;
mod starters;
mod variables;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bus::server::flatpak::{NAME, Server};
use bus::server::{ServerError, Takeover};
use host::environment::SessionEnvironment;
use host::identity::ProcessDirectory;
use host::keeper;
use host::policy::ExposurePlaces;
use store::disk::Disk;
use sys::clock::{Clock, SystemClock};
use tokio::sync::oneshot;

pub use quota::Bounds;

use super::DaemonError;
use super::service_thread::{RunningService, State};

/// The options and dependencies of the service.
#[derive(Debug)]
pub struct HostServiceOptions {
    /// The bus, or the session bus that the environment names.
    pub address: Option<String>,
    /// Whether the name is taken over from an owner that permits it.
    pub takeover: Takeover,
    /// The policy.
    pub policy: PathBuf,
    /// The directories in which other writers of the policy are searched.
    pub exposure: ExposurePlaces,
    /// The log.
    pub log: PathBuf,
    /// The directory of the copies of the host's files, for `flatpak run`.
    pub session: PathBuf,
    /// The runtime directory of the user, where the service manager listens.
    pub runtime: PathBuf,
    /// The directories by which callers are identified.
    pub host: ProcessDirectory,
    /// The environment of this process, which is used without a service manager.
    pub environment: SessionEnvironment,
    /// The limits that follow from the limit of descriptors.
    pub bounds: Bounds,
    /// This program, which keeps commands in processes of its own.
    pub keeper: keeper::KeeperProgram,
    /// The disk of the log.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The running service. Dropping it releases the name; commands whose callers requested that continue.
#[derive(Debug)]
pub struct HostService {
    part: RunningService,
    policy: RefCell<policy::Followed>,
}

impl HostService {
    /// Acquires the name and starts to serve.
    ///
    /// # Errors
    ///
    /// There is no bus, or another process owns the name; nothing is served.
    pub fn start(options: HostServiceOptions) -> Result<HostService, DaemonError> {
        // The parent may have left descriptors open that no command may inherit.
        sys::launch::close_on_exec(3).map_err(DaemonError::NotStarted)?;
        let policy = policy::Followed::new(options.policy.clone());
        let mut policy = policy.warning(options.exposure.clone());
        // Parties that can circumvent the policy are logged at the start.
        policy.now();
        let policy = RefCell::new(policy);
        let (tell, told) = std::sync::mpsc::channel();
        let serve = move |state: &_, stopped| serve(options, state, stopped, &tell);
        let part = RunningService::start("host", serve).map_err(DaemonError::NotStarted)?;
        let gone = || DaemonError::NotStarted(io::ErrorKind::BrokenPipe.into());
        told.recv().map_err(|_| gone())??;
        Ok(HostService { part, policy })
    }

    /// Returns whether no command runs, no daemon of a command is in this service's control group, and no policy limits anyone:
    /// the bus may start another program for the next call, which would not enforce the policy.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.part.is_idle() && !has_company() && !self.policy.borrow_mut().limits_anybody()
    }

    /// The thread that serves: it is idle while no command runs, and ends when the name or the bus is lost.
    pub(super) fn part(&self) -> &RunningService {
        &self.part
    }
}

fn serve(
    options: HostServiceOptions,
    state: &Arc<State>,
    stopped: oneshot::Receiver<()>,
    tell: &std::sync::mpsc::Sender<Result<(), DaemonError>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = tell.send(Err(DaemonError::NotStarted(error)));
            return;
        }
    };
    runtime.block_on(async {
        let served = async {
            let mut server = Server::connect(options.address.as_deref()).await?;
            server.own(options.takeover).await?;
            Ok::<Server, ServerError>(server)
        };
        match served.await {
            Ok(server) => {
                tracing::info!(name = NAME, as_ = server.unique_name(), "serving host commands");
                let hub = owner::ServiceOwner::new(server, options, Arc::clone(state));
                let _ = tell.send(Ok(()));
                hub.run(stopped).await;
            }
            Err(error) => {
                let _ = tell.send(Err(error.into()));
            }
        }
    });
}

/// The argument by which this program keeps a command.
pub const KEEPER: &str = keeper::NAME;

/// Keeps the command of the arguments behind [`KEEPER`], until it has ended.
#[must_use]
pub fn keep(arguments: Vec<OsString>) -> ExitCode {
    keeper::run(arguments, &SystemClock::start())
}

/// Returns whether the control group of this service has other processes: a daemon that a command left behind
/// would be ended with the service.
fn has_company() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/cgroup") else { return false };
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    // A service has a group of its own; any other group is shared with unrelated processes.
    let Some(own) = own.filter(|path| path.ends_with(".service")) else { return false };
    let procs = format!("/sys/fs/cgroup{own}/cgroup.procs");
    let procs = std::fs::read_to_string(procs).unwrap_or_default();
    procs.lines().any(|pid| pid.parse() != Ok(std::process::id()))
}
