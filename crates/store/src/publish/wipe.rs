//! Takes a file away with what is in it: its blocks are overwritten before they are free.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::disk::{Disk, DiskFile};

/// How many bytes are overwritten at a time.
const AT_ONCE: u64 = 1 << 16;

/// Overwrites a file with zeros, durably, and removes it. File systems that copy on write, and flash devices, may keep the
/// old blocks until they are used again.
///
/// A symlink is removed and what it points to stays as it is; of a FIFO or a socket there is nothing to overwrite either.
///
/// # Errors
///
/// As `open(2)`, `write(2)` and `unlink(2)`; part of the file may be overwritten.
pub fn wipe(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.open_no_link(path) {
        Ok(mut file) if file.stat()?.is_file() => overwrite(&mut *file)?,
        Ok(_) => {}
        Err(error) if holds_nothing(&error) => {}
        Err(error) => return Err(error),
    }
    disk.remove(path)
}

/// Returns whether a file was not opened because it is a symlink, or a FIFO or socket that nobody reads.
fn holds_nothing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NXIO))
}

/// Returns whether a symlink stands at `path`, wherever it points. One that may not be followed is one.
///
/// # Errors
///
/// As `readlink(2)`.
pub fn is_link(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.read_link(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        Err(error) => Err(error),
    }
}

/// Overwrites every byte of an open file with zeros, durably.
pub(crate) fn overwrite(file: &mut dyn DiskFile) -> io::Result<()> {
    let len = file.stat()?.len;
    // A constant would be in each program that wipes.
    let zeros = vec![0; usize::try_from(len.min(AT_ONCE)).unwrap_or(0)];
    let mut at = 0;
    while at < len {
        let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(zeros.len());
        file.write_at(at, &zeros[..count])?;
        at += count as u64;
    }
    file.sync()
}
