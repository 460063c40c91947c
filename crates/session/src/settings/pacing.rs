//! Pacing: a program that writes without end has its own replies delayed, so that its client library coalesces.

use std::time::Duration;

/// When a sender counts as chatty and how long its reply then waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Pacing {
    /// Effective commits that a sender may make at once before it is looked at.
    pub burst: u32,
    /// Effective commits per second that a sender may make for ever.
    pub per_second: f64,
    /// The longest delay of a reply.
    pub longest: Duration,
}

impl Default for Pacing {
    fn default() -> Pacing {
        Pacing { burst: 200, per_second: 10.0, longest: Duration::from_millis(200) }
    }
}
