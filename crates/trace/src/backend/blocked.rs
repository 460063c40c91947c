//! The system call of a blocked thread, read from `/proc` without stopping the thread.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::procfs;
use crate::syscall::call_name;

/// The system call in which a thread is blocked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockedSyscall {
    /// The number of the call.
    pub number: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The stack pointer.
    pub sp: u64,
    /// The instruction pointer.
    pub ip: u64,
}

impl BlockedSyscall {
    /// Returns whether the call may be one of 32-bit code, whose numbers mean other calls: code and stack of that are below 4 GiB.
    fn may_be_foreign(&self) -> bool {
        self.sp >> 32 == 0 && self.ip >> 32 == 0
    }
}

/// The most programs of which it is remembered whether they are of 32 bits.
const PROGRAMS: usize = 4096;

/// Which processes run programs of 32 bits, whose calls have other numbers.
#[derive(Debug, Default)]
pub(crate) struct ForeignPrograms(HashMap<u32, (Vec<u8>, bool)>);

impl ForeignPrograms {
    /// Returns whether a call of `process` is not the one that has its number here, or may not be: the program cannot be read. A program
    /// is looked at until it could be read once.
    pub(crate) fn makes(&mut self, process: u32, call: &BlockedSyscall) -> bool {
        if !call.may_be_foreign() {
            return false;
        }
        let program = procfs::executable(process);
        if let Some((known, is_foreign)) = self.0.get(&process)
            && *known == program
        {
            return *is_foreign;
        }
        let Ok(is_foreign) = procfs::is_foreign(process) else { return true };
        if self.0.len() >= PROGRAMS {
            self.0.clear();
        }
        self.0.insert(process, (program, is_foreign));
        is_foreign
    }
}

/// The call in which a thread was blocked last. After a stop the kernel goes on with it by `restart_syscall`, and shows that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RestartedSyscall {
    last: Option<BlockedSyscall>,
}

impl RestartedSyscall {
    /// Returns the call that goes on in place of `restart_syscall`, where it was seen before.
    pub(super) fn named(&mut self, seen: BlockedSyscall) -> BlockedSyscall {
        if call_name(seen.number) == Some("restart_syscall") {
            let is_same = |last: &BlockedSyscall| (last.sp, last.ip) == (seen.sp, seen.ip);
            return self.last.filter(is_same).unwrap_or(seen);
        }
        self.last = Some(seen);
        seen
    }
}

/// The scheduler's counters of a thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SchedulerCounters {
    /// The time on a CPU, in nanoseconds.
    pub cpu_ns: u64,
    /// The time in which the thread was runnable and waited for a CPU, in nanoseconds.
    pub queued_ns: u64,
    /// How often the thread was put on a CPU.
    pub turns: u64,
}

/// Parses `/proc/PID/task/TID/syscall`; `None` for a thread that runs, waits outside of a call, or has ended.
#[must_use]
pub fn parse_syscall(text: &[u8]) -> Option<BlockedSyscall> {
    let text = str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = next()?;
    }
    Some(BlockedSyscall { number, arguments, sp: next()?, ip: next()? })
}

/// What a thread does, as `/proc/PID/task/TID/syscall` tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ThreadActivity {
    /// It runs, or could run.
    Running,
    /// It is blocked in a call.
    InCall(BlockedSyscall),
    /// It is blocked outside of a call, at this instruction and stack: it waits for a page, or is stopped.
    OutsideOfCall(u64, u64),
}

/// Parses `/proc/PID/task/TID/syscall`; `None` for a text that is none of the three.
fn parse_activity(text: &[u8]) -> Option<ThreadActivity> {
    if text.starts_with(b"running") {
        return Some(ThreadActivity::Running);
    }
    let Some(rest) = text.strip_prefix(b"-1 ") else {
        return parse_syscall(text).map(ThreadActivity::InCall);
    };
    let mut words = str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let sp = next()?;
    Some(ThreadActivity::OutsideOfCall(next()?, sp))
}

/// Parses `/proc/PID/task/TID/schedstat`.
#[must_use]
pub fn parse_schedstat(text: &[u8]) -> Option<SchedulerCounters> {
    let text = str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next()?.parse().ok();
    Some(SchedulerCounters { cpu_ns: next()?, queued_ns: next()?, turns: next()? })
}

/// The files in `/proc` of one thread, which are kept open unless there are too many.
#[derive(Debug)]
pub struct ThreadFiles {
    process: u32,
    thread: u32,
    kept: Option<(File, File)>,
}

/// Whether files are kept open between samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileRetention {
    /// The files stay open.
    Open,
    /// The files are opened for each sample.
    Closed,
}

impl ThreadFiles {
    /// Opens the files of a thread, or stores its IDs for later.
    #[must_use]
    pub fn new(process: u32, thread: u32, keep: FileRetention) -> ThreadFiles {
        let kept = (keep == FileRetention::Open)
            .then(|| Some((open(process, thread, "syscall")?, open(process, thread, "schedstat")?)))
            .flatten();
        ThreadFiles { process, thread, kept }
    }

    /// Returns whether the files are open.
    pub(super) fn are_open(&self) -> bool {
        self.kept.is_some()
    }

