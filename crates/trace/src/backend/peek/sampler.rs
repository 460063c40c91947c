//! Samples the threads of processes repeatedly, and reports calls in which they are blocked.
//!
//! If two samples find a thread in the same call, at the same place and with the same arguments, it has been blocked in it
//! in between, unless it was put on a CPU: then a call that blocks once was made again, while one that waits for a disk may
//! block many times.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::pacer::cpu_time;
use crate::backend::blocked::{
    BlockedSyscall, FileRetention, RestartedSyscall, SchedulerCounters, ThreadFiles,
};
use crate::backend::procfs;
use crate::call::{StackId, TargetId};
use crate::syscall::{SyscallClass, call_name};

/// The most threads whose files of `/proc` are kept open, two each.
const MAX_OPEN: usize = 200;

/// The most threads that are sampled in one round, in addition to the main threads.
const SLICE: usize = 64;

/// The interval between listings of processes and threads.
const LIST_INTERVAL: Duration = Duration::from_millis(100);

/// The longest time that a thread runs inside of one call between two blocks.
const GAP: Duration = Duration::from_millis(20);

/// Which threads are sampled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SampledThreads {
    /// All threads of a process and of its descendants.
    All,
    /// The main thread of one process.
    First,
}

/// A period in which a thread is blocked in one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockedPeriod {
    /// The process.
    pub(crate) process: u32,
    /// The thread.
    pub(crate) thread: u32,
    /// The call.
    pub(crate) syscall: BlockedSyscall,
    /// The time of the first sample, in nanoseconds.
    pub(crate) first_ns: u64,
    /// The time of the last sample.
    pub(crate) last_ns: u64,
    /// The counters at the first sample.
    counters_first: SchedulerCounters,
    /// The counters at the last sample.
    counters_last: SchedulerCounters,
    /// The details that were collected when the threshold was reached.
    pub(crate) details: Option<BlockDetails>,
}

/// The details of a blocked call, collected while the thread was blocked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct BlockDetails {
    /// The callers; none if the stack changed meanwhile.
    pub(crate) stack: Option<StackId>,
    /// The object that it works on or waits for.
    pub(crate) target: Option<TargetId>,
}

impl BlockedPeriod {
    /// Returns the time from the first sample to the last.
    #[must_use]
    pub(crate) fn wall_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Returns the CPU time in this period.
    #[must_use]
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.counters_last.cpu_ns.saturating_sub(self.counters_first.cpu_ns).min(self.wall_ns())
    }

    /// Returns the time for which the thread waited for a CPU.
    #[must_use]
    pub(crate) fn queued_ns(&self) -> u64 {
        let waited = self.counters_last.queued_ns.saturating_sub(self.counters_first.queued_ns);
        waited.min(self.wall_ns().saturating_sub(self.cpu_ns()))
    }
}

/// Receives the events of a [`Sampler`].
pub(crate) trait SamplerObserver {
    /// Returns whether blocks of `process` in this call are to be reported.
    fn observes_syscall(&mut self, process: u32, syscall: &BlockedSyscall) -> bool;
    /// A thread has been blocked for the threshold and still is: its stack can be copied now.
    fn on_threshold(&mut self, period: &BlockedPeriod) -> BlockDetails;
    /// A thread is no longer blocked, after it had been for the threshold.
    fn on_unblocked(&mut self, period: &BlockedPeriod);
    /// A thread was found for the first time.
    fn on_thread_found(&mut self, process: u32, thread: u32);
    /// A known process was listed again; it may run another program now.
    fn on_process_listed(&mut self, process: u32);
    /// A thread has ended.
    fn on_thread_gone(&mut self, process: u32, thread: u32);
}

#[derive(Debug)]
struct Thread {
    process: u32,
    files: ThreadFiles,
    period: Option<BlockedPeriod>,
    restarted: RestartedSyscall,
    listed: u64,
}

