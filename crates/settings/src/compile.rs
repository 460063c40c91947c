//! Compiling directories of key files into databases, as `dconf compile` and `dconf update` do.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gvdb::gvariant::{ParseError, Variant};
use gvdb::{self, Image, TableWriteError};
use store::disk::{Disk, FileStat};
use store::generation::Retired;
use store::publish::{PublishError, publish};

use super::path::{PathError, PathKind};
use super::profile::said;
use xdg::keyfile::{self, KeyFile, KeyFileError};

/// Why a database was not compiled; the file that was in place is as it was. The words are those of `dconf`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A directory cannot be read.
    #[error("Error opening directory “{}”: {}", dir.display(), said(source))]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A key file cannot be read.
    #[error("{file}: {}", said(source))]
    File {
        /// The file's name.
        file: String,
        /// What the disk said.
        source: io::Error,
    },
    /// A file of locks cannot be read.
    #[error("Failed to open file “{}”: {}", path.display(), said(source))]
    Locks {
        /// The file.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// A key file is none.
    #[error("{file}: {error}")]
    KeyFile {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        error: KeyFileError,
    },
    /// An entry of a key file is no setting.
    #[error("{file}: {error}")]
    Entry {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        error: EntryError,
    },
    /// Another user placed a part of the path.
    #[error("Refused to use “{}”: {source}", path.display())]
    Untrusted {
        /// The path.
        path: PathBuf,
        /// Which part, and whose it is.
        source: io::Error,
    },
    /// The format cannot hold it.
    #[error("{0}")]
    Image(TableWriteError),
    /// The image was not put in place.
    #[error("{}", not_published(path, error))]
    Publish {
        /// The database.
        path: PathBuf,
        /// What is in place now.
        error: PublishError,
    },
}

/// An entry of a key file that is no setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Group and key make no path of a key.
    #[error("[{group}]: {key}: invalid path: {error}")]
    Path {
        /// The group.
        group: String,
        /// The key.
        key: String,
        /// The rule that is broken.
        error: PathError,
    },
    /// The value is no GVariant text.
    #[error("[{group}]: {key}: invalid value: {value}: {error}")]
    Value {
        /// The group.
        group: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is wrong with it, and where.
        error: ParseError,
    },
}

/// What a directory of key files says.
#[derive(Clone, Debug, Default)]
pub struct KeyFiles {
    /// The values, by path.
    pub values: BTreeMap<String, Variant>,
    /// The locked keys.
    pub locks: Vec<String>,
}

/// What became of one directory in an [`update`].
#[derive(Debug)]
pub struct Updated {
    /// The directory of key files, `…/site.d`.
    pub dir: PathBuf,
    /// The name of the database, `site`; its readers are to be told.
    pub name: String,
    /// What an administrator should know although the database was compiled.
    pub warning: Option<String>,
    /// Whether the database was compiled.
    pub result: Result<(), CompileError>,
}

/// Returns the settings that the entries of a key file give below directory `dir`, in the order of the file, or what
/// is wrong with an entry.
///
/// Entries for a locale that is not among `languages` are left out, as GLib leaves them out.
pub fn settings<'a>(
    file: &'a KeyFile,
    dir: &'a str,
    languages: &'a [String],
) -> impl Iterator<Item = Result<(String, Variant), EntryError>> + 'a {
    let is_wanted = |key: &str| {
        let foreign = |locale| !languages.iter().any(|l| l.eq_ignore_ascii_case(locale));
        !keyfile::translation(key).is_some_and(foreign)
    };
    let entries = file
        .groups()
        .flat_map(move |group| file.entries(group).map(move |(key, value)| (group, key, value)));
    entries.filter(move |(_, key, _)| is_wanted(key)).map(move |(group, key, value)| {
        let path = match group {
            "/" => format!("{dir}{key}"),
            _ => format!("{dir}{group}/{key}"),
        };
        let names = || (group.to_owned(), key.to_owned());
        if let Err(error) = PathKind::Key.check(&path) {
            let (group, key) = names();
            return Err(EntryError::Path { group, key, error });
        }
        Variant::parse(None, value).map(|value| (path, value)).map_err(|error| {
            let (group, key) = names();
            EntryError::Value { group, key, value: value.to_owned(), error }
        })
    })
}

