//! One store that can be in memory: a file or a folder under the name that programs use, or a symlink there.
//!
//! In memory it is reached through the symlink, and its copy lies beside that on the disk. At every moment the name stands
//! for the one or the other: they take each other's place in one step. What is in place at that very moment is kept, also
//! if a program has just written it: GTK's programs replace the symlink by a file whenever they write their list.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use store::disk::{Disk, FileStat};
use store::publish::{
    InPlace, PublishError, exchange, give_name, make_directory, publish, publish_private, put_link,
};

/// Ends the name of the copy on the disk of a store that is in memory.
pub(super) const COPY: &str = ".unjank-copy";
/// Ends the name of what is about to take a place, or has just lost it.
const ASIDE: &str = ".unjank-aside";
/// A link of KDE's is no longer than this.
const MAX_LINK_BYTES: u64 = 64 << 10;

/// What kind of store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreShape {
    /// `recently-used.xbel`.
    File,
    /// `RecentDocuments`, of which the files count whose names end in `.desktop`.
    Folder,
}

/// A store with its places.
#[derive(Debug)]
pub(super) struct MovableStore<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) shape: StoreShape,
    /// The name that programs use.
    pub(super) name: PathBuf,
    /// Where it is in memory.
    pub(super) memory: PathBuf,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    Nothing,
    /// A symlink, with where it points.
    Link(PathBuf),
    /// A store of this shape.
    Store,
    /// Something else, which is left alone.
    Other,
}

