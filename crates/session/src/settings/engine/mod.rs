//! The settings engine: takes changes, decides what they change, has them made durable in batches, and says what to
//! answer in which order. Pure: it owns no thread, no socket and no clock.

mod access;
mod answer;
mod aside;
mod files;
mod finish;
mod job;
mod live;
mod load;
mod look;
mod names;
mod outside;
mod plan;
mod text;
mod wal;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::disk::Disk;
use store::snapshots::{Policy, Snapshots};

use self::files::Files;
use self::live::{Ask, Live, Ordered, State, Waiting};
use super::changeset::Changeset;
use super::history::{Keep, Process, Recorder};
use super::pacing::{Pacer, Pacing};
use crate::clock::Clock;

pub use answer::{Answer, ChangeError, ErrorKind, Report};
pub use job::{Job, JobDone, Listing};
pub use names::{DatabaseId, Kind, Places};

/// What can be chosen about an [`Engine`].
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// When replies to a chatty sender are delayed; `None` never does.
    pub pacing: Option<Pacing>,
    /// What the history keeps; `None` keeps no history.
    pub history: Option<Keep>,
    /// How many good generations of a `Writer` database are kept beside the live one, and how often.
    pub snapshots: Policy,
    /// How long a `journal` database is left alone before its journal is folded into a checkpoint.
    pub checkpoint_idle: Duration,
    /// The journal size in bytes below which an idle checkpoint is not worth its writes.
    pub checkpoint_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pacing: Some(Pacing::default()),
            history: Some(Keep::default()),
            snapshots: Policy::default(),
            checkpoint_idle: Duration::from_secs(5),
            checkpoint_bytes: 64 << 10,
        }
    }
}

/// All databases of one user. `T` is what the caller needs to answer a request.
#[derive(Debug)]
pub struct Engine<T> {
    places: Places,
    options: Options,
    tag_prefix: String,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    databases: BTreeMap<DatabaseId, Database<T>>,
    pacer: Option<Pacer>,
    history: Option<Recorder>,
    answers: VecDeque<Answer<T>>,
    reports: VecDeque<Report>,
    /// Last images of databases that were removed by another program, and where to keep them.
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

/// A database with what belongs to it beside its state.
#[derive(Debug)]
struct Database<T> {
    files: Files,
    live: Live<T>,
    /// What keeps other services of this user away, unless the disk thread has it.
    access: access::Access,
    /// When to look at the file, by monotonic time, and whether it was seen unfinished before.
    probe: Option<(Duration, outside::Settled)>,
    snapshots: Option<Snapshots>,
    /// When to think of a snapshot, by monotonic time.
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
        places: Places,
        options: Options,
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

    /// Takes a `Change` call; it is answered through [`Engine::next_answer`].
    ///
    /// Hand over every request that has arrived before asking for the next job: they share one write.
    pub fn change(&mut self, id: &DatabaseId, changeset: Changeset, sender: &str, token: T) {
        if let Some(error) = self.too_many(id) {
            return self.answers.push_back(Answer::Failed { token, error });
        }
        let tag_prefix = self.tag_prefix.clone();
        let database = self.database(id);
        let tag = database.live.next_tag(&tag_prefix);
        if changeset.is_empty() {
            self.answers.push_back(Answer::Changed { token, tag });
        } else if let Err(error) = can_be_stored(id.kind(), &changeset) {
            self.answers.push_back(Answer::Failed { token, error });
        } else {
            self.ask(id, Ask::Change { token, tag, sender: sender.into() }, changeset);
        }
    }

    /// Takes an `Init` call: makes sure that readers of a database that is not [`Kind::User`] find a file.
    pub fn init(&mut self, id: &DatabaseId, token: T) {
        if let Some(error) = self.too_many(id) {
            return self.answers.push_back(Answer::Failed { token, error });
        }
        self.ask(id, Ask::Init { token }, Changeset::default());
    }

    /// Says why a database is not taken in: each costs memory and a descriptor, and any caller can name as many as it likes.
    /// That of the user always is.
    fn too_many(&self, id: &DatabaseId) -> Option<ChangeError> {
        let is_own = id.kind() == Kind::User && id.name() == "user";
        if is_own || self.databases.contains_key(id) || self.databases.len() < MOST_DATABASES {
            return None;
        }
        let text =
            format!("cannot open {id}: {MOST_DATABASES} databases are in use; nothing was changed");
        Some(ChangeError { kind: ErrorKind::Quota, text })
    }

    fn ask(&mut self, id: &DatabaseId, ask: Ask<T>, changes: Changeset) {
        self.requests += 1;
        let request = Waiting { ask, changes, order: self.requests };
        let database = self.database(id);
        if database.live.state == State::Loaded {
            self.gather(id, request);
        } else {
            database.live.waiting.push_back(request);
        }
    }

