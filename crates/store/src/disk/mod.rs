//! The disk as `store` uses it: a trait small enough to simulate, and the real one.

mod attributes;
mod file;
mod log;
mod memory;
mod opened;
mod real;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What `stat` says of a file, as far as `store` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
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

impl FileStat {
    /// Tells whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// Tells whether this is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// An open file.
pub trait DiskFile: Debug + Send {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    ///
    /// After an error any prefix of `bytes` may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Gives this file the owner, mode, ACL and extended attributes of `from`, which is `stat`, as far as we may: a
    /// refusal for lack of privilege or support is no error, and leaves this file no more open than `from`.
    ///
    /// # Errors
    ///
    /// The first failure of the disk; what could be copied is copied.
    fn copy_attributes(&mut self, from: &Path, stat: &FileStat) -> io::Result<()>;

    /// Fills this empty file with the contents of `from` by sharing its blocks.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the file system cannot share blocks; the file stays empty.
    fn share_from(&mut self, from: &Path) -> io::Result<()>;

    /// Fills this empty file with the contents of `from`.
    ///
    /// # Errors
    ///
    /// After an error a part may have been copied.
    fn copy_from(&mut self, from: &Path) -> io::Result<()>;

    /// Makes the contents, the length and the attributes durable (`fsync`).
    ///
    /// # Errors
    ///
    /// Final for this file: the kernel may have dropped what was not written.
    fn sync(&mut self) -> io::Result<()>;

    /// Begins to write what is not written yet, and waits for nothing: a power cut much later finds it written. An error is
    /// found by a [`DiskFile::sync`].
    fn start_writeback(&self) {}

    /// Describes this file, wherever its name is now.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    fn stat(&self) -> io::Result<FileStat>;

