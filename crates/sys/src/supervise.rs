//! Standing between a shell and a program: a stop and an end like the program's, and a second process that outlives the first.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Pid;

use crate::signals::Mask;

/// Makes this process the parent of all descendants whose own parent ends, so that none gets out of sight.
///
/// # Errors
///
/// None is known on kernels since 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Gives the calling thread a mount namespace of its own: what it, and what it starts from now on, mounts is seen there alone, and is gone with the last of them.
///
/// # Errors
///
/// `EPERM`: it needs root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: the thread's working directory and mounts become its own; no memory or descriptor of ours is touched.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?)
}

/// Which of the two processes after [`fork`] this is.
#[derive(Debug, PartialEq, Eq)]
pub enum ForkSide {
    /// The one that called; the new one has this number.
    Parent(u32),
    /// The new one.
    Child,
}

/// How often threads are counted before there are too many.
const LOOKS: u32 = 200;

/// Makes a second process out of this one, which must have one thread only.
///
/// # Errors
///
/// `EAGAIN`: too many processes; `WouldBlock`: there are more threads, whose locks nobody would ever open in the new process.
pub fn fork() -> io::Result<ForkSide> {
    if !has_one_thread()? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // SAFETY: this is the only thread, so the new process has a whole copy of all that it needs.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid => match u32::try_from(pid) {
            Ok(pid) => Ok(ForkSide::Parent(pid)),
            Err(_) => Err(io::Error::last_os_error()),
        },
    }
}

/// Says whether this process has one thread only, so that it can [`fork`]; threads of ours that wait for work are ended.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn has_one_thread() -> io::Result<bool> {
    let count = || Ok::<_, io::Error>(std::fs::read_dir("/proc/self/task")?.count());
    crate::process_file::end_idle_threads();
    // A thread that has ended may be there for a moment more.
    for _ in 0..LOOKS {
        if count()? == 1 {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}

/// Ignores these signals from now on, as the programs that this process starts do; a number that is none changes nothing.
pub fn ignore(signals: &[i32]) {
    for signal in signals {
        // SAFETY: no handler is involved; what the kernel does not know it refuses.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Has the child `process` go on whenever somebody stops it, and returns how it ended.
///
/// # Errors
///
/// As `waitpid(2)`: it is no child of this process, or its end was taken.
pub fn keep_running(process: u32) -> io::Result<ExitStatus> {
    let pid = i32::try_from(process).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes one number to where `status` is.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
        if waited < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(ExitStatus::from_raw(status));
        }
        send(process, libc::SIGCONT)?;
    }
}

/// Ends this process at once with `status`: nothing is flushed, no destructor runs.
///
/// It is for the second process after [`fork`], whose buffers are copies of the first one's.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: the call takes a number and does not come back.
    unsafe { libc::_exit(status) }
}

/// Stops this process by `signal`, as a shell sees a stopped job; returns when it goes on, or at once where nobody would wake it.
pub fn stop_by(signal: i32) {
    // SAFETY: the call takes a number only. It takes effect when the mask opens.
    unsafe { libc::raise(signal) };
    let before = Mask::open_for(signal);
    before.set();
}

/// Makes the three standard streams of this process `/dev/null`: its child alone has them then.
///
/// # Errors
///
/// `/dev/null` cannot be opened; nothing changes.
pub fn let_go_of_standard_streams() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Closes every descriptor of this process but `kept` and the three standard ones, which become `/dev/null`, and leaves the terminal and the job of the shell.
///
/// It is for the second process after [`fork`]: what the first one was given, pipes above all, is not held open by it.
///
/// # Errors
///
/// `/dev/null` or `/proc` cannot be opened.
pub fn detach(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    // It is the leader of no group after fork.
    let _ = rustix::process::setsid();
    keep_only(kept)
}

/// Does the same but for the session: this process leaves the job of the shell, and with it what the terminal stops and
/// ends, and goes on sharing the processors as one of its session.
///
/// # Errors
///
/// As [`detach`].
pub fn leave_job(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    rustix::process::setpgid(None, None)?;
    keep_only(kept)
}

fn keep_only(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let_go_of_standard_streams()?;
    let kept: Vec<i32> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2 && !kept.contains(number))
        .collect();
    for number in numbers {
        // SAFETY: no object of this process owns it: the caller goes on with `kept` alone. The one of the reading above is closed already.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Ends this process by `signal`, without a core file of its own, so that its parent sees what a child's end was.
///
/// Returns if the signal does not end processes.
pub fn die_by(signal: i32) {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // Without the limit a second core file would be written: not worth an error.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: the default action needs no handler; an invalid number is refused.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let _ = Mask::open_for(signal);
    // SAFETY: the call takes a number only.
    unsafe { libc::raise(signal) };
}

/// Sends `signal` to process `pid`.
///
/// # Errors
///
/// `ESRCH`: it has ended; `EPERM`: it is a stranger's; `EINVAL`: there is no such signal.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes numbers only.
    let done = unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_does_not_fork() {
        // The test runner has a thread of its own beside this one.
        assert_eq!(fork().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
