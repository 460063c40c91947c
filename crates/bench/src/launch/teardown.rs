//! Ends the processes of a cgroup and removes it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{Timespec, poll};

/// The interval between two checks whether the processes of a cgroup have ended.
const ROUND: Duration = Duration::from_millis(10);

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

/// Kills what is in the cgroup at `path`: first the jobs, which are cgroups inside of it, then, after `patience`, the processes that have not ended with them.
pub(super) fn end(path: &Path, patience: Duration) {
    for job in inside(path) {
        // It fails if the job has ended.
        let _ = put(&job.join("cgroup.kill"), "1");
    }
    let has_jobs = !inside(path).is_empty();
    if !has_jobs || !empties(path, patience) {
        let _ = put(&path.join("cgroup.kill"), "1");
    }
    // A process that waits for a disk ends when it has been served.
    empties(path, Duration::from_secs(60));
}

/// Waits until no process is in the cgroup at `path`, no longer than `patience`; returns whether it is empty.
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
    // It fails if the cgroup is gone, or if the kernel cannot end a process in it.
    let _ = fs::remove_dir(path);
}

/// Writes `text` into the file at `path`, which exists.
pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
