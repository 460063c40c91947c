//! Where the files of an installation belong.

use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::trust::{self, ProgramOwner};

use crate::error::SetupError;

/// The directories of a user's session, all absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDirectories {
    /// The home.
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`.
    pub config: PathBuf,
    /// `$XDG_DATA_HOME`.
    pub data: PathBuf,
    /// `$XDG_STATE_HOME`.
    pub state: PathBuf,
}

/// For whom parts are switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupScope {
    /// The user who asks.
    User,
    /// Every user of the machine.
    System,
}

/// The directories of an installation, as programs will see them, and where they are while a package is put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupLayout {
    /// For whom it is.
    pub scope: SetupScope,
    /// D-Bus service files.
    pub services: PathBuf,
    /// Units of users' managers.
    pub units: PathBuf,
    /// Drop-ins of background units, and the template that holds them.
    pub adopted_units: PathBuf,
    /// Actions of polkit.
    pub actions: PathBuf,
    /// Files of `environment.d(5)`.
    pub environment: PathBuf,
    /// Programs.
    pub programs: PathBuf,
    /// Libraries that are preloaded.
    pub libraries: PathBuf,
    /// Notices of licences.
    pub documents: PathBuf,
    /// Desktop files, whose changes make the index out of date: as a unit of systemd names them.
    pub desktop_files: String,
    /// The lists of recent documents, as `environment.d(5)` names their directory.
    pub recents: String,
    /// What was done.
    pub manifest: PathBuf,
    /// The directory that stands for `/` while a package is put together.
    pub root: Option<PathBuf>,
}

impl SetupLayout {
    /// Returns where the files of one user belong.
    #[must_use]
    pub fn of_user(directories: &SessionDirectories) -> SetupLayout {
        let SessionDirectories { home, config, data, state } = directories;
        let local = home.join(".local");
        SetupLayout {
            scope: SetupScope::User,
            services: data.join("dbus-1/services"),
            units: data.join("systemd/user"),
            adopted_units: config.join("systemd/user"),
            actions: data.join("polkit-1/actions"),
            environment: config.join("environment.d"),
            programs: local.join("bin"),
            libraries: local.join("lib/unjank"),
            documents: local.join("share/doc/unjank"),
            desktop_files: data.join("applications").display().to_string(),
            recents: data.display().to_string(),
            manifest: state.join("unjank/setup.json"),
            root: None,
        }
    }

    /// Returns where the files for every user belong, below a prefix such as `/usr/local`.
    #[must_use]
    pub fn of_system(prefix: &Path) -> SetupLayout {
        let is_usual = ["/usr", "/usr/local"].iter().any(|usual| prefix == Path::new(usual));
        let variable = if is_usual { PathBuf::from("/var") } else { prefix.join("var") };
        let adopted = match is_usual {
            true => PathBuf::from("/etc/systemd/system"),
            false => prefix.join("lib/systemd/system"),
        };
        SetupLayout {
            scope: SetupScope::System,
            services: prefix.join("share/dbus-1/services"),
            units: prefix.join("lib/systemd/user"),
            adopted_units: adopted,
            // polkit reads no other directory of actions, whatever the prefix is.
            actions: match is_usual {
                true => PathBuf::from("/usr/share/polkit-1/actions"),
                false => prefix.join("share/polkit-1/actions"),
            },
            environment: prefix.join("lib/environment.d"),
            programs: prefix.join("bin"),
            libraries: prefix.join("lib/unjank"),
            documents: prefix.join("share/doc/unjank"),
            desktop_files: "%h/.local/share/applications".to_owned(),
            recents: "${XDG_DATA_HOME:-$HOME/.local/share}".to_owned(),
            manifest: variable.join("lib/unjank/setup.json"),
            root: None,
        }
    }

    /// Returns the same with `root` in the place of `/`, for packages. The files name the paths that they will have later.
    #[must_use]
    pub fn staged_below(self, root: &Path) -> SetupLayout {
        let adopted_units = match self.scope {
            // What an administrator writes is in /etc, what a package brings is not.
            SetupScope::System => self.units.with_file_name("system"),
            SetupScope::User => self.adopted_units.clone(),
        };
        SetupLayout { adopted_units, root: Some(root.to_owned()), ..self }
    }

    /// Returns where a path of the installation is now.
    #[must_use]
    pub fn at(&self, path: &Path) -> PathBuf {
        match &self.root {
            None => path.to_owned(),
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        }
    }

    /// Returns the permission bits of new directories.
    pub(crate) fn directory_mode(&self) -> u32 {
        match self.scope {
            SetupScope::User => 0o700,
            SetupScope::System => 0o755,
        }
    }

    /// Refuses directories in which somebody else decides what is there: of what every user runs, everybody but root; of
    /// what one user runs, every other user. A package is put together anywhere.
    ///
    /// # Errors
    ///
    /// [`SetupError::OpenToOthers`] or [`SetupError::AnotherUsers`], with the path; nothing was changed.
    pub fn check(&self, disk: &dyn Disk) -> Result<(), SetupError> {
        if self.root.is_some() {
            return Ok(());
        }
        let manifest = self.manifest.parent().unwrap_or(Path::new("/"));
        let all = [&self.programs, &self.services, &self.units, &self.libraries, &self.environment];
        let of_system = match self.scope {
            SetupScope::System => vec![&self.adopted_units, &self.actions],
            SetupScope::User => Vec::new(),
        };
        let all = all.into_iter().chain(of_system).map(PathBuf::as_path);
        for directory in all.chain([manifest]) {
            let Some(existing) = directory.ancestors().find(|path| path.exists()) else { continue };
            let own = rustix::process::geteuid();
            match self.scope {
                SetupScope::System if own.is_root() => {
                    trust::check(existing, ProgramOwner::ROOT)
                        .map_err(|source| SetupError::OpenToOthers { source })?;
                }
                SetupScope::System => {}
                SetupScope::User => {
                    let unusable = |source: io::Error| SetupError::NotExamined {
                        path: existing.to_owned(),
                        source,
                    };
                    disk.check_trusted(existing).map_err(unusable)?;
                    let owner = disk.stat(existing).map_err(unusable)?.owner.0;
                    if owner != own.as_raw() {
                        return Err(SetupError::AnotherUsers { path: existing.to_owned(), owner });
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_path_is_below_the_root_and_stays_as_it_is_in_the_files() {
        let layout = SetupLayout::of_system(Path::new("/usr")).staged_below(Path::new("/tmp/x"));
        assert_eq!(layout.programs, Path::new("/usr/bin"));
        assert_eq!(layout.at(&layout.programs), Path::new("/tmp/x/usr/bin"));
        assert_eq!(layout.adopted_units, Path::new("/usr/lib/systemd/system"));
        assert_eq!(layout.manifest, Path::new("/var/lib/unjank/setup.json"));
    }

    #[test]
    fn an_unusual_prefix_holds_everything() {
        let layout = SetupLayout::of_system(Path::new("/opt/unjank"));
        for path in [&layout.services, &layout.manifest, &layout.adopted_units] {
            assert!(path.starts_with("/opt/unjank"), "{path:?}");
        }
    }
}
