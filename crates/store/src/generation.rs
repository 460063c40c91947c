//! The one-shot flag that tells dconf readers to open the database again.
//!
//! A reader makes the flag file and maps its first byte; the writer sets that byte once and removes the name, so that
//! the next reader makes a new file. A byte that was set is never cleared.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use sys::map::SharedByte;

use crate::disk::{Disk, DiskFile};
use crate::publish::final_target;

/// A reader's side of the flag of a native database.
///
/// Arm a flag *before* the database is opened; a change that is published in between then raises it.
#[derive(Debug)]
pub struct Flag(Option<SharedByte>);

impl Flag {
    /// Makes the flag file at `path` if there is none, in a directory that is made with 0700, and maps it.
    ///
    /// A flag that cannot be opened counts as raised: the reader opens the database again at every read, and is slow
    /// but right.
    #[must_use]
    pub fn arm(path: &Path) -> Flag {
        Flag(map_for_reading(path).ok())
    }

    /// Tells whether the database was replaced since the flag was armed; if so, arm a new flag and open it again.
    ///
    /// One load from memory, no system call.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        let raised = self.0.as_ref().is_none_or(|byte| byte.load() != 0);
        if raised {
            // What the writer did before it raised the flag is seen by what follows.
            fence(Ordering::Acquire);
        }
        raised
    }
}

/// What [`raise`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// There was no flag file: nobody reads.
    NobodyReads,
    /// Every reader that had armed the flag sees it raised.
    Told,
    /// What stood there could not be used as a flag, such as a file of root's in the user's directory, and was
    /// removed. A reader that holds it mapped (only a process of its owner can) learns of changes when it arms a new
    /// flag for another reason; all others, which counted it as raised until now, get a flag that works.
    Repaired,
}

/// Raises the flag at `path`, after the new database was put in place and before the change is answered.
///
/// # Errors
///
/// What stands at `path` can be neither used nor removed; readers of it may not have been told.
pub fn raise(path: &Path) -> io::Result<Raised> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let told = match fs::open(path, flags | OFlags::NOCTTY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Raised::NobodyReads),
        Err(_) => false,
        Ok(file) => set_byte(&File::from(file)).is_ok(),
    };
    match fs::unlink(path) {
        // Another writer was quicker, or the whole directory went.
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::ISDIR | Errno::PERM) => fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?,
        Err(error) => return Err(error.into()),
    }
    Ok(if told { Raised::Told } else { Raised::Repaired })
}

/// The inode of a database that is about to be replaced, whose readers look at its first byte instead of a flag:
/// those of `system-db` and `service-db`.
#[derive(Debug)]
pub struct Retired(Box<dyn DiskFile>);

impl Retired {
    /// Opens the database at `path`, before another file is renamed over it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As `open(2)`; nothing is changed.
    pub fn open(disk: &dyn Disk, path: &Path) -> io::Result<Option<Retired>> {
        // The links are followed here, where those of other users are refused.
        let target = final_target(disk, path)?;
        match disk.open_no_link(&target) {
            Ok(file) => Ok(Some(Retired(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes zeros over the signature of the old inode, after the rename. Its readers open the database again.
    ///
    /// # Errors
    ///
    /// Readers of the old file may go on with its values.
    pub fn retire(mut self) -> io::Result<()> {
        self.0.write_at(0, &[0; 8])
    }
}

fn map_for_reading(path: &Path) -> io::Result<SharedByte> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || fs::open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::from(0o600));
    let file = match open() {
        Err(Errno::NOENT) => {
            let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
            match fs::mkdir(dir, Mode::from(0o700)) {
                Ok(()) | Err(Errno::EXIST) => open()?,
                Err(error) => return Err(error.into()),
            }
        }
        other => other?,
    };
    let file = File::from(file);
    give_it_a_page(&file)?;
    SharedByte::to_read(&file)
}

/// Sets the first byte, and makes the file two bytes long, as readers do.
fn set_byte(file: &File) -> io::Result<()> {
    // Whoever sees the byte sees what this thread did before, the rename above all.
    fence(Ordering::SeqCst);
    // A write changes the page that readers have mapped; a mapping of our own would take four times as long.
    file.write_all_at(&[1, 0], 0)
}

/// Makes the file two bytes long without a touch of the first, which may have been set meanwhile.
fn give_it_a_page(file: &File) -> io::Result<()> {
    file.write_all_at(&[0], 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_flag_is_seen_once_and_the_next_one_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dconf/user");
        let first = Flag::arm(&path);
        let second = Flag::arm(&path);
        assert!(!first.is_raised() && !second.is_raised());
        assert_eq!(raise(&path).unwrap(), Raised::Told);
        assert!(first.is_raised() && second.is_raised());
        assert!(!path.exists(), "the flag file is one-shot");
        let third = Flag::arm(&path);
        assert!(!third.is_raised() && first.is_raised());
    }

    #[test]
    fn raising_without_readers_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dconf/user");
        assert_eq!(raise(&path).unwrap(), Raised::NobodyReads);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn what_is_no_flag_is_removed_and_counts_as_raised_until_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user");
        let make: [&dyn Fn(); 3] = [
            &|| std::fs::create_dir(&path).unwrap(),
            &|| std::os::unix::fs::symlink("/dev/null", &path).unwrap(),
            &|| rustix::fs::mknodat(CWD, &path, fs::FileType::Fifo, 0o600.into(), 0).unwrap(),
        ];
        for make in make {
            make();
            assert!(Flag::arm(&path).is_raised());
            assert_eq!(raise(&path).unwrap(), Raised::Repaired);
            assert!(!Flag::arm(&path).is_raised());
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn arming_again_never_clears_a_raised_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user");
        let flag = Flag::arm(&path);
        std::fs::hard_link(&path, dir.path().join("kept")).unwrap();
        raise(&path).unwrap();
        // A reader that opened the old inode just before it was unlinked.
        assert!(Flag::arm(&dir.path().join("kept")).is_raised());
        assert!(flag.is_raised());
    }

    #[test]
    fn a_retired_inode_loses_its_signature_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let disk = crate::disk::real();
        let path = dir.path().join("site");
        assert!(Retired::open(&*disk, &path).unwrap().is_none());
        crate::publish::publish(&*disk, &path, b"GVariant old").unwrap();
        let reader = File::open(&path).unwrap();
        let old = Retired::open(&*disk, &path).unwrap().unwrap();
        crate::publish::publish(&*disk, &path, b"GVariant new").unwrap();
        old.retire().unwrap();
        let mut seen = [0; 12];
        reader.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"\0\0\0\0\0\0\0\0 old");
        assert_eq!(disk.read(&path).unwrap(), b"GVariant new");
    }
}
