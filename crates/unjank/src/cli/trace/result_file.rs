//! The files of a check: whether they can be written is known before the command runs, and no verdict of an earlier check
//! stays in them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use check::output;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::{Error, FailureCategory};

/// A file for another program, which is written when the check is done.
#[derive(Debug)]
pub(super) struct ResultFile {
    path: PathBuf,
    /// Whether it is a file that holds nothing yet: it is removed if nothing comes.
    is_empty: bool,
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(FailureCategory::User, format!("write {}", path.display())).because(error)
}

impl ResultFile {
    /// Makes sure that the file can be written, and empties it: a check that ends with an error, or is killed, leaves no
    /// verdict of an earlier one for a build server to read.
    ///
    /// # Errors
    ///
    /// The file cannot be written; it keeps what it holds.
    pub(super) fn prepare(path: &Path) -> Result<ResultFile, Error> {
        let path = path.to_owned();
        // A reader of a pipe would take a look at it for its end.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Ok(ResultFile { path, is_empty: false });
        }
        output::write_file(&path, "").map_err(|error| cannot_write(&path, error))?;
        Ok(ResultFile { path, is_empty: true })
    }

    /// Writes it; the command may have removed or replaced what was prepared.
    pub(super) fn write(mut self, text: &str) -> Result<(), Error> {
        output::write_file(&self.path, text).map_err(|error| cannot_write(&self.path, error))?;
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
    fn the_verdict_of_an_earlier_check_is_gone_before_there_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.xml");
        let old = || output::write_file(&path, "a long text of the last run").unwrap();
        old();
        let file = ResultFile::prepare(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "", "the check may be killed now");
        drop(file);
        assert!(!path.exists());
        old();
        ResultFile::prepare(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        // A link stays, without the verdict.
        let link = dir.path().join("link.xml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        drop(ResultFile::prepare(&link).unwrap());
        assert_eq!(fs::read_to_string(&link).unwrap(), "");
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
