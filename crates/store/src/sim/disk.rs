//! The calls of a simulated disk.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::SimDisk;
use super::file::{SimAppend, SimFile, SimLock, SimLog};
use super::state::{CallExtent, Change, Dir, Node, State, free_name, stat_of};
use crate::disk::{AppendFile, Disk, DiskFile, FileLock, FileStat, LogFile, PinnedFile};

impl Disk for SimDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.call("read", path, |state, _| {
            let number = state.find(path)?;
            Ok(state.file(number)?.seen.to_vec())
        })
    }

    fn hold(&self, path: &Path) -> PinnedFile {
        let state = self.lock();
        let found = state.find(path);
        PinnedFile::in_memory(found.is_ok_and(|number| state.is_in_memory(number)))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.call("stat", path, |state, _| {
            let number = state.find(path)?;
            stat_of(state, number)
        })
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.call("read_link", path, |state, _| {
            let (_, _, found) = state.place(path)?;
            match state.node(found.ok_or(Errno::NOENT)?)? {
                Node::Link(target) => Ok(target.clone()),
                Node::Dir(_) | Node::File(_) => Err(Errno::INVAL.into()),
            }
        })
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        self.call("symlink", path, |state, how| {
            let (above, name) = free_name(state, path)?;
            let number = state.add(Node::Link(target.to_owned()));
            state.dir(above)?.change(Change::Link(name, number), how);
            Ok(())
        })
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.call("remove_dir", dir, |state, how| {
            let (above, name, found) = state.place(dir)?;
            if !state.dir(found.ok_or(Errno::NOENT)?)?.seen.is_empty() {
                return Err(Errno::NOTEMPTY.into());
            }
            state.dir(above)?.change(Change::Unlink(name), how);
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.call("list", dir, |state, _| {
            let number = state.find(dir)?;
            Ok(state.dir(number)?.seen.keys().cloned().collect())
        })
    }

    fn create_dir(&self, dir: &Path, _mode: u32) -> io::Result<()> {
        self.call("create_dir", dir, |state, how| {
            let (above, name) = free_name(state, dir)?;
            let number = state.add(Node::Dir(Dir::default()));
            state.dir(above)?.change(Change::Link(name, number), how);
            Ok(())
        })
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        let number = self.call("create", path, |state, how| {
            let (above, name) = free_name(state, path)?;
            let number = state.add_file(mode);
            state.dir(above)?.change(Change::Link(name, number), how);
            Ok(number)
        })?;
        Ok(Box::new(SimFile::new(self.clone(), number, path)))
    }

    fn create_in_memory(&self, dir: &Path, _len: u64) -> io::Result<Box<dyn DiskFile>> {
        let number = self.call("create_in_memory", dir, |state, _| {
            let number = state.find(dir)?;
            state.dir(number)?;
            if !state.is_in_memory(number) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Ok(state.add_file(0o600))
        })?;
        Ok(Box::new(SimFile::new(self.clone(), number, dir)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let number = self.call("open", path, |state, _| {
            let number = state.find(path)?;
            state.file(number)?;
            Ok(number)
        })?;
        Ok(Box::new(SimFile::new(self.clone(), number, path)))
    }

    fn open_no_link(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let number = self.call("open without following", path, |state, _| {
            let (_, _, found) = state.place(path)?;
            let number = found.ok_or(Errno::NOENT)?;
            match state.node(number)? {
                Node::Link(_) => Err(Errno::LOOP.into()),
                Node::Dir(_) => Err(Errno::ISDIR.into()),
                Node::File(_) => Ok(number),
            }
        })?;
        Ok(Box::new(SimFile::new(self.clone(), number, path)))
    }

    fn open_log(&self, path: &Path) -> io::Result<Box<dyn LogFile>> {
        let number = self.call("open_log", path, |state, how| {
            let number = state.find(path)?;
            state.file(number)?.sync(how);
            Ok(number)
        })?;
        Ok(Box::new(SimLog::new(self.clone(), number, path)))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        let number = self.call("open_append", path, |state, _| {
            let number = state.find(path)?;
            state.file(number)?;
            Ok(number)
        })?;
        Ok(Box::new(SimAppend::new(self.clone(), number, path)))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("link", to, |state, how| {
            let number = state.find(from)?;
            state.file(number)?;
            let (above, name) = free_name(state, to)?;
            state.dir(above)?.change(Change::Link(name, number), how);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", to, |state, how| {
            let (dir, old, found) = state.place(from)?;
            let number = found.ok_or(Errno::NOENT)?;
            let (target, new, replaced) = state.place(to)?;
            if dir != target {
                return Err(Errno::XDEV.into());
            }
            if let Some(replaced) = replaced
                && matches!(state.node(replaced)?, Node::Dir(_))
            {
                return Err(Errno::ISDIR.into());
            }
            state.dir(dir)?.change(Change::Rename(old, new, number), how);
            if matches!(how, CallExtent::Partial | CallExtent::Whole) {
                touch(state, number);
            }
            Ok(())
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.call("exchange", other, |state, how| {
            let (dir, one, first) = state.place(one)?;
            let (other_dir, other, second) = state.place(other)?;
            let (Some(first), Some(second)) = (first, second) else {
                return Err(Errno::NOENT.into());
            };
            if dir != other_dir {
                return Err(Errno::XDEV.into());
            }
            state.dir(dir)?.change(Change::Exchange([(one, second), (other, first)]), how);
            if matches!(how, CallExtent::Partial | CallExtent::Whole) {
                [first, second].into_iter().for_each(|number| touch(state, number));
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call("remove", path, |state, how| unlink(state, path, how))
    }

    fn remove_abandoned(&self, path: &Path) -> io::Result<bool> {
        self.call("remove_abandoned", path, |state, how| {
            let (_, _, found) = state.place(path)?;
            match state.node(found.ok_or(Errno::NOENT)?)? {
                Node::File(file) if file.writers == 0 => unlink(state, path, how).map(|()| true),
                Node::File(_) | Node::Dir(_) => Ok(false),
                Node::Link(_) => Err(Errno::LOOP.into()),
            }
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call("sync_dir", dir, |state, how| {
            let number = state.find(dir)?;
            state.dir(number)?.sync(how);
            Ok(())
        })
    }

    fn own(&self, path: &Path, _patience: Duration) -> io::Result<Option<Box<dyn FileLock>>> {
        self.call("lock", path, |state, how| {
            if how != CallExtent::Whole || !state.locked.insert(path.to_owned()) {
                return Ok(None);
            }
            let lock: Box<dyn FileLock> = Box::new(SimLock::new(self.clone(), path));
            Ok(Some(lock))
        })
    }

    fn token(&self) -> io::Result<u64> {
        let mut state = self.lock();
        state.tokens += 1;
        // Spread over the whole range, and the same in every run.
        Ok(state.tokens.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Gives a file the time of this call; of other nodes none is kept.
fn touch(state: &mut State, number: u64) {
    let ticks = state.ticks;
    if let Ok(file) = state.file(number) {
        file.ctime = ticks;
    }
}

fn unlink(state: &mut State, path: &Path, how: CallExtent) -> io::Result<()> {
    let (dir, name, found) = state.place(path)?;
    if matches!(state.node(found.ok_or(Errno::NOENT)?)?, Node::Dir(_)) {
        return Err(Errno::ISDIR.into());
    }
    state.dir(dir)?.change(Change::Unlink(name), how);
    Ok(())
}
