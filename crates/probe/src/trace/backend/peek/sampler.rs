//! Looks at all threads of processes again and again, and tells of calls that they stayed in.
//!
//! A thread that is found in the same call at the same place with the same arguments has stayed in it, unless it was put on
//! a CPU in between: then a call that waits once has been made again, while one that waits for a disk may wait many times.

use std::collections::HashMap;
use std::time::Duration;

use super::glance::{Files, Glance, Keep, Used};
use crate::trace::backend::procfs;
use crate::trace::call::{StackId, TargetId};
use crate::trace::kernel::{Class, call_name};

/// The most threads whose files of `/proc` are kept open, two each.
const OPEN: usize = 200;

/// The most threads that are looked at in one round, apart from first threads.
const SLICE: usize = 64;

/// How often processes and threads are listed anew.
const LIST: Duration = Duration::from_millis(100);

/// How long a thread may run inside of one call between two of its waits.
const GAP: Duration = Duration::from_millis(20);

/// Which threads are looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All threads of a process and of all that it starts.
    All,
    /// The first thread of one process.
    First,
}

/// A call that a thread stays in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Its process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The call.
    pub glance: Glance,
    /// When it was first seen in it, in nanoseconds.
    pub first_ns: u64,
    /// When it was last seen in it.
    pub last_ns: u64,
    /// What it had used when it was first seen.
    used_first: Used,
    /// What it had used when it was last seen.
    used_last: Used,
    /// What was found out when it had stayed for the threshold.
    pub found: Option<Found>,
}

/// What was found out about a block while it lasted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Found {
    /// Its callers; none if the thread moved meanwhile.
    pub stack: Option<StackId>,
    /// What it works on or waits for.
    pub target: Option<TargetId>,
}

impl Block {
    /// Returns how long it was seen for.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Returns how long it ran meanwhile.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.used_last.cpu_ns.saturating_sub(self.used_first.cpu_ns).min(self.wall_ns())
    }

    /// Returns how long it waited for a CPU meanwhile.
    #[must_use]
    pub fn queued_ns(&self) -> u64 {
        let waited = self.used_last.queued_ns.saturating_sub(self.used_first.queued_ns);
        waited.min(self.wall_ns().saturating_sub(self.cpu_ns()))
    }
}

/// Who is told.
pub trait Witness {
    /// Says whether stays in this call are of interest.
    fn wants(&self, number: u32) -> bool;
    /// A thread has stayed for the threshold and is still there: its stack can be copied now.
    fn reached(&mut self, block: &Block) -> Found;
    /// A thread left, after it had stayed for the threshold.
    fn left(&mut self, block: &Block);
    /// A thread was seen for the first time.
    fn met(&mut self, process: u32, thread: u32);
    /// A process that was met before is still there; it may run another program now.
    fn again(&mut self, process: u32);
    /// A thread is not there any more.
    fn lost(&mut self, process: u32, thread: u32);
}

#[derive(Debug)]
struct Thread {
    process: u32,
    files: Files,
    block: Option<Block>,
    listed: u64,
}

/// Looks at threads.
#[derive(Debug)]
pub struct Sampler {
    root: u32,
    scope: Scope,
    threshold_ns: u64,
    threads: HashMap<u32, Thread>,
    /// Threads that are not the first of their process, in the order in which they are looked at.
    others: Vec<u32>,
    firsts: Vec<u32>,
    next: usize,
    listings: u64,
    listed_ns: Option<u64>,
    listing_took_ns: u64,
    open: usize,
    may_look: bool,
}

impl Sampler {
    /// Makes one for the process `root`, which tells of stays of at least `threshold_ns`.
    #[must_use]
    pub fn new(root: u32, scope: Scope, threshold_ns: u64) -> Sampler {
        Sampler {
            root,
            scope,
            threshold_ns,
            threads: HashMap::new(),
            others: Vec::new(),
            firsts: Vec::new(),
            next: 0,
            listings: 0,
            listed_ns: None,
            listing_took_ns: 0,
            open: 0,
            may_look: true,
        }
    }

