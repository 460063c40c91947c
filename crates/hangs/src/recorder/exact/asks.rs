//! Has waits for events classified by their stacks: whether they are those of the main loop.

use std::sync::atomic::Ordering;

use trace::backend::blocked::BlockedSyscall;

use super::program::{MarkedProgram, WaitState};
use super::{ExactRecorder, has_others};
use crate::kernel::{EventWait, EventWaitKind, MarkedThread};
use crate::model::{HANG_NS, UnseenParts};
use crate::recorder::absence::Activity;
use crate::recorder::describe::{DescribeWork, PlaceAnswer, StackBytes};
use crate::recorder::interactive;
use crate::recorder::places::is_lock_wait;

/// So often it is looked soon whether a main loop waits for a lock.
const LOOP_LOOKS: u32 = 10;
/// After which time each, in nanoseconds.
const LOOP_LOOK_NS: u64 = 500_000_000;
/// The same of later looks.
const LATER_LOOP_LOOK_NS: u64 = 10_000_000_000;
/// The most waits of one process that are remembered.
const WAITS: usize = 256;

impl ExactRecorder<'_> {
    /// Looks at programs whose main loop is not known: it may be one that waits for a lock, which the programs in the kernel do not ask
    /// about.
    pub(super) fn look_for_loops(&mut self, now_ns: u64) {
        let is_due = |program: &&mut MarkedProgram| {
            let (soon, later) = (program.loop_looks.min(LOOP_LOOKS), program.loop_looks);
            let later = later.saturating_sub(LOOP_LOOKS);
            let due_ns = LOOP_LOOK_NS * u64::from(soon + 1) + LATER_LOOP_LOOK_NS * u64::from(later);
            !program.counts.is_watched() && program.counts.followed_ns(now_ns) >= due_ns
        };
        let mut due = Vec::new();
        for program in self.marked.values_mut().filter(is_due) {
            program.loop_looks += 1;
            due.push(program.process);
        }
        for process in due {
            if let Some(Activity::InCall(call)) = self.activity(process)
                && is_lock_wait(call.number)
            {
                self.ask(process, call, false);
            }
        }
    }

    /// Has a wait classified by its stack; returns whether it was read. `rests` says that the thread counts as at rest in it.
    pub(super) fn ask(&mut self, process: u32, call: BlockedSyscall, rests: bool) -> bool {
        self.may_ask(process, &call)
            && match self.reader.copy_wait(process, &call) {
                Some(copied) => self.ask_with(process, &call, rests, copied),
                None => false,
            }
    }

    /// Returns whether a wait is to be classified. Of those at one place it is one after the other.
    pub(super) fn may_ask(&self, process: u32, call: &BlockedSyscall) -> bool {
        let wait = EventWait::of(call);
        let is_new = |program: &MarkedProgram| {
            !program.waits.contains_key(&wait) && program.asked_at(wait.place).is_none()
        };
        self.marked.get(&process).is_some_and(is_new) && self.link.has_room()
    }

    /// Has a wait classified by its stack and its descriptors; returns whether it will be.
    pub(super) fn ask_with(
        &mut self,
        process: u32,
        call: &BlockedSyscall,
        rests: bool,
        (copy, polled): (StackBytes, Option<Vec<i32>>),
    ) -> bool {
        let Some(program) = self.marked.get_mut(&process) else { return false };
        self.link.count_copy();
        let display = interactive::is_display_among(process, polled.as_deref());
        if program.waits.len() >= WAITS {
            program.waits.clear();
            program.calls.clear();
        }
        let rests_since_ns = rests.then(sys::bpf::clock_ns);
        program.waits.insert(EventWait::of(call), WaitState::Asked { rests_since_ns });
        if !program.calls.contains(&(call.ip, call.number)) {
            program.calls.push((call.ip, call.number));
        }
        self.asked += 1;
        let (call, place) = (call.number, (call.sp, call.ip));
        self.link.send(DescribeWork::Place { process, call, place, display, copy });
        true
    }

    pub(super) fn take_answers(&mut self) {
        while let Ok(PlaceAnswer { process, place, evidence }) = self.link.answers.try_recv() {
            self.asked = self.asked.saturating_sub(1);
            let state = self.thread_state(process).ok().flatten();
            let Some(program) = self.marked.get_mut(&process) else { continue };
            let Some(wait) = program.asked_at(place) else { continue };
            let mut kind = |state: &MarkedThread| {
                let knows_loop = program.counts.is_watched();
                let others = || has_others(process);
                let seen = state.shallowest;
                let shallowest = program.depth.shallowest(place, seen, knows_loop, others);
                let starves = evidence.starves_display(place, program.display_loop);
                match evidence.is_loop(place, shallowest) && !starves {
                    true => EventWaitKind::Loop,
                    false => EventWaitKind::Nested,
                }
            };
            let Some((state, kind)) = state
                .map(|state| (state, kind(&state)))
                .filter(|(_, kind)| self.marker.classify(process, wait, *kind).is_ok())
            else {
                // It is asked about once more.
                program.waits.remove(&wait);
                continue;
            };
            let before = program.waits.insert(wait, WaitState::Classified(kind));
            let knows_loop = program.counts.is_watched();
            if kind == EventWaitKind::Loop && !evidence.is_loop_anyway() {
                for deeper in program.depth.add_loop(wait) {
                    // If it fails, what waits there is no hang, as before.
                    let _ = self.marker.classify(process, deeper, EventWaitKind::Nested);
                    program.waits.insert(deeper, WaitState::Classified(EventWaitKind::Nested));
                }
            }
            if kind == EventWaitKind::Loop {
                if evidence.has_display {
                    program.display_loop = program.display_loop.max(place.0);
                }
                let rests = state.wait.is_some_and(|(waits_for, _)| waits_for == wait);
                program.counts.know_loop(sys::bpf::clock_ns(), rests);
            }
            let asked = program.away.as_mut().and_then(|absence| absence.asked.take());
            if let Some((_, account)) = asked.filter(|(of, _)| *of == wait)
                && kind == EventWaitKind::Loop
            {
                // The wait was that of a loop: the absence ended where it began.
                self.ended(process, &account, false);
            }
            if kind == EventWaitKind::Nested
                && let Some(WaitState::Asked { rests_since_ns: Some(rests_since_ns) }) = before
                && knows_loop
            {
                self.was_away(process, rests_since_ns);
            }
        }
    }

    /// The wait that has counted as rest since a moment is one inside of a step, and was not known to be until now.
    fn was_away(&mut self, process: u32, rests_since_ns: u64) {
        let state = self.thread_state(process).ok().flatten();
        let away = state.filter(|state| state.is_waiting).and_then(|state| state.away_since_ns);
        if let Some(started_ns) = away {
            self.begin_absence(process, started_ns);
            if let Some(absence) = self.absence_mut(process) {
                absence.unseen.add(UnseenParts::START);
            }
        } else if sys::bpf::clock_ns().saturating_sub(rests_since_ns) >= HANG_NS {
            // It is over: nobody knows since when.
            self.link.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
