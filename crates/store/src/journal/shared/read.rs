//! Reading a shared journal beside its writers: all of it, and later what came behind.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::super::JournalError;
use super::format::{self, FRAMES_AT, Header, Start};
use super::{ATTEMPTS, beside};
use crate::disk::{AppendFile, Disk};

/// What a look into the journal brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// All records, in order: what was read before is included.
    All(Vec<Vec<u8>>),
    /// The records behind those that were read before, perhaps none.
    More(Vec<Vec<u8>>),
}

/// Follows one journal.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    at: Option<Place>,
}

/// How far a journal was read.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) identity: (u64, u64),
    pub(super) salt: u64,
    /// Where the last record that was read ends.
    pub(super) end: u64,
    /// The ids that were read since the file was made.
    pub(super) ids: HashSet<u64>,
    /// Whether the start of the file is damaged.
    pub(super) is_damaged: bool,
}

impl Reader {
    /// Starts to follow the journal at `path`, which need not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> Reader {
        Reader { path: path.to_owned(), at: None }
    }

    /// Reads what is new. Without a journal there is nothing.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`], [`JournalError::NotAJournal`] and [`JournalError::UnknownVersion`].
    pub fn read(&mut self, disk: &dyn Disk) -> Result<News, JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: self.path.clone(), source };
        for _ in 0..ATTEMPTS {
            let file = match disk.open_append(&self.path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.at = None;
                    return Ok(News::All(Vec::new()));
                }
                Err(error) => return Err(not_opened(error)),
            };
            let identity = file.stat().map_err(not_opened)?.identity;
            // A number of a file that is gone is soon another's: the salt tells them apart.
            let start = file.read_start(FRAMES_AT).map_err(not_opened)?;
            let salt = match Header::decode(&start) {
                Start::Header(header) => Some(header.salt),
                Start::Foreign(_) | Start::Broken => None,
            };
            let news = match &mut self.at {
                Some(at) if at.identity == identity && Some(at.salt) == salt => {
                    more(&*file, at).map(News::More).map_err(not_opened)?
                }
                _ => {
                    let (records, at) = all(disk, &*file, identity, &self.path)?;
                    self.at = Some(at);
                    News::All(records)
                }
            };
            // One that was replaced while it was read may have been overwritten under our eyes.
            match disk.stat(&self.path) {
                Ok(stat) if stat.identity == identity => return Ok(news),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.at = None;
                    return Err(not_opened(error));
                }
                Ok(_) | Err(_) => self.at = None,
            }
        }
        Err(not_opened(io::ErrorKind::ResourceBusy.into()))
    }

    /// Returns where the journal is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether the start of the journal is damaged: the records are what could be found, nobody can append, and an
    /// [`Owner`](super::Owner) should replace it.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.at.as_ref().is_some_and(|at| at.is_damaged)
    }

    /// Returns how many bytes of the journal were read.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.at.as_ref().map_or(0, |at| at.end)
    }

    pub(super) fn at(&self) -> Option<&Place> {
        self.at.as_ref()
    }
}

/// Reads the records in the bytes of a journal that may be damaged anywhere.
#[must_use]
pub fn salvage(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut ids, mut records) = (HashSet::new(), Vec::new());
    let salt = match Header::decode(bytes) {
        Start::Header(header) => Some(header.salt),
        Start::Foreign(_) => None,
        Start::Broken => format::likely_salt(bytes),
    };
    if let Some(salt) = salt {
        format::take(bytes, salt, &mut ids, &mut records);
    }
    records
}

/// Reads the file that the journal replaced, if whoever replaced it has not finished.
pub(super) fn read_old(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    match disk.open_append(&beside(path, super::owner::OLD)) {
        Ok(file) => file.read_from(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads a whole journal, with what was appended to the one before while it was replaced.
fn all(
    disk: &dyn Disk,
    file: &dyn AppendFile,
    identity: (u64, u64),
    path: &Path,
) -> Result<(Vec<Vec<u8>>, Place), JournalError> {
    let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
    let bytes = file.read_from(0).map_err(not_opened)?;
    let (mut ids, mut records) = (HashSet::new(), Vec::new());
    let (header, is_damaged) = match Header::decode(&bytes) {
        Start::Header(header) => (header, false),
        Start::Foreign(version) => {
            return Err(JournalError::UnknownVersion { path: path.to_owned(), version });
        }
        Start::Broken => match format::likely_salt(&bytes) {
            Some(salt) => (Header { salt, covered_salt: 0, covered_len: 0 }, true),
            // A file that never got its bytes, as after a power cut, is an empty journal.
            None if bytes.iter().all(|byte| *byte == 0) => {
                (Header { salt: 0, covered_salt: 0, covered_len: 0 }, true)
            }
            None => return Err(JournalError::NotAJournal { path: path.to_owned() }),
        },
    };
    let end = format::take(&bytes, header.salt, &mut ids, &mut records);
    // The old file has its second name before the new one is in place, and loses it after the rest of it was carried
    // over: whoever looks for it between two looks into the new one finds the rest in one of the three.
    let old = read_old(disk, path).map_err(not_opened)?;
    if let Some(tail) = tail_of(&old, &header) {
        format::take(tail, header.covered_salt, &mut ids, &mut records);
    }
    let end = (end as u64).max(FRAMES_AT.min(bytes.len() as u64));
    let mut at = Place { identity, salt: header.salt, end, ids, is_damaged };
    records.extend(more(file, &mut at).map_err(not_opened)?);
    Ok((records, at))
}

/// Returns what was appended to an old file behind what the new one stands for.
pub(super) fn tail_of<'a>(old: &'a [u8], header: &Header) -> Option<&'a [u8]> {
    match Header::decode(old) {
        Start::Header(before) if before.salt == header.covered_salt => {
            old.get(usize::try_from(header.covered_len).ok()?..)
        }
        _ => None,
    }
}

fn more(file: &dyn AppendFile, at: &mut Place) -> io::Result<Vec<Vec<u8>>> {
    let bytes = file.read_from(at.end)?;
    let mut records = Vec::new();
    // A frame that is still being written is found whole the next time.
    at.end += format::take(&bytes, at.salt, &mut at.ids, &mut records) as u64;
    Ok(records)
}
