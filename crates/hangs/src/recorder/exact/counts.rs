//! What is counted of one program: its steps, and for how long it was watched.

use std::time::Duration;

use crate::kernel::MarkedThread;
use crate::model::StepHistogram;
use crate::recorder::period::{PeriodTotals, ProcessCount};

/// What was counted of a program, and what of that is in a period already. Moments are of the monotonic clock, in nanoseconds.
#[derive(Debug)]
pub(super) struct ProgramCounts {
    /// Steps that breakpoints told apart.
    pub(super) turned: StepHistogram,
    /// What the programs in the kernel counted in place of those.
    pub(super) not_one: StepHistogram,
    /// Steps and time until this moment are in periods.
    counted: StepHistogram,
    counted_to_ns: u64,
    followed_ns: u64,
    /// Since when a recorder could have watched it.
    began_ns: u64,
    /// For how long it had run by then when its main loop was known.
    late_ns: Option<u64>,
    /// When its main loop was known, if it was in the wait of it.
    rests_from_ns: Option<u64>,
}

impl ProgramCounts {
    /// Begins to count a program that is followed from now on, and could have been watched since `began_ns`.
    pub(super) fn begin(now_ns: u64, began_ns: u64) -> ProgramCounts {
        ProgramCounts {
            turned: StepHistogram::default(),
            not_one: StepHistogram::default(),
            counted: StepHistogram::default(),
            counted_to_ns: now_ns,
            followed_ns: now_ns,
            began_ns,
            late_ns: None,
            rests_from_ns: None,
        }
    }

    /// Notes that its main loop is known, and whether the program is in the wait of it.
    pub(super) fn know_loop(&mut self, now_ns: u64, rests: bool) {
        if !self.is_watched() {
            self.late_ns = Some(now_ns.saturating_sub(self.began_ns));
            self.rests_from_ns = rests.then_some(now_ns);
        }
    }

    /// Returns for how long it has been followed, in nanoseconds.
    pub(super) fn followed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.followed_ns)
    }

    /// Returns whether it is watched: before its main loop is known no hang is recorded.
    pub(super) fn is_watched(&self) -> bool {
        self.late_ns.is_some()
    }

    /// Adds what was counted since the last time to the period of a program of this name.
    pub(super) fn add_to(
        &mut self,
        period: &mut PeriodTotals,
        (process, name): (u32, &str),
        state: &MarkedThread,
        now_ns: u64,
    ) {
        let none = ProcessCount {
            process,
            steps: StepHistogram::default(),
            watched_ns: 0,
            at_ns: now_ns,
            followed: Duration::from_nanos(now_ns.saturating_sub(self.followed_ns)),
            late_ns: self.late_ns,
        };
        // The programs in the kernel know the loop from the end of its first wait on.
        let known_ns = state.known_since_ns.into_iter().chain(self.rests_from_ns).min();
        let Some(known_ns) = known_ns else {
            if !self.is_watched() {
                period.add(name, &none);
            }
            // A step that began before the loop was known is not recorded.
            return;
        };
        let watched_ns = now_ns.saturating_sub(known_ns.max(self.counted_to_ns));
        self.counted_to_ns = now_ns;
        let mut steps = state.steps;
        steps.merge(&std::mem::take(&mut self.turned));
        for counted in [self.counted, std::mem::take(&mut self.not_one)] {
            for (new, old) in steps.0.iter_mut().zip(counted.0) {
                *new = new.saturating_sub(old);
            }
        }
        self.counted = state.steps;
        period.add(name, &ProcessCount { steps, watched_ns, ..none });
    }
}
