//! Where a job runs, and what it needs around it: a cgroup, the preload library, its disks, the folder of all jobs.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::client::{Client, Scope};
use rustix::process::Signal;
use session::jobs::cgroup::Cgroup;
use session::jobs::claim::{self, Claim};
use session::jobs::issued::{self, Issued};
use session::jobs::keeper::{self, PrivateSocket};
use session::jobs::report::Disk;
use session::linking::Linking;
use sys::device::Device;
use sys::mounts::Mounts;
use sys::signals::Signals;

use super::launches;

/// Says whether `program` loads a library that is put in front of its own.
pub(super) fn preloads(program: &OsStr) -> bool {
    let path = Path::new(program);
    let found = if path.components().count() > 1 {
        Some(path.to_owned())
    } else {
        #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
        let places = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&places).map(|place| place.join(path)).find(|path| path.is_file())
    };
    found.is_none_or(|path| Linking::of(&path) == Linking::Dynamic)
}

/// How long systemd may take to make a scope: a command that waits longer is better off without.
const PATIENCE: Duration = Duration::from_secs(2);

/// Puts `process`, which waits for its command, into a cgroup: in a scope of `background.slice` if there is a systemd of this user, else inside of the one that we are in, where this user may.
pub(super) fn find(
    mounts: &Mounts,
    process: u32,
    keeper: u32,
    command: &str,
) -> Option<(Cgroup, Option<Claim>)> {
    if let Some(cgroup) = scope(mounts, process, keeper, command) {
        // It is systemd's, who removes it.
        return Some((cgroup, None));
    }
    let own = Cgroup::of(mounts, std::process::id())?;
    let making = Claim::while_making_in(own.path());
    let made = own.make(&name(std::process::id())).ok()?;
    let claim = Claim::of(made.path());
    drop(making);
    if made.take(process).is_ok() {
        return Some((made, claim));
    }
    // Nobody is in it.
    let _ = made.remove();
    None
}

/// Has this process, a keeper, outlive what asks all processes around it to end: it ends when its job is let go.
pub(super) fn ignore_requests_to_end() -> Option<Signals> {
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    Signals::collect(&signals.map(Signal::as_raw)).ok()
}

/// Returns the cgroup that the supervisor with number `supervisor` has made, if it could not say so any more.
pub(super) fn left(mounts: &Mounts, supervisor: u32) -> Option<Cgroup> {
    Cgroup::of(mounts, std::process::id())?.inside(&name(supervisor))
}

/// Returns what the cgroup and the trace of a job are called.
fn name(supervisor: u32) -> String {
    format!("{}{supervisor}", claim::PREFIX)
}

/// Asks the user's systemd for a scope. In it the job and its keeper have a cgroup each: whatever ends the session that we are in leaves the one who lets the job run.
fn scope(mounts: &Mounts, process: u32, keeper: u32, command: &str) -> Option<Cgroup> {
    let address = launches::address()?;
    Cgroup::of(mounts, process)?;
    let name = format!("unjank-run-{}.scope", std::process::id());
    let description = format!("{command}, by unjank run");
    let asked = async {
        let client = Client::connect(Some(&address)).await.ok()?;
        let processes = [process, keeper];
        let slice = "background.slice";
        let scope = Scope { name: &name, slice, description: &description, processes: &processes };
        client.start_scope(&scope).await.ok()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await.ok()? })?;
    let inside = |one| Cgroup::of(mounts, one).filter(|cgroup| cgroup.path().ends_with(&name));
    let (scope, _) = inside(process).zip(inside(keeper))?;
    let beside = scope.make("unjank-keeper").ok()?;
    let made = scope.make("unjank-job").ok()?;
    // In one cgroup with the job the keeper would freeze itself.
    if beside.take(keeper).is_err() || made.take(process).is_err() {
        return None;
    }
    Some(made)
}

/// Returns the folder in which jobs can be reached, made if it is not there; `None` without a runtime directory.
///
/// It is this user's alone. Root has one of its own where the environment names another user's (sudo) or none.
pub(super) fn jobs() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let user = rustix::process::geteuid();
    let of_root = user.is_root().then(|| PathBuf::from("/run"));
    let runtimes = [named.filter(|path| path.is_absolute()), of_root];
    runtimes.into_iter().flatten().find_map(|runtime| private_folder(&runtime, user.as_raw()))
}

