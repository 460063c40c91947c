//! Where a published file really is: symlinks followed, directories made.

use std::io;
use std::path::{Path, PathBuf};

use super::Promise;
use crate::disk::Disk;

/// As many symlinks in a row as the kernel follows.
const MAX_LINKS: usize = 40;

/// Follows the symlinks at `path` to the name that a rename has to replace. The last target need not exist.
pub(super) fn target(disk: &dyn Disk, path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match disk.read_link(&target) {
            // An absolute link replaces the whole path, a relative one starts in the link's directory.
            Ok(next) => target = directory_of(&target).join(next),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::InvalidInput | io::ErrorKind::NotFound => Ok(target),
                    _ => Err(error),
                };
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "too many symlinks in a row"))
}

/// Returns the directory that holds `path`.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Makes the directories above `target` that are missing, the outermost first.
pub(super) fn make_parents(disk: &dyn Disk, target: &Path, promise: Promise) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = directory_of(target);
    loop {
        match disk.stat(at) {
            Ok(stat) if stat.is_dir() => break,
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(at),
            Err(error) => return Err(error),
        }
        let above = directory_of(at);
        if above == at {
            break;
        }
        at = above;
    }
    for dir in missing.into_iter().rev() {
        match disk.create_dir(dir, 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // Another process was quicker; its directory is as good, once it is durable.
            Ok(()) | Err(_) => {}
        }
        if promise == Promise::PowerCut {
            disk.sync_dir(directory_of(dir))?;
        }
    }
    Ok(())
}
