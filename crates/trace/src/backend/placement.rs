//! The placement of the tracer: on the CPU of the thread that it stops most, so that a stop is a switch between two threads.
//!
//! Waking a thread on another CPU costs five to twenty times as much, mostly for the wake-up of that CPU from idle. While one
//! thread causes nearly all stops, and many, it and the tracer are bound to one CPU; a program with several busy threads is not bound.
//! The program does not notice: its own CPUs are restored before it can query them, and its children get them too.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// A thread must make at least this many stops a second to be bound.
const STOPS_A_SECOND: u64 = 2000;

/// The number of stops between two checks while nothing is bound: initially, and at most.
const LOOK: (u32, u32) = (16, 2048);

/// The number of stops between two checks while a thread is bound.
const LOOK_BOUND: u32 = 256;

/// Rounds that end for want of stops last at least this long.
const ROUND_NS: u64 = 20_000_000;

/// A thread that is bound.
#[derive(Debug)]
struct BoundThread {
    tid: u32,
    since_ns: u64,
}

/// Binds and unbinds.
#[derive(Debug)]
pub(super) struct Placement {
    /// The tracer's own CPUs; `None` if they cannot be queried, and nothing is ever bound.
    own: Option<CpuSet>,
    bound: Option<BoundThread>,
    /// The CPU that was bound to last, and what the thread had before.
    last: Option<(usize, CpuSet)>,
    /// The program sets the affinity of its threads itself.
    is_hands_off: bool,
    since_ns: u64,
    stops: u32,
    /// The stops of this round by thread while nothing is bound; else those of the bound thread.
    counts: Vec<(u32, u32)>,
    look_after: u32,
    bound_ns: u64,
}

