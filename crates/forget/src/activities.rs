//! The database in which KDE's activity service keeps who opened what and how often, and the copies that it makes of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use sys::sqlite::{Access, Database, SqliteError};

use super::name::DocumentName;
use super::{RememberedDocument, StoreKind, Survey, Trouble, files, sql};
use recents::{RecentTime, RecentsFiles};

/// A table that names documents.
struct Table {
    name: &'static str,
    /// What names the program in it.
    agent: &'static str,
    /// What says when, in seconds.
    time: &'static str,
}

const fn table(name: &'static str, agent: &'static str, time: &'static str) -> Table {
    Table { name, agent, time }
}

static TABLES: [Table; 4] = [
    table("ResourceEvent", "initiatingAgent", "max(start, coalesce(end, start))"),
    table("ResourceScoreCache", "initiatingAgent", "lastUpdate"),
    table("ResourceLink", "initiatingAgent", "NULL"),
    table("ResourceInfo", "NULL", "NULL"),
];

/// Returns the databases: the one in use first, then its backups.
fn databases(places: &RecentsFiles) -> Vec<PathBuf> {
    let dir = places.data.join("kactivitymanagerd/resources");
    let dirs = [dir.clone(), dir.join("working-backup"), dir.join("test-backup")];
    let mut found: Vec<_> = dirs.iter().flat_map(|dir| files::regular(dir)).collect();
    found.retain(|path| sql::is_database(path));
    found
}

/// Returns all files of the service, so that a log of a database that is gone is searched too.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let dir = places.data.join("kactivitymanagerd/resources");
    let below = files::directories(&dir);
    std::iter::once(&dir).chain(&below).flat_map(|dir| files::regular(dir)).collect()
}

/// Opens a database, with the tables of ours that it has.
fn open(path: &Path, access: Access) -> Result<(Database, Vec<&'static Table>), SqliteError> {
    let database = Database::open(path, access)?;
    let names = sql::tables(&database)?;
    let tables = TABLES.iter().filter(|table| names.iter().any(|n| n == table.name)).collect();
    Ok((database, tables))
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for path in databases(places) {
        let read =
            items(&path, places).map_err(|source| Trouble::Database { path: path.clone(), source });
        let read = survey.read(read).unwrap_or_default();
        survey.items.extend(read);
    }
}

fn items(path: &Path, places: &RecentsFiles) -> Result<Vec<RememberedDocument>, SqliteError> {
    let (database, tables) = open(path, Access::Read)?;
    let mut items = Vec::new();
    for Table { name: table, agent, time } in tables {
        let query = format!("SELECT targettedResource, {agent}, {time} FROM {table}");
        for row in database.rows(&query, &[])? {
            let name = sql::text(&row, 0).and_then(|name| DocumentName::read(name, &places.home));
            let seconds =
                sql::text(&row, 2).and_then(|time| std::str::from_utf8(time).ok()?.parse().ok());
            let by = sql::text(&row, 1).map(|by| String::from_utf8_lossy(by).into_owned());
            items.extend(name.map(|name| RememberedDocument {
                name,
                kind: StoreKind::Activities,
                file: path.to_owned(),
                applications: by.into_iter().collect(),
                uri: None,
                at: seconds.map(|seconds: i64| RecentTime(seconds.saturating_mul(1_000_000))),
            }));
        }
    }
    Ok(items)
}

pub(super) fn remove(
    places: &RecentsFiles,
    _disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for path in databases(places) {
        let removed = remove_from(&path, places, chosen);
        survey.read(removed.map_err(|source| Trouble::Database { path: path.clone(), source }));
    }
}

/// Takes the rows out and has SQLite write the database anew, so that no free page and no log holds them.
fn remove_from(
    path: &Path,
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
) -> Result<(), SqliteError> {
    let (database, tables) = open(path, Access::Write)?;
    sql::clean(path, &database, places, chosen, |database| {
        let mut is_changed = false;
        for Table { name: table, .. } in tables {
            is_changed |= sql::delete(database, table, "targettedResource", places, chosen)?;
        }
        Ok(is_changed)
    })
}
