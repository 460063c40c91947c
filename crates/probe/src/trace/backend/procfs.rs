//! What `/proc` says of the threads that are traced.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;

/// The longest command line that is kept, in bytes.
const COMMAND_LINE: usize = 64 << 10;

/// Whose thread one is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kin {
    /// Its process.
    pub(super) process: u32,
    /// The process's parent.
    pub(super) parent: u32,
}

/// Returns whose thread `tid` is; nothing if it has ended.
pub(super) fn kin(tid: u32) -> Option<Kin> {
    parse_kin(&fs::read(format!("/proc/{tid}/status")).ok()?)
}

fn parse_kin(status: &[u8]) -> Option<Kin> {
    let field = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        str::from_utf8(line).ok()?.trim().parse().ok()
    };
    Some(Kin { process: field(b"Tgid:")?, parent: field(b"PPid:")? })
}

/// Says whether a thread is traced by the calling thread.
pub(super) fn is_traced_by_us(tid: u32) -> bool {
    let status = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    let ours = format!("TracerPid:\t{}", rustix::thread::gettid().as_raw_nonzero());
    status.split(|byte| *byte == b'\n').any(|line| line == ours.as_bytes())
}

/// Returns the program that a process runs; empty if it has ended.
pub(in crate::trace) fn executable(process: u32) -> Vec<u8> {
    let link = fs::read_link(format!("/proc/{process}/exe"));
    link.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// Returns the command line of a process; empty if it has ended.
pub(super) fn command_line(process: u32) -> Vec<Vec<u8>> {
    let mut text = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    text.truncate(COMMAND_LINE);
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
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
/// As `readdir(3)`: the process has ended, or is a stranger's.
pub(super) fn threads(process: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{process}/task"))?;
    let numbers = entries
        .filter_map(|entry| str::from_utf8(entry.ok()?.file_name().as_bytes()).ok()?.parse().ok());
    Ok(numbers.collect())
}

/// Says whether the program that a process runs is for another architecture's calls than ours.
pub(in crate::trace) fn is_foreign(process: u32) -> bool {
    let mut head = [0; 20];
    let read =
        File::open(format!("/proc/{process}/exe")).and_then(|f| f.read_exact_at(&mut head, 0));
    // `EI_CLASS` 1 is 32 bits; x32 is that with the machine of 64 bits.
    read.is_ok() && head.starts_with(b"\x7fELF") && head[4] == 1
}

/// What a thread has used: `/proc/PID/task/TID/schedstat`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::trace) struct Used {
    /// Nanoseconds on a CPU.
    pub(in crate::trace) cpu_ns: u64,
    /// Nanoseconds ready to run and waiting for one.
    pub(in crate::trace) queued_ns: u64,
}

/// The open counters of a thread.
#[derive(Debug)]
pub(in crate::trace) struct Counters(File);

impl Counters {
    /// Opens the counters of a thread; nothing if it has ended, the kernel has none, or we have no descriptor left.
    pub(in crate::trace) fn open(process: u32, tid: u32) -> Option<Counters> {
        File::open(format!("/proc/{process}/task/{tid}/schedstat")).ok().map(Counters)
    }

    /// Reads them as they are now.
    pub(in crate::trace) fn read(&self) -> Option<Used> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse_used(text.get(..length)?)
    }
}

fn parse_used(text: &[u8]) -> Option<Used> {
    let mut words = text.split(|byte| *byte == b' ');
    let mut next = || -> Option<u64> {
        words.next()?.iter().try_fold(0_u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(digit.into())
        })
    };
    Some(Used { cpu_ns: next()?, queued_ns: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_kin_are_read() {
        assert_eq!(parse_used(b"123 45 6\n"), Some(Used { cpu_ns: 123, queued_ns: 45 }));
        assert_eq!(parse_used(b"1x 2 3\n"), None);
        assert_eq!(parse_used(b""), None);
        let status = b"Name:\tTgid: 1\nTgid:\t12\nNgid:\t0\nPid:\t13\nPPid:\t7\n";
        assert_eq!(parse_kin(status), Some(Kin { process: 12, parent: 7 }));
    }

    #[test]
    fn this_thread_is_there() {
        let process = std::process::id();
        assert_eq!(kin(process).unwrap().process, process);
        assert!(threads(process).unwrap().contains(&process));
        assert!(Counters::open(process, process).unwrap().read().unwrap().cpu_ns > 0);
        assert!(!thread_name(process, process).is_empty());
        assert!(!executable(process).is_empty() && !command_line(process).is_empty());
        assert!(!is_foreign(process));
    }
}
