//! The data of a process in `/proc` that needs neither a file system nor the process to answer.

use std::path::Path;

use rustix::fs::{major, minor};

/// The fields of `/proc/PID/stat` of a process that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Whether a signal has stopped it.
    pub is_stopped: bool,
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The device of its controlling terminal; 0 without one.
    pub terminal: u64,
    /// The foreground process group of that terminal; -1 without one.
    pub foreground: i32,
    /// When it began, in ticks since boot: it distinguishes the process from a later one with the same number.
    pub began: u64,
}

/// Returns the process group in the foreground of the terminal of a command, if that is neither its own nor that of who leads the session:
/// the job that it runs as a shell.
#[must_use]
pub fn job_in_front_of(command: u32) -> Option<i32> {
    let own = ProcessStat::of(command)?;
    Some(own.foreground).filter(|job| *job > 0 && ![own.group, own.session].contains(job))
}

/// Returns whether a process ignores a signal.
pub(crate) fn ignores(pid: u32, signal: i32) -> bool {
    has_signal(pid, "SigIgn:", signal)
}

/// Returns whether a process catches a signal.
pub(crate) fn catches(pid: u32, signal: i32) -> bool {
    has_signal(pid, "SigCgt:", signal)
}

/// The most processes from one up to its shell.
const MOST_PARENTS: usize = 64;

/// Returns the process that the shell of a job waits for, if that is not `pid`, a member of the job, itself: the last one of the job from
/// `pid` up, as a script.
pub(crate) fn awaited_above(pid: u32, is_of_job: impl Fn(u32) -> bool) -> Option<u32> {
    above(pid).map(|(pid, _)| pid).take_while(|pid| is_of_job(*pid)).last()
}

/// Returns the processes above `pid`, its parent first.
pub(crate) fn above(pid: u32) -> impl Iterator<Item = (u32, ProcessStat)> {
    let with_stat = |pid: u32| Some((pid, ProcessStat::of(pid)?));
    std::iter::successors(with_stat(pid), move |(_, stat)| with_stat(stat.parent))
        .skip(1)
        .take(MOST_PARENTS)
}

/// Returns whether a process ends by a signal: it neither ignores nor catches it.
pub(crate) fn ends_by(pid: u32, signal: i32) -> bool {
    !ignores(pid, signal) && !catches(pid, signal)
}

/// Returns whether `/proc/PID/status` has a signal in the mask of this field.
fn has_signal(pid: u32, field: &str, signal: i32) -> bool {
    let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix(field));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Returns a device as [`ProcessStat::terminal`] has it.
pub(crate) fn terminal_number(device: u64) -> u64 {
    u64::from(minor(device) & 0xff)
        | u64::from(major(device)) << 8
        | u64::from(minor(device) & !0xff) << 12
}

/// The ticks per second in `/proc`, independent of the kernel's own clock.
const TICKS: u64 = 100;

impl ProcessStat {
    /// Reads the data of a process; `None` if it has ended, also if it was not reaped yet.
    #[must_use]
    pub fn of(pid: u32) -> Option<ProcessStat> {
        ProcessStat::within(Path::new("/proc"), pid)
    }

    /// As [`ProcessStat::of`], with another path of `/proc`.
    pub(super) fn within(proc: &Path, pid: u32) -> Option<ProcessStat> {
        let text = std::fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
        ProcessStat::parse(&text)
    }

    fn parse(text: &[u8]) -> Option<ProcessStat> {
        // The name before the last parenthesis may contain any characters.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let fields = str::from_utf8(text.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let state = *fields.first()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        let small = |at: usize| i32::try_from(number(at)?).ok();
        Some(ProcessStat {
            is_stopped: matches!(state, "T" | "t"),
            parent: u32::try_from(number(1)?).ok()?,
            group: small(2)?,
            session: small(3)?,
            terminal: u64::from(small(4)?.cast_unsigned()),
            foreground: small(5)?,
            began: u64::try_from(number(19)?).ok()?,
        })
    }
}

/// Returns the time since boot in the ticks of [`ProcessStat::began`].
#[must_use]
pub fn ticks_now() -> u64 {
    let time = sys::clock::since_boot();
    time.as_secs() * TICKS + u64::from(time.subsec_nanos()) / (1_000_000_000 / TICKS)
}

/// How a command ended, as its status of `waitpid(2)` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandExit {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
    /// The status is neither; it does not count as success.
    Unknown,
}

impl CommandExit {
    /// Reads a status of `waitpid(2)`.
    #[must_use]
    pub fn of(status: u32) -> CommandExit {
        let [low, code, rest @ ..] = status.to_le_bytes();
        match (low & 0x7f, code, rest) {
            (0, code, [0, 0]) if low == 0 => CommandExit::Code(code),
            (signal @ 1..0x7f, 0, [0, 0]) => CommandExit::Signal(signal),
            _ => CommandExit::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_parentheses_and_spaces_is_passed_over() {
        let text = b"12 (a) b (c) S 7 8 9 34816 8 1 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let stat = ProcessStat::parse(text).unwrap();
        let wanted = ProcessStat {
            is_stopped: false,
            parent: 7,
            group: 8,
            session: 9,
            terminal: 34816,
            foreground: 8,
            began: 4711,
        };
        assert_eq!(stat, wanted);
        let stopped = str::from_utf8(text).unwrap().replace(") S ", ") T ");
        assert!(ProcessStat::parse(stopped.as_bytes()).unwrap().is_stopped);
        assert_eq!(ProcessStat::parse(b"12 (x) Z 7 8 9 0 -1 0"), None);
        for cut in 0..text.len() - 10 {
            ProcessStat::parse(&text[..cut]);
        }
    }

    #[test]
    fn a_process_begins_before_now() {
        let before = ticks_now();
        let own = ProcessStat::of(std::process::id()).unwrap();
        assert!(own.began <= before && before <= ticks_now());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let began = ProcessStat::of(child.id()).unwrap().began;
        assert!(began >= before.saturating_sub(1) && began <= ticks_now() + 1);
        let pid = child.id();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(ProcessStat::of(pid), None);
    }
}