    /// Says whether there is anything left to look at.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Says whether the kernel let us look at the threads.
    #[must_use]
    pub fn may_look(&self) -> bool {
        self.may_look
    }

    /// Looks once at each first thread and at some of the others; `now` tells the time in nanoseconds.
    pub fn round(&mut self, now: impl Fn() -> u64, witness: &mut impl Witness) {
        let at = now();
        // Listing ten thousand threads takes a while: it may take a twentieth of the time.
        let pause = nanoseconds(LIST).max(self.listing_took_ns.saturating_mul(20));
        if self.listed_ns.is_none_or(|listed| at.saturating_sub(listed) >= pause) {
            self.list(witness);
            self.listed_ns = Some(at);
            self.listing_took_ns = now().saturating_sub(at);
        }
        let mut due = self.firsts.clone();
        for _ in 0..SLICE.min(self.others.len()) {
            self.next = (self.next + 1) % self.others.len();
            due.push(self.others[self.next]);
        }
        for thread in due {
            self.look_at(thread, &now, witness);
        }
    }

    fn list(&mut self, witness: &mut impl Witness) {
        self.listings += 1;
        let processes = match self.scope {
            Scope::First => vec![self.root],
            Scope::All => with_descendants(self.root),
        };
        for process in processes {
            let threads = match self.scope {
                Scope::First => vec![process],
                Scope::All => procfs::threads(process).unwrap_or_default(),
            };
            for thread in threads {
                self.listed(process, thread, witness);
            }
        }
        let now = self.listings;
        let gone: Vec<u32> =
            self.threads.iter().filter(|(_, t)| t.listed != now).map(|(id, _)| *id).collect();
        for thread in gone {
            self.drop_thread(thread, witness);
        }
        let threads = &self.threads;
        self.firsts =
            threads.iter().filter(|(id, t)| **id == t.process).map(|(id, _)| *id).collect();
        self.others =
            threads.iter().filter(|(id, t)| **id != t.process).map(|(id, _)| *id).collect();
    }

    fn listed(&mut self, process: u32, thread: u32, witness: &mut impl Witness) {
        if let Some(known) = self.threads.get_mut(&thread) {
            known.listed = self.listings;
            if thread == process {
                witness.again(process);
            }
            return;
        }
        let keep = if self.open < OPEN { Keep::Open } else { Keep::Closed };
        let files = Files::new(process, thread, keep);
        self.open += usize::from(files.are_open());
        let listed = self.listings;
        self.threads.insert(thread, Thread { process, files, block: None, listed });
        witness.met(process, thread);
    }

    fn drop_thread(&mut self, thread: u32, witness: &mut impl Witness) {
        let Some(gone) = self.threads.remove(&thread) else { return };
        self.open -= usize::from(gone.files.are_open());
        if let Some(block) = gone.block.filter(|block| block.wall_ns() >= self.threshold_ns) {
            witness.left(&block);
        }
        witness.lost(gone.process, thread);
    }

    /// Ends the looking: tells of what was stayed in until now, and of the end of all threads.
    pub fn end(&mut self, witness: &mut impl Witness) {
        let threads: Vec<u32> = self.threads.keys().copied().collect();
        for thread in threads {
            self.drop_thread(thread, witness);
        }
        self.firsts.clear();
        self.others.clear();
    }

