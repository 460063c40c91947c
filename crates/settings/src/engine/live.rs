//! One database in use: the durable state, the batch that is being written, and the changes that wait.
//!
//! The table in memory is always the durable state, plus the batch that is being made durable, plus the changes since.
//! Each applied change has its inverse, so the durable state can be computed and no copy is needed.

use std::collections::VecDeque;
use std::time::Duration;

use gvdb::PatchableImage;
use gvdb::gvariant::Variant;
use store::commit::Commit;
use store::disk::PinnedFile;
use store::publish::PreallocationSlot;

use super::access::{Patience, PatienceLimits};
use super::answer::{ChangeError, EngineMessage};
use super::external_change::ReplacedDatabase;
use super::file_identity::FileIdentity;
use super::image::image_of;
use crate::changeset::Changeset;
use crate::database::KeyTable;
use crate::effective::{Effective, apply, notification};
use crate::merge::difference;
use crate::names::{DatabaseId, DatabaseKind};

/// The largest image that is written by whoever has to answer meanwhile: 0.2 ms.
pub(super) const LARGEST_QUICK_BYTES: usize = 1 << 20;

/// The request of a caller.
#[derive(Debug)]
pub(super) enum Ask<T> {
    /// A `Change` call.
    Change { token: T, tag: String, sender: Box<str> },
    /// An `Init` call.
    Init { token: T },
}

/// A change that waits for its database to be loaded.
#[derive(Debug)]
pub(super) struct PendingChange<T> {
    pub(super) ask: Ask<T>,
    pub(super) changes: Changeset,
    /// The memory of its keys, in bytes.
    pub(super) weight: usize,
    /// Its number among all requests.
    pub(super) order: u64,
}

/// A change that is in the table in memory.
#[derive(Debug)]
pub(super) struct Applied<T> {
    pub(super) ask: Ask<T>,
    /// The original changeset, to apply it again to another table.
    pub(super) changes: Changeset,
    /// The memory of its keys, in bytes.
    weight: usize,
    pub(super) effective: Effective,
    pub(super) order: u64,
    /// When it is to be published, by monotonic time.
    pub(super) due: Duration,
}

/// An answer with the number of its request among all requests.
pub(super) type Ordered<T> = (u64, EngineMessage<T>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unloaded,
    Loading,
    Loaded,
}

/// The result of writing a batch.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Readers see the new image and it survives a power cut.
    Published,
    /// Readers see the new image, but it may not survive a power cut.
    NotDurable(ChangeError),
    /// The change is stored, but readers do not see it yet.
    Hidden(ChangeError),
    /// Nothing changed.
    NotReplaced(ChangeError),
    /// Nothing changed, because another program had changed the file to these settings.
    Outside(ReplacedDatabase),
    /// Nothing changed, because another service or host holds the right to write.
    Busy,
}

#[derive(Debug)]
pub(super) struct Live<T> {
    pub(super) id: DatabaseId,
    pub(super) state: State,
    pub(super) table: KeyTable,
    /// The generation of the image that readers see.
    pub(super) generation: u64,
    /// The identity of the file when it was last read or written.
    pub(super) seen: FileIdentity,
    /// The open file, which keeps its inode number until this is dropped.
    pub(super) held_file: PinnedFile,
    /// The length of the last image in bytes.
    pub(super) image_bytes: usize,
    /// The file in memory for the next image.
    pub(super) preallocation: PreallocationSlot,
    /// Whether an image was stored since that was asked for.
    wants_preallocation: bool,
    /// The image that readers map, if it is in memory: it holds exactly the durable state.
    image: Option<PatchableImage>,
    pub(super) waiting: VecDeque<PendingChange<T>>,
    /// The changes that are applied to the table and not durable yet.
    pub(super) commit: Commit<Applied<T>>,
    /// Whether the image is to be written without a change.
    pub(super) must_write: bool,
    /// When to write again without being asked, by monotonic time.
    pub(super) retry_at: Option<Duration>,
    /// Before this time no write is tried, by monotonic time.
    pub(super) held_until: Option<Duration>,
    /// How often in a row another service or host was busy with the files, and since when, by monotonic time.
    busy: u32,
    busy_since: Option<Duration>,
    /// Whether another program changed the file and it was not checked yet: a change that is none in memory may change the file.
    pub(super) looking: bool,
    /// How often in a row another program wrote first.
    pub(super) clashes: u32,
    /// Stored changes that readers do not see yet, and their tags.
    untold: Vec<(Vec<Box<str>>, String)>,
    changes_asked: u64,
}

