//! Takes a file away with what is in it: its blocks are overwritten before they are free.

use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile};

/// How much is overwritten at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Overwrites a file with zeros, durably, and removes it. File systems that copy on write, and flash devices, may keep the
/// old blocks until they are used again.
///
/// # Errors
///
/// As `open(2)`, `write(2)` and `unlink(2)`; part of the file may be overwritten.
pub fn wipe(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    overwrite(&mut *disk.open(path)?)?;
    disk.remove(path)
}

/// Overwrites every byte of an open file with zeros, durably.
pub(crate) fn overwrite(file: &mut dyn DiskFile) -> io::Result<()> {
    let len = file.stat()?.len;
    let mut at = 0;
    while at < len {
        let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_at(at, &ZEROS[..count])?;
        at += count as u64;
    }
    file.sync()
}
