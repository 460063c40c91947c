//! Reading a shared journal beside its writers: all of it, and later what came behind.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::super::JournalError;
use super::format::{self, FRAMES_AT, Gaps, Header, Start};
use super::{ATTEMPTS, beside};
use crate::disk::{AppendFile, Disk};

/// The ending of the second name of a file that is being replaced.
pub(super) const OLD: &str = ".old";

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
pub struct JournalReader {
    path: PathBuf,
    at: Option<ReadPosition>,
}

/// How far a journal was read.
#[derive(Debug)]
pub(super) struct ReadPosition {
    pub(super) identity: (u64, u64),
    pub(super) salt: u64,
    /// Where the last record that was read ends.
    pub(super) end: u64,
    /// The ids that were read since the file was made.
    pub(super) ids: HashSet<u64>,
    pub(super) flaw: Option<Flaw>,
}

/// What is wrong with the bytes of a journal. Its records are what could be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// It ends within a record, which is being written, or was cut.
    HalfRecord,
    /// Bytes in it are none that a writer left.
    Damaged,
    /// Its start is damaged: nobody can append before an [`Owner`](super::Owner) has replaced it.
    NoStart,
}

impl Flaw {
    fn of(gaps: Gaps) -> Option<Flaw> {
        match gaps {
            Gaps::None => None,
            Gaps::HalfAtTheEnd => Some(Flaw::HalfRecord),
            Gaps::Damage => Some(Flaw::Damaged),
        }
    }
}

/// Which records of a journal there were at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of the file.
    pub salt: u64,
    /// Where the last record ends.
    pub end: u64,
}

impl JournalReader {
    /// Starts to follow the journal at `path`, which need not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> JournalReader {
        JournalReader { path: path.to_owned(), at: None }
    }

    /// Reads what is new. Without a journal there is nothing.
    ///
    /// # Errors
    ///
    /// [`JournalError::NotOpened`], [`JournalError::NotAJournal`] and [`JournalError::UnknownVersion`].
    pub fn read(&mut self, disk: &dyn Disk) -> Result<News, JournalError> {
        let not_opened = |source| JournalError::NotOpened { path: self.path.clone(), source };
        for _ in 0..ATTEMPTS {
            let file = match disk.open_appended(&self.path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.at = None;
                    return Ok(News::All(Vec::new()));
                }
                Err(error) => return Err(not_opened(error)),
            };
            let stat = file.stat().map_err(not_opened)?;
            let identity = stat.identity;
            // A number of a file that is gone is soon another's: the salt tells them apart.
            let start = file.read_start(FRAMES_AT).map_err(not_opened)?;
            let salt = match Header::decode(&start) {
                Start::Header(header) => Some(header.salt),
                Start::Foreign(_) | Start::Broken => None,
            };
            let news = match &mut self.at {
                Some(at)
                    if at.identity == identity && Some(at.salt) == salt && at.end <= stat.len =>
                {
                    more(&*file, at).map(News::More).map_err(not_opened)?
                }
                before => {
                    let was_cut = before.as_ref().is_some_and(|at| Some(at.salt) == salt);
                    let (records, mut at) = all(disk, &*file, identity, &self.path)?;
                    if was_cut {
                        at.flaw = at.flaw.max(Some(Flaw::Damaged));
                    }
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

    /// Returns what was wrong with the journal when it was last read.
    #[must_use]
    pub fn flaw(&self) -> Option<Flaw> {
        self.at.as_ref().and_then(|at| at.flaw)
    }

    /// Returns which records there are. A file of the same number whose records end earlier later on was cut.
    #[must_use]
    pub fn extent(&self) -> Option<Extent> {
        self.at.as_ref().map(|at| Extent { salt: at.salt, end: at.end })
    }

    /// Returns how many bytes of the journal were read.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.at.as_ref().map_or(0, |at| at.end)
    }

    pub(super) fn at(&self) -> Option<&ReadPosition> {
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
    match disk.open_appended(&beside(path, OLD)) {
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
) -> Result<(Vec<Vec<u8>>, ReadPosition), JournalError> {
    let not_opened = |source| JournalError::NotOpened { path: path.to_owned(), source };
    let bytes = file.read_from(0).map_err(not_opened)?;
    let (mut ids, mut records) = (HashSet::new(), Vec::new());
    let (header, flaw) = match Header::decode(&bytes) {
        Start::Header(header) => (header, None),
        Start::Foreign(version) => {
            return Err(JournalError::UnknownVersion { path: path.to_owned(), version });
        }
        Start::Broken => match format::likely_salt(&bytes) {
            Some(salt) => (Header { salt, covered_salt: 0, covered_len: 0 }, Some(Flaw::NoStart)),
            // A file that never got its bytes, as after a power cut, is an empty journal.
            None if bytes.iter().all(|byte| *byte == 0) => {
                (Header { salt: 0, covered_salt: 0, covered_len: 0 }, Some(Flaw::NoStart))
            }
            None => return Err(JournalError::NotAJournal { path: path.to_owned() }),
        },
    };
    let frames_at = usize::try_from(FRAMES_AT).unwrap_or(usize::MAX).min(bytes.len());
    let extent = match flaw {
        None => {
            let extent = format::take(&bytes[frames_at..], header.salt, &mut ids, &mut records);
            format::Extent { end: frames_at + extent.end, ..extent }
        }
        // Where they begin is not known.
        Some(_) => format::take(&bytes, header.salt, &mut ids, &mut records),
    };
    // The old file has its second name before the new one is in place, and loses it after the rest of it was carried
    // over: whoever looks for it between two looks into the new one finds the rest in one of the three.
    let old = read_old(disk, path).map_err(not_opened)?;
    if let Some(tail) = tail_of(&old, &header) {
        format::take(tail, header.covered_salt, &mut ids, &mut records);
    }
    let end = (extent.end as u64).max(frames_at as u64);
    let flaw = flaw.max(Flaw::of(extent.gaps));
    let mut at = ReadPosition { identity, salt: header.salt, end, ids, flaw };
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

fn more(file: &dyn AppendFile, at: &mut ReadPosition) -> io::Result<Vec<Vec<u8>>> {
    let bytes = file.read_from(at.end)?;
    let mut records = Vec::new();
    // A frame that is still being written is found whole the next time.
    let extent = format::take(&bytes, at.salt, &mut at.ids, &mut records);
    at.end += extent.end as u64;
    let sticky = at.flaw.filter(|flaw| *flaw != Flaw::HalfRecord);
    at.flaw = sticky.max(Flaw::of(extent.gaps));
    Ok(records)
}
