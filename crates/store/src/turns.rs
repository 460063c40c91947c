//! Exclusive use of a file, in turns, among processes that read it, decide, and replace it.
//!
//! Who replaces a file by what it knows of it must be the only one from the look to the rename, or the changes of others
//! are lost. A lock beside the file keeps the others out. It is tried and never waited for, so that a holder that was
//! stopped holds up nobody; whoever found it taken keeps a second lock, the queue, until its turn comes, and nobody
//! passes the queue: a process that takes one turn after the other leaves the next one to whoever waits.
//!
//! The locks are files beside the one that they protect, hidden from what lists databases. They hold between the hosts
//! of a network file system as far as its `flock` does.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::{Disk, FileLock, LockHolder, Retaken};
use crate::publish::{Promise, final_target, make_parents};

/// What stands behind the name of the file in the name of its lock and of its queue.
const LOCK: &str = ".unjank-lock";
const QUEUE: &str = ".unjank-queue";

/// The right to replace a file, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    lock: Option<KeptLock>,
}

/// A lock and where it is; after it was let go its file is kept, so that the next turn need not open it again.
#[derive(Debug)]
struct KeptLock {
    path: PathBuf,
    lock: Box<dyn FileLock>,
}

impl KeptLock {
    /// Lets others have the lock; `None` if its file cannot be kept, which lets them have it, too.
    fn let_go(mut self) -> Option<KeptLock> {
        self.lock.let_go().is_ok().then_some(self)
    }
}

/// What came of asking for a turn.
#[derive(Debug)]
pub enum TurnRequest {
    /// The turn has come.
    Granted(Turn),
    /// Somebody else has it, or waits for it: ask again soon.
    Busy,
    /// The file system has no locks: nobody keeps others away from the file.
    NoLocks(Turn),
}

/// One process's way to its turns on one file.
#[derive(Debug, Default)]
pub struct Turns {
    /// Our place in the queue, kept while the lock is somebody else's.
    place: Option<KeptLock>,
    /// The queue and the lock after a turn: nobody is kept away by them.
    old_place: Option<KeptLock>,
    old_lock: Option<KeptLock>,
}

impl Turns {
    /// Asks for a turn on the file at `path`, which need not exist; its directory is made (0700). A symlink is followed:
    /// the turn is on what it points to.
    ///
    /// # Errors
    ///
    /// The lock could not be made or tried.
    pub fn ask(&mut self, disk: &dyn Disk, path: &Path) -> io::Result<TurnRequest> {
        let target = final_target(disk, path)?;
        match self.ask_at(disk, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_parents(disk, &target, Promise::Process)?;
                self.ask_at(disk, &target)
            }
            other => other,
        }
    }

    fn ask_at(&mut self, disk: &dyn Disk, target: &Path) -> io::Result<TurnRequest> {
        let place = match self.place.take() {
            Some(place) => place,
            None => match take(disk, beside(target, QUEUE)?, &mut self.old_place) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(TurnRequest::Busy),
                Err(error) => return without_locks(error),
            },
        };
        match take(disk, beside(target, LOCK)?, &mut self.old_lock) {
            Ok(Some(lock)) => {
                self.old_place = place.let_go();
                Ok(TurnRequest::Granted(Turn { lock: Some(lock) }))
            }
            Ok(None) => {
                self.place = Some(place);
                Ok(TurnRequest::Busy)
            }
            Err(error) => without_locks(error),
        }
    }

    /// Ends a turn, as dropping it does, and makes the next one quicker.
    pub fn end(&mut self, turn: Turn) {
        self.old_lock = turn.lock.and_then(KeptLock::let_go);
    }

    /// Leaves the queue.
    pub fn give_up(&mut self) {
        self.place = None;
    }
}

/// Returns the process that has the turn on the file at `path` or is the next to have it, where that can be found out.
#[must_use]
pub fn holder(disk: &dyn Disk, path: &Path) -> Option<LockHolder> {
    let target = final_target(disk, path).ok()?;
    [LOCK, QUEUE].into_iter().find_map(|name| disk.lock_holder(&beside(&target, name).ok()?))
}

/// Removes the locks beside the file at `path`, unless somebody uses them. The next one to ask makes others.
pub fn remove_locks(disk: &dyn Disk, path: &Path) {
    let Ok(target) = final_target(disk, path) else { return };
    let take = |name| {
        let path = beside(&target, name).ok()?;
        // Only what is there is to be removed.
        disk.stat(&path).ok()?;
        Some((disk.own(&path, Duration::ZERO).ok()??, path))
    };
    // In the order in which they are asked for, and held while they are removed: nobody can have taken them in between.
    let Some((_place, queue)) = take(QUEUE) else { return };
    let Some((_lock, lock)) = take(LOCK) else { return };
    for path in [lock, queue] {
        // What stays is an empty hidden file that the next one uses.
        let _ = disk.remove(&path);
    }
}

