//! Work for the disk thread: everything that blocks.

use std::path::PathBuf;
use std::sync::Arc;

use store::disk::{Disk, Held};
use store::snapshots::Policy;
use store::turns::remove_locks;

use super::answer::{ChangeError, Report};
use super::aside::{Aside, AsideDone};
use super::files::{Files, name_of};
use super::load::{LoadDone, LoadRequest};
use super::look::Seen;
use super::names::{DatabaseId, Kind};
use super::outside::{Outside, Settled, outside};
use super::write::{Commit, Committed};

/// One piece of blocking work.
#[derive(Debug)]
pub struct Job {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) work: Work,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    /// Read databases that were asked for.
    Load(Vec<LoadRequest>, Policy),
    /// Write a batch, one image for each database in it.
    Commit(Vec<Commit>),
    /// Look whether another program changed files.
    Probe(Vec<Probe>),
    /// Something that nobody waits for.
    Aside(Box<Aside>),
    /// The end: remove the locks beside these files, unless another service uses them.
    RemoveLocks(Vec<PathBuf>),
}

/// A look at one file.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) id: DatabaseId,
    pub(super) files: Files,
    pub(super) seen: Seen,
    pub(super) settled: Settled,
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct JobDone {
    pub(super) done: Done,
    pub(super) reports: Vec<Report>,
}

impl JobDone {
    /// Takes out what the job replaced, to be freed once the result has been handed over.
    pub fn take_replaced(&mut self) -> Vec<Held> {
        match &mut self.done {
            Done::Commit(commits) => {
                commits.iter_mut().map(|commit| std::mem::take(&mut commit.replaced)).collect()
            }
            Done::Load(_) | Done::Probe(_) | Done::Aside(_) | Done::LocksRemoved => Vec::new(),
        }
    }
}

/// What came of the [`Work`].
#[derive(Debug)]
pub(super) enum Done {
    Load(Vec<LoadDone>),
    Commit(Vec<Committed>),
    Probe(Vec<(DatabaseId, Result<Outside, ChangeError>)>),
    Aside(Box<AsideDone>),
    LocksRemoved,
}

impl Job {
    /// Does not read the databases that the job is to read, and says why; any other job is done.
    #[must_use]
    pub fn refuse(self, error: &ChangeError) -> JobDone {
        match self.work {
            Work::Load(requests, _) => {
                let refused = requests.into_iter().map(|request| request.refuse(error.clone()));
                JobDone { done: Done::Load(refused.collect()), reports: Vec::new() }
            }
            work => Job { disk: self.disk, work }.run(),
        }
    }

    /// Does the work. Blocks on the disk.
    #[must_use]
    pub fn run(self) -> JobDone {
        let disk = &*self.disk;
        let mut reports = Vec::new();
        let done = match self.work {
            Work::Load(requests, policy) => Done::Load(
                requests
                    .into_iter()
                    .map(|request| request.run(disk, policy, &mut reports))
                    .collect(),
            ),
            Work::Commit(commits) => Done::Commit(
                commits.into_iter().map(|commit| commit.run(disk, &mut reports)).collect(),
            ),
            Work::Probe(probes) => Done::Probe(
                probes
                    .into_iter()
                    .map(|Probe { id, files, seen, settled }| {
                        let found = outside(disk, &id, &files, seen, settled, &mut reports);
                        (id, found)
                    })
                    .collect(),
            ),
            Work::Aside(aside) => Done::Aside(Box::new(aside.run(disk, &mut reports))),
            Work::RemoveLocks(files) => {
                files.iter().for_each(|file| remove_locks(disk, file));
                Done::LocksRemoved
            }
        };
        JobDone { done, reports }
    }
}

/// The work of finding the names of the databases of one kind.
#[derive(Debug)]
pub struct Listing {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) kind: Kind,
    /// The names that were used in this run.
    pub(super) used: Vec<String>,
}

impl Listing {
    /// Returns the names, sorted. Blocks on the disk.
    #[must_use]
    pub fn run(self) -> Vec<String> {
        if self.kind == Kind::Shm {
            return Vec::new();
        }
        // A directory that cannot be read has no names that we could tell.
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
