//! Files without a name whose memory is reserved before it is known what they will hold.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::file::{RealFile, is_in_memory};
use super::{DiskFile, FileStat};

/// Creates such a file in the file system of `dir`, if that is in memory.
pub(super) fn create(dir: &Path, len: u64) -> io::Result<Box<dyn DiskFile>> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = File::from(fs::open(dir, flags, Mode::from_raw_mode(0o600))?);
    if !is_in_memory(file.as_fd()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The file stays empty: until it has all of an image, it has nothing that could be taken for one.
    fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, len)?;
    // As for every temporary file: when it has a name, the lock says that its writer lives.
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(_) => Ok(Box::new(MemoryFile { file: RealFile::of(file), reserved: len })),
    }
}

/// A file for which memory is reserved.
#[derive(Debug)]
struct MemoryFile {
    file: RealFile,
    /// For how many bytes.
    reserved: u64,
}

impl DiskFile for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // No memory is taken for these bytes, so that nothing speaks for small calls.
        let len = usize::try_from(self.reserved.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (reserved, more) = bytes.split_at(len.min(bytes.len()));
        self.file.as_file().write_all_at(reserved, offset)?;
        self.file.write_at(offset + reserved.len() as u64, more)
    }

    fn copy_attributes(&mut self, from: &Path, stat: &FileStat) -> io::Result<()> {
        self.file.copy_attributes(from, stat)
    }

    fn share_from(&mut self, from: &Path) -> io::Result<()> {
        self.file.share_from(from)
    }

    fn copy_from(&mut self, from: &Path) -> io::Result<()> {
        self.file.copy_from(from)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.file.stat()
    }

    fn give_name(&mut self, path: &Path) -> io::Result<()> {
        let file = self.file.as_file();
        match fs::linkat(file, "", CWD, path, AtFlags::EMPTY_PATH) {
            // Before Linux 6.10 only a process with CAP_DAC_READ_SEARCH may say it like that.
            Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {
                let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                Ok(fs::linkat(CWD, link, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
            }
            other => Ok(other?),
        }
    }
}
