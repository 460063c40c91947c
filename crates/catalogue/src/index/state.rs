//! Whether a stored index is whole and current, and how it is made so.

use std::path::PathBuf;
use std::time::Duration;

use store::disk::Disk;

use super::build::CheckDepth;
use super::input::IndexPart;
use super::refresh::{Location, RefreshError, RefreshOutcome};
use super::{Index, IndexError};

/// The most rounds until no change can go unnoticed: the kernel dates changes by a clock that ticks every few milliseconds, so a file that changed in the current tick is read again after it.
const SETTLING: usize = 20;

/// How long a round waits for the next tick.
const TICK: Duration = Duration::from_millis(2);

/// Whether an index can be used.
#[derive(Debug)]
pub enum IndexState {
    /// It is whole, and nothing has changed since it was made.
    Current,
    /// It is whole, and something has changed since.
    OutOfDate,
    /// It cannot be used.
    Unusable(IndexError),
}

impl IndexState {
    /// Returns the state as programs read it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            IndexState::Current => "current",
            IndexState::OutOfDate => "out of date",
            IndexState::Unusable(IndexError::Damaged) => "damaged",
            IndexState::Unusable(IndexError::OtherVersion) => "of another version",
            IndexState::Unusable(IndexError::Foreign) => "of another user",
            IndexState::Unusable(_) => "missing",
        }
    }
}

impl Location {
    /// Examines the whole index and everything of which it was made; returns also the first file that changed.
    #[must_use]
    pub fn state(&self) -> (IndexState, Option<PathBuf>) {
        let index = match self.open() {
            Ok(index) => index,
            Err(error) => return (IndexState::Unusable(error), None),
        };
        if !index.is_whole() {
            return (IndexState::Unusable(IndexError::Damaged), None);
        }
        match index.stale(&IndexPart::ALL).or_else(|| index.stale_file()) {
            Some(changed) => (IndexState::OutOfDate, Some(changed.to_owned())),
            None => (IndexState::Current, None),
        }
    }

    /// Makes the index current, and again until no change can go unnoticed.
    ///
    /// # Errors
    ///
    /// No index can be made.
    pub fn refresh_until_settled(
        &self,
        disk: &dyn Disk,
        depth: CheckDepth,
    ) -> Result<(Index, RefreshOutcome), RefreshError> {
        let (mut index, done) = self.refresh(disk, depth)?;
        for _ in 0..SETTLING {
            if index.stale(&IndexPart::ALL).or_else(|| index.stale_file()).is_none() {
                break;
            }
            std::thread::park_timeout(TICK);
            index = self.refresh(disk, CheckDepth::Files)?.0;
        }
        Ok((index, done))
    }
}
