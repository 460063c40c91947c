//! Why parts were not switched on or off.

use std::io;
use std::path::{Path, PathBuf};

use store::publish::PublishError;
use store::trust::Untrusted;

/// Why parts were not switched on or off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Another run holds the lock; nothing was changed.
    #[error("another `unjank setup` or `unjank undo` is running ({path:?} is locked)")]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// A file of somebody else is in the way; nothing was changed.
    #[error("{path:?} belongs to something else")]
    ForeignFile {
        /// The file.
        path: PathBuf,
    },
    /// A file of ours was changed by somebody else; nothing was changed.
    #[error("{path:?} was changed since unjank wrote it")]
    ChangedFile {
        /// The file.
        path: PathBuf,
    },
    /// A file of ours was changed, and the manifest keeps what was there before ours; nothing was changed.
    #[error(
        "{path:?} was changed since unjank wrote it, and what was there before is kept already"
    )]
    AlreadyKept {
        /// The file.
        path: PathBuf,
    },
    /// What is in the way cannot be kept for later; nothing was changed.
    #[error("{path:?} cannot be kept: it is too large, or no file")]
    Unkeepable {
        /// What is in the way.
        path: PathBuf,
    },
    /// The manifest cannot be used; nothing was changed.
    #[error("cannot use {path:?}: {why}")]
    BadManifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A directory or the manifest belongs to another user; nothing was changed.
    #[error("{path:?} belongs to user {owner}")]
    AnotherUsers {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others than root, or than the user who asks, can change what would be run; nothing was changed.
    #[error("others can change what is run")]
    OpenToOthers {
        /// What they can change.
        source: Untrusted,
    },
    /// A path means something else in a file of D-Bus or systemd; nothing was changed.
    #[error(
        "cannot write {path:?} into a unit: it has characters that units take for something else"
    )]
    UnusablePath {
        /// The path.
        path: PathBuf,
    },
    /// A program of ours is neither installed nor built; nothing was changed.
    #[error("{path:?} is missing")]
    MissingProgram {
        /// The program.
        path: PathBuf,
    },
    /// The module of GIO is neither installed nor built; nothing was changed.
    #[error("{path:?} is missing: the module of GIO is neither installed nor built")]
    MissingModule {
        /// Where it was looked for first.
        path: PathBuf,
    },
    /// A path could not be looked at; nothing was changed.
    #[error("cannot examine {path:?}")]
    NotExamined {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest could not be written; no further step was made.
    #[error("cannot record what is done")]
    NotRecorded {
        /// Why, and which manifest is in place.
        source: PublishError,
    },
    /// A step that is in the manifest was not made; those before it were.
    #[error("cannot put {path:?} in place")]
    NotMade {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A step was not taken back, and is still in the manifest; those before it were.
    #[error("cannot take {path:?} back")]
    NotTakenBack {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl SetupError {
    /// Returns what helps: a command, or what to look at.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        // Programs alone are in a directory of this name.
        let is_program = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("bin"));
        let hint = match self {
            SetupError::ForeignFile { path } if is_program(path) => {
                "its own `unjank setup` uses it; or have what installed it remove it, such as `cargo uninstall`"
            }
            SetupError::ForeignFile { .. } | SetupError::ChangedFile { .. } => {
                "look at it; `unjank setup --replace PART` replaces it, and `unjank undo` brings it back"
            }
            SetupError::AlreadyKept { path } => {
                return Some(format!(
                    "mv {0} {0}.mine; `unjank undo` brings back what was there before unjank",
                    path.display()
                ));
            }
            SetupError::Unkeepable { .. } => {
                "move it away, or have what installed it remove it, such as `cargo uninstall`"
            }
            SetupError::BadManifest { path, .. } => {
                return Some(format!(
                    "mv {0} {0}.bad; `unjank setup PART` then takes over what it alone puts there, and `unjank undo PART` takes it back",
                    path.display()
                ));
            }
            SetupError::AnotherUsers { .. } => {
                "run it as the user whose session it is; `unjank setup --system` is for every user"
            }
            SetupError::OpenToOthers { .. } => {
                "choose another --prefix, or take the directory back: chown root, chmod go-w"
            }
            SetupError::UnusablePath { .. } => {
                "letters, digits and /._-+@,=~ can stand in units; install the programs elsewhere"
            }
            SetupError::MissingProgram { path }
                if path.extension().is_some_and(|end| end == "so") =>
            {
                "`cargo install` installs no library: cargo build --release; target/release/unjank setup PART"
            }
            SetupError::MissingProgram { .. } => "cargo build --release",
            SetupError::MissingModule { .. } => {
                "install the package unjank-gsettings-backend, or cargo build --release -p unjank-gio"
            }
            SetupError::NotMade { .. } => "`unjank undo` takes back what was done until then",
            SetupError::Busy { .. }
            | SetupError::NotExamined { .. }
            | SetupError::NotRecorded { .. }
            | SetupError::NotTakenBack { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
