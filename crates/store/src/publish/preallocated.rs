//! A temporary file in memory that is made before it is needed, so that a publish need not wait for its pages.

use std::io;
use std::path::Path;

use super::resolve::{self, directory_of};
use crate::disk::{Disk, DiskFile};

/// What is reserved beyond the expected length, in bytes: a change makes an image a little longer.
const SLACK: u64 = 4096;

/// An empty file without a name in whose memory the next image of a file is written.
///
/// Taking new pages costs most of the time of writing a small image to tmpfs. The file is used for one publish at most, and
/// nobody else has ever opened it; without a name it is gone when it is dropped or its process ends.
#[derive(Debug)]
pub struct PreallocatedFile {
    pub(super) file: Box<dyn DiskFile>,
}

impl PreallocatedFile {
    /// Makes one for an image of about `len` bytes of the file at `path`, in its directory, which has to exist.
    ///
    /// # Errors
    ///
    /// As [`Disk::create_in_memory`], above all [`io::ErrorKind::Unsupported`] if the directory is not in memory: there the
    /// pages would not be new ones later, or the bytes would be written twice. Nothing is left.
    pub fn make(disk: &dyn Disk, path: &Path, len: u64) -> io::Result<PreallocatedFile> {
        let target = resolve::target(disk, path)?;
        let file = disk.create_in_memory(directory_of(&target), len.saturating_add(SLACK))?;
        Ok(PreallocatedFile { file })
    }
}
