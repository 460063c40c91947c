//! The journal of one user: an addition is one append, and the list is the result of all records.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::disk::Disk;
use store::journal::JournalError;
use store::journal::shared::{Appender, Flaw, JournalReader, News, Owner, salvage};
use store::publish::{PublishError, remove_all_stale, wipe};

use super::alarm::{WriterNotifier, WriterProgram};
use super::damage::{self, Aside, JournalDamage};
use super::list::additions_missing;
use super::places::last_version_paths;
use super::policy::{
    DenialReason, ForeignList, Keeping, PolicySubject, Private, RetentionLimits, RetentionPolicy,
    RetentionVerdict,
};
use super::record::{Addition, ForgetExtent, Forgetting, JournalRecord};
use super::{FieldError, RecentEntry, RecentList, RecentTime, RecentsFiles, Salt, Uri};
use sys::clock::Clock;

/// A journal of fewer bytes is not worth replacing.
const SMALL: u64 = 1 << 16;
/// More records than these are written by replacing the journal instead of by appending.
const MANY: usize = 64;
/// How long somebody else who replaces the journal is waited for; it takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The age at which the temporary file of a killed writer is removed.
const STALE: Duration = Duration::from_secs(60);

/// Why an operation on the journal failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecentsError {
    /// The cause describes the resulting state. Earlier entries are unchanged.
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
    /// What was to be remembered has a field that cannot be; nothing was written.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// It is not known how far the journal went; everything is in it.
    #[error("cannot store the length of {path:?}")]
    NoExtent {
        /// The journal.
        path: PathBuf,
        /// What the disk said.
        source: PublishError,
    },
    /// Another process replaces the journal all the time, or hangs while it does. Nothing was changed.
    #[error("cannot replace the journal {path:?}: another process is replacing it")]
    Busy {
        /// The journal.
        path: PathBuf,
    },
}

/// The outcome of compacting the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// It was replaced by the fewest records.
    Done,
    /// It is small enough.
    NotNeeded,
}

/// The outcome of an addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdditionOutcome {
    /// It is remembered.
    Remembered,
    /// It is not, and nothing was written.
    Left(DenialReason),
}

/// Whether this program's documents may be remembered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RememberingProgram {
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
    places: RecentsFiles,
    program: RememberingProgram,
    policy: RetentionPolicy,
    alarm: Option<WriterNotifier>,
    journal: Option<Appender>,
    reader: Option<JournalReader>,
    /// Where half a record was found at the end, which may be being written.
    half: Option<u64>,
    /// Whether the journal went further before.
    was_cut: bool,
    damage: Option<JournalDamage>,
    list: RecentList,
}

