//! Finds the main loop of a program that has just been started: for seconds it may have so much to do that it never waits in it.
//!
//! Where waits are made is known from the first reply of the display server, or from another process with the same C library. A
//! breakpoint there sees all looks for events, also those that take no time, until the programs in the kernel know the main loop.

use trace::backend::blocked::BlockedSyscall;

use super::program::{MarkedProgram, StartWatch, WaitState, kind_of_look, known_kind};
use super::start_looks::{StartCounters, StartLooks, StartStep};
use super::{ExactRecorder, has_others};
use crate::kernel::{AbsenceAccount, EventWait, EventWaitKind, MarkedAs, WaitPlace};
use crate::model::{HANG_NS, UnseenParts};
use crate::recorder::places::{PlaceKind, is_event_wait_call};
use crate::recorder::process;
use crate::recorder::turns::TurnWatch;

/// How long a program that is followed counts as one that has just been started, in nanoseconds.
const STARTING_NS: u64 = 20_000_000_000;
/// The interval of looks at such a program, in nanoseconds.
const LOOK_NS: u64 = 20_000_000;
/// Each so many looks it is asked where a program makes its calls that has not waited yet: that reads all its mappings.
const LOOKS_FOR_CALLS: u64 = 5;
/// So often a thread is marked anew that is in another phase than the mark says.
const ATTEMPTS: usize = 4;

/// Returns whether a program has just been started.
pub(super) fn is_new(program: &MarkedProgram, now_ns: u64) -> bool {
    program.counts.followed_ns(now_ns) < STARTING_NS
}

fn is_starting(program: &MarkedProgram, now_ns: u64) -> bool {
    is_new(program, now_ns) && !matches!(program.start, StartWatch::Over)
}

/// Returns whether the first thread of a process has a processor, or waits for one. Of one that is stopped or blocked the programs in the
/// kernel do not know that it is, and what it does until it goes on would count as computing.
fn has_processor(process: u32) -> bool {
    process::thread_state(process).is_some_and(|state| state.letter == 'R')
}

/// Returns the call in which the program has last waited for events.
fn where_it_waits(program: &MarkedProgram) -> Option<(u64, u32)> {
    program.calls.iter().rev().copied().find(|(_, number)| is_event_wait_call(*number))
}

/// Returns where the main loop waits: at the shallowest place, if there are several.
fn place_of_loop(program: &MarkedProgram) -> Option<WaitPlace> {
    let is_loop = |state: &WaitState| *state == WaitState::Classified(EventWaitKind::Loop);
    let waits = program
        .waits
        .iter()
        .filter(|(wait, state)| is_loop(state) && !wait.is_of_lock() && !wait.is_sleep());
    waits.map(|(wait, _)| wait.place).max()
}

