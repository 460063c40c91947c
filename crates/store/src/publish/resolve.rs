//! Where a published file really is: symlinks followed, directories made.

use std::io;
use std::path::{Path, PathBuf};

use super::Promise;
use crate::disk::Disk;

/// As many symlinks in a row as the kernel follows.
const MAX_LINKS: usize = 40;

/// Follows the symlinks at `path` to the name that a rename has to replace. The last target need not exist.
pub(crate) fn target(disk: &dyn Disk, path: &Path) -> io::Result<PathBuf> {
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
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Makes the directories above a target that is not there yet, and makes their names durable.
///
/// Those that exist are synced too: whoever made them, an earlier attempt of ours that failed half-way or another
/// program a moment ago, may not have.
pub(crate) fn make_parents(disk: &dyn Disk, target: &Path, promise: Promise) -> io::Result<()> {
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
            // Another process was quicker; its directory is as good.
            Ok(()) | Err(_) => {}
        }
    }
    match promise {
        Promise::PowerCut => sync_above(disk, directory_of(target)),
        Promise::Process | Promise::Readers => Ok(()),
    }
}

/// Makes the name of `dir` and those of the directories above it durable.
fn sync_above(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let mut at = dir;
    loop {
        let above = directory_of(at);
        if above == at {
            return Ok(());
        }
        match disk.sync_dir(above) {
            // What we may not even open we did not make, nor did anything of this user.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            other => other?,
        }
        at = above;
    }
}
