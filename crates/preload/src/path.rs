//! Paths of descriptors and names, found without allocation.

use std::ffi::{CStr, c_char, c_int};

use crate::errno::{SavedErrno, errno};
use crate::scratch::{PATH_MAX, Scratch};
use crate::system_call::{argument, system_call};

/// A page is so long, or a multiple of it.
const PAGE: usize = 4096;

/// A path, in memory that is no stack's.
#[derive(Debug)]
pub struct PathBuffer {
    scratch: Scratch,
    len: usize,
}

/// Returns the bytes of a C string that a program passed to a function which reads it itself, or has read it.
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
    fn new() -> Option<PathBuffer> {
        Some(PathBuffer { scratch: Scratch::take()?, len: 0 })
    }

    /// Returns a copy of a name that a program passes to the kernel; `None` if the kernel will refuse it: it is nobody's memory, or too long.
    ///
    /// Nothing has to be true of the address: the kernel copies.
    #[must_use]
    pub fn of_address(name: *const c_char) -> Option<PathBuffer> {
        let _kept = SavedErrno::keep();
        let mut path = PathBuffer::new()?;
        let page = PAGE - name.addr() % PAGE;
        // Parts that do not split a page: of each all or nothing is copied (process_vm_readv(2)).
        let first = page.min(PATH_MAX);
        let from = [
            libc::iovec { iov_base: name.cast_mut().cast(), iov_len: first },
            libc::iovec {
                iov_base: name.wrapping_byte_add(first).cast_mut().cast(),
                iov_len: PATH_MAX - first,
            },
        ];
        let to = libc::iovec {
            iov_base: path.scratch.bytes_mut().as_mut_ptr().cast(),
            iov_len: PATH_MAX,
        };
        let (to, from) = (&raw const to, from.as_ptr());
        // SAFETY: the call has no precondition.
        let own = unsafe { libc::getpid() };
        // SAFETY: the kernel writes into memory of ours of that length, and looks at other addresses itself.
        let copied = unsafe {
            let arguments =
                [argument(own), to.expose_provenance(), 1, from.expose_provenance(), 2, 0];
            system_call(libc::SYS_process_vm_readv, arguments)
        };
        if copied < 0 && !is_refused() {
            return None;
        }
        let copied = match usize::try_from(copied) {
            Ok(copied) => copied,
            Err(_) => path.copy(name)?,
        };
        path.len = path.scratch.bytes()[..copied].iter().position(|byte| *byte == 0)?;
        Some(path)
    }

    /// Copies a name where a filter of system calls keeps [`PathBuffer::of_address`] from it, if the kernel has no objection to it. Returns the length with its NUL.
    fn copy(&mut self, name: *const c_char) -> Option<usize> {
        let mut nothing = [0_u8; 1];
        // A link is read: a call that changes nothing and takes any name.
        // SAFETY: the kernel looks at the name itself, and writes into memory of ours.
        let done = unsafe {
            let to = nothing.as_mut_ptr();
            system_call(
                libc::SYS_readlinkat,
                [argument(libc::AT_FDCWD), name.addr(), to.expose_provenance(), 1, 0, 0],
            )
        };
        if done < 0 && [libc::EFAULT, libc::ENAMETOOLONG].contains(&errno()) {
            return None;
        }
        // SAFETY: the kernel has just read it to its end.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
        self.scratch.bytes_mut().get_mut(..name.len())?.copy_from_slice(name);
        Some(name.len())
    }

    /// Returns what the kernel calls the file of `descriptor`: absolute, without symbolic links; of one without a name, ` (deleted)` follows.
    #[must_use]
    pub fn of_descriptor(descriptor: c_int) -> Option<PathBuffer> {
        let _kept = SavedErrno::keep();
        let mut path = PathBuffer::new()?;
        let link = link_of(descriptor)?;
        let to = path.scratch.bytes_mut().as_mut_ptr();
        // SAFETY: the name ends in NUL, and the buffer has the length that is said.
        let len = unsafe { libc::readlink(link.as_ptr().cast(), to.cast(), PATH_MAX) };
        path.len = usize::try_from(len).ok().filter(|len| *len < PATH_MAX)?;
        Some(path)
    }

    /// Returns the name `path`, as a call in the directory `at` would take it, with its directory as the kernel calls it.
    ///
    /// The last part is not followed if it is a symbolic link.
    #[must_use]
    pub fn of_name(at: c_int, path: &[u8]) -> Option<PathBuffer> {
        let _kept = SavedErrno::keep();
        let path = trimmed(path);
        let name_at = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at(name_at);
        if name.is_empty() || name == b"." || name == b".." {
            return None;
        }
        let mut found = PathBuffer::new()?;
        found.push(if parent.is_empty() { b"." } else { parent })?;
        found.push(b"\0")?;
        let from = found.scratch.bytes().as_ptr();
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the name ends in NUL. The bare system call, because `openat` may be one of ours.
        let opened = unsafe {
            let arguments = [argument(at), from.expose_provenance(), argument(flags), 0, 0, 0];
            system_call(libc::SYS_openat, arguments)
        };
        drop(found);
        let directory = c_int::try_from(opened).ok().filter(|number| *number >= 0)?;
        let parent = PathBuffer::of_descriptor(directory);
        // SAFETY: the descriptor was opened above and is nobody else's; the bare call, because `close` may be one of ours.
        unsafe { system_call(libc::SYS_close, [argument(directory), 0, 0, 0, 0, 0]) };
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
        &self.scratch.bytes()[..self.len]
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.len.checked_add(part.len())?;
        self.scratch.bytes_mut().get_mut(self.len..end)?.copy_from_slice(part);
        self.len = end;
        Some(())
    }
}