    fn look_at(&mut self, id: u32, now: &impl Fn() -> u64, witness: &mut impl Witness) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let glance = match thread.files.call() {
            // It runs: on the way from one wait to the next one of the same call, perhaps.
            Ok(None) if thread.block.is_some_and(|block| may_go_on(&block, now())) => return,
            Ok(glance) => glance.filter(|glance| witness.wants(glance.number)),
            Err(error) => {
                self.may_look &= error.kind() != std::io::ErrorKind::PermissionDenied;
                self.drop_thread(id, witness);
                return;
            }
        };
        let at = now();
        // Of a thread that runs nothing more is asked.
        let used = glance.and_then(|_| thread.files.used()).unwrap_or_default();
        if let Some(block) = &mut thread.block {
            if glance.is_some_and(|glance| stays(block, &glance, &used)) {
                block.last_ns = at;
                block.used_last = used;
                if block.found.is_none() && block.wall_ns() >= self.threshold_ns {
                    let found = witness.reached(block);
                    // If it is still in the same call, the stack did not move while it was copied.
                    let again = thread.files.call().ok().flatten();
                    let is_still = again.is_some_and(|again| again == block.glance)
                        && thread.files.used().is_none_or(|again| again.turns == used.turns);
                    block.found = Some(if is_still { found } else { Found::default() });
                }
                return;
            }
            if block.wall_ns() >= self.threshold_ns {
                witness.left(block);
            }
        }
        let process = thread.process;
        thread.block = glance.map(|glance| Block {
            process,
            thread: id,
            glance,
            first_ns: at,
            last_ns: at,
            used_first: used,
            used_last: used,
            found: None,
        });
    }

    /// Returns the stays that have reached the threshold and go on.
    #[must_use]
    pub fn staying(&self) -> Vec<Block> {
        let blocks = self.threads.values().filter_map(|thread| thread.block);
        blocks.filter(|block| block.wall_ns() >= self.threshold_ns).collect()
    }
}

/// Says whether a thread that was seen in `block` has stayed in it.
fn stays(block: &Block, glance: &Glance, used: &Used) -> bool {
    if block.glance != *glance {
        return false;
    }
    used.turns == block.used_last.turns || waits_often(glance.number)
}

/// Says whether a thread that runs may still be in the call of `block`.
fn may_go_on(block: &Block, now_ns: u64) -> bool {
    waits_often(block.glance.number) && now_ns.saturating_sub(block.last_ns) < nanoseconds(GAP)
}

/// Says whether a call may be put to sleep and woken many times before it returns: what waits for a disk.
fn waits_often(number: u32) -> bool {
    match call_name(number).map(Class::of) {
        Some(Class::Wait | Class::Network | Class::Other) | None => false,
        Some(Class::Data) => !matches!(call_name(number), Some("read" | "readv" | "ioctl")),
        Some(Class::Sync | Class::Names | Class::Process) => true,
    }
}

/// Returns a process and all that it started, as far as the kernel says.
fn with_descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(process) = found.get(at).copied() {
        at += 1;
        // Children belong to the thread that made them; mostly the first one, and the others are not asked when many.
        let threads = procfs::threads(process).unwrap_or_default();
        for thread in threads.into_iter().take(SLICE) {
            let path = format!("/proc/{process}/task/{thread}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            found.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        if found.len() > 4096 {
            break;
        }
    }
    found
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str) -> Block {
        let number = crate::trace::kernel::call_number(name).unwrap();
        let glance = Glance { number, arguments: [3, 0, 0, 0, 0, 0], sp: 1, ip: 2 };
        let used = Used { cpu_ns: 10, queued_ns: 5, turns: 7 };
        Block {
            process: 1,
            thread: 1,
            glance,
            first_ns: 100,
            last_ns: 200,
            used_first: used,
            used_last: used,
            found: None,
        }
    }

    #[test]
    fn a_wait_that_ran_in_between_is_another_one_and_a_sync_is_not() {
        let ran = Used { cpu_ns: 11, queued_ns: 5, turns: 8 };
        for (name, goes_on) in [("fsync", true), ("poll", false), ("futex", false), ("read", false)]
        {
            let block = block(name);
            assert!(stays(&block, &block.glance, &block.used_last), "{name}");
            assert_eq!(stays(&block, &block.glance, &ran), goes_on, "{name}");
            let elsewhere = Glance { sp: 9, ..block.glance };
            assert!(!stays(&block, &elsewhere, &block.used_last), "{name}");
        }
    }

    #[test]
    fn the_shares_of_a_block_are_never_more_than_it() {
        let mut block = block("fsync");
        block.used_last = Used { cpu_ns: 70, queued_ns: 900, turns: 9 };
        assert_eq!((block.wall_ns(), block.cpu_ns(), block.queued_ns()), (100, 60, 40));
    }
}
