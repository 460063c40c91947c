//! The files for pages and exports that a person names.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::{Error, FailureCategory};

/// A new file, still empty; removed again unless [`NewFile::write`] fills it.
#[derive(Debug)]
pub(crate) struct NewFile(report::page_file::PageFile);

impl NewFile {
    /// Makes the file at `path`, which must not exist; for its owner alone.
    pub(crate) fn make(path: &Path) -> Result<NewFile, Error> {
        let made = report::page_file::PageFile::make(path).map(NewFile);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_made_is_an_error_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        NewFile::make(&path).unwrap().write("page").unwrap();
        let error = NewFile::make(&path).unwrap_err().to_string();
        assert!(error.contains("File exists\nhint: choose another name"), "{error}");
        let error = NewFile::make(&dir.path().join("no/page.html")).unwrap_err().to_string();
        assert!(
            error.contains("page.html: No such file") && error.contains("/no does not exist\n"),
            "{error}"
        );
    }
}
