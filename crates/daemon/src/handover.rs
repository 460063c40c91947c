//! The handover from a daemon that ends to the one that follows it on the same bus.
//!
//! A daemon that ends gives its name back first, so that no call is lost, and then stores what it has
//! accepted. Its successor may be started in between. A lock that both take before they touch a
//! database keeps the successor from reading files that are about to be replaced.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use settings::engine::{ChangeError, ErrorKind};

/// How long a predecessor may take to end: less than a person waits for an answer.
const PATIENT: Duration = Duration::from_secs(4);
/// How often in a row a running predecessor may take that long, on a slow disk: less than a program waits for its answer.
const MOST_PATIENT: u32 = 5;

/// The lock of one bus.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// What the thread that waits for the lock returns.
    waiting: Option<Receiver<io::Result<HeldLock>>>,
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct HeldLock {
    path: PathBuf,
    file: File,
}

/// The result of waiting for a predecessor.
#[derive(Debug)]
pub(super) enum Handover {
    /// It has ended.
    Done(HeldLock),
    /// It is not known, because the lock cannot be used; that was logged.
    Unknown,
    /// It does not end: no database may be opened yet.
    Stuck(ChangeError),
}

impl Lock {
    /// Names the lock of the bus with this id; a user with two buses has two daemons.
    pub(super) fn new(dir: &Path, bus_id: &str) -> Lock {
        Lock { path: dir.join(format!("dconf-{bus_id}.lock")), waiting: None }
    }

    /// Waits until the predecessor has ended, but no longer than a program waits for its answer.
    pub(super) fn wait(&mut self) -> Handover {
        self.wait_for(PATIENT)
    }

    fn wait_for(&mut self, patience: Duration) -> Handover {
        let waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match try_lock(&self.path) {
                Ok(Some(held)) => return Handover::Done(held),
                Ok(None) => match wait_on_a_thread(self.path.clone()) {
                    Ok(waiting) => waiting,
                    Err(error) => return Handover::Stuck(cannot_wait(&error)),
                },
                Err(error) => return self.unknown(&error),
            },
        };
        for _ in 0..MOST_PATIENT {
            match waiting.recv_timeout(patience) {
                Ok(Ok(held)) => return Handover::Done(held),
                Ok(Err(error)) => return self.unknown(&error),
                Err(RecvTimeoutError::Timeout) if self.holder_goes_on() => {}
                Err(_) => break,
            }
        }
        self.waiting = Some(waiting);
        Handover::Stuck(self.still_there())
    }

    fn unknown(&self, error: &io::Error) -> Handover {
        tracing::warn!(path = ?self.path, %error, "cannot lock against a daemon that is still ending");
        Handover::Unknown
    }

    fn holder(&self) -> Option<u32> {
        let stat = fs::metadata(&self.path).ok()?;
        sys::locks::holder((stat.dev(), stat.ino()))
    }

    fn holder_goes_on(&self) -> bool {
        self.holder().is_some_and(sys::locks::goes_on)
    }

    fn still_there(&self) -> ChangeError {
        let who = match self.holder() {
            Some(pid) if sys::locks::goes_on(pid) => format!("process {pid}, has not ended"),
            Some(pid) => format!("process {pid}, is stopped"),
            None => "which cannot be found, has not ended".to_owned(),
        };
        let text = format!(
            "cannot take over from the settings service before this one: it, {who}; nothing was changed"
        );
        ChangeError { kind: ErrorKind::Busy, text }
    }
}

fn cannot_wait(error: &io::Error) -> ChangeError {
    let text = format!(
        "cannot wait for the settings service before this one: {error}; nothing was changed"
    );
    ChangeError { kind: ErrorKind::Failed, text }
}

/// Waits for the lock on a thread of its own, because the kernel has no time limit for that.
fn wait_on_a_thread(path: PathBuf) -> io::Result<Receiver<io::Result<HeldLock>>> {
    let (sender, waiting) = mpsc::channel();
    // It fails if this daemon has ended: the lock is then released.
    let wait = move || drop(sender.send(wait_for_lock(&path)));
    sys::thread::spawn("handover", wait)?;
    Ok(waiting)
}

/// Acquires the lock if it is free.
fn try_lock(path: &Path) -> io::Result<Option<HeldLock>> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    loop {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) if is_in_place(path, &file) => {
                return Ok(Some(HeldLock { path: path.to_owned(), file }));
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn wait_for_lock(path: &Path) -> io::Result<HeldLock> {
    loop {
        let file = open(path)?;
        file.lock()?;
        if is_in_place(path, &file) {
            return Ok(HeldLock { path: path.to_owned(), file });
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// The predecessor removes the file when it ends; a lock on a removed file excludes nobody.
fn is_in_place(path: &Path, file: &File) -> bool {
    let same = |one: &fs::Metadata, other: &fs::Metadata| {
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    };
    fs::metadata(path).is_ok_and(|named| file.metadata().is_ok_and(|ours| same(&named, &ours)))
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // The file is removed while it is locked, so that no other daemon can acquire it in between.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use super::*;

    fn hold(dir: &Path, bus: &str) -> HeldLock {
        match Lock::new(dir, bus).wait_for(Duration::from_secs(60)) {
            Handover::Done(held) => held,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_successor_waits_until_its_predecessor_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let first = hold(dir.path(), "bus");
        let path = dir.path().to_owned();
        let (sender, receiver) = std::sync::mpsc::channel();
        let second = std::thread::spawn(move || {
            let held = hold(&path, "bus");
            sender.send("second").unwrap();
            drop(held);
        });
        let another_bus = hold(dir.path(), "another");
        assert!(receiver.try_recv().is_err(), "the lock did not hold");
        drop(first);
        assert_eq!(receiver.recv().unwrap(), "second");
        second.join().unwrap();
        drop(another_bus);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn a_predecessor_that_never_ends_is_an_error_until_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let first = hold(dir.path(), "bus");
        let mut lock = Lock::new(dir.path(), "bus");
        for _ in 0..2 {
            let Handover::Stuck(error) = lock.wait_for(Duration::from_millis(1)) else {
                panic!("two have the lock")
            };
            assert!(error.text.contains(&std::process::id().to_string()), "{}", error.text);
        }
        drop(first);
        assert!(matches!(lock.wait_for(Duration::from_secs(60)), Handover::Done(_)));
    }
}
