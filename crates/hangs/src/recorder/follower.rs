//! Follows one interface thread, and divides the time between two waits of its main loop.
//!
//! It reads nothing itself: each look at the thread is given to it, so that its decisions can be tested.

use trace::backend::peek::blocked::{BlockedSyscall, SchedulerCounters};
use trace::syscall::call_name;

use super::absence::{
    Absence, Activity, CallDescription, LookPoint, LookShares, ThreadLook, divide,
};
use super::places::{
    KnownLoop, PlaceEvidence, PlaceKind, WaitPlaces, is_event_wait, is_lock_wait, place_of,
};
use super::turns::{longest_step, steps};
use crate::kernel::{WaitPlace, is_sleep};
use crate::model::{CallObject, GAP_NS, HANG_NS, StepHistogram, UnseenParts};

/// A wait at a place that is not classified is asked about after this time, in nanoseconds.
const ASK_NS: u64 = 50_000_000;
/// A call of a thread that is away is described after this time, in nanoseconds.
const DESCRIBE_NS: u64 = 20_000_000;
/// The first description of a thread that is away is made after this time, in nanoseconds, also of a short call.
const FIRST_DESCRIPTION_NS: u64 = 50_000_000;
/// The same for a thread at rest whose next run is announced.
const ANNOUNCED_GAP_NS: u64 = 2_000_000_000;
/// The most waits for locks whose stacks are read to find a main loop.
const LOCK_ASKS: u32 = 32;
/// The most descriptions of one hang.
const DESCRIPTIONS: usize = 16;

#[derive(Debug)]
enum Phase {
    /// No wait of the main loop has been seen yet, or none since a gap.
    Unknown,
    /// In the wait of the main loop.
    Waiting {
        last: LookPoint,
        since_ns: u64,
        call: BlockedSyscall,
        /// Whether the thread ran for the first time at the moment of `last`, which is the counters of before.
        has_left: bool,
    },
    /// Away from it.
    Away(Box<Absence>),
}

impl Phase {
    fn waiting(last: LookPoint, since_ns: u64, call: BlockedSyscall) -> Phase {
        Phase::Waiting { last, since_ns, call, has_left: false }
    }
}

/// What a look brought.
#[derive(Debug)]
pub(crate) enum LookOutcome {
    /// Nothing of note.
    Nothing,
    /// The thread is back in its wait after an absence.
    Returned(Box<Absence>),
}

/// What the caller should read while the thread is blocked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// Nothing.
    Nothing,
    /// The stack, to classify the wait at this place.
    Place(BlockedSyscall),
    /// The stack and the object of the call.
    Description(BlockedSyscall),
}

/// Follows the interface thread of one process.
#[derive(Debug)]
pub(crate) struct ThreadFollower {
    phase: Phase,
    places: WaitPlaces,
    next_key: u64,
    /// Whether it was in its main loop's wait, or one that may be that, more than once.
    has_returned: bool,
    /// Whether a hang may go on of which nothing is stored: another recorder knew the main loop, and was cut off.
    may_be_away: bool,
    /// The sleep of a loop that sleeps and looks for events, if it is too long to be rest: how often the thread had been put on a processor.
    long_sleep: Option<u64>,
    /// How often the stack of a wait for a lock was read, to find a main loop that waits for one.
    lock_asks: u32,
    /// Steps since they were last taken.
    pub(crate) steps: StepHistogram,
    /// The time in which it was followed since that was last taken.
    pub(crate) watched_ns: u64,
}

impl ThreadFollower {
    /// Creates a follower whose absences have keys from `first_key` on.
    pub(crate) fn new(first_key: u64) -> ThreadFollower {
        ThreadFollower {
            phase: Phase::Unknown,
            places: WaitPlaces::default(),
            next_key: first_key,
            has_returned: false,
            may_be_away: false,
            long_sleep: None,
            lock_asks: 0,
            steps: StepHistogram::default(),
            watched_ns: 0,
        }
    }

    /// Takes over the main loop that another recorder knew. A thread that is away from it at the first look hangs since a moment that
    /// is not known.
    pub(crate) fn take_over(&mut self, known: &KnownLoop) {
        self.places.take_over(known);
        self.may_be_away = self.has_loop() && !known.is_hang_stored;
    }

