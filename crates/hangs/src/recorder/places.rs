//! Tells the wait of a main loop from other waits: by how deep on the stack it is made, and by its callers.

use std::collections::HashMap;

use trace::backend::peek::blocked::BlockedSyscall;
use trace::syscall::{EVENT_WAITS, call_name, sleeps};

use crate::kernel::{EventWait, WAITS_AT_PLACE, WaitPlace, subject};

/// The most places of waits that are remembered.
const PLACES: usize = 256;

/// Returns where a call is made.
pub(super) fn place_of(call: &BlockedSyscall) -> WaitPlace {
    (call.sp, call.ip)
}

fn subject_of(call: &BlockedSyscall) -> u64 {
    EventWait::of(call).subject
}

/// Returns whether a call waits for events. With no descriptor it sleeps.
pub(super) fn is_event_wait(call: &BlockedSyscall) -> bool {
    is_event_wait_call(call.number) && !sleeps(call.number, &call.arguments)
}

/// Returns whether events can be waited for in a call.
pub(super) fn is_event_wait_call(number: u32) -> bool {
    call_name(number).is_some_and(|name| EVENT_WAITS.contains(&name))
}

/// Returns whether a call waits for a lock. Some main loops wait in it, as that of Tk, whose events come by another thread.
pub(super) fn is_lock_wait(number: u32) -> bool {
    call_name(number) == Some("futex")
}

/// What a wait at a place is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlaceKind {
    /// The main loop waits for something to do.
    Loop,
    /// The same, as long as no wait is seen that is less deep on the stack.
    LoopByDepth,
    /// Something is waited for inside of a step of the main loop.
    Nested,
    /// It is not known yet; the stack is being read.
    Asked,
}

/// Returns what a wait is of which nothing is known, by the others at its place: of many the main loop's if one of them is; none if it is
/// to be asked about.
pub(super) fn kind_among(kinds: impl Iterator<Item = PlaceKind>) -> Option<PlaceKind> {
    let kinds: Vec<PlaceKind> = kinds.collect();
    let is_loop = |kind: &&PlaceKind| matches!(kind, PlaceKind::Loop | PlaceKind::LoopByDepth);
    if kinds.len() >= WAITS_AT_PLACE {
        return Some(kinds.iter().find(is_loop).copied().unwrap_or(PlaceKind::Nested));
    }
    kinds.contains(&PlaceKind::Asked).then_some(PlaceKind::Asked)
}

/// What the loop around a wait says about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PlaceEvidence {
    /// The callers are a known event loop at rest.
    pub(crate) is_idle_loop: bool,
    /// A caller is known to wait for an answer.
    pub(crate) waits_for_answer: bool,
    /// How deep on the stack it is made says nothing: a function of the program makes it inside of a step of a known loop, or it is a wait
    /// for a lock.
    pub(crate) never_by_depth: bool,
    /// A function of the program makes it inside of a step of a known loop, without one: it looks whether there are events, and handles none.
    pub(crate) looks_without_loop: bool,
    /// The connection to the display is among what is waited for.
    pub(crate) has_display: bool,
    /// It is known that it is not.
    pub(crate) lacks_display: bool,
    /// The place of an earlier wait that the same functions made: the C library makes the calls of a process that has threads
    /// from another place, deeper on the stack.
    pub(crate) same_call: Option<WaitPlace>,
}

impl PlaceEvidence {
    /// Returns whether the waits at a place are those of a loop, if none was seen at a shallower place than this one.
    pub(crate) fn is_loop(self, place: WaitPlace, shallowest: u64) -> bool {
        let (sp, _) = self.same_call.unwrap_or(place);
        self.is_loop_anyway()
            || (!self.waits_for_answer && !self.never_by_depth && sp >= shallowest)
    }

    /// Returns whether the waits at a place are made beside or inside of a step of a loop that waits for the display, of which
    /// `display_loop` is the shallowest, and do not wait for it: whatever goes on there, nobody draws or answers meanwhile.
    pub(crate) fn starves_display(self, (sp, _): WaitPlace, display_loop: u64) -> bool {
        self.lacks_display && sp <= display_loop
    }

