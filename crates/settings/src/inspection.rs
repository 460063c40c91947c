//! Whether a database file is intact, and what can be salvaged from one that is not.

use std::io;
use std::path::{Path, PathBuf};

use gvdb::{GvdbTable, Image, Salvaged, Stamp};
use serde::Serialize;
use store::disk::Disk;
use xdg::keyfile::KeyFile;

/// The condition of one database file.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseReport {
    /// The file.
    pub path: PathBuf,
    /// Whether it is damaged.
    pub state: DatabaseState,
    /// What is wrong with a damaged file.
    pub cause: Option<String>,
    /// How many keys it has; 0 if that is not known.
    pub keys: usize,
    /// How many keys can be read, also from a damaged file.
    pub readable: usize,
    /// Whether its checksum is right.
    pub checksum: ChecksumState,
    /// The generation that the checksum protects.
    pub generation: Option<u64>,
}

/// Whether a database file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseState {
    /// Everything in it can be read.
    Intact,
    /// Something in it cannot be read, or its checksum is wrong.
    Damaged,
    /// There is no such file.
    Missing,
}

/// What the checksum of a database file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumState {
    /// It is right.
    Good,
    /// It is wrong.
    Bad,
    /// The file has none: another program wrote it.
    None,
}

/// Returns whether a file is there, and its database is not whole.
///
/// # Errors
///
/// As `open(2)` and `read(2)`: it is not known what is in it.
pub fn is_damaged(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.read(path) {
        Ok(bytes) => Ok(DatabaseReport::of(path, &bytes).state == DatabaseState::Damaged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl DatabaseReport {
    /// Examines the bytes of the database at `path`.
    #[must_use]
    pub fn of(path: &Path, bytes: &[u8]) -> DatabaseReport {
        let stamp = gvdb::stamp(bytes);
        let (checksum, generation) = match stamp {
            Stamp::Good { generation } => (ChecksumState::Good, Some(generation)),
            Stamp::Bad => (ChecksumState::Bad, None),
            Stamp::None => (ChecksumState::None, None),
        };
        let (cause, keys) = match GvdbTable::open(bytes) {
            Err(error) => (Some(error.to_string()), 0),
            Ok(table) => {
                let cause = table.check().err().map(|damage| damage.to_string());
                let wrong = || "the checksum is wrong".to_owned();
                (
                    cause.or_else(|| (checksum == ChecksumState::Bad).then(wrong)),
                    table.entries().count(),
                )
            }
        };
        let state = if cause.is_some() { DatabaseState::Damaged } else { DatabaseState::Intact };
        let readable = if cause.is_some() { gvdb::salvage(bytes).entries.len() } else { keys };
        DatabaseReport { path: path.to_owned(), state, cause, keys, readable, checksum, generation }
    }

    /// Returns the report of a file that does not exist.
    #[must_use]
    pub fn missing(path: &Path) -> DatabaseReport {
        DatabaseReport {
            path: path.to_owned(),
            state: DatabaseState::Missing,
            cause: None,
            keys: 0,
            readable: 0,
            checksum: ChecksumState::None,
            generation: None,
        }
    }
}

/// Returns salvaged keys as a key file, as `dump` prints them, and the keys whose names a key file cannot hold.
#[must_use]
pub fn key_file(found: &Salvaged) -> (KeyFile, Vec<&str>) {
    let (mut file, mut left_out) = (KeyFile::new(), Vec::new());
    for (key, value) in &found.entries {
        let Some((dir, name)) = key.rsplit_once('/') else { continue };
        let group = match dir.strip_prefix('/') {
            None | Some("") => "/",
            Some(group) => group,
        };
        if file.set(group, name, &value.print()).is_err() {
            left_out.push(&**key);
        }
    }
    (file, left_out)
}

/// Returns a new database with the salvaged keys, and with the locks of the damaged one as far as they can be read.
///
/// # Errors
///
/// As [`gvdb::write`].
pub fn salvaged_image(found: &Salvaged, damaged: &[u8]) -> Result<Vec<u8>, gvdb::TableWriteError> {
    let locks: Vec<String> = GvdbTable::open(damaged)
        .ok()
        .and_then(|table| table.nested(".locks"))
        .map(|locks| locks.entries().map(|(key, _)| key).collect())
        .unwrap_or_default();
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    let entries = found.entries.iter().map(|(key, value)| (&**key, value.as_bytes()));
    gvdb::write(entries, &Image { locks: &locks, generation: Some(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gvdb::gvariant::Variant;

    fn image(generation: Option<u64>) -> Vec<u8> {
        let keys: Vec<_> = (0..40).map(|n| (format!("/d{}/k{n:02}", n % 4), n)).collect();
        let mut values: Vec<_> = keys.iter().map(|(k, n)| (&**k, Variant::from(*n))).collect();
        values.sort_by_key(|(key, _)| *key);
        let entries = values.iter().map(|(key, value)| (*key, value.as_bytes()));
        gvdb::write(entries, &Image { locks: &[], generation }).unwrap()
    }

    #[test]
    fn a_whole_file_is_told_from_one_that_lost_anything() {
        let whole = image(Some(7));
        let good = DatabaseReport::of(Path::new("x"), &whole);
        assert_eq!((good.state, good.keys, good.generation), (DatabaseState::Intact, 40, Some(7)));
        assert_eq!(DatabaseReport::of(Path::new("x"), &image(None)).checksum, ChecksumState::None);
        for end in 0..whole.len() {
            assert_eq!(
                DatabaseReport::of(Path::new("x"), &whole[..end]).state,
                DatabaseState::Damaged,
                "cut at {end}"
            );
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            assert_eq!(
                DatabaseReport::of(Path::new("x"), &flipped).state,
                DatabaseState::Damaged,
                "flipped at {at}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_told_to_be_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, path) = (store::disk::real(), dir.path().join("user"));
        assert!(!is_damaged(&*disk, &path).unwrap(), "it is not there");
        store::publish::publish(&*disk, &path, &image(Some(7))).unwrap();
        assert!(!is_damaged(&*disk, &path).unwrap());
        store::publish::publish(&*disk, &path, b"GVariant").unwrap();
        assert!(is_damaged(&*disk, &path).unwrap());
        // A directory and an endless link cannot be read by root either.
        let link = dir.path().join("link");
        disk.symlink(&link, &link).unwrap();
        for unreadable in [dir.path(), &link] {
            is_damaged(&*disk, unreadable).unwrap_err();
        }
    }

    #[test]
    fn a_value_that_is_none_is_damage_even_without_a_checksum() {
        let mut bytes = image(None);
        let table = GvdbTable::open(&bytes).unwrap();
        let value = table.value("/d1/k01").unwrap();
        let at = value.as_ptr().addr() - bytes.as_ptr().addr() + value.len() - 1;
        bytes[at] = b's';
        let report = DatabaseReport::of(Path::new("x"), &bytes);
        assert_eq!((report.state, report.readable), (DatabaseState::Damaged, 39));
    }

    #[test]
    fn what_is_salvaged_is_printed_as_a_key_file() {
        let found = gvdb::salvage(&image(Some(1)));
        let text = String::from_utf8(key_file(&found).0.to_bytes()).unwrap();
        assert!(text.starts_with("[d0]\nk00=0\nk04=4\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains('=')).count(), 40);
    }
}
