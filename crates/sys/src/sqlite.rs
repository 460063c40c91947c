//! Databases of SQLite, by the library of the system: loaded only when a database is there, which some program made with it.
//!
//! Whoever finds a database in use shares locks and a log with the program that uses it; nothing but the library knows how.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// What the library is called wherever it is packaged.
const LIBRARY: &CStr = c"libsqlite3.so.0";

const OK: c_int = 0;
const ROW: c_int = 100;
const DONE: c_int = 101;
const NULL: c_int = 5;
const OPEN_READ_ONLY: c_int = 1;
const OPEN_READ_WRITE: c_int = 2;
/// The library copies what is bound.
const TRANSIENT: isize = -1;

/// How long another program's lock is waited for, in milliseconds.
const PATIENCE_MS: c_int = 5_000;
/// After so many instructions of its own machine a statement ends: one on a sound database takes far fewer.
const MOST_INSTRUCTIONS: c_int = 50_000_000;
/// The largest value that is taken out of a database.
const MOST_BYTES: usize = 1 << 20;

/// Why a database could not be used.
#[derive(Debug)]
pub enum SqliteError {
    /// The library is not installed.
    NoLibrary,
    /// What the library said; the statement changed nothing.
    Failed {
        /// Its number of the error.
        code: i32,
        /// Its text.
        text: String,
    },
}

impl std::fmt::Display for SqliteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SqliteError::NoLibrary => write!(f, "cannot load libsqlite3.so.0"),
            SqliteError::Failed { text, .. } => f.write_str(text),
        }
    }
}

impl std::error::Error for SqliteError {}

/// Whether a database may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is only looked at.
    Read,
    /// It may be.
    Write,
}

type Callback = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The functions that are used, as `sqlite3.h` has them.
struct Library {
    open: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    message: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    busy_timeout: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    progress: unsafe extern "C" fn(*mut c_void, c_int, Option<Callback>, *mut c_void),
    prepare: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        c_int,
        *mut *mut c_void,
        *mut *const c_char,
    ) -> c_int,
    bind: unsafe extern "C" fn(*mut c_void, c_int, *const c_char, c_int, isize) -> c_int,
    step: unsafe extern "C" fn(*mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
    column_count: unsafe extern "C" fn(*mut c_void) -> c_int,
    column_type: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    column_blob: unsafe extern "C" fn(*mut c_void, c_int) -> *const u8,
    column_bytes: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
}

static LOADED: OnceLock<Option<Library>> = OnceLock::new();

/// Looks one function up.
///
/// # Safety
///
/// `F` is the type of the function of this name.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: the library is open, and the name ends in NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller promises that the address is that of an `F`, which has the size of an address.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one list of names and types, each as sqlite3.h has it"
)]
fn load() -> Option<Library> {
    // SAFETY: the name ends in NUL; the library's constructors have no condition.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    // SAFETY: each type is that of the function in `sqlite3.h`, which the library keeps stable.
    unsafe {
        Some(Library {
            open: function(library, c"sqlite3_open_v2")?,
            close: function(library, c"sqlite3_close_v2")?,
            message: function(library, c"sqlite3_errmsg")?,
            busy_timeout: function(library, c"sqlite3_busy_timeout")?,
            progress: function(library, c"sqlite3_progress_handler")?,
            prepare: function(library, c"sqlite3_prepare_v2")?,
            bind: function(library, c"sqlite3_bind_text")?,
            step: function(library, c"sqlite3_step")?,
            finalize: function(library, c"sqlite3_finalize")?,
            column_count: function(library, c"sqlite3_column_count")?,
            column_type: function(library, c"sqlite3_column_type")?,
            column_blob: function(library, c"sqlite3_column_blob")?,
            column_bytes: function(library, c"sqlite3_column_bytes")?,
        })
    }
}

/// A row: the bytes of each column, as text where it is a number; nothing where it is `NULL` or too large.
pub type SqliteRow = Vec<Option<Vec<u8>>>;

