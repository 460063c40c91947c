//! This machine's file systems.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::trust;

use super::file::{RealFile, TMPFS, is_in_memory, kind_of};
use super::opened::{from_statx, read_exactly, stat_of};
use super::{
    AppendFile, Disk, DiskFile, FileLock, FileStat, LockHolder, LogFile, MAX_READ_BYTES,
    PinnedFile, Retaken, log, memory,
};

const NS_PER_S: i128 = 1_000_000_000;

/// The real disk; it holds nothing, every call names its file.
#[derive(Debug)]
pub(super) struct RealDisk;

/// A locked file; the kernel lets go of the lock when it is closed.
#[derive(Debug)]
struct RealLock(#[expect(dead_code, reason = "held open, never read")] File);

impl FileLock for RealLock {}

/// A file that is locked by [`Disk::own`].
#[derive(Debug)]
struct OwnedLock {
    file: File,
    /// Which file it is.
    identity: (u64, u64),
}

impl OwnedLock {
    /// Takes a file that has just been locked; `None` if the lock at `path` is another one.
    fn at(path: &Path, file: File) -> io::Result<Option<Box<dyn FileLock>>> {
        let identity = stat_of(&file)?.identity;
        let lock = OwnedLock { file, identity };
        Ok(if lock.is_in_place(path)? { Some(Box::new(lock)) } else { None })
    }

    /// Tells whether the name still stands for this file.
    fn is_in_place(&self, path: &Path) -> io::Result<bool> {
        match fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
            Ok(stat) => Ok(from_statx(&stat).identity == self.identity),
            // `ESTALE` is what a network file system says of a file that another host removed.
            Err(Errno::NOENT | Errno::STALE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl FileLock for OwnedLock {
    fn let_go(&mut self) -> io::Result<()> {
        Ok(fs::flock(&self.file, FlockOperation::Unlock)?)
    }

    fn retake(&mut self, path: &Path) -> io::Result<Retaken> {
        match fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // Whoever has the lock at the path may have this one, which is there no more.
            Err(Errno::WOULDBLOCK) => {
                return Ok(if self.is_in_place(path)? { Retaken::Busy } else { Retaken::Gone });
            }
            Err(error) => return Err(cannot_lock(error)),
        }
        match self.is_in_place(path) {
            Ok(true) => Ok(Retaken::Yes),
            other => {
                self.let_go()?;
                other.map(|_| Retaken::Gone)
            }
        }
    }
}

impl Disk for RealDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read(path, OFlags::empty())
    }

    fn read_unnoticed(&self, path: &Path) -> io::Result<Vec<u8>> {
        match read(path, OFlags::NOATIME) {
            // Only a file of our own may be read like that.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                read(path, OFlags::empty())
            }
            other => other,
        }
    }

    fn was_read(&self, path: &Path) -> io::Result<Option<bool>> {
        if !keeps_access_times(path)? {
            return Ok(None);
        }
        let stat = fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
        let time = |stamp: &fs::StatxTimestamp| (stamp.tv_sec, stamp.tv_nsec);
        // A file that is written has the time of its making there, which is no later than that of its last change.
        Ok(Some(time(&stat.stx_atime) > time(&stat.stx_mtime)))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        // What another host did to a network file system is asked of the server; others know it in any case.
        let flags = AtFlags::STATX_FORCE_SYNC;
        Ok(from_statx(&fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS)?))
    }

    fn hold(&self, path: &Path) -> PinnedFile {
        let file = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let is_in_memory = file.as_ref().is_some_and(|file| is_in_memory(file.as_fd()));
        PinnedFile { file, is_in_memory }
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let target = fs::readlink(path, Vec::new())?;
        trust::check_link(path)?;
        Ok(PathBuf::from(OsStr::from_bytes(target.to_bytes())))
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        Ok(fs::symlink(target, path)?)
    }

    fn set_modified(&self, path: &Path, mtime_ns: i128) -> io::Result<()> {
        let (seconds, rest) = (mtime_ns.div_euclid(NS_PER_S), mtime_ns.rem_euclid(NS_PER_S));
        let to_time = |seconds, rest| {
            let (tv_sec, tv_nsec) = (i64::try_from(seconds).ok()?, i64::try_from(rest).ok()?);
            Some(fs::Timespec { tv_sec, tv_nsec })
        };
        let last_modification = to_time(seconds, rest).ok_or(io::ErrorKind::InvalidInput)?;
        let last_access = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
        let times = fs::Timestamps { last_access, last_modification };
        Ok(fs::utimensat(CWD, path, &times, AtFlags::empty())?)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        Ok(fs::rmdir(dir)?)
    }

    fn check_trusted(&self, path: &Path) -> io::Result<()> {
        trust::check_path(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn create_dir(&self, dir: &Path, mode: u32) -> io::Result<()> {
        Ok(fs::mkdir(dir, Mode::from_raw_mode(mode))?)
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(fs::open(path, flags, Mode::from_raw_mode(mode))?);
        // The lock tells `remove_abandoned` that the writer lives, across PID namespaces and, where the file
        // system can, across hosts. A file system without locks loses only that.
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) | Err(_) => Ok(Box::new(RealFile(file))),
        }
    }

    fn create_in_memory(&self, dir: &Path, len: u64) -> io::Result<Box<dyn DiskFile>> {
        memory::create(dir, len)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(Box::new(RealFile(File::from(fs::open(path, flags, Mode::empty())?))))
    }

    fn open_no_link(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::NOFOLLOW;
        Ok(Box::new(RealFile(File::from(fs::open(path, flags, Mode::empty())?))))
    }

    fn open_log(&self, path: &Path) -> io::Result<Box<dyn LogFile>> {
        log::open(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        open_appended(path, OFlags::RDWR | OFlags::APPEND)
    }

    fn open_appended(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        open_appended(path, OFlags::RDONLY)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(fs::rename(from, to)?)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        Ok(fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(fs::unlink(path)?)
    }

    fn remove_abandoned(&self, path: &Path) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(fs::open(path, flags | OFlags::NOCTTY, Mode::empty())?);
        if !stat_of(&file)?.is_file() {
            return Ok(false);
        }
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            // No locks here: the caller's own evidence, the age of the file, has to do.
            Ok(()) | Err(_) => fs::unlink(path).map(|()| true).map_err(io::Error::from),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::fsync(fs::open(dir, flags, Mode::empty())?) {
            // "This file does not support synchronization": some FUSE and network file systems say so of every
            // directory. There is nothing more that anybody could do on them.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(fs::open(path, flags | OFlags::NONBLOCK, Mode::from(0o666))?);
        match fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(RealLock(file)))),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn own(&self, path: &Path, patience: Duration) -> io::Result<Option<Box<dyn FileLock>>> {
        let mut tries = 0..MOST_REMOVALS;
        // A file system with files that are open for writing cannot become read-only, and for a lock reading is enough.
        let mut access = OFlags::RDONLY;
        let file = loop {
            let file = open_lock(path, access)?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => match OwnedLock::at(path, file)? {
                    Some(lock) => return Ok(Some(lock)),
                    // Its holder has just removed it: the next one is the lock.
                    None if tries.next().is_some() => {}
                    None => return Ok(None),
                },
                // NFS and SMB have such locks only for what is open for writing.
                Err(Errno::BADF) if access == OFlags::RDONLY => access = OFlags::RDWR,
                Err(Errno::WOULDBLOCK) if !patience.is_zero() => break file,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(cannot_lock(error)),
            }
        };
        // The kernel has no time limit for this. A thread that is left behind gives the lock back when it gets it.
        let (send, locked) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("lock".to_owned()).spawn(move || {
            let result = retry_on_intr(|| fs::flock(&file, FlockOperation::LockExclusive));
            // Nobody waits any more: the lock goes with the file.
            let _ = send.send(result.map(|()| file));
        })?;
        match locked.recv_timeout(patience) {
            Ok(Ok(file)) => match OwnedLock::at(path, file)? {
                Some(lock) => Ok(Some(lock)),
                None => self.own(path, patience),
            },
            Ok(Err(error)) => Err(cannot_lock(error)),
            Err(_) => Ok(None),
        }
    }

    fn lock_holder(&self, path: &Path) -> Option<LockHolder> {
        let pid = sys::locks::holder(self.stat(path).ok()?.identity)?;
        Some(LockHolder { pid, goes_on: sys::locks::goes_on(pid) })
    }

    fn foreign_file_system(&self, path: &Path) -> Option<String> {
        let mounts = sys::mounts::Mounts::read().ok()?;
        let mount = mounts.holding(path)?;
        let is_foreign = mount.is_network() || mount.fs_type.starts_with("fuse");
        is_foreign.then(|| mount.fs_type.clone())
    }

    fn token(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        // Requests of up to 256 bytes are never cut short.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// A file that others append to as well.
#[derive(Debug)]
struct RealAppend(File);

impl AppendFile for RealAppend {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // One call, which the kernel does as a whole; the rest of one that was cut short would stand behind others'.
        match (&self.0).write(bytes)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn read_from(&self, at: u64) -> io::Result<Vec<u8>> {
        let len = stat_of(&self.0)?.len.saturating_sub(at);
        if len > MAX_READ_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        read_exactly(&self.0, at, len)
    }

    fn read_start(&self, len: u64) -> io::Result<Vec<u8>> {
        read_exactly(&self.0, 0, len)
    }

    fn read_part(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        read_exactly(&self.0, at, len)
    }

    fn stat(&self) -> io::Result<FileStat> {
        stat_of(&self.0)
    }
}

/// How often in a row a lock may be removed by its holder while it is taken.
const MOST_REMOVALS: u32 = 16;

/// Opens a lock, and makes it if there is none; nothing but a regular file is one.
fn open_lock(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = File::from(fs::open(path, flags, Mode::from(0o600))?);
    if !stat_of(&file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Says whether a file system has no locks, as NFS without `lockd`, or failed.
fn cannot_lock(error: Errno) -> io::Error {
    match error {
        Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => {
            io::Error::new(io::ErrorKind::Unsupported, io::Error::from(error))
        }
        error => error.into(),
    }
}

/// Reads a whole regular file.
fn read(path: &Path, more: OFlags) -> io::Result<Vec<u8>> {
    let mut file = sys::regular_file::open_with(path, more)?;
    let stat = stat_of(&file)?;
    if stat.len > MAX_READ_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    // One more than the length, so that the end of the file is seen without growing the buffer.
    bytes.try_reserve_exact(usize::try_from(stat.len).unwrap_or(usize::MAX).saturating_add(1))?;
    (&mut file).take(MAX_READ_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_READ_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

fn open_appended(path: &Path, flags: OFlags) -> io::Result<Box<dyn AppendFile>> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(fs::open(path, flags, Mode::empty())?);
    if !stat_of(&file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(Box::new(RealAppend(file)))
}

/// Tells whether the file system of a file is one that writes down when it was read, and is mounted so.
fn keeps_access_times(path: &Path) -> io::Result<bool> {
    /// ext4, btrfs, xfs, f2fs and tmpfs. Others answer from a cache, or not at all.
    const KINDS: [u32; 5] = [0xef53, 0x9123_683e, 0x5846_5342, 0xf2f5_2010, TMPFS];
    let kind = kind_of(&fs::statfs(path)?);
    let flags = fs::statvfs(path)?.f_flag;
    Ok(KINDS.contains(&kind) && !flags.contains(fs::StatVfsMountFlags::NOATIME))
}
