//! The time between two waits of a main loop: what it went to, look by look.

use trace::backend::peek::blocked::{BlockedSyscall, SchedulerCounters};
use trace::report::account::TimeParts;
use trace::syscall::{call_name, sleeps};

use super::cause::DescribedWait;
use super::sleeping::SleepWatch;
use crate::kernel::EventWait;
use crate::model::{CallObject, CallShare, GAP_NS, UnseenParts};

/// The most calls whose time is counted by themselves.
const CALLS: usize = 64;
/// The most places of waits that may be those of a loop in one absence.
const OPEN_WAITS: usize = 8;

/// What a thread does at a look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Activity {
    /// It runs, or could run.
    Running,
    /// It is blocked in a call.
    InCall(BlockedSyscall),
    /// It is blocked outside of a call, for a page of memory.
    Fault,
    /// It is stopped by a signal, or frozen.
    Stopped,
}

/// A look at the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadLook {
    /// When it was, in nanoseconds.
    pub(crate) at_ns: u64,
    /// The scheduler's counters.
    pub(crate) counters: SchedulerCounters,
    /// What the thread did.
    pub(crate) activity: Activity,
}

/// A call that took a part of the time.
#[derive(Clone, Debug)]
pub(crate) struct CallTime {
    pub(crate) number: u32,
    /// The first argument, which of most calls is the descriptor.
    pub(super) first: u64,
    /// Whether it waits for nothing but a time.
    sleeps: bool,
    pub(crate) blocked_ns: u64,
    pub(crate) seen: u32,
    pub(crate) object: Option<CallObject>,
    /// Whether its object was looked for.
    pub(crate) is_described: bool,
}

impl CallTime {
    /// Returns its share of the absence.
    pub(super) fn share(&self) -> CallShare {
        CallShare {
            call: CallShare::of_call(self.number, self.sleeps),
            blocked_ns: self.blocked_ns,
            seen: self.seen,
            object: self.object.clone(),
        }
    }
}

/// A description of the stack of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDescription {
    /// Its number.
    pub(super) number: u32,
    /// For how much blocked time it stands.
    pub(super) blocked_ns: u64,
    /// The number of the call, and its first argument.
    pub(super) call: (u32, u64),
}

impl CallDescription {
    /// Returns the wait for which it stands in an absence with these calls.
    pub(super) fn wait(&self, calls: &[CallTime]) -> Option<DescribedWait> {
        let made_in = calls.iter().find(|call| (call.number, call.first) == self.call)?;
        let share = CallShare { blocked_ns: self.blocked_ns, ..made_in.share() };
        Some(DescribedWait::of(self.number, &share))
    }
}

/// The call in which the thread was at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentCall {
    pub(super) syscall: BlockedSyscall,
    pub(super) turns: u64,
    pub(super) since_ns: u64,
    /// The blocked time in a wait that may be that of a loop; it counts once that is known.
    pub(super) pending_ns: u64,
    /// The number of the description that was made in it.
    pub(super) description: Option<u32>,
}

