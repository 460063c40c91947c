//! Chooses the next work of the disk thread: first what a caller waits for, then background work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gvdb::gvariant::Variant;
use gvdb::{self};

use super::access::{Patience, PatienceLimits, locked};
use super::answer::ChangeError;
use super::background::Aside;
use super::image::image_of;
use super::job::{Job, Probe, Work};
use super::live::{Applied, Live, Outcome, State};
use super::load::LoadRequest;
use super::wal;
use super::write::Commit;
use super::{Database, Engine, is_own};
use crate::names::{DatabaseId, DatabaseKind};

/// How often in a row another program may write first before its file is overwritten.
const CLASHES: u32 = 8;

/// What a database takes in memory, in bytes, from which on others do not wait for its image beside that of another one.
const LARGE: usize = 1 << 20;

/// Background work, with its database.
#[derive(Clone, Debug)]
pub(super) enum BackgroundWork {
    LostImage,
    Checkpoint(DatabaseId),
    Snapshot(DatabaseId),
}

impl<T> Engine<T> {
    /// Returns work for the disk: at most one job for the databases at a time and beside it one for the history, which
    /// [`Job::is_for_history`] tells apart. `None` until the last one is [`Engine::finished`].
    pub fn next_job(&mut self) -> Option<Job> {
        let work = self.database_work().or_else(|| self.history_work())?;
        Some(Job { disk: Arc::clone(&self.disk), work })
    }

    /// Returns work that takes a part of the next write out of the time until its answer: it makes a file for the next image
    /// of the user's database, if that is in memory. Ask when the answers of the last write are sent. It touches no file
    /// that has a name, so that it may run beside any other job, and nobody waits for it or for its result.
    pub fn next_preparation(&mut self) -> Option<Job> {
        if self.job_in_flight || self.shutting_down {
            return None;
        }
        let (_, database) = self.databases.iter_mut().find(|(id, _)| is_own(id))?;
        let len = database.live.take_preallocation()?;
        let (path, slot) = (database.files.image.clone(), database.live.preallocation.clone());
        Some(Job { disk: Arc::clone(&self.disk), work: Work::Preallocate { path, len, slot } })
    }

    fn database_work(&mut self) -> Option<Work> {
        if self.job_in_flight {
            return None;
        }
        let work = self
            .load_work()
            .or_else(|| self.commit_work())
            .or_else(|| self.probe_work())
            .or_else(|| self.aside_work())
            .or_else(|| self.last_work())?;
        self.job_in_flight = true;
        Some(work)
    }

    fn history_work(&mut self) -> Option<Work> {
        let (time, now) = (self.clock.now(), self.clock.monotonic());
        let writer = self.history.as_mut()?.take_writer(time, now)?;
        Some(Work::Aside(Box::new(Aside::History(Box::new(writer)))))
    }

