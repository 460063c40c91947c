//! Checks which documents still exist, without waiting for a file system that does not answer.
//!
//! Every look is made by a thread of its own kind: who asks waits for a short time in all, and a thread that hangs is
//! left behind, with the documents of its file system unknown.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sys::mounts::Mounts;

use super::RecentEntry;
use sys::clock::Clock;

/// The number of threads for one file system.
const THREADS: usize = 2;
/// The most file systems that are checked; documents on others are unknown.
const MOST_MOUNTS: usize = 16;

/// Whether a document exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    /// It is there.
    There,
    /// It is not.
    Gone,
    /// It is on another machine, its file system did not answer in time, or we may not look.
    Unknown,
}

/// Checks documents for `patience` in all; returns a result for each, in order.
#[must_use]
pub fn existence(
    entries: &[&RecentEntry],
    patience: Duration,
    clock: &dyn Clock,
) -> Vec<Existence> {
    look_at(entries.iter().map(|entry| entry.uri.to_path()), patience, clock, |path| {
        path.symlink_metadata().map(|_| ())
    })
}

fn look_at(
    paths: impl Iterator<Item = Option<PathBuf>>,
    patience: Duration,
    clock: &dyn Clock,
    look: fn(&PathBuf) -> io::Result<()>,
) -> Vec<Existence> {
    let mounts = Mounts::read().unwrap_or_default();
    let mut by_mount = BTreeMap::<u64, Vec<(usize, PathBuf)>>::new();
    let mut count = 0;
    for path in paths {
        if let Some(path) = path {
            // By the text of the path alone: every other way asks the file system.
            let mount = mounts.above(&path).map_or(0, |mount| mount.id);
            by_mount.entry(mount).or_default().push((count, path));
        }
        count += 1;
    }
    let mut found = vec![Existence::Unknown; count];
    let mut left = by_mount.values().take(MOST_MOUNTS).map(Vec::len).sum::<usize>();
    let answers = start(by_mount, look);
    let end = clock.monotonic() + patience;
    while left > 0 {
        let Ok((index, answer)) = answers.recv_timeout(end.saturating_sub(clock.monotonic()))
        else {
            break;
        };
        found[index] = answer;
        left -= 1;
    }
    found
}

/// Starts the threads of each file system; they end when the receiver is gone.
fn start(
    by_mount: BTreeMap<u64, Vec<(usize, PathBuf)>>,
    look: fn(&PathBuf) -> io::Result<()>,
) -> Receiver<(usize, Existence)> {
    let (send, answers) = channel();
    for paths in by_mount.into_values().take(MOST_MOUNTS) {
        let threads = THREADS.min(paths.len());
        let todo = Arc::new(Mutex::new(paths.into_iter()));
        for _ in 0..threads {
            let (todo, send) = (todo.clone(), send.clone());
            let work = move || {
                loop {
                    let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((index, path)) = next else { return };
                    let answer = match look(&path) {
                        Ok(()) => Existence::There,
                        Err(error)
                            if matches!(
                                error.kind(),
                                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                            ) =>
                        {
                            Existence::Gone
                        }
                        Err(_) => Existence::Unknown,
                    };
                    if send.send((index, answer)).is_err() {
                        return;
                    }
                }
            };
            // Without a thread its documents stay unknown.
            let _ = std::thread::Builder::new().name("existence".to_owned()).spawn(work);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::clock::SystemClock;

    #[test]
    fn what_is_there_and_what_is_gone_is_told_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().to_owned();
        let paths = [Some(there.clone()), None, Some(there.join("gone")), Some("/proc".into())];
        let clock = SystemClock::start();
        let found = look_at(paths.into_iter(), Duration::from_secs(60), &clock, |path| {
            path.symlink_metadata().map(|_| ())
        });
        use Existence::{Gone, There, Unknown};
        assert_eq!(found, [There, Unknown, Gone, There]);
    }

    #[test]
    fn a_file_system_that_hangs_holds_up_nobody() {
        let clock = SystemClock::start();
        // A look that never ends; what is on another file system is found all the same.
        let look = |path: &PathBuf| {
            if path.starts_with("/proc") {
                return Ok(());
            }
            loop {
                std::thread::park();
            }
        };
        let paths = ["/a", "/b", "/c", "/proc/self"].map(|path| Some(PathBuf::from(path)));
        let found = look_at(paths.into_iter(), Duration::from_secs(1), &clock, look);
        use Existence::{There, Unknown};
        assert_eq!(found, [Unknown, Unknown, Unknown, There]);
    }
}
