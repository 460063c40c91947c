//! One database while it is in use: what readers see, what is on its way to them, and what comes after.
//!
//! The table in memory is always the durable state, plus the batch that is being made durable, plus what gathered since.
//! Each applied change knows how to take itself back, so the durable state is one undo away and nothing is ever copied.

use std::collections::VecDeque;
use std::time::Duration;

use store::commit::Commit;
use store::disk::Held;
use store::table::gvariant::Variant;
use store::table::gvdb;

use super::access::{Patience, PatienceLimits};
use super::answer::{Answer, ChangeError};
use super::look::Seen;
use super::names::{DatabaseId, Kind};
use super::outside::Found;
use super::plan::image_of;
use crate::settings::changeset::Changeset;
use crate::settings::database::Table;
use crate::settings::effective::{Effective, apply, notification};
use crate::settings::merge::difference;

/// What a caller asked for.
#[derive(Debug)]
pub(super) enum Ask<T> {
    /// A `Change` call.
    Change { token: T, tag: String, sender: Box<str> },
    /// An `Init` call.
    Init { token: T },
}

/// A change that waits for its database to be loaded.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) ask: Ask<T>,
    pub(super) changes: Changeset,
    /// Its place among all requests.
    pub(super) order: u64,
}

/// A change that is in the table in memory.
#[derive(Debug)]
pub(super) struct Applied<T> {
    pub(super) ask: Ask<T>,
    /// As it was asked for, to apply it again to another table.
    pub(super) changes: Changeset,
    pub(super) effective: Effective,
    pub(super) order: u64,
    /// When it is to be published, by monotonic time.
    pub(super) due: Duration,
}

/// An answer with the place of its request among all requests.
pub(super) type Ordered<T> = (u64, Answer<T>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unloaded,
    Loading,
    Loaded,
}

/// What came of writing a batch.
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
    /// Nothing changed, because another program had changed the file to this.
    Outside(Found),
    /// Nothing changed, because another service or host has the right to write.
    Busy,
}

#[derive(Debug)]
pub(super) struct Live<T> {
    pub(super) id: DatabaseId,
    pub(super) state: State,
    pub(super) table: Table,
    /// The generation of the image that readers see.
    pub(super) generation: u64,
    /// The file as we last read or wrote it.
    pub(super) seen: Seen,
    /// That file, which keeps its number until this is dropped.
    pub(super) held_file: Held,
    /// The length of the last image in bytes.
    pub(super) image_bytes: usize,
    /// The image that readers see, if it is at hand: it holds the durable state, nothing else.
    image: Option<Vec<u8>>,
    pub(super) waiting: VecDeque<Waiting<T>>,
    /// The changes that are applied to the table and not durable yet.
    pub(super) commit: Commit<Applied<T>>,
    /// The image is to be written even if no change asks for it.
    pub(super) must_write: bool,
    /// When to write again without being asked, by monotonic time.
    pub(super) retry_at: Option<Duration>,
    /// Before this time no write is tried, by monotonic time.
    pub(super) held_until: Option<Duration>,
    /// How often in a row another service or host was busy with the files, and since when, by monotonic time.
    busy: u32,
    busy_since: Option<Duration>,
    /// Another program was at the file, and we have not looked yet: what changes nothing in memory may change the file.
    pub(super) looking: bool,
    /// How often in a row another program was faster.
    pub(super) clashes: u32,
    /// Stored changes that readers do not see yet, and their tags.
    untold: Vec<(Vec<Box<str>>, String)>,
    changes_asked: u64,
}

/// What taking over another program's file did.
#[derive(Debug)]
pub(super) struct Merged<T> {
    pub(super) answers: Vec<Ordered<T>>,
    /// The keys that changed, with what they were and what they are.
    pub(super) outside: Vec<(Box<str>, Option<Variant>, Option<Variant>)>,
    /// What there was before, if nothing is left of it.
    pub(super) lost: Option<Table>,
}

/// How long to wait before a failed write is tried again without being asked.
const RETRY: Duration = Duration::from_secs(1);

/// The largest image that is kept at hand.
const LARGEST_KEPT_BYTES: usize = 4 << 20;

