//! Signals as something to read: they wait in a descriptor instead of interrupting.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::launch::signal_set;

/// A descriptor that can be read when one of the signals has come.
#[derive(Debug)]
pub struct Signals(File);

impl Signals {
    /// Blocks these signals in the calling thread and its later children of the same program, and collects them.
    ///
    /// To be called before there are other threads: a signal comes to whoever does not block it.
    ///
    /// # Errors
    ///
    /// As `signalfd(2)`.
    pub fn collect(signals: &[i32]) -> io::Result<Signals> {
        let mut set = signal_set(libc::sigemptyset);
        for signal in signals {
            // SAFETY: adds to a set of ours; a number that is no signal is an error that changes nothing.
            if unsafe { libc::sigaddset(&raw mut set, *signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: reads a set of ours; the one that was before is not wanted.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: reads a set of ours.
        let made =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel made this descriptor for us just now; nobody else has it.
        Ok(Signals(File::from(unsafe { OwnedFd::from_raw_fd(made) })))
    }

    /// Takes a signal that has come.
    ///
    /// # Errors
    ///
    /// As `read(2)`, apart from there being none.
    pub fn take(&mut self) -> io::Result<Option<i32>> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match self.0.read(&mut record) {
            Ok(_) => {
                let number = record.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                Ok(Some(number))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_waits_to_be_read() {
        let thread = std::thread::spawn(|| {
            let mut signals = Signals::collect(&[libc::SIGUSR2]).unwrap();
            assert_eq!(signals.take().unwrap(), None);
            // SAFETY: sends a signal to this thread, which blocks it.
            unsafe { libc::raise(libc::SIGUSR2) };
            assert_eq!(signals.take().unwrap(), Some(libc::SIGUSR2));
            assert_eq!(signals.take().unwrap(), None);
            assert!(Signals::collect(&[999]).is_err());
        });
        thread.join().unwrap();
    }
}
