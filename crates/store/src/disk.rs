//! The disk as `store` uses it: a trait small enough to simulate, and the real one.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `stat` says of a file, as far as `store` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device and inode number: which file it is.
    pub identity: (u64, u64),
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the contents, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Time of the last change of the inode, in nanoseconds since 1970.
    pub ctime_ns: i128,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

/// An open file.
pub trait DiskFile: Debug + Send {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    ///
    /// After an error any prefix of `bytes` may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the contents and the length durable (`fdatasync`).
    ///
    /// # Errors
    ///
    /// Final for this file: the kernel may have dropped what was not written.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file system, by absolute paths. No call waits for anything but the disk.
pub trait Disk: Debug + Send + Sync {
    /// Reads a whole file.
    ///
    /// # Errors
    ///
    /// As `read(2)`; nothing is changed.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Describes the file at `path`, following symlinks.
    ///
    /// # Errors
    ///
    /// As `stat(2)`.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Returns where the symlink at `path` points, an error if it is none.
    ///
    /// # Errors
    ///
    /// As `readlink(2)`.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Returns the names in a directory, unsorted.
    ///
    /// # Errors
    ///
    /// As `readdir(3)`.
    fn list(&self, dir: &Path) -> io::Result<Vec<std::ffi::OsString>>;
    /// Makes one directory with these permission bits.
    ///
    /// # Errors
    ///
    /// As `mkdir(2)`.
    fn create_dir(&self, dir: &Path, mode: u32) -> io::Result<()>;
    /// Creates a new file with these permission bits; it must not exist.
    ///
    /// # Errors
    ///
    /// As `open(2)` with `O_CREAT | O_EXCL`.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file to write into it.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives `to` the owner, mode, ACL and extended attributes of `from`, as far as we may.
    ///
    /// # Errors
    ///
    /// The first refusal; what could be copied is copied.
    fn copy_attributes(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a new file `to` with the contents of `from`, sharing blocks where the file system can.
    ///
    /// # Errors
    ///
    /// `to` may exist in part after an error.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames `from` to `to`, replacing it.
    ///
    /// # Errors
    ///
    /// As `rename(2)`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    ///
    /// As `unlink(2)`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// As `fsync(2)` on the directory.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// Returns this machine's file systems.
#[must_use]
pub fn real() -> Arc<dyn Disk> {
    todo!()
}
