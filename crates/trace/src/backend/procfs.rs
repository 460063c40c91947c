//! Information from `/proc` about traced threads.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;

use sys::process_file;

/// The longest command line that is kept, in bytes.
const COMMAND_LINE: usize = 64 << 10;

/// The process of a thread, and its parent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ThreadIdentity {
    /// Its process.
    pub(super) process: u32,
    /// The process's parent.
    pub(super) parent: u32,
}

/// Returns the process of thread `tid` and its parent; `None` if it has ended.
pub(super) fn kin(tid: u32) -> Option<ThreadIdentity> {
    parse_kin(&fs::read(format!("/proc/{tid}/status")).ok()?)
}

fn parse_kin(status: &[u8]) -> Option<ThreadIdentity> {
    let field = |name| status_field(status, name).and_then(|value| u32::try_from(value).ok());
    Some(ThreadIdentity { process: field(b"Tgid:")?, parent: field(b"PPid:")? })
}

/// Returns a number of `/proc/PID/status`.
fn status_field(status: &[u8], name: &[u8]) -> Option<u64> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Returns how many seccomp filters a process has; `None` before Linux 5.9.
pub(super) fn filters(process: u32) -> Option<u64> {
    status_field(&fs::read(format!("/proc/{process}/status")).ok()?, b"Seccomp_filters:")
}

/// Returns whether a thread is traced by the calling thread.
pub(super) fn is_traced_by_us(tid: u32) -> bool {
    let status = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    let ours = format!("TracerPid:\t{}", rustix::thread::gettid().as_raw_nonzero());
    status.split(|byte| *byte == b'\n').any(|line| line == ours.as_bytes())
}

/// Returns the program that a process runs; empty if it has ended.
pub(crate) fn executable(process: u32) -> Vec<u8> {
    let link = fs::read_link(format!("/proc/{process}/exe"));
    link.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// Returns the command line of a process; empty if it has ended.
pub(super) fn command_line(process: u32) -> Vec<Vec<u8>> {
    let line = process_file::read(process, "cmdline", COMMAND_LINE as u64);
    if line.as_ref().is_err_and(process_file::is_stuck) {
        // The kernel's name for it waits for nobody.
        return vec![thread_name(process, process)];
    }
    let text = line.unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Returns whether a process hangs in the kernel with the lock of its memory held: whoever reads its memory hangs with it.
pub(crate) fn hangs(process: u32) -> bool {
    process_file::read(process, "cmdline", 1).is_err_and(|error| process_file::is_stuck(&error))
}

/// Returns the name of a thread; empty if it has ended.
pub(super) fn thread_name(process: u32, tid: u32) -> Vec<u8> {
    let mut name = fs::read(format!("/proc/{process}/task/{tid}/comm")).unwrap_or_default();
    name.truncate(name.trim_ascii_end().len());
    name
}

/// Returns the threads of a process; nothing if it has ended.
///
/// # Errors
///
/// As `readdir(3)`: the process has ended, or belongs to another user.
pub(super) fn threads(process: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{process}/task"))?;
    let numbers = entries
        .filter_map(|entry| str::from_utf8(entry.ok()?.file_name().as_bytes()).ok()?.parse().ok());
    Ok(numbers.collect())
}

/// Says that so many calls had begun before the recording.
pub(super) fn note_of_adopted(count: u64) -> String {
    let (calls, their) =
        if count == 1 { ("1 call had", "it took") } else { ("calls had", "they took") };
    let number = if count == 1 { String::new() } else { format!("{count} ") };
    format!(
        "{number}{calls} begun before the recording: {their} longer than is told, by a time that is not known."
    )
}

/// Returns whether a process runs a program of another architecture or word size.
///
/// # Errors
///
/// The program cannot be read: the process has ended, belongs to another user, or its file system does not answer.
pub(crate) fn is_foreign(process: u32) -> io::Result<bool> {
    // The program may lie on a file system that hangs.
    let head = process_file::read(process, "exe", 20)?;
    // `EI_CLASS` 1 is 32 bits; x32 is that with the machine of 64 bits.
    Ok(head.len() == 20 && head.starts_with(b"\x7fELF") && head[4] == 1)
}

/// Returns whether a process is known to run a program of another architecture or word size.
pub(crate) fn is_surely_foreign(process: u32) -> bool {
    is_foreign(process).unwrap_or(false)
}

/// Returns whether a thread has begun to exit or is gone: it will run nothing of its program any more.
pub(crate) fn is_exiting(process: u32, tid: u32) -> bool {
    match fs::read(format!("/proc/{process}/task/{tid}/stat")) {
        Ok(stat) => parse_exiting(&stat),
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound
                || rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::SRCH)
        }
    }
}

