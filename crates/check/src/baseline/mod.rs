//! The allowed waits of a program's main thread, in a file that is kept with its sources: what is new, and what is gone.
//!
//! A [`Baseline`] is made by [`update()`] of what N runs showed and read from its file again; [`judge()`] says what a further
//! run did that it does not allow.

mod file;
mod judge;
mod lines;
mod phases;
mod places;
mod update;
mod waits;

pub use self::file::{
    AllowedWait, Baseline, BaselineError, BaselineHeader, LARGEST_BASELINE, PhaseBudget, SCHEMA,
};
pub(crate) use self::judge::unseen_calls;
pub use self::judge::{BaselineJudgement, CheckFinding, FindingKind, confirm, judge};
pub use self::phases::{PhaseSource, ProgramPhases};
pub use self::places::UserPlaces;
pub use self::update::{BaselineChange, BaselineUpdate, UpdateError, update};
pub use self::waits::{FoundWait, SourcePlace, WaitKey};

#[cfg(test)]
mod tests;

/// How waits are told from noise; what a baseline was made with is in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineRules {
    /// Waits of one kind count from this sum on, in nanoseconds; syncs always count.
    pub floor_ns: u64,
    /// An event loop that waits so long for something to do is idle, in nanoseconds.
    pub quiet_ns: u64,
    /// A time may be so many times the longest that was seen.
    pub factor: u64,
    /// And so much longer, in nanoseconds.
    pub plus_ns: u64,
}

impl Default for BaselineRules {
    fn default() -> BaselineRules {
        let ms = 1_000_000;
        BaselineRules { floor_ns: 4 * ms, quiet_ns: 100 * ms, factor: 2, plus_ns: 50 * ms }
    }
}

impl BaselineRules {
    /// Returns the longest time that is allowed where `seen_ns` was the longest that was seen.
    #[must_use]
    pub fn allowed_ns(&self, seen_ns: u64) -> u64 {
        seen_ns.saturating_mul(self.factor).saturating_add(self.plus_ns)
    }
}
