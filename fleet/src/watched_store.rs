//! A store that is read again only when one of its files has changed: who follows it looks each few seconds, and mostly nothing was
//! recorded meanwhile.

use std::ffi::OsString;
use std::path::Path;

use hangs::store::{HangStoreError, StoredHistory, read};
use store::disk::Disk;

/// For how long after a change of a file another one may have the same time: clocks of file systems have coarse ticks.
const TICK_NS: i128 = 2_000_000_000;

/// The files of a store with their lengths and the times of their last changes.
type StoreState = Vec<(OsString, (u64, u64), u64, i128)>;

/// What was read of a store, and the files that it was read from.
#[derive(Debug, Default)]
pub struct WatchedStore {
    read_from: Option<StoreState>,
    stored: StoredHistory,
}

/// Returns the state of all files in a directory, those included that are no records: a note of what was erased, too, changes what is
/// read. Nothing if they cannot be listed, or one was changed so lately that the next change may look the same.
fn settled_state(disk: &dyn Disk, dir: &Path, now_ns: u64) -> Option<StoreState> {
    let mut names = disk.list(dir).ok()?;
    names.sort_unstable();
    let states = names.into_iter().map(|name| {
        let about = disk.stat(&dir.join(&name)).ok()?;
        let is_settled = about.ctime_ns.saturating_add(TICK_NS) < i128::from(now_ns);
        is_settled.then_some((name, about.identity, about.len, about.ctime_ns))
    });
    states.collect()
}

impl WatchedStore {
    /// Reads the store in `dir`, unless all of it was read the last time and nothing has changed since. Returns whether it was read.
    ///
    /// # Errors
    ///
    /// As [`read`]; nothing is left of what was read before, and the next call reads again.
    pub fn refresh(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        now_ns: u64,
    ) -> Result<bool, HangStoreError> {
        // Before it is read: what is appended meanwhile changes the state.
        let state = settled_state(disk, dir, now_ns);
        if state.is_some() && state == self.read_from {
            return Ok(false);
        }
        self.read_from = None;
        // Two decoded stores at once could be more memory than a service may have.
        self.stored = StoredHistory::default();
        self.stored = read(disk, dir)?;
        // What cannot be read now may be readable the next time, although no file has changed.
        self.read_from = state.filter(|_| self.stored.damage().is_none());
        Ok(true)
    }

    /// Returns what was read last.
    #[must_use]
    pub fn stored(&self) -> &StoredHistory {
        &self.stored
    }
}

#[cfg(test)]
mod tests {
    use hangs::model::{HangRecord, WatchedPeriod};
    use hangs::store::{DEFAULT_LIMIT, EraseSelection, HangStore, erase};

    use super::*;

    #[test]
    fn a_store_is_read_when_it_has_changed_and_then_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, dir) = (store::disk::real(), dir.path());
        let record = |from_ns| {
            let mut store = HangStore::open(store::disk::real(), dir, DEFAULT_LIMIT).unwrap();
            let period = WatchedPeriod { from_ns, to_ns: from_ns + 1, ..WatchedPeriod::default() };
            store.append(&[HangRecord::Watched(period)]).unwrap();
        };
        // Long after each change.
        let later_ns = u64::MAX / 4;
        let mut watched = WatchedStore::default();
        let mut refresh = |now_ns| {
            let is_read = watched.refresh(&*disk, dir, now_ns).unwrap();
            (is_read, watched.stored().periods.len())
        };
        record(1);
        assert_eq!(refresh(later_ns), (true, 1));
        assert_eq!(refresh(later_ns), (false, 1));
        record(2);
        assert_eq!(refresh(later_ns), (true, 2));
        assert_eq!(refresh(later_ns), (false, 2));
        erase(&*disk, dir, &EraseSelection::default(), u64::MAX).unwrap();
        assert_eq!(refresh(later_ns), (true, 0));
        record(3);
        // The next change may have the same time as this one.
        let now = disk.stat(dir).unwrap().ctime_ns;
        let now_ns = u64::try_from(now).unwrap();
        assert_eq!(refresh(now_ns), (true, 1));
        assert_eq!(refresh(now_ns), (true, 1));
        assert_eq!(refresh(later_ns), (true, 1));
        assert_eq!(refresh(later_ns), (false, 1));
        let strange = dir.join("00000099.hangs");
        std::fs::create_dir(&strange).unwrap();
        assert_eq!(refresh(later_ns), (true, 1));
        assert_eq!(refresh(later_ns), (true, 1), "not all of it was read");
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!(refresh(later_ns), (true, 0));
    }
}
