//! Finds the main loop of a program that has just been started: for seconds it may have so much to do that it never waits in it.
//!
//! Where waits are made is known from the first reply of the display server, or from another process with the same C library. A
//! breakpoint there sees all looks for events, also those that take no time, until the programs in the kernel know the main loop.

use trace::backend::blocked::{BlockedSyscall, SchedulerCounters};

use super::program::{MarkedProgram, StartWatch, WaitState, known_kind};
use super::{ExactRecorder, has_others};
use crate::kernel::{AbsenceAccount, EventWait, EventWaitKind, MarkedAs, WaitPlace};
use crate::model::{HANG_NS, UnseenParts};
use crate::recorder::places::{PlaceKind, is_event_wait_call};
use crate::recorder::turns::TurnWatch;

/// How long a program that is followed counts as one that has just been started, in nanoseconds.
const STARTING_NS: u64 = 20_000_000_000;
/// The interval of looks at such a program, in nanoseconds.
const LOOK_NS: u64 = 20_000_000;
/// Each so many looks it is asked where a program makes its calls that has not waited yet: that reads all its mappings.
const LOOKS_FOR_CALLS: u64 = 5;
/// So many looks after the first one within this time, in nanoseconds, are those of a loop.
const OFTEN: usize = 3;
/// See `OFTEN`.
const OFTEN_NS: u64 = 1_000_000_000;
/// So often a thread is marked anew that is in another phase than the mark says.
const ATTEMPTS: usize = 4;

/// What is seen of a program that has just been started, until its main loop is known.
#[derive(Debug)]
pub(super) struct StartLooks {
    watch: TurnWatch,
    seen: StartCounters,
}

/// What was seen from outside of a program that has just been started.
#[derive(Debug, Default)]
struct StartCounters {
    /// The scheduler's counters at each look at it, with the moment.
    moments: Vec<(u64, SchedulerCounters)>,
    /// The looks that found it in a wait for events.
    rests: Vec<(u64, EventWait)>,
    /// The looks of what may be its main loop.
    turns: Vec<u64>,
    /// Times in which its looks for events were not all seen.
    gaps: Vec<(u64, u64)>,
}

impl StartCounters {
    /// Returns whether looks came so close that they are those of a loop: a program without one may look for something now and then.
    fn turns_often(&self) -> bool {
        let later = self.turns.iter().skip(OFTEN);
        self.turns.iter().zip(later).any(|(from_ns, to_ns)| to_ns - from_ns < OFTEN_NS)
    }

    /// Returns what the step between two looks for events went to, which ends before the loop is seen to wait in the second one; `None` if
    /// it may be several steps, or the counters are not known. They are those of looks at it, so that parts are off by up to two intervals.
    fn account(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_rest: impl Fn(EventWait) -> bool,
    ) -> Option<AbsenceAccount> {
        let is_apart = |(gap_ns, until_ns): &(u64, u64)| *until_ns <= from_ns || *gap_ns >= to_ns;
        if !self.gaps.iter().all(is_apart) {
            return None;
        }
        let rests = self.rests.iter().filter(|(_, wait)| is_rest(*wait));
        let rest_ns = rests.map_while(|(at_ns, _)| (*at_ns < to_ns).then_some(*at_ns));
        let rest_ns = rest_ns.filter(|at_ns| *at_ns > from_ns).min();
        let at = |moment: u64| self.moments.partition_point(|(at_ns, _)| *at_ns < moment);
        let end_ns = match rest_ns {
            // It had not begun to rest at the look before that.
            Some(rest_ns) => self.moments.get(at(rest_ns).checked_sub(1)?)?.0.max(from_ns),
            None => to_ns,
        };
        let before = self.moments.get(at(from_ns).saturating_sub(1))?.1;
        let after = self.moments.get(at(end_ns)).or(self.moments.last())?.1;
        let length_ns = end_ns.saturating_sub(from_ns);
        let off_ns = length_ns.saturating_sub(after.cpu_ns.saturating_sub(before.cpu_ns));
        let ready_ns = after.queued_ns.saturating_sub(before.queued_ns).min(off_ns);
        Some(AbsenceAccount { at_ns: end_ns, off_ns, ready_ns, ..AbsenceAccount::default() })
    }
}

