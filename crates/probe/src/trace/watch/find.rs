//! Finds the processes that are to be watched, and sees them go.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::Subject;

/// How often processes of a name are looked for.
const SEARCH: Duration = Duration::from_secs(1);

/// Keeps the list of watched processes up to date.
#[derive(Debug)]
pub(super) struct Finder {
    subject: Subject,
    known: BTreeSet<u32>,
    searched: Option<Duration>,
}

/// What changed.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Change {
    /// Processes that are there now.
    pub(super) found: Vec<u32>,
    /// Processes that are gone.
    pub(super) gone: Vec<u32>,
}

impl Finder {
    pub(super) fn new(subject: Subject) -> Finder {
        Finder { subject, known: BTreeSet::new(), searched: None }
    }

    /// Looks for processes if it is time to, at `now`.
    pub(super) fn search(&mut self, now: Duration) -> Change {
        if self.searched.is_some_and(|searched| now.saturating_sub(searched) < SEARCH) {
            return Change::default();
        }
        self.searched = Some(now);
        let there: BTreeSet<u32> = match &self.subject {
            Subject::Process(process) => {
                [*process].into_iter().filter(|process| is_there(*process)).collect()
            }
            Subject::Named(name) => {
                processes().filter(|process| is_named(*process, name.as_bytes())).collect()
            }
        };
        let change = Change {
            found: there.difference(&self.known).copied().collect(),
            gone: self.known.difference(&there).copied().collect(),
        };
        self.known = there;
        change
    }

    /// Says whether nothing can come any more: the process that was given by its number has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.subject, Subject::Process(_))
            && self.searched.is_some()
            && self.known.is_empty()
    }
}

/// Says whether a process is there and not only waits for its parent to notice its end.
fn is_there(process: u32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok()
        || std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").ok().into_iter().flatten();
    entries
        .filter_map(|entry| str::from_utf8(entry.ok()?.file_name().as_bytes()).ok()?.parse().ok())
}

/// Says whether a process has this name: the kernel's for its first thread, or the last part of its first argument.
fn is_named(process: u32, name: &[u8]) -> bool {
    let Ok(own) = std::fs::read(format!("/proc/{process}/comm")) else { return false };
    let own = own.trim_ascii_end();
    // The kernel keeps fifteen bytes.
    if own != name.get(..15).unwrap_or(name) {
        return false;
    }
    if own == name {
        return is_there(process);
    }
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    first.rsplit(|byte| *byte == b'/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_once_and_seen_to_go() {
        let ours = std::process::id();
        let mut finder = Finder::new(Subject::Process(ours));
        assert_eq!(finder.search(Duration::ZERO).found, [ours]);
        assert_eq!(finder.search(Duration::ZERO), Change::default(), "it is not time yet");
        assert!(!finder.is_over());
        finder.subject = Subject::Process(u32::MAX);
        assert_eq!(finder.search(2 * SEARCH).gone, [ours]);
        assert!(finder.is_over());
    }
}