impl MovableStore<'_> {
    /// Returns the copy on the disk of a store that is in memory.
    pub(super) fn copy(&self) -> PathBuf {
        self.beside(COPY)
    }

    /// Returns the name of what is about to take a place, or has just lost it.
    pub(super) fn aside(&self) -> PathBuf {
        self.beside(ASIDE)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.name.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.disk.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks what is at a name, without following a symlink.
    pub(super) fn occupant(&self, path: &Path) -> io::Result<Occupant> {
        match self.disk.read_link(path) {
            Ok(target) => return Ok(Occupant::Link(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            Err(_) => {}
        }
        let stat = match self.disk.stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
            other => other?,
        };
        let is_store = match self.shape {
            StoreShape::File => stat.is_file(),
            StoreShape::Folder => stat.is_dir(),
        };
        Ok(if is_store { Occupant::Store } else { Occupant::Other })
    }

    /// Whether a symlink is one of ours, also of a session with another runtime directory.
    pub(super) fn is_ours(&self, target: &Path) -> bool {
        let last = self.memory.file_name().unwrap_or_default();
        target == self.memory || target.ends_with(Path::new("unjank/recents").join(last))
    }

    /// Whether the store is in memory, and nothing is left to do.
    pub(super) fn is_in_memory(&self) -> io::Result<bool> {
        let is_there = match self.occupant(&self.name)? {
            Occupant::Link(target) if target == self.memory => self.exists(&target)?,
            Occupant::Link(target) => !self.is_ours(&target),
            Occupant::Nothing => self.shape == StoreShape::File,
            Occupant::Store => false,
            Occupant::Other => true,
        };
        Ok(is_there && self.occupant(&self.aside())? == Occupant::Nothing)
    }

    /// Whether the store is on the disk, and nothing is left to do.
    pub(super) fn is_on_disk(&self) -> io::Result<bool> {
        let is_moved = match self.occupant(&self.name)? {
            Occupant::Link(target) => self.is_ours(&target),
            _ => false,
        };
        let has_leftover =
            |path: &Path| Ok::<_, io::Error>(self.occupant(path)? != Occupant::Nothing);
        let is_left = has_leftover(&self.aside())?
            || has_leftover(&self.copy())?
            || (self.memory.is_absolute() && has_leftover(&self.memory)?);
        Ok(!is_moved && !is_left)
    }

    /// Moves the store to memory, or sees to it that it is there again: after a crash, or when a program has replaced the
    /// symlink. What is there already stays.
    pub(super) fn move_to_memory(&self) -> io::Result<()> {
        self.settle_aside()?;
        match self.occupant(&self.name)? {
            Occupant::Link(target) if target == self.memory => self.restore(),
            Occupant::Link(target) if self.is_ours(&target) && !self.exists(&target)? => {
                self.restore()?;
                self.put_link()?;
                self.disk.remove(&self.aside())
            }
            Occupant::Store => {
                let read = self.disk.stat(&self.name)?;
                self.fill_from(&self.name)?;
                self.put_link()?;
                // A program may have written meanwhile.
                let replaced = self.disk.stat(&self.aside())?;
                if self.shape == StoreShape::Folder || !is_same(&read, &replaced) {
                    self.fill_from(&self.aside())?;
                }
                self.keep_aside()
            }
            Occupant::Nothing if self.shape == StoreShape::Folder => {
                self.restore()?;
                self.disk.symlink(&self.memory, &self.name)
            }
            Occupant::Nothing | Occupant::Link(_) | Occupant::Other => Ok(()),
        }
    }

    fn put_link(&self) -> io::Result<()> {
        put_link(self.disk, &self.memory, &self.name, &self.aside())
    }

    /// Puts a new symlink in the place of ours: who watches the name sees that the list has changed.
    pub(super) fn announce(&self) -> io::Result<()> {
        self.put_link()?;
        match self.occupant(&self.aside())? {
            Occupant::Store => {
                // A program has just replaced it: its list counts, and goes to memory with the next round.
                self.disk_exchange(&self.aside())?;
                self.disk.remove(&self.aside())
            }
            _ => self.disk.remove(&self.aside()),
        }
    }

    fn disk_exchange(&self, other: &Path) -> io::Result<()> {
        exchange(self.disk, &self.name, other)
    }

    /// Ends what was interrupted.
    fn settle_aside(&self) -> io::Result<()> {
        let aside = self.aside();
        match self.occupant(&aside)? {
            Occupant::Nothing => Ok(()),
            Occupant::Link(_) => self.disk.remove(&aside),
            Occupant::Store => self.keep_aside(),
            Occupant::Other => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Makes what has lost its place the copy on the disk.
    fn keep_aside(&self) -> io::Result<()> {
        let (aside, copy) = (self.aside(), self.copy());
        if matches!(self.occupant(&copy)?, Occupant::Link(_)) {
            self.disk.remove(&copy)?;
        }
        if self.shape == StoreShape::File {
            return give_name(self.disk, &aside, &copy);
        }
        // A power cut must not leave the folder under both names.
        self.disk.sync_dir(self.name.parent().unwrap_or(Path::new("/")))?;
        if self.occupant(&copy)? == Occupant::Nothing {
            return give_name(self.disk, &aside, &copy);
        }
        for name in self.files_of(&aside)? {
            self.copy_file(&aside.join(&name), &copy.join(&name), Durability::PowerCut)?;
            self.disk.remove(&aside.join(&name))?;
        }
        self.disk.remove_dir(&aside)
    }

    /// Fills the place in memory from the copy, if there is nothing.
    fn restore(&self) -> io::Result<()> {
        if self.exists(&self.memory)? {
            return Ok(());
        }
        let copy = self.copy();
        if self.occupant(&copy)? == Occupant::Store {
            return self.fill_from(&copy);
        }
        match (self.shape, self.memory.parent()) {
            (StoreShape::Folder, _) => make_directory(self.disk, &self.memory),
            // A program that writes the list makes it.
            (StoreShape::File, Some(dir)) => make_directory(self.disk, dir),
            (StoreShape::File, None) => Ok(()),
        }
    }

    /// Gives the place in memory the contents of another.
    fn fill_from(&self, from: &Path) -> io::Result<()> {
        let memory = &self.memory;
        if self.shape == StoreShape::File {
            let stat = self.disk.stat(from)?;
            let bytes = self.disk.read_unnoticed(from)?;
            published(publish_private(self.disk, memory, &bytes, InPlace::Anything))?;
            return self.disk.set_modified(memory, stat.mtime_ns);
        }
        if self.exists(memory)? {
            return self.copy_files(from, memory, Durability::Process);
        }
        // Nobody sees half a folder.
        let mut new = memory.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        make_directory(self.disk, &new)?;
        self.copy_files(from, &new, Durability::Process)?;
        give_name(self.disk, &new, memory)
    }

    /// Copies the store from memory to the disk, durably, if it is in memory.
    pub(super) fn save(&self) -> io::Result<()> {
        match self.occupant(&self.name)? {
            Occupant::Link(target) if self.is_ours(&target) => self.save_from(&target),
            _ => Ok(()),
        }
    }

    fn save_from(&self, memory: &Path) -> io::Result<()> {
        if !self.exists(memory)? {
            return Ok(());
        }
        let copy = self.copy();
        if matches!(self.occupant(&copy)?, Occupant::Link(_)) {
            self.disk.remove(&copy)?;
        }
        if self.shape == StoreShape::File {
            return self.copy_file(memory, &copy, Durability::PowerCut);
        }
        make_directory(self.disk, &copy)?;
        self.copy_files(memory, &copy, Durability::PowerCut)?;
        let there = self.files_of(memory)?;
        for name in self.files_of(&copy)? {
            if !there.contains(&name) {
                self.disk.remove(&copy.join(name))?;
            }
        }
        Ok(())
    }

    /// Moves the store back to the disk, or removes what an interrupted move has left.
    pub(super) fn move_to_disk(&self) -> io::Result<()> {
        self.settle_aside()?;
        let copy = self.copy();
        if let Occupant::Link(target) = self.occupant(&self.name)?
            && self.is_ours(&target)
        {
            self.save_from(&target)?;
            if self.occupant(&copy)? != Occupant::Store {
                // There is no list: nobody has written one, or all is gone.
                if self.shape == StoreShape::File {
                    return self.disk.remove(&self.name);
                }
                make_directory(self.disk, &copy)?;
            }
            self.disk_exchange(&copy)?;
            if self.occupant(&copy)? == Occupant::Store {
                // A program has replaced the symlink meanwhile: what it wrote stays.
                self.disk_exchange(&copy)?;
            } else if self.shape == StoreShape::Folder && self.exists(&target)? {
                self.copy_files(&target, &self.name, Durability::PowerCut)?;
            }
            self.remove_if_moved(&copy)?;
            return self.remove_store(&target);
        }
        self.remove_if_moved(&copy)?;
        match self.memory.is_absolute() {
            true => self.remove_store(&self.memory),
            false => Ok(()),
        }
    }

    /// Removes the copy, or the symlink that has its name, if the store is in its place.
    fn remove_if_moved(&self, copy: &Path) -> io::Result<()> {
        match self.occupant(copy)? {
            Occupant::Link(_) => self.disk.remove(copy),
            Occupant::Store if self.occupant(&self.name)? == Occupant::Store => {
                if self.shape == StoreShape::Folder {
                    self.copy_missing(copy, &self.name)?;
                }
                self.remove_store(copy)
            }
            _ => Ok(()),
        }
    }

    /// Removes a file, or a folder with the files in it that count; others stay.
    fn remove_store(&self, path: &Path) -> io::Result<()> {
        if self.occupant(path)? != Occupant::Store {
            return Ok(());
        }
        if self.shape == StoreShape::File {
            return self.disk.remove(path);
        }
        for name in self.files_of(path)? {
            self.disk.remove(&path.join(name))?;
        }
        // Files that do not count stay where they are.
        match self.disk.remove_dir(path) {
            // A lock of a program that is at work.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other,
        }
    }

    /// Returns the names of the files in a folder that count.
    fn files_of(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut files = Vec::new();
        for name in self.disk.list(dir)? {
            if Path::new(&name).extension().is_none_or(|ending| ending != "desktop") {
                continue;
            }
            match self.disk.stat(&dir.join(&name)) {
                Ok(stat) if stat.is_file() && stat.len <= MAX_LINK_BYTES => files.push(name),
                // A program has just removed it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        files.sort();
        Ok(files)
    }

    fn copy_files(&self, from: &Path, to: &Path, durability: Durability) -> io::Result<()> {
        for name in self.files_of(from)? {
            self.copy_file(&from.join(&name), &to.join(&name), durability)?;
        }
        Ok(())
    }

    /// Copies the files that are not there.
    fn copy_missing(&self, from: &Path, to: &Path) -> io::Result<()> {
        for name in self.files_of(from)? {
            let path = to.join(&name);
            if !self.exists(&path)? {
                self.copy_file(&from.join(&name), &path, Durability::PowerCut)?;
            }
        }
        Ok(())
    }

    /// Copies a file with its time, unless it is the same.
    fn copy_file(&self, from: &Path, to: &Path, durability: Durability) -> io::Result<()> {
        let (stat, bytes) = match (self.disk.stat(from), self.disk.read_unnoticed(from)) {
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                // A program has just removed it.
                return Ok(());
            }
            (stat, bytes) => (stat?, bytes?),
        };
        if self.disk.read(to).ok().as_ref() != Some(&bytes) {
            published(match durability {
                Durability::PowerCut => publish(self.disk, to, &bytes),
                Durability::Process => publish_private(self.disk, to, &bytes, InPlace::Anything),
            })?;
        }
        match self.shape {
            // Its time says when it was copied.
            StoreShape::File => Ok(()),
            StoreShape::Folder => self.disk.set_modified(to, stat.mtime_ns),
        }
    }
}

/// What a copy survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    PowerCut,
    Process,
}

fn published(result: Result<FileStat, PublishError>) -> io::Result<()> {
    result.map(|_| ()).map_err(|error| io::Error::new(error.cause().kind(), error))
}

/// Whether nobody has written since. The time of the inode is another one after the exchange.
fn is_same(one: &FileStat, other: &FileStat) -> bool {
    let about = |stat: &FileStat| (stat.identity, stat.len, stat.mtime_ns);
    about(one) == about(other)
}
