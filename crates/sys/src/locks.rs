//! Who holds locks on files, as `/proc/locks` tells.

use std::fs;

use rustix::fs::{major, minor};

/// Returns the process that holds a lock on the whole of the file with this device and inode number; `None` if nobody
/// does, or if nobody does whom this process may see.
#[must_use]
pub fn holder((device, inode): (u64, u64)) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holds(line, (major(device), minor(device)), inode))
}

/// Says whether a process is there and runs, or would if it had to: one that was stopped by a signal or a debugger does not.
#[must_use]
pub fn goes_on(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, which may hold anything, is in parentheses.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// Reads a line such as `3: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
fn holds(line: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let kind = fields.next()?;
    // `->` stands before one who waits.
    if !matches!(kind, "FLOCK" | "POSIX" | "OFDLCK") {
        return None;
    }
    let pid = fields.nth(2)?.parse().ok().filter(|pid| *pid != 0)?;
    let mut place = fields.next()?.split(':');
    let mut number = |radix| u64::from_str_radix(place.next()?, radix).ok();
    let found = (number(16)?, number(16)?, number(10)?);
    (found == (device.0.into(), device.1.into(), inode)).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_and_not_who_waits_for_it() {
        let line = "3: FLOCK  ADVISORY  WRITE 1234 08:0a:5678 0 EOF";
        assert_eq!(holds(line, (8, 10), 5678), Some(1234));
        assert_eq!(holds(line, (8, 1), 5678), None);
        assert_eq!(holds("3: -> FLOCK  ADVISORY  WRITE 9 08:0a:5678 0 EOF", (8, 10), 5678), None);
        assert_eq!(holds("", (8, 10), 5678), None);
    }

    #[test]
    fn a_stopped_process_does_not_go_on() {
        use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
        assert!(goes_on(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(goes_on(child.id()));
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(!goes_on(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!goes_on(child.id()));
    }

    #[test]
    fn our_own_lock_is_found() {
        let file = tempfile::tempfile().unwrap();
        let stat = file.metadata().unwrap();
        let identity = (stat.dev(), stat.ino());
        assert_eq!(holder(identity), None);
        file.lock().unwrap();
        assert_eq!(holder(identity), Some(std::process::id()));
    }
}
