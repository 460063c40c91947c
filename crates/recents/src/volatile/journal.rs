//! The journal between memory and the disk: neither loses what only the other has.

use std::io;
use std::path::Path;

use store::journal::shared::{JournalReader, News};
use store::publish::give_name;

use super::super::journal::fold;
use super::super::list::additions_missing;
use super::super::{JournalRecord, RecentList, RecentTime, Recents, RecentsError};

impl Recents {
    /// Puts what is in a journal in memory into the one on the disk, durably, and removes it: the rule `volatile` is gone.
    pub(super) fn leave_memory(&mut self) -> Result<(), RecentsError> {
        let Some(dir) = self.places().runtime.clone() else { return Ok(()) };
        let (journal, leaving) = (dir.join("journal"), dir.join("journal.leaving"));
        let not_aside = |path: &Path| {
            let path = path.to_owned();
            move |source| RecentsError::NotAside { path, source }
        };
        // Interrupted before.
        self.take_over(&leaving)?;
        match self.disk().stat(&journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(not_aside(&journal))?,
        };
        // Whoever appends at this moment sees that it is gone, and appends to the one on the disk or to a new one here,
        // which goes the same way.
        give_name(self.disk(), &journal, &leaving).map_err(not_aside(&journal))?;
        self.take_over(&leaving)
    }

    /// Puts all records of a journal into ours, and removes it.
    fn take_over(&mut self, path: &Path) -> Result<(), RecentsError> {
        if self.disk().stat(path).is_err() {
            return Ok(());
        }
        let (News::All(records) | News::More(records)) =
            JournalReader::new(path).read(self.disk())?;
        let mut theirs = RecentList::default();
        fold(&mut theirs, &records);
        self.replace(|list| {
            // What came to the disk after the rule was gone is newer than what was forgotten in memory.
            let ours = list.clone();
            let is_salted_alike = theirs.salt() == list.salt() || list.is_empty();
            for record in theirs.records(RecentTime(0)) {
                // Marks of another salt mean nothing here.
                if matches!(record, JournalRecord::Put(_)) || is_salted_alike {
                    list.apply(record);
                }
            }
            for record in additions_missing(list, &ours) {
                list.apply(record);
            }
        })?;
        // What is known of where it ended says nothing of a later one.
        let _ = self.disk().remove(&path.with_file_name("journal.extent"));
        let removed = self.disk().remove(path);
        removed.map_err(|source| RecentsError::NotAside { path: path.to_owned(), source })
    }
}
