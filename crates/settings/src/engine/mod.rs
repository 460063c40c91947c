//! The settings engine: takes changes, decides what they change, has them made durable in batches, and says what to
//! answer in which order. Pure: it owns no thread, no socket and no clock.

mod access;
mod answer;
mod background;
mod external_change;
mod failure;
mod file_identity;
mod files;
mod finish;
mod image;
mod job;
mod live;
mod load;
mod plan;
mod text;
mod wal;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::snapshots::{SnapshotPolicy, Snapshots};

use self::files::Files;
use self::live::{Ask, Live, Ordered, PendingChange, State};
use super::changeset::{Changeset, ChangesetError};
use super::database::KeyTable;
use super::history::{HistoryProcess, Keep, Recorder};
use super::pacing::{Pacer, Pacing};
use sys::clock::Clock;

pub use crate::names::{DatabaseDirectories, DatabaseId, DatabaseKind};
pub use answer::{ChangeError, EngineMessage, EngineNotice, ErrorKind};
pub use job::{DatabaseSearch, Job, JobDone};

/// The options of an [`Engine`].
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// When replies to a chatty sender are delayed; `None` never does.
    pub pacing: Option<Pacing>,
    /// The limits of the history; `None` for no history.
    pub history: Option<Keep>,
    /// How many good generations of a `Writer` database are kept beside the live one, and how often.
    pub snapshots: SnapshotPolicy,
    /// How long a `journal` database is left alone before its journal is folded into a checkpoint.
    pub checkpoint_idle: Duration,
    /// The journal size in bytes below which an idle checkpoint is not worth its writes.
    pub checkpoint_bytes: u64,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            pacing: Some(Pacing::default()),
            history: Some(Keep::default()),
            snapshots: SnapshotPolicy::default(),
            checkpoint_idle: Duration::from_secs(5),
            checkpoint_bytes: 64 << 10,
        }
    }
}

/// All databases of one user. `T` is what the caller needs to answer a request.
#[derive(Debug)]
pub struct Engine<T> {
    places: DatabaseDirectories,
    options: EngineOptions,
    tag_prefix: String,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    databases: BTreeMap<DatabaseId, Database<T>>,
    pacer: Option<Pacer>,
    history: Option<Recorder>,
    answers: VecDeque<EngineMessage<T>>,
    reports: VecDeque<EngineNotice>,
    /// The last images of databases that another program removed, and where to keep them.
    lost_images: Vec<(PathBuf, Vec<u8>)>,
    /// The number of requests so far.
    requests: u64,
    job_in_flight: bool,
    shutting_down: bool,
    locks_removed: bool,
    watched_version: u64,
    /// When the engine was made, in nanoseconds since 1970.
    started_ns: i128,
}

/// A database with its files and timers.
#[derive(Debug)]
struct Database<T> {
    files: Files,
    live: Live<T>,
    /// The lock against other services of this user, unless the disk thread has it.
    access: access::Access,
    /// When to check the file, by monotonic time, and whether it was incomplete before.
    probe: Option<(Duration, external_change::Settled)>,
    snapshots: Option<Snapshots>,
    /// When to consider a snapshot, by monotonic time.
    snapshot_at: Option<Duration>,
    /// The journal of a `journal` database; `None` while the disk thread has it.
    wal: Option<wal::Wal>,
    /// When to fold the journal, by monotonic time.
    checkpoint_at: Option<Duration>,
}

