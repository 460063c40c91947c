//! Finds the processes to watch, and notices their end.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::WatchTarget;

/// The interval between searches for processes of a name.
const SEARCH: Duration = Duration::from_secs(1);

/// Keeps the list of watched processes up to date.
#[derive(Debug)]
pub(super) struct ProcessFinder {
    subject: WatchTarget,
    known: BTreeSet<u32>,
    searched: Option<Duration>,
}

/// The difference between two searches.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct ProcessChange {
    /// Processes that are new.
    pub(super) found: Vec<u32>,
    /// Processes that have ended.
    pub(super) gone: Vec<u32>,
}

impl ProcessFinder {
    pub(super) fn new(subject: WatchTarget) -> ProcessFinder {
        ProcessFinder { subject, known: BTreeSet::new(), searched: None }
    }

    /// Searches for processes if the interval has passed at `now`.
    pub(super) fn search(&mut self, now: Duration) -> ProcessChange {
        if self.searched.is_some_and(|searched| now.saturating_sub(searched) < SEARCH) {
            return ProcessChange::default();
        }
        self.searched = Some(now);
        let there: BTreeSet<u32> = match &self.subject {
            WatchTarget::Process(process) => {
                [*process].into_iter().filter(|process| is_there(*process)).collect()
            }
            WatchTarget::Named(name) => {
                processes().filter(|process| is_named(*process, name.as_bytes())).collect()
            }
        };
        let change = ProcessChange {
            found: there.difference(&self.known).copied().collect(),
            gone: self.known.difference(&there).copied().collect(),
        };
        self.known = there;
        change
    }

    /// Returns whether the watch is over because the process that was given by its ID has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.subject, WatchTarget::Process(_))
            && self.searched.is_some()
            && self.known.is_empty()
    }
}

/// The most bytes of a command line that are read.
const MOST_LINE: u64 = 64 << 10;

/// Returns whether a process exists and is not a zombie.
fn is_there(process: u32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
        || match sys::process_file::read(process, "cmdline", 1) {
            Ok(line) => !line.is_empty(),
            // A process that hangs in the kernel exists.
            Err(error) => sys::process_file::is_stuck(&error),
        }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").ok().into_iter().flatten();
    entries
        .filter_map(|entry| str::from_utf8(entry.ok()?.file_name().as_bytes()).ok()?.parse().ok())
}

/// Returns whether a process has this name: `comm` of its main thread, or the last part of its first argument.
fn is_named(process: u32, name: &[u8]) -> bool {
    let Ok(own) = std::fs::read(format!("/proc/{process}/comm")) else { return false };
    let own = own.trim_ascii_end();
    // `comm` has at most fifteen bytes.
    if own != name.get(..15).unwrap_or(name) {
        return false;
    }
    if own == name {
        return is_there(process);
    }
    let line = sys::process_file::read(process, "cmdline", MOST_LINE).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    first.rsplit(|byte| *byte == b'/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_once_and_seen_to_go() {
        let ours = std::process::id();
        let mut finder = ProcessFinder::new(WatchTarget::Process(ours));
        assert_eq!(finder.search(Duration::ZERO).found, [ours]);
        assert_eq!(finder.search(Duration::ZERO), ProcessChange::default(), "it is not time yet");
        assert!(!finder.is_over());
        finder.subject = WatchTarget::Process(u32::MAX);
        assert_eq!(finder.search(2 * SEARCH).gone, [ours]);
        assert!(finder.is_over());
    }
}
