//! The last good generations of a published file.
//!
//! A snapshot is a copy of the whole file in a directory beside it, `NAME.GENERATION.SECONDS` (both in decimal). On a
//! file system that shares blocks it costs a few metadata blocks and one is made every few minutes; elsewhere it is a
//! full copy and one is made a day. What a snapshot holds is judged by its reader, newest first.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::Disk;
use crate::publish::{Contents, Promise, PublishError, replace};

/// How many snapshots are kept and how often one is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// How many of the newest are kept.
    pub recent: usize,
    /// The least time between two snapshots that share blocks.
    pub shared_every: Duration,
    /// The least time between two that are full copies, and the least age of the one that is kept beyond the
    /// newest.
    pub copied_every: Duration,
}

impl Default for SnapshotPolicy {
    /// Three and one of a day before; every ten minutes where blocks are shared, else daily.
    fn default() -> SnapshotPolicy {
        let day = Duration::from_secs(24 * 60 * 60);
        SnapshotPolicy { recent: 3, shared_every: Duration::from_secs(10 * 60), copied_every: day }
    }
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Where it is.
    pub path: PathBuf,
    /// The generation of the file that it holds.
    pub generation: u64,
    /// When it was made, in seconds since 1970.
    pub made_s: u64,
}

/// The snapshots of one file.
#[derive(Debug)]
pub struct Snapshots {
    dir: PathBuf,
    name: OsString,
    policy: SnapshotPolicy,
    /// Oldest first.
    kept: Vec<Snapshot>,
    /// Whether the file system shares blocks, once that was tried.
    shares: Option<bool>,
}

