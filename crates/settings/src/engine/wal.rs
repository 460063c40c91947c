//! The durable state of a `journal` database: a checkpoint image, and a journal of the changes after it.
//!
//! Each record starts with the generation of the image that it led to. A checkpoint holds everything up to its own
//! generation, so a record is applied only if it is newer: it does no harm if the journal outlives the checkpoint.

use std::io;

use store::disk::Disk;
use store::journal::{Journal, JournalError};
use store::publish::{PublishError, publish};
use store::publish::{copy_aside, move_aside};

use super::answer::{ChangeError, EngineNotice};
use super::failure::failure;
use super::file_identity::{self, FileIdentity};
use super::files::Files;
use crate::changeset::Changeset;
use crate::database::KeyTable;
use crate::effective::apply;
use crate::names::DatabaseId;

/// The open journal of a database.
#[derive(Debug)]
pub(super) struct Wal {
    journal: Box<Journal>,
    /// The identity of the checkpoint to which the journal belongs, when it was read or written.
    checkpoint: FileIdentity,
    /// Whether the checkpoint is damaged: the next write creates another.
    must_checkpoint: bool,
}

/// A journal that has grown to this and to the length of an image is folded even if the database is never idle: the
/// blocks of its records are used again, and the checkpoints cost no more than the records did.
const ENOUGH_BYTES: u64 = 256 << 10;

impl Wal {
    /// Opens the journal, applies what the checkpoint lacks to `table`, and returns the generation that leads to.
    ///
    /// `checkpoint` is the generation of the checkpoint that `seen` says `table` was read from.
    pub(super) fn open(
        disk: &dyn Disk,
        id: &DatabaseId,
        files: &Files,
        table: &mut KeyTable,
        (checkpoint, seen): (u64, FileIdentity),
        reports: &mut Vec<EngineNotice>,
    ) -> Result<(Wal, u64), ChangeError> {
        let path = &files.log;
        let cannot = |error: &JournalError, now: &str| {
            let text = format!("Cannot open dconf database: {}", chain(error));
            ChangeError::new(&text, &cause(error), now)
        };
        let unchanged = |error: JournalError| cannot(&error, "nothing was changed");
        let opened = match Journal::open(disk, path) {
            Err(JournalError::NotAJournal { .. }) => {
                let kept = move_aside(disk, path).map_err(|source| {
                    unchanged(JournalError::NotOpened { path: path.clone(), source })
                })?;
                reports.push(EngineNotice::NotADatabase { id: id.clone(), kept, restored: 0 });
                Journal::open(disk, path)
            }
            other => other,
        };
        let (journal, replay) = opened.map_err(unchanged)?;
        let mut generation = checkpoint.max(replay.base);
        let mut torn = replay.damage.is_some();
        // Records after a gap are valid, too: they hold the values of keys, not differences.
        let behind = replay.damage.iter().flat_map(|damage| &damage.salvaged);
        for record in replay.records.iter().chain(behind) {
            let Some((number, changes)) = record.split_first_chunk::<8>() else {
                torn = true;
                continue;
            };
            let number = u64::from_le_bytes(*number);
            if number > checkpoint {
                apply(table, &Changeset::decode(changes));
                generation = generation.max(number);
            }
        }
        if torn {
            let kept = copy_aside(disk, path).ok();
            let (intact, restored) = (table.len(), 0);
            reports.push(EngineNotice::Salvaged { id: id.clone(), kept, intact, restored });
        }
        Ok((
            Wal { journal: Box::new(journal), checkpoint: seen, must_checkpoint: torn },
            generation,
        ))
    }

    /// Returns whether checkpoint and journal are unchanged: no other service of this user has written meanwhile.
    pub(super) fn is_current(&self, disk: &dyn Disk, files: &Files) -> io::Result<bool> {
        Ok(file_identity::look(disk, &files.checkpoint)? == self.checkpoint
            && self.journal.is_current(disk)?)
    }

    /// Has the next write create a checkpoint, because the present one is damaged.
    pub(super) fn distrust_checkpoint(&mut self) {
        self.must_checkpoint = true;
    }

    /// Returns whether the next write makes a checkpoint.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.must_checkpoint || self.journal.is_spent()
    }

    /// Returns whether a checkpoint with an image of this length is cheaper than further records.
    fn is_long(&self, image: &[u8]) -> bool {
        self.journal.used_bytes() >= ENOUGH_BYTES.max(image.len() as u64)
    }

    /// Returns whether the checkpoint holds everything.
    pub(super) fn is_empty(&self) -> bool {
        self.journal.used_bytes() == 0 && !self.wants_checkpoint()
    }

    /// Returns how many bytes a start would have to replay.
    pub(super) fn bytes(&self) -> u64 {
        if self.wants_checkpoint() { u64::MAX } else { self.journal.used_bytes() }
    }

    /// Makes a batch durable: as one record, or as part of a new checkpoint if the journal takes no more.
    ///
    /// `image` holds everything up to and with the batch.
    pub(super) fn store(
        &mut self,
        disk: &dyn Disk,
        files: &Files,
        generation: u64,
        changes: &[u8],
        image: &[u8],
    ) -> Result<(), ChangeError> {
        if self.wants_checkpoint() || self.is_long(image) {
            return self.checkpoint(disk, files, generation, image);
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut record = generation.to_le_bytes().to_vec();
        record.extend_from_slice(changes);
        self.journal.append(&[&record]).map_err(|error| {
            let now = match error {
                JournalError::Unknown { .. } => {
                    "the change was taken back, but a crash before the next write may bring it back"
                }
                _ => "nothing was changed",
            };
            ChangeError::new(&chain(&error), &cause(&error), now)
        })
    }

    /// Puts a new checkpoint in place and empties the journal.
    ///
    /// On an error the journal still holds everything that was answered.
    pub(super) fn checkpoint(
        &mut self,
        disk: &dyn Disk,
        files: &Files,
        generation: u64,
        image: &[u8],
    ) -> Result<(), ChangeError> {
        match publish(disk, &files.checkpoint, image) {
            Ok(stat) => self.checkpoint = FileIdentity::File(stat),
            Err(error) => {
                // The journal is only valid for its checkpoint: it must not be written for another one.
                self.must_checkpoint |= !matches!(error, PublishError::NotReplaced { .. });
                return Err(failure(&files.checkpoint, &error));
            }
        }
        self.must_checkpoint = false;
        let emptied = match self.journal.is_spent() {
            true => self.journal.restart(disk, generation, &[]),
            false => self.journal.reset(generation),
        };
        // Everything is in the checkpoint. A journal that could not be emptied is not used any more: its records are older than
        // the checkpoint, and the next write creates another one.
        emptied.or(Ok(()))
    }
}

/// Returns the texts of an error and its causes but the last, which [`ChangeError::new`] adds.
fn chain(error: &JournalError) -> String {
    error.to_string()
}

/// Returns the error of the disk.
fn cause(error: &JournalError) -> std::io::Error {
    let source = match error {
        JournalError::NotOpened { source, .. }
        | JournalError::NotAppended { source, .. }
        | JournalError::Unknown { source, .. } => source,
        JournalError::NotRestarted { source, .. } => source.cause(),
        _ => return std::io::Error::other("the file is left as it is"),
    };
    match source.raw_os_error() {
        Some(number) => std::io::Error::from_raw_os_error(number),
        None => source.kind().into(),
    }
}