impl Recents {
    /// Returns the recent documents in these places. Nothing is looked at yet.
    #[must_use]
    pub fn new(
        places: RecentsFiles,
        program: RememberingProgram,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Recents {
        let policy = RetentionPolicy::new(&places);
        Recents {
            disk,
            clock,
            places,
            program,
            policy,
            alarm: None,
            journal: None,
            reader: None,
            half: None,
            was_cut: false,
            damage: None,
            list: RecentList::default(),
        }
    }

    /// Lets every addition see to it that the files which other programs read are written soon: by whoever watches the
    /// journal, else by `program`, which is started.
    #[must_use]
    pub fn with_writer(mut self, program: WriterProgram) -> Recents {
        self.alarm = Some(WriterNotifier::new(program, &self.places));
        self
    }

    /// Remembers that a program opened a document, unless the policy is against it. The wait is that of one write into
    /// the page cache, however long the list is; nothing is synced.
    ///
    /// # Errors
    ///
    /// [`RecentsError::Field`]: nothing was written. After another [`RecentsError`] it may be remembered or not; others'
    /// additions are not touched.
    pub fn add(&mut self, addition: &Addition) -> Result<AdditionOutcome, RecentsError> {
        addition.check()?;
        if let RetentionVerdict::Leave(reason) = self.decide(addition) {
            return Ok(AdditionOutcome::Left(reason));
        }
        self.append(&JournalRecord::Add(addition.clone()))?;
        if let Some(alarm) = &mut self.alarm
            && let Err(error) = alarm.raise(&*self.disk)
        {
            // It is remembered, and written with the next one.
            tracing::warn!(%error, "cannot start the writer of the lists that other programs read");
        }
        Ok(AdditionOutcome::Remembered)
    }

    /// Decides whether an addition would be remembered now.
    pub fn decide(&mut self, addition: &Addition) -> RetentionVerdict {
        if self.program == RememberingProgram::Private {
            return RetentionVerdict::Leave(DenialReason::PrivateProgram);
        }
        let subject = PolicySubject {
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
    pub fn list(&mut self) -> Result<&RecentList, RecentsError> {
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
    pub fn records(&mut self) -> Result<RecentList, RecentsError> {
        // What was read so far has had the limits applied.
        self.reader = None;
        self.refresh()?;
        Ok(self.list.clone())
    }

    /// Appends changes from another store: entries and removals that are not in the journal yet.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; some of the records may be there.
    pub(crate) fn take_in(&mut self, records: Vec<JournalRecord>) -> Result<(), RecentsError> {
        // Without a salt marks tell who finds them what was forgotten.
        if records.len() <= MANY && self.list.salt() != Salt::default() {
            return records.iter().try_for_each(|record| self.append(record));
        }
        self.replace(|list| records.into_iter().for_each(|record| list.apply(record)))
    }

    /// Forgets documents, durably: no byte of the journal names them afterwards, as far as the file system overwrites
    /// in place. Returns the records by which other stores can be told.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]: they may still be there.
    pub fn forget(&mut self, uris: &[Uri]) -> Result<Vec<Forgetting>, RecentsError> {
        let unknown = RecentTime::default();
        self.forget_used(&uris.iter().map(|uri| (uri.clone(), unknown)).collect())
    }

    /// Forgets documents as [`Recents::forget`] does. Each comes with the time at which other lists say that it was used last:
    /// after the clock was set back that may be later than now, and is forgotten too.
    ///
    /// # Errors
    ///
    /// As [`Recents::forget`].
    pub fn forget_used(
        &mut self,
        used: &BTreeMap<Uri, RecentTime>,
    ) -> Result<Vec<Forgetting>, RecentsError> {
        let at = self.now();
        let mut done = Vec::new();
        self.replace(|list| {
            done = list.forgetting_used(used, at);
            done.iter().cloned().map(JournalRecord::Forget).for_each(|record| list.apply(record));
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
        let (marks, everything, at) = (Vec::new(), ForgetExtent::Goes, self.now());
        let later_use = None;
        let forgetting = JournalRecord::Forget(Forgetting { marks, everything, at, later_use });
        self.replace(|list| {
            // Other stores may still have what was used later than now; it is not news.
            let later = list.iter().filter(|entry| entry.last_used() > at);
            let later = later.map(|entry| (entry.uri.clone(), entry.last_used())).collect();
            let later = list.forgetting_used(&later, at);
            later.into_iter().map(JournalRecord::Forget).for_each(|record| list.apply(record));
            list.apply(forgetting);
        })?;
        self.remove_evidence()
    }

    /// Replaces the journal by the fewest records that lead to the same list, if that is worth it. Entries beyond the limits go
    /// then, and not before: each other change of the journal keeps them.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; nothing is lost.
    pub fn compact(&mut self) -> Result<Compacted, RecentsError> {
        self.refresh()?;
        let used = self.reader.as_ref().map_or(0, JournalReader::len_bytes);
        if !self.is_damaged() {
            if used < SMALL {
                return Ok(Compacted::NotNeeded);
            }
            // A journal of twice as much as is needed is half superfluous. One that is as large as it has to be stays: whoever
            // watches it would take each new one for a change, and write the next.
            let needed: usize = encoded(&self.list, self.now()).iter().map(Vec::len).sum();
            if used < 2 * needed as u64 {
                return Ok(Compacted::NotNeeded);
            }
        }
        let limits = self.policy.limits(&*self.disk);
        let oldest = limits.age.map(|age| self.now().before(age));
        self.replace(|list| list.limit(limits.entries, oldest))?;
        Ok(Compacted::Done)
    }

    /// Replaces the journal by what is left of it if it is damaged, or was written by a clock that was far ahead, and finishes what a program that was killed while it
    /// replaced the journal left: the one before, with all that was forgotten since.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; it is as it was.
    pub(crate) fn repair(&mut self) -> Result<(), RecentsError> {
        self.refresh()?;
        if self.is_damaged() || self.list.has_wrong_tombstones(self.now()) {
            return self.replace(|_| {});
        }
        let path = self.journal_path();
        Ok(Owner::finish_left(&*self.disk, &path)?)
    }

    /// Sees to it that marks of this journal are made with a salt of its own.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; nothing is lost.
    pub(super) fn make_salt(&mut self) -> Result<(), RecentsError> {
        self.refresh()?;
        if self.list.salt() == Salt::default() { self.replace(|_| {}) } else { Ok(()) }
    }

    /// Returns the damage that was found since this was created, and the copies of the damaged journals.
    #[must_use]
    pub fn damage(&self) -> Option<&JournalDamage> {
        self.damage.as_ref()
    }

    /// Returns the damaged journals that are kept from before.
    pub fn kept_journals(&mut self) -> Vec<PathBuf> {
        let path = self.journal_path();
        damage::kept(&*self.disk, &path)
    }

    /// Takes down how far the journal goes, so that it is noticed if it is cut.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]: it is not noticed.
    pub(crate) fn write_extent(&mut self) -> Result<(), RecentsError> {
        self.refresh()?;
        let path = self.journal_path();
        if self.is_damaged() {
            return Ok(());
        }
        let extent = self.reader.as_ref().and_then(JournalReader::extent);
        let written = extent.map(|extent| damage::write_extent(&*self.disk, &path, extent));
        written.unwrap_or(Ok(())).map_err(|source| RecentsError::NoExtent { path, source })
    }

    /// Copies the list to the disk if the journal is in memory; the next session starts with that.
    ///
    /// # Errors
    ///
    /// [`RecentsError`]; the copy before is as it was.
    pub fn snapshot(&mut self) -> Result<(), RecentsError> {
        let durable = self.places.journal();
        if self.journal_path() == durable {
            return Ok(());
        }
        let now = self.now();
        let disk = self.disk.clone();
        let mut owner = owner_of(&*disk, &durable)?;
        let before = owner.read(&*disk).unwrap_or_default();
        let mut copied = RecentList::default();
        fold(&mut copied, &before);
        let missing = additions_missing(self.list()?, &copied);
        if !missing.is_empty() {
            self.take_in(missing)?;
        }
        let records = encoded(self.list()?, now);
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
    pub(crate) fn snapshot_if_older(&mut self, age: Duration) -> Result<(), RecentsError> {
        let durable = self.places.journal();
        let copied = self.disk.stat(&durable).map_or(0, |stat| stat.mtime_ns / 1000);
        let is_old = copied < i128::from(self.now().before(age).0);
        if is_old { self.snapshot() } else { Ok(()) }
    }

    /// Returns what tells the journal from what it is after anything was appended; `None` without a journal.
    pub fn stamp(&mut self) -> Option<((u64, u64), u64)> {
        let path = self.journal_path();
        self.disk.stat(&path).ok().map(|stat| (stat.identity, stat.len))
    }

    /// Says whether the user's rules are not known.
    pub(crate) fn has_unreadable_rules(&mut self) -> bool {
        self.policy.is_unreadable(&*self.disk)
    }

    /// Returns the policy, to ask what holds and why.
    pub fn policy(&mut self) -> &mut RetentionPolicy {
        &mut self.policy
    }

    /// Returns how much is kept, and where.
    pub fn limits(&mut self) -> RetentionLimits {
        self.policy.limits(&*self.disk)
    }

    /// Returns the entry of a document.
    ///
    /// # Errors
    ///
    /// As [`Recents::list`].
    pub fn entry(&mut self, uri: &Uri) -> Result<Option<&RecentEntry>, RecentsError> {
        Ok(self.list()?.get(uri))
    }

    /// Returns the places.
    #[must_use]
    pub fn places(&self) -> &RecentsFiles {
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
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Decides whether an entry that another program wrote into its own list may stay there.
    pub(super) fn decide_foreign(&mut self, entry: &RecentEntry) -> RetentionVerdict {
        let last = entry.applications.iter().max_by_key(|application| application.modified);
        let subject = PolicySubject {
            uri: &entry.uri,
            mime: entry.mime.as_deref(),
            application: last.map_or("", |application| &application.name),
        };
        let private = self.private_mode(entry.last_used(), ForeignList::Shared);
        private.unwrap_or_else(|| self.policy.decide_by_rules(&*self.disk, subject))
    }

    /// Decides whether a link that a program of KDE's made may stay; `used` is when the document was opened with it.
    pub(super) fn decide_link(
        &mut self,
        subject: PolicySubject<'_>,
        used: RecentTime,
    ) -> RetentionVerdict {
        let private = self.private_mode(used, ForeignList::Links);
        private.unwrap_or_else(|| self.policy.decide_by_rules(&*self.disk, subject))
    }

    /// Returns the verdict of private mode, if another program used something in it, also when that is found later.
    fn private_mode(&self, used: RecentTime, list: ForeignList) -> Option<RetentionVerdict> {
        let private = Private::covering(&*self.disk, &self.places, used, &*self.clock, list)?;
        Some(RetentionVerdict::Leave(DenialReason::Private(private)))
    }

    /// Returns the time as records have it.
    #[must_use]
    pub fn now(&self) -> RecentTime {
        RecentTime::of(self.clock.now())
    }

    /// Returns the file of the journal: on the disk or, in volatile mode, in memory.
    pub fn journal_path(&mut self) -> PathBuf {
        let volatile = self.policy.keeping(&*self.disk) == Keeping::Volatile;
        match &self.places.runtime {
            Some(dir) if volatile => dir.join("journal"),
            _ => self.places.journal(),
        }
    }

    fn append(&mut self, record: &JournalRecord) -> Result<(), RecentsError> {
        let bytes = record.encode();
        let path = self.journal_path();
        let disk = self.disk.clone();
        if self.journal.as_ref().is_none_or(|journal| journal.path() != path) {
            self.prepare(&path)?;
            self.journal = Some(match Appender::open(&*disk, &path) {
                Err(JournalError::NotAJournal { .. }) => {
                    self.start_anew()?;
                    Appender::open(&*disk, &path)?
                }
                opened => opened?,
            });
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        match journal.append(&*disk, &bytes) {
            Err(JournalError::NotAJournal { .. }) => {
                self.start_anew()?;
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
        let durable = self.places.journal();
        if path == durable || self.disk.stat(&durable).is_err() {
            return Ok(());
        }
        let disk = self.disk.clone();
        match disk.stat(path) {
            // Longer than one that was made and not filled.
            Ok(stat) if stat.len >= SMALL => return Ok(()),
            // Whoever made it may have been killed before it was filled.
            Ok(_) => {
                let (News::All(records) | News::More(records)) =
                    JournalReader::new(path).read(&*disk)?;
                if records.iter().any(|record| is_salt(record)) {
                    return Ok(());
                }
            }
            Err(_) => {}
        }
        let mut owner = owner_of(&*disk, path)?;
        let there = owner.read(&*disk)?;
        let before = match JournalReader::new(&durable).read(&*disk)? {
            News::All(records) | News::More(records) => records,
        };
        // Whoever was quicker filled it already.
        if !there.iter().any(|record| is_salt(record)) {
            // By its salt a journal that was filled is known.
            let salt = match before.iter().any(|record| is_salt(record)) {
                true => None,
                false => Some(JournalRecord::Salt(new_salt(&*disk, path)?).encode()),
            };
            let all: Vec<&[u8]> =
                salt.iter().chain(&before).chain(&there).map(Vec::as_slice).collect();
            owner.replace(&*disk, &all)?;
        }
        Ok(())
    }

    /// Reads what is new in the journal.
    fn refresh(&mut self) -> Result<(), RecentsError> {
        let path = self.journal_path();
        self.prepare(&path)?;
        self.read_journal(&path)?;
        if self.half_record() != self.half {
            // It is being written, if it is not there still at the next look.
            self.half = self.half_record();
            std::thread::yield_now();
            self.read_journal(&path)?;
        }
        self.note_damage(path);
        Ok(())
    }

    fn read_journal(&mut self, path: &Path) -> Result<(), RecentsError> {
        let is_other = self.reader.as_ref().is_none_or(|reader| reader.path() != path);
        let reader = match &mut self.reader {
            Some(reader) if !is_other => reader,
            reader => reader.insert(JournalReader::new(path)),
        };
        match reader.read(&*self.disk) {
            Ok(News::All(records)) => {
                self.list = RecentList::default();
                fold(&mut self.list, &records);
                self.was_cut = damage::was_cut(&*self.disk, path, reader.extent());
            }
            Ok(News::More(records)) => fold(&mut self.list, &records),
            Err(JournalError::NotAJournal { .. }) => {
                (self.list, self.reader, self.was_cut) = (RecentList::default(), None, true);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes down whether the journal that was just read is damaged.
    fn note_damage(&mut self, journal: PathBuf) {
        let half = self.half_record();
        let is_half = half.is_some() && half == self.half;
        self.half = half;
        let flaw = self.reader.as_ref().and_then(JournalReader::flaw);
        let has_flaw = flaw.is_some_and(|flaw| flaw != Flaw::HalfRecord);
        if self.was_cut || is_half || has_flaw {
            self.damage = Some(JournalDamage { journal, kept: None });
        } else if self.is_damaged() {
            // Somebody else has replaced it.
            self.damage = None;
        }
    }

    /// Returns where half a record begins at the end of the journal.
    fn half_record(&self) -> Option<u64> {
        let reader = self.reader.as_ref().filter(|reader| reader.flaw() == Some(Flaw::HalfRecord));
        reader.map(JournalReader::len_bytes)
    }

    /// Returns whether the journal was found to be damaged and is not replaced yet.
    fn is_damaged(&self) -> bool {
        self.damage.as_ref().is_some_and(|damage| damage.kept.is_none())
    }

    /// Replaces the journal by what the list is after `change`.
    pub(super) fn replace(
        &mut self,
        change: impl FnOnce(&mut RecentList),
    ) -> Result<(), RecentsError> {
        let path = self.journal_path();
        self.prepare(&path)?;
        let disk = self.disk.clone();
        let mut owner = owner_of(&*disk, &path)?;
        let mut list = RecentList::default();
        match owner.read(&*disk) {
            Ok(records) => {
                let flaw = owner.flaw().filter(|flaw| *flaw != Flaw::HalfRecord);
                let was_cut = damage::was_cut(&*disk, &path, owner.extent());
                if flaw.is_some() || was_cut || self.is_damaged() {
                    self.keep_damaged(&path, Aside::Copy)?;
                }
                fold(&mut list, &records);
            }
            Err(JournalError::NotAJournal { .. }) => {
                let bytes = disk.read(&path).unwrap_or_default();
                fold(&mut list, &salvage(&bytes));
                self.keep_damaged(&path, Aside::Move)?;
                fold(&mut list, &owner.read(&*disk)?);
            }
            Err(error) => return Err(error.into()),
        }
        if list.salt() == Salt::default() {
            list.apply(JournalRecord::Salt(new_salt(&*disk, &path)?));
        }
        change(&mut list);
        owner.replace(&*disk, &slices(&encoded(&list, self.now())))?;
        self.half = None;
        Ok(())
    }

    /// Puts a journal in the place of one that nobody can append to.
    fn start_anew(&mut self) -> Result<(), RecentsError> {
        self.journal = None;
        self.reader = None;
        self.replace(|_| {})
    }

    /// Removes the temporary files of programs that were killed a minute ago or earlier: they name documents. One that
    /// cannot be removed is tried again the next time.
    pub(crate) fn remove_unfinished(&mut self) {
        let before_ns = self.stale_before_ns();
        for journal in [self.places.journal(), self.journal_path()] {
            if let Some(dir) = journal.parent() {
                let _ = remove_all_stale(&*self.disk, dir, before_ns);
            }
        }
    }

    /// Returns the moment before which temporary files are those of killed writers, in nanoseconds since 1970.
    pub(crate) fn stale_before_ns(&self) -> i128 {
        i128::from(self.now().before(STALE).0) * 1000
    }

    /// Removes damaged journals that were put aside: they name what is forgotten.
    fn remove_evidence(&mut self) -> Result<(), RecentsError> {
        self.remove_unfinished();
        let path = self.journal_path();
        let mut journals = vec![self.places.journal()];
        if path != journals[0] {
            journals.push(path);
            // The copy on the disk names it too.
            self.snapshot()?;
        }
        // A name of the shared list as it was, whose bytes are others' to replace.
        for last in last_version_paths(&self.places) {
            match self.disk.remove(&last) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(RecentsError::NotAside { path: last, source });
                }
                _ => {}
            }
        }
        for journal in journals {
            for path in damage::kept(&*self.disk, &journal) {
                wipe(&*self.disk, &path)
                    .map_err(|source| RecentsError::NotAside { path, source })?;
            }
        }
        Ok(())
    }

    /// Keeps the damaged journal at `path` as it is.
    fn keep_damaged(&mut self, path: &Path, aside: Aside) -> Result<(), RecentsError> {
        let kept = damage::keep(&*self.disk, path, aside)
            .map_err(|source| RecentsError::NotAside { path: path.to_owned(), source })?;
        tracing::warn!(?kept, "the journal of recent documents was damaged; what it was is kept");
        self.damage = Some(JournalDamage { journal: path.to_owned(), kept: Some(kept) });
        Ok(())
    }
}

fn new_salt(disk: &dyn Disk, path: &Path) -> Result<Salt, RecentsError> {
    let token = || disk.token().map(u64::to_le_bytes);
    let source = |source| JournalError::NotOpened { path: path.to_owned(), source };
    let mut salt = Salt::default();
    salt.0[..8].copy_from_slice(&token().map_err(source)?);
    salt.0[8..].copy_from_slice(&token().map_err(source)?);
    Ok(salt)
}

/// Whether a record is the first of a journal that was filled.
fn is_salt(record: &[u8]) -> bool {
    matches!(JournalRecord::decode(record), Some(JournalRecord::Salt(_)))
}

fn owner_of(disk: &dyn Disk, path: &Path) -> Result<Owner, RecentsError> {
    // An empty journal, and the directory, are made by the first who appends.
    if disk.stat(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        Appender::open(disk, path)?;
    }
    let owner = Owner::within(disk, path, PATIENCE)?;
    owner.ok_or_else(|| RecentsError::Busy { path: path.to_owned() })
}

/// Applies the records of a journal.
pub(super) fn fold(list: &mut RecentList, records: &[Vec<u8>]) {
    records
        .iter()
        .filter_map(|record| JournalRecord::decode(record))
        .for_each(|record| list.apply(record));
}

fn encoded(list: &RecentList, now: RecentTime) -> Vec<Vec<u8>> {
    list.records(now).iter().map(JournalRecord::encode).collect()
}

fn slices(records: &[Vec<u8>]) -> Vec<&[u8]> {
    records.iter().map(Vec::as_slice).collect()
}
