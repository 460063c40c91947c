//! The right to replace the files of a database, which the services of several sessions with one home share.
//!
//! Each batch has it from the look at the file until the new one is in place. A batch that finds another service's
//! changes keeps it until they are merged and written, so that two services in a hurry never overtake each other.

use std::io;
use std::path::Path;
use std::time::Duration;

use store::disk::{Disk, FileLock, LockHolder};
use store::publish::make_directory;
use store::turns::{self, Asked, Turn, Turns};

use super::answer::{ChangeError, ErrorKind, Report};
use super::files::Files;
use super::names::{DatabaseId, Kind};

/// For how long somebody else may be busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatienceLimits {
    /// Whoever it is: less than a person waits.
    pub(super) with_all: Duration,
    /// If it is known to run: less than a program waits for its answer.
    pub(super) with_the_living: Duration,
}

impl PatienceLimits {
    /// While the service goes on.
    pub(super) const USUAL: PatienceLimits = PatienceLimits {
        with_all: Duration::from_secs(4),
        with_the_living: Duration::from_secs(20),
    };
    /// When it ends.
    pub(super) const HURRIED: PatienceLimits = PatienceLimits {
        with_all: Duration::from_secs(1),
        with_the_living: Duration::from_secs(1),
    };
}

/// One service's access to one database.
#[derive(Debug, Default)]
pub(super) struct Access {
    turns: Turns,
    right: Option<Right>,
    /// It was said that there are no locks.
    told: bool,
}

/// What keeps others away from the files.
#[derive(Debug)]
enum Right {
    Turn {
        _turn: Turn,
    },
    /// The lock that dconf-service takes on the text of a `keyfile` database, also on other hosts.
    Text {
        _lock: Box<dyn FileLock>,
    },
}

/// What came of asking for the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// Nobody else replaces the files until [`Access::leave`].
    Yes,
    /// Somebody else does: ask again soon.
    Busy,
}

/// What is left of the time for which somebody else may be busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Left,
    /// Only with somebody who runs: it may have a slow disk.
    WithTheLiving,
    Over,
}

impl Access {
    /// Asks for the right to replace the files, without waiting.
    ///
    /// # Errors
    ///
    /// The lock failed, or somebody else has it and patience is over; nothing was changed.
    pub(super) fn enter(
        &mut self,
        disk: &dyn Disk,
        id: &DatabaseId,
        files: &Files,
        patience: Patience,
        reports: &mut Vec<Report>,
    ) -> Result<Entered, ChangeError> {
        if self.right.is_some() {
            return Ok(Entered::Yes);
        }
        let path = locked(id, files);
        let entered = match id.kind() {
            Kind::Keyfile => self.lock_text(disk, &files.lock),
            Kind::User | Kind::Shm | Kind::Journal => self.take_turn(disk, id, path, reports),
        };
        match entered {
            Ok(Entered::Busy) if patience != Patience::Left => {
                let holder = holder(disk, id, files);
                let runs = holder.is_some_and(|holder| holder.goes_on);
                if runs && patience == Patience::WithTheLiving {
                    return Ok(Entered::Busy);
                }
                self.turns.give_up();
                Err(still_held(path, holder))
            }
            Ok(entered) => Ok(entered),
            Err(error) => {
                let what = format!("cannot lock {}", path.display());
                Err(ChangeError::new(&what, &error, "nothing was changed"))
            }
        }
    }

    /// Lets others replace the files.
    pub(super) fn leave(&mut self) {
        self.right = None;
    }

    fn take_turn(
        &mut self,
        disk: &dyn Disk,
        id: &DatabaseId,
        path: &Path,
        reports: &mut Vec<Report>,
    ) -> io::Result<Entered> {
        let turn = match self.turns.ask(disk, path)? {
            Asked::Busy => return Ok(Entered::Busy),
            Asked::Granted(turn) => turn,
            Asked::NoLocks(turn) => {
                if !std::mem::replace(&mut self.told, true) {
                    reports.push(Report::NoLocks { id: id.clone(), path: path.to_owned() });
                }
                turn
            }
        };
        self.right = Some(Right::Turn { _turn: turn });
        Ok(Entered::Yes)
    }

    fn lock_text(&mut self, disk: &dyn Disk, path: &Path) -> io::Result<Entered> {
        let lock = match disk.try_lock(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(disk, path.parent().ok_or(error)?)?;
                disk.try_lock(path)
            }
            other => other,
        };
        let Some(lock) = lock? else { return Ok(Entered::Busy) };
        self.right = Some(Right::Text { _lock: lock });
        Ok(Entered::Yes)
    }
}

/// The file that others are kept away from.
pub(super) fn locked<'a>(id: &DatabaseId, files: &'a Files) -> &'a Path {
    match id.kind() {
        Kind::User | Kind::Shm => &files.image,
        Kind::Keyfile => &files.text,
        Kind::Journal => &files.checkpoint,
    }
}

/// Returns who keeps us from a database, where that can be found out.
fn holder(disk: &dyn Disk, id: &DatabaseId, files: &Files) -> Option<LockHolder> {
    match id.kind() {
        Kind::Keyfile => disk.lock_holder(&files.lock),
        Kind::User | Kind::Shm | Kind::Journal => turns::holder(disk, locked(id, files)),
    }
}

/// Says who has kept us from a database for too long.
fn still_held(path: &Path, holder: Option<LockHolder>) -> ChangeError {
    let who = match holder {
        Some(LockHolder { pid, goes_on: true }) => format!("process {pid} holds its lock"),
        Some(LockHolder { pid, .. }) => format!("process {pid} holds its lock and is stopped"),
        None => "another settings service holds its lock".to_owned(),
    };
    let text = format!("cannot write {}: {who}; nothing was changed", path.display());
    ChangeError { kind: ErrorKind::Busy, text }
}
