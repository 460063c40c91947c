//! Where records are: a few journals of bounded length in one private directory, the oldest of which go.
//!
//! A record that [`HangStore::append`] took survives the end of the process, and a power cut after the next
//! [`HangStore::sync`]. Reading needs no lock, and salvages what is intact of a damaged file.

mod erase;
mod forgotten;
mod read;
mod selection;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::disk::{Disk, FileLock, LockHolder};
use store::journal::{Journal, JournalError, JournalFollower, JournalNews, Replay};
use store::publish::{PublishError, is_link, make_directory};

use crate::codec;
use crate::model::HangRecord;

pub use erase::{EraseOutcome, erase, note_erased};
pub use read::{StoredHistory, read};
pub use selection::EraseSelection;

use forgotten::ForgottenRecords;

/// How many bytes the records of a user may take.
pub const DEFAULT_LIMIT: u64 = 64 << 20;
/// A file of records is full at this many bytes, or at a sixteenth of the limit.
const SEGMENT: u64 = 4 << 20;
/// A longer file is none of ours: a full one, and what was written with the record that filled it.
const MAX_SEGMENT: u64 = 64 << 20;
/// The least that a file of records holds.
const SMALLEST_SEGMENT: u64 = 16 << 10;
/// A full file holds fewer hangs than this: a hang takes 38 bytes or more, and its frame some.
const MOST_HANGS: u64 = 100_000;
/// How long a writer waits for another one, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The end of the name of a file of records.
const ENDING: &str = ".hangs";
/// The end of the name of a file that is being erased.
const ERASED: &str = ".erased";
/// The file with the moment before which everything was erased, in nanoseconds since 1970 as a decimal number.
const ERASED_BEFORE: &str = "erased-before";
/// The lock of whoever writes or erases records.
const WRITER_LOCK: &str = "writer.lock";
/// The lock of the recorder, for as long as it runs.
const RECORDER_LOCK: &str = "recorder.lock";

