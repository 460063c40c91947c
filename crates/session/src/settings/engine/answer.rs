//! What the engine gives back: replies, signals, errors and reports.

use std::io;
use std::path::PathBuf;

use super::names::DatabaseId;

/// One message to send, in the order in which the engine hands them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// `Change` succeeded: reply with the tag.
    Changed {
        /// What the caller gave with the request.
        token: T,
        /// The tag of the change.
        tag: String,
    },
    /// `Init` succeeded: reply with nothing.
    Initialised {
        /// What the caller gave with the request.
        token: T,
    },
    /// The request failed: reply with the error.
    Failed {
        /// What the caller gave with the request.
        token: T,
        /// Why, and what is on disk now.
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
    /// What a program can decide by.
    pub kind: ErrorKind,
    /// What a person reads: the path, what the disk said and what is in place now.
    pub text: String,
}

/// The kinds of [`ChangeError`] that a program may want to tell apart.
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
    /// The text file of a `keyfile` database cannot be understood.
    Invalid,
    /// Another settings service or another host holds the lock of the database and does not let go.
    Busy,
    /// Anything else.
    Failed,
}

impl ChangeError {
    /// Says that `what` could not be done, why, and what is true now.
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

/// Something that a person who looks after the machine should know; holds no value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A file was no database; it was renamed and the database starts empty or from a snapshot.
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
    /// The file was replaced by something that is no intact database; ours is kept.
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
    /// Something beside the databases did not work; no setting is concerned.
    Aside {
        /// What was being done, to which file, and what the disk said.
        text: String,
    },
    /// The file system of a database has no locks: another service of this user may overwrite what ours stored.
    NoLocks {
        /// The database.
        id: DatabaseId,
        /// Its file.
        path: PathBuf,
    },
    /// A database is on a file system that others than this machine's processes write to.
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
        /// The number of keys that could not be understood.
        keys: usize,
    },
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let aside = |kept: &Option<PathBuf>| match kept {
            Some(path) => format!("kept as {}", path.display()),
            None => "could not be kept".to_owned(),
        };
        match self {
            Report::NotADatabase { id, kept, restored } => write!(
                f,
                "{id}: the file was no database and is now {}; {restored} keys restored from a snapshot",
                kept.display()
            ),
            Report::Salvaged { id, kept, intact, restored } => write!(
                f,
                "{id}: the file was damaged: {intact} keys intact, {restored} restored from a snapshot; the damaged file {}",
                aside(kept)
            ),
            Report::Merged { id, changes } => {
                write!(f, "{id}: merged {changes} changes that another program made to the file")
            }
            Report::OutsideDamaged { id, kept } => write!(
                f,
                "{id}: another program left a file that is no intact database; ours stays, the other {}",
                aside(kept)
            ),
            Report::CommitFailed { id, text } => write!(f, "{id}: {text}"),
            Report::Aside { text } => f.write_str(text),
            Report::NoLocks { id, path } => write!(
                f,
                "{id}: the file system of {} has no locks: a second settings service of this user would overwrite changes",
                path.display()
            ),
            Report::ForeignFileSystem { id, path, kind } => write!(
                f,
                "{id}: {} is on {kind}: two hosts or sessions may change it at once only where its locks (flock) reach both",
                path.display()
            ),
            Report::TextSkipped { id, keys } => {
                write!(f, "{id}: skipped {keys} entries of the text file that are no settings")
            }
        }
    }
}