    /// Applies a request to a loaded database.
    fn gather(&mut self, id: &DatabaseId, request: Waiting<T>) {
        let now = self.clock.monotonic();
        let Some(Database { live, probe, .. }) = self.databases.get_mut(id) else { return };
        let paced = matches!(id.kind(), Kind::User | Kind::Keyfile) && !self.shutting_down;
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
            // It is answered after the look; a write looks for itself.
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

    /// Learns which process a sender is, for the history; may come after the sender's changes.
    pub fn identify(&mut self, sender: &str, process: Process) {
        if let Some(history) = &mut self.history {
            history.identify(sender, process);
        }
    }

    /// Learns that a watched file of a database changed. Our own changes may be told too; they are recognised.
    pub fn outside_edit(&mut self, id: &DatabaseId) {
        let now = self.clock.monotonic();
        if let Some(database) = self.databases.get_mut(id)
            && database.live.state == State::Loaded
            && matches!(id.kind(), Kind::User | Kind::Keyfile)
            && database.probe.is_none()
        {
            database.probe = Some((now + LOOK_AFTER, outside::Settled::NotYet));
            database.live.looking = true;
        }
    }

    /// Returns the next message to send, in the exact order in which they are to be sent.
    pub fn next_answer(&mut self) -> Option<Answer<T>> {
        self.answers.pop_front()
    }

    /// Returns the next thing that the log should say.
    pub fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// Lets time pass: call at the deadline, then look for jobs and answers. Calling it early does no harm.
    pub fn tick(&mut self) {
        // What is due is found by the next job, which looks at the clock; only what was answered needs a push.
        let settled: Vec<_> = self.databases.values_mut().flat_map(|d| d.live.settle()).collect();
        self.answer(settled);
    }

    /// Hurries everything that waits and folds the journals; go on as usual until [`Engine::is_idle`].
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

    /// Says whether no request, job or answer is pending; after [`Engine::begin_shutdown`] also that all is stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let quiet = !self.job_in_flight
            && self.answers.is_empty()
            && self.databases.values().all(|database| database.live.is_quiet());
        let has_ended = self.next_aside().is_none() && self.locks_removed;
        quiet && (!self.shutting_down || has_ended)
    }

    /// Returns the work of finding the names of a kind's databases, for introspection. It may run on any thread.
    #[must_use]
    pub fn names(&self, kind: Kind) -> Listing {
        let used = self.databases.keys().filter(|id| id.kind() == kind);
        Listing {
            disk: Arc::clone(&self.disk),
            dir: self.places.config.clone(),
            kind,
            used: used.map(|id| id.name().to_owned()).collect(),
        }
    }

    /// Returns the files whose replacement the engine should be told of by [`Engine::outside_edit`].
    #[must_use]
    pub fn watched(&self) -> Vec<(PathBuf, DatabaseId)> {
        let loaded = self.databases.iter().filter(|(_, d)| d.live.state == State::Loaded);
        let file = |(id, database): (&DatabaseId, &Database<T>)| match id.kind() {
            Kind::User => Some((database.files.image.clone(), id.clone())),
            Kind::Keyfile => Some((database.files.text.clone(), id.clone())),
            Kind::Shm | Kind::Journal => None,
        };
        loaded.filter_map(file).collect()
    }

    /// Returns a number that grows whenever [`Engine::watched`] changes.
    #[must_use]
    pub fn watched_version(&self) -> u64 {
        self.watched_version
    }
}

/// How long after a stir a file is looked at, unless somebody waits for it: our own commits stir it too, and the next
/// of them is not to wait for a look.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Returns a time of day in whole seconds since 1970; 0 before that.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Databases that are in use at a time; a session has two or three.
pub const MOST_DATABASES: usize = 64;
/// The longest part of a path between two slashes that the table format can hold, in bytes, slash included.
const LONGEST_PART: usize = 65_535;

/// Checks that a database of this kind can hold the keys that a changeset sets.
fn can_be_stored(kind: Kind, changes: &Changeset) -> Result<(), ChangeError> {
    let refused = |path: &str, why: &str| {
        let shown: String = path.chars().take(200).collect();
        let text = format!("cannot store {shown:?}: {why}; nothing was changed");
        Err(ChangeError { kind: ErrorKind::Invalid, text })
    };
    for (path, _) in changes.iter().filter(|(_, value)| value.is_some()) {
        if path.split_inclusive('/').any(|part| part.len() > LONGEST_PART) {
            return refused(path, "a part of its path is longer than 65535 bytes");
        }
        if kind == Kind::Keyfile
            && let Err(error) = text::check(path)
        {
            return refused(path, &error.to_string());
        }
    }
    Ok(())
}