/// Samples threads.
#[derive(Debug)]
pub(crate) struct Sampler {
    root: u32,
    scope: SampledThreads,
    threshold_ns: u64,
    threads: HashMap<u32, Thread>,
    /// Threads other than main threads, in the order in which they are sampled.
    others: Vec<u32>,
    firsts: Vec<u32>,
    next: usize,
    listings: u64,
    listed_ns: Option<u64>,
    /// The processor time of the last listing.
    listing_took_ns: u64,
    longest_unlisted_ns: u64,
    open: usize,
    refused: BTreeSet<u32>,
}

impl Sampler {
    /// Creates a sampler of the process `root` that reports periods of at least `threshold_ns`.
    #[must_use]
    pub(crate) fn new(root: u32, scope: SampledThreads, threshold_ns: u64) -> Sampler {
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
            longest_unlisted_ns: 0,
            open: 0,
            refused: BTreeSet::new(),
        }
    }

    /// Returns whether there are threads to sample.
    #[must_use]
    pub(crate) fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Returns whether the kernel permits sampling the root process.
    #[must_use]
    pub(crate) fn is_permitted(&self) -> bool {
        !self.refused.contains(&self.root)
    }

    /// Returns the number of descendants that may not be sampled, mostly because they run as another user.
    #[must_use]
    pub(crate) fn refused_descendants(&self) -> usize {
        self.refused.len() - usize::from(!self.is_permitted())
    }

    /// Samples each main thread and some of the others once; `now` returns the time in nanoseconds.
    pub(crate) fn sample_round(
        &mut self,
        now: impl Fn() -> u64,
        observer: &mut impl SamplerObserver,
    ) {
        let at = now();
        // Listing ten thousand threads is slow: it may use a twentieth of a processor. How long it waits for one does not count.
        let pause = nanoseconds(LIST_INTERVAL).max(self.listing_took_ns.saturating_mul(20));
        if self.listed_ns.is_none_or(|listed| at.saturating_sub(listed) >= pause) {
            self.longest_unlisted_ns = self.longest_unlisted(at);
            let before = cpu_time();
            self.list(observer);
            self.listed_ns = Some(at);
            self.listing_took_ns = nanoseconds(cpu_time().saturating_sub(before));
        }
        let mut due = self.firsts.clone();
        for _ in 0..SLICE.min(self.others.len()) {
            self.next = (self.next + 1) % self.others.len();
            due.push(self.others[self.next]);
        }
        for thread in due {
            self.sample_thread(thread, &now, observer);
        }
    }

    /// Returns the longest time between two listings until `now_ns`, in nanoseconds: a process that lived for less may not have been found.
    #[must_use]
    pub(crate) fn longest_unlisted(&self, now_ns: u64) -> u64 {
        let since = self.listed_ns.map_or(0, |listed| now_ns.saturating_sub(listed));
        self.longest_unlisted_ns.max(since).max(nanoseconds(LIST_INTERVAL))
    }

    fn list(&mut self, observer: &mut impl SamplerObserver) {
        self.listings += 1;
        let processes = match self.scope {
            SampledThreads::First => vec![self.root],
            SampledThreads::All => with_descendants(self.root),
        };
        for process in processes {
            let threads = match self.scope {
                SampledThreads::First => vec![process],
                SampledThreads::All => procfs::threads(process).unwrap_or_default(),
            };
            for thread in threads {
                self.listed(process, thread, observer);
            }
        }
        let now = self.listings;
        let gone: Vec<u32> =
            self.threads.iter().filter(|(_, t)| t.listed != now).map(|(id, _)| *id).collect();
        for thread in gone {
            self.drop_thread(thread, observer);
        }
        let threads = &self.threads;
        self.firsts =
            threads.iter().filter(|(id, t)| **id == t.process).map(|(id, _)| *id).collect();
        self.others =
            threads.iter().filter(|(id, t)| **id != t.process).map(|(id, _)| *id).collect();
    }

    fn listed(&mut self, process: u32, thread: u32, observer: &mut impl SamplerObserver) {
        if let Some(known) = self.threads.get_mut(&thread) {
            known.listed = self.listings;
            if thread == process {
                observer.on_process_listed(process);
            }
            return;
        }
        let keep = if self.open < MAX_OPEN { FileRetention::Open } else { FileRetention::Closed };
        let files = ThreadFiles::new(process, thread, keep);
        self.open += usize::from(files.are_open());
        let listed = self.listings;
        let restarted = RestartedSyscall::default();
        self.threads.insert(thread, Thread { process, files, period: None, restarted, listed });
        observer.on_thread_found(process, thread);
    }

    fn drop_thread(&mut self, thread: u32, observer: &mut impl SamplerObserver) {
        let Some(gone) = self.threads.remove(&thread) else { return };
        self.open -= usize::from(gone.files.are_open());
        if let Some(period) = gone.period.filter(|period| period.wall_ns() >= self.threshold_ns) {
            observer.on_unblocked(&period);
        }
        observer.on_thread_gone(gone.process, thread);
    }

    /// Ends the sampling: reports the open periods, and the end of all threads.
    pub(crate) fn end(&mut self, observer: &mut impl SamplerObserver) {
        let threads: Vec<u32> = self.threads.keys().copied().collect();
        for thread in threads {
            self.drop_thread(thread, observer);
        }
        self.firsts.clear();
        self.others.clear();
    }

    fn sample_thread(
        &mut self,
        id: u32,
        now: &impl Fn() -> u64,
        observer: &mut impl SamplerObserver,
    ) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let syscall = match thread.files.syscall() {
            // The thread runs, perhaps between two blocks of the same call.
            Ok(None) if thread.period.is_some_and(|period| may_continue(&period, now())) => return,
            Ok(syscall) => syscall
                .map(|syscall| thread.restarted.named(syscall))
                .filter(|syscall| observer.observes_syscall(thread.process, syscall)),
            Err(error) => {
                let process = thread.process;
                // Once an exiting process has released its memory, it belongs to root; it is not a refusal.
                if error.kind() == std::io::ErrorKind::PermissionDenied
                    && !procfs::is_exiting(process, id)
                {
                    self.refused.insert(process);
                }
                self.drop_thread(id, observer);
                return;
            }
        };
        let at = now();
        // The counters of a running thread are not needed.
        let counters = syscall.and_then(|_| thread.files.counters()).unwrap_or_default();
        if let Some(period) = &mut thread.period {
            if syscall.is_some_and(|syscall| continues(period, &syscall, &counters)) {
                period.last_ns = at;
                period.counters_last = counters;
                if period.details.is_none() && period.wall_ns() >= self.threshold_ns {
                    let details = observer.on_threshold(period);
                    // If the thread is still in the same call, its stack did not change while it was copied.
                    let again = thread.files.syscall().ok().flatten();
                    let again = again.map(|again| thread.restarted.named(again));
                    let is_still = again.is_some_and(|again| again == period.syscall)
                        && thread
                            .files
                            .counters()
                            .is_none_or(|again| again.turns == counters.turns);
                    period.details = Some(if is_still { details } else { BlockDetails::default() });
                }
                return;
            }
            if period.wall_ns() >= self.threshold_ns {
                observer.on_unblocked(period);
            }
        }
        let process = thread.process;
        thread.period = syscall.map(|syscall| BlockedPeriod {
            process,
            thread: id,
            syscall,
            first_ns: at,
            last_ns: at,
            counters_first: counters,
            counters_last: counters,
            details: None,
        });
    }

    /// Returns the stays that have reached the threshold and go on.
    #[must_use]
    pub(crate) fn open_periods(&self) -> Vec<BlockedPeriod> {
        let blocks = self.threads.values().filter_map(|thread| thread.period);
        blocks.filter(|period| period.wall_ns() >= self.threshold_ns).collect()
    }
}

