//! One round of the work that nobody waits for: the files that others read, the length of the journal, its copy on the disk.

use std::io;
use std::time::Duration;

use store::disk::FileLock;

use super::journal::{Compacted, Recents, RecentsError};
use super::projection::{Projected, ProjectionError, project};
use super::volatile::{self, VolatileError};

/// How long additions are gathered before they are written together.
pub const GATHER: Duration = Duration::from_millis(250);
/// Two rounds begin no sooner after one another.
pub const APART: Duration = Duration::from_millis(800);
/// How long another program that is at the same work is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a user waits for others that write; each attempt waits a while by itself.
const USER_PATIENCE: Duration = Duration::from_secs(30);
/// How old the copy on the disk of a list in memory may become.
const SNAPSHOT: Duration = Duration::from_secs(15 * 60);

/// Why a round was not done to its end. It can be tried again; nothing that is remembered is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriterError {
    /// The lock that keeps two writers apart cannot be taken; nothing was done.
    #[error("cannot lock {path:?}")]
    NotLocked {
        /// The lock.
        path: std::path::PathBuf,
        /// What the disk said; busy if another writer hangs.
        source: io::Error,
    },
    /// The files that others read do not show the list.
    #[error(transparent)]
    NotProjected(#[from] ProjectionError),
    /// The files show the list, and are in memory without a copy of now.
    #[error(transparent)]
    NotSaved(#[from] VolatileError),
    /// The files show the list; the journal is as long as it was, or its copy as old.
    #[error("cannot compact the journal")]
    NotTidied(#[from] RecentsError),
}

impl WriterError {
    /// Returns whether others were at the same work or the same files: a moment later it can succeed.
    #[must_use]
    pub fn is_contention(&self) -> bool {
        match self {
            WriterError::NotLocked { source, .. } => source.kind() == io::ErrorKind::ResourceBusy,
            WriterError::NotProjected(error) => error.is_contention(),
            WriterError::NotSaved(_) | WriterError::NotTidied(_) => false,
        }
    }
}

/// What a round did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundOutcome {
    /// What was found in the files, and written to them.
    pub projected: Projected,
    /// Whether the journal was made shorter.
    pub compacted: Compacted,
}

/// Keeps other writers away until it is dropped: no round begins, and none goes on with what it read before.
#[derive(Debug)]
pub struct WriterLock(#[expect(dead_code, reason = "held, never read")] Box<dyn FileLock>);

/// Keeps other writers away; one that is at work is waited for.
///
/// # Errors
///
/// [`WriterError::NotLocked`].
pub fn lock_writers(recents: &Recents) -> Result<WriterLock, WriterError> {
    let path = recents.places().state.join("writer.lock");
    store::publish::make_directory(recents.disk(), &recents.places().state)
        .and_then(|()| recents.disk().own(&path, PATIENCE))
        .and_then(|lock| lock.map(WriterLock).ok_or_else(|| io::ErrorKind::ResourceBusy.into()))
        .map_err(|source| WriterError::NotLocked { path, source })
}

/// Does one round.
///
/// # Errors
///
/// The variant says what was done.
pub fn write(recents: &mut Recents) -> Result<RoundOutcome, WriterError> {
    let _lock = lock_writers(recents)?;
    recents.remove_unfinished();
    // What is kept of a damaged journal is as it was found.
    recents.repair()?;
    settle(recents);
    let projected = project(recents)?;
    // The list may be new, or another program has replaced it meanwhile.
    settle(recents);
    let compacted = recents.compact()?;
    recents.write_extent()?;
    recents.snapshot_if_older(SNAPSHOT)?;
    volatile::save_if_older(recents, SNAPSHOT)?;
    Ok(RoundOutcome { projected, compacted })
}

/// Does one round for a user who waits for it, and tries again for half a minute while others are at the same files.
///
/// # Errors
///
/// As [`write()`].
pub fn write_for_user(recents: &mut Recents) -> Result<RoundOutcome, WriterError> {
    let end = recents.clock().monotonic() + USER_PATIENCE;
    loop {
        match write(recents) {
            Err(error) if error.is_contention() && recents.clock().monotonic() < end => {}
            done => return done,
        }
    }
}

/// Brings the lists to memory or back. They can be written where they are if that fails, and the next round tries again.
fn settle(recents: &mut Recents) {
    volatile::remove_leftovers(recents);
    let settled = volatile::settle(recents).and_then(|()| volatile::announce(recents));
    if let Err(error) = settled {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::warn!(%error, cause, "the lists of recent documents are not where the rules say");
    }
}
