//! Writing the history, on the disk thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gvdb::gvariant::Variant;
use store::disk::Disk;
use store::journal::{Journal, JournalError};
use store::publish::{copy_aside, move_aside, remove_stale};
use store::turns::{TurnRequest, Turns};

use super::{
    HistoryEntry, HistoryValue, Keep, KeyChange, LONGEST_VALUE_BYTES, OUTSIDE, in_order, is_denied,
    read_file, rebuild, record,
};
use crate::earlier;
use crate::names::{DatabaseDirectories, DatabaseId};

/// The largest part of the history for one entry, so that one large change does not displace the rest.
const LARGEST_PART: u64 = 4;
/// Another service records its own changes: a change with the same value within this time is the same change.
const SAME_CHANGE: Duration = Duration::from_secs(30);
/// The number of own entries that are kept: more than are written in that time.
const MOST_NUMBERS: usize = 1 << 16;

/// The image of a database as it was found when it was read first.
#[derive(Debug)]
pub(crate) struct OpenedImage {
    /// The database.
    pub(crate) id: DatabaseId,
    /// The generation that the image says it has; 0 if it says nothing.
    pub(crate) generation: u64,
    /// The image.
    pub(crate) bytes: Vec<u8>,
    /// When it was read.
    pub(crate) time: SystemTime,
}

/// The result of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The batch is in the history.
    All,
    /// Another service writes the history: the batch is still here.
    Busy,
    /// The batch, or a part of it, is not in the history.
    Failed,
}

/// The disk's side of the history.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    snapshots: PathBuf,
    keep: Keep,
    turns: Turns,
    journal: Option<Journal>,
    next_id: u64,
    /// The numbers of the last entries that this service wrote.
    ours: BTreeSet<u64>,
    batch: Vec<HistoryEntry>,
    opened: Vec<OpenedImage>,
    /// When the service started.
    started: SystemTime,
    now: SystemTime,
}

impl Writer {
    /// Prepares to write; the file is opened by the first write.
    pub(super) fn new(places: &DatabaseDirectories, keep: Keep, started: SystemTime) -> Writer {
        Writer {
            path: super::file(places),
            snapshots: places.snapshots(),
            keep,
            turns: Turns::default(),
            journal: None,
            next_id: 0,
            ours: BTreeSet::new(),
            started,
            batch: Vec::new(),
            opened: Vec::new(),
            now: SystemTime::UNIX_EPOCH,
        }
    }

    pub(super) fn take_batch(
        &mut self,
        batch: Vec<HistoryEntry>,
        opened: Vec<OpenedImage>,
        now: SystemTime,
    ) {
        (self.batch, self.opened, self.now) = (batch, opened, now);
    }

    pub(super) fn return_batch(&mut self) -> (Vec<HistoryEntry>, Vec<OpenedImage>) {
        (std::mem::take(&mut self.batch), std::mem::take(&mut self.opened))
    }

    /// Drops the batch; returns how many changes are lost.
    pub(super) fn drop_batch(&mut self) -> u64 {
        let (batch, _) = self.return_batch();
        batch.len() as u64
    }

    /// Writes the batch and drops what is too old or too much. What the log should say is added to `notes`.
    ///
    /// The records survive the end of the process, and a power cut as soon as the kernel writes them: a history is
    /// not worth a sync.
    ///
    /// # Errors
    ///
    /// What was not written is still in the batch.
    pub(crate) fn write(
        &mut self,
        disk: &dyn Disk,
        notes: &mut Vec<String>,
    ) -> Result<Written, JournalError> {
        // It is done here, because the program that changed a key has its answer already.
        for mut entry in std::mem::take(&mut self.batch) {
            entry.keys = entry.keys.into_iter().map(|key| self.without_secret(key)).collect();
            self.batch.push(entry);
        }
        let not_opened = |source| JournalError::NotOpened { path: self.path.clone(), source };
        let _turn = match self.turns.ask(disk, &self.path).map_err(not_opened)? {
            TurnRequest::Busy => return Ok(Written::Busy),
            TurnRequest::Granted(turn) | TurnRequest::NoLocks(turn) => turn,
        };
        let ours = self.journal.take().filter(|ours| ours.is_current(disk).unwrap_or(false));
        let mut journal = match ours {
            Some(journal) => journal,
            None => self.open(disk, notes)?,
        };
        self.leave_out_what_others_recorded(disk);
        self.record_what_happened_before(disk);
        let largest = usize::try_from(self.keep.bytes / LARGEST_PART).unwrap_or(usize::MAX);
        self.batch.reverse();
        while let Some(entry) = self.batch.last_mut() {
            entry.id = self.next_id;
            let record = record::pack(entry, largest);
            tell_loss(entry, notes);
            // Each has a frame of its own, so that damage is limited to one.
            journal.append_cached(&[&record])?;
            self.ours.insert(self.next_id);
            if self.ours.len() > MOST_NUMBERS {
                self.ours.pop_first();
            }
            self.next_id += 1;
            self.batch.pop();
        }
        if journal.used_bytes() > self.keep.bytes {
            let kept = self.kept(disk)?;
            let kept: Vec<&[u8]> = kept.iter().map(Vec::as_slice).collect();
            journal.restart(disk, self.next_id, &kept)?;
        }
        self.journal = Some(journal);
        Ok(Written::All)
    }

