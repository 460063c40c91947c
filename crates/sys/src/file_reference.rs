//! Files that are named by a descriptor and not opened (`O_PATH`).
//!
//! Neither making nor closing such a descriptor asks the file system anything, so that none can hang: one in user space whose
//! server is dead, or one of a machine that cannot be reached. Closing it drops no lock of this process either.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, makedev, openat, openat2, statx,
};

/// A descriptor that names a file.
#[derive(Debug)]
pub struct FileReference(OwnedFd);

/// What the kernel knows about a file without asking its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttributes {
    /// The number of the mount that it was reached through, where the kernel tells it (Linux 5.8).
    pub mount: Option<u64>,
    /// Major and minor number of its file system.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
    /// Its length in bytes.
    pub length: u64,
    /// How many names it has.
    pub links: u32,
    /// Its kind and its permissions.
    pub mode: u32,
    /// Whom it belongs to.
    pub owner: u32,
}

impl FileAttributes {
    /// Says whether it is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Says whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Returns the device in one number, as `stat(2)` has it.
    #[must_use]
    pub fn device_number(&self) -> u64 {
        makedev(self.device.0, self.device.1)
    }

    /// Says whether the permission bits alone let `user` read it; root reads everything.
    #[must_use]
    pub fn may_be_read_by(&self, user: u32) -> bool {
        user == 0 || (if self.owner == user { self.mode & 0o400 } else { self.mode & 0o004 }) != 0
    }
}

/// Returns the number of the mount through which process `pid` has opened its descriptor `number`, without asking the file system.
///
/// # Errors
///
/// As [`FileReference::of_descriptor`].
pub fn mount_of_descriptor(pid: u32, number: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"))?;
    let mount = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    mount.and_then(|mount| mount.trim().parse().ok()).ok_or(io::ErrorKind::NotFound.into())
}

impl FileReference {
    /// Names what process `pid` has as its descriptor `number`.
    ///
    /// Network file systems may be asked whether it is still there: [`mount_of_descriptor`] says first where it is.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it has none, or has ended; `EACCES`: it has other privileges than this process.
    pub fn of_descriptor(pid: u32, number: u32) -> io::Result<FileReference> {
        // A link of `/proc` leads to the file itself: no name is looked up.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let link = format!("/proc/{pid}/fd/{number}");
        Ok(FileReference(openat(CWD, link, flags, Mode::empty())?))
    }

    /// Names what is at `path`, which is absolute, if the kernel knows all names on the way and none is a symbolic link.
    ///
    /// Nothing is waited for from Linux 5.12 on. Older kernels may ask the file systems on the way.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: a file system would have to be asked; `ELOOP`: there is a symbolic link; as `openat2(2)`.
    pub fn at(path: &Path) -> io::Result<FileReference> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(CWD, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED) {
            Ok(file) => Ok(FileReference(file)),
            Err(rustix::io::Errno::INVAL) => {
                Ok(FileReference(openat2(CWD, path, flags, Mode::empty(), resolve)?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what the kernel remembers of the file; on a network or in user space that may be old.
    ///
    /// # Errors
    ///
    /// None is known on kernels since 4.11.
    pub fn attributes(&self) -> io::Result<FileAttributes> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let about = statx(self.0.as_fd(), c"", flags, wanted)?;
        let has_mount = about.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(FileAttributes {
            mount: has_mount.then_some(about.stx_mnt_id),
            device: (about.stx_dev_major, about.stx_dev_minor),
            inode: about.stx_ino,
            length: about.stx_size,
            links: about.stx_nlink,
            mode: about.stx_mode.into(),
            owner: about.stx_uid,
        })
    }

    /// Opens the file for reading. This asks the file system, which may take any time.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    pub fn open_for_reading(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(openat(CWD, self.link(), flags, Mode::empty())?))
    }

    /// Returns a path that leads to the file while this lives.
    #[must_use]
    pub fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_described_and_opened_through_its_reference() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(&dir).unwrap();
        file.write_all(b"something").unwrap();
        let number = u32::try_from(file.as_file().as_raw_fd()).unwrap();
        let open = FileReference::of_descriptor(std::process::id(), number).unwrap();
        let named = FileReference::at(file.path()).unwrap();
        let about = open.attributes().unwrap();
        assert_eq!(about, named.attributes().unwrap());
        let mount = mount_of_descriptor(std::process::id(), number).unwrap();
        assert!(about.mount.is_none_or(|number| number == mount));
        let stat = file.as_file().metadata().unwrap();
        assert_eq!((about.device_number(), about.inode), (stat.dev(), stat.ino()));
        assert!((about.length, about.links) == (9, 1) && about.is_regular());
        // Its name may go: the file stays what it is.
        drop(file);
        assert_eq!(open.attributes().unwrap().links, 0);
        let mut text = String::new();
        open.open_for_reading().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "something");
        assert!(FileReference::at(&dir).unwrap().attributes().unwrap().is_directory());
    }

    #[test]
    fn no_symbolic_link_is_followed_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("directory")).unwrap();
        std::os::unix::fs::symlink("directory", real.join("link")).unwrap();
        assert!(FileReference::at(&real.join("directory/.")).is_ok());
        assert!(FileReference::at(&real.join("link/.")).is_err());
    }

    #[test]
    fn who_may_read_is_told_from_the_permissions() {
        let about = |mode| FileAttributes {
            mount: None,
            device: (0, 0),
            inode: 1,
            length: 1,
            links: 1,
            mode,
            owner: 1000,
        };
        assert!(about(0o600).may_be_read_by(1000) && !about(0o600).may_be_read_by(1001));
        assert!(!about(0o204).may_be_read_by(1000) && about(0o204).may_be_read_by(1001));
        assert!(about(0).may_be_read_by(0));
    }

    #[test]
    fn a_closed_reference_drops_no_lock_of_the_process() {
        use rustix::fs::{FlockOperation, fcntl_lock};
        let file = tempfile::NamedTempFile::new().unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(FileReference::at(&file.path().canonicalize().unwrap()).unwrap());
        // Another process is asked: a lock never stands in the way of its own.
        let probe = "import fcntl, sys\ntry: fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: sys.exit(7)";
        let mut python = std::process::Command::new("python3");
        let status = python.args(["-c", probe]).arg(file.path()).status();
        match status {
            Ok(status) => assert_eq!(status.code(), Some(7)),
            Err(error) => eprintln!("SKIPPED: no python3: {error}"),
        }
    }
}
