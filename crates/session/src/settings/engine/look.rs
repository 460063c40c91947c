//! Looking at a file that another program may have changed.

use std::io;
use std::path::Path;

use store::disk::{Disk, Held, Stat};

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

/// What a file holds, and what it is.
#[derive(Debug)]
pub(super) struct Contents {
    /// `None` if there is no file.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) seen: Seen,
    /// Keeps the number of the file that was seen from being given to another one: as long as this is held, a file that
    /// looks the same is the same.
    pub(super) held: Held,
}

/// Reads a file together with what it is.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Contents> {
    for _ in 0..TRIES {
        let held = disk.hold(path);
        let before = look(disk, path)?;
        let bytes = match disk.read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if look(disk, path)? == before && bytes.is_some() == (before != Seen::Missing) {
            return Ok(Contents { bytes, seen: before, held });
        }
    }
    // Somebody writes without end; take what is there and look again next time.
    let bytes = Some(disk.read(path)?);
    Ok(Contents { bytes, seen: Seen::Unknown, held: Held::default() })
}
