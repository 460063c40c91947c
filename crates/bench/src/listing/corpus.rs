//! A directory with many files, which is gone afterwards.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, openat};

use crate::lab::BenchError;
use sys::scratch::{self, TempDir};

/// Files are made in an order that is neither that of their names nor that of their numbers: by steps of this prime.
const STEP: u64 = 48_271;
/// Kinds of names, as people have them side by side.
const ENDINGS: [&str; 4] = ["jpg", "txt", "pdf", "flac"];

/// A directory with empty files.
#[derive(Debug)]
pub struct Corpus {
    scratch: TempDir,
    entries: u32,
}

impl Corpus {
    /// Makes `entries` files in a directory of their own in `parent`.
    ///
    /// # Errors
    ///
    /// The file system is full, or the user ended it; nothing is left.
    pub fn make(parent: &Path, entries: u32, stop: &AtomicBool) -> Result<Corpus, BenchError> {
        let cannot = |error: io::Error| BenchError::Peer {
            program: format!("the benchmark in {}", parent.display()),
            cause: error.to_string(),
        };
        let scratch = scratch::within(parent).map_err(cannot)?;
        let directory = File::open(scratch.path()).map_err(cannot)?;
        let count = u64::from(entries.max(1));
        for number in 0..count {
            if number.is_multiple_of(1000) && stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            let number = number * STEP % count;
            let ending = ENDINGS[usize::try_from(number % 4).unwrap_or(0)];
            let name = format!("item {number:07}.{ending}");
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&directory, &name, flags, Mode::from_raw_mode(0o644))
                .map_err(|error| cannot(error.into()))?;
        }
        Ok(Corpus { scratch, entries: entries.max(1) })
    }

    /// Returns where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns how many files it has.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_has_its_files_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let corpus = Corpus::make(dir.path(), 2000, &AtomicBool::new(false)).unwrap();
        assert_eq!(std::fs::read_dir(corpus.path()).unwrap().count(), 2000);
        drop(corpus);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let stopped = Corpus::make(dir.path(), 10, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(BenchError::Interrupted)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