impl ExactRecorder<'_> {
    /// Returns when programs that have just been started are looked at the next time.
    pub(super) fn next_start_look_ns(&self, now_ns: u64) -> Option<u64> {
        let is_any = self.marked.values().any(|program| is_starting(program, now_ns));
        (is_any && self.may_break).then_some(now_ns.saturating_add(LOOK_NS))
    }

    /// Looks for the main loops of programs that have just been started.
    pub(super) fn look_at_starts(&mut self, now_ns: u64) {
        if !self.may_break {
            return;
        }
        let starting = self.marked.values().filter(|program| is_starting(program, now_ns));
        for process in starting.map(|program| program.process).collect::<Vec<_>>() {
            self.look_at_start(process, now_ns);
        }
        for program in self.marked.values_mut() {
            if !is_new(program, now_ns) {
                program.start = StartWatch::Over;
            }
        }
    }

    fn look_at_start(&mut self, process: u32, now_ns: u64) {
        let Ok(state) = self.thread_state(process) else { return };
        let known_ns = state.as_ref().and_then(|state| state.known_since_ns);
        // The programs in the kernel see the step after a rest that they know of.
        let rests = state.as_ref().filter(|state| state.is_waiting).and_then(|state| state.wait);
        let rests = rests.is_some_and(|(wait, _)| self.rests_certainly_in(process, wait));
        let known_ns = known_ns.or(rests.then_some(now_ns));
        let is_over = state.is_none_or(|state| state.is_gone);
        let (rest, counters) = (self.event_wait(process), self.reader.counters(process));
        let Some(program) = self.marked.get_mut(&process) else { return };
        if is_over {
            program.start = StartWatch::Over;
            return;
        }
        if let StartWatch::Seen(looks) = &mut program.start {
            looks.seen.moments.extend(counters.map(|counters| (now_ns, counters)));
            looks.seen.rests.extend(rest.map(|call| (now_ns, EventWait::of(&call))));
        }
        let is_due = program.start_looks.is_multiple_of(LOOKS_FOR_CALLS);
        program.start_looks += 1;
        let known = where_it_waits(program).or_else(|| match &program.start {
            StartWatch::Seen(looks) => Some((looks.watch.main_place().1, looks.watch.call())),
            _ if is_due => self.wait_calls.find(process, has_others(process)),
            _ => None,
        });
        let Some((ip, number)) = known else { return };
        let waits = &program.waits;
        let chains = &program.call_chains;
        let kind_of =
            |call: &BlockedSyscall, stack: &[u8]| kind_of_look(waits, chains, call, stack);
        let is_elsewhere = |looks: &StartLooks| looks.watch.main_place().1 != ip;
        match &mut program.start {
            StartWatch::Seen(looks) if known_ns.is_some() || !is_elsewhere(looks) => {
                let asked = looks.watch.take(looks.watch.since_ns, true, kind_of);
                let turns = looks.watch.until(known_ns.unwrap_or(now_ns));
                looks.seen.turns.extend(turns);
                // What a look was may be known later than what others were.
                looks.seen.turns.sort_unstable();
                let has_turned = !looks.seen.turns.is_empty();
                let is_loop = program.is_loop_certain || looks.seen.turns_often();
                let place = place_of_loop(program).filter(|_| is_loop);
                match (known_ns, place) {
                    (Some(_), _) => {
                        self.tell_start(process, now_ns);
                        let program = self.marked.get_mut(&process);
                        program.into_iter().for_each(|program| program.start = StartWatch::Over);
                    }
                    (None, Some(place)) if has_turned && has_processor(process) => {
                        let step = self.tell_start(process, now_ns);
                        self.mark_in_step(process, place, step);
                    }
                    _ => self.ask_looks(process, asked),
                }
            }
            start if known_ns.is_some() => *start = StartWatch::Over,
            start => {
                // A processor has few breakpoints: one is given back before another one is asked for.
                *start = StartWatch::Unseen;
                let main = BlockedSyscall { number, arguments: [0; 6], sp: 0, ip };
                // Others may use all of them: it is tried again.
                if let Ok(watch) = TurnWatch::of_start(process, main, now_ns, &self.samplers) {
                    let seen = StartCounters::default();
                    *start = StartWatch::Seen(Box::new(StartLooks { watch, seen }));
                }
            }
        }
    }

    /// Stores the steps between looks of the main loop that were made before it was known as one. Returns the one that goes on.
    fn tell_start(&mut self, process: u32, now_ns: u64) -> Option<StartStep> {
        let program = self.marked.get_mut(&process)?;
        let StartWatch::Seen(looks) = std::mem::take(&mut program.start) else { return None };
        let waits = &program.waits;
        let is_rest = |wait: EventWait| {
            known_kind(waits, wait) != Some(PlaceKind::Nested) && !looks.watch.is_for_answer(wait)
        };
        let away = program.away.take();
        let turns = &looks.seen.turns;
        let steps: Vec<(u64, AbsenceAccount)> = turns
            .iter()
            .zip(turns.iter().skip(1))
            .filter_map(|(from_ns, to_ns)| {
                let (watch, is_long) = (&looks.watch, to_ns.saturating_sub(*from_ns) >= HANG_NS);
                let is_one = is_long
                    && !watch.has_gap(*from_ns, *to_ns)
                    && !watch.may_be_several(*from_ns, *to_ns);
                if !is_one {
                    return None;
                }
                let account = looks.seen.account(*from_ns, *to_ns, is_rest)?;
                (account.at_ns.saturating_sub(*from_ns) >= HANG_NS).then_some((*from_ns, account))
            })
            .collect();
        let last = turns.last().copied();
        let last = last.filter(|from_ns| !looks.watch.has_gap(*from_ns, now_ns));
        let begun = last.and_then(|from_ns| {
            let account = looks.seen.account(from_ns, now_ns, is_rest)?;
            // If it has rested since it is another step.
            (account.at_ns == now_ns).then_some((from_ns, account))
        });
        for (from_ns, account) in steps {
            self.begin_absence(process, from_ns);
            if let Some(absence) = self.absence_mut(process) {
                (absence.is_over, absence.is_one_step) = (true, true);
                absence.unseen.add(UnseenParts::STACK);
            }
            self.finish(process, &account, &[], account.at_ns, false);
            if let Some(program) = self.marked.get_mut(&process) {
                program.counts.turned.add(account.at_ns.saturating_sub(from_ns));
                program.away = None;
            }
        }
        if let Some(program) = self.marked.get_mut(&process) {
            program.away = away;
        }
        Some(StartStep { watch: looks.watch, begun })
    }

    /// Marks the first thread of a process anew as one that is in a step of its main loop, or at rest if it is: the programs in the kernel
    /// learn of that only by a wait. What has seen its looks for events goes on.
    fn mark_in_step(&mut self, process: u32, place: WaitPlace, step: Option<StartStep>) {
        let mut marked = MarkedAs::Away(place);
        for attempt in 0..ATTEMPTS {
            if !self.mark_anew(process, marked) {
                return;
            }
            // One that has begun to wait since is seen.
            let rests = self.event_wait(process).map(|call| EventWait::of(&call));
            let rests = rests.filter(|wait| self.is_loop(process, *wait));
            let is_seen = self.thread_state(process).ok().flatten().is_some_and(|of| of.is_waiting);
            marked = match rests {
                Some(wait) if !is_seen && attempt + 1 < ATTEMPTS => MarkedAs::Waiting(wait),
                // It has left the wait before it was marked.
                None if matches!(marked, MarkedAs::Waiting(_)) && attempt + 1 < ATTEMPTS => {
                    MarkedAs::Away(place)
                }
                _ => break,
            };
        }
        let state = self.thread_state(process).ok().flatten();
        let is_off_unseen = !has_processor(process)
            && state
                .as_ref()
                .is_some_and(|state| !state.is_waiting && state.off_since_ns.is_none());
        let Some(program) = self.marked.get_mut(&process) else { return };
        if is_off_unseen {
            // It has lost the processor just before it was marked: its start is watched anew.
            program.start = StartWatch::Unseen;
            self.mark_anew(process, MarkedAs::Unknown);
            return;
        }
        program.start = StartWatch::Over;
        if let Some(started_ns) = state.and_then(|state| state.away_since_ns) {
            self.begin_absence(process, started_ns);
            if let Some(absence) = self.absence_mut(process) {
                let (watch, begun) = step.map(|step| (step.watch, step.begun)).unzip();
                absence.turns = watch.and_then(|watch| watch.of_loop(place));
                absence.before = begun.flatten();
                match absence.before {
                    Some((from_ns, _)) => absence.turned_ns = Some(from_ns),
                    None => absence.unseen.add(UnseenParts::START),
                }
            }
        }
    }

    /// Returns whether a wait is known to be that of a process's main loop, and not by its depth on the stack alone.
    fn rests_certainly_in(&self, process: u32, wait: EventWait) -> bool {
        let of_loop = WaitState::Classified(EventWaitKind::Loop);
        self.marked.get(&process).is_some_and(|program| {
            program.is_loop_certain && program.waits.get(&wait) == Some(&of_loop)
        })
    }

    fn is_loop(&self, process: u32, wait: EventWait) -> bool {
        let program = self.marked.get(&process);
        let kind = program.and_then(|program| known_kind(&program.waits, wait));
        matches!(kind, Some(PlaceKind::Loop | PlaceKind::LoopByDepth))
    }

    /// Marks the first thread of a process anew, and tells the programs in the kernel what its waits are. If that fails, all begins anew
    /// with the process, and this returns false.
    pub(super) fn mark_anew(&mut self, process: u32, marked: MarkedAs) -> bool {
        let _ = self.marker.unmark(process);
        if self.marker.mark(process, marked).is_err() {
            self.follow_again(process);
            return false;
        }
        let waits = self.marked.get(&process).into_iter().flat_map(|program| &program.waits);
        for (wait, state) in waits {
            if let WaitState::Classified(kind) = state {
                // If it fails, it asks again.
                let _ = self.marker.classify(process, *wait, *kind);
            }
        }
        true
    }
}
