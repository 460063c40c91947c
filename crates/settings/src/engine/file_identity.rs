//! The identity of a file, by which changes of other programs are noticed.

use std::io;
use std::path::Path;

use store::disk::{Disk, FileStat, PinnedFile};

/// The identity of a file when the service last read or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileIdentity {
    /// It is not known.
    Unknown,
    /// There was no file.
    Missing,
    /// There was this file.
    File(FileStat),
}

/// Returns the identity of the file at `path`.
pub(super) fn look(disk: &dyn Disk, path: &Path) -> io::Result<FileIdentity> {
    match disk.stat(path) {
        Ok(stat) => Ok(FileIdentity::File(stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileIdentity::Missing),
        Err(error) => Err(error),
    }
}

/// How often a file that changes while it is read is read again.
const TRIES: usize = 4;

/// The contents of a file, and its identity.
#[derive(Debug)]
pub(super) struct Contents {
    /// `None` if there is no file.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) seen: FileIdentity,
    /// The open file, which keeps its inode number from being reused: as long as it is held, a file with the same
    /// identity is the same file.
    pub(super) held: PinnedFile,
}

/// Reads a file together with its identity.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Contents> {
    for _ in 0..TRIES {
        let held = disk.hold(path);
        let before = look(disk, path)?;
        let bytes = match disk.read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if look(disk, path)? == before && bytes.is_some() == (before != FileIdentity::Missing) {
            return Ok(Contents { bytes, seen: before, held });
        }
    }
    // A program writes without end: use the present contents and check again later.
    let bytes = Some(disk.read(path)?);
    Ok(Contents { bytes, seen: FileIdentity::Unknown, held: PinnedFile::default() })
}