    /// Opens the journal. A damaged one is set aside, and its readable records continue in a new one.
    fn open(&mut self, disk: &dyn Disk, notes: &mut Vec<String>) -> Result<Journal, JournalError> {
        let path = &self.path;
        let not_opened = |source| JournalError::NotOpened { path: path.clone(), source };
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let older_than_ns = i128::try_from(started.as_nanos()).unwrap_or(i128::MAX);
        // If it fails, a hidden file remains, which the next start tries to remove.
        let _ = remove_stale(disk, path, older_than_ns);
        let opened = match Journal::open(disk, path) {
            Err(
                error @ (JournalError::NotAJournal { .. } | JournalError::UnknownVersion { .. }),
            ) => {
                let kept = move_aside(disk, path).map_err(not_opened)?;
                notes.push(format!(
                    "cannot read the history: {error}; it is now {} and a new one is begun",
                    kept.display()
                ));
                Journal::open(disk, path)
            }
            other => other,
        };
        let (mut journal, replay) = opened?;
        let (base, is_damaged) = (replay.base, replay.is_damaged());
        let records = replay.into_all_records();
        // Numbers grow, so the last record that can be read has the largest.
        let last = records.iter().rev().find_map(|bytes| record::unpack(bytes).pop());
        self.next_id = self.next_id.max(last.map_or(0, |entry| entry.id + 1)).max(base);
        if is_damaged {
            let kept = copy_aside(disk, path).map_err(not_opened)?;
            notes.push(format!(
                "the history {} was damaged: {} of its records could be read and are kept; the damaged file is now {}",
                path.display(),
                records.len(),
                kept.display()
            ));
            let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            journal.restart(disk, self.next_id, &records)?;
        }
        Ok(journal)
    }

    /// Returns the newest records that are young enough and fill at most half of the limit.
    fn kept(&self, disk: &dyn Disk) -> Result<Vec<Vec<u8>>, JournalError> {
        let records = Journal::read(disk, &self.path)?.into_all_records();
        let oldest = self.now.checked_sub(self.keep.age);
        let mut room = self.keep.bytes / 2;
        let mut kept = Vec::new();
        for bytes in records.into_iter().rev() {
            let entries = record::unpack(&bytes);
            let is_young = entries.last().is_some_and(|entry| Some(entry.time) >= oldest);
            if room < bytes.len() as u64 || !is_young {
                break;
            }
            room -= bytes.len() as u64;
            kept.push(self.without_secrets(entries, bytes));
        }
        kept.reverse();
        Ok(kept)
    }

    /// Returns a record without the values that the present deny list names.
    fn without_secrets(&self, entries: Vec<HistoryEntry>, bytes: Vec<u8>) -> Vec<u8> {
        let [entry] = &entries[..] else { return bytes };
        let mut entry = entry.clone();
        entry.keys = entry.keys.into_iter().map(|key| self.without_secret(key)).collect();
        if entry.keys == entries[0].keys {
            return bytes;
        }
        record::pack(&mut entry, usize::MAX)
    }

    /// Leaves out the values of a key that the deny list names.
    fn without_secret(&self, mut key: KeyChange) -> KeyChange {
        let is_kept =
            |value: &HistoryValue| matches!(value, HistoryValue::Set(_) | HistoryValue::TooLong(_));
        if (is_kept(&key.old) || is_kept(&key.new)) && is_denied(&self.keep.deny, &key.path) {
            for value in [&mut key.old, &mut key.new] {
                if is_kept(value) {
                    *value = HistoryValue::Hidden;
                }
            }
        }
        key
    }