fn pid(tid: u32) -> Option<Pid> {
    i32::try_from(tid).ok().and_then(Pid::from_raw)
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Whether a thread with these CPUs may be bound to one of them at all.
fn is_free(set: &CpuSet) -> bool {
    set.count() > 1
}

impl Placement {
    /// Begins for the calling thread, which is the tracer.
    pub(super) fn new() -> Placement {
        Placement {
            own: sched_getaffinity(None).ok(),
            bound: None,
            last: None,
            is_hands_off: false,
            since_ns: 0,
            stops: 0,
            counts: Vec::new(),
            look_after: LOOK.0,
            bound_ns: 0,
        }
    }

    /// Returns whether this thread and the tracer are on one CPU.
    pub(super) fn is_beside(&self, tid: u32) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.tid == tid)
    }

    /// Returns for how long any thread was bound, in nanoseconds.
    pub(super) fn bound_ns(&self) -> u64 {
        self.bound_ns
    }

    /// Binds a thread and the tracer to one CPU.
    pub(super) fn bind(&mut self, tid: u32, now_ns: u64) {
        self.unbind(now_ns);
        self.begin_round(now_ns);
        let Some(own) = self.own.filter(|_| !self.is_hands_off) else { return };
        let Some(theirs) = pid(tid).and_then(|pid| sched_getaffinity(Some(pid)).ok()) else {
            return;
        };
        let here = sched_getcpu();
        let shared = |cpu: &usize| theirs.is_set(*cpu) && own.is_set(*cpu);
        let cpu = Some(here).filter(shared).or_else(|| (0..CpuSet::MAX_CPU).find(shared));
        let Some(cpu) = cpu.filter(|_| is_free(&theirs)) else { return };
        if sched_setaffinity(pid(tid), &only(cpu)).is_err() {
            return;
        }
        self.last = Some((cpu, theirs));
        self.bound = Some(BoundThread { tid, since_ns: now_ns });
        // Without it the thread alone is bound, which is not wrong, only useless.
        let _ = sched_setaffinity(None, &only(cpu));
    }

    /// Restores the CPUs of the bound thread and the tracer.
    pub(super) fn unbind(&mut self, now_ns: u64) {
        let Some(bound) = self.bound.take() else { return };
        self.bound_ns += now_ns.saturating_sub(bound.since_ns);
        if let Some((_, theirs)) = &self.last {
            // The thread may have ended: then there is nothing to put back.
            let _ = sched_setaffinity(pid(bound.tid), theirs);
        }
        if let Some(own) = &self.own {
            let _ = sched_setaffinity(None, own);
        }
    }

    fn begin_round(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
        self.stops = 0;
        self.counts.clear();
    }

    /// Counts a stop of a thread at a call, and binds or unbinds after enough of them.
    pub(super) fn stopped(&mut self, tid: u32, now_ns: u64) {
        self.stops += 1;
        if let Some(bound) = &self.bound {
            let is_bound = bound.tid == tid;
            match self.counts.first_mut() {
                Some((_, count)) => *count += u32::from(is_bound),
                None => self.counts.push((bound.tid, u32::from(is_bound))),
            }
            if self.stops >= LOOK_BOUND {
                self.look(now_ns);
            }
            return;
        }
        // Enough to see a majority.
        let has_room = self.counts.len() < 64;
        match self.counts.iter_mut().find(|(known, _)| *known == tid) {
            Some((_, count)) => *count += 1,
            None if has_room => self.counts.push((tid, 1)),
            None => {}
        }
        if self.stops >= self.look_after {
            self.look(now_ns);
        }
    }

    /// Revises the binding; to be called occasionally if there are no stops.
    pub(super) fn tick(&mut self, now_ns: u64) {
        // A round that has just begun says nothing yet.
        if now_ns.saturating_sub(self.since_ns) >= ROUND_NS {
            self.look(now_ns);
        }
    }

    fn look(&mut self, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.since_ns).max(1);
        let (tid, count) = self.counts.iter().copied().max_by_key(|c| c.1).unwrap_or_default();
        let many = |least: u64| {
            u64::from(self.stops).saturating_mul(1_000_000_000) >= least.saturating_mul(took_ns)
        };
        let most = |of_ten: u32| count.saturating_mul(10) >= self.stops.saturating_mul(of_ten);
        match &self.bound {
            // Below what it takes to be bound, so that it does not go to and fro.
            Some(_) if many(STOPS_A_SECOND / 2) && most(6) => self.begin_round(now_ns),
            Some(bound) => {
                let short = now_ns.saturating_sub(bound.since_ns) < 20_000_000;
                let (least, longest) = LOOK;
                self.look_after = if short { (self.look_after * 2).min(longest) } else { least };
                self.unbind(now_ns);
                self.begin_round(now_ns);
            }
            None if many(STOPS_A_SECOND) && most(8) && self.stops >= LOOK.0 => {
                self.bind(tid, now_ns);
            }
            None => self.begin_round(now_ns),
        }
    }

    /// Gives a new thread the CPUs that its maker had before it was bound.
    pub(super) fn born(&self, tid: u32) {
        let Some((cpu, before)) = &self.last else { return };
        let Some(pid) = pid(tid) else { return };
        let inherited = sched_getaffinity(Some(pid)).is_ok_and(|set| set == only(*cpu));
        if inherited && !self.is_beside(tid) {
            let _ = sched_setaffinity(Some(pid), before);
        }
    }

    /// Records that a thread has the number of another one of its process from now on, which has ended.
    pub(super) fn renumbered(&mut self, former: u32, now: u32) {
        if let Some(bound) = self.bound.as_mut().filter(|bound| bound.tid == former) {
            bound.tid = now;
        }
    }

    /// Records that a thread has ended.
    pub(super) fn ended(&mut self, tid: u32, now_ns: u64) {
        if self.is_beside(tid) {
            self.unbind(now_ns);
            self.begin_round(now_ns);
            self.look_after = LOOK.0;
        }
    }

    /// Restores the program's own CPUs, which a thread is about to query.
    pub(super) fn asked(&mut self, now_ns: u64) {
        self.unbind(now_ns);
        self.begin_round(now_ns);
    }

    /// Stops binding for good, because the program sets the affinity of its threads itself.
    pub(super) fn hands_off(&mut self, now_ns: u64) {
        self.unbind(now_ns);
        self.is_hands_off = true;
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.unbind(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_tid() -> u32 {
        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
    }

    #[test]
    fn a_thread_with_most_stops_is_bound_and_gets_its_cpus_back() {
        let before = sched_getaffinity(None).unwrap();
        // On a machine with one CPU there is nothing to bind.
        let has_choice = is_free(&before);
        let mut placement = Placement::new();
        for stop in 0..100 {
            placement.stopped(own_tid(), stop * 50_000);
        }
        assert_eq!(placement.is_beside(own_tid()), has_choice);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        placement.tick(6_000_000);
        assert_eq!(placement.is_beside(own_tid()), has_choice, "too early to tell");
        // A second without stops.
        placement.tick(1_000_000_000);
        assert!(!placement.is_beside(own_tid()));
        assert!(sched_getaffinity(None).unwrap() == before);
    }

    #[test]
    fn few_stops_or_several_busy_threads_bind_nothing() {
        let mut placement = Placement::new();
        for stop in 0..100 {
            placement.stopped(own_tid(), stop * 5_000_000);
        }
        assert!(placement.bound.is_none(), "200 stops a second");
        let mut placement = Placement::new();
        for stop in 0_u32..100 {
            placement.stopped([own_tid(), 1, 2][stop as usize % 3], u64::from(stop) * 50_000);
        }
        assert!(placement.bound.is_none(), "three threads");
    }

    #[test]
    fn a_program_that_asks_sees_its_own_cpus_and_one_that_says_is_left_alone() {
        let before = sched_getaffinity(None).unwrap();
        let mut placement = Placement::new();
        placement.bind(own_tid(), 0);
        placement.asked(10);
        assert!(sched_getaffinity(None).unwrap() == before);
        placement.hands_off(20);
        placement.bind(own_tid(), 30);
        assert!(placement.bound.is_none());
        placement.bind(own_tid(), 40);
        drop(placement);
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
