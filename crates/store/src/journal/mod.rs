//! Append-only checksummed records.
//!
//! A record that [`Journal::append`] took survives a power cut; one that [`Journal::append_cached`] took survives the
//! end of the process, and a power cut after the next [`Journal::sync`]. The records of one call land whole or not at
//! all. A torn tail is cut; it is never read as something else.
//!
//! Each durable append writes whole blocks of the device that were zero before and are not written again in the same
//! epoch, into a file that is as long as it needs to be already: there is no metadata to write and no acknowledged
//! block that a torn write could take along.

mod checksum;
mod follow;
mod format;
pub mod shared;

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, LogFile};
use crate::publish::{PublishError, publish};
use format::{FRAMES_AT, Header, SLOT_AT, Unreadable};

pub use follow::{JournalFollower, JournalNews};
pub use format::DamagedRange;

/// The least and the most that a full file grows by; in between it doubles.
const GROWTH: std::ops::RangeInclusive<u64> = format::FIRST_ROOM..=1 << 20;

/// The largest block of a device, in bytes.
const LARGEST_BLOCK: u64 = 4096;

/// Why the journal does not hold what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The journal could not be looked into; it is as it was.
    #[error("cannot open journal {path:?}")]
    NotOpened {
        /// The journal.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Another file stands there, or one of which nothing is left; it is as it was.
    #[error("{path:?} is no journal")]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The journal was written by a later version; it is as it was.
    #[error("journal {path:?} has the unknown version {version}")]
    UnknownVersion {
        /// The journal.
        path: PathBuf,
        /// What it says its version is.
        version: u32,
    },
    /// The records are not in the journal and will not be; the journal takes others.
    #[error("cannot append to journal {path:?}")]
    NotAppended {
        /// The journal.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The change may or may not be found at the next start; the file takes no more. [`Journal::restart`] settles it.
    #[error("cannot tell what journal {path:?} holds after a failed write")]
    Unknown {
        /// The journal.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// An earlier failure or damage made this file final: nothing was written. [`Journal::restart`] starts another.
    #[error("journal {path:?} takes no more records since an earlier failure")]
    Spent {
        /// The journal.
        path: PathBuf,
    },
    /// The new file was not, or not surely, put in place; the source says which file is. The journal stays spent.
    #[error("cannot start journal {path:?} anew")]
    NotRestarted {
        /// The journal.
        path: PathBuf,
        /// Why, and which file is in place.
        source: PublishError,
    },
}

/// What a journal held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The number that the last [`Journal::reset`] or [`Journal::restart`] gave.
    pub base: u64,
    /// The records in the order in which they were appended.
    pub records: Vec<Vec<u8>>,
    /// What follows `records` and cannot be read, with what comes behind it. The journal is then spent: restart it.
    pub damage: Option<DamagedRange>,
    /// Whether there are bytes that belong to no whole frame, or the file is shorter than it was made: a torn tail, or
    /// damage behind the last record. Of a journal that was reset this says nothing.
    pub is_torn: bool,
    /// How many bytes cannot be read, about; of a journal that was reset, with what was written before.
    pub damaged_bytes: u64,
}

impl Replay {
    /// Reads the bytes of a whole journal without opening it, `None` if they are none of a version known here.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Replay> {
        format::read(bytes).ok().map(Replay::from)
    }

    /// Says whether a part of a journal that is never reset cannot be read.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damage.is_some() || self.is_torn
    }

    /// Returns all records that can be read, also those behind damage.
    #[must_use]
    pub fn into_all_records(self) -> Vec<Vec<u8>> {
        let mut records = self.records;
        records.extend(self.damage.into_iter().flat_map(|damage| damage.salvaged));
        records
    }
}

impl From<format::Contents> for Replay {
    fn from(contents: format::Contents) -> Replay {
        let format::Contents { header, records, damage, is_torn, damaged_bytes, .. } = contents;
        Replay { base: header.base, records, damage, is_torn, damaged_bytes }
    }
}

