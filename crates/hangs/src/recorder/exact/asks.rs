//! Has waits for events classified by their stacks: whether they are those of the main loop.

use std::sync::atomic::Ordering;

use trace::backend::blocked::BlockedSyscall;

use super::program::{MarkedProgram, WaitState};
use super::{ExactRecorder, has_others};
use crate::kernel::{EventWait, EventWaitKind, MarkedAs, MarkedThread};
use crate::model::{HANG_NS, UnseenParts};
use crate::recorder::absence::Activity;
use crate::recorder::interactive;
use crate::recorder::places::{is_event_wait_call, is_lock_wait};
use crate::recorder::work::{CopiedWait, DescribeWork, PlaceAnswer};

/// So often it is looked soon whether a main loop waits for a lock, or sleeps.
const LOOP_LOOKS: u32 = 120;
/// After which time each, in nanoseconds.
const LOOP_LOOK_NS: u64 = 500_000_000;
/// The same of later looks.
const LATER_LOOP_LOOK_NS: u64 = 10_000_000_000;
/// The most waits of one process that are remembered.
const WAITS: usize = 256;

/// Returns in how many nanoseconds it is to be looked whether the main loop of a program waits for a lock, or sleeps; none if it is known.
fn loop_look_in_ns(program: &MarkedProgram, now_ns: u64) -> Option<u64> {
    let soon = program.loop_looks.min(LOOP_LOOKS);
    let later = program.loop_looks.saturating_sub(LOOP_LOOKS);
    let due_ns = LOOP_LOOK_NS * u64::from(soon + 1) + LATER_LOOP_LOOK_NS * u64::from(later);
    let in_ns = due_ns.saturating_sub(program.counts.followed_ns(now_ns));
    (!program.counts.is_watched()).then_some(in_ns)
}

