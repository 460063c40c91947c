//! The memory of another process, as `/proc/PID/status` counts it.

use std::fs;
use std::io;

/// Pages of a process that are in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it, what it shares with others included.
    pub resident_bytes: u64,
    /// What it alone made: heap, stacks, written pages.
    pub anonymous_bytes: u64,
    /// Pages of files it has mapped: programs, libraries, data.
    pub file_bytes: u64,
}

impl Memory {
    /// Reads the counts of process `pid`.
    ///
    /// # Errors
    ///
    /// As `read(2)`: the process has ended, or it is a stranger's.
    pub fn of(pid: u32) -> io::Result<Memory> {
        fs::read_to_string(format!("/proc/{pid}/status")).map(|text| parse(&text))
    }
}

fn parse(status: &str) -> Memory {
    let bytes = |name: &str| {
        let kilobytes = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = kilobytes.and_then(|text| text.trim().strip_suffix("kB"));
        number.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
    };
    Memory {
        resident_bytes: bytes("VmRSS"),
        anonymous_bytes: bytes("RssAnon"),
        file_bytes: bytes("RssFile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_counts_are_read_in_bytes() {
        let memory =
            parse("Name:\tx\nVmRSS:\t    5952 kB\nRssAnon:\t 1200 kB\nRssFile:\t 4752 kB\n");
        assert_eq!(memory.resident_bytes, 5952 * 1024);
        assert_eq!((memory.anonymous_bytes, memory.file_bytes), (1200 * 1024, 4752 * 1024));
    }

    #[test]
    fn this_process_is_in_memory() {
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.resident_bytes >= memory.anonymous_bytes && memory.anonymous_bytes > 0);
    }
}