    /// Inserts before the batch the changes that other programs made while no service ran.
    fn record_what_happened_before(&mut self, disk: &dyn Disk) {
        let opened = std::mem::take(&mut self.opened);
        let found: Vec<HistoryEntry> =
            opened.into_iter().filter_map(|image| self.changed_unseen(disk, &image)).collect();
        self.batch.splice(..0, found);
    }

    /// Returns how an image differs from its contents according to the history.
    fn changed_unseen(&self, disk: &dyn Disk, image: &OpenedImage) -> Option<HistoryEntry> {
        // Changes of another service since then are in an image that this service has not read.
        let is_earlier =
            |entry: &HistoryEntry| entry.database == image.id && entry.time <= image.time;
        let of_database = |entries: Vec<HistoryEntry>| entries.into_iter().rfind(is_earlier);
        // An unreadable history cannot be compared.
        let records = Journal::read(disk, &self.path).ok()?.into_all_records();
        let last = records.iter().rev().find_map(|bytes| of_database(record::unpack(bytes)));
        if last.is_some_and(|last| last.generation != 0 && last.generation == image.generation) {
            return None;
        }
        let entries = records.iter().flat_map(|bytes| record::unpack(bytes));
        let entries = in_order(entries.filter(is_earlier));
        let snapshot = earlier::newest(disk, &self.snapshots, &image.id);
        let rebuilt = rebuild::rebuild(snapshot, &image.id, &entries);
        let (found, _) = earlier::intact(&image.bytes)?;
        let keys = rebuilt.changed_to(&found).into_iter().map(|(path, old, new)| {
            let (old, new) = (value_of(old.as_ref()), value_of(new.as_ref()));
            self.without_secret(KeyChange { path, old, new })
        });
        let keys: Vec<KeyChange> = keys.collect();
        (!keys.is_empty()).then(|| HistoryEntry {
            id: 0,
            time: image.time,
            database: image.id.clone(),
            sender: OUTSIDE.to_owned(),
            process: None,
            tag: String::new(),
            generation: image.generation,
            keys,
            left_out: 0,
        })
    }

    /// Removes changes from the batch that another service of this user made and recorded itself.
    fn leave_out_what_others_recorded(&mut self, disk: &dyn Disk) {
        if !self.batch.iter().any(HistoryEntry::is_from_outside) {
            return;
        }
        let Ok(recorded) = read_file(disk, &self.path) else { return };
        let is_of_another_service = |entry: &&HistoryEntry| {
            entry.time >= self.started && !self.ours.contains(&entry.id) && !entry.is_from_outside()
        };
        let mut known: BTreeMap<(&DatabaseId, &str), Vec<(&HistoryValue, SystemTime)>> =
            BTreeMap::new();
        for entry in recorded.entries.iter().filter(is_of_another_service) {
            for key in &entry.keys {
                let changes = known.entry((&entry.database, &key.path)).or_default();
                changes.push((&key.new, entry.time));
            }
        }
        for entry in self.batch.iter_mut().filter(|entry| entry.is_from_outside()) {
            let (database, time) = (entry.database.clone(), entry.time);
            entry.keys.retain(|key| {
                let changes = known.get(&(&database, key.path.as_str()));
                !changes
                    .into_iter()
                    .flatten()
                    .any(|(value, when)| **value == key.new && apart(*when, time) <= SAME_CHANGE)
            });
        }
        self.batch.retain(|entry| !entry.keys.is_empty() || entry.left_out > 0);
    }
}

fn apart(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}

/// Marks the parts of an entry that are not stored.
fn tell_loss(entry: &HistoryEntry, notes: &mut Vec<String>) {
    let values = entry.keys.iter().flat_map(|key| [&key.old, &key.new]);
    let long = values.filter(|value| matches!(value, HistoryValue::TooLong(_))).count();
    if long > 0 || entry.left_out > 0 {
        notes.push(format!(
            "change {} of {} is too large for the history: {long} values and {} keys of it are not stored",
            entry.id, entry.database, entry.left_out
        ));
    }
}

/// Returns the part of a value that is kept until it is written; [`Writer::write`] leaves out denied values.
pub(crate) fn value_of(value: Option<&Variant>) -> HistoryValue {
    match value {
        None => HistoryValue::Unset,
        Some(value) if value.as_bytes().len() > LONGEST_VALUE_BYTES => {
            HistoryValue::TooLong(value.as_bytes().len() as u64)
        }
        Some(value) => HistoryValue::Set(value.clone()),
    }
}
