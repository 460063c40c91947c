//! Follows one interface thread, and divides the time between two waits of its main loop.
//!
//! It reads nothing itself: each look at the thread is given to it, so that its decisions can be tested.

use trace::backend::peek::blocked::{BlockedSyscall, SchedulerCounters};
use trace::syscall::call_name;

use super::absence::{
    Absence, Activity, CallDescription, LookPoint, LookShares, ThreadLook, divide,
};
use super::places::{PlaceEvidence, PlaceKind, WaitPlaces, is_event_wait, place_of};
use crate::kernel::WaitPlace;
use crate::model::{CallObject, GAP_NS, StepHistogram, UnseenParts};

/// A wait at a place that is not classified is asked about after this time, in nanoseconds.
const ASK_NS: u64 = 50_000_000;
/// A call of a thread that is away is described after this time, in nanoseconds.
const DESCRIBE_NS: u64 = 20_000_000;
/// The first description of a thread that is away is made after this time, in nanoseconds, also of a short call.
const FIRST_DESCRIPTION_NS: u64 = 50_000_000;
/// The same for a thread at rest whose next run is announced.
const ANNOUNCED_GAP_NS: u64 = 2_000_000_000;
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
            steps: StepHistogram::default(),
            watched_ns: 0,
        }
    }

    /// Returns whether the thread is known to have stayed in its main loop's wait, by its counters alone.
    pub(crate) fn stayed(&mut self, at_ns: u64, counters: SchedulerCounters) -> bool {
        let Phase::Waiting { last, since_ns, call, has_left: false } = &mut self.phase else {
            return false;
        };
        let is_unclassified = self.places.kind(call).is_none();
        if last.counters.turns != counters.turns
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
            Phase::Waiting { call, has_left: false, .. } => matches!(
                self.places.kind(call),
                Some(PlaceKind::Loop | PlaceKind::LoopByDepth)
            ),
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

    /// Returns the place of the main loop's wait at which the thread was seen last.
    pub(crate) fn main_place(&self) -> Option<WaitPlace> {
        self.places.main_wait().as_ref().map(place_of)
    }

    /// Takes into account that the main loop looked for events at these moments, in order, and did not wait long;
    /// returns the longest absence that this ends.
    pub(crate) fn turned(&mut self, moments: &[u64]) -> Option<Box<Absence>> {
        let Phase::Away(absence) = &mut self.phase else { return None };
        let (first, last) = (*moments.first()?, *moments.last()?);
        if first < absence.started_ns {
            return None;
        }
        moments.windows(2).for_each(|pair| self.steps.add(pair[1].saturating_sub(pair[0])));
        absence.settle_pending();
        let mut ended = absence.clone();
        ended.ended_ns = first;
        ended.trim_parts();
        self.steps.add(ended.length_ns());
        absence.restart(self.next_key, last);
        self.next_key += 1;
        Some(ended)
    }

    /// Notes whether the process has other threads.
    pub(crate) fn note_others(&mut self, has_others: bool) {
        self.places.note_others(has_others);
    }

    /// Takes a look into account.
    pub(crate) fn look(&mut self, look: &ThreadLook) -> LookOutcome {
        let is_waiting = match look.activity {
            Activity::InCall(call) => self.places.is_main_wait(call).then_some(call),
            _ => None,
        };
        let point = LookPoint { at_ns: look.at_ns, counters: look.counters };
        match &mut self.phase {
            Phase::Unknown => {
                if let Some(call) = is_waiting {
                    self.phase = Phase::waiting(point, look.at_ns, call);
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
                let absence = Absence::begin(key, last, *has_left, point, look.activity);
                self.phase = Phase::Away(Box::new(absence));
                LookOutcome::Nothing
            }
            Phase::Away(absence) => {
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
                        Activity::InCall(call) if is_event_wait(call.number) => {
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
        match &self.phase {
            Phase::Waiting { since_ns, .. }
                if !is_known && look.at_ns.saturating_sub(*since_ns) >= ASK_NS =>
            {
                Wanted::Place(call)
            }
            Phase::Away(absence) => {
                let Some(current) = &absence.current else { return Wanted::Nothing };
                let stayed = look.at_ns.saturating_sub(current.since_ns);
                let away = look.at_ns.saturating_sub(absence.started_ns);
                if is_event_wait(call.number) && !is_known {
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

    /// Classifies a place by what is known of the stack; returns the absence that this ends.
    pub(crate) fn classify(
        &mut self,
        place: WaitPlace,
        evidence: PlaceEvidence,
    ) -> Option<Box<Absence>> {
        let kind = self.places.classify(place, evidence);
        let is_meant = |call: &BlockedSyscall| {
            place_of(call) == place && self.places.kind(call) == Some(kind)
        };
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
mod tests {
    use super::*;
    use trace::syscall::call_number;

    const MS: u64 = 1_000_000;
    /// Where the main loop waits; what is called from it is below.
    const LOOP: WaitPlace = (9000, 1);
    const DEEP: WaitPlace = (5000, 1);

    fn in_call(name: &str, (sp, ip): WaitPlace) -> Activity {
        let number = call_number(name).unwrap();
        Activity::InCall(BlockedSyscall { number, arguments: [3, 0, 0, 0, 0, 0], sp, ip })
    }

    fn look(at_ms: u64, cpu_ms: u64, turns: u64, activity: Activity) -> ThreadLook {
        let counters = SchedulerCounters { cpu_ns: cpu_ms * MS, queued_ns: 0, turns };
        ThreadLook { at_ns: at_ms * MS, counters, activity }
    }

    fn at_rest() -> ThreadFollower {
        let mut follower = ThreadFollower::new(0);
        follower.look(&look(1000, 0, 1, in_call("poll", LOOP)));
        follower
    }

    fn idle() -> PlaceEvidence {
        PlaceEvidence {
            is_idle_loop: true,
            waits_for_answer: false,
            has_display: false,
            same_call: None,
        }
    }

    #[test]
    fn a_sync_between_two_waits_is_an_absence_with_its_parts() {
        let mut follower = at_rest();
        follower.look(&look(1050, 2, 2, in_call("fsync", DEEP)));
        for at in (1060..1400).step_by(10) {
            follower.look(&look(at, 2, 2, in_call("fsync", DEEP)));
        }
        let LookOutcome::Returned(absence) =
            follower.look(&look(1400, 3, 3, in_call("poll", LOOP)))
        else {
            panic!("it is back");
        };
        // It left between 1000 and 1048 and was back between 1390 and 1399.
        assert!(absence.length_ns().abs_diff(370 * MS) <= absence.uncertain_ns + MS, "{absence:?}");
        let sum: u64 = absence.parts.named().iter().map(|(_, part)| part).sum();
        assert_eq!(sum, absence.length_ns(), "{absence:?}");
        assert_eq!(absence.parts.processor_ns, 3 * MS);
        assert_eq!(absence.calls[0].blocked_ns, absence.parts.call_ns);
        assert_eq!(follower.steps.total(), 1);
    }

    #[test]
    fn a_wait_deeper_on_the_stack_counts_only_once_it_is_known_not_to_be_a_loop() {
        for (evidence, is_loop) in [
            (idle(), true),
            (PlaceEvidence { is_idle_loop: false, waits_for_answer: true, ..idle() }, false),
            (PlaceEvidence { is_idle_loop: false, ..idle() }, false),
            (PlaceEvidence { is_idle_loop: false, has_display: true, ..idle() }, true),
            (PlaceEvidence { is_idle_loop: false, same_call: Some(LOOP), ..idle() }, true),
            (PlaceEvidence { is_idle_loop: false, same_call: Some(DEEP), ..idle() }, false),
        ] {
            let mut follower = at_rest();
            for at in (1050..1300).step_by(10) {
                let deep = look(at, 1, 2, in_call("poll", DEEP));
                follower.look(&deep);
                if let Wanted::Place(call) = follower.wanted(&deep) {
                    follower.asked(&call);
                }
            }
            assert!(follower.absence().unwrap().certain_ns() < 60 * MS, "it may be a loop");
            let ended = follower.classify(DEEP, evidence);
            assert_eq!(ended.is_some(), is_loop, "{evidence:?}");
            let certain = follower.absence().map(Absence::certain_ns);
            assert_eq!(certain.is_some_and(|certain| certain > 200 * MS), !is_loop, "{evidence:?}");
        }
    }

    #[test]
    fn the_wait_of_a_loop_that_is_deeper_once_there_are_threads_is_its_wait() {
        let by_depth = PlaceEvidence { is_idle_loop: false, ..idle() };
        let deeper = (LOOP.0 - 40, 2);
        let mut follower = ThreadFollower::new(0);
        // Its waits were all too short to be asked about.
        for at in (1000..1200).step_by(20) {
            follower.look(&look(at, 0, at, in_call("poll", LOOP)));
        }
        follower.note_others(true);
        for at in (1200..1400).step_by(10) {
            let rests = look(at, 0, 2000, in_call("poll", deeper));
            follower.look(&rests);
            if let Wanted::Place(call) = follower.wanted(&rests) {
                follower.asked(&call);
                assert!(follower.classify(deeper, by_depth).is_none());
            }
        }
        assert!(follower.is_at_rest() && follower.absence().is_none(), "{follower:?}");
        // What waits deeper on the stack is still told from it.
        for at in (1400..1600).step_by(10) {
            let nested = look(at, 0, 2001, in_call("poll", DEEP));
            follower.look(&nested);
            if let Wanted::Place(call) = follower.wanted(&nested) {
                follower.asked(&call);
                follower.classify(DEEP, by_depth);
            }
        }
        assert!(
            follower.absence().is_some_and(|away| away.certain_ns() > 150 * MS),
            "{follower:?}"
        );
    }

    #[test]
    fn a_loop_by_depth_is_none_any_more_when_a_wait_is_seen_that_is_less_deep() {
        let by_depth = PlaceEvidence { is_idle_loop: false, ..idle() };
        let mut follower = ThreadFollower::new(0);
        follower.look(&look(1000, 0, 1, in_call("poll", DEEP)));
        follower.classify(DEEP, by_depth);
        assert!(follower.is_at_rest());
        follower.look(&look(1100, 0, 2, in_call("poll", LOOP)));
        follower.look(&look(1110, 0, 3, in_call("poll", DEEP)));
        assert!(follower.absence().is_some(), "{follower:?}");
    }

    #[test]
    fn who_was_in_one_short_wait_may_have_no_loop_to_be_away_from() {
        let mut follower = ThreadFollower::new(0);
        follower.look(&look(1000, 0, 1, in_call("poll", LOOP)));
        follower.look(&look(1010, 1, 2, in_call("wait4", DEEP)));
        assert!(follower.absence().is_some() && !follower.may_have_loop());
        follower.look(&look(1200, 2, 3, in_call("poll", LOOP)));
        assert!(follower.may_have_loop(), "it was back");
        let mut classified = at_rest();
        classified.classify(LOOP, idle());
        assert!(classified.may_have_loop());
    }

    #[test]
    fn a_wait_that_was_taken_for_the_loop_and_is_none_is_a_part_of_a_hang_where_there_is_a_loop() {
        let nested = PlaceEvidence { is_idle_loop: false, waits_for_answer: true, ..idle() };
        let shallower = (LOOP.0 + 40, 7);
        for has_loop in [true, false] {
            let mut follower = at_rest();
            if has_loop {
                follower.classify(LOOP, idle());
            }
            follower.look(&look(1010, 1, 2, in_call("ppoll", shallower)));
            let waits = look(1070, 1, 2, in_call("ppoll", shallower));
            follower.look(&waits);
            let Wanted::Place(call) = follower.wanted(&waits) else { panic!("{follower:?}") };
            follower.asked(&call);
            assert!(follower.classify(shallower, nested).is_none());
            for at in (1080..1700).step_by(10) {
                follower.look(&look(at, 1, 2, in_call("ppoll", shallower)));
            }
            follower.classify(LOOP, idle());
            let back = follower.look(&look(1700, 2, 3, in_call("poll", LOOP)));
            let LookOutcome::Returned(hang) = back else {
                assert!(!has_loop, "{back:?}");
                continue;
            };
            assert!(has_loop, "a program that starts has no main loop to be away from: {hang:?}");
            // It is away from where it was seen in that wait first.
            assert!((680 * MS..=690 * MS).contains(&hang.length_ns()), "{hang:?}");
            assert!(hang.unseen.has(UnseenParts::START), "{hang:?}");
            let sum = hang.parts.call_ns + hang.parts.processor_ns;
            assert_eq!(sum, hang.length_ns(), "{hang:?}");
            assert_eq!(hang.calls[0].number, call_number("ppoll").unwrap());
        }
    }

    #[test]
    fn an_absence_whose_first_moment_is_known_begins_then() {
        for (turns, is_exact) in [(2, true), (4, false)] {
            let mut follower = at_rest();
            follower.classify(LOOP, idle());
            assert!(follower.is_at_rest());
            // Nothing but its first switch was recorded in a second; there was no look in it.
            follower.left(2007 * MS);
            assert!(!follower.is_at_rest());
            assert_eq!(follower.watched_ns, 1007 * MS);
            let later = SchedulerCounters { cpu_ns: 0, queued_ns: 0, turns: 1 };
            assert!(!follower.stayed(2010 * MS, later), "it has left");
            follower.look(&look(2018, 1, turns, in_call("fsync", DEEP)));
            let absence = follower.absence().expect("it is away");
            assert_eq!(
                absence.started_ns == 2007 * MS && absence.uncertain_ns == 0,
                is_exact,
                "{absence:?}"
            );
            assert!(absence.started_ns >= 2007 * MS);
            assert_eq!(absence.parts.processor_ns + absence.parts.call_ns, absence.length_ns());
        }
    }

    #[test]
    fn a_rest_that_was_left_and_found_again_goes_on() {
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        follower.left(1500 * MS);
        follower.look(&look(1510, 2, 2, in_call("poll", LOOP)));
        assert!(follower.is_at_rest() && follower.absence().is_none());
        follower.rested(3000 * MS);
        assert_eq!(follower.watched_ns, 2000 * MS);
        follower.rested(60_000 * MS);
        assert_eq!(follower.watched_ns, 2000 * MS, "nobody was there");
    }

    #[test]
    fn looks_for_events_that_took_no_time_divide_an_absence() {
        let mut follower = at_rest();
        for at in (1050..1500).step_by(10) {
            follower.look(&look(at, at - 1050, 2, Activity::Running));
        }
        let ended = follower.turned(&[1120 * MS, 1140 * MS, 1460 * MS]).expect("an absence ends");
        assert!(ended.length_ns() < 125 * MS, "{ended:?}");
        assert!(ended.may_be_several(), "it began before anybody saw the main loop");
        let rest = follower.absence().unwrap();
        assert_eq!((rest.started_ns, rest.may_be_several()), (1460 * MS, false));
        assert_eq!(follower.steps.total(), 3, "{:?}", follower.steps);
    }

    #[test]
    fn a_wait_that_is_restarted_after_a_stop_is_the_same_wait() {
        let mut follower = at_rest();
        follower.look(&look(1050, 0, 2, Activity::Stopped));
        let restarted = look(1300, 0, 3, in_call("restart_syscall", LOOP));
        let restarted = follower.with_restarted_call(restarted);
        assert!(matches!(follower.look(&restarted), LookOutcome::Returned(_)));
    }

    #[test]
    fn a_time_in_which_nobody_looked_is_no_hang() {
        let mut follower = at_rest();
        follower.look(&look(1050, 1, 2, Activity::Running));
        let LookOutcome::Returned(absence) = follower.look(&look(9000, 2, 5, Activity::Running))
        else {
            panic!("it ends where nobody looked");
        };
        assert!(absence.length_ns() < 60 * MS && absence.unseen.has(UnseenParts::GAP));
        let next = follower.absence().expect("it is away again, or still");
        assert_eq!(next.started_ns, 9000 * MS, "what was before nobody saw");
        assert!(next.unseen.has(UnseenParts::GAP));
    }

    #[test]
    fn a_hang_that_is_found_after_a_time_in_which_nobody_looked_is_told_as_far_as_it_was_seen() {
        for gap_ms in [350, 20_000] {
            let mut follower = at_rest();
            follower.look(&look(1050, 1, 2, in_call("clock_nanosleep", DEEP)));
            let from = 1050 + gap_ms;
            let found = look(from, 2, 4, in_call("flock", DEEP));
            assert!(matches!(follower.look(&found), LookOutcome::Returned(_)));
            for at in (from + 10..from + 700).step_by(10) {
                follower.look(&look(at, 2, 4, in_call("flock", DEEP)));
            }
            let away = follower.absence().expect("it is away");
            assert!(away.certain_ns() >= 680 * MS, "{away:?}");
            let LookOutcome::Returned(hang) =
                follower.look(&look(from + 700, 3, 5, in_call("poll", LOOP)))
            else {
                panic!("it is back");
            };
            assert!((690 * MS..=700 * MS).contains(&hang.length_ns()), "{hang:?}");
            assert_eq!(hang.parts.call_ns + hang.parts.processor_ns, hang.length_ns(), "{hang:?}");
            assert!(hang.unseen.has(UnseenParts::GAP), "{hang:?}");
        }
    }

    #[test]
    fn a_hang_that_began_while_nobody_looked_says_so() {
        // The thread was at rest when the recorder stopped for two seconds; announced or not.
        for is_announced in [true, false] {
            let mut follower = at_rest();
            follower.classify(LOOP, idle());
            if is_announced {
                follower.left(1500 * MS);
            }
            follower.look(&look(3500, 4, 900, in_call("clock_nanosleep", DEEP)));
            for at in (3510..4000).step_by(10) {
                follower.look(&look(at, 4, 901, in_call("clock_nanosleep", DEEP)));
            }
            let back = follower.look(&look(4000, 4, 902, in_call("poll", LOOP)));
            let LookOutcome::Returned(hang) = back else { panic!("it is back") };
            assert!((490 * MS..=500 * MS).contains(&hang.length_ns()), "{hang:?}");
            assert!(hang.unseen.has(UnseenParts::GAP), "{hang:?}");
        }
        // Of one that has been in one call since its announced beginning nothing is missing.
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        follower.left(1500 * MS);
        follower.look(&look(3500, 0, 2, in_call("clock_nanosleep", DEEP)));
        let away = follower.absence().expect("it is away");
        assert_eq!((away.length_ns(), away.uncertain_ns), (2000 * MS, 0), "{away:?}");
        assert!(!away.unseen.has(UnseenParts::GAP), "{away:?}");
    }

    #[test]
    fn an_absence_that_may_have_begun_after_the_last_look_is_uncertain_by_all_of_that() {
        let mut follower = at_rest();
        follower.classify(LOOP, idle());
        // Many short calls since the last look, which was late: it may be away for 250 ms already.
        follower.look(&look(1250, 2, 100, in_call("clock_nanosleep", DEEP)));
        let away = follower.absence().expect("it is away");
        assert!(away.started_ns - away.uncertain_ns <= 1000 * MS, "{away:?}");
    }

    #[test]
    fn a_dialog_whose_waits_are_all_short_is_no_hang() {
        for answered_in_a_wait in [true, false] {
            let mut follower = at_rest();
            follower.classify(LOOP, idle());
            let mut hangs = Vec::new();
            // It draws sixty times a second; the answer takes 100 ms.
            for (turn, at) in (1050..3000).step_by(10).enumerate() {
                let turns = 2 + u64::try_from(turn).unwrap();
                let is_waiting = (turn % 2 == 0) == answered_in_a_wait;
                let activity = if is_waiting { in_call("poll", DEEP) } else { Activity::Running };
                let seen = look(at, 1, turns, activity);
                if let LookOutcome::Returned(absence) = follower.look(&seen) {
                    hangs.push(absence);
                }
                if let Wanted::Place(call) = follower.wanted(&seen) {
                    follower.asked(&call);
                }
                if at == 1250 {
                    hangs.extend(follower.classify(DEEP, idle()));
                }
            }
            assert!(hangs.iter().all(|hang| hang.length_ns() < 100 * MS), "{hangs:?}");
            let away = follower.absence().map_or(0, Absence::length_ns);
            assert!(away < 50 * MS, "{follower:?}");
        }
    }

    #[test]
    fn waits_of_different_functions_at_one_place_are_told_apart() {
        let answers = PlaceEvidence { is_idle_loop: false, waits_for_answer: true, ..idle() };
        let poll_of = |array: u64, count: u64| {
            let Activity::InCall(call) = in_call("poll", DEEP) else { panic!("it is a call") };
            Activity::InCall(BlockedSyscall { arguments: [array, count, 0, 0, 0, 0], ..call })
        };
        for is_dialog_first in [true, false] {
            let mut follower = at_rest();
            follower.classify(LOOP, idle());
            let (dialog, answer) = ((poll_of(70, 3), idle()), (poll_of(80, 2), answers));
            let order = if is_dialog_first { [dialog, answer] } else { [answer, dialog] };
            let mut hangs = Vec::new();
            for (turn, (activity, evidence)) in order.into_iter().enumerate() {
                let (from, turns) = (1000 + 2000 * u64::try_from(turn).unwrap(), 10 * (turn + 1));
                let turns = u64::try_from(turns).unwrap();
                for at in (from + 50..from + 1000).step_by(10) {
                    let seen = look(at, 1, turns, activity);
                    follower.look(&seen);
                    if let Wanted::Place(call) = follower.wanted(&seen) {
                        follower.asked(&call);
                        hangs.extend(follower.classify(DEEP, evidence));
                    }
                }
                for at in (from + 1000..from + 2000).step_by(50) {
                    let rests = look(at, 1, turns + 1, in_call("poll", LOOP));
                    if let LookOutcome::Returned(hang) = follower.look(&rests) {
                        hangs.push(hang);
                    }
                }
            }
            let hangs = hangs.iter().filter(|hang| hang.length_ns() >= 100 * MS);
            let lengths = hangs.map(|hang| hang.length_ns() / MS).collect::<Vec<_>>();
            assert!(matches!(*lengths, [900..1000]), "{lengths:?}, dialog first: {is_dialog_first}");
        }
    }
}
