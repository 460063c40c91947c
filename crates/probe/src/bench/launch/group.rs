//! The cgroups of a measurement: one for what is launched, one for the background, beside one another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{Timespec, poll};
use session::jobs::cgroup::Cgroup;
use sys::mounts::Mounts;

use super::guardian::{Guardian, Thing, put};
use super::{LaunchError, step};

/// How often is looked whether the processes of a cgroup have ended.
const ROUND: Duration = Duration::from_millis(10);

/// Both cgroups, in one.
#[derive(Debug)]
pub(super) struct Groups {
    around: Cgroup,
    pub(super) foreground: Cgroup,
    pub(super) background: Cgroup,
}

impl Groups {
    /// Makes them inside of the cgroup that this process is in.
    pub(super) fn make(mounts: &Mounts, guardian: &mut Guardian) -> Result<Groups, LaunchError> {
        let process = std::process::id();
        let own = Cgroup::of(mounts, process)
            .ok_or(io::ErrorKind::NotFound.into())
            .map_err(step("find a cgroup2 file system"))?;
        let name = format!("unjank-bench-{process}");
        let told = guardian.tell(&Thing::Cgroup(own.path().join(&name)));
        told.map_err(step("talk to the guardian"))?;
        let cannot = || step(format!("make a cgroup in {}", own.path().display()));
        let around = own.make(&name).map_err(cannot())?;
        Ok(Groups {
            foreground: around.make("foreground").map_err(cannot())?,
            background: around.make("background").map_err(cannot())?,
            around,
        })
    }

    /// Returns how long what is in the foreground has waited for disks so far, in milliseconds.
    pub(super) fn waited_ms(&self) -> Option<f64> {
        let text = fs::read_to_string(self.foreground.path().join("io.pressure")).ok()?;
        let line = text.lines().find(|line| line.starts_with("some "))?;
        let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
        total.parse::<f64>().ok().map(|micros| micros / 1e3)
    }

    /// Returns the directory of the cgroup that both are in.
    pub(super) fn path(&self) -> &Path {
        self.around.path()
    }

    /// Ends all that runs in the background, and gives those who watch over it time to tidy up.
    pub(super) fn end_background(&self) {
        end(self.background.path(), Duration::from_secs(5));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        clear(self.around.path(), Duration::from_secs(5));
    }
}

/// Returns the cgroups directly in the one at `path`.
fn inside(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let directories = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_dir().then(|| entry.path())
    });
    directories.collect()
}

fn is_populated(path: &Path) -> bool {
    fs::read_to_string(path.join("cgroup.events"))
        .is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
}

/// Kills what is in the cgroup at `path`: first the jobs, which are cgroups inside of it, then, after `patience`, whoever has not ended with them.
fn end(path: &Path, patience: Duration) {
    for job in inside(path) {
        // It is gone.
        let _ = put(&job.join("cgroup.kill"), "1");
    }
    let has_jobs = !inside(path).is_empty();
    if !has_jobs || !empties(path, patience) {
        let _ = put(&path.join("cgroup.kill"), "1");
    }
    // A process that waits for a disk ends when it has been served.
    empties(path, Duration::from_secs(60));
}

/// Waits until nobody is in the cgroup at `path`, no longer than `patience`; says whether it is so.
fn empties(path: &Path, patience: Duration) -> bool {
    let rounds = patience.as_millis() / ROUND.as_millis();
    for _ in 0..rounds {
        if !is_populated(path) {
            return true;
        }
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(ROUND.subsec_nanos()) };
        let _ = poll(&mut [], Some(&time));
    }
    false
}

/// Ends all that is in the cgroup at `path` and below, and removes it.
pub(super) fn clear(path: &Path, patience: Duration) {
    for group in inside(path) {
        end(&group, patience);
        remove(&group);
    }
    end(path, Duration::ZERO);
    remove(path);
}

fn remove(path: &Path) {
    for group in inside(path) {
        remove(&group);
    }
    // It is gone, or somebody is in it whom even the kernel cannot end.
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use session::jobs::pressure::Others;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "whether a skip is a failure is said there")]
    fn a_job_in_the_background_watches_what_is_launched() {
        let mounts = Mounts::read().unwrap();
        let mut guardian = Guardian::start(&["cat".to_owned()]).unwrap();
        let Ok(groups) = Groups::make(&mounts, &mut guardian) else {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "no cgroup can be made");
            println!("SKIPPED: no cgroup can be made");
            return;
        };
        let job = groups.background.path().join("unjank-run-1");
        assert!(!Others::beside(groups.background.root(), &job).is_empty());
    }
}
