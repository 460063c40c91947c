//! Open files of a simulated disk.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::SimDisk;
use super::state::{CallExtent, Change, FileNode, SECTOR, State, free_name, stat_of};
use crate::disk::{AppendFile, DiskFile, FileLock, FileStat, LogFile};

/// An open file; it keeps the file locked.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    number: u64,
    path: PathBuf,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, number: u64, path: &Path) -> SimFile {
        if let Ok(file) = disk.lock().file(number) {
            file.writers += 1;
        }
        SimFile { disk, number, path: path.to_owned() }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Ok(file) = self.disk.lock().file(self.number) {
            file.writers = file.writers.saturating_sub(1);
        }
    }
}

impl DiskFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        self.disk.call("write", &self.path, |state, how| {
            let ticks = state.ticks;
            let file = state.file(self.number)?;
            file.write(at, bytes, how);
            (file.mtime, file.ctime) = (ticks, ticks);
            Ok(())
        })
    }

    fn copy_attributes(&mut self, from: &Path, _stat: &FileStat) -> io::Result<()> {
        self.disk.call("copy_attributes", &self.path, |state, how| {
            let from = state.find(from)?;
            let (mode, owner) = {
                let from = state.file(from)?;
                (from.mode, from.owner)
            };
            let to = state.file(self.number)?;
            if matches!(how, CallExtent::Partial | CallExtent::Whole) {
                to.owner = owner;
            }
            if how == CallExtent::Whole {
                to.mode = mode;
            }
            Ok(())
        })
    }

    fn share_from(&mut self, from: &Path) -> io::Result<()> {
        self.disk.call("share", &self.path, |state, how| {
            if !state.shares {
                return Err(io::ErrorKind::Unsupported.into());
            }
            fill_from(state, self.number, from, how)
        })
    }

    fn copy_from(&mut self, from: &Path) -> io::Result<()> {
        self.disk.call("copy", &self.path, |state, how| fill_from(state, self.number, from, how))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.call("sync", &self.path, |state, how| {
            state.file(self.number)?.sync(how);
            Ok(())
        })
    }

    fn give_name(&mut self, path: &Path) -> io::Result<()> {
        self.disk.call("give_name", path, |state, how| {
            let (above, name) = free_name(state, path)?;
            if !state.is_in_memory(above) {
                return Err(Errno::XDEV.into());
            }
            state.dir(above)?.change(Change::Link(name, self.number), how);
            Ok(())
        })
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.disk.call("fstat", &self.path, |state, _| stat_of(state, self.number))
    }
}

fn fill_from(state: &mut State, number: u64, from: &Path, how: CallExtent) -> io::Result<()> {
    let source = state.find(from)?;
    let bytes = state.file(source)?.seen.clone();
    state.file(number)?.write(0, &bytes, how);
    Ok(())
}

/// A file that others append to as well.
#[derive(Debug)]
pub(super) struct SimAppend {
    disk: SimDisk,
    number: u64,
    path: PathBuf,
}

impl SimAppend {
    pub(super) fn new(disk: SimDisk, number: u64, path: &Path) -> SimAppend {
        SimAppend { disk, number, path: path.to_owned() }
    }
}

impl AppendFile for SimAppend {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.call("append", &self.path, |state, how| {
            let file = state.file(self.number)?;
            file.write(file.seen.len(), bytes, how);
            Ok(())
        })
    }

    fn read_from(&self, at: u64) -> io::Result<Vec<u8>> {
        self.disk.call("append read", &self.path, |state, _| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            Ok(state.file(self.number)?.seen.get(at..).unwrap_or_default().to_vec())
        })
    }

    fn read_start(&self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = self.read_from(0)?;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.disk.call("append fstat", &self.path, |state, _| stat_of(state, self.number))
    }
}

/// A lock that is held.
#[derive(Debug)]
pub(super) struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl SimLock {
    pub(super) fn new(disk: SimDisk, path: &Path) -> SimLock {
        SimLock { disk, path: path.to_owned() }
    }
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().locked.remove(&self.path);
    }
}

/// A log of sectors.
#[derive(Debug)]
pub(super) struct SimLog {
    disk: SimDisk,
    number: u64,
    path: PathBuf,
}

impl SimLog {
    pub(super) fn new(disk: SimDisk, number: u64, path: &Path) -> SimLog {
        SimLog { disk, number, path: path.to_owned() }
    }

    fn change(&self, what: &str, change: impl FnOnce(&mut FileNode, CallExtent)) -> io::Result<()> {
        self.disk.call(what, &self.path, |state, how| {
            change(state.file(self.number)?, how);
            Ok(())
        })
    }
}

impl LogFile for SimLog {
    fn block_len(&self) -> usize {
        SECTOR
    }

    fn len(&self) -> u64 {
        self.disk.lock().file(self.number).map_or(0, |file| file.seen.len() as u64)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.disk.call("log read", &self.path, |state, _| {
            let file = state.file(self.number)?;
            file.drop_clean();
            Ok(file.seen.to_vec())
        })
    }

    fn read_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.disk.call("log read_at", &self.path, |state, _| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let rest = state.file(self.number)?.seen.get(at..).unwrap_or_default().to_vec();
            Ok(rest.into_iter().take(len).collect())
        })
    }

    fn identity(&self) -> (u64, u64) {
        (1, self.number)
    }

    fn extend(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| Errno::FBIG)?;
        self.change("log extend", |file, how| {
            let old = file.seen.len();
            file.write(old, &vec![0; len.saturating_sub(old)], how);
            file.sync(how);
        })
    }

    fn write_blocks(&mut self, at: u64, blocks: &[u8]) -> io::Result<()> {
        let at = usize::try_from(at).map_err(|_| Errno::FBIG)?;
        if !at.is_multiple_of(SECTOR) || !blocks.len().is_multiple_of(SECTOR) {
            return Err(Errno::INVAL.into());
        }
        self.change("log write", |file, how| file.write_through(at, blocks, how))
    }

    fn write_cached(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(at).map_err(|_| Errno::FBIG)?;
        self.change("log write_cached", |file, how| file.write(at, bytes, how))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.change("log sync", FileNode::sync)
    }
}
