//! Looking at a file that another program may have changed.

use std::io;
use std::path::Path;

use store::disk::{Disk, Stat};

/// What a file was when we last read or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// We cannot tell.
    Unknown,
    /// It was not there.
    Missing,
    /// It was this one.
    File(Stat),
}

/// Says what is at `path` now.
pub(super) fn look(disk: &dyn Disk, path: &Path) -> io::Result<Seen> {
    match disk.stat(path) {
        Ok(stat) => Ok(Seen::File(stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Seen::Missing),
        Err(error) => Err(error),
    }
}

/// How often a file that changes while it is read is read again.
const TRIES: usize = 4;

/// Reads a file together with what it is; `None` if there is none.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<(Option<Vec<u8>>, Seen)> {
    for _ in 0..TRIES {
        let before = look(disk, path)?;
        let bytes = match disk.read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if look(disk, path)? == before && bytes.is_some() == (before != Seen::Missing) {
            return Ok((bytes, before));
        }
    }
    // Somebody writes without end; take what is there and look again next time.
    Ok((Some(disk.read(path)?), Seen::Unknown))
}