/// Reads a directory of key files and its `locks`. Of a key in several files the last file's value counts.
///
/// # Errors
///
/// The first file that cannot be read or understood.
pub fn read(disk: &dyn Disk, dir: &Path, languages: &[String]) -> Result<KeyFiles, CompileError> {
    let mut files = KeyFiles::default();
    let mut paths = list(disk, dir, FileStat::is_file)?;
    // The file that counts comes first, and so does its error.
    paths.reverse();
    for path in paths {
        let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        check_trusted(disk, &path)?;
        let text =
            disk.read(&path).map_err(|source| CompileError::File { file: name(), source })?;
        let file = KeyFile::parse_text(&text)
            .map_err(|error| CompileError::KeyFile { file: name(), error })?;
        for setting in settings(&file, "/", languages) {
            let (path, value) =
                setting.map_err(|error| CompileError::Entry { file: name(), error })?;
            files.values.entry(path).or_insert(value);
        }
    }
    match list(disk, &dir.join("locks"), FileStat::is_file) {
        Ok(paths) => {
            for path in paths {
                check_trusted(disk, &path)?;
                let text = disk
                    .read(&path)
                    .map_err(|source| CompileError::Locks { path: path.clone(), source })?;
                let text = String::from_utf8_lossy(&text);
                let lines = text.split('\n').filter(|line| line.starts_with('/'));
                files.locks.extend(lines.map(str::to_owned));
            }
        }
        Err(CompileError::Directory { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
        }
        Err(error) => return Err(error),
    }
    files.locks.sort_unstable();
    files.locks.dedup();
    Ok(files)
}

/// Compiles a directory of key files into the database `output`, which is replaced at once and durably.
///
/// # Errors
///
/// `output` is as it was, unless the error says that it was replaced.
pub fn compile(
    disk: &dyn Disk,
    output: &Path,
    dir: &Path,
    languages: &[String],
) -> Result<(), CompileError> {
    check_trusted(disk, dir)?;
    check_trusted(disk, output)?;
    let files = read(disk, dir, languages)?;
    put(disk, output, &files)
}

/// Compiles every directory `X.d` in `dir` into the database `X`, and tells readers of the old one to open it again.
///
/// # Errors
///
/// `dir` cannot be read; what became of each database is in the list.
pub fn update(
    disk: &dyn Disk,
    dir: &Path,
    languages: &[String],
) -> Result<Vec<Updated>, CompileError> {
    check_trusted(disk, dir)?;
    let dirs = list(disk, dir, FileStat::is_dir)?;
    let updated = dirs.into_iter().filter_map(|dir| {
        let name = dir.file_name()?.to_string_lossy().strip_suffix(".d")?.to_owned();
        let mut warning = None;
        let result = update_one(disk, &dir, &dir.with_file_name(&name), languages, &mut warning);
        Some(Updated { dir, name, warning, result })
    });
    Ok(updated.collect())
}

fn update_one(
    disk: &dyn Disk,
    dir: &Path,
    output: &Path,
    languages: &[String],
    warning: &mut Option<String>,
) -> Result<(), CompileError> {
    check_trusted(disk, dir)?;
    check_trusted(disk, output)?;
    let files = read(disk, dir, languages)?;
    let mut warn = |error: &io::Error| {
        let output = output.display();
        *warning = Some(format!("Failed to open '{output}': for replacement: {}", said(error)));
    };
    let old = Retired::open(disk, output).unwrap_or_else(|error| {
        warn(&error);
        None
    });
    put(disk, output, &files)?;
    if let Some(Err(error)) = old.map(Retired::retire) {
        warn(&error);
    }
    Ok(())
}

/// Refuses a path of which another user placed a part: an administrator would read or replace what he chose.
fn check_trusted(disk: &dyn Disk, path: &Path) -> Result<(), CompileError> {
    disk.check_trusted(path)
        .map_err(|source| CompileError::Untrusted { path: path.to_owned(), source })
}

fn put(disk: &dyn Disk, output: &Path, files: &KeyFiles) -> Result<(), CompileError> {
    let entries = files.values.iter().map(|(path, value)| (&**path, value.as_bytes()));
    let locks: Vec<&str> = files.locks.iter().map(String::as_str).collect();
    let image = gvdb::write(entries, &Image { locks: &locks, generation: None })
        .map_err(CompileError::Image)?;
    let failed = |error| CompileError::Publish { path: output.to_owned(), error };
    // A plain name has no directory that could be synced.
    let plain = output.parent().is_none_or(|parent| parent.as_os_str().is_empty());
    let output = if plain { &Path::new(".").join(output) } else { output };
    // A database of the administrator's is for all users, so a new one is made with the mode of an ordinary file
    // before it is published; until then it is as good as missing. A directory is not made: a typing error would be.
    let is_new = match disk.create(output, 0o666) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(source) => {
            let path = output.to_owned();
            return Err(failed(PublishError::NotReplaced { step: "create", path, source }));
        }
    };
    match publish(disk, output, &image) {
        Ok(_) => Ok(()),
        Err(error) => {
            if is_new && matches!(error, PublishError::NotReplaced { .. }) {
                // What cannot be removed is an empty file, which readers take for a missing one.
                let _ = disk.remove(output);
            }
            Err(failed(error))
        }
    }
}

/// Returns the files of one kind in a directory, sorted by their whole path; names that begin with a dot do not count.
fn list(
    disk: &dyn Disk,
    dir: &Path,
    is_wanted: impl Fn(&FileStat) -> bool,
) -> Result<Vec<PathBuf>, CompileError> {
    let names =
        disk.list(dir).map_err(|source| CompileError::Directory { dir: dir.to_owned(), source })?;
    let visible = names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b"."));
    let mut paths: Vec<PathBuf> = visible
        .map(|name| dir.join(name))
        .filter(|path| disk.stat(path).is_ok_and(|stat| is_wanted(&stat)))
        .collect();
    paths.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(paths)
}

