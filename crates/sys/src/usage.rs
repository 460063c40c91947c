//! What a process has used so far: processor time, and bytes read and written.

use std::fs;
use std::io;
use std::time::Duration;

/// The counters of `/proc/PID/io`, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Bytes given to `write` and its like, pipes and sockets included.
    pub write_calls_bytes: u64,
    /// Calls of `write` and its like.
    pub write_calls: u64,
    /// Bytes of pages that it made dirty on a file system with a device: what will reach a disk.
    pub storage_bytes: u64,
    /// Bytes that it had fetched from a device.
    pub storage_read_bytes: u64,
}

impl Io {
    /// Reads the counters of process `pid`.
    ///
    /// # Errors
    ///
    /// As `read(2)`: the process has ended, or it is a stranger's.
    pub fn of(pid: u32) -> io::Result<Io> {
        fs::read_to_string(format!("/proc/{pid}/io")).map(|text| parse_io(&text))
    }

    /// Returns what was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Io) -> Io {
        Io {
            write_calls_bytes: self.write_calls_bytes.saturating_sub(earlier.write_calls_bytes),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
            storage_bytes: self.storage_bytes.saturating_sub(earlier.storage_bytes),
            storage_read_bytes: self.storage_read_bytes.saturating_sub(earlier.storage_read_bytes),
        }
    }
}

/// Returns the processor time, user and system, of process `pid` and its threads, ended ones included.
///
/// The kernel counts in ticks of (usually) 10 ms.
///
/// # Errors
///
/// As `read(2)`: the process has ended.
pub fn cpu(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = parse_ticks(&stat).ok_or(io::ErrorKind::InvalidData)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second)))
}

/// Returns how often this thread has waited so far: for a disk, a lock, another process. Being set aside for others
/// does not count.
#[must_use]
pub fn waits_of_thread() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of ours that is large enough, and the call writes there alone.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if result != 0 {
        return 0;
    }
    // SAFETY: the call succeeded and filled it; zeros would be a valid value, too.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

/// Returns the bytes that ended descendants, as far as somebody has waited for them, have read from and written to disks.
///
/// The kernel counts blocks of 512 bytes; what was written counts when it was given to the page cache.
#[must_use]
pub fn of_ended_children() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of ours that is large enough, and the call writes there alone.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    if result != 0 {
        return (0, 0);
    }
    // SAFETY: the call succeeded and filled it; zeros would be a valid value, too.
    let usage = unsafe { usage.assume_init() };
    let bytes = |blocks: i64| u64::try_from(blocks).unwrap_or(0).saturating_mul(512);
    (bytes(usage.ru_inblock), bytes(usage.ru_oublock))
}

fn parse_io(text: &str) -> Io {
    let count = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Io {
        write_calls_bytes: count("wchar"),
        write_calls: count("syscw"),
        storage_bytes: count("write_bytes"),
        storage_read_bytes: count("read_bytes"),
    }
}

/// Adds fields 14 and 15 of `stat`; the name before them may hold spaces and parentheses.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use super::*;

    #[test]
    fn counters_are_read_and_subtracted() {
        let text = "rchar: 1\nwchar: 500\nsyscr: 2\nsyscw: 7\nread_bytes: 512\nwrite_bytes: 4096\ncancelled_write_bytes: 9\n";
        let io = parse_io(text);
        let counted = Io {
            write_calls_bytes: 500,
            write_calls: 7,
            storage_bytes: 4096,
            storage_read_bytes: 512,
        };
        assert_eq!(io, counted);
        assert_eq!(io.since(Io { write_calls: 3, ..Io::default() }).write_calls, 4);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 0 0 0 0 0 31 11 0 0 20 0 1 0";
        assert_eq!(parse_ticks(stat), Some(42));
        assert_eq!(parse_ticks("7 (a"), None);
    }

    #[test]
    fn a_thread_that_waits_is_counted() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || {
            let before = waits_of_thread();
            // Nobody sends: it waits until the sender is gone.
            let _ = receiver.recv_timeout(Duration::from_millis(20));
            waits_of_thread() - before
        });
        let waited = waits.join().unwrap();
        drop(sender);
        assert!(waited >= 1);
    }

    #[test]
    fn this_process_has_counters() {
        let pid = std::process::id();
        assert!(cpu(pid).is_ok());
        assert!(Io::of(pid).unwrap().write_calls < u64::MAX);
    }
}
