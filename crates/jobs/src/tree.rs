//! The processes of a job: what its cgroup holds, or else all descendants of one process.

use std::collections::HashMap;
use std::fs;
use std::io;

use super::cgroup::{Cgroup, Freezer};
use super::writeback::JobMembers;

/// `SIGSTOP` and `SIGCONT`, which are the same on all architectures that we build for.
const STOP: i32 = 19;
const CONTINUE: i32 = 18;

/// How often the descendants are looked for again while new ones are found: a program that forks faster than we stop it is let be.
const ROUNDS: usize = 16;

/// How many generations of processes are looked up.
const DEEPEST: usize = 1000;

/// Which processes belong to a job.
#[derive(Clone, Debug)]
pub enum Processes {
    /// Those of a cgroup.
    Cgroup(Cgroup),
    /// All descendants of a process, except for one and its own.
    Below {
        /// The process, which has adopted orphans from the beginning and belongs to the job itself only if it was not started by us.
        top: u32,
        /// Whether `top` belongs to the job.
        counted: Counted,
        /// The one that is none of the job's: it watches.
        except: u32,
    },
}

/// Whether the top of a tree belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl Processes {
    /// Returns their numbers.
    #[must_use]
    pub fn list(&self) -> Vec<u32> {
        match self {
            Processes::Cgroup(cgroup) => cgroup.processes(),
            Processes::Below { top, counted, except } => {
                let parents = parents();
                let mut found = below(&parents, *top, *except);
                if *counted == Counted::Yes && parents.contains_key(top) {
                    found.push(*top);
                }
                found
            }
        }
    }

    /// Returns whether process `pid` is one of them.
    #[must_use]
    pub fn contains(&self, pid: u32) -> bool {
        match self {
            Processes::Cgroup(cgroup) => cgroup.contains(pid),
            Processes::Below { top, counted, except } => {
                let mut one = pid;
                // A number that was given out again between two reads could make a circle.
                for _ in 0..DEEPEST {
                    if one == *except {
                        return false;
                    }
                    if one == *top {
                        return pid != *top || *counted == Counted::Yes;
                    }
                    match parent(one) {
                        Some(parent) if parent > 1 || *top == 1 => one = parent,
                        _ => return false,
                    }
                }
                false
            }
        }
    }

    /// Returns whether this user may hold them; changes nothing.
    ///
    /// # Errors
    ///
    /// The cgroup or the process at the top is another user's, or gone.
    pub fn check_control(&self) -> io::Result<()> {
        match self {
            Processes::Cgroup(cgroup) => cgroup.check_control(),
            // No signal: the kernel checks the permission only.
            Processes::Below { top, .. } => sys::supervise::send(*top, 0),
        }
    }

    /// Holds them all. What was stopped already by somebody else is not told apart: [`Processes::release`] lets it run, too, except in a cgroup.
    ///
    /// # Errors
    ///
    /// The cgroup is gone. Processes that end meanwhile or are a stranger's are passed over.
    pub fn hold(&self) -> io::Result<()> {
        match self {
            Processes::Cgroup(cgroup) => cgroup.freeze(Freezer::Frozen),
            Processes::Below { .. } => {
                let mut stopped: Vec<u32> = Vec::new();
                for _ in 0..ROUNDS {
                    let mut news = self.list();
                    news.retain(|pid| !stopped.contains(pid));
                    if news.is_empty() {
                        break;
                    }
                    for &pid in &news {
                        // It may have ended, or have gained privileges.
                        let _ = sys::supervise::send(pid, STOP);
                    }
                    stopped.extend(news);
                }
                Ok(())
            }
        }
    }

    /// Lets them all run.
    ///
    /// # Errors
    ///
    /// The cgroup is gone.
    pub fn release(&self) -> io::Result<()> {
        match self {
            Processes::Cgroup(cgroup) => cgroup.freeze(Freezer::Thawed),
            Processes::Below { .. } => {
                for pid in self.list() {
                    // It may have ended, or have gained privileges.
                    let _ = sys::supervise::send(pid, CONTINUE);
                }
                Ok(())
            }
        }
    }
}

impl JobMembers for Processes {
    fn list(&self) -> Vec<u32> {
        Processes::list(self)
    }

    fn contains(&self, process: u32) -> bool {
        Processes::contains(self, process)
    }
}

/// Reads the parent of every process that has not ended.
fn parents() -> HashMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

/// Returns the parent of process `pid`, if it has not ended: field 4 of `stat`, behind the state; the name before them may hold spaces and parentheses.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let text = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    // A zombie only waits for its parent.
    fields.next().filter(|state| *state != "Z")?;
    fields.next()?.parse().ok()
}

/// Returns the descendants of `top`, parents before children, without `except` and its own.
fn below(parents: &HashMap<u32, u32>, top: u32, except: u32) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut next = vec![top];
    while !next.is_empty() {
        let children = parents
            .iter()
            .filter(|(pid, parent)| next.contains(parent) && **pid != except && **pid != top)
            .map(|(pid, _)| *pid);
        next = children.collect();
        // A number that was given out again between two reads could make a circle.
        next.retain(|pid| !found.contains(pid));
        found.extend(&next);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_without_the_one_who_watches() {
        let parents = HashMap::from([(2, 1), (3, 2), (4, 2), (5, 4), (6, 3), (7, 1), (8, 5)]);
        let mut found = below(&parents, 2, 5);
        found.sort_unstable();
        assert_eq!(found, [3, 4, 6]);
        let circle = HashMap::from([(2, 3), (3, 2)]);
        assert_eq!(below(&circle, 2, 0), [3]);
    }

    fn state(pid: u32) -> char {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    #[test]
    fn a_tree_is_held_and_released_as_a_whole() {
        // The shell's child keeps the pipe open until it has read a line.
        let mut shell = Command::new("sh")
            .args(["-c", "(read line; echo $line) ; true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let tree = Processes::Below { top: shell.id(), counted: Counted::Yes, except: 0 };
        while tree.list().len() < 2 {
            std::thread::yield_now();
        }
        assert!(tree.list().iter().all(|&pid| tree.contains(pid)));
        assert!(!tree.contains(std::process::id()) && !tree.contains(1));
        let below = Processes::Below { top: shell.id(), counted: Counted::No, except: 0 };
        assert!(!below.contains(shell.id()) && below.list().iter().all(|&pid| below.contains(pid)));
        tree.hold().unwrap();
        while tree.list().iter().any(|&pid| state(pid) != 'T') {
            std::thread::yield_now();
        }
        tree.release().unwrap();
        use std::io::Write;
        shell.stdin.take().unwrap().write_all(b"on\n").unwrap();
        let output = shell.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"on\n");
    }
}
