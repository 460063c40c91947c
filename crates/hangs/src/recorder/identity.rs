//! What stays the same of a hang that is stored several times while it goes on.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sys::clock::since_boot;

use super::nanoseconds;

/// A moment that moves by more than this was moved by somebody who set the clock, in nanoseconds.
const SET_NS: u64 = 1_000_000_000;

/// The number of a hang that is stored, and when it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct HangIdentity {
    pub(super) number: u64,
    /// Of the monotonic clock, in nanoseconds.
    pub(super) began_ns: u64,
    /// The same moment since 1970, as it was stored last.
    pub(super) started_ns: u64,
    /// For how long this machine had been suspended by then, in nanoseconds.
    pub(super) suspended_ns: u64,
}

impl HangIdentity {
    /// Returns when a later state began, since 1970. By the clocks of its own moment that is `found_ns`; with a look of its main loop
    /// that was found meanwhile it may have begun later.
    pub(super) fn started_ns(&self, began_ns: u64, found_ns: u64, suspended_ns: u64) -> u64 {
        // Two clocks that are read one after the other never say the same twice.
        let kept_ns = self.started_ns.saturating_add(began_ns).saturating_sub(self.began_ns);
        // The monotonic clock stood still while the machine was suspended.
        let found_ns = found_ns.saturating_sub(suspended_ns.saturating_sub(self.suspended_ns));
        if kept_ns.abs_diff(found_ns) < SET_NS { kept_ns } else { found_ns }
    }
}

/// Returns for how long this machine was suspended since it was started, in nanoseconds.
pub(super) fn suspended_ns() -> u64 {
    // In this order: what passes between the two is not taken for a suspend.
    let on = since_boot();
    let awake = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    nanoseconds(on.saturating_sub(awake))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_moves_only_with_a_clock_that_is_set() {
        const S: u64 = 1_000_000_000;
        let first =
            HangIdentity { number: 1, began_ns: 50 * S, started_ns: 1000 * S, suspended_ns: 7 * S };
        let later =
            |began_ns, found_ns, suspended_ns| first.started_ns(began_ns, found_ns, suspended_ns);
        assert_eq!(later(50 * S, 1000 * S + 123, 7 * S), 1000 * S, "the clocks of another moment");
        assert_eq!(later(52 * S, 1002 * S - 5, 7 * S), 1002 * S, "it is found to begin later");
        assert_eq!(later(50 * S, 4600 * S, 3607 * S), 1000 * S, "an hour of suspend");
        assert_eq!(later(50 * S, 4600 * S, 7 * S), 4600 * S, "the clock was set");
        assert_eq!(later(50 * S, 100 * S, 7 * S), 100 * S, "back, too");
        assert_eq!(later(50 * S, 8200 * S, 3607 * S), 4600 * S, "both");
    }
}