    /// Returns whether they are, however deep on the stack they are made.
    pub(crate) fn is_loop_anyway(self) -> bool {
        self.is_idle_loop
            || (!self.waits_for_answer && !self.looks_without_loop && self.has_display)
    }
}

/// The main loop of a program that a recorder followed which has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct KnownLoop {
    pub(super) process: u32,
    pub(super) waits: Vec<EventWait>,
    /// The stack pointer of the shallowest one that waits for the display.
    pub(super) display_loop: u64,
    /// Whether a hang that goes on is stored.
    pub(super) is_hang_stored: bool,
}

/// The places at which one thread waits for events.
#[derive(Debug, Default)]
pub(super) struct WaitPlaces {
    /// What the waits at each place are. One without a subject stands for all of its place.
    kinds: HashMap<WaitPlace, Vec<(Option<u64>, PlaceKind)>>,
    /// The stack pointer of the shallowest wait that was seen, of a process that has started threads since then. Stacks grow downwards.
    shallowest: u64,
    /// Whether the process has other threads.
    has_others: bool,
    /// The stack pointer of the shallowest loop that waits for the display.
    display_loop: u64,
    has_loop: bool,
    /// The wait of the main loop in which the thread was seen last.
    main_wait: Option<BlockedSyscall>,
}

impl WaitPlaces {
    /// Takes over what another recorder knew of the main loop.
    pub(super) fn take_over(&mut self, known: &KnownLoop) {
        for EventWait { place, subject } in &known.waits {
            let waits = self.kinds.entry(*place).or_default();
            waits.push((Some(*subject), PlaceKind::Loop));
            self.shallowest = self.shallowest.max(place.0);
            self.has_loop = true;
        }
        self.display_loop = known.display_loop;
    }

    /// Returns what a wait is, if that is known or asked.
    pub(super) fn kind(&self, call: &BlockedSyscall) -> Option<PlaceKind> {
        let waits = self.kinds.get(&place_of(call))?;
        let subject = subject_of(call);
        let known = waits.iter().find(|(of, _)| of.is_none_or(|of| of == subject));
        let others = || kind_among(waits.iter().map(|(_, kind)| *kind));
        known.map(|(_, kind)| *kind).or_else(others)
    }

    /// Returns what the first wait at a place was that is known.
    pub(super) fn first_kind(&self, place: WaitPlace) -> Option<PlaceKind> {
        let mut kinds = self.kinds.get(&place)?.iter().map(|(_, kind)| *kind);
        kinds.find(|kind| *kind != PlaceKind::Asked)
    }

    /// Returns whether a place is known at which the main loop waits.
    pub(super) fn has_loop(&self) -> bool {
        self.has_loop
    }

    /// Returns the wait of the main loop in which the thread was seen last.
    pub(super) fn main_wait(&self) -> Option<BlockedSyscall> {
        self.main_wait
    }

    /// Returns whether the main loop waits for a lock, as that of Tk does.
    pub(super) fn rests_in_lock(&self) -> bool {
        self.main_wait.is_some_and(|call| is_lock_wait(call.number))
    }

    /// Notes that the main loop sleeps here and looks for events in turns, as long as no wait for events is known to be the main loop's.
    pub(super) fn know_sleep(&mut self, call: &BlockedSyscall) {
        self.kinds.insert(place_of(call), vec![(Some(subject_of(call)), PlaceKind::Loop)]);
        self.has_loop = true;
    }

    /// Returns whether the main loop sleeps and looks for events in turns.
    pub(super) fn rests_in_sleep(&self) -> bool {
        let of_sleep = (Some(subject::SLEEP), PlaceKind::Loop);
        self.kinds.values().flatten().any(|of| *of == of_sleep)
    }

