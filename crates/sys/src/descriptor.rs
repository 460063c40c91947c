//! Descriptors by their numbers, as the command line and other programs name them.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns a duplicate of a descriptor that the caller of this program named by its number.
///
/// # Errors
///
/// `EBADF` if it is not open.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the number is looked at by the kernel alone; a new descriptor is made.
    let made = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        assert_eq!(inherited(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(inherited(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(inherited(0).is_ok());
    }
}
