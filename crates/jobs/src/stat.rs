//! What the kernel says of a process or a thread in `/proc/PID/stat`.

use std::fs;
use std::path::Path;

/// The fields of proc_pid_stat(5) of a process or a thread that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// Whether a signal has stopped it.
    pub(crate) is_stopped: bool,
    /// Its parent.
    pub(crate) parent: u32,
    /// Its process group.
    pub(crate) group: i32,
    /// The foreground process group of its controlling terminal; -1 without one.
    pub(crate) foreground: i32,
    /// When it began, in ticks since boot: it tells it from a later one with the same number.
    pub(crate) start: u64,
    /// Its scheduling policy, by the kernel's number.
    pub(crate) policy: u32,
}

impl ProcessStat {
    /// Reads the fields of process `pid`; `None` if it has ended.
    pub(crate) fn of(pid: u32) -> Option<ProcessStat> {
        ProcessStat::read(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// Reads the fields of a thread of `process`; `None` if it has ended.
    pub(crate) fn of_thread(process: u32, tid: u32) -> Option<ProcessStat> {
        ProcessStat::read(Path::new(&format!("/proc/{process}/task/{tid}/stat")))
    }

    fn read(path: &Path) -> Option<ProcessStat> {
        // The name may be any bytes.
        ProcessStat::parse(&String::from_utf8_lossy(&fs::read(path).ok()?))
    }

    fn parse(stat: &str) -> Option<ProcessStat> {
        // The name before the last parenthesis may hold spaces and parentheses; the state behind it is field 3.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
        // A zombie only waits for its parent.
        let state = field(3).filter(|state| *state != "Z")?;
        Some(ProcessStat {
            is_stopped: state == "T",
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            foreground: field(8)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }

    /// Returns whether its policy is one of real time: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE.
    pub(crate) fn is_realtime(&self) -> bool {
        matches!(self.policy, 1 | 2 | 6)
    }

    /// Returns whether it is of the process group that has its terminal.
    pub(crate) fn is_in_foreground(&self) -> bool {
        self.foreground > 0 && self.foreground == self.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_fields_is_no_field() {
        let after = "T 7 8 9 34816 8 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 5 0";
        let wanted = ProcessStat {
            is_stopped: true,
            parent: 7,
            group: 8,
            foreground: 8,
            start: 4711,
            policy: 5,
        };
        let parsed = ProcessStat::parse(&format!("12 (a) Z 1 (b) {after}"));
        assert_eq!(parsed, Some(wanted));
        assert!(wanted.is_in_foreground());
        assert_eq!(ProcessStat::parse("12 (a) Z 1 2"), None);
        assert_eq!(ProcessStat::parse("12 (a"), None);
        // A process without a terminal is in the foreground of none.
        let own = ProcessStat { foreground: -1, group: -1, ..wanted };
        assert!(!own.is_in_foreground());
    }
}
