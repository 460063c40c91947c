//! Where the files of a database are.

use std::path::PathBuf;

use crate::history;
use crate::names::{DatabaseDirectories, DatabaseId, DatabaseKind};

/// The files of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// The image that readers map.
    pub(super) image: PathBuf,
    /// The flag that tells readers of a `Writer` database to open it again.
    pub(super) flag: PathBuf,
    /// The directory of the snapshots of a `Writer` database.
    pub(super) snapshots: PathBuf,
    /// The history of all databases.
    pub(super) history: PathBuf,
    /// The text of a `keyfile` database.
    pub(super) text: PathBuf,
    /// The file that is locked while the text is read and replaced.
    pub(super) lock: PathBuf,
    /// The last checkpoint of a `journal` database.
    pub(super) checkpoint: PathBuf,
    /// The journal of changes after the checkpoint.
    pub(super) log: PathBuf,
}

/// The suffixes of the files of a `journal` database. Because of the dots they are not listed as
/// `Writer` databases.
const CHECKPOINT: &str = ".journal-image";
const LOG: &str = ".journal-log";

impl Files {
    pub(super) fn of(places: &DatabaseDirectories, id: &DatabaseId) -> Files {
        let name = id.name();
        let image = match id.kind() {
            DatabaseKind::User => places.config.join(name),
            kind => places.volatile.join(kind.segment()).join(name),
        };
        Files {
            image,
            flag: places.flags.join(name),
            snapshots: places.snapshots(),
            history: history::file(places),
            text: places.config.join(format!("{name}.txt")),
            lock: places.config.join(format!("{name}.txt-lock")),
            checkpoint: places.config.join(format!("{name}{CHECKPOINT}")),
            log: places.config.join(format!("{name}{LOG}")),
        }
    }
}

/// Returns the name of the database of a file in the configuration directory.
pub(super) fn name_of(kind: DatabaseKind, file: &str) -> Option<&str> {
    let name = match kind {
        DatabaseKind::User => (!file.contains('.')).then_some(file),
        DatabaseKind::Keyfile => file.strip_suffix(".txt"),
        DatabaseKind::Journal => file.strip_suffix(CHECKPOINT).or_else(|| file.strip_suffix(LOG)),
        DatabaseKind::Shm => None,
    };
    name.filter(|name| DatabaseId::new(kind, name).is_some())
}