impl<T> Engine<T> {
    /// Makes an engine that has read nothing yet; tags start with `tag_prefix`, the unique bus name.
    #[must_use]
    pub fn new(
        places: DatabaseDirectories,
        options: EngineOptions,
        tag_prefix: String,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Engine<T> {
        let started = clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Engine {
            started_ns: i128::try_from(started.as_nanos()).unwrap_or(i128::MAX),
            pacer: options.pacing.map(Pacer::new),
            history: options.history.clone().map(|keep| Recorder::new(&places, keep, clock.now())),
            places,
            options,
            tag_prefix,
            disk,
            clock,
            databases: BTreeMap::new(),
            answers: VecDeque::new(),
            reports: VecDeque::new(),
            lost_images: Vec::new(),
            requests: 0,
            job_in_flight: false,
            shutting_down: false,
            locks_removed: false,
            watched_version: 0,
        }
    }

    /// Accepts a `Change` call; it is answered through [`Engine::next_answer`].
    ///
    /// Hand over every request that has arrived before asking for the next job: they share one write.
    pub fn change(&mut self, id: &DatabaseId, changeset: Changeset, sender: &str, token: T) {
        if let Some(error) = self.too_many(id) {
            return self.answers.push_back(EngineMessage::Failed { token, error });
        }
        let tag_prefix = self.tag_prefix.clone();
        let database = self.database(id);
        let tag = database.live.next_tag(&tag_prefix);
        if changeset.is_empty() {
            self.answers.push_back(EngineMessage::Changed { token, tag });
        } else if let Err(error) = can_be_stored(id.kind(), &changeset) {
            self.answers.push_back(EngineMessage::Failed { token, error });
        } else {
            self.ask(id, Ask::Change { token, tag, sender: sender.into() }, changeset);
        }
    }

    /// Takes a `Change` call whose changes are refused; it is answered through [`Engine::next_answer`], in its place.
    pub fn refuse_change(&mut self, id: &DatabaseId, refused: &ChangesetError, token: T) {
        let kind = match refused {
            ChangesetError::TooLong(_) | ChangesetError::TooMany => ErrorKind::Quota,
            ChangesetError::PathNotText(_) | ChangesetError::ValueNotNormal(_) => {
                ErrorKind::Invalid
            }
        };
        let text = format!("cannot change {id}: {refused}; nothing was changed");
        self.answers.push_back(EngineMessage::Failed { token, error: ChangeError { kind, text } });
    }

    /// Accepts an `Init` call: ensures that readers of a database that is not [`DatabaseKind::User`] find a file.
    pub fn init(&mut self, id: &DatabaseId, token: T) {
        if let Some(error) = self.too_many(id) {
            return self.answers.push_back(EngineMessage::Failed { token, error });
        }
        self.ask(id, Ask::Init { token }, Changeset::default());
    }

    /// Returns why a database is refused: each costs memory and a descriptor, and any caller can name any number.
    /// The user's database is never refused.
    fn too_many(&self, id: &DatabaseId) -> Option<ChangeError> {
        if is_own(id) || self.databases.contains_key(id) || self.databases.len() < MOST_DATABASES {
            return None;
        }
        let text =
            format!("cannot open {id}: {MOST_DATABASES} databases are in use; nothing was changed");
        Some(ChangeError { kind: ErrorKind::Quota, text })
    }

    fn ask(&mut self, id: &DatabaseId, ask: Ask<T>, changes: Changeset) {
        self.requests += 1;
        let weight = changes.weight();
        let request = PendingChange { ask, changes, weight, order: self.requests };
        if self.database(id).live.state == State::Loaded {
            self.gather(id, request);
        } else if let Some(error) = self.too_large(id, weight, &request.changes) {
            self.refuse(request.ask, error);
        } else {
            self.database(id).live.waiting.push_back(request);
        }
    }

    /// Returns why a change is refused: its keys stay in memory, and any caller can send any number.
    ///
    /// The memory of other databases does not count for the user's database.
    fn too_large(
        &self,
        id: &DatabaseId,
        weight: usize,
        changes: &Changeset,
    ) -> Option<ChangeError> {
        let table = self.databases.get(id).map(|database| &database.live.table);
        let most = most_of(id.kind());
        let is_new = |path: &str| table.is_none_or(|table| table.get(path).is_none());
        let set = || changes.iter().filter(|(_, value)| value.is_some());
        let keys = table.map_or(0, KeyTable::len);
        let text = if weight > 0 && table.map_or(0, KeyTable::weight) + weight > most {
            format!("{id} would hold more than {} MiB", most >> 20)
        } else if weight > 0
            && keys + changes.len() > MOST_KEYS
            && keys + set().filter(|(path, _)| is_new(path)).count() > MOST_KEYS
        {
            format!("{id} would hold more than {MOST_KEYS} keys")
        } else if weight > SMALL && self.weight_beside(id) + weight > MOST_OF_ALL {
            format!("more than {} MiB of changes wait", MOST_OF_ALL >> 20)
        } else {
            return None;
        };
        let text = format!("cannot change {id}: {text}; nothing was changed");
        Some(ChangeError { kind: ErrorKind::Quota, text })
    }

    /// Returns the memory of the user's database, or of all others together.
    fn weight_beside(&self, id: &DatabaseId) -> usize {
        let alike = self.databases.iter().filter(|(other, _)| is_own(other) == is_own(id));
        alike.map(|(_, database)| database.live.weight()).sum()
    }

    fn refuse(&mut self, ask: Ask<T>, error: ChangeError) {
        let (Ask::Change { token, .. } | Ask::Init { token }) = ask;
        self.answers.push_back(EngineMessage::Failed { token, error });
    }

    /// Applies a request to a loaded database.
    fn gather(&mut self, id: &DatabaseId, request: PendingChange<T>) {
        if let Some(error) = self.too_large(id, request.weight, &request.changes) {
            return self.refuse(request.ask, error);
        }
        let now = self.clock.monotonic();
        let Some(Database { live, probe, .. }) = self.databases.get_mut(id) else { return };
        let paced =
            matches!(id.kind(), DatabaseKind::User | DatabaseKind::Keyfile) && !self.shutting_down;
        let pacer = self.pacer.as_mut().filter(|_| paced);
        let sender = match &request.ask {
            Ask::Change { sender, .. } => sender.clone(),
            Ask::Init { .. } => Box::default(),
        };
        let bytes = live.image_bytes;
        live.gather(request, now, |effective| match pacer {
            None => Duration::ZERO,
            Some(pacer) if effective.is_empty() => pacer.delay(&sender, now),
            Some(pacer) => pacer.charge(&sender, &effective.paths, bytes, now),
        });
        if live.looking && !live.wants_write() {
            // It is answered after the check; a write checks the file itself.
            *probe = probe.map(|(at, settled)| (at.min(now), settled));
        }
        let settled = live.settle();
        self.answer(settled);
    }

    /// Returns a database, which may not have been read yet.
    fn database(&mut self, id: &DatabaseId) -> &mut Database<T> {
        let places = &self.places;
        self.databases.entry(id.clone()).or_insert_with(|| Database {
            files: Files::of(places, id),
            live: Live::new(id.clone()),
            access: access::Access::default(),
            probe: None,
            snapshots: None,
            snapshot_at: None,
            wal: None,
            checkpoint_at: None,
        })
    }

    /// Queues answers in the order of their requests.
    fn answer(&mut self, mut answers: Vec<Ordered<T>>) {
        answers.sort_by_key(|(order, _)| *order);
        self.answers.extend(answers.into_iter().map(|(_, answer)| answer));
    }

    /// Records the process of a sender, for the history; it may come after the sender's changes.
    pub fn identify(&mut self, sender: &str, process: HistoryProcess) {
        if let Some(history) = &mut self.history {
            history.identify(sender, process);
        }
    }

    /// Handles a change of a watched file. Changes of this service may be passed, too; they are recognised.
    pub fn outside_edit(&mut self, id: &DatabaseId) {
        let now = self.clock.monotonic();
        if let Some(database) = self.databases.get_mut(id)
            && database.live.state == State::Loaded
            && matches!(id.kind(), DatabaseKind::User | DatabaseKind::Keyfile)
            && database.probe.is_none()
        {
            database.probe = Some((now + LOOK_AFTER, external_change::Settled::NotYet));
            database.live.looking = true;
        }
    }

    /// Returns the next message to send, in the exact order in which they are to be sent.
    pub fn next_answer(&mut self) -> Option<EngineMessage<T>> {
        self.answers.pop_front()
    }

    /// Returns the next notice for the log.
    pub fn next_report(&mut self) -> Option<EngineNotice> {
        self.reports.pop_front()
    }

    /// Handles the passing of time: call it at the deadline, then request jobs and answers. An early call does no harm.
    pub fn tick(&mut self) {
        // The next job finds due work by the clock; only answers must be prepared here.
        let settled: Vec<_> = self.databases.values_mut().flat_map(|d| d.live.settle()).collect();
        self.answer(settled);
    }

    /// Makes all waiting work due and folds the journals; continue as usual until [`Engine::is_idle`].
    pub fn begin_shutdown(&mut self) {
        self.shutting_down = true;
        let now = self.clock.monotonic();
        for database in self.databases.values_mut() {
            database.live.hurry(now);
            database.checkpoint_at = Some(now);
            database.snapshot_at = database.snapshot_at.map(|_| now);
        }
        if let Some(history) = &mut self.history {
            history.hurry(now);
        }
    }

    /// Returns whether no request, job or answer is pending; after [`Engine::begin_shutdown`] also that all is stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let quiet = !self.job_in_flight
            && self.answers.is_empty()
            && self.databases.values().all(|database| database.live.is_quiet());
        let history = self.history.as_ref();
        let history_is_out = history.is_some_and(Recorder::is_writing);
        let now = self.clock.monotonic();
        let history_is_due = history.and_then(Recorder::due).is_some_and(|due| due <= now);
        let has_ended = self.next_aside().is_none() && !history_is_due && self.locks_removed;
        quiet && !history_is_out && (!self.shutting_down || has_ended)
    }

