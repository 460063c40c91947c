//! The descendants of a process, complete if an ancestor adopts orphans.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;

use sys::pidfd::{self, SignalScope};

use crate::process::ProcessStat;

/// A process, identified by its number and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeProcess {
    /// Its number.
    pub pid: u32,
    began: u64,
}

/// Returns all descendants of `root` that have not ended, its children first.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn below(root: u32) -> io::Result<Vec<TreeProcess>> {
    let mut children: HashMap<u32, Vec<TreeProcess>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some((parent, member)) = stat(pid) {
            children.entry(parent).or_default().push(member);
        }
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for member in children.remove(&parent).unwrap_or_default() {
            if seen.insert(member.pid) {
                next.push(member.pid);
                found.push(member);
            }
        }
    }
    Ok(found)
}

/// Returns the process with this number, if it has not ended.
pub fn member(pid: u32) -> Option<TreeProcess> {
    stat(pid).map(|(_, member)| member)
}

/// Returns the parent of a process that has not ended, and itself.
fn stat(pid: u32) -> Option<(u32, TreeProcess)> {
    let stat = ProcessStat::of(pid)?;
    Some((stat.parent, TreeProcess { pid, began: stat.began }))
}

/// Sends a signal to a process, and to no later one with the same number.
pub fn signal(member: TreeProcess, signal: i32) {
    let Ok(process) = pidfd::open(member.pid) else { return };
    // The descriptor keeps the number from being reused.
    if stat(member.pid).is_some_and(|(_, now)| now == member) {
        // It fails if the process has ended meanwhile, or belongs to another user by now.
        let _ = pidfd::signal(
            std::os::fd::AsFd::as_fd(&process),
            member.pid,
            signal,
            SignalScope::Process,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_of_children_are_found_and_reached() {
        let mut shell = Command::new("sh")
            .args(["-c", "setsid sleep 1000 & sh -c 'sleep 1000 & wait' & wait; wait"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let tree = loop {
            let tree = below(shell.id()).unwrap();
            // The two that sleep, and the shell of one.
            let sleeping = tree.iter().filter(|member| {
                let name = fs::read_to_string(format!("/proc/{}/comm", member.pid));
                name.is_ok_and(|name| name.trim() == "sleep")
            });
            if sleeping.count() == 2 {
                break tree;
            }
        };
        assert!(below(std::process::id()).unwrap().iter().any(|member| member.pid == shell.id()));
        for member in &tree {
            let later = TreeProcess { began: member.began + 1, ..*member };
            signal(later, 9);
        }
        assert_eq!(below(shell.id()).unwrap().len(), tree.len(), "another process was reached");
        tree.iter().for_each(|member| signal(*member, 9));
        shell.wait().unwrap();
    }
}