    /// Returns whether the thread is known to have stayed in its main loop's wait, by its counters alone.
    pub(crate) fn stayed(&mut self, at_ns: u64, counters: SchedulerCounters) -> bool {
        let Phase::Waiting { last, since_ns, call, has_left: false } = &mut self.phase else {
            return false;
        };
        let is_unclassified = self.places.kind(call).is_none();
        let is_long_sleep = is_sleep(call) && at_ns.saturating_sub(*since_ns) >= HANG_NS;
        if last.counters.turns != counters.turns
            || is_long_sleep
            || (is_unclassified && at_ns.saturating_sub(*since_ns) >= ASK_NS)
        {
            return false;
        }
        self.watched_ns += looked_ns(last.at_ns, at_ns);
        *last = LookPoint { at_ns, counters };
        true
    }

    /// Returns whether the main loop is known.
    pub(crate) fn has_loop(&self) -> bool {
        self.places.has_loop()
    }

    /// Returns whether the thread may be away from a main loop: a wait was the main loop's, or there was more than one.
    ///
    /// A program may wait for something while it starts and then for another program until it ends.
    pub(crate) fn may_have_loop(&self) -> bool {
        self.has_loop() || self.has_returned
    }

    /// Returns whether the thread was seen last in a wait that is known to be that of its main loop.
    pub(crate) fn is_at_rest(&self) -> bool {
        match &self.phase {
            // A sleep may turn out to be no rest.
            Phase::Waiting { call, has_left: false, .. } if !is_sleep(call) => {
                matches!(self.places.kind(call), Some(PlaceKind::Loop | PlaceKind::LoopByDepth))
            }
            _ => false,
        }
    }

    /// Returns whether the thread is in the wait in which it was seen last, as it has been put on a processor as often.
    pub(crate) fn has_turns(&self, turns: u64) -> bool {
        matches!(&self.phase, Phase::Waiting { last, .. } if last.counters.turns == turns)
    }

    /// Takes into account that the thread, whose runs are announced, has not run until this moment.
    pub(crate) fn rested(&mut self, at_ns: u64) {
        if let Phase::Waiting { last, has_left: false, .. } = &mut self.phase
            && at_ns > last.at_ns
        {
            // After a longer time the recorder was not there: its own count has a gap, too.
            let rested_ns = at_ns - last.at_ns;
            self.watched_ns += if rested_ns < ANNOUNCED_GAP_NS { rested_ns } else { 0 };
            last.at_ns = at_ns;
        }
    }

    /// Takes into account that the thread got a processor at this moment, for the first time since the last look.
    pub(crate) fn left(&mut self, at_ns: u64) {
        self.rested(at_ns);
        if let Phase::Waiting { has_left, .. } = &mut self.phase {
            *has_left = true;
        }
    }

    /// Returns the absence that goes on.
    pub(crate) fn absence(&self) -> Option<&Absence> {
        match &self.phase {
            Phase::Away(absence) => Some(absence),
            _ => None,
        }
    }

    /// Returns the absence that goes on, to be added to.
    pub(crate) fn absence_mut(&mut self) -> Option<&mut Absence> {
        match &mut self.phase {
            Phase::Away(absence) => Some(absence),
            _ => None,
        }
    }

    /// Ends the absence that goes on, because the process or the recorder ends.
    pub(crate) fn abandon(&mut self) -> Option<Box<Absence>> {
        match std::mem::replace(&mut self.phase, Phase::Unknown) {
            Phase::Away(mut absence) => {
                absence.settle_pending();
                Some(absence)
            }
            _ => None,
        }
    }

    /// Returns a look with the number of the call that the kernel restarted, after a stop for example, in place of
    /// `restart_syscall`.
    pub(crate) fn with_restarted_call(&self, look: ThreadLook) -> ThreadLook {
        let Activity::InCall(mut call) = look.activity else { return look };
        if call_name(call.number) != Some("restart_syscall") {
            return look;
        }
        let place = place_of(&call);
        let of_absence = self.absence().and_then(|absence| absence.current).map(|at| at.syscall);
        if let Some(before) = of_absence.filter(|before| place_of(before) == place) {
            call.number = before.number;
        } else if let Some(main) = self.places.main_wait()
            && place_of(&main) == place
        {
            call.number = main.number;
        }
        ThreadLook { activity: Activity::InCall(call), ..look }
    }

    /// Returns the main loop's wait in which the thread was seen last.
    pub(crate) fn main_wait(&self) -> Option<BlockedSyscall> {
        self.places.main_wait()
    }

    /// Returns whether something is known of the waits at a place.
    pub(crate) fn knows_place(&self, place: WaitPlace) -> bool {
        self.places.first_kind(place).is_some()
    }

    /// Returns what a wait is, if that is known or asked.
    pub(crate) fn wait_kind(&self, call: &BlockedSyscall) -> Option<PlaceKind> {
        self.places.kind(call)
    }