    /// Returns the work of finding the names of a kind's databases, for introspection. It may run on any thread.
    #[must_use]
    pub fn names(&self, kind: DatabaseKind) -> DatabaseSearch {
        let used = self.databases.keys().filter(|id| id.kind() == kind);
        DatabaseSearch {
            disk: Arc::clone(&self.disk),
            dir: self.places.config.clone(),
            kind,
            used: used.map(|id| id.name().to_owned()).collect(),
        }
    }

    /// Returns the files whose replacement must be reported by [`Engine::outside_edit`].
    #[must_use]
    pub fn watched(&self) -> Vec<(PathBuf, DatabaseId)> {
        let loaded = self.databases.iter().filter(|(_, d)| d.live.state == State::Loaded);
        let file = |(id, database): (&DatabaseId, &Database<T>)| match id.kind() {
            DatabaseKind::User => Some((database.files.image.clone(), id.clone())),
            DatabaseKind::Keyfile => Some((database.files.text.clone(), id.clone())),
            DatabaseKind::Shm | DatabaseKind::Journal => None,
        };
        loaded.filter_map(file).collect()
    }

    /// Returns a number that grows whenever [`Engine::watched`] changes.
    #[must_use]
    pub fn watched_version(&self) -> u64 {
        self.watched_version
    }
}

