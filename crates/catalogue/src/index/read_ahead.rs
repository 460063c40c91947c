//! Opening an index of which nothing may be in memory yet: then the disk answers the next question while it answers this one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2, stat};
use rustix::io::Errno;

/// Opens the file at `path`; a pipe in its place does not make us wait.
///
/// Where the way to it has to be read from the disk, a thread looks meanwhile at the paths that `next` returns: whoever asks the index looks at them as soon as it is open.
/// On a warm machine that is one system call and no thread.
pub(super) fn open_ahead(path: &Path, next: impl FnOnce() -> Vec<PathBuf>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::AGAIN) => look_at(next()),
        // What else may be wrong is said by the plain call: old kernels and sandboxes do not know this one.
        Err(_) => {}
    }
    Ok(open(path, flags, Mode::empty())?.into())
}

/// Has the kernel read what it must know of these paths; nobody waits for it.
fn look_at(paths: Vec<PathBuf>) {
    let look = move || {
        for path in &paths {
            // What is wrong with it is said to whoever asks.
            let _ = stat(path);
        }
    };
    // Without a thread everything is as right, and slower.
    let _ = std::thread::Builder::new().name("look-ahead".to_owned()).spawn(look);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_and_what_is_missing_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let nothing = || vec![dir.path().join("nothing")];
        let missing = open_ahead(&path, nothing).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        rustix::fs::symlink("target", &path).unwrap();
        rustix::fs::mkdir(dir.path().join("target"), Mode::RWXU).unwrap();
        assert!(open_ahead(&path, nothing).unwrap().metadata().unwrap().is_dir());
    }
}