impl<T> Live<T> {
    pub(super) fn new(id: DatabaseId) -> Live<T> {
        Live {
            id,
            state: State::Unloaded,
            table: Table::default(),
            generation: 0,
            seen: Seen::Unknown,
            held_file: Held::default(),
            image_bytes: 0,
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
    /// `delay` says how long an effective change is to be put off.
    pub(super) fn gather(
        &mut self,
        request: Waiting<T>,
        now: Duration,
        delay: impl FnOnce(&Effective) -> Duration,
    ) {
        let Waiting { ask, changes, order } = request;
        let effective = apply(&mut self.table, &changes);
        let due = now + delay(&effective);
        self.commit.submit(Applied { ask, changes, effective, order, due });
    }

    /// Takes over what was just read, and remembers what readers are to be told of it.
    pub(super) fn loaded(&mut self, table: Table, unseen: &[Box<str>]) {
        self.state = State::Loaded;
        self.not_busy();
        self.table = table;
        self.image = None;
        if !unseen.is_empty() {
            self.must_write = true;
            self.untold.push((unseen.to_vec(), String::new()));
        }
    }

    /// Answers with an error whatever waits for the table.
    pub(super) fn not_loaded(&mut self, error: &ChangeError) -> Vec<Ordered<T>> {
        self.state = State::Unloaded;
        self.not_busy();
        let failed = |request: Waiting<T>| fail(request.ask, request.order, error);
        std::mem::take(&mut self.waiting).into_iter().map(failed).collect()
    }

    /// Puts off the reading of a database that another service is busy with.
    pub(super) fn load_later(&mut self, now: Duration) {
        self.state = State::Unloaded;
        self.try_later(now);
    }

    /// Returns when a database that somebody asked for should be read.
    pub(super) fn load_due(&self) -> Option<Duration> {
        let is_wanted = self.state == State::Unloaded && !self.waiting.is_empty();
        is_wanted.then(|| self.held_until.unwrap_or_default())
    }

    /// Says whether somebody else was busy for longer than anybody is to wait.
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

    /// Says whether a batch should be written now.
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

    /// Makes everything that was put off due now.
    pub(super) fn hurry(&mut self, now: Duration) {
        for applied in self.commit.gathered_mut() {
            applied.due = applied.due.min(now);
        }
    }

    /// Answers what waits only for the changes before it, if those are through and nothing is to be written.
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

    /// Says whether there is anything that an image would have to hold, or somebody would have to be told.
    pub(super) fn wants_write(&self) -> bool {
        self.must_write
            || !self.untold.is_empty()
            || self.commit.gathered().iter().any(|applied| !applied.effective.is_empty())
    }

    /// Lets the gathered changes fly.
    pub(super) fn take_off(&mut self) {
        self.commit.start();
        self.retry_at = None;
        self.held_until = None;
    }

    /// Makes the image of the durable state and what is flying.
    ///
    /// Changing the last image costs a fraction of writing all of it, and gives the same bytes.
    pub(super) fn make_image(&mut self, generation: u64) -> Result<Vec<u8>, ChangeError> {
        let patched = self.image.take().and_then(|image| {
            let touched =
                self.commit.in_flight().iter().flat_map(|applied| &applied.effective.before);
            let mut changes: Vec<(&str, &[u8])> = Vec::new();
            for (key, _) in touched {
                // Taking a key away gives every other one another place.
                changes.push((key, self.table.get(key)?.as_bytes()));
            }
            gvdb::patch(image, changes, generation)
        });
        patched.map_or_else(|| image_of(&self.table, generation), Ok)
    }

    /// Keeps the image of what has just been stored.
    pub(super) fn keep_image(&mut self, mut image: Vec<u8>) {
        image.shrink_to_fit();
        self.image = Some(image).filter(|image| image.len() <= LARGEST_KEPT_BYTES);
    }

    /// Takes the outcome of the flight and returns the answers.
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

    /// Answers the flown changes, whose image readers see now.
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

    /// Fails the flown changes, which are stored but not seen; readers are told with the next image.
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

    /// Fails the flown changes, which did not happen.
    fn failed(&mut self, error: &ChangeError, now: Duration) -> Vec<Ordered<T>> {
        let lost = self.roll_back();
        if !self.untold.is_empty() {
            self.retry_at = Some(now + RETRY);
        }
        let gathered = self.commit.take_gathered();
        self.reapply(gathered);
        lost.into_iter().map(|applied| fail(applied.ask, applied.order, error)).collect()
    }

    /// Takes over a file that another program wrote; what is on its way is applied to it again.
    pub(super) fn merge(&mut self, found: Found, now: Duration) -> Merged<T> {
        let Found { table: theirs, generation, .. } = found;
        // Ours go on from the newest, so that of two services' images the later one has the higher number.
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
        if matches!(self.id.kind(), Kind::User | Kind::Shm) {
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

    /// Takes back everything that is not durable and returns what was flying; what gathered stays.
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

    /// Says whether nothing waits for this database.
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

/// How long to leave files alone that were found busy this many times: 1 ms, growing to 32 ms.
fn busy_for(times: u32) -> Duration {
    Duration::from_millis(1 << times.saturating_sub(1).min(5))
}

fn succeed<T>(ask: Ask<T>, order: u64) -> Ordered<T> {
    match ask {
        Ask::Change { token, tag, .. } => (order, Answer::Changed { token, tag }),
        Ask::Init { token } => (order, Answer::Initialised { token }),
    }
}

fn fail<T>(ask: Ask<T>, order: u64, error: &ChangeError) -> Ordered<T> {
    let (Ask::Change { token, .. } | Ask::Init { token }) = ask;
    (order, Answer::Failed { token, error: error.clone() })
}

fn notify<T>(id: &DatabaseId, paths: &[Box<str>], tag: String) -> Option<Answer<T>> {
    let (prefix, changes) = notification(paths)?;
    Some(Answer::Notify { id: id.clone(), prefix, changes, tag })
}
