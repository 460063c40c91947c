//! How deep on the stack waits are made of a process that has started its first thread since it was marked.
//!
//! Once there are threads the C library makes the calls in which one can be cancelled from another place, deeper on the stack: by the
//! depth of waits from before, the wait of a loop that nothing else is known of would be one inside of a step.

use crate::kernel::{EventWait, WaitPlace};

/// The depth of the waits that were asked about since then.
#[derive(Debug)]
pub(super) struct ThreadedDepth {
    /// Whether the process had other threads when it was marked.
    had_others: bool,
    /// The shallowest of them; none as long as the depth that the programs in the kernel have seen is the right one.
    shallowest: Option<u64>,
    /// The waits that are those of a loop by their depth.
    loops: Vec<EventWait>,
}

impl ThreadedDepth {
    /// Begins with a process that is marked, and has other threads already or not.
    pub(super) fn begin(had_others: bool) -> ThreadedDepth {
        ThreadedDepth { had_others, shallowest: None, loops: Vec::new() }
    }

    /// Returns how deep a wait at a place may be and still be that of a loop. `seen` is what the programs in the kernel have seen;
    /// `knows_loop` says that a place of a loop is known, whose callers tell it again.
    pub(super) fn shallowest(
        &mut self,
        (sp, _): WaitPlace,
        seen: u64,
        knows_loop: bool,
        has_others: impl FnOnce() -> bool,
    ) -> u64 {
        if self.shallowest.is_none() && (self.had_others || knows_loop || !has_others()) {
            return seen;
        }
        let before = self.shallowest.unwrap_or(0);
        self.shallowest = Some(before.max(sp));
        before
    }

    /// Notes that a wait is that of a loop by its depth; returns those that are none, since they are deeper.
    pub(super) fn add_loop(&mut self, wait: EventWait) -> Vec<EventWait> {
        if self.shallowest.is_none() {
            return Vec::new();
        }
        let (deeper, mut loops): (Vec<_>, Vec<_>) =
            self.loops.iter().partition(|of| of.place.0 < wait.place.0);
        loops.push(wait);
        self.loops = loops;
        deeper
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_makes_the_depth_of_earlier_waits_worth_nothing() {
        let (seen, deeper, nested) = (9000, (8960, 2), (8000, 2));
        let mut depth = ThreadedDepth::begin(false);
        assert_eq!(depth.shallowest(nested, seen, false, || false), seen, "there are no threads");
        assert_eq!(depth.shallowest(deeper, seen, true, || true), seen, "its callers tell it");
        // A wait inside of a step may come first: it counts until the loop's is seen.
        assert!(nested.0 >= depth.shallowest(nested, seen, false, || true));
        let of = |place| EventWait { place, subject: 1 };
        assert!(depth.add_loop(of(nested)).is_empty());
        assert!(deeper.0 >= depth.shallowest(deeper, seen, true, || true));
        assert_eq!(depth.add_loop(of(deeper)), [of(nested)]);
        assert!(nested.0 < depth.shallowest(nested, seen, true, || true));
        let mut with_threads = ThreadedDepth::begin(true);
        assert_eq!(with_threads.shallowest(deeper, seen, false, || true), seen);
    }
}
