//! Where a job runs, and what it needs around it: a cgroup, the preload library, its disks, the folder of all jobs.

use std::env;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use session::jobs::cgroup::Cgroup;
use session::jobs::issued::{self, Issued};
use session::jobs::keeper;
use session::jobs::report::Disk;
use sys::device::Device;
use sys::mounts::Mounts;

/// Makes a cgroup for this process's job, where this user may.
pub(super) fn cgroup(mounts: &Mounts) -> Option<Cgroup> {
    let own = Cgroup::of(mounts, std::process::id())?;
    own.make(&format!("unjank-run-{}", std::process::id())).ok()
}

/// Returns the folder in which jobs can be reached, made if it is not there; `None` without a runtime directory.
#[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
pub(super) fn jobs() -> Option<PathBuf> {
    let runtime = PathBuf::from(env::var_os("XDG_RUNTIME_DIR")?);
    if !runtime.is_absolute() {
        return None;
    }
    let folder = runtime.join("unjank/jobs");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder)
}

/// Where the kernel's traces are, and what ours is called there.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Traces in which class the first of `disks` is written, where this user may.
pub(super) fn issued(disks: &[Disk]) -> Option<Issued> {
    let name = format!("unjank-run-{}", std::process::id());
    Issued::start(Path::new(TRACEFS), &name, disks.first()?.number?).ok()
}

/// Removes the trace of a keeper that was killed.
pub(super) fn remove_trace() {
    let name = format!("unjank-run-{}", std::process::id());
    issued::remove(&issued::instance(Path::new(TRACEFS), &name));
}

/// Listens for `unjank jobs`; `None` where nobody could find us.
pub(super) fn door() -> Option<(OwnedFd, PathBuf)> {
    let path = keeper::door(&jobs()?, std::process::id());
    // Of somebody with our number who was killed.
    let _ = std::fs::remove_file(&path);
    Some((sys::socket::listen_at(&path).ok()?, path))
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
