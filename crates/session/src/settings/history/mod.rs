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

use store::disk::Disk;
use store::journal::{Journal, JournalError, Replay};
use store::table::gvariant::Variant;

use super::engine::{DatabaseId, Places};

pub use deny::{DEFAULT_DENY, is_denied};
pub(crate) use rebuild::{Rebuilt, rebuild};
pub(crate) use recorder::{OpenedImage, Recorder};
pub use undo::{Conflict, Forced, Present, Reason, Undo, undo};
pub(crate) use writer::{Writer, Written};

/// A process as the bus knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its executable, if it could be read.
    pub exe: Option<PathBuf>,
}

/// What the history keeps, and for how long.
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
pub struct Entry {
    /// Its number; later changes have larger ones.
    pub id: u64,
    /// When it was answered, to the millisecond.
    pub time: SystemTime,
    /// The database that was changed.
    pub database: DatabaseId,
    /// The unique bus name of who asked for it.
    pub sender: String,
    /// The process behind the name, if the bus could tell.
    pub process: Option<Process>,
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

impl Entry {
    /// Says whether another program made the change by replacing the file.
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
    pub old: Value,
    /// What it was set to.
    pub new: Value,
}

/// A value in the history.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
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
pub const LONGEST_VALUE_BYTES: usize = 16 << 10;

/// A history as it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The changes, oldest first.
    pub entries: Vec<Entry>,
    /// Whether a part of the file cannot be read.
    pub is_damaged: bool,
}

/// Reads the whole history, oldest first; it is empty if there is none.
///
/// Records that cannot be understood, for example of a later version, are left out.
///
/// # Errors
///
/// The file cannot be read or is no journal.
pub fn read(disk: &dyn Disk, places: &Places) -> Result<Recorded, JournalError> {
    read_file(disk, &file(places))
}

pub(crate) fn read_file(disk: &dyn Disk, path: &Path) -> Result<Recorded, JournalError> {
    match Journal::read(disk, path) {
        Ok(replay) => {
            let is_damaged = writer::is_damaged(&replay);
            let records = writer::all_records(replay);
            let entries = in_order(records.iter().flat_map(|bytes| record::unpack(bytes)));
            Ok(Recorded { entries, is_damaged })
        }
        Err(JournalError::NotOpened { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(Recorded::default())
        }
        Err(error) => Err(error),
    }
}

/// Puts changes from outside, which are recorded some seconds later than others, where they belong.
fn in_order(entries: impl Iterator<Item = Entry>) -> Vec<Entry> {
    let mut ordered: Vec<Entry> = Vec::new();
    for entry in entries {
        let is_before = |earlier: &&Entry| {
            let ahead = earlier.time.duration_since(entry.time).unwrap_or_default();
            entry.is_from_outside() && !ahead.is_zero() && ahead <= LATEST_OUTSIDE
        };
        let behind = ordered.iter().rev().take_while(is_before).count();
        ordered.insert(ordered.len() - behind, entry);
    }
    ordered
}

/// No change from outside is recorded later than this after it was seen.
const LATEST_OUTSIDE: Duration = Duration::from_secs(10);

/// Calls `take` with every value in the bytes of a history.
pub(crate) fn each_value(bytes: &[u8], take: &mut dyn FnMut(&Variant)) {
    let Some(replay) = Replay::of(bytes) else { return };
    let damaged = replay.damage.into_iter().flat_map(|damage| damage.salvaged);
    for record in replay.records.into_iter().chain(damaged) {
        for change in record::unpack(&record).iter().flat_map(|entry| &entry.keys) {
            for value in [&change.old, &change.new] {
                if let Value::Set(value) = value {
                    take(value);
                }
            }
        }
    }
}

/// Returns where the history is.
#[must_use]
pub fn file(places: &Places) -> PathBuf {
    places.state.join("history.journal")
}

/// Which entries of a history are wanted; everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
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

impl Filter {
    /// Returns the entry with the keys that are wanted, if any is.
    #[must_use]
    pub fn select(&self, entry: &Entry) -> Option<Entry> {
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
        (!keys.is_empty()).then(|| Entry { keys, ..entry.clone() })
    }
}
