//! The consequences of a finished job.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::answer::{ChangeError, EngineNotice};
use super::background::AsideDone;
use super::external_change::{Outside, ReplacedDatabase, Settled};
use super::image::image_of;
use super::job::{EngineOutcome, JobDone};
use super::live::{Applied, Ask, Outcome};
use super::load::{LoadDone, Loaded};
use super::write::Committed;
use super::{Engine, Ordered};
use crate::history::{HistoryEntry, KeyChange, OUTSIDE, OpenedImage, value_of};
use crate::names::{DatabaseId, DatabaseKind};

/// How long a removed or incomplete file is left alone before it is taken as intended.
const SETTLE: Duration = Duration::from_millis(300);
/// What one change may take in the history before it is packed, in bytes; the rest of its keys is only counted.
const LARGEST_ENTRY: usize = 8 << 20;
/// How long after a commit no snapshot is made, because it could delay the next commit.
const SNAPSHOT_IDLE: Duration = Duration::from_millis(500);

impl<T> Engine<T> {
    /// Handles the result of a job.
    pub fn finished(&mut self, done: JobDone) {
        if !done.is_for_history() && !matches!(done.done, EngineOutcome::Preallocated) {
            self.job_in_flight = false;
        }
        self.reports.extend(done.reports);
        match done.done {
            EngineOutcome::Load(databases) => {
                for LoadDone { id, access, loaded } in databases {
                    self.database(&id).access = access;
                    match loaded.transpose() {
                        Some(loaded) => self.loaded(&id, loaded),
                        None => {
                            let now = self.clock.monotonic();
                            self.database(&id).live.load_later(now);
                        }
                    }
                }
            }
            EngineOutcome::Commit(commits) => {
                let mut answers = Vec::new();
                for committed in commits {
                    answers.extend(self.committed(committed));
                }
                self.answer(answers);
            }
            EngineOutcome::Probe(probes) => {
                for (id, found) in probes {
                    self.probed(&id, found);
                }
            }
            EngineOutcome::Aside(aside) => self.aside_done(*aside),
            EngineOutcome::LocksRemoved | EngineOutcome::Preallocated => {}
        }
    }

    fn aside_done(&mut self, done: AsideDone) {
        match done {
            AsideDone::LostImage => {}
            AsideDone::History(writer, written) => {
                let now = self.clock.monotonic();
                let history = self.history.as_mut();
                let lost = history.and_then(|all| all.return_writer(*writer, written, now));
                self.reports.extend(lost.map(|text| EngineNotice::Aside { text }));
            }
            AsideDone::Snapshot { id, snapshots } => {
                self.database(&id).snapshots = Some(snapshots);
            }
            AsideDone::Checkpoint { id, wal, access } => {
                let database = self.database(&id);
                (database.wal, database.access) = (Some(wal), access);
            }
        }
    }

