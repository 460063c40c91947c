//! What every part of the real disk asks of an open file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{self, AtFlags, StatxFlags};

use super::FileStat;

/// Reads `len` bytes at `at`, fewer where the file ends.
pub(super) fn read_exactly(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Describes an open file.
pub(super) fn stat_of(file: &File) -> io::Result<FileStat> {
    Ok(from_statx(&fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?))
}

/// Turns what `statx` said into a description.
pub(super) fn from_statx(stat: &fs::Statx) -> FileStat {
    let nanoseconds = |time: fs::StatxTimestamp| {
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    FileStat {
        identity: (fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
        len: stat.stx_size,
        mtime_ns: nanoseconds(stat.stx_mtime),
        ctime_ns: nanoseconds(stat.stx_ctime),
        mode: u32::from(stat.stx_mode),
        owner: (stat.stx_uid, stat.stx_gid),
    }
}
