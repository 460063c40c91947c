//! Memory of other processes, read without stopping them.

use std::io;

/// Copies bytes at `address` of process `process` into `into` and returns how many there were before the first unreadable page.
///
/// The process goes on running: what changes meanwhile is read torn.
///
/// # Errors
///
/// As `process_vm_readv(2)`: `EFAULT` where nothing at `address` can be read, `EPERM` where the process is not ours to
/// look at, `ESRCH` where it is gone.
pub fn read(process: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let process = libc::pid_t::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
    let start = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: into.len() };
    // SAFETY: `local` names `into`, which is ours alone for the call; the kernel writes at most `iov_len` bytes to it.
    // `remote` is an address in the other process and is never dereferenced here.
    let copied = unsafe { libc::process_vm_readv(process, &local, 1, &remote, 1, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_read_up_to_the_first_hole() {
        let bytes = *b"what is here";
        let mut copy = [0; 12];
        let address = bytes.as_ptr().addr() as u64;
        assert_eq!(read(std::process::id(), address, &mut copy).unwrap(), 12);
        assert_eq!(copy, bytes);
        assert!(read(std::process::id(), 8, &mut copy).is_err());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(read(u32::MAX, 4096, &mut [0; 8]).is_err());
    }
}
