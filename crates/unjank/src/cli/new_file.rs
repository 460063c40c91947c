//! A new file that is made before the work that fills it: what cannot be written is told at once, and nothing that a person has is replaced.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, FailureCategory};

/// A new file, still empty; removed again unless [`NewFile::write`] fills it.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    file: File,
    is_whole: bool,
}

impl NewFile {
    /// Makes the file at `path`, which must not exist. Its owner alone may read it, whatever the umask is: pages name
    /// files and programs.
    pub(crate) fn make(path: &Path) -> Result<NewFile, Error> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        made.map(|file| NewFile { path: path.to_owned(), file, is_whole: false })
            .map_err(|error| refused(path, error))
    }

    /// Writes what was waited for.
    pub(crate) fn write(mut self, text: &str) -> Result<(), Error> {
        let written = self.file.write_all(text.as_bytes());
        self.is_whole = written.is_ok();
        written.map_err(|error| refused(&self.path, error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let place = |data: std::fs::Metadata| (data.dev(), data.ino());
        let ours = self.file.metadata().map(place);
        let there = std::fs::symlink_metadata(&self.path).map(place);
        // Somebody may have put another file in its place meanwhile.
        if !self.is_whole && ours.is_ok() && ours.ok() == there.ok() {
            // An empty file that stays is told by its size; the error that brought us here is worth more.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn refused(path: &Path, error: io::Error) -> Error {
    let kind = error.kind();
    let told =
        Error::new(FailureCategory::User, format!("write {}", path.display())).because(error);
    match (kind, path.parent()) {
        (ErrorKind::AlreadyExists, _) => {
            told.hint("choose another name, or move the existing file")
        }
        (ErrorKind::NotFound, Some(dir)) => {
            told.hint(format!("the directory {} does not exist", dir.display()))
        }
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test stands for other programs")]

    use super::*;

    #[test]
    fn what_a_command_writes_about_programs_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        NewFile::make(&path).unwrap().write("page").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_nothing_came_into_is_gone_and_one_of_others_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        let made = NewFile::make(&path).unwrap();
        assert!(path.exists());
        drop(made);
        assert!(!path.exists());

        let made = NewFile::make(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(made);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");

        let error = NewFile::make(&path).unwrap_err().to_string();
        assert!(error.contains("File exists\nhint: choose another name"), "{error}");
        let error = NewFile::make(&dir.path().join("no/page.html")).unwrap_err().to_string();
        assert!(
            error.contains("page.html: No such file") && error.contains("/no does not exist\n"),
            "{error}"
        );
    }
}
