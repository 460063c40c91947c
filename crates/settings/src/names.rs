//! What a database is called, on the bus and on disk.

use std::path::PathBuf;

/// How a database is kept; the element of the object path after `/ca/desrt/dconf/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DatabaseKind {
    /// `Writer`: one file in the configuration directory, replaced and synced at each commit.
    User,
    /// `shm`: a file in the runtime directory, never synced.
    Shm,
    /// `keyfile`: a text file in the configuration directory and a live image in the runtime directory.
    Keyfile,
    /// `journal`: a live image in the runtime directory, a checkpoint and a journal on disk.
    Journal,
}

impl DatabaseKind {
    /// Every kind.
    pub const ALL: [DatabaseKind; 4] =
        [DatabaseKind::User, DatabaseKind::Shm, DatabaseKind::Keyfile, DatabaseKind::Journal];

    /// Returns the element of the object path, for example `Writer`.
    #[must_use]
    pub fn segment(self) -> &'static str {
        match self {
            DatabaseKind::User => "Writer",
            DatabaseKind::Shm => "shm",
            DatabaseKind::Keyfile => "keyfile",
            DatabaseKind::Journal => "journal",
        }
    }

    /// Returns the kind with this element of the object path.
    #[must_use]
    pub fn from_segment(segment: &str) -> Option<DatabaseKind> {
        DatabaseKind::ALL.into_iter().find(|kind| kind.segment() == segment)
    }
}

/// Which database: its kind and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatabaseId {
    kind: DatabaseKind,
    name: Box<str>,
}

/// The object under which all databases are.
const ROOT: &str = "/ca/desrt/dconf/";

impl DatabaseId {
    /// Names a database; `None` if `name` is not one D-Bus path element, `[A-Za-z0-9_]+`.
    ///
    /// The restriction is what makes a name safe as a file name.
    #[must_use]
    pub fn new(kind: DatabaseKind, name: &str) -> Option<DatabaseId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let legal = !name.is_empty() && name.len() <= 200 && name.bytes().all(plain);
        legal.then(|| DatabaseId { kind, name: name.into() })
    }

    /// Reads an object path such as `/ca/desrt/dconf/Writer/user`.
    #[must_use]
    pub fn from_object_path(path: &str) -> Option<DatabaseId> {
        let (segment, name) = path.strip_prefix(ROOT)?.split_once('/')?;
        DatabaseId::new(DatabaseKind::from_segment(segment)?, name)
    }

    /// Returns the object path.
    #[must_use]
    pub fn object_path(&self) -> String {
        format!("{ROOT}{}/{}", self.kind.segment(), self.name)
    }

    /// Returns how the database is kept.
    #[must_use]
    pub fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// Returns the name, for example `user`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.segment(), self.name)
    }
}

/// The directories in which databases and what belongs to them are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseDirectories {
    /// `$XDG_CONFIG_HOME/dconf`: databases, text files and journals.
    pub config: PathBuf,
    /// `$XDG_RUNTIME_DIR/dconf`: the flags that tell readers to open a database again.
    pub flags: PathBuf,
    /// `$XDG_RUNTIME_DIR/dconf-service`: images that need not survive a restart.
    pub volatile: PathBuf,
    /// `$XDG_STATE_HOME/unjank/settings`: snapshots and the history.
    pub state: PathBuf,
}

impl DatabaseDirectories {
    /// Returns the directory of the snapshots.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.state.join("snapshots")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_path_names_one_database() {
        let id = DatabaseId::from_object_path("/ca/desrt/dconf/Writer/user").unwrap();
        assert_eq!((id.kind(), id.name()), (DatabaseKind::User, "user"));
        assert_eq!(id.object_path(), "/ca/desrt/dconf/Writer/user");
        for path in
            ["/", "/ca/desrt/dconf/Writer", "/ca/desrt/dconf/Writer/", "/ca/desrt/dconf/Writer/a/b"]
        {
            assert_eq!(DatabaseId::from_object_path(path), None, "{path}");
        }
        assert_eq!(DatabaseId::from_object_path("/ca/desrt/dconf/writer/user"), None);
        assert_eq!(DatabaseId::from_object_path("/ca/desrt/dconf/Writer/.."), None);
    }
}