fn not_published(path: &Path, error: &PublishError) -> String {
    let (path, cause) = (path.display(), said(error.cause()));
    match error {
        PublishError::NotReplaced { step: "create", .. } => {
            format!("Failed to create file “{path}”: {cause}")
        }
        PublishError::NotReplaced { step, .. } => {
            format!("Failed to {step} file “{path}”: {cause}")
        }
        _ => format!("{error}: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gvdb::GvdbTable;

    #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
    fn put_text(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn no_languages() -> [String; 0] {
        []
    }

    fn read_value(path: &Path, key: &str) -> Option<String> {
        let bytes = std::fs::read(path).unwrap();
        let table = GvdbTable::open(&bytes).unwrap();
        let value = table.value(key)?;
        Some(gvdb::gvariant::VariantView::inside(value, table.order()).to_variant().print())
    }

    #[test]
    fn the_last_file_counts_and_locks_are_nested() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put_text(root, "d/10-a", "[/]\nroot=true\n[a/b]\nk=1\nl=2\n");
        put_text(root, "d/20-b", "[a/b]\nk='late'\nk[de]='spät'\n");
        put_text(root, "d/.swp", "nonsense");
        put_text(root, "d/sub/x", "nonsense");
        put_text(root, "d/locks/one", "/a/b/k\n# comment\n /x\n/y");
        let disk = store::disk::real();
        let out = root.join("out");
        compile(&*disk, &out, &root.join("d"), &no_languages()).unwrap();
        assert_eq!(read_value(&out, "/a/b/k").as_deref(), Some("'late'"));
        assert_eq!(read_value(&out, "/a/b/l").as_deref(), Some("2"));
        assert_eq!(read_value(&out, "/root").as_deref(), Some("true"));
        assert_eq!(read_value(&out, "/a/b/k[de]"), None);
        let bytes = std::fs::read(&out).unwrap();
        let locks = GvdbTable::open(&bytes).unwrap().nested(".locks").unwrap();
        assert!(locks.has("/a/b/k") && locks.has("/y") && !locks.has(" /x"));
        let all = compile(&*disk, &out, &root.join("d"), &["DE".to_owned(), "C".to_owned()]);
        all.unwrap();
        assert_eq!(read_value(&out, "/a/b/k[de]").as_deref(), Some("'spät'"));
    }

    #[test]
    fn a_mistake_leaves_the_old_database_and_says_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let disk = store::disk::real();
        let out = root.join("out");
        put_text(root, "out", "old");
        for (text, wanted) in [
            ("[a]\nb=zz\n", "x: [a]: b: invalid value: zz: 0-2:unknown keyword"),
            (
                "[a/]\nb=1\n",
                "x: [a/]: b: invalid path: dconf key must not contain two consecutive slashes",
            ),
            ("b=1\n", "x: Key file does not start with a group"),
        ] {
            put_text(root, "d/x", text);
            let error = compile(&*disk, &out, &root.join("d"), &no_languages()).unwrap_err();
            assert_eq!(error.to_string(), wanted);
            assert_eq!(std::fs::read(&out).unwrap(), b"old");
        }
        let missing = root.join("gone");
        let error = compile(&*disk, &out, &missing, &no_languages()).unwrap_err();
        let shown = missing.display();
        assert_eq!(
            error.to_string(),
            format!("Error opening directory “{shown}”: No such file or directory")
        );
        put_text(root, "d/x", "");
        let output = root.join("gone/out");
        assert!(compile(&*disk, &output, &root.join("d"), &no_languages()).is_err());
        assert!(!missing.exists(), "a directory is not made");
    }

    #[test]
    fn an_update_goes_on_after_a_mistake_and_marks_the_old_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let disk = store::disk::real();
        put_text(root, "good.d/x", "[a]\nb=1\n");
        put_text(root, "bad.d/x", "[a]\nb=\n");
        put_text(root, "file.d", "");
        let results = |updated: &[Updated]| {
            updated.iter().map(|u| (u.name.clone(), u.result.is_ok())).collect::<Vec<_>>()
        };
        let first = update(&*disk, root, &no_languages()).unwrap();
        assert_eq!(results(&first), [("bad".to_owned(), false), ("good".to_owned(), true)]);
        let old = std::fs::File::open(root.join("good")).unwrap();
        update(&*disk, root, &no_languages()).unwrap();
        let mut head = [1; 8];
        std::os::unix::fs::FileExt::read_exact_at(&old, &mut head, 0).unwrap();
        assert_eq!(head, [0; 8], "readers of the old file notice");
        assert_eq!(read_value(&root.join("good"), "/a/b").as_deref(), Some("1"));
        assert!(!root.join("bad").exists());
    }

    #[test]
    fn a_new_database_can_be_read_by_all_users() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put_text(root, "d/x", "[a]\nb=1\n");
        put_text(root, "ordinary", "");
        compile(&*store::disk::real(), &root.join("out"), &root.join("d"), &no_languages())
            .unwrap();
        let mode = |name| std::fs::metadata(root.join(name)).unwrap().permissions().mode();
        assert_eq!(mode("out"), mode("ordinary"));
    }
}