/// Makes the folder for jobs in `runtime`, which belongs to `user`, and sees that nobody else reaches what is in it.
fn private_folder(runtime: &Path, user: u32) -> Option<PathBuf> {
    if std::fs::metadata(runtime).ok()?.uid() != user {
        return None;
    }
    let folder = runtime.join("unjank/jobs");
    sys::private_dir::make(&folder).ok()?;
    Some(folder)
}

/// Takes away what jobs have left here whose supervisor and keeper were killed at once.
pub(super) fn sweep(mounts: &Mounts) {
    sweep_sockets();
    claim::sweep_traces(Path::new(TRACEFS));
    if let Some(own) = Cgroup::of(mounts, std::process::id()) {
        claim::sweep_cgroups(&own);
    }
}

/// Does so everywhere.
pub(super) fn sweep_everywhere() {
    sweep_sockets();
    claim::sweep_traces(Path::new(TRACEFS));
    if let Some(top) = Mounts::read().ok().and_then(|mounts| Cgroup::top(&mounts)) {
        claim::sweep_all_cgroups(&top);
    }
}

/// Removes sockets of jobs at which nobody listens any more.
fn sweep_sockets() {
    let Some(folder) = jobs() else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        // One that is just being made does not listen yet; its supervisor lives.
        let is_left = number
            .is_some_and(|number| !std::fs::exists(format!("/proc/{number}")).unwrap_or(true));
        let is_refused = || {
            let connected = sys::socket::connect_to(&path);
            connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        };
        if is_left && is_refused() {
            // If it cannot be removed, it is tried again the next time.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Where the kernel's traces are, and what ours is called there.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Traces in which class the first of `disks` is written, where this user may.
pub(super) fn issued(disks: &[Disk], supervisor: u32) -> Option<Issued> {
    let name = name(supervisor);
    Issued::start(Path::new(TRACEFS), &name, disks.first()?.number?).ok()
}

/// Removes the trace of a keeper that was killed.
pub(super) fn remove_trace() {
    let name = name(std::process::id());
    issued::remove(&issued::instance(Path::new(TRACEFS), &name));
}

/// Listens for `unjank jobs` about the job of `supervisor`; `None` where nobody could find us.
pub(super) fn control_socket(supervisor: u32) -> Option<PrivateSocket> {
    PrivateSocket::listen_at(keeper::control_socket(&jobs()?, supervisor)).ok()
}

/// Returns where programs of the job of `supervisor` say what they have written.
pub(super) fn mailbox(supervisor: u32) -> Option<PathBuf> {
    Some(keeper::mailbox(&jobs()?, supervisor))
}

/// Removes what a keeper that was killed has left, or one that was stopped does not use: no program waits there for an answer.
pub(super) fn remove_mailbox(supervisor: u32) {
    if let Some(path) = mailbox(supervisor) {
        // There was none.
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the sockets of a keeper that was killed.
pub(super) fn remove_sockets(supervisor: u32) {
    remove_mailbox(supervisor);
    if let Some(folder) = jobs() {
        // There was none.
        let _ = std::fs::remove_file(keeper::control_socket(&folder, supervisor));
    }
}

/// Returns the disks that the job is likely to work on: those of its directory and of `home`.
pub(super) fn disks(mounts: &Mounts, home: Option<&Path>) -> Vec<Disk> {
    let directory = env::current_dir().ok();
    let mut found: Vec<Disk> = Vec::new();
    for path in [directory.as_deref(), home].into_iter().flatten() {
        let Some(device) = mounts.holding(path).and_then(Device::under) else { continue };
        if !found.iter().any(|disk| disk.name == device.disk) {
            found.push(Disk {
                name: device.disk,
                number: device.disk_number,
                scheduler: device.scheduler,
                wbt_lat_usec: device.wbt_lat_usec,
            });
        }
    }
    found
}