/// A time in which the thread is away from its main loop's wait.
#[derive(Clone, Debug)]
pub(crate) struct Absence {
    /// Its number among all absences.
    pub(crate) key: u64,
    /// When it began, about.
    pub(crate) started_ns: u64,
    /// When the thread was back, or was last seen away.
    pub(crate) ended_ns: u64,
    /// By how much its length may be wrong in each direction.
    pub(crate) uncertain_ns: u64,
    /// What it went to.
    pub(crate) parts: TimeParts,
    /// The calls that it went to.
    pub(crate) calls: Vec<CallTime>,
    /// How much blocked time each description stands for.
    pub(crate) descriptions: Vec<CallDescription>,
    /// What could not be seen.
    pub(crate) unseen: UnseenParts,
    /// Whether each look of the main loop for events is seen since it began.
    pub(crate) is_bounded: bool,
    /// Time in which the thread was seen running, and was not on a processor as far as the kernel has counted.
    unsettled_ns: u64,
    /// The longest time in one call.
    longest_call_ns: u64,
    pub(super) last: LookPoint,
    pub(super) current: Option<CurrentCall>,
    /// The waits that may be those of a loop, with when the thread was seen first and last in each.
    open_waits: Vec<(BlockedSyscall, u64, u64)>,
    /// What the thread was last seen to wait for, for time in which it is seen running.
    blocked_in: Option<WaitCategory>,
    /// When the last description was made.
    pub(super) described_ns: u64,
    /// Finds out whether the loop sleeps at another place now, in a program whose main loop sleeps and looks for events.
    pub(super) sleeps: SleepWatch,
    /// The absence until the first look that found the thread in such a sleep.
    pub(super) before_sleep: Option<Box<Absence>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WaitCategory {
    Fault,
    Stopped,
    Lock,
    Call,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LookPoint {
    pub(super) at_ns: u64,
    pub(super) counters: SchedulerCounters,
}

/// How the time between two looks divides, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookShares {
    /// On a processor.
    pub(super) ran_ns: u64,
    /// Ready to run, without a processor.
    pub(super) ready_ns: u64,
    /// The rest.
    pub(super) rest_ns: u64,
    /// Time without a processor that the kernel counted now and that lies before: it counts a wait when that has ended.
    pub(super) earlier_ns: u64,
}

/// Divides the time between two looks.
pub(super) fn divide(from: &LookPoint, to: &LookPoint) -> LookShares {
    let whole = to.at_ns.saturating_sub(from.at_ns);
    let ran_ns = to.counters.cpu_ns.saturating_sub(from.counters.cpu_ns).min(whole);
    let queued = to.counters.queued_ns.saturating_sub(from.counters.queued_ns);
    let ready_ns = queued.min(whole - ran_ns);
    let rest_ns = whole - ran_ns - ready_ns;
    LookShares { ran_ns, ready_ns, rest_ns, earlier_ns: queued - ready_ns }
}

impl Absence {
    /// Begins an absence between the last look in the wait and the first one that found the thread away;
    /// `is_exact` says that the thread left at the moment of `last`.
    pub(super) fn begin(
        key: u64,
        last: &LookPoint,
        is_exact: bool,
        now: LookPoint,
        activity: Activity,
    ) -> Absence {
        let LookShares { ran_ns: ran, ready_ns: ready, rest_ns: blocked, .. } = divide(last, &now);
        let gap = now.at_ns.saturating_sub(last.at_ns);
        let turns = now.counters.turns.saturating_sub(last.counters.turns).max(1);
        let used = ran + ready;
        // A thread that was put on a processor several times has looked for events in between, unless it did nothing else.
        let own = if used.saturating_mul(2) >= gap { used } else { used / turns };
        let is_exact = is_exact && turns == 1;
        // After a time in which nobody looked it is away since now, as far as is known.
        let is_unseen = !is_exact && gap >= GAP_NS;
        let unknown = match is_exact {
            true => blocked,
            false if is_unseen => 0,
            false => blocked / (turns + 1),
        };
        let uncertain_ns = match turns {
            _ if is_exact || is_unseen => 0,
            1 => unknown,
            // Between the looks it was back, or was away all the time and in several calls.
            _ => gap.saturating_sub(own + unknown).max(unknown),
        };
        let mut unseen = UnseenParts::default();
        if is_unseen {
            unseen.add(UnseenParts::GAP);
        }
        let mut absence = Absence {
            key,
            started_ns: now.at_ns.saturating_sub(own + unknown),
            ended_ns: now.at_ns,
            uncertain_ns,
            parts: TimeParts::default(),
            calls: Vec::new(),
            descriptions: Vec::new(),
            unseen,
            is_bounded: false,
            unsettled_ns: 0,
            longest_call_ns: 0,
            last: now,
            current: None,
            open_waits: Vec::new(),
            blocked_in: None,
            described_ns: 0,
            sleeps: SleepWatch::default(),
            before_sleep: None,
        };
        let share = |part: u64| if used == 0 { 0 } else { scaled(part, own, used) };
        absence.parts.processor_ns = share(ran);
        absence.parts.ready_ns = share(ready);
        absence.note_activity(&ThreadLook {
            at_ns: now.at_ns.saturating_sub(unknown),
            counters: now.counters,
            activity,
        });
        absence.count_blocked(unknown);
        absence
    }

