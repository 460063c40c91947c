//! The journal of one user as programs use it: an addition is one append, the list is what all appends lead to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::disk::Disk;
use store::journal::JournalError;
use store::journal::shared::{Appender, News, Owner, Reader, salvage};
use store::publish::{copy_aside, move_aside, wipe};

use super::alarm::{Alarm, WriterProgram};
use super::policy::{Keeping, Limits, Policy, Reason, Subject, Verdict};
use super::projection::last_version_path;
use super::record::{Addition, Everything, Forgetting, Record};
use super::{Entry, List, Places, Salt, Timestamp, Uri};
use crate::clock::Clock;

/// How long it is known what was forgotten: no program keeps an old list in memory for longer and then writes it.
pub const REMEMBERED_AS_FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A journal of fewer bytes is not worth replacing.
const SMALL: u64 = 1 << 16;
/// More records than these are written by replacing the journal instead of by appending.
const MANY: usize = 64;
/// How long somebody else who replaces the journal is waited for; it takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the journal does not hold what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecentsError {
    /// The cause says what became of it. What was remembered before is as it was.
    #[error("cannot use the list of recent documents")]
    Journal(#[from] JournalError),
    /// The damaged journal could not be put aside, or what names forgotten documents not removed; it is as it was.
    #[error("cannot move or remove {path:?}")]
    NotAside {
        /// The journal.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Another process replaces the journal all the time, or hangs while it does. Nothing was changed.
    #[error("cannot replace the journal {path:?}: another process is about it")]
    Busy {
        /// The journal.
        path: PathBuf,
    },
}

/// What became of a journal that was to be made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// It was replaced by the fewest records.
    Done,
    /// It is small enough.
    NotNeeded,
}

/// What became of an addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is remembered.
    Remembered,
    /// It is not, and nothing was written.
    Left(Reason),
}

/// Whether this program's documents may be remembered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// They may.
    Ordinary,
    /// It was started by `unjank recent private -- CMD`, or by something that was.
    Private,
}

/// The recent documents of one user, for one program.
#[derive(Debug)]
pub struct Recents {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    places: Places,
    program: Program,
    policy: Policy,
    alarm: Option<Alarm>,
    journal: Option<Appender>,
    reader: Option<Reader>,
    list: List,
}