    fn loaded(&mut self, id: &DatabaseId, loaded: Result<Loaded, ChangeError>) {
        let (now, time) = (self.clock.monotonic(), self.clock.now());
        self.watched_version += 1;
        let database = self.database(id);
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let answers = database.live.not_loaded(&error);
                self.reports
                    .push_back(EngineNotice::CommitFailed { id: id.clone(), text: error.text });
                self.answer(answers);
                return;
            }
        };
        if let (Some(bytes), Some(history)) = (loaded.image, &mut self.history) {
            let generation = loaded.image_generation;
            history.opened(OpenedImage { id: id.clone(), generation, bytes, time });
        }
        let Some(database) = self.databases.get_mut(id) else { return };
        database.snapshots = loaded.snapshots;
        database.wal = loaded.wal;
        let live = &mut database.live;
        live.generation = loaded.generation;
        live.seen = loaded.seen;
        live.held_file = loaded.held;
        live.image_bytes = loaded.image_bytes;
        live.must_write = loaded.must_write;
        live.retry_at = loaded.write_now.then_some(now);
        live.loaded(loaded.table, &loaded.unseen);
        for request in std::mem::take(&mut live.waiting) {
            self.gather(id, request);
        }
    }

    fn committed(&mut self, done: Committed) -> Vec<Ordered<T>> {
        let now = self.clock.monotonic();
        let time = self.clock.now();
        let idle = self.options.checkpoint_idle;
        let worth = self.options.checkpoint_bytes;
        let shutting_down = self.shutting_down;
        let Committed { id, outcome, seen, generation, image, wal, access, held, .. } = done;
        let error = match &outcome {
            Outcome::NotDurable(error) | Outcome::Hidden(error) | Outcome::NotReplaced(error) => {
                Some(error.text.clone())
            }
            Outcome::Published | Outcome::Outside(_) | Outcome::Busy => None,
        };
        let stored =
            matches!(outcome, Outcome::Published | Outcome::NotDurable(_) | Outcome::Hidden(_));
        let Some(database) = self.databases.get_mut(&id) else { return Vec::new() };
        database.live.seen = seen;
        database.live.held_file = held;
        database.access = access;
        if let Some(wal) = wal {
            if shutting_down {
                database.checkpoint_at = Some(now);
            } else {
                database.checkpoint_at = (wal.bytes() >= worth).then_some(now + idle);
            }
            database.wal = Some(wal);
        }
        if stored {
            database.live.generation = generation;
            database.live.image_bytes = image.len();
            database.live.keep_image(image);
            if let Some(snapshots) = &database.snapshots {
                let due = snapshots.is_due(generation, super::seconds(time)) && !shutting_down;
                let later = if due { SNAPSHOT_IDLE } else { self.options.snapshots.shared_every };
                database.snapshot_at.get_or_insert(now + later);
            }
            if let Some(history) = &mut self.history {
                let stored = (&id, generation, time);
                for entry in entries(stored, database.live.commit.in_flight()) {
                    history.push(entry, now);
                }
            }
        }
        if let Some(text) = error {
            self.reports.push_back(EngineNotice::CommitFailed { id: id.clone(), text });
        }
        let Some(database) = self.databases.get_mut(&id) else { return Vec::new() };
        match outcome {
            Outcome::Outside(found) => {
                database.live.clashes += 1;
                let answers = self.merge(&id, found);
                self.leave_unless_due(&id);
                answers
            }
            outcome => database.live.land(outcome, now),
        }
    }

    /// Applies the changes of another program to a database.
    fn merge(&mut self, id: &DatabaseId, found: ReplacedDatabase) -> Vec<Ordered<T>> {
        let now = self.clock.monotonic();
        let made_s = super::seconds(self.clock.now());
        let Some(database) = self.databases.get_mut(id) else { return Vec::new() };
        // Other databases are written by services of this user only, which record their changes themselves.
        let is_recorded = matches!(id.kind(), DatabaseKind::User | DatabaseKind::Keyfile);
        let found_generation = found.generation;
        let merged = database.live.merge(found, now);
        if is_recorded
            && !merged.outside.is_empty()
            && let Some(history) = &mut self.history
        {
            let keys = merged.outside.iter().map(|(path, old, new)| KeyChange {
                old: value_of(old.as_ref()),
                new: value_of(new.as_ref()),
                path: path.to_string(),
            });
            let entry = HistoryEntry {
                id: 0,
                time: self.clock.now(),
                database: id.clone(),
                sender: OUTSIDE.to_owned(),
                process: None,
                tag: String::new(),
                generation: found_generation,
                keys: keys.collect(),
                left_out: 0,
            };
            history.push(entry, now);
        }
        let generation = database.live.generation;
        if let Some(Ok(image)) = merged.lost.map(|table| image_of(&table, generation)) {
            // It is named like a snapshot, so that it is found and removed like one.
            let name = format!("{}.{generation}.{made_s}", id.name());
            self.lost_images.push((database.files.snapshots.join(name), image));
        }
        if !merged.outside.is_empty() {
            self.reports
                .push_back(EngineNotice::Merged { id: id.clone(), changes: merged.outside.len() });
        }
        merged.answers
    }

    /// Releases the right to replace the files of a database, unless a merged version is about to be written.
    fn leave_unless_due(&mut self, id: &DatabaseId) {
        let now = self.clock.monotonic();
        if let Some(database) = self.databases.get_mut(id)
            && !database.live.is_due(now)
        {
            database.access.leave();
        }
    }

    fn probed(&mut self, id: &DatabaseId, found: Result<Outside, ChangeError>) {
        let now = self.clock.monotonic();
        let Some(database) = self.databases.get_mut(id) else { return };
        // An unsettled file is checked again: until then a change that is none in memory may still change the file.
        database.live.looking = matches!(found, Ok(Outside::Unsettled));
        match found {
            Ok(Outside::Same) => {}
            Ok(Outside::Unsettled) => database.probe = Some((now + SETTLE, Settled::Now)),
            Ok(Outside::Damaged) => {
                database.live.must_write = true;
                database.live.retry_at = Some(now);
            }
            Ok(Outside::Changed(mut found)) => {
                database.live.seen = found.seen;
                database.live.held_file = std::mem::take(&mut found.held);
                let answers = self.merge(id, found);
                self.answer(answers);
            }
            Err(error) => {
                self.reports
                    .push_back(EngineNotice::CommitFailed { id: id.clone(), text: error.text });
            }
        }
        let settled = self.databases.get_mut(id).map(|database| database.live.settle());
        self.answer(settled.unwrap_or_default());
    }
}

/// Makes history entries of a batch that was stored: in which database, with which generation of its image, when.
fn entries<T>(
    (id, generation, time): (&DatabaseId, u64, SystemTime),
    flying: &[Applied<T>],
) -> Vec<HistoryEntry> {
    let entry = |applied: &Applied<T>| {
        let Ask::Change { tag, sender, .. } = &applied.ask else { return None };
        let mut keys: BTreeMap<&str, KeyChange> = BTreeMap::new();
        let (mut room, mut left_out) = (LARGEST_ENTRY, 0);
        for (path, old) in &applied.effective.before {
            // A key below a directory that is reset is touched twice if it is set again: the first has the old value.
            if keys.contains_key(&**path) {
                continue;
            }
            let new = value_of(applied.changes.get(path).flatten());
            let change = KeyChange { path: path.to_string(), old: value_of(old.as_ref()), new };
            let Some(rest) = usize::checked_sub(room, change.weight()) else {
                left_out += 1;
                continue;
            };
            room = rest;
            keys.insert(path, change);
        }
        (!keys.is_empty() || left_out > 0).then(|| HistoryEntry {
            id: 0,
            time,
            database: id.clone(),
            sender: sender.to_string(),
            process: None,
            tag: tag.clone(),
            generation,
            keys: keys.into_values().collect(),
            left_out,
        })
    };
    flying.iter().filter_map(entry).collect()
}
