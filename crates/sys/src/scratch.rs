//! Directories of our own for measuring, which are gone afterwards.

use std::io;
use std::path::Path;

pub use tempfile::TempDir;

/// Makes a directory, open to this user alone, in `parent`; removed with all it holds when dropped.
///
/// # Errors
///
/// As `mkdir(2)`; nothing was made.
pub fn within(parent: &Path) -> io::Result<TempDir> {
    named(parent, ".unjank")
}

/// Makes one whose name does not hide it, for programs that pass over what is hidden.
///
/// # Errors
///
/// As `mkdir(2)`; nothing was made.
pub fn shown_within(parent: &Path) -> io::Result<TempDir> {
    named(parent, "unjank-scratch")
}

/// Makes one whose name says what made it, in case nobody is left to remove it.
fn named(parent: &Path, name: &str) -> io::Result<TempDir> {
    let prefix = format!("{name}-{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        let (one, two) = (within(parent.path()).unwrap(), within(parent.path()).unwrap());
        assert_ne!(one.path(), two.path());
        fs::create_dir(one.path().join("full")).unwrap();
        let _file = tempfile::tempfile_in(parent.path()).unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
        drop((one, two));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_does_not_exist_is_an_error_and_not_made() {
        let parent = tempfile::tempdir().unwrap();
        assert!(within(&parent.path().join("no")).is_err());
        assert!(tempfile::tempfile_in(parent.path().join("no")).is_err());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
