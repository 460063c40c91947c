//! Why there is no listing, or no more of it.

use std::io;
use std::path::PathBuf;

use super::entry::EntryId;

/// Why a listing ended before it was done. What arrived before stays readable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListingError {
    /// There is nobody who lists: the process, thread or socket could not be made.
    #[error("cannot start listing {path:?}")]
    NotStarted {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Whoever listed is gone: it was killed, or the daemon ended.
    #[error("cannot continue listing {path:?}: the worker has ended")]
    WorkerEnded {
        /// The directory.
        path: PathBuf,
    },
    /// The connection failed.
    #[error("cannot receive the listing of {path:?}")]
    Disconnected {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Whoever lists sent what is not as it must be; it is not trusted any more.
    #[error("cannot trust the listing of {path:?}: {fault}")]
    Hostile {
        /// The directory.
        path: PathBuf,
        /// What was wrong.
        fault: StreamFault,
    },
    /// The listing was cancelled.
    #[error("the listing of {path:?} was cancelled")]
    Cancelled {
        /// The directory.
        path: PathBuf,
    },
}

/// What is wrong with a chunk or a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamFault {
    /// The memory is not what was agreed on.
    #[error("{0}")]
    Memory(#[from] store::stream::ChunkError),
    /// A record is shorter or longer than what it says it holds.
    #[error("a record of {record} has the wrong length")]
    Length {
        /// Which record.
        record: &'static str,
    },
    /// A number in a record is outside of what it may be.
    #[error("a record of {record} has a wrong {what}")]
    Value {
        /// Which record.
        record: &'static str,
        /// Which number.
        what: &'static str,
    },
    /// A record that is not known, or not at this time.
    #[error("a record with tag {tag} was not expected")]
    Unexpected {
        /// Its tag.
        tag: u32,
    },
    /// A record speaks of an entry that there is not.
    #[error("there is no entry {id}")]
    NoEntry {
        /// Its number.
        id: EntryId,
    },
    /// There is more than was allowed.
    #[error("there are too many {what}")]
    TooMany {
        /// Names, or bytes.
        what: &'static str,
    },
}

/// Something about the directory itself went wrong; the listing may hold what was read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The directory, as it was asked for.
    pub path: PathBuf,
    /// What was being done.
    pub step: ListingStep,
    /// The system's error number.
    pub number: i32,
}

impl Failure {
    /// Returns the error as the system would; where the system has reported none, what the step means.
    #[must_use]
    pub fn error(&self) -> io::Error {
        match self.step.meaning() {
            Some(meaning) if self.number == 0 => io::Error::other(meaning),
            _ if self.is_remark() => io::Error::other(REMARK),
            _ => io::Error::from_raw_os_error(self.number),
        }
    }

    /// Returns whether the listing goes on as if nothing had been said: the directory is followed, but what changes in it without this kernel is not noticed.
    #[must_use]
    pub fn is_remark(&self) -> bool {
        self.step == ListingStep::Follow && self.number == NOT_SUPPORTED
    }
}

/// What was being done when a directory failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ListingStep {
    /// It was opened.
    Open = 1,
    /// Its names were read.
    Read = 2,
    /// It gave the same names again and again.
    Repeats = 3,
    /// It has more names than the limits allow.
    TooLarge = 4,
    /// Its changes were to be followed: they are not, and what is listed may be of the past.
    Follow = 5,
    /// It was removed, moved or unmounted; its changes are not followed any more.
    Gone = 6,
    /// A daemon was asked that does not serve this caller: another user, or one that sees other files at the same paths.
    Refused = 7,
    /// A daemon was asked that serves as much as it may already.
    Busy = 8,
}

/// EOPNOTSUPP.
pub(super) const NOT_SUPPORTED: i32 = 95;
/// What it means that a file system that changes without this kernel is followed.
const REMARK: &str = "only changes made through this computer's file system are reported";

impl ListingStep {
    /// Returns what it means where the system has reported no error.
    fn meaning(self) -> Option<&'static str> {
        match self {
            ListingStep::Open | ListingStep::Read => None,
            ListingStep::Repeats => Some("it returns the same names again and again"),
            ListingStep::TooLarge => Some("it has more names than the limit allows"),
            ListingStep::Follow => Some("its changes are not reported any more"),
            ListingStep::Gone => Some("it was removed, moved or unmounted"),
            ListingStep::Refused => Some("the daemon does not serve this caller"),
            ListingStep::Busy => Some("the daemon serves as much as it may already"),
        }
    }

    pub(super) fn from_number(number: u32) -> Option<ListingStep> {
        let all = [
            ListingStep::Open,
            ListingStep::Read,
            ListingStep::Repeats,
            ListingStep::TooLarge,
            ListingStep::Follow,
            ListingStep::Gone,
            ListingStep::Refused,
            ListingStep::Busy,
        ];
        all.into_iter().find(|step| *step as u32 == number)
    }
}
