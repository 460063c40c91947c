//! Where the stores of recent documents are. Everything is given from above; nothing is looked up here.

use std::path::{Path, PathBuf};

/// The directories and files of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
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

impl Places {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the places of a user with this home, and no variables set.
    pub(crate) fn below(home: &str) -> Places {
        let home = PathBuf::from(home);
        let data = home.join(".local/share");
        Places {
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

    #[test]
    fn the_state_of_programs_is_above_ours() {
        assert_eq!(below("/h").state_home(), Path::new("/h/.local/state"));
    }
}