/// Says whether the last call was refused by a filter, or is unknown to this kernel.
fn is_refused() -> bool {
    [libc::ENOSYS, libc::EPERM].contains(&errno())
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
    fn a_name_is_copied_from_wherever_it_is_or_not_at_all() {
        let copied = |at: *const c_char| Some(PathBuffer::of_address(at)?.as_bytes().to_owned());
        assert_eq!(copied(c"/some/name".as_ptr()).unwrap(), b"/some/name");
        assert_eq!(copied(c"".as_ptr()).unwrap(), b"");
        assert!(copied(std::ptr::null()).is_none() && copied(8 as *const c_char).is_none());
        assert!(copied(usize::MAX as *const c_char).is_none());
        // At the end of the last page that may be read. The next one stays ours: another thread could have it, if it were given back.
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses where.
        let two =
            unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, kind, -1, 0) }.cast::<u8>();
        // SAFETY: it is the second page of the mapping, which nobody uses.
        let closed =
            unsafe { libc::mprotect(two.wrapping_add(PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(closed, 0);
        // SAFETY: the first page is ours and nobody else has its address.
        let page = unsafe { std::slice::from_raw_parts_mut(two, PAGE) };
        page.fill(b'x');
        let end = two.wrapping_add(PAGE - 4).cast::<c_char>().cast_const();
        assert!(copied(end).is_none());
        page[PAGE - 1] = 0;
        assert_eq!(copied(end).unwrap(), b"xxx");
        assert_eq!(copied(two.cast::<c_char>().cast_const()).unwrap().len(), PATH_MAX - 1);
        // And where the usual way is refused.
        let mut path = PathBuffer::new().unwrap();
        assert_eq!(path.copy(end), Some(4));
        assert_eq!(path.copy(8 as *const c_char), None);
    }

    #[test]
    fn errno_is_left_alone() {
        assert_eq!(crate::fail(libc::EXDEV), -1);
        assert!(PathBuffer::of_name(libc::AT_FDCWD, b"/no/such/dir/name").is_none());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EXDEV));
    }
}
