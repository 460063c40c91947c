//! Work for the disk thread: everything that blocks.

use std::path::PathBuf;
use std::sync::Arc;

use store::disk::{Disk, PinnedFile};
use store::publish::PreallocationSlot;
use store::snapshots::SnapshotPolicy;
use store::turns::remove_locks;

use super::answer::{ChangeError, EngineNotice};
use super::background::{Aside, AsideDone};
use super::external_change::{Outside, Settled, outside};
use super::file_identity::FileIdentity;
use super::files::{Files, name_of};
use super::live::LARGEST_QUICK_BYTES;
use super::load::{LoadDone, LoadRequest};
use super::write::{Commit, Committed};
use crate::names::{DatabaseId, DatabaseKind};

/// One piece of blocking work.
#[derive(Debug)]
pub struct Job {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) work: Work,
}

/// The work of a job.
#[derive(Debug)]
pub(super) enum Work {
    /// Read requested databases.
    Load(Vec<LoadRequest>, SnapshotPolicy),
    /// Write a batch, one image for each database in it.
    Commit(Vec<Commit>),
    /// Check files for changes of other programs.
    Probe(Vec<Probe>),
    /// Make a file in memory for the next image of a database, which is at this path and has about this length.
    Preallocate { path: PathBuf, len: u64, slot: PreallocationSlot },
    /// Background work.
    Aside(Box<Aside>),
    /// At the end: remove the lock files beside these files, unless another service uses them.
    RemoveLocks(Vec<PathBuf>),
}

/// A check of one file.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) id: DatabaseId,
    pub(super) files: Files,
    pub(super) seen: FileIdentity,
    pub(super) settled: Settled,
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct JobDone {
    pub(super) done: EngineOutcome,
    pub(super) reports: Vec<EngineNotice>,
}

impl JobDone {
    /// Says whether the history was written, beside the databases.
    #[must_use]
    pub fn is_for_history(&self) -> bool {
        matches!(&self.done, EngineOutcome::Aside(done) if matches!(**done, AsideDone::History(..)))
    }

    /// Returns the files that the job replaced, which are freed after the result was passed on.
    pub fn take_replaced(&mut self) -> Vec<PinnedFile> {
        match &mut self.done {
            EngineOutcome::Commit(commits) => {
                commits.iter_mut().map(|commit| std::mem::take(&mut commit.replaced)).collect()
            }
            EngineOutcome::Load(_)
            | EngineOutcome::Probe(_)
            | EngineOutcome::Preallocated
            | EngineOutcome::Aside(_)
            | EngineOutcome::LocksRemoved => Vec::new(),
        }
    }
}

/// The result of the [`Work`].
#[derive(Debug)]
pub(super) enum EngineOutcome {
    Load(Vec<LoadDone>),
    Commit(Vec<Committed>),
    Probe(Vec<(DatabaseId, Result<Outside, ChangeError>)>),
    Preallocated,
    Aside(Box<AsideDone>),
    LocksRemoved,
}

impl Job {
    /// Returns whether the job replaces files that [`Engine::watched`](super::Engine::watched) names.
    #[must_use]
    pub fn replaces_files(&self) -> bool {
        matches!(self.work, Work::Commit(_))
    }

    /// Says whether the job takes less time than it takes to wake another thread: it replaces one small image in memory,
    /// which waits for no device and for no lock.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        let Work::Commit(commits) = &self.work else { return false };
        let [commit] = &**commits else { return false };
        let is_image = matches!(commit.id.kind(), DatabaseKind::User | DatabaseKind::Shm);
        is_image && commit.held.is_in_memory() && commit.image.len() <= LARGEST_QUICK_BYTES
    }

    /// Says whether the job is of [`Engine::next_preparation`](super::Engine::next_preparation): its result may be dropped.
    #[must_use]
    pub fn is_preparation(&self) -> bool {
        matches!(self.work, Work::Preallocate { .. })
    }

    /// Says whether the job writes the history, which touches no database: nobody waits for it, it may take long, and it may
    /// run beside a job for the databases.
    #[must_use]
    pub fn is_for_history(&self) -> bool {
        matches!(&self.work, Work::Aside(aside) if matches!(**aside, Aside::History(_)))
    }

    /// Refuses to read the databases of the job, with a reason; any other job is executed.
    #[must_use]
    pub fn refuse(self, error: &ChangeError) -> JobDone {
        match self.work {
            Work::Load(requests, _) => {
                let refused = requests.into_iter().map(|request| request.refuse(error.clone()));
                JobDone { done: EngineOutcome::Load(refused.collect()), reports: Vec::new() }
            }
            work => Job { disk: self.disk, work }.run(),
        }
    }

    /// Executes the work. It blocks on the disk.
    #[must_use]
    pub fn run(self) -> JobDone {
        let disk = &*self.disk;
        let mut reports = Vec::new();
        let done = match self.work {
            Work::Load(requests, policy) => EngineOutcome::Load(
                requests
                    .into_iter()
                    .map(|request| request.run(disk, policy, &mut reports))
                    .collect(),
            ),
            Work::Commit(commits) => EngineOutcome::Commit(
                commits.into_iter().map(|commit| commit.run(disk, &mut reports)).collect(),
            ),
            Work::Probe(probes) => EngineOutcome::Probe(
                probes
                    .into_iter()
                    .map(|Probe { id, files, seen, settled }| {
                        let found = outside(disk, &id, &files, seen, settled, &mut reports);
                        (id, found)
                    })
                    .collect(),
            ),
            Work::Preallocate { path, len, slot } => {
                slot.fill(disk, &path, len);
                EngineOutcome::Preallocated
            }
            Work::Aside(aside) => EngineOutcome::Aside(Box::new(aside.run(disk, &mut reports))),
            Work::RemoveLocks(files) => {
                files.iter().for_each(|file| remove_locks(disk, file));
                EngineOutcome::LocksRemoved
            }
        };
        JobDone { done, reports }
    }
}

/// The work of finding the names of the databases of one kind.
#[derive(Debug)]
pub struct DatabaseSearch {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) kind: DatabaseKind,
    /// The names that were used in this run.
    pub(super) used: Vec<String>,
}

impl DatabaseSearch {
    /// Returns the names, sorted. Blocks on the disk.
    #[must_use]
    pub fn run(self) -> Vec<String> {
        if self.kind == DatabaseKind::Shm {
            return Vec::new();
        }
        // A directory that cannot be read yields no names.
        let files = self.disk.list(&self.dir).unwrap_or_default();
        let mut names = self.used;
        names.extend(
            files.iter().filter_map(|file| name_of(self.kind, file.to_str()?).map(str::to_owned)),
        );
        names.sort();
        names.dedup();
        names
    }
}