/// The result of applying another program's file.
#[derive(Debug)]
pub(super) struct Merged<T> {
    pub(super) answers: Vec<Ordered<T>>,
    /// The keys that changed, with what they were and what they are.
    pub(super) outside: Vec<(Box<str>, Option<Variant>, Option<Variant>)>,
    /// The earlier table, if nothing of it is left.
    pub(super) lost: Option<KeyTable>,
}

/// How long to wait before a failed write is tried again without being asked.
const RETRY: Duration = Duration::from_secs(1);

/// The largest image that is kept in memory.
const LARGEST_KEPT_BYTES: usize = 4 << 20;

impl<T> Live<T> {
    pub(super) fn new(id: DatabaseId) -> Live<T> {
        Live {
            id,
            state: State::Unloaded,
            table: KeyTable::default(),
            generation: 0,
            seen: FileIdentity::Unknown,
            held_file: PinnedFile::default(),
            image_bytes: 0,
            preallocation: PreallocationSlot::default(),
            wants_preallocation: false,
            image: None,
            waiting: VecDeque::new(),
            commit: Commit::new(),
            must_write: false,
            retry_at: None,
            held_until: None,
            busy: 0,
            busy_since: None,
            looking: false,
            clashes: 0,
            untold: Vec::new(),
            changes_asked: 0,
        }
    }

    /// Returns the tag of the next change: unique in the life of the service.
    pub(super) fn next_tag(&mut self, prefix: &str) -> String {
        let tag = format!("{prefix}:{}:{}", self.id.name(), self.changes_asked);
        self.changes_asked += 1;
        tag
    }

    /// Applies a change to the loaded table and lets it wait for the next batch.
    ///
    /// `delay` is how long an effective change is put off.
    pub(super) fn gather(
        &mut self,
        request: PendingChange<T>,
        now: Duration,
        delay: impl FnOnce(&Effective) -> Duration,
    ) {
        let PendingChange { ask, changes, weight, order } = request;
        let effective = apply(&mut self.table, &changes);
        let due = now + delay(&effective);
        self.commit.submit(Applied { ask, changes, weight, effective, order, due });
    }