/// An open database.
pub struct Database {
    library: &'static Library,
    /// Ours alone: it is used by one thread at a time.
    connection: *mut c_void,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// Opens a database that exists.
    ///
    /// # Errors
    ///
    /// There is no library, the file cannot be opened or it is no database; nothing is changed.
    pub fn open(path: &Path, access: Access) -> Result<Database, SqliteError> {
        let library = LOADED.get_or_init(load).as_ref().ok_or(SqliteError::NoLibrary)?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| SqliteError::Failed {
            code: 0,
            text: io::Error::from(io::ErrorKind::InvalidInput).to_string(),
        })?;
        let flags = match access {
            Access::Read => OPEN_READ_ONLY,
            Access::Write => OPEN_READ_WRITE,
        };
        let mut connection = null_mut();
        // SAFETY: the name ends in NUL, and the place for the connection is ours.
        let code = unsafe { (library.open)(name.as_ptr(), &raw mut connection, flags, null()) };
        // Also after a failure there may be a connection, which says why and has to be closed.
        let database = Database { library, connection };
        if code != OK {
            return Err(database.failure(code));
        }
        // SAFETY: the connection is open.
        unsafe { (library.busy_timeout)(connection, PATIENCE_MS) };
        // SAFETY: the connection is open; the function lives for ever and reads nothing through its argument.
        unsafe { (library.progress)(connection, MOST_INSTRUCTIONS, Some(give_up), null_mut()) };
        // What a stranger put into the schema is not run.
        database.rows("PRAGMA trusted_schema = OFF", &[])?;
        Ok(database)
    }

    /// Runs one statement, with these texts in the place of its `?`, and returns its rows.
    ///
    /// # Errors
    ///
    /// What the library says: another program holds a lock too long, the database is damaged. The statement changed nothing.
    pub fn rows(&self, statement: &str, texts: &[&[u8]]) -> Result<Vec<SqliteRow>, SqliteError> {
        let statement = Statement::prepare(self, statement)?;
        for (at, text) in (1..).zip(texts) {
            statement.bind(at, text)?;
        }
        let mut rows = Vec::new();
        while statement.step()? {
            rows.push(statement.row());
        }
        Ok(rows)
    }

    fn failure(&self, code: c_int) -> SqliteError {
        let mut text = String::new();
        if !self.connection.is_null() {
            // SAFETY: the connection is there; the text lives until the next call with it.
            let message = unsafe { (self.library.message)(self.connection) };
            if !message.is_null() {
                // SAFETY: it ends in NUL.
                text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
            }
        }
        SqliteError::Failed { code, text }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the connection is null or open, and not used again.
        unsafe { (self.library.close)(self.connection) };
    }
}

extern "C" fn give_up(_: *mut c_void) -> c_int {
    1
}

/// A prepared statement.
struct Statement<'a> {
    database: &'a Database,
    pointer: *mut c_void,
}

