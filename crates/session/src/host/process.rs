//! What `/proc` says of a process without asking anybody: nothing here waits for a file system or for the process.

use std::path::Path;

/// What `/proc/PID/stat` holds of a process that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The device of its controlling terminal; 0 without one.
    pub terminal: u64,
    /// The process group in front of that terminal; -1 without one.
    pub foreground: i32,
    /// When it began, in ticks since the machine did: tells it from a later process with its number.
    pub began: u64,
}

/// How many ticks a second has in `/proc`, whatever the kernel's own clock does.
const TICKS: u64 = 100;

impl Stat {
    /// Reads what is known of a process; `None` if it has ended, also if its end was not asked for yet.
    #[must_use]
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::within(Path::new("/proc"), pid)
    }

    /// As [`Stat::of`], for another place of `/proc`.
    pub(super) fn within(proc: &Path, pid: u32) -> Option<Stat> {
        let text = std::fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
        Stat::parse(&text)
    }

    fn parse(text: &[u8]) -> Option<Stat> {
        // The name before the last parenthesis may hold anything.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let fields = str::from_utf8(text.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = fields.split(' ').collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        let small = |at: usize| i32::try_from(number(at)?).ok();
        Some(Stat {
            parent: u32::try_from(number(1)?).ok()?,
            group: small(2)?,
            session: small(3)?,
            terminal: u64::from(small(4)?.cast_unsigned()),
            foreground: small(5)?,
            began: u64::try_from(number(19)?).ok()?,
        })
    }
}

/// Returns the time since the machine began in the ticks that [`Stat::began`] counts.
#[must_use]
pub fn ticks_now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0) / (1_000_000_000 / TICKS);
    seconds * TICKS + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_parentheses_and_spaces_is_passed_over() {
        let text = b"12 (a) b (c) S 7 8 9 34816 8 1 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let stat = Stat::parse(text).unwrap();
        let wanted =
            Stat { parent: 7, group: 8, session: 9, terminal: 34816, foreground: 8, began: 4711 };
        assert_eq!(stat, wanted);
        assert_eq!(Stat::parse(b"12 (x) Z 7 8 9 0 -1 0"), None);
        for cut in 0..text.len() - 10 {
            Stat::parse(&text[..cut]);
        }
    }

    #[test]
    fn a_process_begins_before_now() {
        let before = ticks_now();
        let own = Stat::of(std::process::id()).unwrap();
        assert!(own.began <= before && before <= ticks_now());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let began = Stat::of(child.id()).unwrap().began;
        assert!(began >= before.saturating_sub(1) && began <= ticks_now() + 1);
        let pid = child.id();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(Stat::of(pid), None);
    }
}
