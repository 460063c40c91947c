//! The ownership of a job's cgroup or tracing instance: its supervisor and its keeper hold a lock on the directory while they live. If both were killed at once, the lock is free, and the next job removes the directory.
//!
//! Unlike a process ID in a name, a lock ends with its process, however that ends, is visible from every PID namespace, and is never reused.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::cgroup::{Cgroup, Freezer};

/// How the names of a job's cgroup, scope and trace begin.
pub const PREFIX: &str = "unjank-run-";

/// The name of a job's cgroup inside of its scope.
pub const IN_SCOPE: &str = "unjank-job";

/// A directory that is not taken away while this lives.
#[derive(Debug)]
pub struct DirectoryClaim {
    _directory: File,
}

impl DirectoryClaim {
    /// Takes a shared lock on `directory`; `None` if it is gone.
    #[must_use]
    pub fn of(directory: &Path) -> Option<DirectoryClaim> {
        locked(directory, FlockOperation::NonBlockingLockShared)
    }

    /// Keeps others from looking through `parent` until what is about to be made in it is claimed. If somebody does so just now, the new thing may be lost to him: it is as if it could not be made.
    #[must_use]
    pub fn while_making_in(parent: &Path) -> Option<DirectoryClaim> {
        DirectoryClaim::of(parent)
    }
}

fn locked(directory: &Path, operation: FlockOperation) -> Option<DirectoryClaim> {
    let directory = File::open(directory).ok()?;
    flock(&directory, operation).ok()?;
    Some(DirectoryClaim { _directory: directory })
}

/// Returns what lies in `parent`, is called like something of a job and belongs to nobody. Nothing can be made there while the claim lives.
pub(super) fn of_nobody(parent: &Path) -> Option<(DirectoryClaim, Vec<PathBuf>)> {
    if of_jobs(parent).is_empty() {
        return None;
    }
    let alone = locked(parent, FlockOperation::NonBlockingLockExclusive)?;
    let mut left = of_jobs(parent);
    left.retain(|path| locked(path, FlockOperation::NonBlockingLockExclusive).is_some());
    Some((alone, left))
}

/// Returns what lies in `parent` and is called like something of a job. A scope is not: it is systemd's, who removes it; the job's cgroup inside of it is.
fn of_jobs(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let is_number =
        |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let around = parent.file_name().and_then(|name| name.to_str());
    let scope = around.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(".scope"));
    let in_scope = scope.is_some_and(is_number);
    let is_ours = |name: &str| {
        name.strip_prefix(PREFIX).is_some_and(is_number) || (in_scope && name == IN_SCOPE)
    };
    let entries = entries.filter_map(Result::ok);
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    ours.map(|entry| entry.path()).collect()
}

/// Lets everything run that a job has left in cgroups directly inside of `around` that belong to nobody, and removes those.
pub fn sweep_cgroups(around: &Cgroup) {
    let Some((_alone, left)) = of_nobody(around.path()) else { return };
    for path in left {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(cgroup) = name.and_then(|name| around.inside(name)) {
            // Another user's: it is his to let go.
            if cgroup.freeze(Freezer::Thawed).is_ok() {
                let _ = cgroup.dissolve();
            }
        }
    }
}

/// Does so in all cgroups below `top`, too.
pub fn sweep_all_cgroups(top: &Cgroup) {
    let mut directories = vec![top.clone()];
    while let Some(around) = directories.pop() {
        sweep_cgroups(&around);
        let Ok(entries) = fs::read_dir(around.path()) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Some(name) = name.to_str()
            {
                directories.extend(around.inside(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_claims_belongs_to_him_until_he_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["unjank-run-1", "unjank-run-2", "unjank-run-3.scope", "unjank-run-", "other"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let left = || of_nobody(parent.path()).unwrap().1;
        let one = parent.path().join("unjank-run-1");
        let claims = [DirectoryClaim::of(&one), DirectoryClaim::of(&one)];
        assert_eq!(left(), [parent.path().join("unjank-run-2")]);
        let [first, second] = claims;
        drop(first);
        assert_eq!(left().len(), 1, "the other one has it, too");
        drop(second);
        assert_eq!(left().len(), 2);
    }

    #[test]
    fn a_job_in_a_scope_that_nobody_claims_is_let_go() {
        let top = tempfile::tempdir().unwrap();
        let frozen = |parent: &str| {
            let job = top.path().join(parent).join(IN_SCOPE);
            fs::create_dir_all(&job).unwrap();
            File::options().write(true).create_new(true).open(job.join("cgroup.freeze")).unwrap();
            Cgroup::imitated_by(&job).freeze(Freezer::Frozen).unwrap();
            job
        };
        let freezer = |job: &Path| fs::read_to_string(job.join("cgroup.freeze")).unwrap();
        let left = frozen("background.slice/unjank-run-1.scope");
        let claimed = frozen("background.slice/unjank-run-2.scope");
        let others = ["background.slice/other.scope", "unjank-run-x.scope"].map(frozen);
        let _claim = DirectoryClaim::of(&claimed);
        sweep_all_cgroups(&Cgroup::imitated_by(top.path()));
        assert_eq!(freezer(&left), "0");
        assert_eq!(freezer(&claimed), "1");
        assert_eq!(others.map(|job| freezer(&job)), ["1", "1"]);
    }

    #[test]
    fn nobody_looks_while_something_is_made() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("unjank-run-1")).unwrap();
        let making = DirectoryClaim::while_making_in(parent.path());
        assert!(making.is_some() && of_nobody(parent.path()).is_none());
        drop(making);
        assert_eq!(of_nobody(parent.path()).unwrap().1.len(), 1);
    }
}