/// Returns how many pages the first thread of a process has waited for a disk for.
pub(super) fn fault_count(process: u32) -> Option<u64> {
    stat_field(&fs::read(format!("/proc/{process}/task/{process}/stat")).ok()?, 9)?.parse().ok()
}

/// What holds a thread that does not wait by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StoppedBy {
    /// A signal, or the freezer.
    Signal,
    /// A tracer.
    Tracer,
}

/// Returns what has stopped the first thread of a process; `None` if nothing has.
pub(crate) fn stopped_by(process: u32) -> Option<StoppedBy> {
    let read = |name: &str| fs::read(format!("/proc/{process}/task/{process}/{name}"));
    let state = read("stat").ok();
    match state.as_deref().and_then(|stat| stat_field(stat, 0)) {
        Some("T") => Some(StoppedBy::Signal),
        Some("t") => Some(StoppedBy::Tracer),
        _ => is_frozen(process).then_some(StoppedBy::Signal),
    }
}

/// Returns whether the freezer holds a process: its first thread sleeps as others do, and the kernel's function tells.
#[must_use]
pub fn is_frozen(process: u32) -> bool {
    fs::read(format!("/proc/{process}/task/{process}/wchan"))
        .is_ok_and(|function| is_of_freezer(&function))
}

/// Returns whether a function of the kernel in which a thread sleeps is that of the freezer. In some kernels it is a part of
/// `get_signal`, in which nothing else sleeps that is neither stopped nor traced; `__refrigerator` is that of version 1.
fn is_of_freezer(function: &[u8]) -> bool {
    matches!(function, b"do_freezer_trap" | b"get_signal" | b"__refrigerator")
}

/// Returns a field of `/proc/PID/task/TID/stat`, counted from the state on, which follows the name in parentheses.
fn stat_field(stat: &[u8], number: usize) -> Option<&str> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[name + 1..]).ok()?.split_ascii_whitespace().nth(number)
}

/// Reads the state and the flags of `/proc/PID/task/TID/stat`: they follow the name, which may hold parentheses itself.
fn parse_exiting(stat: &[u8]) -> bool {
    /// The flag of a task that has entered `do_exit`, in Linux's `include/linux/sched.h`.
    const PF_EXITING: u32 = 0x4;
    let flags = stat_field(stat, 6).and_then(|flags| flags.parse::<u32>().ok());
    matches!(stat_field(stat, 0), Some("Z" | "X"))
        || flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Returns how long the host of this virtual machine has kept its processors for itself: the sum of them all, in ticks of (usually)
/// 10 ms. A thread that runs on one has the time in none of its counters. Zero where the kernel does not say.
pub(crate) fn stolen_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    parse_stolen(&text).unwrap_or(0).saturating_mul(1_000_000_000 / per_second)
}

/// Reads the eighth number of the first line, as in proc_stat(5).
fn parse_stolen(text: &str) -> Option<u64> {
    let numbers = text.lines().next()?.strip_prefix("cpu ")?;
    numbers.split_ascii_whitespace().nth(7)?.parse().ok()
}

