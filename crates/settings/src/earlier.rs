//! The earlier states of databases that the service keeps: its snapshots.

use std::io;
use std::path::{Path, PathBuf};

use gvdb::gvariant::VariantView;
use store::disk::Disk;
use store::snapshots::{SnapshotPolicy, Snapshots};

use super::database::KeyTable;
use super::names::{DatabaseId, DatabaseKind};
use super::path;

/// An earlier state of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierState {
    /// The name of its file: database, generation and time.
    pub name: String,
    /// The database.
    pub database: DatabaseId,
    /// Where it is.
    pub path: PathBuf,
    /// The generation of the image.
    pub generation: u64,
    /// When it was made, in seconds since 1970.
    pub made_s: u64,
    /// The length of the image in bytes.
    pub bytes: u64,
    /// The keys; `None` if the image is damaged.
    pub table: Option<KeyTable>,
}

/// Lists the snapshots in a directory: by database, the oldest generation first. There are none if there is no directory.
///
/// # Errors
///
/// As `readdir(3)`.
pub fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<EarlierState>> {
    let names = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let mut databases: Vec<DatabaseId> = names
        .iter()
        .filter_map(|name| DatabaseId::new(DatabaseKind::User, name.to_str()?.split('.').next()?))
        .collect();
    databases.sort();
    databases.dedup();
    let mut all = Vec::new();
    for id in databases {
        let snapshots = Snapshots::open(disk, dir, id.name(), SnapshotPolicy::default())?;
        let newest_first = snapshots.newest_first().cloned();
        let mut states: Vec<EarlierState> = newest_first
            .map(|snapshot| {
                let bytes = disk.read(&snapshot.path).unwrap_or_default();
                let name = snapshot.path.file_name().unwrap_or_default();
                EarlierState {
                    name: name.to_string_lossy().into_owned(),
                    database: id.clone(),
                    generation: snapshot.generation,
                    made_s: snapshot.made_s,
                    bytes: bytes.len() as u64,
                    table: intact(&bytes).map(|(table, _)| table),
                    path: snapshot.path,
                }
            })
            .collect();
        states.reverse();
        all.append(&mut states);
    }
    Ok(all)
}

/// Returns the newest snapshot of a database that is intact.
pub(super) fn newest(disk: &dyn Disk, dir: &Path, id: &DatabaseId) -> Option<EarlierState> {
    let snapshots = Snapshots::open(disk, dir, id.name(), SnapshotPolicy::default()).ok()?;
    snapshots.newest_first().find_map(|snapshot| {
        let bytes = disk.read(&snapshot.path).ok()?;
        let (table, generation) = intact(&bytes)?;
        Some(EarlierState {
            name: snapshot.path.file_name()?.to_string_lossy().into_owned(),
            database: id.clone(),
            path: snapshot.path.clone(),
            generation: generation.max(snapshot.generation),
            made_s: snapshot.made_s,
            bytes: bytes.len() as u64,
            table: Some(table),
        })
    })
}

/// Reads an intact image: its keys, and the generation that it says it has, 0 if it says nothing.
pub(super) fn intact(bytes: &[u8]) -> Option<(KeyTable, u64)> {
    let table = gvdb::GvdbTable::open(bytes).ok()?;
    table.check().ok()?;
    let generation = match gvdb::stamp(bytes) {
        gvdb::Stamp::None => 0,
        gvdb::Stamp::Good { generation } => generation,
        gvdb::Stamp::Bad => return None,
    };
    let order = table.order();
    let entries = table.entries().filter(|(name, _)| path::is_key(name));
    let entries =
        entries.map(|(name, value)| (name, VariantView::inside(value, order).to_variant()));
    Some((entries.collect(), generation))
}