impl Statement<'_> {
    fn prepare<'a>(database: &'a Database, text: &str) -> Result<Statement<'a>, SqliteError> {
        let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        let mut pointer = null_mut();
        // SAFETY: the connection is open, the text has this length, and the place for the statement is ours.
        let code = unsafe {
            (database.library.prepare)(
                database.connection,
                text.as_ptr().cast(),
                len,
                &raw mut pointer,
                null_mut(),
            )
        };
        if code == OK && !pointer.is_null() {
            Ok(Statement { database, pointer })
        } else {
            Err(database.failure(code))
        }
    }

    fn bind(&self, at: c_int, text: &[u8]) -> Result<(), SqliteError> {
        let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        // SAFETY: the statement is there, and the text has this length and is copied.
        let code = unsafe {
            (self.database.library.bind)(self.pointer, at, text.as_ptr().cast(), len, TRANSIENT)
        };
        if code == OK { Ok(()) } else { Err(self.database.failure(code)) }
    }

    /// Goes to the next row and says whether there is one.
    fn step(&self) -> Result<bool, SqliteError> {
        // SAFETY: the statement is there.
        match unsafe { (self.database.library.step)(self.pointer) } {
            ROW => Ok(true),
            DONE => Ok(false),
            code => Err(self.database.failure(code)),
        }
    }

    fn row(&self) -> SqliteRow {
        // SAFETY: the statement is there.
        let columns = unsafe { (self.database.library.column_count)(self.pointer) };
        (0..columns).map(|at| self.column(at)).collect()
    }

    fn column(&self, at: c_int) -> Option<Vec<u8>> {
        let library = self.database.library;
        // SAFETY: the statement is at a row that has this column.
        if unsafe { (library.column_type)(self.pointer, at) } == NULL {
            return None;
        }
        // SAFETY: as above.
        let bytes = unsafe { (library.column_blob)(self.pointer, at) };
        // SAFETY: as above; asked after the bytes, as the library wants it.
        let len = unsafe { (library.column_bytes)(self.pointer, at) };
        let len = usize::try_from(len).ok().filter(|len| *len <= MOST_BYTES)?;
        if bytes.is_null() {
            return Some(Vec::new());
        }
        // SAFETY: the library says that so many bytes are there, until the next step.
        Some(unsafe { std::slice::from_raw_parts(bytes, len) }.to_vec())
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: the statement is not used again.
        unsafe { (self.database.library.finalize)(self.pointer) };
    }
}

/// Whether a file begins as a database of SQLite does.
#[must_use]
pub fn is_database(start: &[u8]) -> bool {
    start.starts_with(b"SQLite format 3\0")
}

/// Returns the files that belong to a database, itself first: those that are not there as well.
#[must_use]
pub fn files(path: &Path) -> [std::path::PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|ending| {
        let mut name = path.as_os_str().to_owned();
        name.push(OsStr::new(ending));
        name.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with one table of three rows, made by the library itself; `None` where there is none.
    fn sample(dir: &Path) -> Option<Database> {
        let path = dir.join("database");
        std::fs::File::options().write(true).create_new(true).open(&path).unwrap();
        match Database::open(&path, Access::Write) {
            Err(SqliteError::NoLibrary) => None,
            database => {
                let database = database.unwrap();
                for statement in [
                    "CREATE TABLE t (name TEXT, number INTEGER)",
                    "INSERT INTO t VALUES ('one', 1), ('it''s', NULL), ('', 3)",
                ] {
                    assert_eq!(database.rows(statement, &[]).unwrap(), Vec::<SqliteRow>::new());
                }
                Some(database)
            }
        }
    }

    #[test]
    fn rows_come_with_texts_numbers_and_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let Some(database) = sample(dir.path()) else { return };
        let rows = database.rows("SELECT name, number FROM t WHERE name <> ?", &[b"one"]).unwrap();
        assert_eq!(
            rows,
            [vec![Some(b"it's".to_vec()), None], vec![Some(vec![]), Some(b"3".to_vec())]]
        );
        drop(database);
        let read = Database::open(&dir.path().join("database"), Access::Read).unwrap();
        let refused = read.rows("DELETE FROM t", &[]).unwrap_err().to_string();
        assert!(refused.contains("readonly"), "{refused}");
    }

    #[test]
    fn what_is_no_database_or_never_ends_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let Some(database) = sample(dir.path()) else { return };
        let endless =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let stopped = database.rows(endless, &[]).unwrap_err().to_string();
        assert!(stopped.contains("interrupt"), "{stopped}");
        assert!(Database::open(&dir.path().join("none"), Access::Write).is_err());
        let file = dir.path().join("text");
        std::io::Write::write_all(
            &mut std::fs::File::options().write(true).create_new(true).open(&file).unwrap(),
            &[b'x'; 5000],
        )
        .unwrap();
        let refused = Database::open(&file, Access::Read)
            .and_then(|d| d.rows("SELECT * FROM sqlite_master", &[]));
        assert!(refused.is_err());
    }
}