    /// Forgets places where the main loop sleeps: there is one that waits.
    fn forget_sleeps(&mut self) {
        for (subject, kind) in self.kinds.values_mut().flatten() {
            if *subject == Some(subject::SLEEP) {
                *kind = PlaceKind::Nested;
            }
        }
    }

    /// Notes whether the process has other threads.
    ///
    /// Once it has, the C library makes the calls in which a thread can be cancelled from another place, deeper on the stack: how
    /// deep waits were before says nothing of those that come. A loop that is known is known by its callers then.
    pub(super) fn note_others(&mut self, has_others: bool) {
        if has_others && !self.has_others && !self.has_loop {
            self.shallowest = 0;
        }
        self.has_others |= has_others;
    }

    /// Notes a call in which the thread was seen; returns whether it is the main loop's wait, or may be.
    pub(super) fn is_main_wait(&mut self, call: BlockedSyscall) -> bool {
        // Until it is known, a wait is what others at its place are.
        let kind = self.kind(&call).filter(|kind| *kind != PlaceKind::Asked);
        if !is_event_wait(&call) && kind != Some(PlaceKind::Loop) {
            return false;
        }
        let is_main = match kind.or_else(|| self.first_kind(place_of(&call))) {
            Some(PlaceKind::Loop) => true,
            Some(PlaceKind::Nested) => false,
            Some(PlaceKind::LoopByDepth | PlaceKind::Asked) | None => {
                call.sp >= self.shallowest && !self.rests_in_sleep()
            }
        };
        self.shallowest = self.shallowest.max(call.sp);
        if is_main {
            self.main_wait = Some(call);
        }
        is_main
    }

    /// Notes that the stack of a wait is being read.
    pub(super) fn asked(&mut self, call: &BlockedSyscall) {
        if self.kinds.len() >= PLACES {
            self.kinds.clear();
        }
        let waits = self.kinds.entry(place_of(call)).or_default();
        waits.push((Some(subject_of(call)), PlaceKind::Asked));
    }

    /// Notes that nothing became known of the wait at a place that was asked about.
    pub(super) fn forget_asked(&mut self, place: WaitPlace) {
        if let Some(waits) = self.kinds.get_mut(&place) {
            waits.retain(|(_, kind)| *kind != PlaceKind::Asked);
        }
    }

    /// Classifies the wait at a place that was asked about by what is known of the stack.
    pub(super) fn classify(&mut self, place: WaitPlace, evidence: PlaceEvidence) -> PlaceKind {
        // Beside a loop that sleeps the depth of a wait says nothing.
        let shallowest = if self.rests_in_sleep() { u64::MAX } else { self.shallowest };
        let is_loop = evidence.is_loop(place, shallowest)
            && !evidence.starves_display(place, self.display_loop);
        if is_loop && evidence.has_display {
            self.display_loop = self.display_loop.max(place.0);
        }
        let kind = match is_loop {
            true if evidence.is_loop_anyway() || evidence.same_call.is_some() => PlaceKind::Loop,
            true => PlaceKind::LoopByDepth,
            false => PlaceKind::Nested,
        };
        let waits = self.kinds.entry(place).or_default();
        match waits.iter_mut().find(|(_, kind)| *kind == PlaceKind::Asked) {
            Some((_, of)) => *of = kind,
            None => waits.push((None, kind)),
        }
        self.has_loop |= is_loop;
        if evidence.is_loop_anyway() && is_loop {
            self.forget_sleeps();
        }
        kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_waits_at_one_place_the_loop_decides_what_others_are() {
        use PlaceKind::{Asked, Loop, Nested};
        let among = |kinds: &[PlaceKind]| kind_among(kinds.iter().copied());
        assert_eq!(among(&[Nested, Loop]), None, "it is asked about");
        assert_eq!(among(&[Nested, Asked]), Some(Asked), "one after the other");
        let mut many = [Nested; WAITS_AT_PLACE];
        assert_eq!(among(&many), Some(Nested));
        many[3] = Loop;
        assert_eq!(among(&many), Some(Loop), "whichever was seen first");
    }
}
