//! The files of a check: whether they can be written is known before the command runs, and no verdict of an earlier check
//! stays in them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, FailureCategory};

/// A file for another program, which is written when the check is done.
#[derive(Debug)]
pub(super) struct ResultFile {
    path: PathBuf,
    open: OpenFile,
    /// Whether it is a file that holds nothing yet: it is removed if nothing comes.
    is_empty: bool,
}

/// Opens a file for writing, and empties it.
type OpenFile = fn(&Path) -> io::Result<File>;

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(FailureCategory::User, format!("write {}", path.display())).because(error)
}

/// Opens a file for writing, and empties it; the umask decides who may read a new one.
pub(super) fn open_for_all(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).open(path)
}

impl ResultFile {
    /// Makes sure that the file can be written, and empties it with `open`: a check that ends with an error, or is killed, leaves no
    /// verdict of an earlier one for a build server to read.
    ///
    /// # Errors
    ///
    /// The file cannot be written; it keeps what it holds.
    pub(super) fn prepare(path: &Path, open: OpenFile) -> Result<ResultFile, Error> {
        let path = path.to_owned();
        // A reader of a pipe would take a look at it for its end.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Ok(ResultFile { path, open, is_empty: false });
        }
        open(&path).map_err(|error| cannot_write(&path, error))?;
        Ok(ResultFile { path, open, is_empty: true })
    }

    /// Writes it; the command may have removed or replaced what was prepared.
    pub(super) fn write(mut self, text: &str) -> Result<(), Error> {
        (self.open)(&self.path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| cannot_write(&self.path, error))?;
        self.is_empty = false;
        Ok(())
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        // A link, such as /dev/stdout, is not ours to remove: what it points to stays empty.
        let is_file = || fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file());
        if self.is_empty && is_file() {
            // Half a result is none; if it cannot be removed there is nobody left to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(path: &Path) -> Result<ResultFile, Error> {
        ResultFile::prepare(path, open_for_all)
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
}
