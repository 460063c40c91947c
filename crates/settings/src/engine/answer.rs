//! The results of the engine: replies, signals, errors and notices.

use std::io;
use std::path::PathBuf;

use crate::names::DatabaseId;

/// One message to send, in the order in which the engine hands them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineMessage<T> {
    /// `Change` succeeded: reply with the tag.
    Changed {
        /// The value that the caller passed with the request.
        token: T,
        /// The tag of the change.
        tag: String,
    },
    /// `Init` succeeded: reply with nothing.
    Initialised {
        /// The value that the caller passed with the request.
        token: T,
    },
    /// The request failed: reply with the error.
    Failed {
        /// The value that the caller passed with the request.
        token: T,
        /// The reason, and what is on the disk now.
        error: ChangeError,
    },
    /// Emit `Notify(prefix, changes, tag)` from the database's object.
    Notify {
        /// The database that changed.
        id: DatabaseId,
        /// A key, or the directory that holds all changes.
        prefix: String,
        /// The changes relative to `prefix`, sorted; `[""]` if `prefix` is the change.
        changes: Vec<String>,
        /// The tag of the change; empty when the change came from outside.
        tag: String,
    },
}

/// Why a change failed, and in which state that leaves the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ChangeError {
    /// The kind, by which a program can decide.
    pub kind: ErrorKind,
    /// The message, for people: the path, the error and what is in place now.
    pub text: String,
}

/// The kinds of [`ChangeError`] that a program may distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Not permitted (EACCES, EPERM).
    Access,
    /// The file system is mounted read-only (EROFS).
    ReadOnly,
    /// The file system is full (ENOSPC).
    NoSpace,
    /// The user's quota is used up (EDQUOT), or as many databases are in use as may be.
    Quota,
    /// The device failed (EIO).
    Io,
    /// The change is in place for readers but may not survive a power cut.
    NotDurable,
    /// The text file of a `keyfile` database is invalid.
    Invalid,
    /// Another settings service or another host holds the lock of the database for too long.
    Busy,
    /// Anything else.
    Failed,
}

impl ChangeError {
    /// Returns the error for `what`, with its cause and the present state `now`.
    pub(super) fn new(what: &str, cause: &io::Error, now: &str) -> ChangeError {
        let kind = match cause.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::Access,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            io::ErrorKind::QuotaExceeded => ErrorKind::Quota,
            _ if cause.raw_os_error() == Some(EIO) => ErrorKind::Io,
            _ => ErrorKind::Failed,
        };
        ChangeError { kind, text: format!("{what}: {cause}; {now}") }
    }
}

/// The number of `EIO` on every Linux; `io::ErrorKind` has no name for it.
const EIO: i32 = 5;

/// An event for the log. It holds no value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineNotice {
    /// A file was no database. It was renamed, and the database starts empty or from a snapshot.
    NotADatabase {
        /// The database.
        id: DatabaseId,
        /// Where the file is now.
        kept: PathBuf,
        /// The number of keys that a snapshot held.
        restored: usize,
    },
    /// A damaged file was salvaged and set aside.
    Salvaged {
        /// The database.
        id: DatabaseId,
        /// Where the damaged file is now, if it could be kept.
        kept: Option<PathBuf>,
        /// Keys that were intact in the file.
        intact: usize,
        /// Keys that came from a snapshot.
        restored: usize,
    },
    /// The file was changed by another program and the changes were merged.
    Merged {
        /// The database.
        id: DatabaseId,
        /// The number of paths that changed for readers.
        changes: usize,
    },
    /// The file was replaced by something that is no intact database; the service's version is kept.
    OutsideDamaged {
        /// The database.
        id: DatabaseId,
        /// Where the foreign file is now, if it could be kept.
        kept: Option<PathBuf>,
    },
    /// A commit failed and its changes were taken back.
    CommitFailed {
        /// The database.
        id: DatabaseId,
        /// The error as the callers got it.
        text: String,
    },
    /// A failure beside the databases, which concerns no setting.
    Aside {
        /// The action, the file and the error.
        text: String,
    },
    /// The file system of a database has no locks: another service of this user may overwrite stored changes.
    NoLocks {
        /// The database.
        id: DatabaseId,
        /// Its file.
        path: PathBuf,
    },
    /// A database is on a file system to which other machines write, too.
    ForeignFileSystem {
        /// The database.
        id: DatabaseId,
        /// Its file.
        path: PathBuf,
        /// The type of the file system.
        kind: String,
    },
    /// A line or value of a text file was skipped.
    TextSkipped {
        /// The database.
        id: DatabaseId,
        /// The number of invalid keys.
        keys: usize,
    },
}

impl std::fmt::Display for EngineNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let aside = |kept: &Option<PathBuf>| match kept {
            Some(path) => format!("kept as {}", path.display()),
            None => "could not be kept".to_owned(),
        };
        match self {
            EngineNotice::NotADatabase { id, kept, restored } => write!(
                f,
                "{id}: the file was no database and is now {}; {restored} keys restored from a snapshot",
                kept.display()
            ),
            EngineNotice::Salvaged { id, kept, intact, restored } => write!(
                f,
                "{id}: the file was damaged: {intact} keys intact, {restored} restored from a snapshot; the damaged file {}",
                aside(kept)
            ),
            EngineNotice::Merged { id, changes } => {
                write!(f, "{id}: merged {changes} changes that another program made to the file")
            }
            EngineNotice::OutsideDamaged { id, kept } => write!(
                f,
                "{id}: another program left a file that is no intact database; ours stays, the other {}",
                aside(kept)
            ),
            EngineNotice::CommitFailed { id, text } => write!(f, "{id}: {text}"),
            EngineNotice::Aside { text } => f.write_str(text),
            EngineNotice::NoLocks { id, path } => write!(
                f,
                "{id}: the file system of {} has no locks: a second settings service of this user would overwrite changes",
                path.display()
            ),
            EngineNotice::ForeignFileSystem { id, path, kind } => write!(
                f,
                "{id}: {} is on {kind}: two hosts or sessions may change it at once only where its locks (flock) reach both",
                path.display()
            ),
            EngineNotice::TextSkipped { id, keys } => {
                write!(f, "{id}: skipped {keys} entries of the text file that are no settings")
            }
        }
    }
}
