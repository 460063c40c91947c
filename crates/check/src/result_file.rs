//! The files of a check: whether they can be written is known before the command runs, and no verdict of an earlier check
//! stays in them.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file for another program, which is written when the check is done.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    open: OpenFile,
    /// Device and inode of the file that was emptied: it is removed if nothing comes.
    emptied: Option<(u64, u64)>,
}

/// Opens a file for writing, and empties it.
pub type OpenFile = fn(&Path) -> io::Result<File>;

/// A file that the same command reads or writes, by what the user calls it, such as `--baseline`.
pub type OtherFile<'a> = (&'a str, &'a Path);

/// Why a result cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct ResultFileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
    /// Whether the command reads or writes the same file for something else; then it keeps what it holds.
    pub is_needed: bool,
}

fn cannot_write(path: &Path, source: io::Error) -> ResultFileError {
    ResultFileError { path: path.to_owned(), source, is_needed: false }
}

/// Opens a file for writing, and empties it; the umask decides who may read a new one.
///
/// # Errors
///
/// As `open(2)`.
pub fn open_for_all(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).open(path)
}

fn place(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Says whether two paths lead to one regular file, or would once it is made.
#[must_use]
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let is_missing = |found: &io::Result<Metadata>| {
        found.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && place(&one) == place(&other),
        (first, second) if is_missing(&first) && is_missing(&second) => {
            // Joined to the working directory, a bare name has a parent, too.
            let whole = |path: &Path| {
                let path = std::path::absolute(path).ok()?;
                Some((path.parent()?.canonicalize().ok()?, path.file_name()?.to_owned()))
            };
            whole(one).is_some_and(|one| Some(one) == whole(other))
        }
        _ => false,
    }
}

impl ResultFile {
    /// Makes sure that the file can be written and is none of `others`, and empties it with `open`: a check that ends with an error,
    /// or is killed, leaves no verdict of an earlier one for a build server to read.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or is one of `others`; it keeps what it holds.
    pub fn prepare(
        path: &Path,
        open: OpenFile,
        others: &[OtherFile<'_>],
    ) -> Result<ResultFile, ResultFileError> {
        if let Some((name, _)) = others.iter().find(|(_, other)| is_same_file(path, other)) {
            let source = io::Error::other(format!("it is also {name}"));
            return Err(ResultFileError { is_needed: true, ..cannot_write(path, source) });
        }
        let path = path.to_owned();
        // A reader of a pipe would take a look at it for its end.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Ok(ResultFile { path, open, emptied: None });
        }
        let emptied = open(&path).and_then(|file| file.metadata());
        let emptied = emptied.map_err(|error| cannot_write(&path, error))?;
        Ok(ResultFile { path, open, emptied: Some(place(&emptied)) })
    }

    /// Writes it; the command may have removed or replaced what was prepared.
    ///
    /// # Errors
    ///
    /// The file cannot be written, and holds nothing then.
    pub fn write(self, text: &str) -> Result<(), ResultFileError> {
        let mut file = (self.open)(&self.path).map_err(|error| cannot_write(&self.path, error))?;
        file.write_all(text.as_bytes()).map_err(|error| {
            // Half a result is none; a pipe cannot be cut, and has told its reader by its end.
            let _ = file.set_len(0);
            cannot_write(&self.path, error)
        })
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        // A link, such as /dev/stdout, is not ours to remove: what it points to stays empty. Nor is what another check wrote.
        let is_ours = |found: Metadata| {
            found.is_file() && found.len() == 0 && Some(place(&found)) == self.emptied
        };
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // If it cannot be removed there is nobody left to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test stands for other programs")]

    use super::*;

    fn prepared(path: &Path) -> Result<ResultFile, ResultFileError> {
        ResultFile::prepare(path, open_for_all, &[])
    }

    #[test]
    fn the_verdict_of_an_earlier_check_is_gone_before_there_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.xml");
        let old = || prepared(&path).unwrap().write("a long text of the last run").unwrap();
        old();
        let file = prepared(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "", "the check may be killed now");
        drop(file);
        assert!(!path.exists());
        old();
        prepared(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        // A link stays, without the verdict.
        let link = dir.path().join("link.xml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        drop(prepared(&link).unwrap());
        assert_eq!(fs::read_to_string(&link).unwrap(), "");
    }

    #[test]
    fn a_file_that_was_made_for_a_result_goes_if_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.xml");
        let file = prepared(&path).unwrap();
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
        // The command may clean its directory.
        let file = prepared(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(prepared(dir.path()).is_err());
        assert!(prepared(&dir.path().join("none/x.xml")).is_err());
        assert!(prepared(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn the_verdict_that_another_check_wrote_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("both.xml");
        let ends_with_an_error = prepared(&path).unwrap();
        prepared(&path).unwrap().write("the other's").unwrap();
        drop(ends_with_an_error);
        assert_eq!(fs::read_to_string(&path).unwrap(), "the other's");
        // In place of ours somebody else begins.
        let ends_with_an_error = prepared(&path).unwrap();
        let new = dir.path().join("new.xml");
        drop(open_for_all(&new).unwrap());
        fs::rename(&new, &path).unwrap();
        drop(ends_with_an_error);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_the_command_needs_is_not_emptied_for_a_result() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        drop(open_for_all(&at("rules")).unwrap());
        std::os::unix::fs::symlink("rules", at("link")).unwrap();
        fs::hard_link(at("rules"), at("second-name")).unwrap();
        let (rules, up) = (at("rules"), at("../").join(dir.path().file_name().unwrap()));
        for same in [at("rules"), at("link"), at("second-name"), up.join("rules")] {
            let others = [("the other file", &*rules)];
            let refused = ResultFile::prepare(&same, open_for_all, &others).unwrap_err();
            assert!(format!("{refused:?}").contains("the other file"), "{refused:?}");
            drop(refused);
            assert!(same.exists());
        }
        assert!(is_same_file(&at("new"), &up.join("new")), "neither is there yet");
        assert!(!is_same_file(&at("new"), &at("rules")) && !is_same_file(&at("a"), &at("b")));
        assert!(!is_same_file(Path::new("/dev/null"), Path::new("/dev/null")));
    }
}
