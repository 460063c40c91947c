//! The resources for `flatpak run`: the directory with copies of the host's files, and the socket of its certificates.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use host::command::{self, AfterCaller, CommandRequest};
use host::environment::SessionEnvironment;
use host::keeper;
use host::monitor::{DirectoryIdentity, MonitorDirectory};
use host::start::Executable;

use super::HostServiceOptions;

/// The time limit for the server to report its socket.
const PATIENCE: Duration = Duration::from_secs(5);
/// The directory of the host's files.
const ETC: &str = "/etc";

/// The paths that `flatpak run` receives.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) monitor: PathBuf,
    identity: DirectoryIdentity,
    pub(super) pkcs11: Option<PathBuf>,
}

/// Whether these paths exist yet.
#[derive(Debug, Default)]
enum State {
    #[default]
    Nobody,
    Starting,
    Ready(Places),
}

/// The paths, created at the first request and kept up to date until the end.
#[derive(Debug, Default)]
pub(super) struct Session {
    state: State,
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
}

impl Session {
    /// Returns the paths, or creates them on a thread, which calls `made`.
    pub(super) fn places(
        &mut self,
        options: &HostServiceOptions,
        made: impl Fn(io::Result<Places>) + Send + 'static,
    ) -> io::Result<Option<Places>> {
        match &self.state {
            State::Starting => return Ok(None),
            // The directory may have been removed, and another made that holds nothing.
            State::Ready(places) if places.identity.is_at(&places.monitor) => {
                return Ok(Some(places.clone()));
            }
            State::Ready(_) | State::Nobody => {}
        }
        let (stop, stopped) = sys::socket::pair()?;
        self.stop = Some(stop);
        let (dir, disk) = (options.session.clone(), Arc::clone(&options.disk));
        let (environment, keeper) = (options.environment.clone(), options.keeper.clone());
        let work = move || {
            let monitor = match MonitorDirectory::start(&dir, Path::new(ETC), disk) {
                Ok(monitor) => monitor,
                Err(error) => {
                    return made(Err(error));
                }
            };
            let certificates = Certificates::serve(&dir, &environment, &keeper);
            let pkcs11 = certificates.as_ref().map(|server| server.socket.clone());
            let identity = monitor.identity();
            let places = Places { monitor: monitor.path().to_owned(), identity, pkcs11 };
            made(Ok(places));
            if let Err(error) = monitor.follow(&stopped) {
                tracing::warn!(%error, "cannot follow the host's files for sandboxes");
                let _ = sys::socket::wait_hung_up(&stopped);
            }
        };
        thread::Builder::new().name("host-session".to_owned()).spawn(work)?;
        self.state = State::Starting;
        Ok(None)
    }

    /// Records the created paths.
    pub(super) fn learn(&mut self, places: &Result<Places, io::Error>) {
        self.state = match places {
            Ok(places) => State::Ready(places.clone()),
            Err(_) => State::Nobody,
        };
    }

    /// Returns whether sandboxes use it.
    pub(super) fn is_used(&self) -> bool {
        !matches!(self.state, State::Nobody)
    }
}

/// A server for the host's certificates, by p11-kit. It ends with this process, even if that is killed.
#[derive(Debug)]
struct Certificates {
    socket: PathBuf,
    keeper: OwnedFd,
    /// Closed to end it.
    control: Option<OwnedFd>,
}

impl Certificates {
    /// Starts the server where p11-kit is installed.
    fn serve(
        dir: &Path,
        environment: &SessionEnvironment,
        keeper: &keeper::KeeperProgram,
    ) -> Option<Self> {
        let socket = dir.join(format!("pkcs11-flatpak-{}", std::process::id()));
        match Certificates::start(socket, environment, keeper) {
            Ok(served) => served,
            Err(error) => {
                tracing::warn!(%error, "p11-kit does not serve certificates");
                None
            }
        }
    }

    fn start(
        socket: PathBuf,
        environment: &SessionEnvironment,
        keeper: &keeper::KeeperProgram,
    ) -> io::Result<Option<Self>> {
        let (said, tell) = io::pipe()?;
        let mut arguments: Vec<Vec<u8>> =
            ["p11-kit", "server", "--foreground", "--sh", "-n"].map(Into::into).into();
        arguments.push(socket.as_os_str().as_bytes().to_vec());
        arguments.extend(["--provider", "p11-kit-trust.so"].map(Into::into));
        arguments.push(b"pkcs11:model=p11-kit-trust?write-protected=yes".to_vec());
        let request = CommandRequest {
            arguments,
            descriptors: command::adopt(&[(1, tell.as_fd())]).map_err(io::Error::other)?,
            after: AfterCaller::Ends,
            ..CommandRequest::default()
        };
        drop(tell);
        let terms = request.terms(0);
        // Without p11-kit there are no certificates to serve.
        let Ok(found) = request.find(environment) else { return Ok(None) };
        let executable = Executable::by_path(&found);
        let prepared = request.prepare(environment, executable, None).map_err(io::Error::other)?;
        let (child, control) = keeper::start(keeper, &prepared, &terms)?;
        let served = Certificates { socket, keeper: child.pidfd, control: Some(control) };
        // It prints its socket once it listens.
        let heard = sys::socket::wait_readable(&said, Some(PATIENCE))?;
        if !heard || !served.socket.exists() {
            return Err(io::Error::other("it does not say where"));
        }
        Ok(Some(served))
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        drop(self.control.take());
        // The keeper is reaped here; it always ends.
        let _ = sys::pidfd::wait_readable(self.keeper.as_fd());
        let _ = sys::pidfd::reap(self.keeper.as_fd());
        let _ = std::fs::remove_file(&self.socket);
    }
}
