//! Databases of single programs: Zeitgeist's log of what was opened, and qpdfview's pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use sys::sqlite::{Access, Database, SqliteError};

use super::name::DocumentName;
use super::{RememberedDocument, StoreKind, Survey, Trouble, files, sql};
use recents::{RecentTime, RecentsFiles};

/// The columns by which an event of Zeitgeist names a document.
const EVENT: [&str; 5] =
    ["subj_id", "subj_id_current", "subj_origin", "subj_origin_current", "origin"];

/// What kind of database it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schema {
    /// Events about rows of a table of URIs.
    Zeitgeist,
    /// Tables with a column `filePath`.
    Paths,
}

fn databases(places: &RecentsFiles) -> Vec<(PathBuf, Schema)> {
    let zeitgeist = places.data.join("zeitgeist/activity.sqlite");
    let backup = places.data.join("zeitgeist/activity.sqlite.bck");
    let pages = places.data.join("qpdfview/qpdfview/database");
    let all = [(zeitgeist, Schema::Zeitgeist), (backup, Schema::Zeitgeist), (pages, Schema::Paths)];
    all.into_iter().filter(|(path, _)| sql::is_database(path)).collect()
}

/// Returns Zeitgeist's index of words, which it makes again.
fn word_index(places: &RecentsFiles) -> Vec<PathBuf> {
    files::regular(&places.data.join("zeitgeist/fts.index"))
}

pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = files::regular(&places.data.join("zeitgeist"));
    found.extend(word_index(places));
    found.extend(files::regular(&places.data.join("qpdfview/qpdfview")));
    found
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for (path, schema) in databases(places) {
        let read = items(&path, schema, places)
            .map_err(|source| Trouble::Database { path: path.clone(), source });
        let read = survey.read(read).unwrap_or_default();
        survey.items.extend(read);
    }
}

fn items(
    path: &Path,
    schema: Schema,
    places: &RecentsFiles,
) -> Result<Vec<RememberedDocument>, SqliteError> {
    let database = Database::open(path, Access::Read)?;
    let mut queries = Vec::new();
    match schema {
        Schema::Zeitgeist => queries.push(
            "SELECT uri.value, actor.value, event.timestamp / 1000 FROM event JOIN uri ON uri.id = event.subj_id LEFT JOIN actor ON actor.id = event.actor".to_owned(),
        ),
        Schema::Paths => {
            for table in tables_of_paths(&database)? {
                queries.push(format!("SELECT filePath, 'qpdfview', NULL FROM \"{table}\""));
            }
        }
    }
    let mut items = Vec::new();
    for query in queries {
        for row in database.rows(&query, &[])? {
            let name = sql::text(&row, 0).and_then(|name| DocumentName::read(name, &places.home));
            let by = sql::text(&row, 1).map(|by| String::from_utf8_lossy(by).into_owned());
            let by = by.map(|by| by.trim_start_matches("application://").to_owned());
            let seconds =
                sql::text(&row, 2).and_then(|at| str::from_utf8(at).ok()?.parse::<i64>().ok());
            items.extend(name.map(|name| RememberedDocument {
                name,
                kind: if schema == Schema::Zeitgeist { StoreKind::Log } else { StoreKind::Reading },
                file: path.to_owned(),
                applications: by.into_iter().collect(),
                uri: None,
                at: seconds.map(|seconds| RecentTime(seconds.saturating_mul(1_000_000))),
            }));
        }
    }
    Ok(items)
}

/// Returns the tables that have a column `filePath`, with names that need no escape.
fn tables_of_paths(database: &Database) -> Result<Vec<String>, SqliteError> {
    let mut found = Vec::new();
    for table in sql::tables(database)? {
        let is_plain = table.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_plain {
            continue;
        }
        let columns = database.rows(&format!("PRAGMA table_info({table})"), &[])?;
        if columns.iter().any(|column| sql::text(column, 1) == Some(b"filePath")) {
            found.push(table);
        }
    }
    Ok(found)
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for (path, schema) in databases(places) {
        let removed = remove_from(&path, schema, places, chosen);
        let is_changed =
            survey.read(removed.map_err(|source| Trouble::Database { path: path.clone(), source }));
        // The words of a name are in it, which no search for the name finds.
        if schema == Schema::Zeitgeist && is_changed == Some(true) {
            for file in word_index(places) {
                survey.read(files::remove(disk, &file));
            }
        }
    }
}

fn remove_from(
    path: &Path,
    schema: Schema,
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
) -> Result<bool, SqliteError> {
    let database = Database::open(path, Access::Write)?;
    let mut is_changed = false;
    sql::clean(path, &database, places, chosen, |database| {
        match schema {
            Schema::Paths => {
                for table in tables_of_paths(database)? {
                    is_changed |= sql::delete(database, &table, "filePath", places, chosen)?;
                }
            }
            Schema::Zeitgeist => {
                for row in database.rows("SELECT id, value FROM uri", &[])? {
                    let (Some(id), Some(written)) = (sql::text(&row, 0), sql::text(&row, 1)) else {
                        continue;
                    };
                    let name = DocumentName::read(written, &places.home);
                    if !name.is_some_and(|name| chosen.contains(&name)) {
                        continue;
                    }
                    // The database's triggers remove texts and URIs that no event has any more.
                    for column in EVENT {
                        let statement =
                            format!("DELETE FROM event WHERE {column} = CAST(? AS INTEGER)");
                        database.rows(&statement, &[id])?;
                    }
                    database.rows("DELETE FROM uri WHERE value = ?", &[written])?;
                    is_changed = true;
                }
            }
        }
        Ok(is_changed)
    })?;
    Ok(is_changed)
}
