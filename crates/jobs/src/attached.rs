//! The scheduling classes of a program that runs already, changed for a while.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use sys::sched::{CpuClass, IoClass};

use super::SchedulingClass;
use super::stat::ProcessStat;
use super::tree::Processes;

/// How often threads that began meanwhile are looked for: a program that makes them faster keeps some in another class.
const ROUNDS: usize = 16;

/// How many generations of processes are looked up.
const DEEPEST: usize = 1000;

/// A thread of a process. Its start time tells it from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Thread {
    tid: u32,
    process: u32,
    start: u64,
}

impl Thread {
    /// Returns a thread of `process`, if it has not ended.
    fn find(process: u32, tid: u32) -> Option<Thread> {
        Some(Thread { tid, process, start: ProcessStat::of_thread(process, tid)?.start })
    }

    /// Returns the first thread of a process, which stands for it.
    fn first_of(process: u32) -> Option<Thread> {
        Thread::find(process, process)
    }

    fn has_ended(self) -> bool {
        Thread::find(self.process, self.tid) != Some(self)
    }
}

/// The two classes of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Classes {
    io: IoClass,
    cpu: CpuClass,
}

impl Classes {
    const USUAL: Classes = Classes { io: IoClass::Unset, cpu: CpuClass::Normal };

    fn of(thread: Thread) -> Option<Classes> {
        let (io, cpu) = (IoClass::of(thread.tid).ok()?, CpuClass::of(thread.tid).ok()?);
        Some(Classes { io, cpu })
    }
}

/// The threads whose classes were changed, with the classes that they had.
#[derive(Debug)]
pub struct ChangedClasses {
    /// What they were changed to.
    to: Classes,
    threads: HashMap<Thread, Classes>,
    /// The classes that processes would have if nothing had been changed, those that began meanwhile included.
    processes: HashMap<Thread, Classes>,
    /// The classes of the first process.
    first: Classes,
}

impl ChangedClasses {
    /// Moves all threads of `processes` to a class, and with them those that they start from then on. Threads of other users and real-time threads keep their class.
    ///
    /// Where this user may not take a process out of SCHED_IDLE, its class on the processor is SCHED_BATCH.
    #[must_use]
    pub fn set(class: SchedulingClass, processes: &Processes) -> ChangedClasses {
        let list = processes.list();
        let cpu = match class.cpu() {
            CpuClass::Idle if !may_leave_idle(&list) => CpuClass::Batch,
            cpu => cpu,
        };
        let mut changed = ChangedClasses {
            to: Classes { io: class.io(), cpu },
            threads: HashMap::new(),
            processes: HashMap::new(),
            first: Classes::USUAL,
        };
        for process in list {
            let first = Thread::first_of(process);
            let Some((first, classes)) = first.and_then(|it| Some((it, Classes::of(it)?))) else {
                continue;
            };
            if changed.processes.is_empty() {
                changed.first = classes;
            }
            changed.processes.insert(first, classes);
        }
        for round in 0..ROUNDS {
            let list = processes.list();
            changed.follow(&list);
            // What a thread started before it was moved is still in the class from before.
            let mut new: Vec<Thread> = list.into_iter().flat_map(threads).collect();
            new.retain(|thread| !changed.threads.contains_key(thread));
            if new.is_empty() {
                break;
            }
            for thread in new {
                let Some(now) = Classes::of(thread) else { continue };
                // In later rounds it may have inherited the class from one that was moved.
                let before = if round == 0 { now } else { changed.without_ours(thread, now) };
                changed.move_thread(thread, before);
            }
        }
        changed
    }

    fn move_thread(&mut self, thread: Thread, before: Classes) {
        // A thread that cannot be moved is not looked at again.
        self.threads.insert(thread, before);
        if !matches!(before.io, IoClass::Realtime(_)) {
            // It fails if it has ended, or is another user's.
            let _ = self.to.io.set(thread.tid);
        }
        let stat = ProcessStat::of_thread(thread.process, thread.tid);
        if stat.is_some_and(|stat| !stat.is_realtime()) {
            // As above.
            let _ = self.to.cpu.set(thread.tid);
        }
    }

