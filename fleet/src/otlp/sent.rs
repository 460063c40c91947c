//! Which hangs a receiver has acknowledged: a journal of their identifiers, as long as the store has them.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::disk::{Disk, FileLock};
use store::journal::{Journal, JournalError};
use store::publish::make_directory;

use crate::identity::hash_parts;

/// A journal with more identifiers than this, most of them of hangs that are gone, is written anew.
const MOST_STALE: usize = 10_000;

/// Why it is not known what was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SentError {
    /// Nothing is sent.
    #[error("cannot use {path:?}")]
    Unusable {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process sends the same records to the same place; nothing is sent here.
    #[error("another process sends these hangs to the same place")]
    Busy,
    /// What was acknowledged last may be sent again, with the same identifiers.
    #[error("cannot note what was sent")]
    NotNoted(#[from] JournalError),
}

/// What a receiver has acknowledged, and the right to send to it.
#[derive(Debug)]
pub struct SentHangs {
    journal: Journal,
    known: HashSet<u64>,
    _lock: Box<dyn FileLock>,
}

fn path_of(dir: &Path, stem: &str, url: &str) -> PathBuf {
    let hash = hash_parts(&[stem.as_bytes(), url.as_bytes()]);
    dir.join(format!("otlp-{hash:016x}.sent"))
}

fn identifiers(records: Vec<Vec<u8>>) -> HashSet<u64> {
    let all = records.into_iter();
    let ids = all.flat_map(|record| {
        let (ids, _) = record.as_chunks::<8>();
        ids.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect::<Vec<_>>()
    });
    ids.collect()
}

/// Reads what a receiver has acknowledged, and changes nothing.
///
/// # Errors
///
/// [`SentError::NotNoted`]: the journal cannot be read.
pub fn read_sent(
    disk: &dyn Disk,
    dir: &Path,
    stem: &str,
    url: &str,
) -> Result<HashSet<u64>, SentError> {
    match Journal::read(disk, &path_of(dir, stem, url)) {
        Ok(replay) => Ok(identifiers(replay.into_all_records())),
        Err(JournalError::NotOpened { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(HashSet::new())
        }
        Err(error) => Err(error.into()),
    }
}

impl SentHangs {
    /// Opens the journal in `dir` for what `stem` sends to `url`.
    ///
    /// # Errors
    ///
    /// [`SentError`].
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        stem: &str,
        url: &str,
    ) -> Result<SentHangs, SentError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| SentError::Unusable { path, source }
        };
        make_directory(disk, dir).map_err(unusable(dir))?;
        let path = path_of(dir, stem, url);
        let lock_path = path.with_extension("lock");
        let lock = disk.own(&lock_path, Duration::ZERO).map_err(unusable(&lock_path))?;
        let lock = lock.ok_or(SentError::Busy)?;
        let (mut journal, replay) = Journal::open(disk, &path)?;
        let known = identifiers(replay.into_all_records());
        if journal.is_spent() {
            restart(&mut journal, disk, &known)?;
        }
        Ok(SentHangs { journal, known, _lock: lock })
    }

    /// Returns whether a hang was acknowledged.
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        self.known.contains(&id)
    }

    /// Notes that these were acknowledged, durably.
    ///
    /// # Errors
    ///
    /// [`SentError::NotNoted`].
    pub fn note(&mut self, ids: &[u64]) -> Result<(), SentError> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.journal.append(&[&bytes])?;
        self.known.extend(ids);
        Ok(())
    }

    /// Forgets those that the store does not hold any more, once they are many.
    ///
    /// # Errors
    ///
    /// [`SentError::NotNoted`].
    pub fn keep_only(&mut self, disk: &dyn Disk, stored: &HashSet<u64>) -> Result<(), SentError> {
        let stale = self.known.iter().filter(|id| !stored.contains(id)).count();
        if stale > MOST_STALE {
            self.known.retain(|id| stored.contains(id));
            restart(&mut self.journal, disk, &self.known)?;
        }
        Ok(())
    }
}

fn restart(journal: &mut Journal, disk: &dyn Disk, known: &HashSet<u64>) -> Result<(), SentError> {
    let bytes: Vec<u8> = known.iter().flat_map(|id| id.to_le_bytes()).collect();
    let records: Vec<&[u8]> = bytes.chunks(4096).collect();
    Ok(journal.restart(disk, 0, &records)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_known_after_damage_too_and_one_process_sends() {
        let dir = tempfile::tempdir().unwrap();
        let disk = store::disk::real();
        let open = || SentHangs::open(&*disk, dir.path(), "a", "http://x");
        let mut sent = open().unwrap();
        sent.note(&[1, 2, 3]).unwrap();
        sent.note(&[4]).unwrap();
        assert!(matches!(open(), Err(SentError::Busy)));
        drop(sent);
        let sent = open().unwrap();
        assert!((1..=4).all(|id| sent.contains(id)) && !sent.contains(5));
        assert_eq!(read_sent(&*disk, dir.path(), "a", "http://x").unwrap().len(), 4);
        assert!(read_sent(&*disk, dir.path(), "a", "http://other").unwrap().is_empty());
    }

    #[test]
    fn identifiers_of_hangs_that_are_gone_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let disk = store::disk::real();
        let mut sent = SentHangs::open(&*disk, dir.path(), "a", "http://x").unwrap();
        let ids: Vec<u64> = (0..MOST_STALE as u64 + 10).collect();
        sent.note(&ids).unwrap();
        sent.keep_only(&*disk, &HashSet::from([7])).unwrap();
        assert!(sent.contains(7) && !sent.contains(8));
        sent.note(&[8]).unwrap();
        drop(sent);
        let known = read_sent(&*disk, dir.path(), "a", "http://x").unwrap();
        assert_eq!(known, HashSet::from([7, 8]));
    }
}
