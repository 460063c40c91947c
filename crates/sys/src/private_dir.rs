//! Directories that one user alone reaches, for sockets and files that nobody else is to use.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Makes the directory `path`, with those above it, for this user alone: 0700, whatever the umask is. One that is there gets these permissions.
///
/// Those above it that are there stay as they are: whoever may write them can move this one away, but not reach into it.
///
/// # Errors
///
/// `PermissionDenied`: it belongs to another user; `NotADirectory`: it is none, or a symbolic link; as `mkdir(2)`.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let about = opened.metadata()?;
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if about.mode() & 0o777 != 0o700 {
        rustix::fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_directory_is_its_users_alone_also_if_it_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("above/private");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        make(&path).unwrap();
        assert_eq!(mode(), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        make(&path).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn a_link_and_a_directory_of_somebody_else_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        make(&link).unwrap_err();
        if rustix::process::geteuid().is_root() {
            let other = dir.path().join("other");
            fs::create_dir(&other).unwrap();
            std::os::unix::fs::chown(&other, Some(65534), None).unwrap();
            assert_eq!(make(&other).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        } else {
            eprintln!("SKIPPED: only root gives a directory away");
        }
    }
}
