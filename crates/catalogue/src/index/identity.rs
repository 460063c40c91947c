//! Whether a file or a directory is the one that was looked at: not "newer than", so that rollbacks, Nix and OSTree (times 0 and 1) and files put in place of others are noticed.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::unread::{Unread, UnreadCause};

/// How many numbers an identity has in the index.
pub const NUMBERS: usize = 5;

const SECOND: u64 = 1_000_000_000;

/// What `stat` says of a file; the same numbers mean the same contents, but for a writer who sets the clock back.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Identity(pub [u64; NUMBERS]);

impl Identity {
    /// What a path has at which there is nothing.
    pub const ABSENT: Identity = Identity([0; NUMBERS]);

    /// What a file is given that may change again and keep its numbers: no file has it, so it is looked at again.
    pub(crate) const UNSURE: Identity = Identity([u64::MAX; NUMBERS]);

    /// What a path is given that is not looked at again, because it is told of by the directory that it is in.
    pub(super) const UNWATCHED: Identity = Identity([u64::MAX - 1; NUMBERS]);

    /// What a path is given that this user may not read: it is as it was while that is so, whatever else changes.
    pub(super) const DENIED: Identity = Identity([u64::MAX - 2; NUMBERS]);

    /// Returns what a path is given that was not read: a change of the file is not all that can make it readable.
    pub(super) fn unless_read(self, unread: &Unread) -> Identity {
        match unread.cause() {
            UnreadCause::Itself => self,
            UnreadCause::Denied => Identity::DENIED,
            UnreadCause::Passing => Identity::UNSURE,
        }
    }

    /// Returns whether a path that has the identity `now` is still what this says of it.
    pub(super) fn is_still(self, now: Identity, directory: impl AsFd, path: impl Arg) -> bool {
        now == self || self == Identity::DENIED && is_denied(directory, path)
    }

    /// Looks at a path, and returns whether it is still what this says of it.
    pub(super) fn is_of(self, path: &Path) -> bool {
        self.is_still(Identity::of(path), CWD, path)
    }

    /// Looks at a path, links followed. What cannot be looked at counts as absent.
    #[must_use]
    pub fn of(path: &Path) -> Identity {
        std::fs::metadata(path).map_or(Identity::ABSENT, |found| Identity::of_metadata(&found))
    }

    /// Takes what was looked at already.
    #[must_use]
    pub(crate) fn of_metadata(found: &std::fs::Metadata) -> Identity {
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

    /// Returns this identity if every later change of the file gives it another one, else [`Identity::UNSURE`].
    ///
    /// `start` is what [`sys::file_clock`] said before the file was looked at: many kernels and file systems date all changes of a tick alike.
    #[must_use]
    pub(super) fn sure(self, start: u64) -> Identity {
        self.sure_between(start, sys::file_clock::now_ns)
    }

    fn sure_between(self, start: u64, now: impl Fn() -> u64) -> Identity {
        let changed = self.0[4];
        // FAT and some network file systems keep whole seconds, or every other one.
        let grain = if changed.is_multiple_of(SECOND) { 2 * SECOND } else { 0 };
        if !self.is_there() || changed.saturating_add(grain) < start {
            return self;
        }
        // A time that the clock has not reached is finer than its ticks: the kernel gives the next change of a file that
        // somebody looked at another one. Or it is of another machine's clock, or of one that was set back.
        if changed > now() { self } else { Identity::UNSURE }
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

    /// Returns whether these are the numbers of one file, at one time or two.
    pub(super) fn is_same_file(self, other: Identity) -> bool {
        self.is_there() && self.0[..2] == other.0[..2]
    }

    /// Returns whether there is something.
    #[must_use]
    pub fn is_there(self) -> bool {
        self != Identity::ABSENT
    }
}

/// Returns whether this user may not read what is at a path: without opening it, which a device would notice.
fn is_denied(directory: impl AsFd, path: impl Arg) -> bool {
    let read = accessat(directory, path, Access::READ_OK, AtFlags::EACCESS);
    matches!(read, Err(Errno::ACCESS | Errno::PERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_this_tick_is_not_sure_and_an_earlier_one_is() {
        let changed = |ns: u64| Identity([1, 2, 3, 4, ns]);
        let start = 1_000 * SECOND + 7;
        let now = start + 8_000_000;
        for (ns, is_sure) in [
            (start - 1, true),
            (start, false),
            (now, false),
            (now + 1, true),
            (999 * SECOND, false),
            (997 * SECOND, true),
            (0, true),
        ] {
            let sure = changed(ns).sure_between(start, || now);
            assert_eq!(sure == changed(ns), is_sure, "{ns}");
            assert_eq!(sure == Identity::UNSURE, !is_sure, "{ns}");
        }
        assert_eq!(Identity::ABSENT.sure(0), Identity::ABSENT);
    }
}
