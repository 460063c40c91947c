//! A terminal in raw mode that gets its own mode back, however this process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Termios, tcgetattr, tcsetattr,
};

use crate::signals::Mask;

/// The signal by which the terminal stops a process of the background that sets its modes.
const SIGTTOU: i32 = 22;

/// A terminal whose mode is put back when this is dropped, and by a small process of its own if we are killed.
///
/// Neither touches the modes that somebody else has set meanwhile, as a shell does that took its terminal back.
#[derive(Debug)]
pub struct RawTerminal {
    terminal: OwnedFd,
    before: Termios,
    raw: Termios,
    guard: Option<Guard>,
}

impl RawTerminal {
    /// Passes every byte of `terminal` on as it is typed.
    ///
    /// # Errors
    ///
    /// It is no terminal, or no descriptor is free; its mode is as it was.
    pub fn enter(terminal: impl AsFd) -> io::Result<RawTerminal> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        // Before the mode changes: there is no moment in which nobody would put it back.
        let guard = guard(&terminal, &before, &raw)?;
        let raw = RawTerminal { terminal, before, raw, guard: Some(guard) };
        tcsetattr(&raw.terminal, OptionalActions::Now, &raw.raw)?;
        Ok(raw)
    }

    /// Says whether the terminal still has the mode that this gave it.
    #[must_use]
    pub fn is_in_effect(&self) -> bool {
        tcgetattr(&self.terminal).is_ok_and(|now| same_modes(&now, &self.raw))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if self.is_in_effect() {
            // From the background it would stop us, and the shell there would wait for its mode.
            let mask = Mask::closed_for(SIGTTOU);
            // A terminal that is gone has no mode.
            let _ = tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
            mask.set();
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}

/// Makes modes those of a terminal in which lines are typed, as `stty sane` does.
pub fn edit_lines(modes: &mut Termios) {
    modes.input_modes.insert(InputModes::ICRNL | InputModes::IXON | InputModes::BRKINT);
    modes.input_modes.remove(InputModes::INLCR | InputModes::IGNCR);
    modes.output_modes.insert(OutputModes::OPOST | OutputModes::ONLCR);
    let edited = LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
    let echoed = LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK;
    modes.local_modes.insert(edited | echoed);
}

/// Removes from output of one terminal what `terminal` will add once more: the carriage return before each line feed. Where
/// `terminal` adds nothing, as in raw mode, nothing is removed.
pub fn remove_repeated_returns(output: &mut Vec<u8>, terminal: impl AsFd) {
    let added = OutputModes::OPOST | OutputModes::ONLCR;
    if !tcgetattr(terminal).is_ok_and(|modes| modes.output_modes.contains(added)) {
        return;
    }
    let mut bytes = std::mem::take(output).into_iter().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\r' || bytes.peek() != Some(&b'\n') {
            output.push(byte);
        }
    }
}

/// Says whether two terminals treat what goes through them alike. What a line has in bits and speeds does not count: not
/// every terminal keeps what it is given.
#[must_use]
pub fn same_modes(one: &Termios, other: &Termios) -> bool {
    one.input_modes == other.input_modes
        && one.output_modes == other.output_modes
        && one.local_modes == other.local_modes
}

/// The process that puts the mode back if our end of the pipe closes without a word.
#[derive(Debug)]
struct Guard {
    tell: OwnedFd,
    process: Pid,
}

impl Guard {
    /// Ends it.
    fn dismiss(self) {
        // It has nothing to do any more; if it is gone, so much the better.
        let _ = rustix::io::write(&self.tell, b"x");
        // It stays in the table of processes until it is waited for. Somebody else may have done so.
        let _ = retry_on_intr(|| waitpid(Some(self.process), WaitOptions::empty()));
    }
}

/// Starts the guard.
fn guard(terminal: &OwnedFd, before: &Termios, raw: &Termios) -> io::Result<Guard> {
    let (wait, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child makes system calls only and leaves without running destructors.
    let process = unsafe { libc::fork() };
    if process == -1 {
        return Err(io::Error::last_os_error());
    }
    match Pid::from_raw(process) {
        None => watch(terminal.as_fd(), before, raw, &wait),
        Some(process) => Ok(Guard { tell, process }),
    }
}

/// The guard's life.
fn watch(terminal: BorrowedFd<'_>, before: &Termios, raw: &Termios, wait: &OwnedFd) -> ! {
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
    let is_in_effect = || tcgetattr(terminal).is_ok_and(|now| same_modes(&now, raw));
    if told == Ok(0) && is_in_effect() {
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
        let raw = RawTerminal::enter(&terminal).unwrap();
        assert!(!echoes(&terminal) && raw.is_in_effect());
        let guard = raw.guard.as_ref().unwrap().process;
        drop(raw);
        assert!(echoes(&terminal));
        let guard = format!("/proc/{}", guard.as_raw_nonzero());
        assert!(!std::path::Path::new(&guard).exists(), "its guard was not waited for");
    }

    #[test]
    fn a_return_is_removed_where_the_terminal_adds_one() {
        let (_master, terminal) = pair();
        let mut output = b"a\r\n\r\rb\r\r\n\nc\r".to_vec();
        let before = output.clone();
        let raw = RawTerminal::enter(&terminal).unwrap();
        remove_repeated_returns(&mut output, &terminal);
        assert_eq!(output, before);
        drop(raw);
        remove_repeated_returns(&mut output, &terminal);
        assert_eq!(output, b"a\n\r\rb\r\n\nc\r");
    }

    /// Sets a mode as a shell does that edits a line, and returns it.
    fn edit_a_line(terminal: &OwnedFd) -> Termios {
        let mut mode = tcgetattr(terminal).unwrap();
        edit_lines(&mut mode);
        mode.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        tcsetattr(terminal, OptionalActions::Now, &mode).unwrap();
        mode
    }

    #[test]
    fn a_mode_that_somebody_else_has_set_stays() {
        let (_master, terminal) = pair();
        let raw = RawTerminal::enter(&terminal).unwrap();
        let set = edit_a_line(&terminal);
        assert!(!raw.is_in_effect());
        drop(raw);
        assert!(same_modes(&tcgetattr(&terminal).unwrap(), &set));
    }

    #[test]
    fn the_guard_leaves_a_mode_that_somebody_else_has_set() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (master, terminal) = pair();
        let mut raw = RawTerminal::enter(&terminal).unwrap();
        let set = edit_a_line(&terminal);
        drop(raw.guard.take());
        drop(raw);
        drop(terminal);
        // The guard had the terminal open, too: its end is the last one's.
        let mut polled = [PollFd::new(&master, PollFlags::empty())];
        let limit = Timespec { tv_sec: 50, tv_nsec: 0 };
        assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "the guard has not ended within 50 s");
        assert!(same_modes(&tcgetattr(&master).unwrap(), &set));
    }

    #[test]
    fn the_guard_puts_the_mode_back_when_nobody_else_does() {
        let (_master, terminal) = pair();
        let mut raw = RawTerminal::enter(&terminal).unwrap();
        // As the kernel does it for a process that is killed.
        drop(raw.guard.take());
        while !echoes(&terminal) {
            std::thread::yield_now();
        }
        assert!(RawTerminal::enter(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