    /// Returns the monotonic time at which [`Engine::tick`] is due, if anything waits for time to pass.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let history = self.history.as_ref().and_then(|history| history.due());
        if self.job_in_flight {
            return history;
        }
        let databases = self.databases.values().flat_map(|database| {
            let probe = database.probe.map(|(at, _)| at);
            let live = &database.live;
            [live.load_due(), live.next_due(), probe, database.snapshot_at, database.checkpoint_at]
        });
        databases.flatten().chain(history).min()
    }

    fn load_work(&mut self) -> Option<Work> {
        let (now, limits) = (self.clock.monotonic(), self.patience());
        let started_ns = self.started_ns;
        let mut loads = Vec::new();
        for (id, database) in &mut self.databases {
            if database.live.load_due().is_some_and(|due| due <= now) {
                database.live.state = State::Loading;
                loads.push(LoadRequest {
                    id: id.clone(),
                    files: database.files.clone(),
                    access: std::mem::take(&mut database.access),
                    patience: database.live.patience(now, limits),
                    started_ns,
                });
            }
        }
        let policy = self.options.snapshots;
        (!loads.is_empty()).then_some(Work::Load(loads, policy))
    }

    /// Returns how long another service or host may be busy with the files of a database before that is an error.
    fn patience(&self) -> PatienceLimits {
        if self.shutting_down { PatienceLimits::HURRIED } else { PatienceLimits::USUAL }
    }

    fn commit_work(&mut self) -> Option<Work> {
        let (now, limits) = (self.clock.monotonic(), self.patience());
        let mut commits = Vec::new();
        let mut failed = Vec::new();
        // Nobody waits for the images of more than one database that anybody can make large; whose is due for longest, is
        // the next.
        let due = self.databases.iter().filter_map(|(id, database)| {
            let due = database.live.next_due().filter(|due| *due <= now)?;
            Some((due, database.live.table.weight(), id))
        });
        let mut large: Vec<_> =
            due.filter(|(_, weight, id)| *weight > LARGE && !is_own(id)).collect();
        large.sort();
        let later: Vec<DatabaseId> = large.iter().skip(1).map(|(_, _, id)| (*id).clone()).collect();
        for (id, database) in &mut self.databases {
            if !database.live.is_due(now) || later.contains(id) {
                continue;
            }
            let patience = database.live.patience(now, limits);
            database.live.take_off();
            match commit_of(id, database, patience) {
                Ok(commit) => commits.push(commit),
                Err(error) => {
                    failed.extend(database.live.land(Outcome::NotReplaced(error), now));
                    database.access.leave();
                }
            }
        }
        self.answer(failed);
        (!commits.is_empty()).then_some(Work::Commit(commits))
    }

    fn probe_work(&mut self) -> Option<Work> {
        let now = self.clock.monotonic();
        let mut probes = Vec::new();
        for (id, database) in &mut self.databases {
            if let Some((_, settled)) = database.probe.take_if(|(at, _)| *at <= now) {
                let (files, seen) = (database.files.clone(), database.live.seen);
                probes.push(Probe { id: id.clone(), files, seen, settled });
            }
        }
        (!probes.is_empty()).then_some(Work::Probe(probes))
    }

    /// Returns the background work that is due.
    pub(super) fn next_aside(&self) -> Option<BackgroundWork> {
        if !self.lost_images.is_empty() {
            return Some(BackgroundWork::LostImage);
        }
        let now = self.clock.monotonic();
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        for (id, database) in &self.databases {
            if due(database.checkpoint_at)
                && database.wal.as_ref().is_some_and(|wal| !wal.is_empty())
            {
                return Some(BackgroundWork::Checkpoint(id.clone()));
            }
        }
        let snapshot = self.databases.iter().find(|(_, database)| due(database.snapshot_at));
        snapshot.map(|(id, _)| BackgroundWork::Snapshot(id.clone()))
    }

    fn aside_work(&mut self) -> Option<Work> {
        let now = self.clock.monotonic();
        for database in self.databases.values_mut() {
            let empty = database.wal.as_ref().is_none_or(wal::Wal::is_empty);
            database.checkpoint_at.take_if(|at| *at <= now && empty);
        }
        while let Some(next) = self.next_aside() {
            let aside = match next {
                BackgroundWork::LostImage => {
                    self.lost_images.pop().map(|(to, image)| Aside::LostImage { to, image })
                }
                BackgroundWork::Checkpoint(id) => self.checkpoint(&id),
                BackgroundWork::Snapshot(id) => self.snapshot(&id),
            };
            if aside.is_some() {
                return aside.map(|aside| Work::Aside(Box::new(aside)));
            }
        }
        None
    }

    /// Returns the remaining work when everything is stored and the service ends.
    fn last_work(&mut self) -> Option<Work> {
        let has_ended =
            self.shutting_down && self.databases.values().all(|database| database.live.is_quiet());
        if !has_ended || std::mem::replace(&mut self.locks_removed, true) {
            return None;
        }
        let used = self.databases.iter().filter(|(id, _)| id.kind() != DatabaseKind::Keyfile);
        let files = used.map(|(id, database)| locked(id, &database.files).to_owned());
        Some(Work::RemoveLocks(files.collect()))
    }

    fn checkpoint(&mut self, id: &DatabaseId) -> Option<Aside> {
        let database = self.databases.get_mut(id)?;
        database.checkpoint_at = None;
        // The table has changes that are not stored yet; their commit comes first, and requests this again.
        if !database.live.commit.gathered().is_empty() {
            return None;
        }
        let wal = database.wal.take()?;
        let generation = database.live.generation;
        match image_of(&database.live.table, generation) {
            Ok(image) => Some(Aside::Checkpoint {
                id: id.clone(),
                files: Box::new(database.files.clone()),
                wal,
                generation,
                image,
                access: std::mem::take(&mut database.access),
            }),
            Err(_) => {
                // It cannot fail, because the image in place has the same entries; the journal has everything.
                database.wal = Some(wal);
                None
            }
        }
    }

    fn snapshot(&mut self, id: &DatabaseId) -> Option<Aside> {
        let now_s = super::seconds(self.clock.now());
        let database = self.databases.get_mut(id)?;
        database.snapshot_at = None;
        let generation = database.live.generation;
        let snapshots =
            database.snapshots.take_if(|snapshots| snapshots.is_due(generation, now_s))?;
        let image = database.files.image.clone();
        Some(Aside::Snapshot { id: id.clone(), snapshots, image, generation, now_s })
    }
}

/// Creates the commit of a batch.
fn commit_of<T>(
    id: &DatabaseId,
    database: &mut Database<T>,
    patience: Patience,
) -> Result<Commit, ChangeError> {
    let generation = database.live.generation + 1;
    let image = database.live.make_image(generation)?;
    let live = &database.live;
    let edits = if id.kind() == DatabaseKind::Keyfile {
        edits(live.commit.in_flight())
    } else {
        Vec::new()
    };
    let wal = match (id.kind(), database.wal.take()) {
        (DatabaseKind::Journal, Some(wal)) => Some((wal, record(live))),
        _ => None,
    };
    Ok(Commit {
        id: id.clone(),
        files: database.files.clone(),
        image,
        generation,
        seen: live.seen,
        force: live.clashes >= CLASHES,
        edits,
        wal,
        access: std::mem::take(&mut database.access),
        patience,
        held: std::mem::take(&mut database.live.held_file),
        preallocation: database.live.preallocation.clone(),
    })
}

/// Returns the changes of a batch, in the order of the requests.
fn edits<T>(flying: &[Applied<T>]) -> Vec<(Box<str>, Option<Variant>)> {
    let effective = |applied: &Applied<T>| {
        let value = |path: &str| applied.changes.get(path).flatten().cloned();
        applied.effective.paths.iter().map(|path| (path.clone(), value(path))).collect::<Vec<_>>()
    };
    flying.iter().flat_map(effective).collect()
}

/// Returns the keys of a batch with their present values, as a journal record; empty if there are none.
fn record<T>(live: &Live<T>) -> Vec<u8> {
    let touched = live.commit.in_flight().iter().flat_map(|applied| &applied.effective.before);
    let keys: BTreeMap<&str, Option<&Variant>> =
        touched.map(|(key, _)| (&**key, live.table.get(key))).collect();
    let mut changes = crate::changeset::Changeset::default();
    for (key, value) in keys {
        changes.change(key, value.cloned());
    }
    changes.encode()
}
