//! Replacing a shared journal by fewer records while others append to it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::{JournalError, too_long};
use super::format::{self, Header, KNOWN_IDS, Start, WRITTEN_ONCE};
use super::read::{Extent, Flaw, JournalReader, News, OLD, read_old, tail_of};
use super::{ATTEMPTS, beside, cannot_link, create};
use crate::disk::{AppendFile, Disk, DiskFile, FileLock};
use crate::publish::{
    Promise, PublishError, directory_of, is_link, make_parents, overwrite, publish,
};

/// The ending of the lock that keeps others from replacing.
const LOCK: &str = ".lock";

/// The one who may replace the journal, until it is dropped. Appending goes on meanwhile.
#[derive(Debug)]
pub struct Owner {
    path: PathBuf,
    reader: JournalReader,
    _lock: Box<dyn FileLock>,
}

impl Owner {
    /// Becomes the owner of the journal at `path`; `None` if somebody else is. What an earlier owner left half-done
    /// is done. The directories above it are made (0700); the journal itself need not be there.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`]; every record is where it was.
    pub fn of(disk: &dyn Disk, path: &Path) -> Result<Option<Owner>, JournalError> {
        Owner::within(disk, path, Duration::ZERO)
    }

    /// Becomes the owner as [`Owner::of`] does; `None` if somebody else still is after `patience`.
    ///
    /// # Errors
    ///
    /// As [`Owner::of`].
    pub fn within(
        disk: &dyn Disk,
        path: &Path,
        patience: Duration,
    ) -> Result<Option<Owner>, JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
        let lock = match disk.own(&beside(path, LOCK), patience) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Before the first record there may be no directory.
                make_parents(disk, path, Promise::Process).map_err(not_opened)?;
                disk.own(&beside(path, LOCK), patience)
            }
            owned => owned,
        };
        let Some(lock) = lock.map_err(not_opened)? else { return Ok(None) };
        let owner = Owner { path: path.to_owned(), reader: JournalReader::new(path), _lock: lock };
        owner.finish(disk).map_err(not_opened)?;
        Ok(Some(owner))
    }

    /// Finishes what an owner of the journal at `path` left that was killed while it replaced it. One who still works
    /// finishes by himself.
    ///
    /// # Errors
    ///
    /// As [`Owner::of`].
    pub fn finish_left(disk: &dyn Disk, path: &Path) -> Result<(), JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
        match disk.stat(&beside(path, OLD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(not_opened(error)),
            Ok(_) => Owner::of(disk, path).map(drop),
        }
    }

    /// Reads all records, which the next [`Owner::replace`] stands for. Where there is no journal, an empty one is made:
    /// what others append from now on is in a file that can be held while it is replaced.
    ///
    /// # Errors
    ///
    /// As [`JournalReader::read`].
    pub fn read(&mut self, disk: &dyn Disk) -> Result<Vec<Vec<u8>>, JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: self.path.clone(), source };
        self.reader = JournalReader::new(&self.path);
        for _ in 0..ATTEMPTS {
            let (News::All(records) | News::More(records)) = self.reader.read(disk)?;
            if self.reader.at().is_some() {
                return Ok(records);
            }
            create(disk, &self.path).map_err(not_opened)?;
        }
        Err(not_opened(io::ErrorKind::ResourceBusy.into()))
    }

    /// Returns what is wrong with the journal that was read.
    #[must_use]
    pub fn flaw(&self) -> Option<Flaw> {
        self.reader.flaw()
    }

    /// Returns which records were read.
    #[must_use]
    pub fn extent(&self) -> Option<Extent> {
        self.reader.extent()
    }

    /// Puts `records` in the place of those that [`Owner::read`] returned, durably; what others append meanwhile is
    /// behind them. The blocks of the old file are overwritten with zeros.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotRestarted`] says which file is in place; [`JournalError::NotOpened`]: the new one is, and what
    /// is left to do is done by the next owner. No record is lost in any case.
    pub fn replace(&mut self, disk: &dyn Disk, records: &[&[u8]]) -> Result<(), JournalError> {
        let path = self.path.clone();
        let not_opened = |source| JournalError::NotOpened { path: path.clone(), source };
        let covered = self.reader.at().map(|at| (at.salt, at.end, at.identity));
        let (covered_salt, covered_len) = covered.map_or((0, 0), |(salt, end, _)| (salt, end));
        let header = Header { salt: disk.token().map_err(not_opened)?, covered_salt, covered_len };
        let old = match covered {
            Some((.., identity)) => {
                Some(Replaced::hold(disk, &path, identity).map_err(not_opened)?)
            }
            None => None,
        };
        let mut image = header.encode();
        if let Some(old) = &old {
            // Their writers may be about to see that the file was replaced, and append them again.
            let before = old.file.read_start(covered_len).map_err(not_opened)?;
            let ids = format::known_ids(&before, covered_salt);
            format::push_frame(&mut image, header.salt, KNOWN_IDS, &ids);
        }
        for record in records {
            if !format::push_frame(&mut image, header.salt, WRITTEN_ONCE, record) {
                if let Some(old) = old {
                    old.let_go(disk);
                }
                return Err(too_long(&self.path));
            }
        }
        let not_restarted = |source| JournalError::NotRestarted { path: path.clone(), source };
        match (publish(disk, &path, &image), old) {
            (Ok(_), Some(old)) => {
                let tail = old.file.read_from(covered_len).map_err(not_opened)?;
                carry_over(disk, &path, &tail, &header).map_err(not_opened)?;
                old.wipe(disk).map_err(not_opened)?;
            }
            (Ok(_), None) => {}
            (Err(error), old) => {
                // If the new file is in place, the old one keeps its second name: the next owner goes on from there.
                if let (PublishError::NotReplaced { .. }, Some(old)) = (&error, old) {
                    old.let_go(disk);
                }
                return Err(not_restarted(error));
            }
        }
        self.reader = JournalReader::new(&self.path);
        Ok(())
    }

    /// Does what an owner that was killed left to do.
    fn finish(&self, disk: &dyn Disk) -> io::Result<()> {
        let name = beside(&self.path, OLD);
        if is_a_link(disk, &name)? {
            // No owner makes one, and what it points to is not ours to overwrite.
            return disk.remove(&name);
        }
        let (old, identity) = match disk.open_append(&name) {
            Ok(file) => {
                let identity = file.stat()?.identity;
                (file, identity)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match disk.open_append(&self.path) {
            // It was not replaced.
            Ok(file) if file.stat()?.identity == identity => return disk.remove(&name),
            Ok(file) => {
                // Before the old bytes go, the new name must be there to stay.
                disk.sync_dir(directory_of(&self.path))?;
                if let Start::Header(header) = Header::decode(&file.read_start(format::FRAMES_AT)?)
                    && let Some(tail) = tail_of(&read_old(disk, &self.path)?, &header)
                {
                    carry_over(disk, &self.path, tail, &header)?;
                }
            }
            // Somebody removed the journal; what is left of it goes too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let writer = disk.open_no_link(&name)?;
        Replaced { file: old, writer, name: Some(name) }.wipe(disk)
    }
}

/// Returns whether a symlink stands at `path`.
fn is_a_link(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match is_link(disk, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other,
    }
}

/// A journal that is being replaced.
struct Replaced {
    file: Box<dyn AppendFile>,
    writer: Box<dyn DiskFile>,
    /// Its second name, where files can have one.
    name: Option<PathBuf>,
}

impl Replaced {
    /// Gives the journal a second name, so that what is appended to it is found whatever happens to us.
    fn hold(disk: &dyn Disk, path: &Path, identity: (u64, u64)) -> io::Result<Replaced> {
        let name = beside(path, OLD);
        let name = match disk.link(path, &name) {
            Ok(()) => Some(name),
            Err(error) if cannot_link(&error) => None,
            Err(error) => return Err(error),
        };
        let opened = disk.open_append(path).and_then(|file| {
            let is_ours = file.stat()?.identity == identity;
            let writer = disk.open(path)?;
            if is_ours { Ok((file, writer)) } else { Err(io::ErrorKind::ResourceBusy.into()) }
        });
        match opened {
            Ok((file, writer)) => Ok(Replaced { file, writer, name }),
            Err(error) => {
                // The next owner finds it otherwise.
                let _ = name.map(|name| disk.remove(&name));
                Err(error)
            }
        }
    }

    /// Takes the second name away.
    fn let_go(self, disk: &dyn Disk) {
        // The next owner finds it otherwise.
        let _ = self.name.map(|name| disk.remove(&name));
    }

    /// Overwrites every byte and removes the second name.
    fn wipe(mut self, disk: &dyn Disk) -> io::Result<()> {
        overwrite(&mut *self.writer)?;
        match self.name {
            Some(name) => disk.remove(&name),
            None => Ok(()),
        }
    }
}

/// Appends the records of `tail` to the new journal, except those that are in it already.
fn carry_over(disk: &dyn Disk, path: &Path, tail: &[u8], header: &Header) -> io::Result<()> {
    if format::frames(tail, Some(header.covered_salt)).next().is_none() {
        return Ok(());
    }
    let mut file = disk.open_append(path)?;
    let there = file.read_from(0)?;
    let mut known = std::collections::HashSet::new();
    format::take(&there, header.salt, &mut known, &mut Vec::new());
    for frame in format::frames(tail, Some(header.covered_salt)) {
        if known.insert(frame.id) {
            let mut bytes = Vec::with_capacity(frame.record.len() + 64);
            format::push_frame(&mut bytes, header.salt, frame.id, frame.record);
            file.append(&bytes)?;
        }
    }
    disk.open(path)?.sync()
}
