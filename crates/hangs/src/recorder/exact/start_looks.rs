//! What was seen of a program that has just been started, before its main loop was known: afterwards it tells how long its steps were.

use trace::backend::blocked::SchedulerCounters;

use crate::kernel::{AbsenceAccount, EventWait};
use crate::recorder::turns::TurnWatch;

/// So many looks after the first one within this time, in nanoseconds, are those of a loop.
const OFTEN: usize = 3;
/// See `OFTEN`.
const OFTEN_NS: u64 = 1_000_000_000;

/// What is seen of a program that has just been started, until its main loop is known.
#[derive(Debug)]
pub(super) struct StartLooks {
    pub(super) watch: TurnWatch,
    pub(super) seen: StartCounters,
}

/// The step of a program that goes on when its main loop becomes known.
#[derive(Debug)]
pub(super) struct StartStep {
    pub(super) watch: TurnWatch,
    /// When it began, and what it has gone to since; none if that is not known.
    pub(super) begun: Option<(u64, AbsenceAccount)>,
}

/// What was seen from outside of a program that has just been started.
#[derive(Debug, Default)]
pub(super) struct StartCounters {
    /// The scheduler's counters at each look at it, with the moment.
    pub(super) moments: Vec<(u64, SchedulerCounters)>,
    /// The looks that found it in a wait for events.
    pub(super) rests: Vec<(u64, EventWait)>,
    /// The looks of what may be its main loop.
    pub(super) turns: Vec<u64>,
}

impl StartCounters {
    /// Returns whether looks came so close that they are those of a loop: a program without one may look for something now and then.
    pub(super) fn turns_often(&self) -> bool {
        let later = self.turns.iter().skip(OFTEN);
        self.turns.iter().zip(later).any(|(from_ns, to_ns)| to_ns - from_ns < OFTEN_NS)
    }

    /// Returns what the step between two looks for events went to, which ends before the loop is seen to wait in the second one; `None` if
    /// the counters are not known. They are those of looks at it, so that parts are off by up to two intervals.
    pub(super) fn account(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_rest: impl Fn(EventWait) -> bool,
    ) -> Option<AbsenceAccount> {
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

#[cfg(test)]
mod tests {
    use trace::backend::blocked::BlockedSyscall;

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
    fn of_what_was_not_looked_at_there_is_no_account() {
        assert_eq!(StartCounters::default().account(0, 500 * MS, |_| true), None);
    }
}