fn is_starting(program: &MarkedProgram, now_ns: u64) -> bool {
    let is_new = program.counts.followed_ns(now_ns) < STARTING_NS;
    is_new && !matches!(program.start, StartWatch::Over)
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
            if program.counts.followed_ns(now_ns) >= STARTING_NS {
                program.start = StartWatch::Over;
            }
        }
    }

    fn look_at_start(&mut self, process: u32, now_ns: u64) {
        let Ok(state) = self.thread_state(process) else { return };
        let known_ns = state.as_ref().and_then(|state| state.known_since_ns);
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
        let kind_of = |call: &BlockedSyscall| known_kind(waits, EventWait::of(call));
        let is_elsewhere = |looks: &StartLooks| looks.watch.main_place().1 != ip;
        match &mut program.start {
            StartWatch::Seen(looks) if known_ns.is_some() || !is_elsewhere(looks) => {
                let asked = looks.watch.take(looks.watch.since_ns, true, kind_of);
                if looks.watch.has_gap() {
                    let from_ns =
                        looks.seen.moments.iter().rev().nth(1).map_or(0, |(at_ns, _)| *at_ns);
                    looks.seen.gaps.push((from_ns, now_ns));
                }
                let turns = looks.watch.until(known_ns.unwrap_or(now_ns));
                looks.seen.turns.extend(turns);
                let has_turned = !looks.seen.turns.is_empty();
                let is_loop = program.is_loop_certain || looks.seen.turns_often();
                let place = place_of_loop(program).filter(|_| is_loop);
                match (known_ns, place) {
                    (Some(_), _) => {
                        self.tell_start(process);
                        let program = self.marked.get_mut(&process);
                        program.into_iter().for_each(|program| program.start = StartWatch::Over);
                    }
                    (None, Some(place)) if has_turned => {
                        self.tell_start(process);
                        self.mark_in_step(process, place);
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
                if let Ok(watch) = TurnWatch::of_start(process, main, now_ns) {
                    let seen = StartCounters::default();
                    *start = StartWatch::Seen(Box::new(StartLooks { watch, seen }));
                }
            }
        }
    }

    /// Stores the steps between looks of the main loop that were made before it was known as one.
    fn tell_start(&mut self, process: u32) {
        let Some(program) = self.marked.get_mut(&process) else { return };
        let StartWatch::Seen(looks) = std::mem::take(&mut program.start) else { return };
        let waits = &program.waits;
        let is_rest = |wait: EventWait| known_kind(waits, wait) != Some(PlaceKind::Nested);
        let away = program.away.take();
        let turns = &looks.seen.turns;
        let steps: Vec<(u64, AbsenceAccount)> = turns
            .iter()
            .zip(turns.iter().skip(1))
            .filter_map(|(from_ns, to_ns)| {
                let account = looks.seen.account(*from_ns, *to_ns, is_rest)?;
                (account.at_ns.saturating_sub(*from_ns) >= HANG_NS).then_some((*from_ns, account))
            })
            .collect();
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
    }

    /// Marks the first thread of a process anew as one that is in a step of its main loop, or at rest if it is: the programs in the kernel
    /// learn of that only by a wait.
    fn mark_in_step(&mut self, process: u32, place: WaitPlace) {
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
        let Some(program) = self.marked.get_mut(&process) else { return };
        program.start = StartWatch::Over;
        let state = self.thread_state(process).ok().flatten();
        if let Some(started_ns) = state.and_then(|state| state.away_since_ns) {
            self.begin_absence(process, started_ns);
            if let Some(absence) = self.absence_mut(process) {
                absence.unseen.add(UnseenParts::START);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn wait(sp: u64) -> EventWait {
        let arguments = [0x1000, 2, 0, 0, 0, 0];
        EventWait::of(&BlockedSyscall { number: 7, arguments, sp, ip: 0x2000 })
    }

    /// A program that was looked at each 20 ms for a second, and computed in the first half of each.
    fn looked_at() -> StartCounters {
        let counters = |at: u64| SchedulerCounters { cpu_ns: at / 2, queued_ns: at / 8, turns: 0 };
        let moments = (0..50).map(|look| (look * 20 * MS, counters(look * 20 * MS))).collect();
        StartCounters { moments, ..StartCounters::default() }
    }

    #[test]
    fn a_step_is_as_long_as_from_one_look_to_the_next_and_went_to_what_the_scheduler_counted() {
        let account = looked_at().account(100 * MS, 500 * MS, |_| true).unwrap();
        assert_eq!(account.at_ns, 500 * MS);
        assert!(account.off_ns.abs_diff(200 * MS) <= 20 * MS, "{account:?}");
        assert!(account.ready_ns.abs_diff(50 * MS) <= 5 * MS, "{account:?}");
    }

    #[test]
    fn a_step_ends_before_the_loop_is_seen_to_rest_and_not_where_it_waits_inside() {
        let mut seen = looked_at();
        seen.rests = vec![(60 * MS, wait(1)), (200 * MS, wait(2)), (300 * MS, wait(1))];
        let account = seen.account(100 * MS, 500 * MS, |of| of == wait(1)).unwrap();
        assert_eq!(account.at_ns, 280 * MS);
        let account = seen.account(100 * MS, 500 * MS, |_| false).unwrap();
        assert_eq!(account.at_ns, 500 * MS);
        // It has rested from its beginning on.
        let account = seen.account(290 * MS, 500 * MS, |_| true).unwrap();
        assert_eq!(account.at_ns, 290 * MS);
    }

    #[test]
    fn looks_now_and_then_are_not_those_of_a_loop() {
        let turning = |turns: &[u64]| {
            let turns = turns.iter().map(|at| at * MS).collect();
            StartCounters { turns, ..StartCounters::default() }.turns_often()
        };
        assert!(!turning(&[]));
        assert!(!turning(&[0, 1500, 3000, 4500, 6000]));
        assert!(!turning(&[0, 1, 1500, 1501, 3000]));
        assert!(turning(&[0, 300, 600, 900]));
        assert!(turning(&[0, 2000, 2016, 2032, 2048]));
    }

    #[test]
    fn what_may_be_several_steps_is_none() {
        let mut seen = looked_at();
        seen.gaps = vec![(200 * MS, 220 * MS)];
        assert_eq!(seen.account(100 * MS, 500 * MS, |_| true), None);
        assert_eq!(seen.account(210 * MS, 500 * MS, |_| true), None);
        assert!(seen.account(220 * MS, 500 * MS, |_| true).is_some());
        assert!(seen.account(100 * MS, 200 * MS, |_| true).is_some());
        assert_eq!(StartCounters::default().account(0, 500 * MS, |_| true), None, "nothing seen");
    }
}
