//! The right to replace the files of a database, which the services of several sessions with one home share.
//!
//! A batch holds it from the check of the file until the new file is in place. A batch that finds another service's
//! changes holds it until they are merged and written, so that two services never overtake each other.

use std::io;
use std::path::Path;
use std::time::Duration;

use store::disk::{Disk, FileLock, LockHolder};
use store::publish::make_directory;
use store::turns::{self, Turn, TurnRequest, Turns};

use super::answer::{ChangeError, EngineNotice, ErrorKind};
use super::files::Files;
use super::is_own;
use crate::names::{DatabaseId, DatabaseKind};

/// How long another service may hold the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatienceLimits {
    /// The limit for any holder: less than a person waits.
    pub(super) with_all: Duration,
    /// The limit for a holder that is known to run: less than a program waits for its answer.
    pub(super) with_the_living: Duration,
}

impl PatienceLimits {
    /// The limits while the service runs.
    pub(super) const USUAL: PatienceLimits = PatienceLimits {
        with_all: Duration::from_secs(4),
        with_the_living: Duration::from_secs(20),
    };
    /// The limits when the service ends.
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
    /// Whether the notice about missing locks was sent.
    told: bool,
    /// The files of the locks stay open, so that the next turn is quicker: of the user's own database, since anybody can
    /// name many others.
    keeps_open: bool,
}

/// The lock that excludes other services.
#[derive(Debug)]
enum Right {
    Turn(Turn),
    /// The lock that dconf-service takes on the text of a `keyfile` database, also on other hosts.
    Text {
        _lock: Box<dyn FileLock>,
    },
}

/// The result of a request for the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// No other service replaces the files until [`Access::leave`].
    Yes,
    /// Another service holds the right: request it again soon.
    Busy,
}

/// The remaining time for which another service may hold the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Left,
    /// Only for a holder that runs: it may have a slow disk.
    WithTheLiving,
    Over,
}

impl Access {
    /// Requests the right to replace the files, without waiting.
    ///
    /// # Errors
    ///
    /// The lock failed, or another service holds it and the time limit has passed; nothing was changed.
    pub(super) fn enter(
        &mut self,
        disk: &dyn Disk,
        id: &DatabaseId,
        files: &Files,
        patience: Patience,
        reports: &mut Vec<EngineNotice>,
    ) -> Result<Entered, ChangeError> {
        if self.right.is_some() {
            return Ok(Entered::Yes);
        }
        self.keeps_open = is_own(id);
        let path = locked(id, files);
        let entered = match id.kind() {
            DatabaseKind::Keyfile => self.lock_text(disk, &files.lock),
            DatabaseKind::User | DatabaseKind::Shm | DatabaseKind::Journal => {
                self.take_turn(disk, id, path, reports)
            }
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

    /// Releases the right to replace the files.
    pub(super) fn leave(&mut self) {
        if let Some(Right::Turn(turn)) = self.right.take() {
            self.turns.end(turn);
            if !self.keeps_open {
                self.turns = Turns::default();
            }
        }
    }

    fn take_turn(
        &mut self,
        disk: &dyn Disk,
        id: &DatabaseId,
        path: &Path,
        reports: &mut Vec<EngineNotice>,
    ) -> io::Result<Entered> {
        let turn = match self.turns.ask(disk, path)? {
            TurnRequest::Busy => return Ok(Entered::Busy),
            TurnRequest::Granted(turn) => turn,
            TurnRequest::NoLocks(turn) => {
                if !std::mem::replace(&mut self.told, true) {
                    reports.push(EngineNotice::NoLocks { id: id.clone(), path: path.to_owned() });
                }
                turn
            }
        };
        self.right = Some(Right::Turn(turn));
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

/// The locked file.
pub(super) fn locked<'a>(id: &DatabaseId, files: &'a Files) -> &'a Path {
    match id.kind() {
        DatabaseKind::User | DatabaseKind::Shm => &files.image,
        DatabaseKind::Keyfile => &files.text,
        DatabaseKind::Journal => &files.checkpoint,
    }
}

/// Returns the process that holds the lock of a database, if it can be found.
fn holder(disk: &dyn Disk, id: &DatabaseId, files: &Files) -> Option<LockHolder> {
    match id.kind() {
        DatabaseKind::Keyfile => disk.lock_holder(&files.lock),
        DatabaseKind::User | DatabaseKind::Shm | DatabaseKind::Journal => {
            turns::holder(disk, locked(id, files))
        }
    }
}

/// Returns the error for a lock that was held for too long.
fn still_held(path: &Path, holder: Option<LockHolder>) -> ChangeError {
    let who = match holder {
        Some(LockHolder { pid, goes_on: true }) => format!("process {pid} holds its lock"),
        Some(LockHolder { pid, .. }) => format!("process {pid} holds its lock and is stopped"),
        None => "another settings service holds its lock".to_owned(),
    };
    let text = format!("cannot write {}: {who}; nothing was changed", path.display());
    ChangeError { kind: ErrorKind::Busy, text }
}