/// An open journal. There is one writer; it holds whatever keeps others away (a bus name, a lock).
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Box<dyn LogFile>,
    header: Header,
    slot: usize,
    /// The bytes of both slots.
    slots: [format::Slot; 2],
    /// The sequence number of the next frame.
    next: u64,
    /// Where the next frame may start.
    end: u64,
    /// Whether records wait for a sync.
    unsynced: bool,
    /// Whether this file takes no more.
    spent: bool,
    /// The frame that could not be written for sure, if that is why.
    unsure: Vec<u8>,
    /// A checksum of the frames that stand behind a gap, if that is why.
    behind_gap: u32,
}

impl Journal {
    /// Opens the journal at `path`, or makes an empty one with base 0, and returns what it holds.
    ///
    /// Everything that is returned is durable, whatever became of the process that wrote it.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`], [`JournalError::NotAJournal`] and [`JournalError::UnknownVersion`] leave the file
    /// as it is; [`JournalError::NotRestarted`] if there was none and none could be made.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<(Journal, Replay), JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
        let mut file = match disk.open_log(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let journal = create(disk, path, 0, &[])?;
                let nothing = Replay {
                    base: 0,
                    records: Vec::new(),
                    damage: None,
                    is_torn: false,
                    damaged_bytes: 0,
                };
                return Ok((journal, nothing));
            }
            Err(error) => return Err(not_opened(error)),
        };
        // The file may have been made, and its name not been made durable, by a process that then failed.
        if let Some(dir) = path.parent() {
            disk.sync_dir(dir).map_err(not_opened)?;
        }
        let bytes = file.read().map_err(not_opened)?;
        let contents = format::read(&bytes).map_err(|why| unreadable(path, why))?;
        let behind = bytes.get(format::usize_of(contents.end)..).unwrap_or_default();
        let journal = Journal {
            path: path.to_owned(),
            file,
            header: contents.header,
            slot: contents.slot,
            slots: SLOT_AT.map(|at| format::slot_at(&bytes, at)),
            next: contents.next,
            end: contents.end,
            unsynced: false,
            // Frames behind a gap would be read as the successors of what is appended into the gap.
            spent: contents.damage.is_some(),
            unsure: Vec::new(),
            behind_gap: format::sum_of_frames(behind, &contents.header, &[]),
        };
        Ok((journal, contents.into()))
    }

    /// Reads what the journal at `path` holds now, beside its writer and without touching it. A record that is being
    /// appended meanwhile is there or not.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`], also if there is none; [`JournalError::NotAJournal`] and
    /// [`JournalError::UnknownVersion`].
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Replay, JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
        let bytes = disk.read(path).map_err(not_opened)?;
        let contents = format::read(&bytes).map_err(|why| unreadable(path, why))?;
        Ok(contents.into())
    }

    /// Appends records, all or none of them. On `Ok` they and all before them survive a power cut.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotAppended`] and [`JournalError::Spent`]: they will not be found.
    /// [`JournalError::Unknown`]: they may be; the journal is spent.
    pub fn append(&mut self, records: &[&[u8]]) -> Result<(), JournalError> {
        if self.unsynced {
            // One sync for what waits and for these.
            self.append_cached(records)?;
            return self.sync();
        }
        let mut frame = self.frame(records)?;
        frame.resize(frame.len().next_multiple_of(self.file.block_len()), 0);
        let at = self.end.next_multiple_of(self.file.block_len() as u64);
        self.make_room(at + frame.len() as u64)?;
        let (written, end) = (self.file.write_blocks(at, &frame), at + frame.len() as u64);
        self.settle(written, frame, end)
    }

    /// Appends records, all or none of them. On `Ok` they survive the end of this process, and a power cut after the
    /// next [`Journal::sync`] or [`Journal::append`].
    ///
    /// # Errors
    ///
    /// As [`Journal::append`].
    pub fn append_cached(&mut self, records: &[&[u8]]) -> Result<(), JournalError> {
        let frame = self.frame(records)?;
        let at = match self.unsynced {
            true => self.end,
            // The block of a durable record is not written again.
            false => self.end.next_multiple_of(self.file.block_len() as u64),
        };
        // The file grows by what is written: only durable records need room that is there already.
        self.unsynced = true;
        let (written, end) = (self.file.write_cached(at, &frame), at + frame.len() as u64);
        self.settle(written, frame, end)
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    ///
    /// [`JournalError::Unknown`]: records since the last sync may be lost; the journal is spent.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.usable()?;
        if self.unsynced {
            let synced = self.file.sync();
            self.final_if_failed(synced)?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Empties the journal in place, once what its records led to is durable elsewhere; `base` is returned by the
    /// next [`Journal::open`]. One block is written; the blocks of the old records are used again.
    ///
    /// # Errors
    ///
    /// [`JournalError::Spent`]: the records stay. [`JournalError::Unknown`]: they may still be found; the journal is
    /// spent.
    pub fn reset(&mut self, base: u64) -> Result<(), JournalError> {
        self.usable()?;
        // Only a file that was made by hand has no next epoch.
        let Some(epoch) = self.header.epoch.checked_add(1) else {
            self.spent = true;
            return self.usable();
        };
        let header = Header { epoch, base, ..self.header };
        let slot = 1 - self.slot;
        let mut block = header.encode().to_vec();
        block.resize(self.file.block_len(), 0);
        let written = self.file.write_blocks(SLOT_AT[slot], &block);
        self.final_if_failed(written)?;
        (self.header, self.slot, self.slots[slot]) = (header, slot, header.encode());
        (self.next, self.end, self.unsynced) = (0, FRAMES_AT, false);
        Ok(())
    }

    /// Replaces the journal by a new file that holds these records only, and goes on in that: after a failure or
    /// damage, or to drop records that are no longer needed.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotRestarted`] says which file is in place; [`JournalError::NotOpened`]: the new one is,
    /// durably. The journal is then spent, and restarting can be tried again.
    pub fn restart(
        &mut self,
        disk: &dyn Disk,
        base: u64,
        records: &[&[u8]],
    ) -> Result<(), JournalError> {
        self.spent = true;
        *self = create(disk, &self.path, base, records)?;
        Ok(())
    }

    /// Tells whether this is still the journal at its path and holds what this writer knows of: no other process has
    /// replaced it, emptied it or appended to it. One whose writers take turns asks before it appends, and opens the
    /// journal again if another one was there.
    ///
    /// # Errors
    ///
    /// As `stat(2)` and `read(2)`.
    pub fn is_current(&self, disk: &dyn Disk) -> io::Result<bool> {
        let in_place = match disk.stat(&self.path) {
            Ok(stat) => stat.identity,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if in_place != self.file.identity() {
            return Ok(false);
        }
        let head = self.file.read_at(0, format::usize_of(SLOT_AT[1]) + format::HEADER_LEN)?;
        if SLOT_AT.map(|at| format::slot_at(&head, at)) != self.slots {
            return Ok(false);
        }
        if self.spent {
            // Behind the end may stand what a failed write of ours left, and what damage cut off.
            let rest = usize::try_from(self.file.len()).unwrap_or(usize::MAX);
            let rest = self.file.read_at(self.end, rest)?;
            let sum = format::sum_of_frames(&rest, &self.header, &self.unsure);
            return Ok(sum == self.behind_gap);
        }
        // The next frame of another writer is here or in the next block of its device.
        let ahead = self.end.next_multiple_of(LARGEST_BLOCK) - self.end;
        let ahead = usize::try_from(ahead).unwrap_or(usize::MAX) + format::FRAME_HEADER_LEN;
        Ok(!format::begins_frame(&self.file.read_at(self.end, ahead)?, &self.header))
    }

    /// Returns the number given by the last reset or restart.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.header.base
    }

    /// Returns how many bytes the records take: what a start has to read, and what a reset frees.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.end - FRAMES_AT
    }

    /// Tells whether the journal has to be restarted before it takes records.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    fn usable(&self) -> Result<(), JournalError> {
        if self.spent { Err(JournalError::Spent { path: self.path.clone() }) } else { Ok(()) }
    }

    fn frame(&self, records: &[&[u8]]) -> Result<Vec<u8>, JournalError> {
        self.usable()?;
        format::encode_frame(&self.header, self.next, records).ok_or_else(|| too_long(&self.path))
    }

    /// Makes the file long enough to write up to `end`.
    fn make_room(&mut self, end: u64) -> Result<(), JournalError> {
        let len = self.file.len();
        if end <= len {
            return Ok(());
        }
        let grown = end.max(len + len.clamp(*GROWTH.start(), *GROWTH.end())).next_multiple_of(4096);
        self.file.extend(grown).map_err(|source| {
            // A failed sync of the zeros may have dropped the pages of records that waited for theirs.
            self.spent = self.unsynced;
            JournalError::NotAppended { path: self.path.clone(), source }
        })
    }

    /// Goes on behind a frame that was written up to `end`, or keeps in mind what may be there after a failure.
    fn settle(
        &mut self,
        written: io::Result<()>,
        frame: Vec<u8>,
        end: u64,
    ) -> Result<(), JournalError> {
        if written.is_err() {
            self.unsure = frame;
        }
        self.final_if_failed(written)?;
        self.next += 1;
        self.end = end;
        Ok(())
    }

    /// Gives the file up after a failed write or sync: what the kernel calls clean may never have been written.
    fn final_if_failed(&mut self, result: io::Result<()>) -> Result<(), JournalError> {
        result.map_err(|source| {
            self.spent = true;
            JournalError::Unknown { path: self.path.clone(), source }
        })
    }
}

