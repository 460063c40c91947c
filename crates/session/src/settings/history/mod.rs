//! History: who changed which setting, when, from what to what; and how to take it back.
//!
//! The daemon writes it behind the replies; [`read()`] and [`undo()`] work with or without a daemon. The records are in
//! one journal, `history.journal` in the state directory, oldest first, in a bounded number of bytes. `docs/history.md`
//! has the format.

mod deny;
mod record;
mod recorder;
mod undo;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::journal::{Journal, JournalError, Replay};
use store::table::gvariant::Variant;

use super::engine::{DatabaseId, Places};

pub use deny::{DEFAULT_DENY, is_denied};
pub(crate) use recorder::{Recorder, Writer};
pub use undo::{Conflict, Forced, Undo, undo};

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
    /// 4 MB, 90 days, and no values of the keys in [`DEFAULT_DENY`].
    fn default() -> Keep {
        let deny = DEFAULT_DENY.iter().map(|pattern| (*pattern).to_owned()).collect();
        Keep { bytes: 4 << 20, age: Duration::from_secs(90 * 86_400), deny }
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
    /// The keys that changed.
    pub keys: Vec<KeyChange>,
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
}

/// Reads the whole history, oldest first; it is empty if there is none.
///
/// Records that cannot be understood, for example of a later version, are left out.
///
/// # Errors
///
/// The file cannot be read or is no journal.
pub fn read(disk: &dyn Disk, places: &Places) -> Result<Vec<Entry>, JournalError> {
    match Journal::read(disk, &file(places)) {
        Ok(replay) => {
            let damaged = replay.damage.into_iter().flat_map(|damage| damage.salvaged);
            let records = replay.records.into_iter().chain(damaged);
            Ok(records.flat_map(|bytes| record::unpack(&bytes)).collect())
        }
        Err(JournalError::NotOpened { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

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
