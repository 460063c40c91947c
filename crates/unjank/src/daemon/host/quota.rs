//! How much one application may have at a time, so that it leaves something for the others.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are for ourselves: the bus, the log, the policy, threads.
const OWN: u64 = 128;
/// Descriptors that a command needs while it runs: its process, its keeper, and the way to that, twice for the poll.
const EACH: u64 = 6;
/// Commands of one application at a time, where there are descriptors for more.
const MOST_RUNNING: u64 = 8192;
/// Commands of one application at a time, however few descriptors there are.
const LEAST_RUNNING: u64 = 8;

/// Bounds that follow from how many descriptors we may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The limit that we began with, which commands get again.
    pub(super) open_files: Option<Rlimit>,
    /// Commands of one application that run or are being started.
    running: usize,
    /// Descriptors that may wait with calls.
    pub(super) waiting_descriptors: usize,
}

impl Bounds {
    /// Raises our limit of descriptors as far as we may: a session has 1,024 for programs that keep them in bits.
    #[must_use]
    pub fn raise() -> Bounds {
        let before = getrlimit(Resource::Nofile);
        let most = Rlimit { current: before.maximum, maximum: before.maximum };
        let raised = setrlimit(Resource::Nofile, most);
        if let Err(error) = raised {
            tracing::warn!(%error, "cannot raise the limit of descriptors");
        }
        let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Bounds { open_files: raised.is_ok().then_some(before), ..Bounds::within(now) }
    }

    fn within(descriptors: u64) -> Bounds {
        let free = descriptors.saturating_sub(OWN);
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Bounds {
            open_files: None,
            // Half of the descriptors are for calls that wait and commands of everybody else.
            running: number((free / 2 / EACH).clamp(LEAST_RUNNING, MOST_RUNNING)),
            waiting_descriptors: number((free / 3).max(OWN / 2)),
        }
    }
}

/// The commands that run or are being started.
#[derive(Debug)]
pub(super) struct Quota {
    bounds: Bounds,
    running: HashMap<Arc<str>, usize>,
}

impl Quota {
    pub(super) fn new(bounds: Bounds) -> Quota {
        Quota { bounds, running: HashMap::new() }
    }

    /// Takes it that an application starts a command; says whether it may.
    pub(super) fn begin(&mut self, application: &Arc<str>) -> bool {
        let count = self.running.entry(Arc::clone(application)).or_default();
        let may = *count < self.bounds.running;
        *count += usize::from(may);
        may
    }

    /// Takes it that such a command has ended, or did not begin.
    pub(super) fn end(&mut self, application: &Arc<str>) {
        if let Some(count) = self.running.get_mut(application) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.running.remove(application);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_from_the_limit_of_descriptors() {
        assert_eq!(Bounds::within(64).running, 8);
        assert_eq!(Bounds::within(1024).running, 74);
        assert!(Bounds::within(20_000).running > 1000);
        assert_eq!(Bounds::within(u64::MAX).running, 8192);
        for limit in [1024, 4096, 20_000, 524_288] {
            let bounds = Bounds::within(limit);
            let used = bounds.running * 6 + bounds.waiting_descriptors + 128;
            assert!(used < usize::try_from(limit).unwrap(), "{limit}: {used}");
        }
    }

    #[test]
    fn one_application_leaves_something_for_the_others() {
        let mut quota = Quota::new(Bounds::within(0));
        let (one, other) = ("org.a.One".into(), "org.a.Other".into());
        assert_eq!((0..100).filter(|_| quota.begin(&one)).count(), 8);
        assert!(quota.begin(&other));
        quota.end(&one);
        assert!(quota.begin(&one) && !quota.begin(&one));
        quota.end(&other);
        assert_eq!(quota.running.len(), 1);
    }
}
