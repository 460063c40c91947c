//! History: who changed which setting, when, from what to what; and how to take it back.
//!
//! The daemon writes it behind the replies; [`read()`] and [`undo()`] work with or without a daemon. The records are in
//! one journal, `history.journal` in the state directory, oldest first, in a bounded number of bytes.
//! `docs/settings-history.md` has the format.

mod deny;
mod rebuild;
mod record;
mod recorder;
mod undo;
mod writer;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gvdb::gvariant::Variant;
use store::disk::Disk;
use store::journal::{Journal, JournalError, Replay};

use super::names::{DatabaseDirectories, DatabaseId};

pub use deny::{DEFAULT_DENY, is_denied};
pub(crate) use rebuild::{Rebuilt, rebuild};
pub(crate) use recorder::Recorder;
pub use undo::{Conflict, Forced, Present, Reason, Undo, undo};
pub(crate) use writer::{OpenedImage, Writer, Written, value_of};

/// A process as the bus knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryProcess {
    /// Its process id.
    pub pid: u32,
    /// Its executable, if it could be read.
    pub exe: Option<PathBuf>,
}

/// The limits of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The most bytes on disk, about.
    pub bytes: u64,
    /// The oldest change.
    pub age: Duration,
    /// Patterns of paths whose values are never stored, as [`is_denied`] reads them.
    pub deny: Vec<String>,
}

impl Default for Keep {
    /// 16 MB, 90 days, and no values of the keys in [`DEFAULT_DENY`].
    fn default() -> Keep {
        let deny = DEFAULT_DENY.iter().map(|pattern| (*pattern).to_owned()).collect();
        Keep { bytes: 16 << 20, age: Duration::from_secs(90 * 86_400), deny }
    }
}

/// One change that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    /// Its number; later changes have larger ones.
    pub id: u64,
    /// When it was answered, to the millisecond.
    pub time: SystemTime,
    /// The database that was changed.
    pub database: DatabaseId,
    /// The unique bus name of the caller.
    pub sender: String,
    /// The process of the caller, if the bus reported it.
    pub process: Option<HistoryProcess>,
    /// The tag that the sender was given.
    pub tag: String,
    /// The generation of the image that first held the change; 0 if it is not known or the image has none.
    pub generation: u64,
    /// The keys that changed.
    pub keys: Vec<KeyChange>,
    /// How many more keys changed, which are not stored because they are too many.
    pub left_out: u64,
}

/// The sender of a change that no caller of the service made: another program replaced the file.
pub const OUTSIDE: &str = "outside";

impl HistoryEntry {
    /// Returns about how much memory its keys take, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.keys.iter().map(KeyChange::weight).sum()
    }

    /// Returns whether another program made the change by replacing the file.
    #[must_use]
    pub fn is_from_outside(&self) -> bool {
        self.sender == OUTSIDE
    }
}

/// What a change did to one key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyChange {
    /// The key.
    pub path: String,
    /// What it was before.
    pub old: HistoryValue,
    /// What it was set to.
    pub new: HistoryValue,
}

impl KeyChange {
    /// Returns about how much memory it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let value = |value: &HistoryValue| match value {
            HistoryValue::Set(value) => value.as_bytes().len(),
            HistoryValue::Unset | HistoryValue::Hidden | HistoryValue::TooLong(_) => 0,
        };
        size_of::<KeyChange>() + self.path.len() + value(&self.old) + value(&self.new)
    }
}

/// A value in the history.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryValue {
    /// The key had no value.
    Unset,
    /// The key had this value.
    Set(Variant),
    /// The key had a value that is not stored, because the key is on the deny list.
    Hidden,
    /// The key had a value of so many bytes, which is not stored because it is too long.
    TooLong(u64),
}

/// Values of more bytes than this are not stored.
pub(crate) const LONGEST_VALUE_BYTES: usize = 16 << 10;

/// A history that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryContents {
    /// The changes, oldest first.
    pub entries: Vec<HistoryEntry>,
    /// Whether a part of the file cannot be read.
    pub is_damaged: bool,
}

