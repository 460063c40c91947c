//! The command in two steps: first a process that waits, so that it can be put into a cgroup by whoever may; then the program in it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, WaitOptions, waitpid};
use sys::socket::{self, Full};
use sys::supervise::{self, Side};

/// A process that becomes the command when it is told.
pub(super) struct Waiting {
    process: u32,
    gate: OwnedFd,
}

impl Waiting {
    /// Makes the process; this one must have one thread only.
    ///
    /// It ends by itself when this one has ended before it was told.
    pub(super) fn new(mut command: Command) -> io::Result<Waiting> {
        let (ours, theirs) = socket::pair()?;
        match supervise::fork()? {
            Side::Parent(process) => Ok(Waiting { process, gate: ours }),
            Side::Child => {
                drop(ours);
                if is_told(&theirs) {
                    // It closes the gate when it succeeds, and comes back only when it does not.
                    let error = command.exec();
                    let number = error.raw_os_error().unwrap_or(0);
                    // Nobody waits for it any more.
                    let _ = socket::send(&theirs, &number.to_ne_bytes(), None, Full::Fail);
                }
                supervise::exit_now(127)
            }
        }
    }

    /// Returns its number.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Has it become the command.
    ///
    /// # Errors
    ///
    /// As `execve(2)`; the process is gone.
    pub(super) fn go(self) -> io::Result<u32> {
        let mut number = [0; 4];
        // A signal may have ended it already; that is seen as the command's end.
        let _ = socket::send(&self.gate, b"g", None, Full::Fail);
        while !socket::wait_readable(&self.gate, None)? {}
        match socket::receive(&self.gate, &mut number) {
            Ok(received) if received.length == number.len() => {
                let pid = i32::try_from(self.process).ok().and_then(Pid::from_raw);
                let _ = waitpid(pid, WaitOptions::empty());
                match i32::from_ne_bytes(number) {
                    0 => Err(io::ErrorKind::InvalidInput.into()),
                    number => Err(io::Error::from_raw_os_error(number)),
                }
            }
            Ok(_) | Err(_) => Ok(self.process),
        }
    }
}

/// Waits for the word; the end of the other one is none.
fn is_told(gate: &OwnedFd) -> bool {
    let mut word = [0; 1];
    loop {
        match socket::wait_readable(gate, None) {
            Ok(true) => break,
            Ok(false) => (),
            Err(_) => return false,
        }
    }
    socket::receive(gate, &mut word).is_ok_and(|received| received.length == 1)
}
