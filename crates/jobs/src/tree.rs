//! The processes of a job: what its cgroup holds, or else all descendants of one process.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use sys::pidfd::{self, SignalScope};

use super::cgroup::{Cgroup, Freezer};
use super::stat::ProcessStat;
use super::writeback::JobMembers;

/// `SIGSTOP` and `SIGCONT`, which are the same on all architectures that we build for.
const STOP: i32 = 19;
const CONTINUE: i32 = 18;

/// How often the descendants are looked for again while new ones are found: a program that forks faster than we stop it is let be.
const ROUNDS: usize = 16;

/// How many processes are announced at a time: a message has 16 KiB.
const ANNOUNCED: usize = 128;

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
    /// Returns their numbers; of a tree, parents before their children.
    #[must_use]
    pub fn list(&self) -> Vec<u32> {
        match self {
            Processes::Cgroup(cgroup) => cgroup.processes(),
            Processes::Below { top, counted, except } => {
                let parents = parents();
                let top_itself = *counted == Counted::Yes && parents.contains_key(top);
                let mut found: Vec<u32> = top_itself.then_some(*top).into_iter().collect();
                found.extend(below(&parents, *top, *except));
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

    /// Returns whether a hold stops a program by a signal while it has its terminal: the shell that has started it sees that, says "Stopped" and takes the terminal back.
    #[must_use]
    pub fn is_in_foreground(&self) -> bool {
        match self {
            Processes::Below { top, counted: Counted::Yes, .. } => {
                ProcessStat::of(*top).is_some_and(|stat| stat.is_in_foreground())
            }
            // The freezer is seen by no shell, and the parent of a command that we have started is its supervisor.
            Processes::Cgroup(_) | Processes::Below { counted: Counted::No, .. } => false,
        }
    }

    /// Holds them all. Those that are stopped by signals are added to `stopped`; one that is stopped already is somebody else's to continue and is passed over.
    ///
    /// `announce` learns first which are about to be stopped, so that there is another one to continue them if this process is killed.
    ///
    /// # Errors
    ///
    /// The cgroup is gone, or `announce` has failed: what `stopped` contains may be stopped, nothing else is. Processes that end meanwhile or are a stranger's are passed over.
    pub fn hold(
        &self,
        stopped: &mut StoppedProcesses,
        announce: &mut dyn FnMut(&[StoppedProcess]) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Processes::Cgroup(cgroup) = self {
            return cgroup.freeze(Freezer::Frozen);
        }
        let mut seen: Vec<StoppedProcess> = Vec::new();
        for _ in 0..ROUNDS {
            let mut found: Vec<(StoppedProcess, ProcessStat)> =
                self.list().into_iter().filter_map(StoppedProcess::find).collect();
            found.retain(|(process, _)| !seen.contains(process));
            if found.is_empty() {
                break;
            }
            seen.extend(found.iter().map(|(process, _)| *process));
            let running = found.iter().filter(|(_, stat)| !stat.is_stopped);
            let running: Vec<StoppedProcess> = running.map(|(process, _)| *process).collect();
            for some in running.chunks(ANNOUNCED) {
                announce(some)?;
                // Parents first: a shell of the job is not to see that its programs stop.
                for process in some {
                    // Somebody else may have stopped it since.
                    if process.is_running() {
                        stopped.add(&[*process]);
                        process.signal(STOP);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets them run: a cgroup, or what a hold has `stopped` by signals and nothing else.
    ///
    /// # Errors
    ///
    /// The cgroup is gone.
    pub fn release(&self, stopped: &mut StoppedProcesses) -> io::Result<()> {
        stopped.resume();
        stopped.clear();
        match self {
            Processes::Cgroup(cgroup) => cgroup.freeze(Freezer::Thawed),
            Processes::Below { .. } => Ok(()),
        }
    }
}

/// A process that a hold stops by a signal. Its start time tells it from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedProcess {
    pid: u32,
    start: u64,
}

impl StoppedProcess {
    /// Returns process `pid`, if it has not ended.
    fn find(pid: u32) -> Option<(StoppedProcess, ProcessStat)> {
        let stat = ProcessStat::of(pid)?;
        Some((StoppedProcess { pid, start: stat.start }, stat))
    }

    /// Returns whether it has neither ended nor been stopped.
    fn is_running(self) -> bool {
        StoppedProcess::find(self.pid).is_some_and(|(now, stat)| now == self && !stat.is_stopped)
    }

    /// Sends it a signal, and no other process.
    fn signal(self, signal: i32) {
        // Before the look at its start: the descriptor keeps to one process.
        let opened = pidfd::open(self.pid);
        if StoppedProcess::find(self.pid).is_none_or(|(now, _)| now != self) {
            return;
        }
        // It may have ended, or have gained privileges.
        let _ = match opened {
            Ok(process) => pidfd::signal(process.as_fd(), self.pid, signal, SignalScope::Process),
            // No descriptor is left, or the kernel is older than 5.3.
            Err(_) => sys::supervise::send(self.pid, signal),
        };
    }
}

/// The processes that a hold has stopped by signals: those to continue, wherever they are by then.
#[derive(Debug, Default)]
pub struct StoppedProcesses(Vec<StoppedProcess>);

impl StoppedProcesses {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds some that are about to be stopped.
    pub fn add(&mut self, stopped: &[StoppedProcess]) {
        self.0.extend_from_slice(stopped);
    }

    /// Forgets them: they have been continued.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Continues them.
    pub fn resume(&self) {
        // Children first: a shell of the job that goes on finds no program of its own stopped.
        for process in self.0.iter().rev() {
            process.signal(CONTINUE);
        }
    }

    /// Sends `signal` to those of the process group `group`.
    pub(crate) fn signal_group(&self, group: i32, signal: i32) {
        for process in &self.0 {
            if ProcessStat::of(process.pid).is_some_and(|stat| stat.group == group) {
                process.signal(signal);
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

/// Returns the parent of process `pid`, if it has not ended.
fn parent(pid: u32) -> Option<u32> {
    ProcessStat::of(pid).map(|stat| stat.parent)
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
    use std::io::Write;
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

    /// Two processes of which the second one, a child of the first, copies a line.
    struct Tree {
        shell: std::process::Child,
        processes: Processes,
    }

    impl Tree {
        fn start() -> Tree {
            // The shell's child keeps the pipe open until it has read a line.
            let shell = Command::new("sh")
                .args(["-c", "(read line; echo $line) ; true"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let processes = Processes::Below { top: shell.id(), counted: Counted::Yes, except: 0 };
            while processes.list().len() < 2 {
                std::thread::yield_now();
            }
            Tree { shell, processes }
        }

        fn child(&self) -> u32 {
            self.processes.list()[1]
        }

        fn hold(&self) -> StoppedProcesses {
            let mut stopped = StoppedProcesses::default();
            self.processes.hold(&mut stopped, &mut |_| Ok(())).unwrap();
            stopped
        }

        fn end(mut self) {
            self.shell.stdin.take().unwrap().write_all(b"on\n").unwrap();
            let output = self.shell.wait_with_output().unwrap();
            assert_eq!(output.stdout, b"on\n");
        }
    }

    fn is_stopped(pid: u32) -> bool {
        ProcessStat::of(pid).unwrap().is_stopped
    }

    fn wait_until_stopped(pid: u32) {
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_tree_is_held_and_released_as_a_whole() {
        let tree = Tree::start();
        assert!(tree.processes.list().iter().all(|&pid| tree.processes.contains(pid)));
        assert!(!tree.processes.contains(std::process::id()) && !tree.processes.contains(1));
        let top = tree.shell.id();
        let below = Processes::Below { top, counted: Counted::No, except: 0 };
        assert!(!below.contains(top) && below.list().iter().all(|&pid| below.contains(pid)));
        let mut stopped = tree.hold();
        for pid in tree.processes.list() {
            wait_until_stopped(pid);
        }
        tree.processes.release(&mut stopped).unwrap();
        assert!(stopped.is_empty());
        tree.end();
    }

    #[test]
    fn what_somebody_else_has_stopped_stays_stopped() {
        let tree = Tree::start();
        let (parent, child) = (tree.shell.id(), tree.child());
        for by_others in [vec![child], vec![parent], vec![parent, child]] {
            for &pid in &by_others {
                sys::supervise::send(pid, STOP).unwrap();
                wait_until_stopped(pid);
            }
            let mut stopped = tree.hold();
            for pid in [parent, child] {
                wait_until_stopped(pid);
            }
            tree.processes.release(&mut stopped).unwrap();
            for pid in [parent, child] {
                assert_eq!(is_stopped(pid), by_others.contains(&pid), "{by_others:?}");
            }
            for &pid in &by_others {
                sys::supervise::send(pid, CONTINUE).unwrap();
            }
        }
        tree.end();
    }

    #[test]
    fn a_held_process_that_has_lost_its_parent_is_released() {
        let mut tree = Tree::start();
        let child = tree.child();
        let mut stopped = tree.hold();
        wait_until_stopped(child);
        tree.shell.kill().unwrap();
        // Not taken yet, which would close its pipes.
        while ProcessStat::of(tree.shell.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(!tree.processes.contains(child));
        tree.processes.release(&mut stopped).unwrap();
        assert!(!is_stopped(child));
        tree.end();
    }

    #[test]
    fn a_later_process_with_the_same_number_is_neither_stopped_nor_continued() {
        let tree = Tree::start();
        let (now, _) = StoppedProcess::find(tree.child()).unwrap();
        let earlier = StoppedProcess { start: now.start - 1, ..now };
        earlier.signal(STOP);
        // The kernel has marked a process before the call that stops it returns; one that sleeps may not have noticed.
        let status = fs::read_to_string(format!("/proc/{}/status", now.pid)).unwrap();
        let pending = status.lines().find(|line| line.starts_with("ShdPnd:")).unwrap();
        assert!(pending.ends_with("\t0000000000000000") && !is_stopped(now.pid), "{pending}");
        now.signal(STOP);
        wait_until_stopped(now.pid);
        let mut stopped = StoppedProcesses::default();
        stopped.add(&[earlier]);
        stopped.resume();
        assert!(is_stopped(now.pid));
        now.signal(CONTINUE);
        tree.end();
    }

    #[test]
    fn nothing_is_stopped_that_was_not_announced() {
        let tree = Tree::start();
        let mut stopped = StoppedProcesses::default();
        let mut refuse = |_: &[StoppedProcess]| Err(io::ErrorKind::WouldBlock.into());
        tree.processes.hold(&mut stopped, &mut refuse).unwrap_err();
        assert!(stopped.is_empty());
        tree.end();
    }
}
