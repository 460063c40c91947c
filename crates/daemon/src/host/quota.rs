//! The quotas of applications, so that one application cannot exhaust the service.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of the service itself: the bus, the log, the policy, threads.
const OWN: u64 = 128;
/// Descriptors of a running command: its process, its keeper, and the keeper's socket; one to spare.
const EACH: u64 = 4;
/// The most commands of all applications, however many descriptors there are.
const MOST_RUNNING: u64 = 16_384;
/// The least limit of commands of all applications, however few descriptors there are.
const LEAST_RUNNING: u64 = 16;
/// The most waiting calls of all applications.
const MOST_CALLS: usize = 65_536;
/// The most bytes of waiting calls of all applications.
const MOST_BYTES: usize = 256 << 20;

/// The limits that follow from the limit of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The original limit of descriptors, which commands receive.
    pub(super) open_files: Option<Rlimit>,
    /// The most commands that run or are being started.
    running: usize,
    /// The most descriptors of waiting calls.
    waiting_descriptors: usize,
}

impl Bounds {
    /// Raises the limit of descriptors to its maximum: a session has 1,024 for programs that use `select(2)`.
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
            running: number((free / 2 / EACH).clamp(LEAST_RUNNING, MOST_RUNNING)),
            waiting_descriptors: number((free / 2).max(OWN / 2)),
        }
    }
}

/// A resource with a fixed amount for all applications. Each may use as much as it leaves free: a single one gets
/// half, and another one half of the rest.
#[derive(Debug)]
struct Pool {
    total: usize,
    used: usize,
    shares: HashMap<Arc<str>, usize>,
}

impl Pool {
    fn new(total: usize) -> Pool {
        Pool { total, used: 0, shares: HashMap::new() }
    }

    fn may_take(&self, application: &Arc<str>, amount: usize) -> bool {
        let own = self.shares.get(application).copied().unwrap_or(0);
        let free = self.total.saturating_sub(self.used);
        own.saturating_add(amount) <= free
    }

    /// Adds an amount, whether the application may have it or not.
    fn take(&mut self, application: &Arc<str>, amount: usize) {
        if amount > 0 {
            self.used += amount;
            *self.shares.entry(Arc::clone(application)).or_default() += amount;
        }
    }

    fn give_back(&mut self, application: &Arc<str>, amount: usize) {
        if let Some(own) = self.shares.get_mut(application) {
            let amount = amount.min(*own);
            *own -= amount;
            self.used -= amount;
            if *own == 0 {
                self.shares.remove(application);
            }
        }
    }
}

/// The resources of a waiting call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) calls: usize,
    pub(super) descriptors: usize,
    pub(super) bytes: usize,
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.calls += other.calls;
        self.descriptors += other.descriptors;
        self.bytes += other.bytes;
    }
}

/// The resources of all waiting calls.
#[derive(Debug)]
pub(super) struct WaitingCalls {
    calls: Pool,
    descriptors: Pool,
    bytes: Pool,
}

impl WaitingCalls {
    pub(super) fn new(bounds: Bounds) -> WaitingCalls {
        WaitingCalls {
            calls: Pool::new(MOST_CALLS),
            descriptors: Pool::new(bounds.waiting_descriptors),
            bytes: Pool::new(MOST_BYTES),
        }
    }

    /// Returns whether a call of an application may wait, too.
    pub(super) fn may_wait(&self, application: &Arc<str>, weight: Weight) -> bool {
        self.calls.may_take(application, weight.calls)
            && self.descriptors.may_take(application, weight.descriptors)
            && self.bytes.may_take(application, weight.bytes)
    }

    /// Records waiting calls of an application.
    pub(super) fn add(&mut self, application: &Arc<str>, weight: Weight) {
        self.calls.take(application, weight.calls);
        self.descriptors.take(application, weight.descriptors);
        self.bytes.take(application, weight.bytes);
    }

    /// Removes waiting calls of an application.
    pub(super) fn remove(&mut self, application: &Arc<str>, weight: Weight) {
        self.calls.give_back(application, weight.calls);
        self.descriptors.give_back(application, weight.descriptors);
        self.bytes.give_back(application, weight.bytes);
    }

    /// Returns whether any call waits.
    pub(super) fn are_any(&self) -> bool {
        self.calls.used > 0
    }
}

/// The place of a connection in the queue of its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    application: Arc<str>,
    number: u64,
}

/// The commands that run or are being started, and the connections that wait for the quota.
#[derive(Debug)]
pub(super) struct Quota {
    running: Pool,
    waiting: BTreeMap<Arc<str>, BTreeMap<u64, String>>,
    next: u64,
    /// The application whose connection continued last.
    last: Option<Arc<str>>,
}

impl Quota {
    pub(super) fn new(bounds: Bounds) -> Quota {
        Quota { running: Pool::new(bounds.running), waiting: BTreeMap::new(), next: 0, last: None }
    }

