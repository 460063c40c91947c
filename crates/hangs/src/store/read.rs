//! Reads all records, beside a recorder that writes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use store::disk::Disk;
use store::journal::{Journal, JournalError};

use super::{HangStoreError, segments};
use crate::codec::{self, HangRecordError};
use crate::model::{Hang, HangRecord, WatchedPeriod};

/// All that a store holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredHistory {
    /// The hangs by their numbers; of one that was written several times the last record.
    pub hangs: BTreeMap<u64, Hang>,
    /// The periods in which a recorder ran, in the order in which they were written.
    pub periods: Vec<WatchedPeriod>,
    /// Bytes that cannot be read, about.
    pub damaged_bytes: u64,
    /// Records of a later version.
    pub unknown_records: u64,
    /// Files that are no journals, or of a later version.
    pub unreadable_files: u64,
}

impl StoredHistory {
    /// Adds a record.
    pub fn add(&mut self, bytes: &[u8]) {
        match codec::decode(bytes) {
            Ok(HangRecord::Hang(hang)) => {
                self.hangs.insert(hang.number, *hang);
            }
            Ok(HangRecord::Watched(period)) => self.periods.push(period),
            Err(HangRecordError::UnknownVersion(_)) => self.unknown_records += 1,
            Err(HangRecordError::Damaged) => self.damaged_bytes += bytes.len() as u64,
        }
    }

    /// Returns a sentence about what could not be read, if there is any.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.damaged_bytes > 0 {
            parts.push(format!("about {} bytes are damaged", self.damaged_bytes));
        }
        if self.unknown_records > 0 {
            parts.push(format!("{} records are of a later version", self.unknown_records));
        }
        if self.unreadable_files > 0 {
            parts.push(format!("{} files cannot be read", self.unreadable_files));
        }
        (!parts.is_empty()).then(|| format!("Not read: {}.", parts.join(", ")))
    }
}

/// Reads the store in `dir`; an empty history if there is none.
///
/// # Errors
///
/// [`HangStoreError::Unusable`]: the directory or a file cannot be read.
pub fn read(disk: &dyn Disk, dir: &Path) -> Result<StoredHistory, HangStoreError> {
    let mut history = StoredHistory::default();
    let found = segments(disk, dir).map_err(HangStoreError::unusable(dir))?;
    for (_, path) in found {
        match Journal::read(disk, &path) {
            Ok(replay) => {
                // Of a file that was reset, which every one of ours is, torn bytes say nothing.
                if replay.damage.is_some() {
                    history.damaged_bytes += replay.damaged_bytes;
                }
                replay.into_all_records().iter().for_each(|bytes| history.add(bytes));
            }
            // It was removed meanwhile, because it was the oldest.
            Err(JournalError::NotOpened { source, .. })
                if source.kind() == io::ErrorKind::NotFound => {}
            Err(JournalError::NotOpened { path, source }) => {
                return Err(HangStoreError::Unusable { path, source });
            }
            Err(_) => history.unreadable_files += 1,
        }
    }
    Ok(history)
}
