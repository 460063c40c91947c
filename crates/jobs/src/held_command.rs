//! A command that starts in two steps: a process that waits, which is put into a cgroup meanwhile, then executes the program.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, WaitOptions, waitpid};
use sys::socket::{self, Full};
use sys::supervise::{self, ForkSide};

/// A process that executes a command when it receives a message.
#[derive(Debug)]
pub struct HeldCommand {
    process: u32,
    gate: OwnedFd,
}

impl HeldCommand {
    /// Forks the process; the calling process must have one thread only.
    ///
    /// The process exits by itself if the caller ends before it calls [`go`](Self::go).
    ///
    /// # Errors
    ///
    /// As `socketpair(2)` and `fork(2)`; nothing was started.
    pub fn new(mut command: Command) -> io::Result<HeldCommand> {
        let (ours, theirs) = socket::pair()?;
        match supervise::fork()? {
            ForkSide::Parent(process) => Ok(HeldCommand { process, gate: ours }),
            ForkSide::Child => {
                drop(ours);
                if is_released(&theirs) {
                    // A successful exec closes the gate; it returns only if it fails.
                    let error = command.exec();
                    let number = error.raw_os_error().unwrap_or(0);
                    // It fails only if the supervisor has ended.
                    let _ = socket::send(&theirs, &number.to_ne_bytes(), None, Full::Fail);
                }
                supervise::exit_now(127)
            }
        }
    }

    /// Returns the process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Has the process execute the command, and returns the process.
    ///
    /// # Errors
    ///
    /// As `execve(2)`; the process is gone.
    pub fn go(self) -> io::Result<u32> {
        let mut number = [0; 4];
        // If a signal has ended the process already, the caller sees that as the end of the command.
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

/// Waits for the message; returns whether it came before the other end was closed.
fn is_released(gate: &OwnedFd) -> bool {
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