impl Snapshots {
    /// Looks which snapshots of the file called `name` there are in `dir`, which need not exist.
    ///
    /// # Errors
    ///
    /// As `readdir(3)`; nothing is changed.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        name: &str,
        policy: SnapshotPolicy,
    ) -> io::Result<Snapshots> {
        let names = match disk.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut kept: Vec<Snapshot> =
            names.iter().filter_map(|found| parse(dir, name, found.to_str()?)).collect();
        kept.sort_by_key(|snapshot| (snapshot.generation, snapshot.made_s));
        Ok(Snapshots { dir: dir.to_owned(), name: name.into(), policy, kept, shares: None })
    }

    /// Returns the snapshots, the newest generation first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Snapshot> {
        self.kept.iter().rev()
    }

    /// Tells whether it is time for a snapshot of `generation` at `now_s` (seconds since 1970).
    #[must_use]
    pub fn is_due(&self, generation: u64, now_s: u64) -> bool {
        let every = match self.shares {
            Some(false) => self.policy.copied_every,
            Some(true) | None => self.policy.shared_every,
        };
        self.kept.last().is_none_or(|newest| {
            // A clock that was set back makes a snapshot due rather than never again.
            generation > newest.generation && !younger(newest, every, now_s)
        })
    }

    /// Makes a snapshot of `file`, which holds `generation`, if one is due, and removes those that are too many.
    /// Returns whether one was made.
    ///
    /// The new snapshot is durable before an older one goes.
    ///
    /// # Errors
    ///
    /// Every snapshot that was there is still there, but for some that were too many.
    pub fn keep(
        &mut self,
        disk: &dyn Disk,
        file: &Path,
        generation: u64,
        now_s: u64,
    ) -> Result<bool, PublishError> {
        if !self.is_due(generation, now_s) {
            return Ok(false);
        }
        let mut name = self.name.clone();
        name.push(format!(".{generation}.{now_s}"));
        let path = self.dir.join(name);
        if !self.make(disk, file, &path, now_s)? {
            return Ok(false);
        }
        self.kept.push(Snapshot { path, generation, made_s: now_s });
        self.prune(disk, now_s)?;
        Ok(true)
    }

    /// Makes one snapshot, shared if possible, copied if it is time for that.
    fn make(
        &mut self,
        disk: &dyn Disk,
        file: &Path,
        path: &Path,
        now_s: u64,
    ) -> Result<bool, PublishError> {
        if self.shares != Some(false) {
            match replace(disk, path, Contents::Shared(file), Promise::PowerCut) {
                Ok(_) => {
                    self.shares = Some(true);
                    return Ok(true);
                }
                Err(error) if error.cause().kind() == io::ErrorKind::Unsupported => {
                    self.shares = Some(false);
                }
                Err(error) => return Err(error),
            }
        }
        if self.kept.last().is_some_and(|last| younger(last, self.policy.copied_every, now_s)) {
            return Ok(false);
        }
        replace(disk, path, Contents::Copied(file), Promise::PowerCut).map(|_| true)
    }

    /// Removes all but the newest and the youngest of those that are old enough to be the daily one.
    fn prune(&mut self, disk: &dyn Disk, now_s: u64) -> Result<(), PublishError> {
        let older = self.kept.len().saturating_sub(self.policy.recent.max(1));
        let daily = self.kept[..older]
            .iter()
            .rposition(|snapshot| !younger(snapshot, self.policy.copied_every, now_s))
            // None is a day old yet: the oldest will be the first to be.
            .unwrap_or(0);
        let mut position = 0;
        let mut failed = None;
        self.kept.retain(|snapshot| {
            let spare = position < older && position != daily;
            position += 1;
            if !spare {
                return true;
            }
            match disk.remove(&snapshot.path) {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(source) => {
                    let path = snapshot.path.clone();
                    failed =
                        Some(PublishError::NotReplaced { step: "remove snapshot", path, source });
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

/// Tells whether a snapshot was made less than `age` before now, and not in the future.
fn younger(snapshot: &Snapshot, age: Duration, now_s: u64) -> bool {
    now_s.checked_sub(snapshot.made_s).is_some_and(|seconds| seconds < age.as_secs())
}

/// Takes the name of a snapshot apart.
fn parse(dir: &Path, name: &str, found: &str) -> Option<Snapshot> {
    let (generation, made_s) = found.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?;
    let snapshot = Snapshot {
        path: dir.join(found),
        generation: generation.parse().ok()?,
        made_s: made_s.parse().ok()?,
    };
    // Only names as we write them: no sign, no leading zero.
    (found == format!("{name}.{}.{}", snapshot.generation, snapshot.made_s)).then_some(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::real;
    use crate::publish::publish;

    const HOUR: u64 = 3600;

    #[test]
    fn the_newest_three_and_one_of_a_day_before_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        let policy =
            SnapshotPolicy { copied_every: Duration::from_secs(HOUR), ..SnapshotPolicy::default() };
        let kept = dir.path().join("snapshots");
        let mut snapshots = Snapshots::open(&*disk, &kept, "user", policy).unwrap();
        for generation in 1..=12 {
            publish(&*disk, &file, format!("image {generation}").as_bytes()).unwrap();
            assert!(snapshots.keep(&*disk, &file, generation, generation * HOUR).unwrap());
            assert!(
                !snapshots.keep(&*disk, &file, generation, (generation + 9) * HOUR).unwrap(),
                "the same generation is not kept twice"
            );
        }
        let generations: Vec<u64> =
            snapshots.newest_first().map(|snapshot| snapshot.generation).collect();
        assert_eq!(generations, [12, 11, 10, 9]);
        let again = Snapshots::open(&*disk, &kept, "user", policy).unwrap();
        assert!(again.newest_first().eq(snapshots.newest_first()));
        let newest = again.newest_first().next().unwrap();
        assert_eq!(disk.read(&newest.path).unwrap(), b"image 12");
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stop_snapshots() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        publish(&*disk, &file, b"image").unwrap();
        let mut snapshots =
            Snapshots::open(&*disk, &dir.path().join("s"), "user", SnapshotPolicy::default())
                .unwrap();
        assert!(snapshots.keep(&*disk, &file, 1, 1_000_000_000).unwrap());
        assert!(!snapshots.keep(&*disk, &file, 2, 1_000_000_001).unwrap(), "too soon");
        assert!(snapshots.keep(&*disk, &file, 3, 1_000).unwrap());
    }

    #[test]
    fn only_names_of_snapshots_are_taken_for_them() {
        for name in ["user.1.2.3", "user.1", "user2.1.2", "user.01.2", "user.+1.2", ".user.1.2"] {
            assert_eq!(parse(Path::new("/d"), "user", name), None, "{name}");
        }
        assert!(parse(Path::new("/d"), "user", "user.7.1000").is_some());
    }
}
