//! Replaces a file as a whole: readers see the old one or the new one, and so does a restart.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Stat};

/// Why a publish did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Readers still see the old file, and so will a restart.
    #[error("cannot {step} {path:?}")]
    NotReplaced {
        /// What was being done: `create`, `write`, `sync` or `replace`.
        step: &'static str,
        /// The file that was to be replaced.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Readers see the new file; after a power cut either may be found.
    #[error("{path:?} was replaced but may not survive a power cut")]
    NotDurable {
        /// The file that was replaced.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
}

/// Replaces the file at `path` with `image`, and returns what `stat` says of the new one.
///
/// A symlink stays a symlink: its target is replaced, in the target's directory. Mode, owner, ACL and extended
/// attributes are kept; a new file gets 0600. Missing directories are made (0700) and synced.
///
/// # Errors
///
/// The variant says which file is in place.
pub fn publish(disk: &dyn Disk, path: &Path, image: &[u8]) -> Result<Stat, PublishError> {
    let _ = (disk, path, image);
    todo!()
}