impl ExactRecorder<'_> {
    /// Returns when the next program is to be looked at whose main loop is not known.
    pub(super) fn next_loop_look_ns(&self, now_ns: u64) -> Option<u64> {
        let in_ns = self.marked.values().filter_map(|program| loop_look_in_ns(program, now_ns));
        in_ns.min().map(|in_ns| now_ns.saturating_add(in_ns))
    }

    /// Looks at programs whose main loop is not known: it may be one that waits for a lock, or sleeps, which the programs in the kernel do
    /// not ask about.
    pub(super) fn look_for_loops(&mut self, now_ns: u64) {
        let is_due = |program: &&mut MarkedProgram| {
            loop_look_in_ns(program, now_ns).is_some_and(|in_ns| in_ns == 0)
        };
        let mut due = Vec::new();
        for program in self.marked.values_mut().filter(is_due) {
            program.loop_looks += 1;
            due.push(program.process);
        }
        for process in due {
            let Some(Activity::InCall(call)) = self.activity(process) else { continue };
            if is_lock_wait(call.number) {
                self.ask(process, call, false);
            }
            let turns = self.reader.counters(process).map_or(0, |counters| counters.turns);
            let program = self.marked.get_mut(&process);
            if program.is_some_and(|program| program.sleeps.note(&call, now_ns, turns)) {
                self.know_sleep(process, &call);
            }
        }
    }

    /// Notes that the main loop of a process sleeps here and looks for events in turns, as long as no wait for events is known to be the
    /// main loop's.
    pub(super) fn know_sleep(&mut self, process: u32, call: &BlockedSyscall) {
        let wait = EventWait::of(call);
        let Some(program) = self.marked.get_mut(&process) else { return };
        // If it fails, the next look tries again.
        if self.marker.classify(process, wait, EventWaitKind::Loop).is_ok() {
            program.waits.insert(wait, WaitState::Classified(EventWaitKind::Loop));
            program.calls.push((call.ip, call.number));
            program.counts.know_loop(sys::bpf::clock_ns(), false);
        }
    }

    /// Forgets places where the main loop of a process sleeps: there is one that waits.
    fn forget_sleeps(&mut self, process: u32) {
        let Some(program) = self.marked.get_mut(&process) else { return };
        let of_loop = WaitState::Classified(EventWaitKind::Loop);
        for (wait, state) in &mut program.waits {
            if wait.is_sleep() && *state == of_loop {
                *state = WaitState::Classified(EventWaitKind::Nested);
                // If it fails, what sleeps there is no hang, as before.
                let _ = self.marker.classify(process, *wait, EventWaitKind::Nested);
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
        CopiedWait { copy, polled, is_part }: CopiedWait,
    ) -> bool {
        let Some(program) = self.marked.get_mut(&process) else { return false };
        self.link.count_copy();
        let display = interactive::is_display_among(process, polled.as_deref());
        if program.waits.len() >= WAITS {
            // Those of the main loop may not be asked about again.
            let of_loop = WaitState::Classified(EventWaitKind::Loop);
            program.waits.retain(|_, state| *state == of_loop);
            if program.waits.len() >= WAITS {
                program.waits.clear();
            }
            program.calls.clear();
        }
        let rests_since_ns = rests.then(sys::bpf::clock_ns);
        program.waits.insert(EventWait::of(call), WaitState::Asked { rests_since_ns });
        if !program.calls.contains(&(call.ip, call.number)) {
            program.calls.push((call.ip, call.number));
            if is_event_wait_call(call.number) {
                self.wait_calls.learn(process, (call.ip, call.number), has_others(process));
            }
        }
        self.asked += 1;
        let (wait, call) = (EventWait::of(call), call.number);
        self.link.send(DescribeWork::Place { process, call, wait, display, copy, is_part });
        true
    }

    pub(super) fn take_answers(&mut self) {
        while let Ok(answer) = self.link.answers.try_recv() {
            let PlaceAnswer { process, wait: EventWait { place, .. }, evidence, chain } = answer;
            self.asked = self.asked.saturating_sub(1);
            let state = self.thread_state(process).ok().flatten();
            let Some(program) = self.marked.get_mut(&process) else { continue };
            chain.iter().for_each(|callers| program.call_chains.learn_answer(callers));
            let Some(wait) = program.asked_at(place) else { continue };
            let Some(evidence) = evidence else {
                program.waits.remove(&wait);
                continue;
            };
            let mut kind = |state: &MarkedThread| {
                let knows_loop = program.counts.is_watched();
                let others = || has_others(process);
                // Beside a loop that sleeps the depth of a wait says nothing.
                let shallowest = match program.rests_in_sleep() {
                    true => u64::MAX,
                    false => program.depth.shallowest(place, state.shallowest, knows_loop, others),
                };
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
                if evidence.is_loop_anyway() {
                    program.is_loop_certain = true;
                    chain.iter().for_each(|callers| program.call_chains.learn_loop(callers, wait));
                }
                if evidence.has_display {
                    program.display_loop = program.display_loop.max(place.0);
                }
                let mut rests = state.wait.is_some_and(|(waits_for, _)| waits_for == wait);
                if state.wait.is_none() && wait.is_of_lock() && !knows_loop {
                    rests = self.mark_at_rest(process, wait);
                }
                let Some(program) = self.marked.get_mut(&process) else { continue };
                program.counts.know_loop(sys::bpf::clock_ns(), rests);
            }
            if kind == EventWaitKind::Loop && evidence.is_loop_anyway() {
                self.forget_sleeps(process);
            }
            let Some(program) = self.marked.get_mut(&process) else { continue };
            let in_it = state.wait.filter(|(of, _)| *of == wait).map(|(_, account)| account);
            let ended = program.away.as_mut().and_then(|absence| {
                let asked = absence.asked.take_if(|(of, _)| *of == wait);
                // Another look of the loop may have been asked about before this wait began.
                let in_it = in_it.filter(|_| state.away_since_ns == Some(absence.started_ns));
                asked.map(|(_, account)| account).or(in_it)
            });
            if let Some(account) = ended
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

    /// Marks the first thread of a process anew as one at rest, if it is in this wait of its main loop for a lock: one that had begun
    /// before the mark is not known to the programs in the kernel, and neither would be the step after it. Returns whether it is at rest.
    fn mark_at_rest(&mut self, process: u32, wait: EventWait) -> bool {
        if !self.is_in(process, wait) {
            return false;
        }
        let mut rests = false;
        for marked in [MarkedAs::Waiting(wait), MarkedAs::Unknown] {
            if !self.mark_anew(process, marked) {
                return false;
            }
            rests = marked != MarkedAs::Unknown && self.is_in(process, wait);
            // Otherwise it has left the wait before it was marked.
            if rests {
                break;
            }
        }
        rests
    }

    /// Returns whether the first thread of a process is in a wait for a lock.
    fn is_in(&mut self, process: u32, wait: EventWait) -> bool {
        matches!(self.activity(process), Some(Activity::InCall(call))
            if is_lock_wait(call.number) && EventWait::of(&call) == wait)
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
