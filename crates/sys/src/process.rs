//! A process that is not our child, held by a descriptor so that its number cannot come to mean another.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A running or ended process.
#[derive(Debug)]
pub struct MeasuredProcess {
    pid: u32,
    descriptor: OwnedFd,
}

impl MeasuredProcess {
    /// Holds process `pid`.
    ///
    /// # Errors
    ///
    /// There is none, or the kernel is older than 5.3.
    pub fn open(pid: u32) -> io::Result<MeasuredProcess> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(MeasuredProcess { pid, descriptor: pidfd_open(number, PidfdFlags::empty())? })
    }

    /// Returns its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, Signal::TERM)?)
    }

    /// Ends it at once (SIGKILL).
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, Signal::KILL)?)
    }

    /// Waits until it has ended, at most `patience`; says whether it has.
    ///
    /// # Errors
    ///
    /// As `poll(2)`.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        loop {
            match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&patience)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_end_of_a_process_is_an_event() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = MeasuredProcess::open(child.id()).unwrap();
        assert!(!process.wait(Duration::ZERO).unwrap());
        process.terminate().unwrap();
        assert!(process.wait(Duration::from_secs(10)).unwrap());
        child.wait().unwrap();
        assert!(process.kill().is_err());
    }
}
