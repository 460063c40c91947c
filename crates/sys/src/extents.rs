//! Where a file lies on its disk (Documentation/filesystems/fiemap.rst).

use std::io;
use std::os::fd::AsRawFd;

/// `FS_IOC_FIEMAP`.
const FIEMAP: libc::Ioctl = libc::_IOWR::<[u64; 4]>(b'f' as u32, 11);
/// `FIEMAP_EXTENT_UNKNOWN`, which stands beside `FIEMAP_EXTENT_DELALLOC`: no place has been chosen yet.
const UNKNOWN: u32 = 0x0002;

/// `struct fiemap` with room for one extent behind it.
#[repr(C)]
#[derive(Default)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    logical: u64,
    physical: u64,
    extent_length: u64,
    reserved_64: [u64; 2],
    extent_flags: u32,
    reserved_32: [u32; 3],
}

/// Returns where the first bytes of `file` lie, in bytes from the beginning of its file system's device; `None` before the file system has chosen a place, and where it does not say.
pub fn first(file: &impl AsRawFd) -> Option<u64> {
    let mut request = Request { length: u64::MAX, count: 1, ..Request::default() };
    let done = map(file, &mut request);
    let is_known = done.is_ok() && request.mapped == 1 && request.extent_flags & UNKNOWN == 0;
    is_known.then_some(request.physical)
}

fn map(file: &impl AsRawFd, request: &mut Request) -> io::Result<()> {
    // SAFETY: the pointer is to a request with room for as many extents as it says, which lives until the call has returned.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, std::ptr::from_mut(request)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_has_a_place_once_it_is_on_the_disk() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[b'x'; 8192]).unwrap();
        file.sync_all().unwrap();
        // Some file systems do not say: then there is no order, and no harm.
        let mut request = Request { length: u64::MAX, count: 1, ..Request::default() };
        if map(&file, &mut request).is_ok() {
            assert!(first(&file).is_some_and(|place| place > 0));
        }
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(first(&end), None);
    }
}