/// Why the store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HangStoreError {
    /// Nothing was changed.
    #[error("cannot use {path:?}")]
    Unusable {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another recorder of this user runs; nothing was changed.
    #[error("another recorder runs{}", .holder.map(|holder| format!(" (process {})", holder.pid)).unwrap_or_default())]
    RecorderRuns {
        /// Which process it is, if that could be found out.
        holder: Option<LockHolder>,
    },
    /// Another process has been writing for two seconds; nothing was changed.
    #[error("another process writes into {path:?}")]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The records are not stored, or may not be.
    #[error("cannot store a record")]
    NotStored {
        /// Why.
        source: JournalError,
    },
    /// A file still has what was to be erased.
    #[error("cannot erase {path:?}")]
    NotErased {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl HangStoreError {
    fn unusable(path: &Path) -> impl FnOnce(io::Error) -> HangStoreError {
        move |source| HangStoreError::Unusable { path: path.to_owned(), source }
    }
}

/// The right to record for this user, until it is dropped.
#[derive(Debug)]
pub struct RecorderLock {
    _lock: Box<dyn FileLock>,
}

/// Takes the right to record, so that no two recorders write the same hang.
///
/// # Errors
///
/// [`HangStoreError::RecorderRuns`] and [`HangStoreError::Unusable`].
pub fn lock_recorder(disk: &dyn Disk, dir: &Path) -> Result<RecorderLock, HangStoreError> {
    make_directory(disk, dir).map_err(HangStoreError::unusable(dir))?;
    let path = dir.join(RECORDER_LOCK);
    match disk.own(&path, Duration::ZERO).map_err(HangStoreError::unusable(&path))? {
        Some(lock) => Ok(RecorderLock { _lock: lock }),
        None => Err(HangStoreError::RecorderRuns { holder: disk.lock_holder(&path) }),
    }
}

/// Returns the process that records for this user, if one does.
#[must_use]
pub fn running_recorder(disk: &dyn Disk, dir: &Path) -> Option<LockHolder> {
    disk.lock_holder(&dir.join(RECORDER_LOCK))
}

/// The files of a store by their numbers, the oldest first.
pub(crate) fn segments(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let mut found: Vec<(u64, PathBuf)> = names
        .into_iter()
        .filter_map(|name| {
            let number = name.to_str()?.strip_suffix(ENDING)?;
            let is_plain = number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then_some(())?;
            Some((number.parse().ok()?, dir.join(name)))
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Returns the files of a store, each with its number, its device and its inode. Erasing puts another one in the place of a file; recording only appends, and now
/// and then begins one and removes the oldest.
///
/// # Errors
///
/// As `readdir(3)`.
pub fn files(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(u64, (u64, u64))>> {
    let found = segments(disk, dir)?.into_iter();
    Ok(found.filter_map(|(number, path)| Some((number, disk.stat(&path).ok()?.identity))).collect())
}

/// Opens a file of records for writing. A symlink is none, whatever it points to.
fn open_segment(disk: &dyn Disk, path: &Path) -> Result<(Journal, Replay), JournalError> {
    refuse_link(disk, path)?;
    Journal::open(disk, path)
}

/// Reads a file of records, unless it is too long to be one.
fn read_segment(disk: &dyn Disk, path: &Path) -> Result<Replay, JournalError> {
    refuse_link(disk, path)?;
    refuse_length(disk, path)?;
    Journal::read(disk, path)
}

/// Reads what was appended to a file of records, unless it is too long to be one.
pub(crate) fn follow_segment(
    disk: &dyn Disk,
    path: &Path,
    follower: &mut JournalFollower,
    each: &mut dyn FnMut(JournalNews<'_>),
) -> Result<(), JournalError> {
    refuse_link(disk, path)?;
    refuse_length(disk, path)?;
    follower.look(disk, path, each)
}

fn refuse_link(disk: &dyn Disk, path: &Path) -> Result<(), JournalError> {
    match is_link(disk, path) {
        Ok(true) => Err(JournalError::NotAJournal { path: path.to_owned() }),
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(JournalError::NotOpened { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Refuses a file that would take much memory, and that no recorder has written.
fn refuse_length(disk: &dyn Disk, path: &Path) -> Result<(), JournalError> {
    match disk.stat(path) {
        Ok(about) if about.len > MAX_SEGMENT => {
            let source = io::ErrorKind::FileTooLarge.into();
            Err(JournalError::NotOpened { path: path.to_owned(), source })
        }
        // Who opens it says why it cannot be.
        _ => Ok(()),
    }
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}{ENDING}"))
}

/// The store of one user, open for writing.
#[derive(Debug)]
pub struct HangStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    limit: u64,
    /// The file that takes records, with its number; none after a failure.
    current: Option<(u64, Journal)>,
    /// The number of the next hang.
    next_hang: u64,
    forgotten: ForgottenRecords,
}

impl HangStore {
    /// Opens the store in `dir`, which is made (0700), with room for `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`HangStoreError`]; no record is lost.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, limit: u64) -> Result<HangStore, HangStoreError> {
        make_directory(&*disk, dir).map_err(HangStoreError::unusable(dir))?;
        let limit = limit.max(4 * SMALLEST_SEGMENT);
        let forgotten = ForgottenRecords::default();
        let mut store =
            HangStore { disk, dir: dir.to_owned(), limit, current: None, next_hang: 1, forgotten };
        let _turn = lock_writer(&*store.disk, dir)?;
        // What cannot be erased now is named by the next `erase`, and keeps nobody from recording.
        erase::finish(&*store.disk, dir)?;
        forgotten::clear(&*store.disk, dir).map_err(HangStoreError::unusable(dir))?;
        store.open_newest()?;
        Ok(store)
    }

    /// Returns the number that the next hang gets, and does not give it again.
    pub fn take_number(&mut self) -> u64 {
        let number = self.next_hang;
        self.next_hang = number.saturating_add(1);
        number
    }

    /// Appends records, all or none of them, without what somebody has had erased since it was seen. On `Ok` they survive the end of
    /// this process.
    ///
    /// # Errors
    ///
    /// [`HangStoreError::NotStored`]: they may or may not be found. The next call tries a new file.
    pub fn append(&mut self, records: &[HangRecord]) -> Result<(), HangStoreError> {
        let _turn = lock_writer(&*self.disk, &self.dir)?;
        let is_current = match &self.current {
            Some((_, journal)) if !journal.is_spent() => {
                journal.is_current(&*self.disk).map_err(HangStoreError::unusable(&self.dir))?
            }
            _ => false,
        };
        if !is_current {
            // Somebody erased records, or an earlier write failed.
            self.current = None;
            self.open_newest()?;
            self.drop_oldest()?;
        }
        self.forgotten
            .refresh(&*self.disk, &self.dir)
            .map_err(HangStoreError::unusable(&self.dir))?;
        let left = records.iter().filter_map(|record| self.forgotten.rest(record));
        let encoded: Vec<Vec<u8>> = left.map(|record| codec::encode(&record)).collect();
        if encoded.is_empty() {
            return Ok(());
        }
        let slices: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
        let full = self.segment_len();
        let Some((number, journal)) = &mut self.current else { return Ok(()) };
        journal.append_cached(&slices).map_err(|source| HangStoreError::NotStored { source })?;
        let number = *number;
        if journal.used_bytes() >= full && self.begin_next(number + 1).is_err() {
            // The records are stored: who is told otherwise stores them again. The next call fails before it writes.
            self.current = None;
        }
        Ok(())
    }

    /// Starts the file with this number behind a full one.
    fn begin_next(&mut self, number: u64) -> Result<(), HangStoreError> {
        self.sync()?;
        self.start(number)?;
        self.drop_oldest()
    }

    /// Makes all records durable.
    ///
    /// # Errors
    ///
    /// [`HangStoreError::NotStored`]: a power cut may lose those since the last call.
    pub fn sync(&mut self) -> Result<(), HangStoreError> {
        match &mut self.current {
            Some((_, journal)) if !journal.is_spent() => {
                journal.sync().map_err(|source| HangStoreError::NotStored { source })
            }
            _ => Ok(()),
        }
    }

    /// Removes what tells this recorder what to leave out: it has nothing in its memory any more.
    pub fn end(&self) {
        // What stays is removed by the next recorder.
        let _ = forgotten::clear(&*self.disk, &self.dir);
    }

    fn segment_len(&self) -> u64 {
        SEGMENT.min(self.limit / 16).max(SMALLEST_SEGMENT)
    }

    /// Opens the newest file for writing, or starts one behind a file that takes no records.
    fn open_newest(&mut self) -> Result<(), HangStoreError> {
        let unusable = HangStoreError::unusable(&self.dir);
        let found = segments(&*self.disk, &self.dir).map_err(unusable)?;
        let Some((number, path)) = found.last() else { return self.start(1) };
        // A process may have ended between making the newest file and writing the next number into it.
        for (_, path) in found.iter().rev().skip(1).take(1) {
            let before = read_segment(&*self.disk, path).map_or(1, |replay| next_number(&replay));
            self.next_hang = self.next_hang.max(before);
        }
        let opened =
            refuse_length(&*self.disk, path).and_then(|()| open_segment(&*self.disk, path));
        match opened {
            Ok((journal, replay)) => {
                self.next_hang = self.next_hang.max(next_number(&replay));
                let is_full = journal.used_bytes() >= self.segment_len();
                if journal.is_spent() || is_full {
                    // What can be read of a damaged file stays there.
                    return self.start(number + 1);
                }
                self.current = Some((*number, journal));
                Ok(())
            }
            // It may be readable one day: its numbers, which nobody knows, are not given again.
            Err(JournalError::NotOpened { .. } | JournalError::UnknownVersion { .. }) => {
                self.next_hang = self.next_hang.saturating_add(MOST_HANGS);
                self.start(number + 1)
            }
            // Another file: it stays as it is.
            Err(_) => self.start(number + 1),
        }
    }

    /// Starts the file with this number.
    fn start(&mut self, number: u64) -> Result<(), HangStoreError> {
        let path = segment_path(&self.dir, number);
        let journal = open_segment(&*self.disk, &path).and_then(|(mut journal, _)| {
            // The number of the next hang is known even if all hangs of the file are erased.
            journal.reset(self.next_hang)?;
            Ok(journal)
        });
        let journal = journal.map_err(|source| HangStoreError::NotStored { source })?;
        self.current = Some((number, journal));
        Ok(())
    }

    /// Removes the oldest files until the rest is within the limit.
    fn drop_oldest(&self) -> Result<(), HangStoreError> {
        let unusable = || HangStoreError::unusable(&self.dir);
        let found = segments(&*self.disk, &self.dir).map_err(unusable())?;
        let mut lengths = Vec::with_capacity(found.len());
        for (_, path) in &found {
            let is_ours = is_link(&*self.disk, path).is_ok_and(|is_link| !is_link);
            let stat = is_ours.then(|| self.disk.stat(path));
            lengths.push(stat.and_then(Result::ok).map_or(0, |stat| stat.len));
        }
        let mut total: u64 = lengths.iter().sum();
        // The newest one takes records.
        for ((_, path), length) in found.iter().zip(lengths).rev().skip(1).rev() {
            // The newest file may grow to its full length.
            if total.saturating_add(self.segment_len()) <= self.limit {
                break;
            }
            self.disk.remove(path).map_err(HangStoreError::unusable(path))?;
            total = total.saturating_sub(length);
        }
        Ok(())
    }
}

/// Takes the right to write, which is given up when the value is dropped.
fn lock_writer(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn FileLock>, HangStoreError> {
    let path = dir.join(WRITER_LOCK);
    let lock = disk.own(&path, PATIENCE).map_err(HangStoreError::unusable(&path))?;
    lock.ok_or_else(|| HangStoreError::Busy { path: dir.to_owned() })
}

/// Returns the number of the next hang after what a file holds. A record of a later version may be a hang, with a number that nobody
/// knows.
fn next_number(replay: &Replay) -> u64 {
    let salvaged = replay.damage.iter().flat_map(|damage| &damage.salvaged);
    let (mut next, mut unknown) = (replay.base.max(1), 0_u64);
    for bytes in replay.records.iter().chain(salvaged) {
        match codec::decode(bytes) {
            Ok(HangRecord::Hang(hang)) => next = next.max(hang.number.saturating_add(1)),
            Ok(HangRecord::Watched(_)) => {}
            Err(_) => unknown += 1,
        }
    }
    next.saturating_add(unknown)
}

/// Returns the cause of a failed publish.
fn io_cause(error: &JournalError) -> io::Error {
    let copy = |error: &io::Error| match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    };
    match error {
        JournalError::NotOpened { source, .. }
        | JournalError::NotAppended { source, .. }
        | JournalError::Unknown { source, .. } => copy(source),
        JournalError::NotRestarted { source, .. } => copy(PublishError::cause(source)),
        other => io::Error::other(other.to_string()),
    }
}
