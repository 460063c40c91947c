//! A file that is replaced as a whole: whether its directory can be written is known before the command runs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

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
    fn a_directory_that_cannot_be_made_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ReplacedFile::prepare(Path::new("/proc/nowhere/x")).is_err());
        let below = dir.path().join("made/x.baseline");
        assert!(ReplacedFile::prepare(&below).unwrap().lock().is_some());
    }
}
