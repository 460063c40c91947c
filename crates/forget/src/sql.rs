//! What every database of SQLite needs: rows out, and no byte of them left in free pages and logs.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sys::sqlite::{self, Database, SqliteError, SqliteRow};

use super::name::DocumentName;
use super::{Search, files};
use recents::RecentsFiles;

/// Returns whether a file is a database.
pub(super) fn is_database(path: &Path) -> bool {
    let mut start = [0; 16];
    let file = std::fs::File::open(path);
    let read = file.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && sqlite::is_database(&start)
}

/// Returns the text of a column.
pub(super) fn text(row: &SqliteRow, at: usize) -> Option<&[u8]> {
    row.get(at)?.as_deref()
}

/// Returns the names of the tables.
pub(super) fn tables(database: &Database) -> Result<Vec<String>, SqliteError> {
    let rows = database.rows("SELECT name FROM sqlite_master WHERE type = 'table'", &[])?;
    let name = |row: &SqliteRow| Some(String::from_utf8_lossy(text(row, 0)?).into_owned());
    Ok(rows.iter().filter_map(name).collect())
}

/// Deletes the rows whose column names one of the documents, and tells whether there were any.
pub(super) fn delete(
    database: &Database,
    table: &str,
    column: &str,
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
) -> Result<bool, SqliteError> {
    let mut is_changed = false;
    for row in database.rows(&format!("SELECT DISTINCT {column} FROM {table}"), &[])? {
        let Some(written) = text(&row, 0) else { continue };
        if DocumentName::read(written, &places.home).is_some_and(|name| chosen.contains(&name)) {
            let statement = format!("DELETE FROM {table} WHERE {column} = ?");
            database.rows(&statement, &[written])?;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Has `change` delete rows in one transaction, then SQLite write the database anew, so that no free page and no log
/// holds them. Pages of earlier deletions, by whoever, are only seen in the bytes.
pub(super) fn clean(
    path: &Path,
    database: &Database,
    places: &RecentsFiles,
    chosen: &BTreeSet<DocumentName>,
    change: impl FnOnce(&Database) -> Result<bool, SqliteError>,
) -> Result<(), SqliteError> {
    database.rows("PRAGMA secure_delete = ON", &[])?;
    database.rows("PRAGMA temp_store = MEMORY", &[])?;
    database.rows("BEGIN IMMEDIATE", &[])?;
    let is_changed = change(database)?;
    database.rows("COMMIT", &[])?;
    let search = Search::new(chosen, [], places.home.as_os_str().as_bytes());
    let is_left = || {
        let mut files = sqlite::files(path).into_iter();
        files.any(|file| files::read(&file).is_ok_and(|bytes| !search.found(&bytes).is_empty()))
    };
    if is_changed || is_left() {
        database.rows("VACUUM", &[])?;
        database.rows("PRAGMA wal_checkpoint(TRUNCATE)", &[])?;
    }
    Ok(())
}