    /// Begins anew at a moment at which the main loop looked for events.
    pub(super) fn restart(&mut self, key: u64, at_ns: u64) {
        (self.key, self.started_ns, self.uncertain_ns) = (key, at_ns, 0);
        self.unseen = self.unseen.of_later_step();
        self.ended_ns = self.ended_ns.max(at_ns);
        self.parts = TimeParts::default();
        self.calls.clear();
        self.open_waits.clear();
        self.descriptions.clear();
        self.described_ns = 0;
        if let Some(current) = &mut self.current {
            current.description = None;
            current.since_ns = current.since_ns.max(at_ns);
        }
        self.is_bounded = true;
        (self.longest_call_ns, self.unsettled_ns) = (0, 0);
        (self.sleeps, self.before_sleep) = (SleepWatch::default(), None);
    }

    /// Cuts what was counted beyond its length.
    pub(crate) fn trim_parts(&mut self) {
        let known: u64 = self.parts.named().iter().map(|(_, part)| *part).sum();
        let mut over = known.saturating_sub(self.length_ns());
        let TimeParts { processor_ns, ready_ns, call_ns, lock_ns, fault_ns, .. } = &mut self.parts;
        for part in [processor_ns, ready_ns, call_ns, lock_ns, fault_ns] {
            let cut = over.min(*part);
            (*part, over) = (*part - cut, over - cut);
        }
    }

    /// Returns whether it may consist of several steps: nobody saw the main loop's looks for events, and no call took the
    /// most of it.
    pub(crate) fn may_be_several(&self) -> bool {
        !self.is_bounded && self.longest_call_ns.saturating_mul(2) < self.length_ns()
    }

