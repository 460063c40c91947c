//! What is at a path now, as far as it matters whose it is.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use store::disk::Disk;

use crate::plan::PlannedContents;

/// A longer file is not kept in a manifest.
pub(crate) const LONGEST_KEPT: usize = 1 << 20;

/// What tells one content of a path from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Fingerprint {
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
        /// The checksum of its bytes.
        crc32c: u32,
    },
    /// A symlink.
    Link {
        /// Where it points.
        target: String,
    },
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its permission bits.
        mode: u32,
    },
    /// A symlink.
    Link(PathBuf),
    /// A directory, a device and so on.
    Other,
}

impl Observed {
    /// Looks at a path; a symlink is not followed.
    pub(crate) fn at(disk: &dyn Disk, path: &Path) -> io::Result<Observed> {
        match disk.read_link(path) {
            Ok(target) => return Ok(Observed::Link(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Observed::Absent),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Ok(Observed::Absent);
            }
            // It is no symlink.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
        let stat = disk.stat(path)?;
        if stat.is_dir() {
            return Ok(Observed::Other);
        }
        match disk.read(path) {
            Ok(bytes) => Ok(Observed::File { bytes, mode: stat.mode & 0o7777 }),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Observed::Other),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            Observed::File { bytes, .. } => Some(Fingerprint::of(bytes)),
            Observed::Link(target) => {
                target.to_str().map(|target| Fingerprint::Link { target: target.to_owned() })
            }
            Observed::Absent | Observed::Other => None,
        }
    }
}

impl Fingerprint {
    pub(crate) fn of(bytes: &[u8]) -> Fingerprint {
        Fingerprint::File { len: bytes.len() as u64, crc32c: crc32c::crc32c(bytes) }
    }

    /// Returns that of what is to be put in place.
    pub(crate) fn planned(disk: &dyn Disk, contents: &PlannedContents) -> io::Result<Fingerprint> {
        Ok(match contents {
            PlannedContents::Text(text) => Fingerprint::of(text),
            PlannedContents::CopyOf(from) => Fingerprint::of(&disk.read(from)?),
            PlannedContents::Link(target) => {
                let target = target.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                Fingerprint::Link { target: target.to_owned() }
            }
        })
    }
}