/// Publishes a journal of these records in place of what was there, and opens it.
fn create(
    disk: &dyn Disk,
    path: &Path,
    base: u64,
    records: &[&[u8]],
) -> Result<Journal, JournalError> {
    let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
    let header = Header { salt: disk.token().map_err(not_opened)?, epoch: 0, base };
    let mut image = header.encode().to_vec();
    image.resize(FRAMES_AT.try_into().unwrap_or(0), 0);
    let mut next = 0;
    for record in records {
        // The file is published as a whole, so the records need no common frame: damage to one leaves the others.
        let frame = format::encode_frame(&header, next, &[record]).ok_or_else(|| too_long(path))?;
        image.extend_from_slice(&frame);
        next += 1;
    }
    let end = image.len();
    let len = end.next_multiple_of(4096) + usize::try_from(*GROWTH.start()).unwrap_or(0);
    // Zeroes of the allocator need not be written one by one.
    let mut whole = vec![0; len];
    whole[..end].copy_from_slice(&image);
    publish(disk, path, &whole)
        .map_err(|source| JournalError::NotRestarted { path: path.to_owned(), source })?;
    Ok(Journal {
        path: path.to_owned(),
        file: disk.open_log(path).map_err(not_opened)?,
        header,
        slot: 0,
        slots: [header.encode(), format::NO_SLOT],
        next,
        end: end as u64,
        unsynced: false,
        spent: false,
        unsure: Vec::new(),
        behind_gap: 0,
    })
}

fn unreadable(path: &Path, why: Unreadable) -> JournalError {
    let path = path.to_owned();
    match why {
        Unreadable::NotAJournal => JournalError::NotAJournal { path },
        Unreadable::Version(version) => JournalError::UnknownVersion { path, version },
    }
}

fn too_long(path: &Path) -> JournalError {
    let source = io::ErrorKind::InvalidInput.into();
    JournalError::NotAppended { path: path.to_owned(), source }
}
