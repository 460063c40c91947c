//! What `/proc` says of a blocked thread without stopping it.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A call that a thread is blocked in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Glance {
    /// The number of the call.
    pub number: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The stack pointer.
    pub sp: u64,
    /// The instruction pointer.
    pub ip: u64,
}

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Used {
    /// Nanoseconds on CPUs.
    pub cpu_ns: u64,
    /// Nanoseconds that it could run and waited for a CPU.
    pub queued_ns: u64,
    /// How often it was put on a CPU.
    pub turns: u64,
}

/// Reads `/proc/PID/task/TID/syscall`; none for a thread that runs, waits outside of a call, or is gone.
#[must_use]
pub fn parse_call(text: &[u8]) -> Option<Glance> {
    let text = str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = next()?;
    }
    Some(Glance { number, arguments, sp: next()?, ip: next()? })
}

/// Reads `/proc/PID/task/TID/schedstat`.
#[must_use]
pub fn parse_used(text: &[u8]) -> Option<Used> {
    let text = str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let mut next = || words.next()?.parse().ok();
    Some(Used { cpu_ns: next()?, queued_ns: next()?, turns: next()? })
}

/// The files of `/proc` about one thread, kept open while there are not too many.
#[derive(Debug)]
pub(super) struct Files {
    process: u32,
    thread: u32,
    kept: Option<(File, File)>,
}

/// Whether files are kept open between looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keep {
    /// They are.
    Open,
    /// They are opened each time.
    Closed,
}

impl Files {
    /// Names the files of a thread.
    pub(super) fn new(process: u32, thread: u32, keep: Keep) -> Files {
        let kept = (keep == Keep::Open)
            .then(|| Some((open(process, thread, "syscall")?, open(process, thread, "schedstat")?)))
            .flatten();
        Files { process, thread, kept }
    }

    /// Says whether they are open.
    pub(super) fn are_open(&self) -> bool {
        self.kept.is_some()
    }

    /// Returns the call that the thread is blocked in.
    pub(super) fn call(&self) -> Result<Option<Glance>, std::io::Error> {
        self.read("syscall", |(call, _)| call).map(|(text, length)| parse_call(&text[..length]))
    }

    /// Returns what the thread has used.
    pub(super) fn used(&self) -> Option<Used> {
        let (text, length) = self.read("schedstat", |(_, used)| used).ok()?;
        parse_used(&text[..length])
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

/// Returns the call that a thread is blocked in; none if it runs, is gone, or may not be looked at.
#[must_use]
pub fn look(process: u32, thread: u32) -> Option<Glance> {
    Files::new(process, thread, Keep::Closed).call().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_call_is_read_and_others_are_none() {
        let text = b"74 0x3 0x0 0x1 0x7fff 0x0 0x0 0x7ffc35bf8e08 0x7fa1b2c3d4e5\n";
        let seen = parse_call(text).unwrap();
        assert_eq!((seen.number, seen.arguments[0], seen.arguments[3]), (74, 3, 0x7fff));
        assert_eq!((seen.sp, seen.ip), (0x7ffc_35bf_8e08, 0x7fa1_b2c3_d4e5));
        for none in [&b"running\n"[..], b"-1 0x7ffc 0x7fa1\n", b"", b"74 0x3", b"\xff"] {
            assert_eq!(parse_call(none), None);
        }
    }

    #[test]
    fn what_was_used_is_read() {
        let used = Used { cpu_ns: 12, queued_ns: 34, turns: 5 };
        assert_eq!(parse_used(b"12 34 5\n"), Some(used));
        assert_eq!(parse_used(b"12 34"), None);
    }
}
