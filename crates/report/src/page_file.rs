//! The file of a page, which is made before the work that fills it: what cannot be written is told at once, and nothing that a person has is replaced.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of a page or an export, still empty; removed again unless [`PageFile::write`] fills it.
#[derive(Debug)]
pub struct PageFile {
    path: PathBuf,
    file: File,
    is_whole: bool,
}

impl PageFile {
    /// Makes the file at `path`. Its owner alone may read it, whatever the umask is: pages name files and programs.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if there is something at `path`, which stays as it is, or what the system said of making
    /// the file; nothing is left.
    pub fn make(path: &Path) -> io::Result<PageFile> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(PageFile { path: path.to_owned(), file, is_whole: false })
    }

    /// Writes what was waited for.
    ///
    /// # Errors
    ///
    /// What the system said; the file is removed.
    pub fn write(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.is_whole = true;
        Ok(())
    }

    /// Returns where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PageFile {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test stands for other programs")]

    use super::*;

    #[test]
    fn what_a_command_writes_about_programs_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        PageFile::make(&path).unwrap().write("page").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_nothing_came_into_is_gone_and_one_of_others_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        let made = PageFile::make(&path).unwrap();
        assert!(path.exists());
        drop(made);
        assert!(!path.exists());

        let made = PageFile::make(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(made);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");

        let error = PageFile::make(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
