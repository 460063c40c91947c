//! The files for pages and exports that a person names.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::{Error, FailureCategory};

/// A new file, still empty; removed again unless [`NewFile::write`] fills it.
#[derive(Debug)]
pub(crate) struct NewFile(report::new_file::NewFile);

impl NewFile {
    /// Makes the file at `path`, which must not exist; for its owner alone.
    pub(crate) fn make(path: &Path) -> Result<NewFile, Error> {
        let made = report::new_file::NewFile::make(path).map(NewFile);
        made.map_err(|error| refused(path, error))
    }

    /// Writes what was waited for.
    pub(crate) fn write(self, text: &str) -> Result<(), Error> {
        let path = self.0.path().to_owned();
        self.0.write(text).map_err(|error| refused(&path, error))
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
