//! A terminal in raw mode that gets its own mode back, however this process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// A terminal whose mode is put back when this is dropped, and by a small process of its own if we are killed.
#[derive(Debug)]
pub struct Raw {
    terminal: OwnedFd,
    before: Termios,
    guard: Option<OwnedFd>,
}

impl Raw {
    /// Passes every byte of `terminal` on as it is typed.
    ///
    /// # Errors
    ///
    /// It is no terminal, or no descriptor is free; its mode is as it was.
    pub fn enter(terminal: impl AsFd) -> io::Result<Raw> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        // Before the mode changes: there is no moment in which nobody would put it back.
        let guard = guard(&terminal, &before)?;
        let raw = Raw { terminal, before, guard: Some(guard) };
        raw.again()?;
        Ok(raw)
    }

    /// Sets the raw mode once more, after [`Raw::pause`].
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub fn again(&self) -> io::Result<()> {
        let mut mode = self.before.clone();
        mode.make_raw();
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &mode)?)
    }

    /// Puts the terminal's own mode back for a while.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub fn pause(&self) -> io::Result<()> {
        Ok(tcsetattr(&self.terminal, OptionalActions::Drain, &self.before)?)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone has no mode.
        let _ = self.pause();
        if let Some(guard) = self.guard.take() {
            // It has nothing to do any more; if it is gone, so much the better.
            let _ = rustix::io::write(guard, b"x");
        }
    }
}

/// Starts the process that puts the mode back if our end of the pipe closes without a word.
fn guard(terminal: &OwnedFd, before: &Termios) -> io::Result<OwnedFd> {
    let (wait, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child makes system calls only and leaves without running destructors.
    let process = unsafe { libc::fork() };
    match process {
        0 => watch(terminal.as_fd(), before, &wait),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(tell),
    }
}

/// The guard's life.
fn watch(terminal: BorrowedFd<'_>, before: &Termios, wait: &OwnedFd) -> ! {
    // In a session of its own it gets none of our signals, and may set the mode from the background.
    let _ = rustix::process::setsid();
    let (terminal_number, wait_number) = (terminal.as_raw_fd(), wait.as_raw_fd());
    // It holds nothing of ours: pipes and the bus are to see our end, not its.
    for number in [terminal_number.min(wait_number), terminal_number.max(wait_number)]
        .windows(2)
        .flat_map(|pair| [(0, pair[0] - 1), (pair[0] + 1, pair[1] - 1), (pair[1] + 1, i32::MAX)])
        .filter(|(first, last)| first <= last)
    {
        // SAFETY: closes descriptors that this process does not use again.
        unsafe { libc::syscall(libc::SYS_close_range, number.0, number.1, 0) };
    }
    let mut byte = [0; 1];
    let told = loop {
        match rustix::io::read(wait, &mut byte) {
            Err(rustix::io::Errno::INTR) => (),
            other => break other,
        }
    };
    if told == Ok(0) {
        let _ = tcsetattr(terminal, OptionalActions::Now, before);
    }
    // SAFETY: ends the process at once; nothing of the parent's is flushed or dropped twice.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::LocalModes;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let terminal = ioctl_tiocgptpeer(&master, flags).unwrap();
        (master, terminal)
    }

    fn echoes(terminal: &OwnedFd) -> bool {
        tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    #[test]
    fn the_mode_comes_back() {
        let (_master, terminal) = pair();
        let raw = Raw::enter(&terminal).unwrap();
        assert!(!echoes(&terminal));
        raw.pause().unwrap();
        assert!(echoes(&terminal));
        raw.again().unwrap();
        drop(raw);
        assert!(echoes(&terminal));
    }

    #[test]
    fn the_guard_puts_the_mode_back_when_nobody_else_does() {
        let (_master, terminal) = pair();
        let mut raw = Raw::enter(&terminal).unwrap();
        // As the kernel does it for a process that is killed.
        drop(raw.guard.take());
        while !echoes(&terminal) {
            std::thread::yield_now();
        }
        assert!(Raw::enter(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
