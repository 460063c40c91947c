//! Paths of descriptors and names, found without allocation.

use std::ffi::{CStr, c_char, c_int};

use crate::errno::Errno;

/// The longest path that is looked at; longer ones are nobody's.
pub const PATH_MAX: usize = 4096;

/// A path, in the caller's own stack.
#[derive(Debug)]
pub struct PathBuffer {
    bytes: [u8; PATH_MAX],
    len: usize,
}

/// Returns the bytes of a C string that a program passed.
///
/// # Safety
///
/// `text` is null or ends in NUL, and is not changed while the result is used.
#[must_use]
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: it is not null, and the caller promises the rest.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

impl PathBuffer {
    /// Returns what the kernel calls the file of `descriptor`: absolute, without symbolic links; of one without a name, ` (deleted)` follows.
    #[must_use]
    pub fn of_descriptor(descriptor: c_int) -> Option<PathBuffer> {
        let _kept = Errno::keep();
        let mut path = PathBuffer { bytes: [0; PATH_MAX], len: 0 };
        let link = link_of(descriptor)?;
        // SAFETY: the name ends in NUL, and the buffer has the length that is said.
        let len = unsafe {
            libc::readlink(link.as_ptr().cast(), path.bytes.as_mut_ptr().cast(), PATH_MAX)
        };
        path.len = usize::try_from(len).ok().filter(|len| *len < PATH_MAX)?;
        Some(path)
    }

    /// Returns the name `path`, as a call in the directory `at` would take it, with its directory as the kernel calls it.
    ///
    /// The last part is not followed if it is a symbolic link.
    #[must_use]
    pub fn of_name(at: c_int, path: &[u8]) -> Option<PathBuffer> {
        let _kept = Errno::keep();
        let path = trimmed(path);
        let name_at = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at(name_at);
        if name.is_empty() || name == b"." || name == b".." {
            return None;
        }
        let mut found = PathBuffer { bytes: [0; PATH_MAX], len: 0 };
        found.push(if parent.is_empty() { b"." } else { parent })?;
        found.push(b"\0")?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the name ends in NUL. The bare system call, because `openat` may be one of ours.
        let opened = unsafe { libc::syscall(libc::SYS_openat, at, found.bytes.as_ptr(), flags, 0) };
        let directory = c_int::try_from(opened).ok().filter(|number| *number >= 0)?;
        let parent = PathBuffer::of_descriptor(directory);
        // SAFETY: the descriptor was opened above and is nobody else's; the bare call, because `close` may be one of ours.
        unsafe { libc::syscall(libc::SYS_close, directory) };
        let mut whole = parent?;
        if whole.as_bytes() != b"/" {
            whole.push(b"/")?;
        }
        whole.push(name)?;
        Some(whole)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.len.checked_add(part.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(part);
        self.len = end;
        Some(())
    }
}

/// Returns the path without the slashes at its end.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

/// Returns `/proc/self/fd/…` with a NUL behind it, for a descriptor that is not negative.
fn link_of(descriptor: c_int) -> Option<[u8; 32]> {
    const DIR: &[u8] = b"/proc/self/fd/";
    let mut rest = u32::try_from(descriptor).ok()?;
    let mut link = [0; 32];
    link[..DIR.len()].copy_from_slice(DIR);
    let digits = rest.checked_ilog10().map_or(1, |log| log as usize + 1);
    for at in (0..digits).rev() {
        link[DIR.len() + at] = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
    }
    Some(link)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_descriptor_has_the_path_that_the_kernel_gives_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new_in(dir.path()).unwrap();
        let path = PathBuffer::of_descriptor(file.as_file().as_raw_fd()).unwrap();
        assert_eq!(path.as_bytes(), file.path().canonicalize().unwrap().as_os_str().as_bytes());
        assert!(PathBuffer::of_descriptor(-1).is_none());
    }

    #[test]
    fn a_name_is_found_through_links_and_dots_whether_it_exists_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let asked = dir.path().join("real/../link/new");
        let wanted = real.join("new");
        let found = PathBuffer::of_name(libc::AT_FDCWD, asked.as_os_str().as_bytes()).unwrap();
        assert_eq!(found.as_bytes(), wanted.as_os_str().as_bytes());
        let opened = std::fs::File::open(dir.path()).unwrap();
        let found = PathBuffer::of_name(opened.as_raw_fd(), b"link//new//").unwrap();
        assert_eq!(found.as_bytes(), wanted.as_os_str().as_bytes());
        assert_eq!(PathBuffer::of_name(libc::AT_FDCWD, b"/etc").unwrap().as_bytes(), b"/etc");
        for none in [&b""[..], b"/", b"..", b"/no/such/dir/name"] {
            assert!(PathBuffer::of_name(libc::AT_FDCWD, none).is_none());
        }
    }

    #[test]
    fn errno_is_left_alone() {
        assert_eq!(crate::fail(libc::EXDEV), -1);
        assert!(PathBuffer::of_name(libc::AT_FDCWD, b"/no/such/dir/name").is_none());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EXDEV));
    }
}
