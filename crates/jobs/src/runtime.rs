//! What a running job owns beside its processes: sockets in the folder of all jobs, a cgroup and a kernel trace.
//!
//! The owners remove them at their end. What is left when both the supervisor and the keeper were killed is removed by the next
//! command that calls [`sweep`].

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sys::device::Device;
use sys::mounts::Mounts;

use super::cgroup::Cgroup;
use super::claim::{self, DirectoryClaim};
use super::keeper::{self, PrivateSocket};
use super::report::JobDisk;
use super::request_trace::{self, RequestTrace};

/// Where the kernel's traces are.
const TRACEFS: &str = "/sys/kernel/tracing";

/// The folder with the sockets of all jobs of a user.
#[derive(Clone, Debug)]
pub struct JobsFolder(PathBuf);

impl JobsFolder {
    /// Returns the folder below a runtime directory, and makes it if it is missing.
    ///
    /// `None` if the runtime directory does not belong to `user`, or if the folder cannot be made private.
    #[must_use]
    pub fn open(runtime: &Path, user: u32) -> Option<JobsFolder> {
        if fs::metadata(runtime).ok()?.uid() != user {
            return None;
        }
        let folder = runtime.join("unjank/jobs");
        sys::private_dir::make(&folder).ok()?;
        Some(JobsFolder(folder))
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Listens for `unjank jobs` about the job of `supervisor`.
    #[must_use]
    pub fn listen(&self, supervisor: u32) -> Option<PrivateSocket> {
        PrivateSocket::listen_at(keeper::control_socket(&self.0, supervisor)).ok()
    }

    /// Returns the path of the socket at which programs of the job of `supervisor` report what they have written.
    #[must_use]
    pub fn mailbox(&self, supervisor: u32) -> PathBuf {
        keeper::mailbox(&self.0, supervisor)
    }

    /// Removes the mailbox of a keeper that was killed or stopped, so that no program waits there for an answer.
    pub fn remove_mailbox(&self, supervisor: u32) {
        // It fails if there is none.
        let _ = fs::remove_file(self.mailbox(supervisor));
    }

    /// Removes the sockets of a keeper that was killed.
    pub fn remove_sockets(&self, supervisor: u32) {
        self.remove_mailbox(supervisor);
        // It fails if there is none.
        let _ = fs::remove_file(keeper::control_socket(&self.0, supervisor));
    }

    /// Removes sockets of jobs on which no process listens any more.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
            // A socket that is just being made does not listen yet, but its supervisor lives.
            let is_left =
                number.is_some_and(|number| !fs::exists(format!("/proc/{number}")).unwrap_or(true));
            let is_refused = || {
                let connected = sys::socket::connect_to(&path);
                connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            };
            if is_left && is_refused() {
                // If it cannot be removed, the next sweep tries again.
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// Removes what jobs have left in `folder`, in the kernel's traces and in the cgroup of this process.
pub fn sweep(mounts: &Mounts, folder: Option<&JobsFolder>) {
    sweep_traces_and(folder);
    if let Some(own) = Cgroup::of(mounts, std::process::id()) {
        claim::sweep_cgroups(&own);
    }
}

/// Does the same in all cgroups.
pub fn sweep_everywhere(folder: Option<&JobsFolder>) {
    sweep_traces_and(folder);
    if let Some(top) = Mounts::read().ok().and_then(|mounts| Cgroup::top(&mounts)) {
        claim::sweep_all_cgroups(&top);
    }
}

fn sweep_traces_and(folder: Option<&JobsFolder>) {
    if let Some(folder) = folder {
        folder.sweep();
    }
    request_trace::sweep(Path::new(TRACEFS));
}

/// Makes a cgroup below that of this process and puts `process` into it; `None` where the user may not.
#[must_use]
pub fn make_cgroup(mounts: &Mounts, process: u32) -> Option<(Cgroup, Option<DirectoryClaim>)> {
    let own = Cgroup::of(mounts, std::process::id())?;
    let making = DirectoryClaim::while_making_in(own.path());
    let made = own.make(&name(std::process::id())).ok()?;
    let claim = DirectoryClaim::of(made.path());
    drop(making);
    if made.take(process).is_ok() {
        return Some((made, claim));
    }
    // The cgroup is empty; if it cannot be removed, a sweep does.
    let _ = made.remove();
    None
}

/// Returns the cgroup that `supervisor` has made and could not report any more.
#[must_use]
pub fn left_cgroup(mounts: &Mounts, supervisor: u32) -> Option<Cgroup> {
    Cgroup::of(mounts, std::process::id())?.inside(&name(supervisor))
}

/// Traces in which class the first of `disks` is written, where this user may.
#[must_use]
pub fn trace_requests(disks: &[JobDisk], supervisor: u32) -> Option<RequestTrace> {
    RequestTrace::start(Path::new(TRACEFS), &name(supervisor), disks.first()?.number?).ok()
}

/// Removes the trace of a keeper that was killed.
pub fn remove_trace(supervisor: u32) {
    request_trace::remove(&request_trace::instance(Path::new(TRACEFS), &name(supervisor)));
}

/// Returns the name of the cgroup and of the trace of a job.
fn name(supervisor: u32) -> String {
    format!("{}{supervisor}", claim::PREFIX)
}

/// Returns the disks that hold `paths`, each once.
pub fn disks<'p>(mounts: &Mounts, paths: impl IntoIterator<Item = &'p Path>) -> Vec<JobDisk> {
    let mut found: Vec<JobDisk> = Vec::new();
    for path in paths {
        let Some(device) = mounts.holding(path).and_then(Device::under) else { continue };
        if !found.iter().any(|disk| disk.name == device.disk) {
            found.push(JobDisk {
                name: device.disk,
                number: device.disk_number,
                scheduler: device.scheduler,
                wbt_lat_usec: device.wbt_lat_usec,
            });
        }
    }
    found
}
