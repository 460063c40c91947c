//! Where this user's files belong, and where the programs are: from the environment.

use std::path::{Path, PathBuf};

use ::setup::plan::ProgramSource;
use ::setup::{SessionDirectories, SetupLayout, SetupScope};

use super::{Place, failed, variable};
use crate::error::{Error, FailureCategory};

/// Returns an absolute path of the environment.
fn absolute(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the runtime directory of the session.
pub(super) fn runtime() -> Option<PathBuf> {
    absolute("XDG_RUNTIME_DIR")
}

/// Returns the directories of this user.
pub(super) fn directories() -> Option<SessionDirectories> {
    let home = absolute("HOME")?;
    let below = |name: &str, usual: &str| absolute(name).unwrap_or_else(|| home.join(usual));
    Some(SessionDirectories {
        config: below("XDG_CONFIG_HOME", ".config"),
        data: below("XDG_DATA_HOME", ".local/share"),
        state: below("XDG_STATE_HOME", ".local/state"),
        home,
    })
}

impl Place {
    /// Returns the layout that is meant.
    pub(super) fn layout(&self) -> Result<SetupLayout, Error> {
        let root = self.root.clone().or_else(|| variable("DESTDIR").map(PathBuf::from));
        let layout = match (&self.prefix, self.system || root.is_some()) {
            (Some(prefix), _) if !prefix.is_absolute() => {
                let what = format!("install below {}", prefix.display());
                return Err(Error::new(FailureCategory::User, what)
                    .because(std::io::Error::other("it is not an absolute path")));
            }
            (Some(prefix), _) => SetupLayout::of_system(prefix),
            (None, true) => SetupLayout::of_system(&prefix()),
            (None, false) => user_layout()?,
        };
        let is_root = rustix::process::geteuid().is_root();
        if self.system && !is_root && root.is_none() {
            return Err(Error::new(FailureCategory::User, "set up for every user")
                .because(std::io::Error::other("that is for root"))
                .hint("sudo unjank setup --system PART; without --system no root is needed"));
        }
        match root {
            None => Ok(layout),
            Some(root) => {
                let cannot = |error| {
                    let what = format!("put a package together in {}", root.display());
                    Error::new(FailureCategory::User, what).because(error)
                };
                let root = std::path::absolute(&root).map_err(cannot)?;
                Ok(layout.staged_below(&root))
            }
        }
    }
}

fn user_layout() -> Result<SetupLayout, Error> {
    let directories = directories().ok_or_else(|| {
        Error::new(FailureCategory::Config, "find this user's directories")
            .because(std::io::Error::other("HOME is not set to an absolute path"))
            .hint("set HOME; for every user: sudo unjank setup --system PART")
    })?;
    let mut layout = SetupLayout::of_user(&directories);
    // The kernel's own name of the directory, with which the library compares.
    if let Ok(real) = directories.data.canonicalize() {
        layout.recents = real.display().to_string();
    }
    Ok(layout)
}

/// Returns the prefix below which this program is installed for every user.
fn prefix() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent);
    let usual = ["/usr", "/usr/local"].map(Path::new);
    prefix.filter(|prefix| usual.contains(prefix)).unwrap_or(usual[1]).to_owned()
}

/// Returns where the programs are.
pub(super) fn source(from: Option<&Path>, layout: &SetupLayout) -> Result<ProgramSource, Error> {
    let found = match from {
        Some(from) => std::path::absolute(from)
            .map(ProgramSource::Built)
            .map_err(|error| Error::new(FailureCategory::User, "find the programs").because(error)),
        None => {
            let program = std::env::current_exe().map_err(|error| {
                Error::new(FailureCategory::Internal, "find this program").because(error)
            })?;
            ProgramSource::beside(&program).map_err(|error| failed("find the programs", error))
        }
    }?;
    // What every user runs is not in a user's directory.
    match found {
        ProgramSource::Installed { programs, .. }
            if layout.scope == SetupScope::System
                && layout.root.is_none()
                && programs != layout.programs =>
        {
            let what = format!("set up for every user with the programs in {}", programs.display());
            Err(Error::new(FailureCategory::Config, what)
                .hint("install them for every user first: packaging/install --prefix /usr/local"))
        }
        other => Ok(other),
    }
}