    /// Gives a name to this file, which [`Disk::create_in_memory`] made without one.
    ///
    /// # Errors
    ///
    /// As `link(2)`: [`io::ErrorKind::AlreadyExists`] if the name is taken; [`io::ErrorKind::Unsupported`] of a disk that
    /// makes no such files.
    fn give_name(&mut self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file that many processes append to at once.
pub trait AppendFile: Debug + Send {
    /// Writes bytes behind everything that is there, in one call: those of two writers are never mixed. They survive
    /// the end of this process.
    ///
    /// # Errors
    ///
    /// Any prefix may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads from `at` to the end, at most `MAX_READ_BYTES`.
    ///
    /// # Errors
    ///
    /// As `read(2)`; [`io::ErrorKind::FileTooLarge`].
    fn read_from(&self, at: u64) -> io::Result<Vec<u8>>;

    /// Reads up to `len` bytes from the start.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    fn read_start(&self, len: u64) -> io::Result<Vec<u8>>;

    /// Reads up to `len` bytes at `at`, fewer where the file ends.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    fn read_part(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = self.read_from(at)?;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// Describes this file, whether or not it still has a name.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    fn stat(&self) -> io::Result<FileStat>;
}

/// A file of whole blocks that are durable when the write returns, for logs.
pub trait LogFile: Debug + Send {
    /// Returns the unit of a durable write in bytes: a power of two from 512 to 4096.
    fn block_len(&self) -> usize;

    /// Returns how many bytes the file holds. Writes stay within it, so that they change no metadata.
    fn len(&self) -> u64;

    /// Tells whether the file holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the whole file as the medium holds it, past any page that only memory holds.
    ///
    /// # Errors
    ///
    /// As `read(2)`; nothing is changed.
    fn read(&mut self) -> io::Result<Vec<u8>>;

    /// Reads up to `len` bytes at `at` as processes see them; fewer where the file ends.
    ///
    /// # Errors
    ///
    /// As `read(2)`; nothing is changed.
    fn read_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Returns the device and inode number, whether or not the file still has a name.
    fn identity(&self) -> (u64, u64);

    /// Makes the file `len` bytes long, the new part zero, durably and with all its blocks written, so that
    /// writes into it need no metadata.
    ///
    /// # Errors
    ///
    /// The file may have grown in part; what it held is unchanged.
    fn extend(&mut self, len: u64) -> io::Result<()>;

    /// Writes whole blocks at a block boundary, durably.
    ///
    /// # Errors
    ///
    /// Any part of the blocks may have been written, and may or may not be durable.
    fn write_blocks(&mut self, at: u64, blocks: &[u8]) -> io::Result<()>;

    /// Writes bytes anywhere, and makes the file longer if they go beyond its end. They survive this process, and a
    /// power cut after the next [`LogFile::sync`].
    ///
    /// # Errors
    ///
    /// Any part may have been written.
    fn write_cached(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written durable.
    ///
    /// # Errors
    ///
    /// Final for this file.
    fn sync(&mut self) -> io::Result<()>;
}

/// A lock on a file, which others respect until it is dropped or let go.
pub trait FileLock: Debug + Send {
    /// Lets others have the lock and keeps the file at hand, for [`FileLock::retake`].
    ///
    /// # Errors
    ///
    /// As `flock(2)`; [`io::ErrorKind::Unsupported`] of a lock that can only be dropped, which is always enough.
    fn let_go(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Takes the lock again after [`FileLock::let_go`], without waiting. `path` is where the file was.
    ///
    /// # Errors
    ///
    /// As `flock(2)`; nothing is locked.
    fn retake(&mut self, path: &Path) -> io::Result<Retaken> {
        let _ = path;
        Ok(Retaken::Gone)
    }
}

/// What came of [`FileLock::retake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retaken {
    /// The lock is ours again.
    Yes,
    /// Somebody else has it.
    Busy,
    /// The file is not at its path any more: the lock there, if there is one, is another.
    Gone,
}

/// A process that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id.
    pub pid: u32,
    /// Whether it runs; one that was stopped keeps its locks.
    pub goes_on: bool,
}

/// The lock of a disk that others cannot reach.
#[derive(Debug)]
struct Unshared;

impl FileLock for Unshared {}

/// A file that is not freed yet, although it may have been replaced.
#[derive(Debug, Default)]
pub struct PinnedFile {
    #[expect(dead_code, reason = "it is there to be dropped")]
    file: Option<OwnedFd>,
    is_in_memory: bool,
}

impl PinnedFile {
    /// Makes one that keeps nothing, for a disk that frees nothing.
    pub(crate) fn in_memory(is_in_memory: bool) -> PinnedFile {
        PinnedFile { file: None, is_in_memory }
    }

    /// Says whether the file is known to be on tmpfs or ramfs, where a sync has nothing to wait for.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
}

/// A file system, by absolute paths. No call waits for anything but the disk.
pub trait Disk: Debug + Send + Sync {
    /// Reads a whole regular file of at most `MAX_READ_BYTES`.
    ///
    /// # Errors
    ///
    /// As `read(2)`; [`io::ErrorKind::FileTooLarge`], or [`io::ErrorKind::InvalidInput`] for what is no
    /// regular file. Nothing is changed.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Reads as [`Disk::read`] does, and leaves the time of the last access as it is where we may.
    ///
    /// # Errors
    ///
    /// As [`Disk::read`].
    fn read_unnoticed(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path)
    }
    /// Tells whether anybody has read the file at `path` since it was written; `None` where the file system does not
    /// keep the time of an access, or it is not known whether it does.
    ///
    /// # Errors
    ///
    /// As `stat(2)`.
    fn was_read(&self, path: &Path) -> io::Result<Option<bool>> {
        let _ = path;
        Ok(None)
    }
    /// Describes the file at `path`, following symlinks.
    ///
    /// # Errors
    ///
    /// As `stat(2)`.
    fn stat(&self, path: &Path) -> io::Result<FileStat>;
    /// Keeps what is at `path` from being freed before [`PinnedFile`] is dropped: freeing a replaced file takes a while, for
    /// which nobody need wait. A disk that cannot do it does nothing.
    fn hold(&self, path: &Path) -> PinnedFile {
        let _ = path;
        PinnedFile::default()
    }
    /// Returns where the symlink at `path` points.
    ///
    /// # Errors
    ///
    /// As `readlink(2)`: [`io::ErrorKind::InvalidInput`] if it is no symlink.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Makes a symlink at `path` that points to `target`; nothing may be there.
    ///
    /// # Errors
    ///
    /// As `symlink(2)`; [`io::ErrorKind::Unsupported`] of a disk that cannot.
    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        let _ = (target, path);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Sets the time of the last change of a file's contents, in nanoseconds since 1970. A disk that keeps none does nothing.
    ///
    /// # Errors
    ///
    /// As `utimensat(2)`.
    fn set_modified(&self, path: &Path, mtime_ns: i128) -> io::Result<()> {
        let _ = (path, mtime_ns);
        Ok(())
    }
    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// As `rmdir(2)`; [`io::ErrorKind::Unsupported`] of a disk that cannot.
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Refuses a path by which another user leads us elsewhere: through a link, a directory or a file of his in a
    /// directory that everybody may write to. What does not exist is no reason.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`], with the part of the path that is not trusted; else as `stat(2)`.
    fn check_trusted(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
    /// Returns the names in a directory, unsorted.
    ///
    /// # Errors
    ///
    /// As `readdir(3)`.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Makes one directory with these permission bits.
    ///
    /// # Errors
    ///
    /// As `mkdir(2)`.
    fn create_dir(&self, dir: &Path, mode: u32) -> io::Result<()>;
    /// Creates a new file with these permission bits and keeps it locked while it is open; it must not exist.
    ///
    /// # Errors
    ///
    /// As `open(2)` with `O_CREAT | O_EXCL`.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>>;
    /// Creates an empty file (0600) without a name in the file system of the directory `dir`, keeps it locked while it is
    /// open, and reserves memory for its first `len` bytes. It is gone when it is closed, unless it was given a name.
    ///
    /// # Errors
    ///
    /// As `open(2)` with `O_TMPFILE`, and `fallocate(2)`; nothing is left. [`io::ErrorKind::Unsupported`] if the file system
    /// is not known to be in memory (tmpfs, ramfs), or of a disk that makes no such files.
    fn create_in_memory(&self, dir: &Path, len: u64) -> io::Result<Box<dyn DiskFile>> {
        let _ = (dir, len);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens an existing file to write into it.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file to write into it; a symlink is not followed.
    ///
    /// # Errors
    ///
    /// As `open(2)` with `O_NOFOLLOW`.
    fn open_no_link(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }
    /// Opens an existing file as a log. What an earlier process left in memory only is made durable first, so
    /// that everything which [`LogFile::read`] then returns survives a power cut.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `fsync(2)`.
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn LogFile>>;
    /// Opens an existing regular file to append to it.
    ///
    /// # Errors
    ///
    /// As `open(2)`; [`io::ErrorKind::InvalidInput`] for what is no regular file, [`io::ErrorKind::Unsupported`] of a
    /// disk that cannot.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens an existing regular file that others append to, to read it: it need not be writable for us.
    ///
    /// # Errors
    ///
    /// As [`Disk::open_append`]. Appending to it fails.
    fn open_appended(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        self.open_append(path)
    }
    /// Gives the file at `from` (of a symlink, where it points) the second name `to`.
    ///
    /// # Errors
    ///
    /// As `link(2)`: [`io::ErrorKind::AlreadyExists`] if there is one; [`io::ErrorKind::Unsupported`] of a disk that
    /// cannot.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Renames `from` to `to`, replacing it.
    ///
    /// # Errors
    ///
    /// As `rename(2)`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives two files, symlinks or directories each other's names, in one step.
    ///
    /// # Errors
    ///
    /// As `renameat2(2)` with `RENAME_EXCHANGE`; [`io::ErrorKind::Unsupported`] or [`io::ErrorKind::InvalidInput`] of a
    /// disk that cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let _ = (one, other);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file.
    ///
    /// # Errors
    ///
    /// As `unlink(2)`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a regular file unless the process that made it by [`Disk::create`] still has it open. Returns
    /// whether it was removed.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `unlink(2)`.
    fn remove_abandoned(&self, path: &Path) -> io::Result<bool>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// As `fsync(2)` on the directory.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks a file for writing against every process on every host that uses POSIX record locks, without waiting;
    /// makes the file if there is none. `None` if it is locked. A disk that others cannot reach locks nothing.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `fcntl(2)`.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        let _ = path;
        Ok(Some(Box::new(Unshared)))
    }
    /// Locks a file against every other thread and process that asks by this function; makes the file (0600) if there is
    /// none. `None` if it is still locked after `patience`. A disk that others cannot reach locks nothing.
    ///
    /// The file that is returned locked is the one at `path`: its holder may remove it, and nobody waits for a lock on a
    /// file without a name.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `flock(2)`; [`io::ErrorKind::Unsupported`] of a file system without locks,
    /// [`io::ErrorKind::InvalidInput`] for what is no regular file.
    fn own(&self, path: &Path, patience: Duration) -> io::Result<Option<Box<dyn FileLock>>> {
        let _ = (path, patience);
        Ok(Some(Box::new(Unshared)))
    }
    /// Returns the process that holds the lock of [`Disk::own`] or [`Disk::try_lock`] on a file, where that can be found
    /// out.
    fn lock_holder(&self, path: &Path) -> Option<LockHolder> {
        let _ = path;
        None
    }
    /// Returns the type of the file system that holds `path`, such as `nfs4`, if others than this machine's processes may
    /// write to it or the kernel does not keep it itself.
    fn foreign_file_system(&self, path: &Path) -> Option<String> {
        let _ = path;
        None
    }
    /// Returns a number that was not returned before: for names and for the salt of a file's checksums.
    ///
    /// # Errors
    ///
    /// As `getrandom(2)`.
    fn token(&self) -> io::Result<u64>;

    /// Makes a new durable file `to` (0600) with the contents of `from`, sharing blocks where the file system can.
    ///
    /// # Errors
    ///
    /// `to` may exist in part after an error.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut file = self.create(to, 0o600)?;
        match file.share_from(from) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => file.copy_from(from)?,
            other => other?,
        }
        file.sync()
    }
}

/// The largest file that [`Disk::read`] reads: four times what a gvdb database of the desktop could sensibly be,
/// and little enough not to take a machine down.
pub(crate) const MAX_READ_BYTES: u64 = 1 << 30;

/// Returns this machine's file systems.
#[must_use]
pub fn real() -> Arc<dyn Disk> {
    Arc::new(real::RealDisk)
}
