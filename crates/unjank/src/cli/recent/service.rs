//! Services that keep files open which are to be cleaned: found by these files, and asked to end. Their bus starts them
//! again when somebody needs them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::process::MeasuredProcess;

/// KDE's activity service, as far as the kernel keeps its name.
pub(super) const ACTIVITIES: &str = "kactivitymanage";
/// The service of GNOME's notes on files.
pub(super) const METADATA: &str = "gvfsd-metadata";
/// How long its end is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends the user's services of this name that have one of these files open; returns the numbers of those that ended.
pub(super) fn end(name: &str, files: &[PathBuf]) -> Vec<u32> {
    let user = rustix::process::getuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ended = Vec::new();
    for entry in entries {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|about| about.uid() == user);
        // Held first, so that what is looked at is what is ended.
        let Some(process) = is_ours.then(|| MeasuredProcess::open(number).ok()).flatten() else {
            continue;
        };
        let is_service =
            fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name);
        if is_service
            && has_open(&entry.path(), files)
            && process.terminate().is_ok()
            && process.wait(PATIENCE).unwrap_or(false)
        {
            ended.push(number);
        }
    }
    ended
}

fn has_open(process: &Path, files: &[PathBuf]) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| files.contains(&target))
}