/// Returns whether a sample continues `period`.
fn continues(
    period: &BlockedPeriod,
    syscall: &BlockedSyscall,
    counters: &SchedulerCounters,
) -> bool {
    if period.syscall != *syscall {
        return false;
    }
    counters.turns == period.counters_last.turns || blocks_repeatedly(syscall.number)
}

/// Returns whether a running thread may still be in the call of `period`.
fn may_continue(period: &BlockedPeriod, now_ns: u64) -> bool {
    blocks_repeatedly(period.syscall.number)
        && now_ns.saturating_sub(period.last_ns) < nanoseconds(GAP)
}

/// Returns whether a call may block many times before it returns, as calls that wait for a disk do.
fn blocks_repeatedly(number: u32) -> bool {
    match call_name(number).map(SyscallClass::of) {
        Some(SyscallClass::Wait | SyscallClass::Network | SyscallClass::Other) | None => false,
        Some(SyscallClass::Data) => !matches!(call_name(number), Some("read" | "readv" | "ioctl")),
        Some(SyscallClass::Sync | SyscallClass::Names | SyscallClass::Process) => true,
    }
}

/// Returns a process and its known descendants.
fn with_descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(process) = found.get(at).copied() {
        at += 1;
        // Children are listed under the thread that created them, mostly the main thread; of many threads only some are read.
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

    fn period(name: &str) -> BlockedPeriod {
        let number = crate::syscall::call_number(name).unwrap();
        let syscall = BlockedSyscall { number, arguments: [3, 0, 0, 0, 0, 0], sp: 1, ip: 2 };
        let counters = SchedulerCounters { cpu_ns: 10, queued_ns: 5, turns: 7 };
        BlockedPeriod {
            process: 1,
            thread: 1,
            syscall,
            first_ns: 100,
            last_ns: 200,
            counters_first: counters,
            counters_last: counters,
            details: None,
        }
    }

    #[test]
    fn a_wait_that_ran_in_between_is_another_one_and_a_sync_is_not() {
        let ran = SchedulerCounters { cpu_ns: 11, queued_ns: 5, turns: 8 };
        for (name, goes_on) in [("fsync", true), ("poll", false), ("futex", false), ("read", false)]
        {
            let period = period(name);
            assert!(continues(&period, &period.syscall, &period.counters_last), "{name}");
            assert_eq!(continues(&period, &period.syscall, &ran), goes_on, "{name}");
            let elsewhere = BlockedSyscall { sp: 9, ..period.syscall };
            assert!(!continues(&period, &elsewhere, &period.counters_last), "{name}");
        }
    }

    #[test]
    fn the_shares_of_a_block_are_never_more_than_it() {
        let mut period = period("fsync");
        period.counters_last = SchedulerCounters { cpu_ns: 70, queued_ns: 900, turns: 9 };
        assert_eq!((period.wall_ns(), period.cpu_ns(), period.queued_ns()), (100, 60, 40));
    }

    struct Nobody;

    impl SamplerObserver for Nobody {
        fn observes_syscall(&mut self, _: u32, _: &BlockedSyscall) -> bool {
            false
        }
        fn on_threshold(&mut self, _: &BlockedPeriod) -> BlockDetails {
            BlockDetails::default()
        }
        fn on_unblocked(&mut self, _: &BlockedPeriod) {}
        fn on_thread_found(&mut self, _: u32, _: u32) {}
        fn on_process_listed(&mut self, _: u32) {}
        fn on_thread_gone(&mut self, _: u32, _: u32) {}
    }

    #[test]
    fn the_longest_time_without_a_listing_is_told_and_waits_of_the_sampler_do_not_make_it_longer() {
        let millis = 1_000_000;
        let mut sampler = Sampler::new(std::process::id(), SampledThreads::First, 1);
        // Each look at the clock is 150 ms after the one before: the sampler is not given a processor.
        let time = std::cell::Cell::new(0);
        let now = || {
            time.set(time.get() + 150 * millis);
            time.get()
        };
        for _ in 0..3 {
            sampler.sample_round(now, &mut Nobody);
        }
        assert_eq!(sampler.listings, 3);
        assert!(sampler.longest_unlisted(time.get()) >= 150 * millis);
        let mut fresh = Sampler::new(std::process::id(), SampledThreads::First, 1);
        fresh.sample_round(|| 1, &mut Nobody);
        assert_eq!(fresh.longest_unlisted(1 + 20 * millis), 100 * millis);
        assert_eq!(fresh.longest_unlisted(1 + 620 * millis), 620 * millis);
    }
}
