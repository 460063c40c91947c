//! Where applications and associations are looked for, in the order of precedence.

use std::path::{Path, PathBuf};

/// What the environment says of places; made by the program that reads the environment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ApplicationDirectories {
    /// `$XDG_CONFIG_HOME`.
    pub config_home: Option<PathBuf>,
    /// `$XDG_CONFIG_DIRS`, the most important first.
    pub config_dirs: Vec<PathBuf>,
    /// `$XDG_DATA_HOME`.
    pub data_home: Option<PathBuf>,
    /// `$XDG_DATA_DIRS`, the most important first.
    pub data_dirs: Vec<PathBuf>,
    /// `$XDG_CURRENT_DESKTOP`, the most important first. `OnlyShowIn` has these names; files are called by them in lower case.
    pub desktops: Vec<String>,
    /// `$PATH`, for `TryExec`.
    pub path: Vec<PathBuf>,
}

/// A directory in which associations are looked for, and applications unless it is for configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AssociationDirectory {
    /// Its path.
    pub path: PathBuf,
    /// What may be in it.
    pub holds: DirectoryContents,
}

/// What a directory may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DirectoryContents {
    /// Associations of the user or the administrator.
    Associations,
    /// Applications, and associations with them.
    Applications,
}

impl ApplicationDirectories {
    /// Returns the directories, the one that counts most first: configuration, then data, each the user's before the system's.
    ///
    /// MIME Applications specification 1.0.1, "File name and location".
    #[must_use]
    pub fn directories(&self) -> Vec<AssociationDirectory> {
        let config = self.config_home.iter().chain(&self.config_dirs);
        let config = config.map(|path| AssociationDirectory {
            path: path.clone(),
            holds: DirectoryContents::Associations,
        });
        config.chain(self.application_directories()).collect()
    }

    /// Returns the directories of applications, the one that counts most first.
    pub fn application_directories(&self) -> impl Iterator<Item = AssociationDirectory> {
        self.data().map(|path| AssociationDirectory {
            path: path.join("applications"),
            holds: DirectoryContents::Applications,
        })
    }

    /// Returns the data directories, the user's first.
    pub fn data(&self) -> impl Iterator<Item = &Path> {
        self.data_home.iter().chain(&self.data_dirs).map(PathBuf::as_path)
    }

    /// Returns the file in which the user's own choices are: `mimeapps.list` in the configuration directory.
    #[must_use]
    pub fn user_choices(&self) -> Option<PathBuf> {
        self.config_home.as_ref().map(|home| home.join("mimeapps.list"))
    }
}
