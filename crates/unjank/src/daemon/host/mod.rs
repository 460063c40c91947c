//! Host commands: the service that sandboxed programs ask to run something outside.
//!
//! It shares no state with the settings, so it has a thread and a connection of its own; whatever a command does, no
//! setting waits for it.

mod callers;
mod commands;
mod hub;
mod journal;
mod kept;
mod policy;
mod quota;
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
use session::clock::{Clock, SystemClock};
use session::host::environment::Environment;
use session::host::identity::Host;
use session::host::keeper;
use store::disk::Disk;
use tokio::sync::oneshot;

pub use quota::Bounds;

use super::DaemonError;
use super::part::{Part, State};

/// What the service depends on.
#[derive(Debug)]
pub struct Options {
    /// The bus, or the session bus that the environment names.
    pub address: Option<String>,
    /// Whether the name is taken over from an owner that lets it.
    pub takeover: Takeover,
    /// The policy.
    pub policy: PathBuf,
    /// The log.
    pub log: PathBuf,
    /// Where `flatpak run` finds files that follow the host's.
    pub session: PathBuf,
    /// The runtime directory of the user, where the service manager listens.
    pub runtime: PathBuf,
    /// How callers are told apart.
    pub host: Host,
    /// Our own environment, for where there is no service manager that has a newer one.
    pub environment: Environment,
    /// What follows from how many descriptors we may have.
    pub bounds: Bounds,
    /// This program, which keeps commands in processes of its own.
    pub keeper: keeper::Program,
    /// What the log is written to.
    pub disk: Arc<dyn Disk>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// The running service. Dropping it gives the name back; commands of callers that wanted that go on.
#[derive(Debug)]
pub struct Service {
    part: Part,
    policy: RefCell<policy::Followed>,
}

impl Service {
    /// Takes the name and starts to serve.
    ///
    /// # Errors
    ///
    /// There is no bus, or the name is somebody else's; nothing is served.
    pub fn start(options: Options) -> Result<Service, DaemonError> {
        // Whoever started us may have left some open that are no command's business.
        sys::launch::close_on_exec(3).map_err(DaemonError::NotStarted)?;
        let policy = RefCell::new(policy::Followed::new(options.policy.clone()));
        let (tell, told) = std::sync::mpsc::channel();
        let serve = move |state: &_, stopped| serve(options, state, stopped, &tell);
        let part = Part::start("host", serve).map_err(DaemonError::NotStarted)?;
        let gone = || DaemonError::NotStarted(io::ErrorKind::BrokenPipe.into());
        told.recv().map_err(|_| gone())??;
        Ok(Service { part, policy })
    }

    /// Says whether no command runs, nothing that was started by one is left with us, and nobody is limited by a policy:
    /// the bus may start another program than us for the next call, and that would know of none.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.part.is_idle() && !has_company() && !self.policy.borrow_mut().limits_anybody()
    }

    /// The thread that serves: it is idle while no command runs, and ends when the name or the bus is lost.
    pub(super) fn part(&self) -> &Part {
        &self.part
    }
}

fn serve(
    options: Options,
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
                let hub = hub::Hub::new(server, options, Arc::clone(state));
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

/// Says whether the control group that systemd made for us holds anybody else: a daemon that a command left behind
/// would be ended with us.
fn has_company() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/cgroup") else { return false };
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    // A service has a group of its own; anything else is shared with strangers.
    let Some(own) = own.filter(|path| path.ends_with(".service")) else { return false };
    let procs = format!("/sys/fs/cgroup{own}/cgroup.procs");
    let procs = std::fs::read_to_string(procs).unwrap_or_default();
    procs.lines().any(|pid| pid.parse() != Ok(std::process::id()))
}
