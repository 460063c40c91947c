//! Reads all records, beside a recorder that writes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use report::paragraph::{counted, without_error_numbers};
use store::disk::Disk;
use store::journal::JournalError;
use store::publish::is_link;

use super::{ERASED_BEFORE, HangStoreError, read_segment, segments};
use crate::codec::{self, HangRecordError};
use crate::model::{Hang, HangRecord, WatchedPeriod};

/// Among so many periods before it one that was stored twice is looked for: a recorder keeps fewer back.
const REPEATED: usize = 512;

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
    /// Files that may not be read, are no journals, or are of a later version.
    pub unreadable_files: u64,
    /// The name of the first of these files, and why it cannot be read.
    pub unreadable: Option<String>,
    /// Everything before this moment was erased, in nanoseconds since 1970, as the file says; see [`StoredHistory::erased_before`].
    pub erased_before_ns: Option<u64>,
}

impl StoredHistory {
    /// Adds a record.
    pub fn add(&mut self, bytes: &[u8]) {
        match codec::decode(bytes) {
            Ok(HangRecord::Hang(hang)) => {
                self.hangs.insert(hang.number, *hang);
            }
            // A write that failed may have stored it, and the next one did so again.
            Ok(HangRecord::Watched(period))
                if self.periods.iter().rev().take(REPEATED).any(|known| *known == period) => {}
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
            let are = if self.unknown_records == 1 { "is" } else { "are" };
            let records =
                counted(usize::try_from(self.unknown_records).unwrap_or(usize::MAX), "record");
            parts.push(format!("{records} {are} of a later version"));
        }
        if self.unreadable_files > 0 {
            let example = self.unreadable.as_deref().unwrap_or_default();
            let (count, others) = (self.unreadable_files, self.unreadable_files - 1);
            parts.push(match others {
                0 => format!("1 file of records ({example})"),
                _ => format!("{count} files of records ({example}, and {others} more)"),
            });
        }
        (!parts.is_empty()).then(|| format!("Not read: {}.", parts.join(", ")))
    }

    /// Returns the moment before which everything was erased. One that is to come is none: the clock was set back since, or somebody
    /// else wrote it, and what it covers would never be called unwatched.
    #[must_use]
    pub fn erased_before(&self, now_ns: u64) -> Option<u64> {
        self.erased_before_ns.filter(|before_ns| *before_ns <= now_ns)
    }

    fn not_read(&mut self, path: &Path, why: &dyn std::fmt::Display) {
        self.unreadable_files += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.unreadable.get_or_insert_with(|| format!("{name}: {why}"));
    }
}

/// Reads the store in `dir`; an empty history if there is none.
///
/// # Errors
///
/// [`HangStoreError::Unusable`]: the directory cannot be read. A file that cannot be read is counted.
pub fn read(disk: &dyn Disk, dir: &Path) -> Result<StoredHistory, HangStoreError> {
    let mut history =
        StoredHistory { erased_before_ns: erased_before(disk, dir), ..StoredHistory::default() };
    let found = segments(disk, dir).map_err(HangStoreError::unusable(dir))?;
    let newest = found.last().map(|(number, _)| *number);
    for (number, path) in found {
        match read_segment(disk, &path) {
            Ok(replay) => {
                // Torn bytes of the newest file may be a record that is being written. Nobody writes into an older one.
                if replay.damage.is_some() || (replay.is_torn && Some(number) != newest) {
                    history.damaged_bytes += replay.damaged_bytes;
                }
                replay.into_all_records().iter().for_each(|bytes| history.add(bytes));
            }
            // It was removed meanwhile, because it was the oldest.
            Err(JournalError::NotOpened { source, .. })
                if source.kind() == io::ErrorKind::NotFound => {}
            Err(JournalError::NotOpened { source, .. }) => {
                let why = without_error_numbers(&source.to_string());
                history.not_read(&path, &why);
            }
            Err(JournalError::UnknownVersion { version, .. }) => {
                history.not_read(&path, &format_args!("of the later version {version}"));
            }
            Err(_) => history.not_read(&path, &"no records of hangs"),
        }
    }
    Ok(history)
}

/// Returns the moment before which everything was erased; none where nobody noted one that can be read.
fn erased_before(disk: &dyn Disk, dir: &Path) -> Option<u64> {
    let path = dir.join(ERASED_BEFORE);
    let about = disk.stat(&path).ok().filter(|_| is_link(disk, &path).is_ok_and(|link| !link))?;
    // A number of 64 bits has 20 digits.
    let is_ours = about.is_file() && about.len <= 21;
    let bytes = is_ours.then(|| disk.read(&path))?.ok()?;
    let digits = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}
