//! Where the files of a database are.

use std::path::PathBuf;

use super::names::{DatabaseId, Kind, Places};
use crate::settings::history;

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
    /// What came after the checkpoint.
    pub(super) log: PathBuf,
}

/// What is behind the name in the file names of a `journal` database. The dots keep them from being listed as
/// `Writer` databases.
const CHECKPOINT: &str = ".journal-image";
const LOG: &str = ".journal-log";

impl Files {
    pub(super) fn of(places: &Places, id: &DatabaseId) -> Files {
        let name = id.name();
        let image = match id.kind() {
            Kind::User => places.config.join(name),
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

/// Returns the name of the database that a file in the configuration directory belongs to.
pub(super) fn name_of(kind: Kind, file: &str) -> Option<&str> {
    let name = match kind {
        Kind::User => (!file.contains('.')).then_some(file),
        Kind::Keyfile => file.strip_suffix(".txt"),
        Kind::Journal => file.strip_suffix(CHECKPOINT).or_else(|| file.strip_suffix(LOG)),
        Kind::Shm => None,
    };
    name.filter(|name| DatabaseId::new(kind, name).is_some())
}
