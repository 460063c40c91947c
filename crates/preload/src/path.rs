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
    /// Nothing has to be true of the address: the kernel is asked first whether there is memory. As with every name, no other thread may take the memory back during the call.
    #[must_use]
    pub fn of_address(name: *const c_char) -> Option<PathBuffer> {
        let _kept = SavedErrno::keep();
        let mut path = PathBuffer::new()?;
        while path.len < PATH_MAX {
            let from = name.wrapping_byte_add(path.len);
            if !is_readable(from) {
                return None;
            }
            let page_rest = PAGE - from.addr() % PAGE;
            let to = path.scratch.bytes_mut().get_mut(path.len..)?;
            let part = page_rest.min(to.len());
            // SAFETY: the page is memory, as the kernel has just said, and the part ends with it; the buffer is as long and ours.
            unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), part) };
            if let Some(end) = to[..part].iter().position(|byte| *byte == 0) {
                path.len += end;
                return Some(path);
            }
            path.len += part;
        }
        None
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

/// Says whether the page of an address can be read.
///
/// A call that reads another process's memory would say so, too, but many programs that lock themselves in (seccomp) refuse it, and some are killed by it. Without this one, which the C library makes in `raise`, `abort` and with each thread, they could not go on.
fn is_readable(address: *const c_char) -> bool {
    // A set of signals in the same page.
    let set = address.addr() & !7;
    if set == 0 {
        return false;
    }
    // SAFETY: the kernel looks at the address itself, and for a way to change the mask that there is not it changes nothing.
    let done = unsafe {
        system_call(libc::SYS_rt_sigprocmask, [argument(-1), set, 0, size_of::<u64>(), 0, 0])
    };
    done >= 0 || errno() != libc::EFAULT
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
    }

    /// Has the kernel end the process where this thread makes one of these calls from now on.
    fn forbid(calls: &[libc::c_long]) {
        let statement = |code: u32, jt, jf, k| libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt,
            jf,
            k,
        };
        // The number of the call is first in what a filter looks at.
        let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
        for call in calls {
            let number = u32::try_from(*call).unwrap();
            filter.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number));
            let end = libc::SECCOMP_RET_KILL_PROCESS;
            filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, end));
        }
        filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).unwrap(),
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        // SAFETY: the program is as long as it says, and copied.
        let done = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(done, 0);
    }

    #[expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
    #[test]
    fn a_program_that_locks_itself_in_is_not_ended_by_the_look_at_a_name() {
        let looks = std::thread::spawn(|| {
            // What only debuggers need, and what a program that writes files can do without.
            forbid(&[libc::SYS_process_vm_readv, libc::SYS_ptrace, libc::SYS_readlinkat]);
            let name = PathBuffer::of_address(c"/some/name".as_ptr()).unwrap();
            assert_eq!(name.as_bytes(), b"/some/name");
            assert!(PathBuffer::of_address(8 as *const c_char).is_none());
            assert!(PathBuffer::of_address(std::ptr::null()).is_none());
        });
        looks.join().unwrap();
    }

    #[test]
    fn errno_is_left_alone() {
        assert_eq!(crate::fail(libc::EXDEV), -1);
        assert!(PathBuffer::of_name(libc::AT_FDCWD, b"/no/such/dir/name").is_none());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EXDEV));
    }
}
