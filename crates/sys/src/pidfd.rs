//! Processes held by descriptors: signals that reach no other process, and ends with what was used.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How a process ended, and what it and the children that it waited for used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// The status as `waitpid(2)` returns it.
    pub wait_status: i32,
    /// Processor time in programs.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The most memory that one of them had at a time.
    pub memory_bytes: u64,
}

impl ProcessEnd {
    /// Returns the status that it ended with, if it ended by itself.
    #[must_use]
    pub fn exit_status(&self) -> Option<i32> {
        (self.wait_status & 0x7f == 0).then_some((self.wait_status >> 8) & 0xff)
    }

    /// Returns the signal that ended it, if one did.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        Some(self.wait_status & 0x7f).filter(|signal| *signal != 0)
    }
}

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// It ended; its number may be another's from now on.
    Ended(ProcessEnd),
    /// This signal stopped it.
    Stopped(i32),
    /// It goes on.
    Continued,
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalScope {
    /// The process.
    Process,
    /// The process group that it leads.
    Group,
}

/// Returns a descriptor of a process, which may be another one than was meant if that has ended.
///
/// # Errors
///
/// As `pidfd_open(2)`.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal; 0 only asks whether one could be sent.
///
/// `pid` is the number of the process; it is needed for groups before Linux 6.9, and must not have been reaped.
///
/// # Errors
///
/// As `kill(2)`: `ESRCH`, `EPERM`, `EINVAL`.
pub fn signal(
    process: BorrowedFd<'_>,
    pid: u32,
    signal: i32,
    scope: SignalScope,
) -> io::Result<()> {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 4;
    let flags = match scope {
        SignalScope::Process => 0,
        SignalScope::Group => PIDFD_SIGNAL_PROCESS_GROUP,
    };
    match send(process, signal, flags) {
        Err(error) if scope == SignalScope::Group && error.raw_os_error() == Some(libc::EINVAL) => {
            let group = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: takes two numbers.
            let result = unsafe { libc::killpg(group, signal) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        }
        other => other,
    }
}

fn send(process: BorrowedFd<'_>, signal: i32, flags: libc::c_uint) -> io::Result<()> {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    let process = process.as_raw_fd();
    // SAFETY: takes numbers, and no information about the signal.
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, signal, nothing, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until `descriptor` can be read; a process can when it has ended.
///
/// # Errors
///
/// As `poll(2)`.
pub fn wait_readable(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    while polled[0].revents().is_empty() {
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// Takes the end of a child, if it has ended. Its number is free afterwards.
///
/// # Errors
///
/// As `waitid(2)`: `ECHILD` if it is no child of ours, or its end was taken.
pub fn reap(process: BorrowedFd<'_>) -> io::Result<Option<ProcessEnd>> {
    let id = libc::id_t::try_from(process.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(match wait(libc::P_PIDFD, id, libc::WEXITED)? {
        Some((_, ChildEvent::Ended(ended))) => Some(ended),
        _ => None,
    })
}

/// Takes what happened to any child; `None` if nothing has.
///
/// # Errors
///
/// As `waitid(2)`: `ECHILD` if there are no children.
pub fn next_change() -> io::Result<Option<(u32, ChildEvent)>> {
    wait(libc::P_ALL, 0, libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED)
}

fn wait(
    kind: libc::idtype_t,
    id: libc::id_t,
    wanted: libc::c_int,
) -> io::Result<Option<(u32, ChildEvent)>> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes at most one of each into memory of ours that lives until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            kind,
            id,
            information.as_mut_ptr(),
            wanted | libc::WNOHANG,
            usage.as_mut_ptr(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, which is a value of it, or filled in.
    let information = unsafe { information.assume_init() };
    // SAFETY: as above.
    let usage = unsafe { usage.assume_init() };
    // SAFETY: the kernel fills these fields for every child, and they are zero without one.
    let pid = unsafe { information.si_pid() };
    // SAFETY: as above.
    let status = unsafe { information.si_status() };
    if pid == 0 {
        return Ok(None);
    }
    let ended = |wait_status| {
        ChildEvent::Ended(ProcessEnd {
            wait_status,
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
        })
    };
    let change = match information.si_code {
        libc::CLD_EXITED => ended((status & 0xff) << 8),
        libc::CLD_DUMPED => ended(status | 0x80),
        libc::CLD_KILLED => ended(status),
        libc::CLD_CONTINUED => ChildEvent::Continued,
        _ => ChildEvent::Stopped(status),
    };
    Ok(Some((pid.unsigned_abs(), change)))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Says whether the process has ended.
///
/// # Errors
///
/// As `poll(2)`.
pub fn has_ended(process: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now))?;
    Ok(!polled[0].revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn start(script: &str) -> (std::process::Child, OwnedFd) {
        use std::os::unix::process::CommandExt;
        let child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let process = open(child.id()).unwrap();
        (child, process)
    }

    fn end(process: &OwnedFd) -> ProcessEnd {
        wait_readable(process.as_fd()).unwrap();
        reap(process.as_fd()).unwrap().unwrap()
    }

    #[test]
    fn ends_are_as_waitpid_says_them() {
        for (script, wanted) in
            [("exit 0", 0), ("exit 255", 255 << 8), ("kill -9 $$", 9), ("kill -34 $$", 34)]
        {
            let (_child, process) = start(script);
            let ended = end(&process);
            assert_eq!(ended.wait_status, wanted, "{script}");
            let said = ended.exit_status().map_or_else(|| ended.signal(), |code| Some(code << 8));
            assert_eq!(said, Some(wanted), "{script}");
            assert!(reap(process.as_fd()).is_err(), "a second end");
        }
    }

    #[test]
    fn what_was_used_is_told() {
        let (_child, process) = start("i=0; while test $i -lt 30000; do i=$((i+1)); done");
        let ended = end(&process);
        assert!(ended.user + ended.system > Duration::ZERO);
        assert!(ended.memory_bytes > 100_000);
    }

    #[test]
    fn a_signal_reaches_the_group_and_its_failure_is_told() {
        let (child, process) = start("sleep 1000 & wait");
        signal(process.as_fd(), child.id(), 0, SignalScope::Group).unwrap();
        assert!(reap(process.as_fd()).unwrap().is_none());
        assert!(!has_ended(&process).unwrap());
        signal(process.as_fd(), child.id(), libc::SIGTERM, SignalScope::Group).unwrap();
        assert_eq!(end(&process).wait_status, libc::SIGTERM);
        let wrong = signal(process.as_fd(), child.id(), 999, SignalScope::Process).unwrap_err();
        assert!(matches!(wrong.raw_os_error(), Some(libc::EINVAL | libc::ESRCH)));
        let gone = signal(process.as_fd(), child.id(), 15, SignalScope::Process).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
