//! What is counted of one program: its steps, and for how long it was watched.

use std::time::Duration;

use crate::kernel::MarkedThread;
use crate::model::StepHistogram;
use crate::recorder::period::PeriodTotals;

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
    /// Since when its main loop is known.
    loop_ns: Option<u64>,
}

impl ProgramCounts {
    /// Begins to count a program that is followed from now on.
    pub(super) fn begin(now_ns: u64) -> ProgramCounts {
        ProgramCounts {
            turned: StepHistogram::default(),
            not_one: StepHistogram::default(),
            counted: StepHistogram::default(),
            counted_to_ns: now_ns,
            followed_ns: now_ns,
            loop_ns: None,
        }
    }

    /// Notes that its main loop is known.
    pub(super) fn know_loop(&mut self, now_ns: u64) {
        self.loop_ns.get_or_insert(now_ns);
    }

    /// Returns whether it is watched: before its main loop is known no hang is recorded.
    pub(super) fn is_watched(&self) -> bool {
        self.loop_ns.is_some()
    }

    /// Adds what was counted since the last time to the period of a program of this name.
    pub(super) fn add_to(
        &mut self,
        period: &mut PeriodTotals,
        name: &str,
        state: &MarkedThread,
        now_ns: u64,
    ) {
        let followed = Duration::from_nanos(now_ns.saturating_sub(self.followed_ns));
        let known_ns = match (state.known_since_ns, self.loop_ns) {
            (Some(known_ns), _) => known_ns,
            // The programs in the kernel know it from the end of this wait on.
            (None, Some(loop_ns)) if state.wait.is_some() => loop_ns,
            // A step that began before its main loop was known is not recorded.
            (None, Some(_)) => return,
            (None, None) => return period.add(name, &StepHistogram::default(), 0, followed),
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
        period.add(name, &steps, watched_ns, followed);
    }
}