/// Takes the lock at `path` without waiting, by the file that was kept of it if that is still the one.
fn take(
    disk: &dyn Disk,
    path: PathBuf,
    kept: &mut Option<KeptLock>,
) -> io::Result<Option<KeptLock>> {
    if let Some(mut old) = kept.take_if(|old| old.path == path) {
        match old.lock.retake(&path)? {
            Retaken::Yes => return Ok(Some(old)),
            Retaken::Busy => {
                *kept = Some(old);
                return Ok(None);
            }
            Retaken::Gone => {}
        }
    }
    let lock = disk.own(&path, Duration::ZERO)?;
    Ok(lock.map(|lock| KeptLock { path, lock }))
}

fn without_locks(error: io::Error) -> io::Result<TurnRequest> {
    match error.kind() {
        io::ErrorKind::Unsupported => Ok(TurnRequest::NoLocks(Turn { lock: None })),
        _ => Err(error),
    }
}

fn beside(target: &Path, ending: &str) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(ending);
    Ok(target.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::real;

    fn granted(asked: io::Result<TurnRequest>) -> Option<Turn> {
        match asked.unwrap() {
            TurnRequest::Granted(turn) => Some(turn),
            TurnRequest::Busy | TurnRequest::NoLocks(_) => None,
        }
    }

    #[test]
    fn who_waits_comes_before_who_has_just_had_a_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("below/user"));
        let (mut first, mut second) = (Turns::default(), Turns::default());
        let turn = granted(first.ask(&*disk, &file)).unwrap();
        assert!(granted(second.ask(&*disk, &file)).is_none());
        drop(turn);
        assert!(granted(first.ask(&*disk, &file)).is_none(), "the second one waits");
        let turn = granted(second.ask(&*disk, &file)).unwrap();
        let ours = LockHolder { pid: std::process::id(), goes_on: true };
        assert_eq!(holder(&*disk, &file), Some(ours));
        drop(turn);
        granted(first.ask(&*disk, &file)).unwrap();
    }

    #[test]
    fn a_turn_that_was_ended_is_anybodys_and_its_locks_may_be_removed_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        let (mut first, mut second) = (Turns::default(), Turns::default());
        for round in 0..6 {
            let turn = granted(first.ask(&*disk, &file)).unwrap();
            assert!(granted(second.ask(&*disk, &file)).is_none(), "round {round}");
            first.end(turn);
            assert!(granted(first.ask(&*disk, &file)).is_none(), "the second one waits");
            let turn = granted(second.ask(&*disk, &file)).unwrap();
            assert!(granted(Turns::default().ask(&*disk, &file)).is_none());
            second.end(turn);
            if round % 2 == 1 {
                // What both have kept is no lock any more.
                remove_locks(&*disk, &file);
                assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
                let turn = granted(Turns::default().ask(&*disk, &file)).unwrap();
                assert!(granted(first.ask(&*disk, &file)).is_none(), "round {round}");
                first.give_up();
                drop(turn);
            }
        }
        let turn = granted(first.ask(&*disk, &file)).unwrap();
        let other = dir.path().join("other");
        let beside = granted(first.ask(&*disk, &other)).unwrap();
        assert!(granted(Turns::default().ask(&*disk, &other)).is_none(), "another file");
        drop((turn, beside));
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        let (mut first, mut second) = (Turns::default(), Turns::default());
        let turn = granted(first.ask(&*disk, &file)).unwrap();
        assert!(granted(second.ask(&*disk, &file)).is_none());
        second.give_up();
        drop(turn);
        granted(first.ask(&*disk, &file)).unwrap();
    }

    #[test]
    fn the_turn_is_on_what_a_symlink_points_to() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        let link = dir.path().join("other/link");
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let turn = granted(Turns::default().ask(&*disk, &link)).unwrap();
        assert!(granted(Turns::default().ask(&*disk, &file)).is_none());
        drop(turn);
    }

    #[test]
    fn locks_that_nobody_uses_are_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        let turn = granted(Turns::default().ask(&*disk, &file)).unwrap();
        remove_locks(&*disk, &file);
        assert!(granted(Turns::default().ask(&*disk, &file)).is_none(), "it was removed in use");
        drop(turn);
        remove_locks(&*disk, &file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        granted(Turns::default().ask(&*disk, &file)).unwrap();
    }

    #[test]
    fn what_is_no_lock_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, file) = (real(), dir.path().join("user"));
        let queue = dir.path().join(".user.unjank-queue");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &queue, fifo, 0o600.into(), 0).unwrap();
        Turns::default().ask(&*disk, &file).unwrap_err();
        std::fs::remove_file(&queue).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &queue).unwrap();
        Turns::default().ask(&*disk, &file).unwrap_err();
    }
}