    /// Reserves a command of an application; returns whether there is room.
    pub(super) fn begin(&mut self, application: &Arc<str>) -> bool {
        let may = self.running.may_take(application, 1);
        if may {
            self.running.take(application, 1);
        }
        may
    }

    /// Releases a command that has ended or did not begin.
    pub(super) fn end(&mut self, application: &Arc<str>) {
        self.running.give_back(application, 1);
    }

    /// Appends a connection to the queue of its application.
    pub(super) fn wait(&mut self, application: &Arc<str>, sender: &str) -> Ticket {
        let number = self.next;
        self.next += 1;
        let waiting = self.waiting.entry(Arc::clone(application)).or_default();
        waiting.insert(number, sender.to_owned());
        Ticket { application: Arc::clone(application), number }
    }

    /// Removes a connection from its queue.
    pub(super) fn leave(&mut self, ticket: &Ticket) {
        if let Some(waiting) = self.waiting.get_mut(&ticket.application) {
            waiting.remove(&ticket.number);
            if waiting.is_empty() {
                self.waiting.remove(&ticket.application);
            }
        }
    }

    /// Returns the next connection whose command may start; the applications take turns.
    pub(super) fn resume(&mut self) -> Option<String> {
        let may = |(application, _): &(&Arc<str>, _)| self.running.may_take(application, 1);
        let after = |(application, _): &(&Arc<str>, _)| {
            self.last.as_ref().is_none_or(|last| *application > last)
        };
        let mut waiting = self.waiting.iter();
        let found = waiting.by_ref().filter(after).find(may);
        let (application, waiting) = found.or_else(|| self.waiting.iter().find(may))?;
        let (number, sender) = waiting.first_key_value()?;
        let ticket = Ticket { application: Arc::clone(application), number: *number };
        let sender = sender.clone();
        self.leave(&ticket);
        self.last = Some(ticket.application);
        Some(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_from_the_limit_of_descriptors() {
        assert_eq!(Bounds::within(64).running, 16);
        assert_eq!(Bounds::within(1024).running, 112);
        assert_eq!(Bounds::within(u64::MAX).running, 16_384);
        for limit in [1024, 4096, 20_000, 524_288] {
            let bounds = Bounds::within(limit);
            let used = bounds.running * 4 + bounds.waiting_descriptors + 128;
            assert!(used <= usize::try_from(limit).unwrap(), "{limit}: {used}");
        }
    }

    #[test]
    fn a_thousand_calls_of_one_application_may_run_or_wait() {
        let bounds = Bounds::within(20_000);
        let mut waiting = WaitingCalls::new(bounds);
        let mut quota = Quota::new(bounds);
        let one = "org.a.One".into();
        let call = Weight { calls: 1, descriptors: 3, bytes: 4096 };
        let mut count = 0;
        while waiting.may_wait(&one, call) {
            waiting.add(&one, call);
            count += 1;
        }
        assert!(count > 1500, "{count}");
        assert!(waiting.may_wait(&"org.a.Other".into(), Weight { descriptors: 253, ..call }));
        assert!((0..10_000).filter(|_| quota.begin(&one)).count() > 1000);
        (0..count).for_each(|_| waiting.remove(&one, call));
        assert!(!waiting.are_any());
    }

    #[test]
    fn one_application_leaves_something_for_the_others() {
        let mut quota = Quota::new(Bounds::within(0));
        let [one, other, third] = ["org.a.One", "org.a.Other", "org.a.Third"].map(Arc::from);
        assert_eq!((0..100).filter(|_| quota.begin(&one)).count(), 8);
        assert_eq!((0..100).filter(|_| quota.begin(&other)).count(), 4);
        assert!(quota.begin(&third));
        (0..8).for_each(|_| quota.end(&one));
        assert!(quota.begin(&other));
        (0..5).for_each(|_| quota.end(&other));
        quota.end(&third);
        assert_eq!((quota.running.used, quota.running.shares.len()), (0, 0));
    }

    #[test]
    fn those_who_wait_go_on_in_their_order_and_the_applications_in_turn() {
        let mut quota = Quota::new(Bounds::within(0));
        let [one, other] = ["org.a.One", "org.a.Other"].map(Arc::from);
        while quota.begin(&one) {}
        for number in 0..4 {
            quota.wait(&one, &format!("one {number}"));
        }
        let gone = quota.wait(&other, "gone");
        quota.wait(&other, "other");
        quota.leave(&gone);
        assert_eq!(quota.resume().as_deref(), Some("other"), "its own share is free");
        assert_eq!(quota.resume(), None);
        quota.wait(&other, "other again");
        (0..8).for_each(|_| quota.end(&one));
        let order: Vec<String> = std::iter::from_fn(|| quota.resume()).collect();
        assert_eq!(order, ["one 0", "other again", "one 1", "one 2", "one 3"]);
        assert!(quota.waiting.is_empty());
    }
}
