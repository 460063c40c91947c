//! The socket of one user's daemon: made and removed by the process that holds its lock.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name of the socket in the daemon's directory.
pub(super) const NAME: &str = "listing.sock";

/// The listening socket, with its lock.
#[derive(Debug)]
pub(super) struct Socket {
    listener: OwnedFd,
    path: PathBuf,
    _lock: File,
}

impl Socket {
    /// Waits until no other daemon serves, then listens.
    ///
    /// # Errors
    ///
    /// The directory cannot be made or is open to other users, or the socket cannot be made.
    pub(super) fn take(dir: &Path) -> io::Result<Socket> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let status = fs::symlink_metadata(dir)?;
        let own = rustix::process::geteuid().as_raw();
        if !status.is_dir() || status.uid() != own || status.mode() & 0o077 != 0 {
            let text = "the directory of the socket is open to others";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(dir.join("listing.lock"))?;
        lock.lock()?;
        let path = dir.join(NAME);
        // The process that made it has ended, because its lock was free.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = sys::socket::listen_at(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Socket { listener, path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If this fails, the next daemon removes it.
        let _ = fs::remove_file(&self.path);
    }
}
