//! The files of a check: whether they can be written is known before the command runs, and nothing in them is lost until then.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use check::output;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::{Error, FailureCategory};

/// A file for another program, which is written when the check is done.
#[derive(Debug)]
pub(super) struct ResultFile {
    path: PathBuf,
    /// Whether it was made for this: it is removed if nothing comes.
    is_new: bool,
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(FailureCategory::User, format!("write {}", path.display())).because(error)
}

impl ResultFile {
    /// Makes sure that the file can be written; one that exists keeps what it holds.
    pub(super) fn prepare(path: &Path) -> Result<ResultFile, Error> {
        let mut file = ResultFile { path: path.to_owned(), is_new: false };
        // A reader of a pipe would take a look at it for its end.
        let is_stream = fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
        if is_stream {
            return Ok(file);
        }
        let new = OpenOptions::new().write(true).create_new(true).open(path);
        file.is_new = new.is_ok();
        let opened = match new {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).create(true).truncate(false).open(path)
            }
            new => new,
        };
        opened.map(|_| file).map_err(|error| cannot_write(path, error))
    }

    /// Writes it; the command may have removed or replaced what was prepared.
    pub(super) fn write(mut self, text: &str) -> Result<(), Error> {
        output::write_file(&self.path, text).map_err(|error| cannot_write(&self.path, error))?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if self.is_new {
            // Half a result is none; if it cannot be removed there is nobody left to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The directory of a file that is replaced as a whole.
#[derive(Debug)]
pub(super) struct ReplacedFile {
    directory: PathBuf,
}

impl ReplacedFile {
    /// Makes sure that a file can be put into its directory, which is made if there is none.
    ///
    /// # Errors
    ///
    /// The directory cannot be made or written.
    pub(super) fn prepare(path: &Path) -> io::Result<ReplacedFile> {
        // Of a link, what it points to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let directory = match target.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        store::publish::make_directory(&*store::disk::real(), directory)?;
        accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(ReplacedFile { directory: directory.to_owned() })
    }

    /// Keeps others who do the same from replacing files of the directory until the result is dropped.
    pub(super) fn lock(&self) -> Option<File> {
        let directory = File::open(&self.directory).ok()?;
        // Network file systems lock no directories; there the last of two that meet within a moment wins.
        directory.lock().ok()?;
        Some(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_keeps_its_text_until_there_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.xml");
        output::write_file(&path, "a long text of the last run").unwrap();
        drop(ResultFile::prepare(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long text of the last run");
        ResultFile::prepare(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_file_that_was_made_for_a_result_goes_if_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.xml");
        let file = ResultFile::prepare(&path).unwrap();
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
        // The command may clean its directory.
        let file = ResultFile::prepare(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ResultFile::prepare(dir.path()).is_err());
        assert!(ResultFile::prepare(&dir.path().join("none/x.xml")).is_err());
        assert!(ResultFile::prepare(Path::new("/dev/null")).is_ok());
        assert!(ReplacedFile::prepare(Path::new("/proc/nowhere/x")).is_err());
        let below = dir.path().join("made/x.baseline");
        assert!(ReplacedFile::prepare(&below).unwrap().lock().is_some());
    }
}