/// The delay after an event before a file is checked, unless a request waits: commits of this service cause events, too,
/// and the next commit must not wait for a check.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Returns a time of day in whole seconds since 1970; 0 before that.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns whether this is the database of the user, which every session has.
fn is_own(id: &DatabaseId) -> bool {
    id.kind() == DatabaseKind::User && id.name() == "user"
}

/// Databases that are in use at a time; a session has two or three.
pub const MOST_DATABASES: usize = 64;
/// The most memory of a database, in bytes: a hundred times that of a large desktop.
pub const MOST_OF_ONE: usize = 32 << 20;
/// The most memory of the user's database and its requests, in bytes, and the same for all others together.
pub const MOST_OF_ALL: usize = 64 << 20;
/// Keys that a database may hold; those of large desktops hold a few thousand. All of them are gone through whenever an
/// image is made.
pub const MOST_KEYS: usize = 1 << 16;
/// What a database that is stored as text or record by record may be made to take in memory, in bytes.
pub const MOST_OF_TEXT: usize = 8 << 20;
/// Smaller changes are not compared with the sum of all waiting changes, which takes time to compute.
const SMALL: usize = 1 << 10;
/// The longest part of a path between two slashes that the table format can hold, in bytes, slash included.
const LONGEST_PART: usize = 65_535;

/// Returns what a database of this kind may take in memory, in bytes.
fn most_of(kind: DatabaseKind) -> usize {
    match kind {
        DatabaseKind::User | DatabaseKind::Shm => MOST_OF_ONE,
        DatabaseKind::Keyfile | DatabaseKind::Journal => MOST_OF_TEXT,
    }
}

/// Checks that a database of this kind can hold the keys that a changeset sets.
fn can_be_stored(kind: DatabaseKind, changes: &Changeset) -> Result<(), ChangeError> {
    let refused = |path: &str, why: &str| {
        let shown: String = path.chars().take(200).collect();
        let text = format!("cannot store {shown:?}: {why}; nothing was changed");
        Err(ChangeError { kind: ErrorKind::Invalid, text })
    };
    for (path, _) in changes.iter().filter(|(_, value)| value.is_some()) {
        if path.split_inclusive('/').any(|part| part.len() > LONGEST_PART) {
            return refused(path, "a part of its path is longer than 65535 bytes");
        }
        if kind == DatabaseKind::Keyfile
            && let Err(error) = text::check(path)
        {
            return refused(path, &error.to_string());
        }
    }
    Ok(())
}
