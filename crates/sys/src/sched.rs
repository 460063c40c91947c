//! In which class a process reads, writes and computes: how much it yields to all others.
//!
//! ioprio_set(2), sched(7). Both classes belong to threads; a new thread or process inherits those of its maker, so they are set before the first instruction of a program.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::signals::Mask;

/// Bits before the class in the kernel's number.
const CLASS_SHIFT: u32 = 13;
/// `IOPRIO_WHO_PROCESS`: one thread, by its number.
const WHO_PROCESS: libc::c_int = 1;

/// The class of a thread's reads and writes, as the I/O scheduler sees it.
///
/// Writes that go through the page cache are made by the kernel's flusher in its own class, unless the thread itself starts them with [`start_writeback`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// None chosen: the scheduler derives one from the processor class.
    Unset,
    /// Before all others, with a level of 0 (first) to 7.
    Realtime(u8),
    /// The usual one, with a level of 0 (first) to 7.
    BestEffort(u8),
    /// Only when nobody else wants the disk, for schedulers that know classes (bfq, mq-deadline).
    Idle,
}

impl IoClass {
    fn number(self) -> libc::c_int {
        let (class, level) = match self {
            IoClass::Unset => (0, 0),
            IoClass::Realtime(level) => (1, level),
            IoClass::BestEffort(level) => (2, level),
            IoClass::Idle => (3, 0),
        };
        (class << CLASS_SHIFT) | libc::c_int::from(level.min(7))
    }

    fn of_number(number: libc::c_long) -> IoClass {
        let level = u8::try_from(number & 7).unwrap_or(0);
        match (number >> CLASS_SHIFT) & 7 {
            1 => IoClass::Realtime(level),
            2 => IoClass::BestEffort(level),
            3 => IoClass::Idle,
            _ => IoClass::Unset,
        }
    }

