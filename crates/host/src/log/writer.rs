//! Writes the log: records are appended after the answers, and the oldest are dropped when the log is full.

use std::path::PathBuf;
use std::sync::Arc;

use store::disk::Disk;
use store::journal::{Journal, JournalError, Replay};
use store::publish::{copy_aside, move_aside};

use super::{End, LogEntry, MOST_BYTES, record, share};

/// The writer of a log. Records survive the end of the process, and a power cut as soon as the kernel has written them.
#[derive(Debug)]
pub struct Writer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    journal: Option<Journal>,
    /// Notices about the file that were not returned yet.
    notes: Vec<String>,
}

impl Writer {
    /// Prepares to write the log at `path`; nothing is opened before the first record.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Writer {
        Writer { disk, path, journal: None, notes: Vec::new() }
    }

    /// Returns the number of the next entry, and opens the log. A damaged log is set aside, and its
    /// readable records continue in a new one.
    ///
    /// # Errors
    ///
    /// The log cannot be opened or made.
    pub fn next_id(&mut self) -> Result<u64, JournalError> {
        let disk = Arc::clone(&self.disk);
        let opened = match Journal::open(&*disk, &self.path) {
            Err(
                error @ (JournalError::NotAJournal { .. } | JournalError::UnknownVersion { .. }),
            ) => {
                let kept =
                    move_aside(&*disk, &self.path).map_err(|source| self.not_opened(source))?;
                self.notes.push(format!(
                    "cannot read the log of host commands: {error}; it is now {} and a new one is begun",
                    kept.display()
                ));
                Journal::open(&*disk, &self.path)
            }
            other => other,
        };
        let (mut journal, replay) = opened?;
        let (base, is_damaged) = (replay.base, replay.is_damaged());
        let records = self.readable(replay)?;
        let last = records.iter().filter_map(|bytes| record::id(bytes)).max();
        let next = last.map_or(0, |last| last + 1).max(base);
        if is_damaged {
            let kept: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            journal.restart(&*disk, next, &kept)?;
        }
        self.journal = Some(journal);
        Ok(next)
    }

    /// Returns the notices about the file since the last call, for people.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns all readable records; a damaged file is copied aside, with a notice.
    fn readable(&mut self, replay: Replay) -> Result<Vec<Vec<u8>>, JournalError> {
        let (is_damaged, bytes) = (replay.is_damaged(), replay.damaged_bytes);
        let records = replay.into_all_records();
        if is_damaged {
            let kept = copy_aside(&*self.disk, &self.path);
            let kept = kept.map_err(|source| self.not_opened(source))?;
            self.notes.push(format!(
                "the log of host commands was damaged: {bytes} bytes of it cannot be read, {} records are kept; the damaged file is now {}",
                records.len(),
                kept.display()
            ));
        }
        Ok(records)
    }

    fn not_opened(&self, source: std::io::Error) -> JournalError {
        JournalError::NotOpened { path: self.path.clone(), source }
    }

    /// Records the request of a command.
    ///
    /// # Errors
    ///
    /// The record may be lost; later ones are tried again.
    pub fn begin(&mut self, entry: &LogEntry) -> Result<(), JournalError> {
        self.append(&record::beginning(entry), entry.id)
    }

    /// Records the end of a command.
    ///
    /// # Errors
    ///
    /// As [`Writer::begin`].
    pub fn end(&mut self, id: u64, end: &End) -> Result<(), JournalError> {
        self.append(&record::end(id, end), id)
    }

    fn append(&mut self, bytes: &[u8], id: u64) -> Result<(), JournalError> {
        if self.journal.is_none() {
            self.next_id()?;
        }
        // A journal that failed is opened again for the next record.
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        journal.append_cached(&[bytes])?;
        if journal.used_bytes() > MOST_BYTES {
            let replay = Journal::read(&*self.disk, &self.path)?;
            let records = self.readable(replay)?;
            let stay = share::stay(&records, MOST_BYTES / 2);
            let kept = records.iter().zip(stay).filter(|(_, stays)| *stays);
            let kept: Vec<&[u8]> = kept.map(|(record, _)| record.as_slice()).collect();
            journal.restart(&*self.disk, id + 1, &kept)?;
        }
        self.journal = Some(journal);
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are other programs")]
mod tests {
    use super::*;
    use crate::log::{CommandOutcome, LoggedProcess, read, set_aside};
    use std::time::{Duration, SystemTime};

    fn entry(id: u64) -> LogEntry {
        LogEntry {
            id,
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(id),
            application: "host".into(),
            caller: 1,
            exe: None,
            command: vec!["x".repeat(3000)],
            directory: None,
            unrecorded: 0,
            outcome: CommandOutcome::Began(LoggedProcess { pid: 5, began: 6 }),
        }
    }

    #[test]
    fn a_log_goes_on_where_it_was_and_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/host/commands.journal");
        let disk = store::disk::real();
        assert_eq!(read(&*disk, &path).unwrap().entries, []);
        let mut writer = Writer::new(disk.clone(), path.clone());
        assert_eq!(writer.next_id().unwrap(), 0);
        for id in 0..600 {
            writer.begin(&entry(id)).unwrap();
        }
        writer.end(599, &End { wait_status: 256, ..End::default() }).unwrap();
        drop(writer);
        assert!(std::fs::metadata(&path).unwrap().len() < 3 * MOST_BYTES);
        let entries = read(&*disk, &path).unwrap().entries;
        assert!(entries.len() > 100 && entries.len() < 600, "{}", entries.len());
        let last = entries.last().unwrap();
        assert!(matches!(last.outcome, CommandOutcome::Ended(_, end) if end.wait_status == 256));
        assert_eq!(Writer::new(disk, path).next_id().unwrap(), 600);
    }

    #[test]
    fn a_log_that_is_no_journal_is_set_aside_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("commands.journal");
        std::fs::write(&path, "somebody's letters").unwrap();
        let disk = store::disk::real();
        let mut writer = Writer::new(disk.clone(), path.clone());
        writer.begin(&entry(1)).unwrap();
        assert_eq!(read(&*disk, &path).unwrap().entries, [entry(1)]);
        let aside = set_aside(&*disk, &path);
        assert_eq!(aside, [dir.path().join("commands.journal~0")]);
        assert_eq!(std::fs::read_to_string(&aside[0]).unwrap(), "somebody's letters");
        let notes = writer.take_notes();
        assert!(notes.concat().contains("commands.journal~0 and a new one is begun"), "{notes:?}");
    }
}
