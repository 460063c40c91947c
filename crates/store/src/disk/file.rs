//! An open file of this machine's file systems.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs;
use rustix::io::Errno;

use sys::regular_file;

use super::opened::stat_of;
use super::{DiskFile, FileStat, attributes};

/// How many bytes are written in one call.
///
/// A file system takes memory in blocks as large as the call. Large ones come from where nobody has been for long, and a virtual machine has to fetch each of their pages from its host: that takes longer than all the calls.
const WRITE_LEN: usize = 64 << 10;

/// The type of tmpfs.
pub(super) const TMPFS: u32 = 0x0102_1994;

/// An open file of the real disk.
#[derive(Debug)]
pub(super) struct RealFile(pub(super) File);

impl RealFile {
    pub(super) fn of(file: File) -> RealFile {
        RealFile(file)
    }

    pub(super) fn as_file(&self) -> &File {
        &self.0
    }
}

impl DiskFile for RealFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (chunk, at) in bytes.chunks(WRITE_LEN).zip((offset..).step_by(WRITE_LEN)) {
            self.0.write_all_at(chunk, at)?;
        }
        Ok(())
    }

    fn copy_attributes(&mut self, from: &Path, stat: &FileStat) -> io::Result<()> {
        attributes::copy(from, stat, &self.0)
    }

    fn share_from(&mut self, from: &Path) -> io::Result<()> {
        match fs::ioctl_ficlone(&self.0, regular_file::open(from)?) {
            Err(
                Errno::OPNOTSUPP
                | Errno::NOTTY
                | Errno::XDEV
                | Errno::INVAL
                | Errno::NOSYS
                | Errno::PERM,
            ) => Err(io::ErrorKind::Unsupported.into()),
            other => Ok(other?),
        }
    }

    fn copy_from(&mut self, from: &Path) -> io::Result<()> {
        // `copy` uses copy_file_range and falls back to reading and writing.
        io::copy(&mut regular_file::open(from)?, &mut self.0).map(|_| ())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn start_writeback(&self) {
        let _ = sys::sched::start_writeback(&self.0, 0, 0);
    }

    fn stat(&self) -> io::Result<FileStat> {
        stat_of(&self.0)
    }
}

/// Says whether an open file is on tmpfs or ramfs.
pub(super) fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    const KINDS: [u32; 2] = [TMPFS, 0x8584_58f6];
    fs::fstatfs(file).is_ok_and(|stat| KINDS.contains(&kind_of(&stat)))
}

/// Returns the type of a file system: a number of 32 bits, which some architectures sign.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "32 bits count")]
pub(super) fn kind_of(stat: &fs::StatFs) -> u32 {
    stat.f_type as u32
}