    /// Returns the class of thread `tid`; 0 is the caller.
    ///
    /// # Errors
    ///
    /// `ESRCH`: there is no such thread.
    pub fn of(tid: u32) -> io::Result<IoClass> {
        // SAFETY: the call takes numbers only.
        let number = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, tid) };
        if number < 0 { Err(io::Error::last_os_error()) } else { Ok(IoClass::of_number(number)) }
    }

    /// Gives thread `tid` this class; 0 is the caller. Its other threads keep theirs.
    ///
    /// # Errors
    ///
    /// `ESRCH`: there is no such thread; `EPERM`: it is a stranger's, or the class is [`IoClass::Realtime`].
    pub fn set(self, tid: u32) -> io::Result<()> {
        // SAFETY: the call takes numbers only.
        let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, tid, self.number()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The class in which a thread gets the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuClass {
    /// The usual one, shared by niceness.
    Normal,
    /// As the usual one, but taken to be busy without end: it does not pre-empt others when it wakes.
    Batch,
    /// Less than the nicest thread of the usual class. May be left again, within `RLIMIT_NICE`.
    Idle,
}

impl CpuClass {
    fn number(self) -> libc::c_int {
        match self {
            CpuClass::Normal => libc::SCHED_OTHER,
            CpuClass::Batch => libc::SCHED_BATCH,
            CpuClass::Idle => libc::SCHED_IDLE,
        }
    }

    /// Returns the class of thread `tid`; 0 is the caller. Real-time classes count as [`CpuClass::Normal`].
    ///
    /// # Errors
    ///
    /// `ESRCH`: there is no such thread.
    pub fn of(tid: u32) -> io::Result<CpuClass> {
        let tid = libc::pid_t::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the call takes a number only.
        let number = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // The numbers of classes and that flag are far from the end of the type.
        match i32::try_from(number).unwrap_or_default() & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_BATCH => Ok(CpuClass::Batch),
            libc::SCHED_IDLE => Ok(CpuClass::Idle),
            _ => Ok(CpuClass::Normal),
        }
    }

    /// Gives thread `tid` this class; 0 is the caller.
    ///
    /// # Errors
    ///
    /// `ESRCH`: there is no such thread; `EPERM`: it is a stranger's, or an idle one may not come back.
    pub fn set(self, tid: u32) -> io::Result<()> {
        let tid = libc::pid_t::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
        // `struct sched_param` of the kernel. The call of the C library is not for us: musl's always fails.
        let priority: libc::c_int = 0;
        // SAFETY: the pointer is to a value of ours that lives until the call has returned.
        let done = unsafe {
            libc::syscall(libc::SYS_sched_setscheduler, tid, self.number(), &raw const priority)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// So long a thread in a hurry computes before others are chosen again, in nanoseconds: the shortest time that the kernel takes.
const SHORTEST_NS: u64 = 100_000;

/// The calling thread runs before others as soon as it can, until this goes: with the lowest real-time priority, or where
/// that is not allowed in the shortest slices, which let a thread that has used less than its share begin at once (Linux 6.12).
///
/// For threads that compute little and must not be late. A child of the thread is in no hurry.
#[derive(Debug)]
pub struct RealtimeGuard {
    before: libc::sched_attr,
    /// It is one thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl RealtimeGuard {
    /// Begins to hurry.
    ///
    /// # Errors
    ///
    /// As sched_setattr(2); the thread is as it was.
    pub fn begin() -> io::Result<RealtimeGuard> {
        let before = attributes()?;
        let realtime = libc::sched_attr {
            sched_policy: libc::SCHED_RR.cast_unsigned(),
            sched_flags: libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into(),
            sched_priority: 1,
            sched_nice: 0,
            sched_runtime: 0,
            ..before
        };
        let short = libc::sched_attr {
            sched_policy: libc::SCHED_OTHER.cast_unsigned(),
            sched_runtime: SHORTEST_NS,
            ..before
        };
        set_attributes(&realtime).or_else(|_| set_attributes(&short))?;
        Ok(RealtimeGuard { before, _thread: std::marker::PhantomData })
    }
}

impl Drop for RealtimeGuard {
    fn drop(&mut self) {
        // Less is always allowed; a thread that hurries on is no worse for it.
        let _ = set_attributes(&self.before);
    }
}

/// How the calling thread is scheduled.
fn attributes() -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are numbers, of which each may be 0.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    let to = &raw mut attributes;
    // SAFETY: the pointer is to a value of ours of that size, which lives until the call has returned.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, to, size, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
}

fn set_attributes(attributes: &libc::sched_attr) -> io::Result<()> {
    let from = std::ptr::from_ref(attributes);
    // SAFETY: the pointer is to a value that says its own size and lives until the call has returned.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, from, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How a program that is about to start yields to others.
#[derive(Debug)]
pub struct ExecScheduling {
    /// The class of its reads and writes.
    pub io: IoClass,
    /// Its class on the processor.
    pub cpu: CpuClass,
    /// `cgroup.procs` of the cgroup that it starts in, opened for writing.
    pub cgroup: Option<OwnedFd>,
    /// The signals that it begins with held back; `None` leaves those of the one who starts it.
    pub mask: Option<Mask>,
    /// What the kernel does to it when the thread that starts it ends first.
    pub orphaned: Orphaned,
}

/// What becomes of a program when the one that started it ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphaned {
    /// It goes on.
    GoesOn,
    /// It is killed, unless it has gained privileges by then (prctl(2), `PR_SET_PDEATHSIG`).
    Killed,
}

/// Has `command` take on `manners` just before it becomes its program.
///
/// A class that the kernel refuses is left as it is: a program that yields less is better than none. A cgroup that cannot be joined fails the spawn.
pub fn before_exec(command: &mut Command, manners: ExecScheduling) {
    let parent = rustix::process::getpid();
    let behave = move || {
        if manners.orphaned == Orphaned::Killed {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // It may have ended before the line above.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        if let Some(cgroup) = &manners.cgroup {
            rustix::io::write(cgroup, b"0")?;
        }
        let _ = manners.io.set(0);
        let _ = manners.cpu.set(0);
        if let Some(mask) = manners.mask {
            mask.set();
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes locks after the fork.
    unsafe { command.pre_exec(behave) };
}

/// Starts to write what is dirty of `file` between `offset` and `offset + len` (0 is the end) in the class of the calling thread, and waits for nothing.
///
/// This is how bytes get the class of the one who wrote them. It makes no metadata durable and gives no guarantee: sync_file_range(2).
///
/// # Errors
///
/// `ESPIPE` or `EINVAL`: not a regular file; `EIO`, `ENOSPC`: an earlier write failed.
pub fn start_writeback(file: &impl AsRawFd, offset: i64, len: i64) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: the call takes numbers only, and the descriptor is open while it is borrowed.
    let done = unsafe { libc::sync_file_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until what is being written of `file` between `offset` and `offset + len` (0 is the end) has been written; what is only dirty is left.
///
/// # Errors
///
/// As [`start_writeback`].
pub fn wait_for_writeback(file: &impl AsRawFd, offset: i64, len: i64) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: the call takes numbers only, and the descriptor is open while it is borrowed.
    let done = unsafe { libc::sync_file_range(fd, offset, len, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use super::*;

    #[test]
    fn a_class_is_a_number_and_back() {
        let all = [IoClass::Unset, IoClass::Realtime(3), IoClass::BestEffort(7), IoClass::Idle];
        for class in all {
            assert_eq!(IoClass::of_number(class.number().into()), class);
        }
    }

    #[test]
    fn a_program_starts_in_the_classes_it_was_given() {
        let mut command = Command::new("sh");
        // Field 41 is the policy: 5 is SCHED_IDLE.
        command.args(["-c", "ionice -p $$; cut -d' ' -f41 /proc/$$/stat"]);
        let manners = ExecScheduling {
            io: IoClass::Idle,
            cpu: CpuClass::Idle,
            cgroup: None,
            mask: None,
            orphaned: Orphaned::Killed,
        };
        before_exec(&mut command, manners);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["idle", "5"]);
        assert_eq!(IoClass::of(0).unwrap(), IoClass::Unset, "the one who started it keeps its own");
    }

    #[test]
    fn a_thread_goes_into_the_idle_class_and_says_so() {
        std::thread::spawn(|| {
            IoClass::Idle.set(0).unwrap();
            CpuClass::Batch.set(0).unwrap();
            assert_eq!(IoClass::of(0).unwrap(), IoClass::Idle);
            assert_eq!(CpuClass::of(0).unwrap(), CpuClass::Batch);
        })
        .join()
        .unwrap();
        assert_eq!(IoClass::of(u32::MAX >> 2).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_thread_hurries_and_is_then_as_it_was() {
        std::thread::spawn(|| {
            let numbers =
                |all: &libc::sched_attr| (all.sched_policy, all.sched_nice, all.sched_runtime);
            CpuClass::Batch.set(0).unwrap();
            let before = numbers(&attributes().unwrap());
            let hurry = RealtimeGuard::begin().unwrap();
            let meanwhile = attributes().unwrap();
            let is_realtime = meanwhile.sched_policy == libc::SCHED_RR.cast_unsigned();
            assert!(is_realtime || meanwhile.sched_policy == libc::SCHED_OTHER.cast_unsigned());
            drop(hurry);
            assert_eq!(numbers(&attributes().unwrap()), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn writeback_is_started_for_files_only() {
        let file = tempfile::tempfile().unwrap();
        start_writeback(&file, 0, 0).unwrap();
        wait_for_writeback(&file, 0, 0).unwrap();
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(start_writeback(&end, 0, 0).is_err());
        assert!(wait_for_writeback(&end, 0, 0).is_err());
    }
}
