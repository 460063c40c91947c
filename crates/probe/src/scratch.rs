//! Files and directories of our own for measuring, which are gone afterwards.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// How many names are tried before we give up.
const TRIES: u32 = 1000;

/// A directory with a name that nothing else has; removed with all it holds when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory, open to this user alone, in `parent`.
    ///
    /// # Errors
    ///
    /// As `mkdir(2)`; nothing was made.
    pub fn within(parent: &Path) -> io::Result<Scratch> {
        Scratch::named(parent, ".unjank")
    }

    /// Makes one whose name does not hide it, for programs that pass over what is hidden.
    ///
    /// # Errors
    ///
    /// As `mkdir(2)`; nothing was made.
    pub fn shown_within(parent: &Path) -> io::Result<Scratch> {
        Scratch::named(parent, "unjank-scratch")
    }

    fn named(parent: &Path, name: &str) -> io::Result<Scratch> {
        unused(parent, name, |path| fs::DirBuilder::new().mode(0o700).create(path))
            .map(|(path, ())| Scratch(path))
    }

    /// Returns where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The name is ours alone; if it cannot be removed there is nobody left to tell.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a file in `dir` that has no name, or none any more.
///
/// # Errors
///
/// As `open(2)`; nothing is left behind.
pub fn nameless(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match openat(CWD, dir, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(File::from(file)),
        // File systems without O_TMPFILE say one of these; a full or read-only one says something else.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOENT) => {
            let (path, file) = unused(dir, ".unjank", |path| {
                OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
            })?;
            fs::remove_file(path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Tries names in `parent` until `make` finds one that is free.
fn unused<T>(
    parent: &Path,
    name: &str,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    let pid = std::process::id();
    let mut last = io::ErrorKind::AlreadyExists.into();
    for number in 0..TRIES {
        let path = parent.join(format!("{name}-{pid}-{number}"));
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        let (one, two) =
            (Scratch::within(parent.path()).unwrap(), Scratch::within(parent.path()).unwrap());
        assert_ne!(one.path(), two.path());
        fs::create_dir(one.path().join("full")).unwrap();
        let _file = nameless(parent.path()).unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
        drop((one, two));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_does_not_exist_is_an_error_and_not_made() {
        let parent = tempfile::tempdir().unwrap();
        assert!(Scratch::within(&parent.path().join("no")).is_err());
        assert!(nameless(&parent.path().join("no")).is_err());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
