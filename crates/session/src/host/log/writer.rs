//! Writing the log: what comes in is appended behind the answers, and the oldest goes when there is too much.

use std::path::PathBuf;
use std::sync::Arc;

use store::disk::Disk;
use store::journal::{Journal, JournalError};

use super::{End, Entry, MOST_BYTES, record, share};

/// The one who writes a log. Records survive the end of the process, and a power cut as soon as the kernel writes them.
#[derive(Debug)]
pub struct Writer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    journal: Option<Journal>,
}

impl Writer {
    /// Prepares to write the log at `path`; nothing is opened before the first record.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Writer {
        Writer { disk, path, journal: None }
    }

    /// Returns the number that the next entry should have, and opens the log.
    ///
    /// # Errors
    ///
    /// The log cannot be opened or made.
    pub fn next_id(&mut self) -> Result<u64, JournalError> {
        let (mut journal, replay) = Journal::open(&*self.disk, &self.path)?;
        let last = replay.records.iter().filter_map(|bytes| record::id(bytes)).max();
        let next = last.map_or(0, |last| last + 1).max(replay.base);
        if journal.is_spent() {
            let kept: Vec<&[u8]> = replay.records.iter().map(Vec::as_slice).collect();
            journal.restart(&*self.disk, next, &kept)?;
        }
        self.journal = Some(journal);
        Ok(next)
    }

    /// Writes that a command was asked for.
    ///
    /// # Errors
    ///
    /// The record may be lost; later ones are tried again.
    pub fn begin(&mut self, entry: &Entry) -> Result<(), JournalError> {
        self.append(&record::beginning(entry), entry.id)
    }

    /// Writes that a command ended.
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
        // A journal that fails is opened anew for the next record.
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        journal.append_cached(&[bytes])?;
        if journal.used_bytes() > MOST_BYTES {
            let records = Journal::read(&*self.disk, &self.path)?.records;
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
    use crate::host::log::{Outcome, Process, read};
    use std::time::{Duration, SystemTime};

    fn entry(id: u64) -> Entry {
        Entry {
            id,
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(id),
            application: "host".into(),
            caller: 1,
            exe: None,
            command: vec!["x".repeat(3000)],
            directory: None,
            unrecorded: 0,
            outcome: Outcome::Began(Process { pid: 5, began: 6 }),
        }
    }

    #[test]
    fn a_log_goes_on_where_it_was_and_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/host/commands.journal");
        let disk = store::disk::real();
        assert_eq!(read(&*disk, &path).unwrap(), []);
        let mut writer = Writer::new(disk.clone(), path.clone());
        assert_eq!(writer.next_id().unwrap(), 0);
        for id in 0..600 {
            writer.begin(&entry(id)).unwrap();
        }
        writer.end(599, &End { wait_status: 256, ..End::default() }).unwrap();
        drop(writer);
        assert!(std::fs::metadata(&path).unwrap().len() < 3 * MOST_BYTES);
        let entries = read(&*disk, &path).unwrap();
        assert!(entries.len() > 100 && entries.len() < 600, "{}", entries.len());
        let last = entries.last().unwrap();
        assert!(matches!(last.outcome, Outcome::Ended(_, end) if end.wait_status == 256));
        assert_eq!(Writer::new(disk, path).next_id().unwrap(), 600);
    }

    #[test]
    fn a_log_that_is_no_journal_is_an_error_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("commands.journal");
        std::fs::write(&path, "somebody's letters").unwrap();
        let mut writer = Writer::new(store::disk::real(), path.clone());
        assert!(writer.begin(&entry(1)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's letters");
    }
}
