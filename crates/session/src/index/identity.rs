//! Whether a file or a directory is the one that was looked at: not "newer than", so that rollbacks, Nix and OSTree (times 0 and 1) and files put in place of others are noticed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How many numbers an identity has in the index.
pub const NUMBERS: usize = 5;

/// What `stat` says of a file; the same numbers mean the same contents, but for a writer who sets the clock back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Identity(pub [u64; NUMBERS]);

impl Identity {
    /// What a path has at which there is nothing.
    pub const ABSENT: Identity = Identity([0; NUMBERS]);

    /// Looks at a path, links followed. What cannot be looked at counts as absent.
    #[must_use]
    pub fn of(path: &Path) -> Identity {
        std::fs::metadata(path).map_or(Identity::ABSENT, |found| Identity::of_metadata(&found))
    }

    /// Takes what was looked at already.
    #[must_use]
    pub fn of_metadata(found: &std::fs::Metadata) -> Identity {
        let ns = |seconds: i64, ns: i64| {
            seconds.wrapping_mul(1_000_000_000).wrapping_add(ns).cast_unsigned()
        };
        Identity([
            found.dev(),
            found.ino(),
            found.size(),
            ns(found.mtime(), found.mtime_nsec()),
            ns(found.ctime(), found.ctime_nsec()),
        ])
    }

    /// Takes what the system call said.
    pub(super) fn of_stat(found: &rustix::fs::Stat) -> Identity {
        let ns = |seconds: i64, ns: u64| {
            seconds.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(ns)
        };
        Identity([
            found.st_dev,
            found.st_ino,
            found.st_size.cast_unsigned(),
            ns(found.st_mtime, found.st_mtime_nsec),
            ns(found.st_ctime, found.st_ctime_nsec),
        ])
    }

    /// Returns the numbers as the index keeps them.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NUMBERS * 8] {
        let mut bytes = [0; NUMBERS * 8];
        for (place, number) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads the numbers back.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; NUMBERS * 8]) -> Identity {
        let mut identity = Identity::ABSENT;
        for (number, place) in identity.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*place);
        }
        identity
    }

    /// Returns how long the file is.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        self.0[2]
    }

    /// Says whether there is something.
    #[must_use]
    pub fn is_there(self) -> bool {
        self != Identity::ABSENT
    }
}