/// The scheduler's counters of a thread: `/proc/PID/task/TID/schedstat`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CpuUsage {
    /// Nanoseconds on a CPU.
    pub(crate) cpu_ns: u64,
    /// Nanoseconds ready to run and waiting for one.
    pub(crate) queued_ns: u64,
}

/// The open counters of a thread.
#[derive(Debug)]
pub(crate) struct SchedstatFile(File);

impl SchedstatFile {
    /// Opens the counters of a thread; `None` if it has ended, the kernel has none, or no descriptor is left.
    pub(crate) fn open(process: u32, tid: u32) -> Option<SchedstatFile> {
        File::open(format!("/proc/{process}/task/{tid}/schedstat")).ok().map(SchedstatFile)
    }

    /// Reads them as they are now.
    pub(crate) fn read(&self) -> Option<CpuUsage> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse_used(text.get(..length)?)
    }
}

fn parse_used(text: &[u8]) -> Option<CpuUsage> {
    let mut words = text.split(|byte| *byte == b' ');
    let mut next = || -> Option<u64> {
        words.next()?.iter().try_fold(0_u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(digit.into())
        })
    };
    Some(CpuUsage { cpu_ns: next()?, queued_ns: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_kin_are_read() {
        let stat = "cpu  4338053 901724 1677360 7682859 103927 0 22328 6618 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(parse_stolen(stat), Some(6618));
        assert_eq!(parse_stolen("cpu  1 2 3 4 5 6 7\n"), None, "before Linux 2.6.11");
        assert_eq!(parse_used(b"123 45 6\n"), Some(CpuUsage { cpu_ns: 123, queued_ns: 45 }));
        assert_eq!(parse_used(b"1x 2 3\n"), None);
        assert_eq!(parse_used(b""), None);
        let status =
            b"Name:\tTgid: 1\nTgid:\t12\nNgid:\t0\nPid:\t13\nPPid:\t7\nSeccomp_filters:\t3\n";
        assert_eq!(status_field(status, b"Seccomp_filters:"), Some(3));
        assert_eq!(parse_kin(status), Some(ThreadIdentity { process: 12, parent: 7 }));
    }

    #[test]
    fn a_thread_that_exits_is_told_from_one_that_runs() {
        let stat =
            |state: &str, flags: u32| format!("7 (a) b (c)) {state} 1 7 7 0 -1 {flags} 0 0\n");
        for (state, flags, exits) in [
            ("R", 0x40_0000, false),
            ("S", 0x40_0000, false),
            ("R", 0x40_0004, true),
            ("Z", 0x40_000c, true),
            ("Z", 0, true),
        ] {
            assert_eq!(parse_exiting(stat(state, flags).as_bytes()), exits, "{state} {flags:#x}");
        }
        assert!(!parse_exiting(b"") && !parse_exiting(b"7 (x) S"));
        assert!(!is_exiting(std::process::id(), std::process::id()));
        assert!(is_exiting(u32::MAX, u32::MAX), "no such process");
    }

    #[test]
    fn this_thread_is_there() {
        let process = std::process::id();
        assert_eq!(kin(process).unwrap().process, process);
        assert!(threads(process).unwrap().contains(&process));
        assert!(SchedstatFile::open(process, process).unwrap().read().unwrap().cpu_ns > 0);
        assert!(!thread_name(process, process).is_empty());
        assert!(!executable(process).is_empty() && !command_line(process).is_empty());
        assert!(!is_foreign(process).unwrap());
        assert!(is_foreign(u32::MAX).is_err() && !is_surely_foreign(u32::MAX));
    }

    #[test]
    fn the_freezer_is_known_by_each_of_its_names_and_a_wait_is_not_one() {
        for function in ["do_freezer_trap", "get_signal", "__refrigerator"] {
            assert!(is_of_freezer(function.as_bytes()), "{function}");
        }
        for function in ["", "0", "do_sys_poll", "poll_schedule_timeout", "do_freezer_trap_x"] {
            assert!(!is_of_freezer(function.as_bytes()), "{function}");
        }
    }
}
