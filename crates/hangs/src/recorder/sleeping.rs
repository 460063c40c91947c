//! Finds the loop of a program that waits for no events: it sleeps and looks for them in turns, as many games do.

use trace::backend::peek::blocked::BlockedSyscall;

use crate::kernel::{EventWait, is_sleep};
use crate::model::HANG_NS;

/// So many looks have to find the thread in a sleep at one place.
const LOOKS: u32 = 8;
/// So many of them each look takes back that finds it in another call.
const OTHER: u32 = 4;
/// They are so far apart at least, in nanoseconds.
const LOOK_NS: u64 = 400_000_000;

/// The sleeps in which the first thread of a program was found whose main loop is not known.
#[derive(Clone, Debug, Default)]
pub(super) struct SleepWatch {
    /// The one that may be its loop's.
    sleep: Option<EventWait>,
    /// How many looks found one like it.
    looks: u32,
    /// When the first one did, of the monotonic clock in nanoseconds.
    since_ns: u64,
    /// When the last look was that found one, of the monotonic clock in nanoseconds.
    at_ns: u64,
    /// How often the thread had been put on a processor by then.
    turns: u64,
}

impl SleepWatch {
    /// Takes a look into account that found the thread in a call, when it had been put on a processor `turns` times. Returns whether the
    /// call is the sleep of its loop: nearly whenever the thread waited it slept there, and never for as long as a hang.
    pub(super) fn note(&mut self, call: &BlockedSyscall, at_ns: u64, turns: u64) -> bool {
        let since_ns = at_ns.saturating_sub(self.at_ns);
        if self.sleep.is_some() && since_ns < LOOK_NS {
            return false;
        }
        let sleep = is_sleep(call).then(|| EventWait::of(call));
        let is_same = sleep.is_some() && sleep == self.sleep;
        let is_quick = turns.saturating_sub(self.turns) > since_ns / HANG_NS;
        self.looks = match is_same && is_quick {
            true => self.looks + 1,
            false => self.looks.saturating_sub(OTHER),
        };
        (self.at_ns, self.turns) = (at_ns, turns);
        if self.looks == 0 {
            (self.sleep, self.since_ns) = (sleep, at_ns);
        }
        is_same && self.looks >= LOOKS
    }

    /// Returns when the first look found the thread in a sleep that may be its loop's; none if there is none.
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.sleep.map(|_| self.since_ns)
    }

    /// Returns whether looks found the thread in short sleeps at one place.
    pub(super) fn may_be_loop(&self) -> bool {
        self.looks > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::syscall::call_number;

    fn call(name: &str, sp: u64) -> BlockedSyscall {
        let number = call_number(name).unwrap();
        BlockedSyscall { number, arguments: [0, 0, 16, 0, 0, 0], sp, ip: 2 }
    }

    /// Looks twice a second at a thread that is put on a processor `turns` times between two looks; returns at which it is known.
    fn known_after(turns: u64, call_at: impl Fn(u64) -> BlockedSyscall) -> Option<u64> {
        let mut watch = SleepWatch::default();
        (1..40).find(|at| watch.note(&call_at(*at), at * 500_000_000, at * turns))
    }

    #[test]
    fn short_sleeps_at_one_place_are_a_loop() {
        for name in ["nanosleep", "clock_nanosleep", "poll"] {
            assert_eq!(known_after(30, |_| call(name, 1)), Some(9), "{name}");
        }
        assert_eq!(known_after(4, |_| call("nanosleep", 1)), None, "they are long");
        assert_eq!(known_after(30, |at| call("nanosleep", at % 2)), None, "at two places");
        assert_eq!(known_after(30, |_| call("futex", 1)), None, "no sleep");
        let other = |every| move |at| call(if at % every == 0 { "read" } else { "nanosleep" }, 1);
        assert_eq!(known_after(30, other(5)), None, "it waits for something else, too");
        assert_eq!(known_after(30, other(8)), Some(14), "seldom");
    }
}