impl Recents {
    /// Returns the recent documents in these places. Nothing is looked at yet.
    #[must_use]
    pub fn new(
        places: Places,
        program: Program,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Recents {
        let policy = Policy::new(&places);
        let (alarm, journal, reader, list) = (None, None, None, List::default());
        Recents { disk, clock, places, program, policy, alarm, journal, reader, list }
    }

    /// Lets every addition see to it that the files which other programs read are written soon: by whoever watches the
    /// journal, else by `program`, which is started.
    #[must_use]
    pub fn with_writer(mut self, program: WriterProgram) -> Recents {
        self.alarm = Some(Alarm::new(program, &self.places));
        self
    }

    /// Remembers that a program opened a document, unless the policy is against it. The wait is that of one write into
    /// the page cache, however long the list is; nothing is synced.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]: it may be remembered or not. Others' additions are not touched.
    pub fn add(&mut self, addition: &Addition) -> Result<Added, RecentsError> {
        if let Verdict::Leave(reason) = self.decide(addition) {
            return Ok(Added::Left(reason));
        }
        self.append(&Record::Add(addition.clone()))?;
        if let Some(alarm) = &mut self.alarm
            && let Err(error) = alarm.raise(&*self.disk)
        {
            // It is remembered, and written with the next one.
            tracing::warn!(%error, "cannot start the writer of the lists that other programs read");
        }
        Ok(Added::Remembered)
    }

    /// Decides whether an addition would be remembered now.
    pub fn decide(&mut self, addition: &Addition) -> Verdict {
        if self.program == Program::Private {
            return Verdict::Leave(Reason::PrivateProgram);
        }
        let subject = Subject {
            uri: &addition.uri,
            mime: addition.mime.as_deref(),
            application: &addition.application,
        };
        self.policy.decide(&*self.disk, subject, self.now())
    }

    /// Returns the list as it is now, within the limits: what is too old, or beyond the most, is not in it.
    ///
    /// # Errors
    ///
    /// [`RecentsError::Journal`] if the journal cannot be read. One that is damaged gives what is left in it.
    pub fn list(&mut self) -> Result<&List, RecentsError> {
        self.refresh()?;
        let limits = self.policy.limits(&*self.disk);
        let now = self.now();
        self.list.limit(limits.entries, limits.age.map(|age| now.before(age)));
        Ok(&self.list)
    }

    /// Returns every entry that the records of the journal lead to, also those beyond the limits, which a list shows
    /// again as soon as there is room.
    ///
    /// # Errors
    ///
    /// As [`Recents::list`].
    pub fn records(&mut self) -> Result<List, RecentsError> {
        // What was read so far has had the limits applied.
        self.reader = None;
        self.refresh()?;
        Ok(self.list.clone())
    }

    /// Writes what another store told: entries and forgettings that are not in the journal yet.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; some of the records may be there.
    pub fn take_in(&mut self, records: Vec<Record>) -> Result<(), RecentsError> {
        if records.len() <= MANY {
            return records.iter().try_for_each(|record| self.append(record));
        }
        self.replace(|list| records.into_iter().for_each(|record| list.apply(record)))
    }

    /// Forgets documents, durably: no byte of the journal names them afterwards, as far as the file system overwrites
    /// in place. Returns the record by which other stores can be told.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]: they may still be there.
    pub fn forget(&mut self, uris: &[Uri]) -> Result<Forgetting, RecentsError> {
        let at = self.now();
        let mut done = Forgetting::default();
        self.replace(|list| {
            done = list.forgetting(uris, at);
            list.apply(Record::Forget(done.clone()));
        })?;
        self.remove_evidence()?;
        Ok(done)
    }

    /// Forgets everything, as [`Recents::forget`] does.
    ///
    /// # Errors
    ///
    /// As [`Recents::forget`].
    pub fn forget_everything(&mut self) -> Result<(), RecentsError> {
        let (marks, everything, at) = (Vec::new(), Everything::Goes, self.now());
        let forgetting = Record::Forget(Forgetting { marks, everything, at });
        self.replace(|list| list.apply(forgetting))?;
        self.remove_evidence()
    }

    /// Replaces the journal by the fewest records that lead to the same list, if that is worth it.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; nothing is lost.
    pub fn compact(&mut self) -> Result<Compacted, RecentsError> {
        self.refresh()?;
        let used = self.reader.as_ref().map_or(0, Reader::len_bytes);
        // An entry takes about as much; a journal of twice that much is half superfluous.
        let needed = self.list.len() as u64 * 256;
        let is_damaged = self.reader.as_ref().is_some_and(Reader::is_damaged);
        if !is_damaged && used < SMALL.max(2 * needed) {
            return Ok(Compacted::NotNeeded);
        }
        self.replace(|_| {})?;
        Ok(Compacted::Done)
    }

    /// Copies the list to the disk if the journal is in memory; the next session starts with that.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; the copy before is as it was.
    pub fn snapshot(&mut self) -> Result<(), RecentsError> {
        let durable = durable_journal(&self.places);
        if self.journal_path() == durable {
            return Ok(());
        }
        let now = self.now();
        let records = encoded(self.list()?, now);
        let disk = self.disk.clone();
        let mut owner = owner_of(&*disk, &durable)?;
        let before = owner.read(&*disk).unwrap_or_default();
        if before != records {
            owner.replace(&*disk, &slices(&records))?;
        }
        Ok(())
    }

    /// Copies the list as [`Recents::snapshot`] does, if the copy is older than `age`.
    ///
    /// # Errors
    ///
    /// As [`Recents::snapshot`].
    pub fn snapshot_if_older(&mut self, age: Duration) -> Result<(), RecentsError> {
        let durable = durable_journal(&self.places);
        let copied = self.disk.stat(&durable).map_or(0, |stat| stat.mtime_ns / 1000);
        let is_old = copied < i128::from(self.now().before(age).0);
        if is_old { self.snapshot() } else { Ok(()) }
    }

    /// Returns what tells the journal from what it is after anything was appended; `None` without a journal.
    pub fn stamp(&mut self) -> Option<((u64, u64), u64)> {
        let path = self.journal_path();
        self.disk.stat(&path).ok().map(|stat| (stat.identity, stat.len))
    }

    /// Returns the policy, to ask what holds and why.
    pub fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Returns how much is kept, and where.
    pub fn limits(&mut self) -> Limits {
        self.policy.limits(&*self.disk)
    }

    /// Returns the entry of a document.
    ///
    /// # Errors
    ///
    /// As [`Recents::list`].
    pub fn entry(&mut self, uri: &Uri) -> Result<Option<&Entry>, RecentsError> {
        Ok(self.list()?.get(uri))
    }

    /// Returns the places.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Returns the salt of the marks of the list as it was last read.
    pub(super) fn salt(&self) -> Salt {
        self.list.salt()
    }

    /// Returns the disk.
    #[must_use]
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns the clock.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Decides whether what another program wrote into its own list may stay there.
    pub(super) fn decide_foreign(&mut self, entry: &Entry) -> Verdict {
        let last = entry.applications.iter().max_by_key(|application| application.modified);
        let subject = Subject {
            uri: &entry.uri,
            mime: entry.mime.as_deref(),
            application: last.map_or("", |application| &application.name),
        };
        self.policy.decide_foreign(&*self.disk, subject, entry.last_used(), self.now())
    }

    /// Decides whether a link that a program of KDE's made may stay; `used` is when the document was opened with it.
    pub(super) fn decide_link(&mut self, subject: Subject<'_>, used: Timestamp) -> Verdict {
        self.policy.decide_foreign(&*self.disk, subject, used, self.now())
    }

    /// Returns the time as records have it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::of(self.clock.now())
    }

