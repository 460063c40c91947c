//! The paths of the stores of recent documents, which the caller provides.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The second name of the shared file.
pub(super) const LAST_VERSION: &str = "last-version";

/// The directories and files of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentsFiles {
    /// The directory of the journal and of what belongs to it (`$XDG_STATE_HOME/unjank/recents`).
    pub state: PathBuf,
    /// The same on memory, for what need not survive the session (`$XDG_RUNTIME_DIR/unjank/recents`).
    pub runtime: Option<PathBuf>,
    /// The file that GTK's and KDE's programs share (`$XDG_DATA_HOME/recently-used.xbel`).
    pub xbel: PathBuf,
    /// The directory of KDE's links (`$XDG_DATA_HOME/RecentDocuments`).
    pub links: PathBuf,
    /// The user's data, below which other programs keep lists of their own (`$XDG_DATA_HOME`).
    pub data: PathBuf,
    /// The user's configuration (`$XDG_CONFIG_HOME`).
    pub config: PathBuf,
    /// Configuration for everybody, the one that counts most first (`$XDG_CONFIG_DIRS`).
    pub config_dirs: Vec<PathBuf>,
    /// What can be made again (`$XDG_CACHE_HOME`): thumbnails.
    pub cache: PathBuf,
    /// The user's home, which KDE writes as `$HOME`.
    pub home: PathBuf,
    /// Where temporary files are (`$TMPDIR`, else `/tmp`): nothing below it is remembered.
    pub temporary: PathBuf,
    /// dconf's databases, the one that counts most first.
    pub dconf: Vec<PathBuf>,
}

impl RecentsFiles {
    /// Returns the places by the variables of a program: `variable` is `|name| std::env::var_os(name)`.
    ///
    /// A variable that is empty or not absolute counts as not set. Of dconf's databases, it is the user's own.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> RecentsFiles {
        let directory = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = directory("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let below = |name, fallback| directory(name).unwrap_or_else(|| home.join(fallback));
        let (data, config) =
            (below("XDG_DATA_HOME", ".local/share"), below("XDG_CONFIG_HOME", ".config"));
        let config_dirs = variable("XDG_CONFIG_DIRS").filter(|value| !value.is_empty());
        let config_dirs = config_dirs.unwrap_or_else(|| "/etc/xdg".into());
        RecentsFiles {
            state: below("XDG_STATE_HOME", ".local/state").join("unjank/recents"),
            runtime: directory("XDG_RUNTIME_DIR").map(|directory| directory.join("unjank/recents")),
            xbel: data.join("recently-used.xbel"),
            links: data.join("RecentDocuments"),
            data,
            config_dirs: std::env::split_paths(&config_dirs)
                .filter(|path| path.is_absolute())
                .collect(),
            cache: below("XDG_CACHE_HOME", ".cache"),
            temporary: directory("TMPDIR").unwrap_or_else(|| "/tmp".into()),
            dconf: vec![config.join("dconf/user")],
            config,
            home,
        }
    }

    /// Returns the places of a user with this home, and no variables set.
    #[must_use]
    pub fn below(home: &Path) -> RecentsFiles {
        let home = home.to_owned();
        let data = home.join(".local/share");
        RecentsFiles {
            state: home.join(".local/state/unjank/recents"),
            runtime: None,
            xbel: data.join("recently-used.xbel"),
            links: data.join("RecentDocuments"),
            data,
            config: home.join(".config"),
            config_dirs: Vec::new(),
            cache: home.join(".cache"),
            temporary: PathBuf::from("/tmp"),
            dconf: Vec::new(),
            home,
        }
    }

    /// Returns the file of the journal on the disk, which in volatile mode is the copy of the one in memory.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.state.join("journal")
    }

    /// Returns the file of the user's own rules.
    #[must_use]
    pub fn rules(&self) -> PathBuf {
        self.config.join("unjank/recent.rules")
    }

    /// Returns where programs keep their state (`$XDG_STATE_HOME`), in which ours has a folder of its own.
    #[must_use]
    pub fn state_home(&self) -> PathBuf {
        let is_usual = self.state.ends_with("unjank/recents");
        let above = self.state.ancestors().nth(2).filter(|_| is_usual);
        above.map_or_else(|| self.home.join(".local/state"), Path::to_owned)
    }
}

/// Returns both names that a last version may have: that of a list on the disk, and that of one in memory.
pub(super) fn last_version_paths(places: &RecentsFiles) -> impl Iterator<Item = PathBuf> {
    std::iter::once(&places.state).chain(&places.runtime).map(|dir| dir.join(LAST_VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_say_where_the_lists_are() {
        let variables = |name: &str| {
            let value = match name {
                "HOME" => "/home/ann",
                "XDG_DATA_HOME" => "/data",
                "XDG_STATE_HOME" => "relative",
                "XDG_CONFIG_DIRS" => "/etc/one:relative:/etc/two",
                "TMPDIR" => "",
                _ => return None,
            };
            Some(OsString::from(value))
        };
        let expected = RecentsFiles {
            xbel: "/data/recently-used.xbel".into(),
            links: "/data/RecentDocuments".into(),
            data: "/data".into(),
            config_dirs: vec!["/etc/one".into(), "/etc/two".into()],
            dconf: vec!["/home/ann/.config/dconf/user".into()],
            ..RecentsFiles::below(Path::new("/home/ann"))
        };
        assert_eq!(RecentsFiles::from_variables(variables), expected);
    }

    #[test]
    fn the_state_of_programs_is_above_ours() {
        assert_eq!(RecentsFiles::below(Path::new("/h")).state_home(), Path::new("/h/.local/state"));
    }
}
