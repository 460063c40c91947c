//! What `flatpak run` asks for: the directory that follows the host's files, and the socket of its certificates.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use session::host::monitor::Monitor;
use session::host::program;
use store::disk::Disk;
use tokio::sync::mpsc::UnboundedSender;

use super::hub::Event;

/// Where the host's files are.
const ETC: &str = "/etc";

/// The places that `flatpak run` is told.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) monitor: PathBuf,
    pub(super) pkcs11: Option<PathBuf>,
}

/// Whether there are such places yet.
#[derive(Debug, Default)]
enum State {
    #[default]
    Nobody,
    Starting,
    Ready(Places),
}

/// The places, made when somebody asks for them and followed until the end.
#[derive(Debug, Default)]
pub(super) struct Session {
    state: State,
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
}

impl Session {
    /// Returns the places, or has them made; [`Event::Session`] follows.
    pub(super) fn places(
        &mut self,
        dir: &Path,
        search: &OsStr,
        disk: &Arc<dyn Disk>,
        tell: &UnboundedSender<Event>,
    ) -> io::Result<Option<Places>> {
        match &self.state {
            State::Starting => return Ok(None),
            // Somebody may have cleaned up.
            State::Ready(places) if places.monitor.is_dir() => return Ok(Some(places.clone())),
            State::Ready(_) | State::Nobody => {}
        }
        let (stop, stopped) = sys::socket::pair()?;
        self.stop = Some(stop);
        let (dir, search, disk) = (dir.to_owned(), search.to_owned(), Arc::clone(disk));
        let tell = tell.clone();
        let work = move || {
            let monitor = match Monitor::start(&dir, Path::new(ETC), disk) {
                Ok(monitor) => monitor,
                Err(error) => {
                    let _ = tell.send(Event::Session(Err(error)));
                    return;
                }
            };
            let certificates = Certificates::serve(&dir, &search);
            let pkcs11 = certificates.as_ref().map(|server| server.socket.clone());
            let places = Places { monitor: monitor.path().to_owned(), pkcs11 };
            let _ = tell.send(Event::Session(Ok(places)));
            if let Err(error) = monitor.follow(&stopped) {
                tracing::warn!(%error, "cannot follow the host's files for sandboxes");
                let _ = sys::socket::wait_hung_up(&stopped);
            }
        };
        thread::Builder::new().name("host-session".to_owned()).spawn(work)?;
        self.state = State::Starting;
        Ok(None)
    }

    /// Takes what was made.
    pub(super) fn learn(&mut self, places: &Result<Places, io::Error>) {
        self.state = match places {
            Ok(places) => State::Ready(places.clone()),
            Err(_) => State::Nobody,
        };
    }

    /// Says whether sandboxes rely on it.
    pub(super) fn is_used(&self) -> bool {
        !matches!(self.state, State::Nobody)
    }
}

/// A server for the host's certificates, which p11-kit starts and which goes on by itself.
#[derive(Debug)]
struct Certificates {
    socket: PathBuf,
    pid: Pid,
}

impl Certificates {
    /// Starts the server where p11-kit is installed.
    fn serve(dir: &Path, search: &OsStr) -> Option<Certificates> {
        let program = program::find(OsStr::new("p11-kit"), search, Path::new("/")).ok()?;
        let socket = dir.join(format!("pkcs11-flatpak-{}", std::process::id()));
        let output = Command::new(program)
            // Shell syntax is asked for because versions that do not know it cannot serve either.
            .args(["server", "--sh", "-n"])
            .arg(&socket)
            .args(["--provider", "p11-kit-proxy.so"])
            .arg("pkcs11:model=p11-kit-trust?write-protected=yes")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let pid = text.lines().find_map(|line| line.strip_prefix("P11_KIT_SERVER_PID="));
        let pid = pid.and_then(|rest| rest.split(';').next()?.parse().ok()).and_then(Pid::from_raw);
        let served = pid.filter(|_| output.status.success() && socket.exists());
        if served.is_none() {
            tracing::warn!("p11-kit does not serve certificates");
        }
        Some(Certificates { socket, pid: served? })
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // It removes its socket itself, and may have ended.
        let _ = kill_process(self.pid, Signal::TERM);
    }
}