    /// Returns the approximate memory of the database and all waiting requests, in bytes.
    pub(super) fn weight(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|request| request.weight).sum();
        let applied = self.commit.gathered().iter().chain(self.commit.in_flight());
        self.table.weight() + waiting + applied.map(|applied| applied.weight).sum::<usize>()
    }

    /// Applies a table that was just read, and keeps the notices for readers.
    pub(super) fn loaded(&mut self, table: KeyTable, unseen: &[Box<str>]) {
        self.state = State::Loaded;
        self.not_busy();
        self.table = table;
        self.image = None;
        if !unseen.is_empty() {
            self.must_write = true;
            self.untold.push((unseen.to_vec(), String::new()));
        }
    }

    /// Fails all requests that wait for the table.
    pub(super) fn not_loaded(&mut self, error: &ChangeError) -> Vec<Ordered<T>> {
        self.state = State::Unloaded;
        self.not_busy();
        let failed = |request: PendingChange<T>| fail(request.ask, request.order, error);
        std::mem::take(&mut self.waiting).into_iter().map(failed).collect()
    }

    /// Puts off the reading of a database that another service is busy with.
    pub(super) fn load_later(&mut self, now: Duration) {
        self.state = State::Unloaded;
        self.try_later(now);
    }

    /// Returns when a requested database should be read.
    pub(super) fn load_due(&self) -> Option<Duration> {
        let is_wanted = self.state == State::Unloaded && !self.waiting.is_empty();
        is_wanted.then(|| self.held_until.unwrap_or_default())
    }

    /// Returns whether another service was busy for longer than the limit.
    pub(super) fn patience(&self, now: Duration, limits: PatienceLimits) -> Patience {
        match self.busy_since.map(|since| now.saturating_sub(since)) {
            Some(busy) if busy >= limits.with_the_living => Patience::Over,
            Some(busy) if busy >= limits.with_all => Patience::WithTheLiving,
            _ => Patience::Left,
        }
    }

    fn try_later(&mut self, now: Duration) {
        self.busy += 1;
        self.busy_since.get_or_insert(now);
        self.held_until = Some(now + busy_for(self.busy));
    }

    fn not_busy(&mut self) {
        (self.busy, self.busy_since, self.held_until) = (0, None, None);
    }

    /// Returns whether a batch should be written now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    /// Returns when the next batch should be written.
    pub(super) fn next_due(&self) -> Option<Duration> {
        if self.state != State::Loaded || self.commit.is_in_flight() {
            return None;
        }
        let asked = self.commit.gathered().iter().map(|applied| applied.due).min();
        let asked = asked.filter(|_| self.wants_write());
        let due = [asked, self.retry_at].into_iter().flatten().min()?;
        Some(due.max(self.held_until.unwrap_or_default()))
    }

    /// Makes all delayed changes due now.
    pub(super) fn hurry(&mut self, now: Duration) {
        for applied in self.commit.gathered_mut() {
            applied.due = applied.due.min(now);
        }
    }

    /// Answers requests that only wait for earlier changes, if those are durable and nothing is to be written.
    pub(super) fn settle(&mut self) -> Vec<Ordered<T>> {
        if self.looking || self.wants_write() {
            return Vec::new();
        }
        self.commit
            .settle()
            .into_iter()
            .map(|applied| succeed(applied.ask, applied.order))
            .collect()
    }

    /// Returns whether there are changes for an image, or notices to send.
    pub(super) fn wants_write(&self) -> bool {
        self.must_write
            || !self.untold.is_empty()
            || self.commit.gathered().iter().any(|applied| !applied.effective.is_empty())
    }

    /// Begins to write the gathered changes as one batch.
    pub(super) fn take_off(&mut self) {
        self.commit.start();
        self.retry_at = None;
        self.held_until = None;
    }

    /// Creates the image of the durable state with the batch that is being written.
    ///
    /// Changing the last image costs a fraction of writing all of it, and gives the same entries.
    pub(super) fn make_image(&mut self, generation: u64) -> Result<PatchableImage, ChangeError> {
        let patched = self.image.take().and_then(|image| {
            let touched =
                self.commit.in_flight().iter().flat_map(|applied| &applied.effective.before);
            let changes =
                touched.map(|(key, _)| (&**key, self.table.get(key).map(Variant::as_bytes)));
            gvdb::patch(image, changes, self.table.paths_len(), generation)
        });
        patched.map_or_else(|| image_of(&self.table, generation).map(PatchableImage::from), Ok)
    }

    /// Keeps the image that was just stored.
    pub(super) fn keep_image(&mut self, mut image: PatchableImage) {
        image.shrink_to_fit();
        self.image = Some(image).filter(|image| image.len() <= LARGEST_KEPT_BYTES);
    }

    /// Returns the length for which a file in memory should be made now, once for each image that was stored.
    pub(super) fn take_preallocation(&mut self) -> Option<u64> {
        let is_small = self.held_file.is_in_memory() && self.image_bytes <= LARGEST_QUICK_BYTES;
        if !self.wants_preallocation || !is_small || !self.is_quiet() {
            return None;
        }
        self.wants_preallocation = false;
        self.preallocation.begin().then_some(self.image_bytes as u64)
    }

    /// Handles the result of the batch and returns the answers.
    pub(super) fn land(&mut self, outcome: Outcome, now: Duration) -> Vec<Ordered<T>> {
        if !matches!(outcome, Outcome::Busy) {
            self.not_busy();
        }
        if !matches!(outcome, Outcome::Outside(_)) {
            self.clashes = 0;
        }
        let mut answers = match outcome {
            Outcome::Published => {
                self.must_write = false;
                self.wants_preallocation = true;
                self.visible(None)
            }
            Outcome::NotDurable(error) => {
                self.must_write = true;
                self.visible(Some(&error))
            }
            Outcome::Hidden(error) => {
                self.must_write = true;
                self.retry_at = Some(now + RETRY);
                self.hidden(&error)
            }
            Outcome::NotReplaced(error) => {
                self.must_write = true;
                self.failed(&error, now)
            }
            Outcome::Outside(found) => self.merge(found, now).answers,
            Outcome::Busy => {
                self.try_later(now);
                self.commit.put_back();
                Vec::new()
            }
        };
        answers.extend(self.settle());
        answers
    }

    /// Answers the written changes, whose image readers see now.
    fn visible(&mut self, error: Option<&ChangeError>) -> Vec<Ordered<T>> {
        let mut answers = Vec::new();
        for (paths, tag) in std::mem::take(&mut self.untold) {
            answers.extend(notify(&self.id, &paths, tag).map(|answer| (0, answer)));
        }
        for Applied { ask, effective, order, .. } in self.commit.finish() {
            let tag = ask.tag();
            answers.push(match error {
                None => succeed(ask, order),
                Some(error) => fail(ask, order, error),
            });
            answers.extend(notify(&self.id, &effective.paths, tag).map(|answer| (order, answer)));
        }
        answers
    }

    /// Fails the written changes, which are stored but not visible; readers are notified with the next image.
    fn hidden(&mut self, error: &ChangeError) -> Vec<Ordered<T>> {
        let mut answers = Vec::new();
        for Applied { ask, effective, order, .. } in self.commit.finish() {
            if !effective.is_empty() {
                self.untold.push((effective.paths, ask.tag()));
            }
            answers.push(fail(ask, order, error));
        }
        answers
    }

    /// Fails the changes of the batch, which was not written.
    fn failed(&mut self, error: &ChangeError, now: Duration) -> Vec<Ordered<T>> {
        let lost = self.roll_back();
        if !self.untold.is_empty() {
            self.retry_at = Some(now + RETRY);
        }
        let gathered = self.commit.take_gathered();
        self.reapply(gathered);
        lost.into_iter().map(|applied| fail(applied.ask, applied.order, error)).collect()
    }

    /// Applies a file that another program wrote, and applies the pending changes again.
    pub(super) fn merge(&mut self, found: ReplacedDatabase, now: Duration) -> Merged<T> {
        let ReplacedDatabase { table: theirs, generation, .. } = found;
        // Generations continue from the newest, so that of two services' images the later one has the higher number.
        self.generation = self.generation.max(generation);
        let mut ours = self.roll_back();
        ours.append(&mut self.commit.take_gathered());
        let changes = difference(&self.table, &theirs);
        let ours_before = std::mem::replace(&mut self.table, theirs);
        self.image = None;
        let is_lost = self.table.is_empty();
        let outside = changes
            .iter()
            .map(|(path, new)| (path.into(), ours_before.get(path).cloned(), new.cloned()));
        let outside: Vec<_> = outside.collect();
        let paths: Vec<Box<str>> = changes.iter().map(|(path, _)| path.into()).collect();
        let mut answers = Vec::new();
        if matches!(self.id.kind(), DatabaseKind::User | DatabaseKind::Shm) {
            // Readers of the file see it already.
            answers.extend(notify(&self.id, &paths, String::new()).map(|answer| (0, answer)));
        } else if !paths.is_empty() {
            self.untold.push((paths, String::new()));
            self.must_write = true;
            self.retry_at = Some(now);
        }
        self.reapply(ours);
        answers.extend(self.settle());
        let lost = (is_lost && !ours_before.is_empty()).then_some(ours_before);
        Merged { answers, outside, lost }
    }

    /// Reverts everything that is not durable and returns the changes of the batch; gathered changes stay.
    fn roll_back(&mut self) -> Vec<Applied<T>> {
        for applied in self.commit.pending_mut().rev() {
            std::mem::take(&mut applied.effective).undo(&mut self.table);
        }
        self.commit.finish()
    }

    fn reapply(&mut self, changes: Vec<Applied<T>>) {
        for mut applied in changes {
            applied.effective = apply(&mut self.table, &applied.changes);
            self.commit.submit(applied);
        }
    }

    /// Returns whether no request waits for this database.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.commit.is_idle()
    }
}

impl<T> Ask<T> {
    /// Returns the tag for the `Notify`.
    fn tag(&self) -> String {
        match self {
            Ask::Change { tag, .. } => tag.clone(),
            Ask::Init { .. } => String::new(),
        }
    }
}

/// The delay before files are tried again that were busy this many times: 1 ms, growing to 32 ms.
fn busy_for(times: u32) -> Duration {
    Duration::from_millis(1 << times.saturating_sub(1).min(5))
}

fn succeed<T>(ask: Ask<T>, order: u64) -> Ordered<T> {
    match ask {
        Ask::Change { token, tag, .. } => (order, EngineMessage::Changed { token, tag }),
        Ask::Init { token } => (order, EngineMessage::Initialised { token }),
    }
}

fn fail<T>(ask: Ask<T>, order: u64, error: &ChangeError) -> Ordered<T> {
    let (Ask::Change { token, .. } | Ask::Init { token }) = ask;
    (order, EngineMessage::Failed { token, error: error.clone() })
}

fn notify<T>(id: &DatabaseId, paths: &[Box<str>], tag: String) -> Option<EngineMessage<T>> {
    let (prefix, changes) = notification(paths)?;
    Some(EngineMessage::Notify { id: id.clone(), prefix, changes, tag })
}