    /// Reads the call in which the thread is blocked.
    pub(super) fn syscall(&self) -> Result<Option<BlockedSyscall>, std::io::Error> {
        self.read("syscall", |(call, _)| call).map(|(text, length)| parse_syscall(&text[..length]))
    }

    /// Reads what the thread does; `None` if the text of the kernel is of no known form.
    ///
    /// # Errors
    ///
    /// As `read(2)`: the thread has ended, or may not be looked at.
    pub fn activity(&self) -> Result<Option<ThreadActivity>, std::io::Error> {
        self.read("syscall", |(call, _)| call).map(|(text, length)| parse_activity(&text[..length]))
    }

    /// Reads the scheduler's counters of the thread; `None` if it has ended.
    #[must_use]
    pub fn counters(&self) -> Option<SchedulerCounters> {
        let (text, length) = self.read("schedstat", |(_, used)| used).ok()?;
        parse_schedstat(&text[..length])
    }

    fn read(
        &self,
        name: &str,
        which: impl Fn(&(File, File)) -> &File,
    ) -> std::io::Result<([u8; 256], usize)> {
        let mut text = [0; 256];
        let length = match &self.kept {
            Some(kept) => which(kept).read_at(&mut text, 0)?,
            None => path(self.process, self.thread, name).and_then(|f| f.read_at(&mut text, 0))?,
        };
        Ok((text, length))
    }
}

fn path(process: u32, thread: u32, name: &str) -> std::io::Result<File> {
    File::open(format!("/proc/{process}/task/{thread}/{name}"))
}

fn open(process: u32, thread: u32, name: &str) -> Option<File> {
    path(process, thread, name).ok()
}

/// Reads the call in which a thread is blocked; `None` if it runs, has ended, may not be traced, or runs a program of 32 bits.
#[must_use]
pub fn blocked_syscall(process: u32, thread: u32) -> Option<BlockedSyscall> {
    let call = ThreadFiles::new(process, thread, FileRetention::Closed).syscall().ok().flatten()?;
    // What is of 32 bits by its addresses is so unless the program says otherwise.
    let is_foreign = call.may_be_foreign() && procfs::is_foreign(process).unwrap_or(true);
    (!is_foreign).then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_call_is_read_and_others_are_none() {
        let text = b"74 0x3 0x0 0x1 0x7fff 0x0 0x0 0x7ffc35bf8e08 0x7fa1b2c3d4e5\n";
        let seen = parse_syscall(text).unwrap();
        assert_eq!((seen.number, seen.arguments[0], seen.arguments[3]), (74, 3, 0x7fff));
        assert_eq!((seen.sp, seen.ip), (0x7ffc_35bf_8e08, 0x7fa1_b2c3_d4e5));
        for none in [&b"running\n"[..], b"-1 0x7ffc 0x7fa1\n", b"", b"74 0x3", b"\xff"] {
            assert_eq!(parse_syscall(none), None);
        }
    }

    #[test]
    fn a_wait_outside_of_a_call_is_told_from_a_thread_that_runs() {
        let activity = |text: &str| parse_activity(text.as_bytes());
        assert_eq!(activity("running\n"), Some(ThreadActivity::Running));
        let outside = Some(ThreadActivity::OutsideOfCall(0x7fa1, 0x7ffc));
        assert_eq!(activity("-1 0x7ffc 0x7fa1\n"), outside);
        assert!(matches!(
            activity("7 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8\n"),
            Some(ThreadActivity::InCall(_))
        ));
        for none in ["", "-1 0x7ffc", "-1", "what"] {
            assert_eq!(activity(none), None, "{none}");
        }
    }

    #[test]
    fn a_call_that_goes_on_after_a_stop_keeps_its_name() {
        let call = |name: &str, sp: u64| BlockedSyscall {
            number: crate::syscall::call_number(name).unwrap(),
            arguments: [1, 2, 3, 0, 0, 0],
            sp,
            ip: 7,
        };
        let mut restarted = RestartedSyscall::default();
        let (poll, after) = (call("poll", 1), call("restart_syscall", 1));
        assert_eq!(restarted.named(after), after, "what it was is not known");
        assert_eq!(restarted.named(poll), poll);
        assert_eq!(restarted.named(after), poll);
        assert_eq!(restarted.named(after), poll);
        let elsewhere = call("restart_syscall", 2);
        assert_eq!(restarted.named(elsewhere), elsewhere);
    }

    #[test]
    fn a_program_that_cannot_be_read_is_looked_at_again() {
        let low = BlockedSyscall { number: 3, arguments: [0; 6], sp: 0xffff_0000, ip: 0x804_8000 };
        let high = BlockedSyscall { ip: 0x7fa1_b2c3_d4e5, ..low };
        let mut programs = ForeignPrograms::default();
        // There is no such process, as if its file system did not answer.
        assert!(programs.makes(u32::MAX, &low) && !programs.makes(u32::MAX, &high));
        assert!(programs.0.is_empty(), "{programs:?}");
        assert!(!programs.makes(std::process::id(), &low));
        assert_eq!(programs.0.len(), 1);
    }

    #[test]
    fn what_was_used_is_read() {
        let used = SchedulerCounters { cpu_ns: 12, queued_ns: 34, turns: 5 };
        assert_eq!(parse_schedstat(b"12 34 5\n"), Some(used));
        assert_eq!(parse_schedstat(b"12 34"), None);
    }
}