/// Reads the whole history, oldest first; it is empty if there is none.
///
/// Invalid records, for example of a later version, are left out.
///
/// # Errors
///
/// The file cannot be read or is no journal.
pub fn read(
    disk: &dyn Disk,
    places: &DatabaseDirectories,
) -> Result<HistoryContents, JournalError> {
    read_file(disk, &file(places))
}

pub(crate) fn read_file(disk: &dyn Disk, path: &Path) -> Result<HistoryContents, JournalError> {
    match Journal::read(disk, path) {
        Ok(replay) => {
            let is_damaged = replay.is_damaged();
            let records = replay.into_all_records();
            let entries = in_order(records.iter().flat_map(|bytes| record::unpack(bytes)));
            Ok(HistoryContents { entries, is_damaged })
        }
        Err(JournalError::NotOpened { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(HistoryContents::default())
        }
        Err(error) => Err(error),
    }
}

/// Sorts changes of other programs, which are recorded some seconds later, into their places.
fn in_order(entries: impl Iterator<Item = HistoryEntry>) -> Vec<HistoryEntry> {
    let mut ordered: Vec<HistoryEntry> = Vec::new();
    for entry in entries {
        let is_before = |earlier: &&HistoryEntry| {
            let ahead = earlier.time.duration_since(entry.time).unwrap_or_default();
            entry.is_from_outside() && !ahead.is_zero() && ahead <= LATEST_OUTSIDE
        };
        let behind = ordered.iter().rev().take_while(is_before).count();
        ordered.insert(ordered.len() - behind, entry);
    }
    ordered
}

/// The longest delay between a change of another program and its record.
const LATEST_OUTSIDE: Duration = Duration::from_secs(10);

/// Calls `take` with every value in the bytes of a history.
pub fn each_value(bytes: &[u8], take: &mut dyn FnMut(&Variant)) {
    let Some(replay) = Replay::of(bytes) else { return };
    for record in replay.into_all_records() {
        for change in record::unpack(&record).iter().flat_map(|entry| &entry.keys) {
            for value in [&change.old, &change.new] {
                if let HistoryValue::Set(value) = value {
                    take(value);
                }
            }
        }
    }
}

/// Returns the path of the history.
#[must_use]
pub fn file(places: &DatabaseDirectories) -> PathBuf {
    places.state.join("history.journal")
}

/// A filter of entries; an entry must meet every condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Changed at this time or later.
    pub since: Option<SystemTime>,
    /// Changed before this time.
    pub until: Option<SystemTime>,
    /// Only keys at or below this path.
    pub path: Option<String>,
    /// Made by an executable whose path ends with this.
    pub exe: Option<String>,
    /// In this database.
    pub database: Option<DatabaseId>,
}

impl HistoryFilter {
    /// Returns the entry with the keys that are wanted, if any is.
    #[must_use]
    pub fn select(&self, entry: &HistoryEntry) -> Option<HistoryEntry> {
        let in_time = self.since.is_none_or(|since| entry.time >= since)
            && self.until.is_none_or(|until| entry.time < until);
        let by_exe = self.exe.as_ref().is_none_or(|exe| {
            let path = entry.process.as_ref().and_then(|process| process.exe.as_ref());
            path.is_some_and(|path| path.to_string_lossy().ends_with(exe.as_str()))
        });
        let in_database = self.database.as_ref().is_none_or(|id| entry.database == *id);
        if !(in_time && by_exe && in_database) {
            return None;
        }
        let wanted = |change: &&KeyChange| match &self.path {
            None => true,
            Some(path) if path.ends_with('/') => change.path.starts_with(path.as_str()),
            Some(path) => change.path == *path,
        };
        let keys: Vec<KeyChange> = entry.keys.iter().filter(wanted).cloned().collect();
        (!keys.is_empty()).then(|| HistoryEntry { keys, ..entry.clone() })
    }
}