    /// Takes into account that the main loop looked for events at these moments, in order, and did not wait long; returns the longest
    /// absence that this ends, and the others that are hangs.
    pub(crate) fn turned(&mut self, moments: &[u64]) -> Vec<Absence> {
        let Phase::Away(absence) = &mut self.phase else { return Vec::new() };
        let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
            return Vec::new();
        };
        if *first < absence.started_ns {
            return Vec::new();
        }
        absence.settle_pending();
        let mut ended = Vec::new();
        let longest = longest_step(absence.started_ns, moments);
        for step in steps(absence.started_ns, moments) {
            let length_ns = step.1.saturating_sub(step.0);
            self.steps.add(length_ns);
            let is_longest = longest == Some(step);
            if !is_longest && length_ns < HANG_NS {
                continue;
            }
            let mut part = (**absence).clone();
            (part.started_ns, part.ended_ns) = step;
            if step.0 != absence.started_ns {
                part.uncertain_ns = 0;
                part.unseen = part.unseen.of_later_step();
            }
            part.trim_parts();
            if !is_longest {
                part.key = self.next_key;
                self.next_key += 1;
            }
            ended.push(part);
        }
        absence.restart(self.next_key, *last);
        self.next_key += 1;
        ended
    }

    /// Notes whether the process has other threads.
    pub(crate) fn note_others(&mut self, has_others: bool) {
        self.places.note_others(has_others);
    }

    /// Takes a look into account.
    pub(crate) fn look(&mut self, look: &ThreadLook) -> LookOutcome {
        let is_waiting = match look.activity {
            Activity::InCall(call) if self.sleeps_long(&call, look) => None,
            Activity::InCall(call) => self.places.is_main_wait(call).then_some(call),
            _ => None,
        };
        let point = LookPoint { at_ns: look.at_ns, counters: look.counters };
        match &mut self.phase {
            Phase::Unknown => {
                let may_be_away = std::mem::take(&mut self.may_be_away);
                if let Some(call) = is_waiting {
                    self.phase = Phase::waiting(point, look.at_ns, call);
                } else if may_be_away {
                    let unseen = UnseenParts::GAP;
                    let absence = self.begin_unseen(unseen, point, point, look.activity);
                    self.phase = Phase::Away(Box::new(absence));
                }
                LookOutcome::Nothing
            }
            Phase::Waiting { last, since_ns, call, has_left } => {
                let gap = look.at_ns.saturating_sub(last.at_ns);
                self.watched_ns += looked_ns(last.at_ns, look.at_ns);
                let LookShares { ran_ns, ready_ns, .. } = divide(last, &point);
                if let Some(at) = is_waiting {
                    if last.counters.turns != look.counters.turns || place_of(call) != place_of(&at)
                    {
                        if gap < GAP_NS {
                            self.steps.add(ran_ns + ready_ns);
                        }
                        *since_ns = look.at_ns;
                        self.has_returned = true;
                    }
                    (*last, *call, *has_left) = (point, at, false);
                    return LookOutcome::Nothing;
                }
                let key = self.next_key;
                self.next_key += 1;
                let sleeps = self.long_sleep == Some(look.counters.turns);
                let slept = LookPoint { at_ns: *since_ns, ..*last };
                let begun = if sleeps { slept } else { *last };
                let absence =
                    Absence::begin(key, &begun, *has_left || sleeps, point, look.activity);
                self.phase = Phase::Away(Box::new(absence));
                LookOutcome::Nothing
            }
            Phase::Away(absence) => {
                let rests_in_lock = self.places.rests_in_lock();
                let may_be_loop = |call: &BlockedSyscall| {
                    is_event_wait(call) || rests_in_lock && is_lock_wait(call.number)
                };
                let from = absence.last;
                let gap = look.at_ns.saturating_sub(from.at_ns);
                let shares = divide(&from, &point);
                let used = shares.ran_ns + shares.ready_ns;
                let is_certain = gap < GAP_NS
                    || absence.is_same_call(look)
                    || used.saturating_mul(5) >= gap.saturating_mul(4);
                if !is_certain {
                    // It may have been back meanwhile.
                    absence.unseen.add(UnseenParts::GAP);
                    let ended = self.abandon();
                    self.phase = match is_waiting {
                        Some(call) => Phase::waiting(point, look.at_ns, call),
                        // Away again, or still: for how long is known from here on.
                        None => Phase::Away(Box::new(self.begin_unseen(
                            UnseenParts::GAP,
                            point,
                            point,
                            look.activity,
                        ))),
                    };
                    return ended.map_or(LookOutcome::Nothing, LookOutcome::Returned);
                }
                self.watched_ns += gap;
                let Some(call) = is_waiting else {
                    let classified = match look.activity {
                        Activity::InCall(call) if may_be_loop(&call) => {
                            self.places.kind(&call) == Some(PlaceKind::Nested)
                        }
                        _ => true,
                    };
                    absence.go_on(look, classified);
                    return LookOutcome::Nothing;
                };
                self.has_returned = true;
                absence.count_running(&shares);
                absence.settle_pending();
                // It came back between the two looks, after it had run for so long.
                let (after, rest) = (used, gap - used);
                absence.ended_ns = from.at_ns + after + rest / 2;
                absence.count_blocked(rest / 2);
                absence.uncertain_ns += rest / 2;
                let next = Phase::waiting(point, look.at_ns, call);
                match std::mem::replace(&mut self.phase, next) {
                    Phase::Away(absence) => {
                        self.steps.add(absence.length_ns());
                        LookOutcome::Returned(absence)
                    }
                    _ => LookOutcome::Nothing,
                }
            }
        }
    }

    /// Notes that the main loop sleeps here and looks for events in turns.
    pub(crate) fn know_sleep(&mut self, call: &BlockedSyscall) {
        self.places.know_sleep(call);
    }

    /// Takes into account in which sleep a look found a thread that is away, if its main loop sleeps and looks for events: that may be at
    /// another place now. Returns the absence that this ends.
    pub(crate) fn note_sleep(&mut self, look: &ThreadLook) -> Option<Box<Absence>> {
        let Activity::InCall(call) = look.activity else { return None };
        if self.absence().is_none() || !self.places.rests_in_sleep() {
            return None;
        }
        let absence = self.absence_mut()?;
        let is_loop = absence.sleeps.note(&call, look.at_ns, look.counters.turns);
        if absence.sleeps.since_ns() == Some(look.at_ns) {
            absence.before_sleep = None;
            absence.before_sleep = Some(Box::new(absence.clone()));
        }
        if !is_loop {
            return None;
        }
        let mut ended = absence.before_sleep.take()?;
        ended.settle_pending();
        self.places.know_sleep(&call);
        let point = LookPoint { at_ns: look.at_ns, counters: look.counters };
        self.phase = Phase::waiting(point, look.at_ns, call);
        self.steps.add(ended.length_ns());
        Some(ended)
    }

    /// Returns whether the thread is in a sleep that is too long to be the rest of a loop: nobody looks for events meanwhile.
    fn sleeps_long(&mut self, call: &BlockedSyscall, look: &ThreadLook) -> bool {
        let turns = look.counters.turns;
        let is_long = is_sleep(call)
            && match &self.phase {
                Phase::Waiting { last, since_ns, call: at, .. } => {
                    place_of(at) == place_of(call)
                        && last.counters.turns == turns
                        && look.at_ns.saturating_sub(*since_ns) >= HANG_NS
                }
                Phase::Away(_) => self.long_sleep == Some(turns),
                Phase::Unknown => false,
            };
        self.long_sleep = is_long.then_some(turns);
        is_long
    }

    /// Begins an absence at the first moment at which the thread is known to have been away; what came before is not known.
    fn begin_unseen(
        &mut self,
        unseen: UnseenParts,
        begun: LookPoint,
        last: LookPoint,
        activity: Activity,
    ) -> Absence {
        let key = self.next_key;
        self.next_key += 1;
        let mut absence = Absence::begin(key, &begun, true, last, activity);
        absence.unseen.add(unseen);
        absence
    }

    /// Returns what should be read while the thread is where the last look found it.
    pub(crate) fn wanted(&self, look: &ThreadLook) -> Wanted {
        let Activity::InCall(call) = look.activity else { return Wanted::Nothing };
        let is_known = self.places.kind(&call).is_some();
        if is_lock_wait(call.number) && !is_known && !self.has_loop() && self.lock_asks < LOCK_ASKS
        {
            return Wanted::Place(call);
        }
        match &self.phase {
            Phase::Waiting { since_ns, .. } if !is_known => {
                // In a program with an animation no wait is long.
                let is_animated = !self.has_loop() && self.has_returned;
                let is_due = is_animated || look.at_ns.saturating_sub(*since_ns) >= ASK_NS;
                if is_due { Wanted::Place(call) } else { Wanted::Nothing }
            }
            Phase::Away(absence) => {
                let Some(current) = &absence.current else { return Wanted::Nothing };
                let stayed = look.at_ns.saturating_sub(current.since_ns);
                let away = look.at_ns.saturating_sub(absence.started_ns);
                let is_lock = self.places.rests_in_lock() && is_lock_wait(call.number);
                if (is_event_wait(&call) || is_lock) && !is_known {
                    // The waits of a dialog with an animation are all short.
                    let is_due = stayed.max(away) >= ASK_NS;
                    return if is_due { Wanted::Place(call) } else { Wanted::Nothing };
                }
                if current.description.is_some() || absence.descriptions.len() >= DESCRIPTIONS {
                    return Wanted::Nothing;
                }
                let since = look.at_ns.saturating_sub(absence.described_ns);
                let is_due = stayed >= DESCRIBE_NS
                    || (away >= FIRST_DESCRIPTION_NS && since >= FIRST_DESCRIPTION_NS);
                if is_due { Wanted::Description(call) } else { Wanted::Nothing }
            }
            _ => Wanted::Nothing,
        }
    }

    /// Notes that the stack of a wait is being read.
    pub(crate) fn asked(&mut self, call: &BlockedSyscall) {
        self.lock_asks += u32::from(is_lock_wait(call.number));
        self.places.asked(call);
    }

    /// Notes that a description with this number was made of the call in which the thread is.
    pub(crate) fn described(&mut self, number: u32, object: Option<CallObject>, at_ns: u64) {
        let Some(absence) = self.absence_mut() else { return };
        absence.described_ns = at_ns;
        let Some(current) = &mut absence.current else { return };
        current.description = Some(number);
        let (call, first) = (current.syscall.number, current.syscall.arguments[0]);
        let made = CallDescription { number, blocked_ns: 0, call: (call, first) };
        absence.descriptions.push(made);
        let slot = absence.calls.iter_mut().find(|slot| (slot.number, slot.first) == (call, first));
        if let Some(slot) = slot {
            slot.is_described = true;
            slot.object = object.or(slot.object.take());
        }
    }

    /// Notes that nothing became known of the wait at a place that was asked about.
    pub(crate) fn forget_asked(&mut self, place: WaitPlace) {
        self.places.forget_asked(place);
    }

    /// Classifies a place by what is known of the stack; returns the absence that this ends.
    pub(crate) fn classify(
        &mut self,
        place: WaitPlace,
        evidence: PlaceEvidence,
    ) -> Option<Box<Absence>> {
        let kind = self.places.classify(place, evidence);
        let is_meant =
            |call: &BlockedSyscall| place_of(call) == place && self.places.kind(call) == Some(kind);
        match (&mut self.phase, kind) {
            // It was taken for the main loop's wait. The thread is away in it; what came before nobody has seen.
            (Phase::Waiting { last, since_ns, call, has_left: false }, PlaceKind::Nested)
                if is_meant(call) =>
            {
                let (last, activity) = (*last, Activity::InCall(*call));
                let begun = LookPoint { at_ns: *since_ns, ..last };
                self.phase = match self.has_loop() {
                    true => Phase::Away(Box::new(self.begin_unseen(
                        UnseenParts::START,
                        begun,
                        last,
                        activity,
                    ))),
                    // It starts, as far as is known.
                    false => Phase::Unknown,
                };
                None
            }
            (Phase::Away(absence), kind) => {
                let current = absence.current.filter(|current| is_meant(&current.syscall));
                if kind == PlaceKind::Nested {
                    if current.is_some() {
                        absence.settle_pending();
                    }
                    return None;
                }
                let (first_ns, last_ns) = match (absence.open_wait(is_meant), current) {
                    (Some(seen), _) => seen,
                    (None, Some(current)) => (current.since_ns, current.since_ns),
                    (None, None) => return None,
                };
                // The wait was that of a loop: the absence ended where the first one there began.
                let Some(current) = current else {
                    // Another step of that loop goes on since the last one there.
                    let mut ended = absence.clone();
                    ended.ended_ns = first_ns;
                    ended.trim_parts();
                    self.steps.add(ended.length_ns());
                    absence.restart(self.next_key, last_ns);
                    absence.uncertain_ns = absence.ended_ns.saturating_sub(last_ns);
                    self.next_key += 1;
                    return Some(ended);
                };
                let point = absence.last;
                absence.ended_ns = first_ns;
                let next = Phase::waiting(point, current.since_ns, current.syscall);
                match std::mem::replace(&mut self.phase, next) {
                    Phase::Away(absence) => {
                        self.steps.add(absence.length_ns());
                        Some(absence)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Returns how much of the time between two looks was looked at.
fn looked_ns(from_ns: u64, to_ns: u64) -> u64 {
    let gap = to_ns.saturating_sub(from_ns);
    if gap < GAP_NS { gap } else { 0 }
}

#[cfg(test)]
mod tests;
