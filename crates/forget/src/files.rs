//! Files of other programs: read with a bound, never one that could make the reader wait, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use store::disk::Disk;
use store::publish::publish;

use super::Trouble;

/// The largest file that is read as a whole.
const MOST_BYTES: u64 = 256 << 20;
/// The most names that are taken of one directory.
const MOST_NAMES: usize = 1_000_000;

/// Reads a regular file; nothing if there is none.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Trouble> {
    read_within(path, MOST_BYTES)
}

/// Reads a regular file of at most so many bytes; nothing if there is none.
pub(super) fn read_within(path: &Path, most: u64) -> Result<Vec<u8>, Trouble> {
    let unread = |source| Trouble::Unread { path: path.to_owned(), source };
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(unread)?,
    };
    let about = file.metadata().map_err(unread)?;
    if !about.is_file() {
        return Ok(Vec::new());
    }
    if about.len() > most {
        return Err(Trouble::TooLarge { path: path.to_owned(), len: about.len() });
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(unread)?;
    Ok(bytes)
}

/// Replaces a file.
pub(super) fn replace(disk: &dyn Disk, path: &Path, image: &[u8]) -> Result<(), Trouble> {
    publish(disk, path, image)
        .map(|_| ())
        .map_err(|error| Trouble::Unchanged { path: path.to_owned(), source: error.into() })
}

/// Removes a file; one that is gone is removed.
pub(super) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Trouble> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Trouble::Unchanged { path: path.to_owned(), source: error.into() })
        }
        _ => Ok(()),
    }
}

/// Returns the names in a directory in order; nothing if there is none.
pub(super) fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(MOST_NAMES);
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns the directories in a directory.
pub(super) fn directories(dir: &Path) -> Vec<PathBuf> {
    list(dir).into_iter().filter(|path| path.is_dir()).collect()
}

/// Returns the regular files in a directory, those behind symbolic links too.
pub(super) fn regular(dir: &Path) -> Vec<PathBuf> {
    list(dir).into_iter().filter(|path| path.is_file()).collect()
}

/// Returns the last part of a path as text, for a look at how it begins and ends.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