    /// Returns the classes `now` of a thread, or those of its process where they are ours.
    fn without_ours(&self, thread: Thread, now: Classes) -> Classes {
        let process = self.inherited(thread.process);
        Classes {
            io: if now.io == self.to.io { process.io } else { now.io },
            cpu: if now.cpu == self.to.cpu { process.cpu } else { now.cpu },
        }
    }

    /// Takes note of those of the job's processes that began meanwhile: they have inherited the class, and may leave the job before it ends.
    pub fn follow(&mut self, processes: &[u32]) {
        // Nothing inherits from one that has ended.
        self.processes.retain(|first, _| !first.has_ended());
        for &process in processes {
            let Some(first) = Thread::first_of(process) else { continue };
            if !self.processes.contains_key(&first) {
                let classes = self.inherited(process);
                self.processes.insert(first, classes);
            }
        }
    }

    /// Returns the classes that a process would have if nothing had been changed: its own, or else those of the nearest process above it.
    fn inherited(&self, process: u32) -> Classes {
        let mut one = process;
        for _ in 0..DEEPEST {
            let first = Thread::first_of(one);
            if let Some(classes) = first.and_then(|first| self.processes.get(&first)) {
                return *classes;
            }
            match ProcessStat::of(one) {
                Some(stat) if stat.parent > 1 => one = stat.parent,
                _ => break,
            }
        }
        // Its parent has ended.
        self.first
    }

    /// Restores the classes of the threads that still run, and gives those that began meanwhile the classes of their process before. A class that somebody else has chosen since stays.
    pub fn restore(mut self, processes: &Processes) {
        for (thread, classes) in &self.threads {
            self.restore_thread(*thread, *classes);
        }
        let mut seen: HashSet<Thread> = self.threads.keys().copied().collect();
        for _ in 0..ROUNDS {
            // What a thread started before it was restored is still in our class.
            self.follow(&processes.list());
            let mut has_new = false;
            for (first, classes) in &self.processes {
                if first.has_ended() {
                    continue;
                }
                for thread in threads(first.process) {
                    if seen.insert(thread) {
                        has_new = true;
                        self.restore_thread(thread, *classes);
                    }
                }
            }
            if !has_new {
                break;
            }
        }
    }

    fn restore_thread(&self, thread: Thread, to: Classes) {
        let Some(now) = Classes::of(thread).filter(|_| !thread.has_ended()) else { return };
        // Either fails if it has ended.
        if now.io == self.to.io {
            let _ = to.io.set(thread.tid);
        }
        if now.cpu == self.to.cpu {
            let _ = to.cpu.set(thread.tid);
        }
    }
}

fn threads(process: u32) -> Vec<Thread> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    tids.filter_map(|tid| Thread::find(process, tid)).collect()
}

/// Returns whether this user may take all of these processes out of SCHED_IDLE: sched(7), with privileges, or as far as their limit on niceness permits their own.
fn may_leave_idle(processes: &[u32]) -> bool {
    // Only with privileges, or without any limit.
    let probe = sys::thread::spawn("niceness", || setpriority_process(None, -20).is_ok());
    let is_privileged = probe.is_ok_and(|probe| probe.join().unwrap_or(false));
    is_privileged || processes.iter().all(|&process| permits_own_niceness(process))
}

/// Returns whether the limit on niceness permits a process the one that it has. The limit counts from the other end: 20 is a niceness of 0.
fn permits_own_niceness(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let Ok(niceness) = getpriority_process(pid) else { return true };
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max nice priority"));
    let limit = limit.and_then(|numbers| numbers.split_whitespace().next());
    limit.is_some_and(|limit| {
        limit == "unlimited" || limit.parse().is_ok_and(|limit: i32| limit >= 20 - niceness)
    })
}

#[cfg(test)]
mod tests;