    /// Returns the file of the journal: on the disk or, in volatile mode, in memory.
    pub fn journal_path(&mut self) -> PathBuf {
        let volatile = self.policy.keeping(&*self.disk) == Keeping::Volatile;
        match &self.places.runtime {
            Some(dir) if volatile => dir.join("journal"),
            _ => durable_journal(&self.places),
        }
    }

    fn append(&mut self, record: &Record) -> Result<(), RecentsError> {
        let bytes = record.encode();
        let path = self.journal_path();
        let disk = self.disk.clone();
        if self.journal.as_ref().is_none_or(|journal| journal.path() != path) {
            self.prepare(&path)?;
            self.journal = Some(match Appender::open(&*disk, &path) {
                Err(JournalError::NotAJournal { .. }) => {
                    self.repair()?;
                    Appender::open(&*disk, &path)?
                }
                opened => opened?,
            });
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        match journal.append(&*disk, &bytes) {
            Err(JournalError::NotAJournal { .. }) => {
                self.repair()?;
                let mut journal = Appender::open(&*disk, &path)?;
                journal.append(&*disk, &bytes)?;
                self.journal = Some(journal);
            }
            done => done?,
        }
        Ok(())
    }

    /// Fills a journal in memory that is not there yet from the copy on the disk.
    fn prepare(&mut self, path: &Path) -> Result<(), RecentsError> {
        let durable = durable_journal(&self.places);
        if path == durable || self.disk.stat(path).is_ok() || self.disk.stat(&durable).is_err() {
            return Ok(());
        }
        let disk = self.disk.clone();
        let mut owner = owner_of(&*disk, path)?;
        let there = owner.read(&*disk)?;
        let before = match Reader::new(&durable).read(&*disk)? {
            News::All(records) | News::More(records) => records,
        };
        // Whoever was quicker filled it already.
        let is_filled = |record: &Vec<u8>| matches!(Record::decode(record), Some(Record::Salt(_)));
        if !there.iter().any(is_filled) {
            let all: Vec<&[u8]> = before.iter().chain(&there).map(Vec::as_slice).collect();
            owner.replace(&*disk, &all)?;
        }
        Ok(())
    }

    /// Reads what is new in the journal.
    fn refresh(&mut self) -> Result<(), RecentsError> {
        let path = self.journal_path();
        self.prepare(&path)?;
        let is_other = self.reader.as_ref().is_none_or(|reader| reader.path() != path);
        let reader = match &mut self.reader {
            Some(reader) if !is_other => reader,
            reader => reader.insert(Reader::new(&path)),
        };
        match reader.read(&*self.disk) {
            Ok(News::All(records)) => {
                self.list = List::default();
                fold(&mut self.list, &records);
            }
            Ok(News::More(records)) => fold(&mut self.list, &records),
            Err(JournalError::NotAJournal { .. }) => {
                self.repair()?;
                return self.refresh_repaired(&path);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Reads a journal that was put in the place of a damaged one.
    fn refresh_repaired(&mut self, path: &Path) -> Result<(), RecentsError> {
        let mut reader = Reader::new(path);
        let (News::All(records) | News::More(records)) = reader.read(&*self.disk)?;
        self.list = List::default();
        fold(&mut self.list, &records);
        self.reader = Some(reader);
        Ok(())
    }

    /// Replaces the journal by what the list is after `change`.
    fn replace(&mut self, change: impl FnOnce(&mut List)) -> Result<(), RecentsError> {
        let path = self.journal_path();
        self.prepare(&path)?;
        let disk = self.disk.clone();
        let mut owner = owner_of(&*disk, &path)?;
        let mut list = List::default();
        match owner.read(&*disk) {
            Ok(records) => {
                if owner.is_damaged() {
                    self.keep_evidence(&path)?;
                }
                fold(&mut list, &records);
            }
            Err(JournalError::NotAJournal { .. }) => {
                let bytes = disk.read(&path).unwrap_or_default();
                fold(&mut list, &salvage(&bytes));
                self.put_aside(&path)?;
                fold(&mut list, &owner.read(&*disk)?);
            }
            Err(error) => return Err(error.into()),
        }
        if list.salt() == Salt::default() {
            let token = || disk.token().map(u64::to_le_bytes);
            let source = |source| JournalError::NotOpened { path: path.clone(), source };
            let mut salt = Salt::default();
            salt.0[..8].copy_from_slice(&token().map_err(source)?);
            salt.0[8..].copy_from_slice(&token().map_err(source)?);
            list.apply(Record::Salt(salt));
        }
        change(&mut list);
        let limits = self.policy.limits(&*disk);
        let now = self.now();
        list.limit(limits.entries, limits.age.map(|age| now.before(age)));
        owner.replace(&*disk, &slices(&encoded(&list, now)))?;
        Ok(())
    }

    /// Puts a journal in the place of a damaged one.
    fn repair(&mut self) -> Result<(), RecentsError> {
        self.journal = None;
        self.reader = None;
        self.replace(|_| {})
    }

    /// Removes damaged journals that were put aside: they name what is forgotten.
    fn remove_evidence(&mut self) -> Result<(), RecentsError> {
        let path = self.journal_path();
        let mut journals = vec![durable_journal(&self.places)];
        if path != journals[0] {
            journals.push(path);
            // The copy on the disk names it too.
            self.snapshot()?;
        }
        // A name of the shared list as it was, whose bytes are others' to replace.
        let last = last_version_path(&self.places);
        match self.disk.remove(&last) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(RecentsError::NotAside { path: last, source });
            }
            _ => {}
        }
        for journal in journals {
            let Some(dir) = journal.parent() else { continue };
            for name in self.disk.list(dir).unwrap_or_default() {
                if name.as_encoded_bytes().starts_with(b"journal~") {
                    let path = dir.join(&name);
                    wipe(&*self.disk, &path)
                        .map_err(|source| RecentsError::NotAside { path, source })?;
                }
            }
        }
        Ok(())
    }

    fn keep_evidence(&self, path: &Path) -> Result<(), RecentsError> {
        let kept = copy_aside(&*self.disk, path);
        kept.map(|_| ()).map_err(|source| RecentsError::NotAside { path: path.to_owned(), source })
    }

    fn put_aside(&self, path: &Path) -> Result<(), RecentsError> {
        let moved = move_aside(&*self.disk, path);
        moved.map(|_| ()).map_err(|source| RecentsError::NotAside { path: path.to_owned(), source })
    }
}

/// Returns where the journal is on the disk.
fn durable_journal(places: &Places) -> PathBuf {
    places.state.join("journal")
}

fn owner_of(disk: &dyn Disk, path: &Path) -> Result<Owner, RecentsError> {
    // An empty journal, and the directory, are made by the first who appends.
    if disk.stat(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        Appender::open(disk, path)?;
    }
    let owner = Owner::within(disk, path, PATIENCE)?;
    owner.ok_or_else(|| RecentsError::Busy { path: path.to_owned() })
}

fn fold(list: &mut List, records: &[Vec<u8>]) {
    records
        .iter()
        .filter_map(|record| Record::decode(record))
        .for_each(|record| list.apply(record));
}

fn encoded(list: &List, now: Timestamp) -> Vec<Vec<u8>> {
    let since = now.before(REMEMBERED_AS_FORGOTTEN);
    list.records(since).iter().map(Record::encode).collect()
}

fn slices(records: &[Vec<u8>]) -> Vec<&[u8]> {
    records.iter().map(Vec::as_slice).collect()
}