    /// Returns its length.
    pub(crate) fn length_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.started_ns)
    }

    /// Returns its length without a wait that may be that of a loop.
    pub(crate) fn certain_ns(&self) -> u64 {
        self.length_ns().saturating_sub(self.current.map_or(0, |current| current.pending_ns))
    }

    pub(super) fn is_same_call(&self, look: &ThreadLook) -> bool {
        let Activity::InCall(call) = look.activity else { return false };
        self.current
            .is_some_and(|current| current.syscall == call && current.turns == look.counters.turns)
    }

    /// Takes a look that found the thread still away. A wait whose place is not classified counts later.
    pub(super) fn go_on(&mut self, look: &ThreadLook, is_classified: bool) {
        let point = LookPoint { at_ns: look.at_ns, counters: look.counters };
        let shares = divide(&self.last, &point);
        let is_same = self.is_same_call(look);
        if !is_same {
            self.count_pending();
            self.note_activity(look);
        }
        if let Some(current) = self.current {
            let stayed = look.at_ns.saturating_sub(current.since_ns);
            self.longest_call_ns = self.longest_call_ns.max(stayed);
        }
        self.count_running(&shares);
        if let (false, Some(current)) = (is_classified, self.current) {
            let (call, since_ns) = (current.syscall, current.since_ns);
            let has_room = self.open_waits.len() < OPEN_WAITS;
            match self
                .open_waits
                .iter_mut()
                .find(|(of, ..)| EventWait::of(of) == EventWait::of(&call))
            {
                Some((.., last_ns)) => *last_ns = look.at_ns,
                None if has_room => self.open_waits.push((call, since_ns, look.at_ns)),
                None => {}
            }
        }
        match &mut self.current {
            // It may wait for a processor, which the kernel counts when it has got one.
            _ if look.activity == Activity::Running => self.unsettled_ns += shares.rest_ns,
            Some(current) if !is_classified => current.pending_ns += shares.rest_ns,
            _ => self.count_blocked(shares.rest_ns),
        }
        (self.last, self.ended_ns) = (point, look.at_ns);
    }

    /// Returns when the thread was seen first and last in a wait of which it was not known what it is, and which is one that `is_meant`.
    pub(super) fn open_wait(
        &self,
        is_meant: impl Fn(&BlockedSyscall) -> bool,
    ) -> Option<(u64, u64)> {
        let mut waits = self.open_waits.iter();
        waits.find(|(of, ..)| is_meant(of)).map(|(_, first_ns, last_ns)| (*first_ns, *last_ns))
    }

    fn note_activity(&mut self, look: &ThreadLook) {
        self.current = None;
        match look.activity {
            Activity::Running => {}
            Activity::Fault => self.blocked_in = Some(WaitCategory::Fault),
            Activity::Stopped => self.blocked_in = Some(WaitCategory::Stopped),
            Activity::InCall(syscall) => {
                let is_lock = call_name(syscall.number) == Some("futex");
                let category = if is_lock { WaitCategory::Lock } else { WaitCategory::Call };
                self.blocked_in = Some(category);
                let turns = look.counters.turns;
                self.current = Some(CurrentCall {
                    syscall,
                    turns,
                    since_ns: look.at_ns,
                    pending_ns: 0,
                    description: None,
                });
                let first = syscall.arguments[0];
                let has_room = self.calls.len() < CALLS;
                let slot = self
                    .calls
                    .iter_mut()
                    .find(|slot| (slot.number, slot.first) == (syscall.number, first));
                match slot {
                    Some(slot) => slot.seen = slot.seen.saturating_add(1),
                    None if has_room => self.calls.push(CallTime {
                        number: syscall.number,
                        first,
                        sleeps: sleeps(syscall.number, &syscall.arguments),
                        blocked_ns: 0,
                        seen: 1,
                        object: None,
                        is_described: false,
                    }),
                    None => {}
                }
            }
        }
    }

    /// Counts blocked time for what the thread was last seen to wait for.
    pub(super) fn count_blocked(&mut self, blocked_ns: u64) {
        match self.blocked_in {
            None => self.parts.unknown_ns += blocked_ns,
            Some(WaitCategory::Fault) => self.parts.fault_ns += blocked_ns,
            Some(WaitCategory::Stopped) => self.parts.stopped_ns += blocked_ns,
            Some(WaitCategory::Lock) => self.parts.lock_ns += blocked_ns,
            Some(WaitCategory::Call) => self.parts.call_ns += blocked_ns,
        }
        let Some(current) = &self.current else { return };
        let (call, first) = (current.syscall.number, current.syscall.arguments[0]);
        let slot = self.calls.iter_mut().find(|slot| (slot.number, slot.first) == (call, first));
        if let Some(slot) = slot {
            slot.blocked_ns += blocked_ns;
        }
        let description = current.description;
        let described = self.descriptions.iter_mut().find(|made| Some(made.number) == description);
        if let Some(made) = described {
            made.blocked_ns += blocked_ns;
        }
    }

    /// Counts the time on a processor and without one.
    pub(super) fn count_running(&mut self, shares: &LookShares) {
        let earlier_ns = shares.earlier_ns.min(self.unsettled_ns);
        self.unsettled_ns -= earlier_ns;
        self.parts.processor_ns += shares.ran_ns;
        self.parts.ready_ns += shares.ready_ns + earlier_ns;
    }

    /// Counts the time of a wait that was not that of a loop, and the time in which the thread was seen running and was not
    /// on a processor: it was in calls between the looks.
    pub(super) fn settle_pending(&mut self) {
        let unsettled = std::mem::take(&mut self.unsettled_ns);
        self.count_blocked(unsettled);
        self.count_pending();
    }

    fn count_pending(&mut self) {
        let pending =
            self.current.as_mut().map_or(0, |current| std::mem::take(&mut current.pending_ns));
        self.count_blocked(pending);
    }

    /// Returns whether the thread runs, or could run, most of the time.
    pub(crate) fn is_computing(&self) -> bool {
        (self.parts.processor_ns + self.parts.ready_ns).saturating_mul(2) >= self.length_ns()
    }

    /// Returns whether the last looks found it in one call that goes on.
    pub(crate) fn is_settled(&self, at_ns: u64) -> bool {
        self.current.is_some_and(|current| at_ns.saturating_sub(current.since_ns) > 2_000_000_000)
    }
}

/// Returns `part * of / whole` without overflow.
pub(super) fn scaled(part: u64, of: u64, whole: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
