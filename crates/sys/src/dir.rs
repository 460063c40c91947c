//! Reading a directory: many names a call, and attributes by base name on the directory's descriptor.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, fstatfs, getxattr, openat, readlinkat,
    statx,
};
use rustix::io::Errno;

pub use libc::{DT_DIR, DT_LNK, DT_REG, DT_UNKNOWN};
pub use rustix::fs::{Statx, StatxFlags, StatxTimestamp};

/// An open directory.
#[derive(Debug)]
pub struct OpenDirectory(OwnedFd);

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One name as the file system keeps it.
#[derive(Clone, Copy, Debug)]
pub struct FileName<'a> {
    /// The name: any bytes but NUL and `/`, never `.` or `..`.
    pub name: &'a CStr,
    /// The type as `d_type` has it, 0 where the file system does not keep it with the name.
    pub kind: u8,
    /// The number of the inode as the directory has it; that of a mount point is hidden behind it.
    pub inode: u64,
}

impl OpenDirectory {
    /// Opens the directory at `path`; a link is followed.
    ///
    /// # Errors
    ///
    /// As `open(2)`: missing, not a directory, not to be read. May hang as long as the file system does.
    pub fn open(path: &Path) -> io::Result<OpenDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(OpenDirectory(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens the same directory again, to read its names from the beginning.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    pub fn again(&self) -> io::Result<OpenDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let again = match openat(&self.0, c".", flags, Mode::empty()) {
            // A directory that may be read and not searched has no way to itself but this.
            Err(Errno::ACCESS) => {
                let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
                openat(CWD, path, flags, Mode::empty())
            }
            other => other,
        };
        Ok(OpenDirectory(again?))
    }

    /// Reads names with one call of `getdents64` into `buffer` and gives them to `each`, in the file system's order
    /// and without `.` and `..`. Says whether there may be more.
    ///
    /// The buffer must have room for one name: 512 bytes are enough on Linux.
    ///
    /// # Errors
    ///
    /// As `getdents64(2)`: the disk failed, or the directory was removed (`ENOENT`).
    pub fn read(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        mut each: impl FnMut(FileName<'_>),
    ) -> io::Result<bool> {
        let mut names = RawDir::new(&self.0, buffer);
        loop {
            let Some(entry) = names.next() else { return Ok(false) };
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b".." | b"") {
                each(FileName { name, kind: kind(entry.file_type()), inode: entry.ino() });
            }
            if names.is_buffer_empty() {
                return Ok(true);
            }
        }
    }

    /// Returns the attributes of `name` itself, a link not followed, an automount not started.
    ///
    /// # Errors
    ///
    /// As `statx(2)`: it has vanished, or the directory may not be searched.
    pub fn status(&self, name: &CStr, wanted: StatxFlags) -> io::Result<Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        Ok(statx(&self.0, name, flags, wanted)?)
    }

    /// Returns the attributes of what `name` leads to.
    ///
    /// # Errors
    ///
    /// As `statx(2)`: it leads nowhere, or in a circle.
    pub fn target_status(&self, name: &CStr, wanted: StatxFlags) -> io::Result<Statx> {
        Ok(statx(&self.0, name, AtFlags::NO_AUTOMOUNT, wanted)?)
    }

    /// Returns the attributes of the directory itself.
    ///
    /// # Errors
    ///
    /// As `statx(2)`.
    pub fn own_status(&self, wanted: StatxFlags) -> io::Result<Statx> {
        Ok(statx(&self.0, c"", AtFlags::EMPTY_PATH, wanted)?)
    }

    /// Returns where the link `name` leads.
    ///
    /// # Errors
    ///
    /// As `readlink(2)`; `EINVAL` if it is no link.
    pub fn target(&self, name: &CStr) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    /// Returns an extended attribute of `name` of up to 64 KiB, a link followed; `None` if it has none or it cannot be
    /// read.
    ///
    /// The way leads through `/proc`, as there is no such call for a directory's descriptor before Linux 6.13.
    #[must_use]
    pub fn extended(&self, name: &CStr, attribute: &CStr) -> Option<Vec<u8>> {
        let mut path = format!("/proc/self/fd/{}/", self.0.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        let mut value = vec![0; 64 << 10];
        let length = getxattr(path, attribute, &mut value[..]).ok()?;
        value.truncate(length);
        Some(value)
    }

    /// Returns up to `most` bytes of the begin of the regular file `name`.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `read(2)`; `InvalidInput` if it is no regular file.
    pub fn begin_of(&self, name: &CStr, most: usize) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = openat(&self.0, name, flags | OFlags::NOCTTY, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), most), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the magic number of the file system, as `statfs(2)` has it.
    ///
    /// # Errors
    ///
    /// As `fstatfs(2)`.
    pub fn file_system(&self) -> io::Result<u64> {
        let magic = fstatfs(&self.0)?.f_type;
        Ok(u64::from_ne_bytes(magic.to_ne_bytes()))
    }
}

/// Returns `d_type`'s number.
fn kind(file_type: FileType) -> u8 {
    match file_type {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        FileType::Unknown => 0,
    }
}

/// Says whether an error of [`OpenDirectory::status`] means that the name is gone.
#[must_use]
pub fn is_vanished(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;

    fn names(directory: &OpenDirectory, bytes: usize) -> Vec<(Vec<u8>, u8)> {
        let mut buffer = vec![MaybeUninit::uninit(); bytes];
        let mut found = Vec::new();
        let mut each = |name: FileName<'_>| found.push((name.name.to_bytes().to_vec(), name.kind));
        while directory.read(&mut buffer, &mut each).unwrap() {}
        found.sort();
        found
    }

    #[test]
    fn a_small_and_a_large_buffer_read_the_same_names() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::create_dir(dir.path().join(format!("entry {number}"))).unwrap();
        }
        let odd: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').take(200).collect();
        std::os::unix::fs::symlink("to", dir.path().join(std::ffi::OsStr::from_bytes(&odd)))
            .unwrap();
        let small = names(&OpenDirectory::open(dir.path()).unwrap(), 512);
        assert_eq!(small.len(), 301);
        assert!(small.contains(&(odd.clone(), 10)));
        assert_eq!(small, names(&OpenDirectory::open(dir.path()).unwrap(), 1 << 18));
        let directory = OpenDirectory::open(dir.path()).unwrap();
        let odd = std::ffi::CString::new(odd).unwrap();
        assert_eq!(directory.target(&odd).unwrap(), b"to");
        assert!(is_vanished(&directory.target_status(&odd, StatxFlags::TYPE).unwrap_err()));
        let status = directory.status(c"entry 7", StatxFlags::INO).unwrap();
        assert_eq!(status.stx_ino, std::fs::metadata(dir.path().join("entry 7")).unwrap().ino());
        assert!(is_vanished(&directory.status(c"none", StatxFlags::INO).unwrap_err()));
    }
}
