//! The handover from a daemon that ends to the one that follows it on the same bus.
//!
//! A daemon that ends gives its name back first, so that no call is lost, and then stores what it has
//! accepted. Its successor may be started in between. A lock that both take before they touch a
//! database keeps the successor from reading files that are about to be replaced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The lock of one bus.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Names the lock of the bus with this id; a user with two buses has two daemons.
    pub(super) fn new(dir: &Path, bus_id: &str) -> Lock {
        Lock { path: dir.join(format!("dconf-{bus_id}.lock")) }
    }

    /// Waits for the lock. Without a directory for it there is none, which is logged.
    pub(super) fn hold(self) -> Option<Held> {
        match self.wait() {
            Ok(held) => Some(held),
            Err(error) => {
                tracing::warn!(path = ?self.path, %error, "cannot lock against a daemon that is still ending");
                None
            }
        }
    }

    fn wait(&self) -> io::Result<Held> {
        if let Some(dir) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&self.path)?;
            file.lock()?;
            // The one before us removes the file when it ends; a lock on a file without a name locks nobody out.
            let still_named = fs::metadata(&self.path)
                .is_ok_and(|named| file.metadata().is_ok_and(|ours| same(&named, &ours)));
            if still_named {
                return Ok(Held { path: self.path.clone(), file });
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Removed while it is locked, so that nobody can have taken it in between.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

fn same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use super::*;

    #[test]
    fn the_successor_waits_until_its_predecessor_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::new(dir.path(), "bus").wait().unwrap();
        let path = dir.path().to_owned();
        let (sender, receiver) = std::sync::mpsc::channel();
        let second = std::thread::spawn(move || {
            let held = Lock::new(&path, "bus").wait().unwrap();
            sender.send("second").unwrap();
            drop(held);
        });
        let another_bus = Lock::new(dir.path(), "another").wait().unwrap();
        assert!(receiver.try_recv().is_err(), "the lock did not hold");
        drop(first);
        assert_eq!(receiver.recv().unwrap(), "second");
        second.join().unwrap();
        drop(another_bus);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
