//! Signals as something to read: they wait in a descriptor instead of interrupting.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::launch::signal_set;

/// A descriptor that can be read when one of the signals has come.
#[derive(Debug)]
pub struct Signals {
    descriptor: File,
    before: Mask,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Its number.
    pub signal: i32,
    /// The process that sent it; `None` if it was the kernel, as for Ctrl-C at the terminal.
    pub sender: Option<u32>,
}

/// Which signals a thread blocks.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mask").finish_non_exhaustive()
    }
}

impl Mask {
    /// Makes this the mask of the calling thread.
    pub fn set(&self) {
        // SAFETY: reads a set of ours; the one that was before is not wanted.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }

    /// Blocks `signal` no longer in the calling thread, and returns the mask from before. A signal that waits takes effect.
    #[must_use]
    pub(crate) fn open_for(signal: i32) -> Mask {
        let mut set = signal_set(libc::sigemptyset);
        // SAFETY: adds to a set of ours; a number that is no signal is an error that changes nothing.
        unsafe { libc::sigaddset(&raw mut set, signal) };
        let mut before = signal_set(libc::sigemptyset);
        // SAFETY: reads one set of ours and writes the other.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before) };
        Mask(before)
    }

    /// Blocks `signal` in the calling thread, and returns the mask from before.
    #[must_use]
    pub(crate) fn closed_for(signal: i32) -> Mask {
        let mut set = signal_set(libc::sigemptyset);
        // SAFETY: adds to a set of ours; a number that is no signal is an error that changes nothing.
        unsafe { libc::sigaddset(&raw mut set, signal) };
        let mut before = signal_set(libc::sigemptyset);
        // SAFETY: reads one set of ours and writes the other.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        Mask(before)
    }
}

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
        let mut before = signal_set(libc::sigemptyset);
        // SAFETY: reads one set of ours and writes the other.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
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
        let descriptor = File::from(unsafe { OwnedFd::from_raw_fd(made) });
        Ok(Signals { descriptor, before: Mask(before) })
    }

    /// Returns the mask from before, for a program that is to start with it.
    #[must_use]
    pub fn before(&self) -> Mask {
        self.before
    }

    /// Takes a signal that has come.
    ///
    /// # Errors
    ///
    /// As `read(2)`, apart from there being none.
    pub fn take(&mut self) -> io::Result<Option<i32>> {
        Ok(self.catch()?.map(|caught| caught.signal))
    }

    /// Takes a signal that has come, and says who sent it.
    ///
    /// # Errors
    ///
    /// As `read(2)`, apart from there being none.
    pub fn catch(&mut self) -> io::Result<Option<Caught>> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match self.descriptor.read(&mut record) {
            Ok(_) => {
                // ssi_signo, ssi_errno, ssi_code and ssi_pid are the first four numbers (signalfd(2)).
                let (numbers, _) = record.as_chunks::<4>();
                let number = |at: usize| numbers.get(at).map_or(0, |it| i32::from_ne_bytes(*it));
                // What a program sends has a code of 0 or less (sigaction(2)).
                let sender = (number(2) <= 0).then(|| number(3).cast_unsigned());
                Ok(Some(Caught { signal: number(0), sender }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use super::*;

    #[test]
    fn a_signal_waits_to_be_read() {
        let thread = std::thread::spawn(|| {
            let mut signals = Signals::collect(&[libc::SIGUSR2]).unwrap();
            assert_eq!(signals.take().unwrap(), None);
            // SAFETY: sends a signal to this thread, which blocks it.
            unsafe { libc::raise(libc::SIGUSR2) };
            let sender = Some(std::process::id());
            let caught = signals.catch().unwrap();
            assert_eq!(caught, Some(Caught { signal: libc::SIGUSR2, sender }));
            assert_eq!(signals.take().unwrap(), None);
            assert!(Signals::collect(&[999]).is_err());
        });
        thread.join().unwrap();
    }
}
