//! The programs that could be followed: those that wait for a place, and those that the kernel does not let us look at.

use std::collections::BTreeSet;

use super::interactive::InteractiveFinder;
use super::period::UnwatchedCounts;
use super::process::{self, ProcessIdentity};
use super::{MOST_PROGRAMS, processor_ns};

/// A process that connects to a display and has ended after this time is none that is used, in nanoseconds: it asks for something.
const CONNECTED_NS: u64 = 30_000_000;

/// Finds programs, and remembers those that are not followed.
pub(super) struct Candidates {
    finder: InteractiveFinder,
    /// Programs beyond the most that are followed, which take the place of one that ends.
    waiting: BTreeSet<ProcessIdentity>,
    refused: BTreeSet<u32>,
    /// Programs that could not be marked for a reason that may pass, like want of memory; they are tried again after each search.
    postponed: Vec<ProcessIdentity>,
    /// Processes that have just connected to a display, with the moments in order.
    connected: Vec<(u64, u32)>,
    /// The most programs that waited, and that were not followed for another reason, at a search since they were last told.
    most: (usize, usize),
}

impl Candidates {
    pub(super) fn new(finder: InteractiveFinder) -> Candidates {
        Candidates {
            finder,
            waiting: BTreeSet::new(),
            refused: BTreeSet::new(),
            postponed: Vec::new(),
            connected: Vec::new(),
            most: (0, 0),
        }
    }

    /// Searches for programs; returns those that have ended, or have no display any more, and were not waiting.
    pub(super) fn search(&mut self) -> Vec<u32> {
        self.search_at(sys::bpf::clock_ns())
    }

    fn search_at(&mut self, now_ns: u64) -> Vec<u32> {
        // One that ends before it is told was not watched, either. Those that are found now have not waited for a place yet.
        let (waiting, postponed) = (self.waiting.len(), self.postponed.len());
        self.take_connected(now_ns);
        if now_ns < self.finder.due_ns() {
            return Vec::new();
        }
        self.waiting.extend(self.postponed.drain(..));
        let change = self.finder.search(now_ns, &processor_ns);
        let mut gone = Vec::new();
        for identity in change.gone {
            self.refused.remove(&identity.process);
            if !self.waiting.remove(&identity) {
                gone.push(identity.process);
            }
        }
        self.forget_ended();
        self.most.0 = self.most.0.max(waiting);
        self.most.1 = self.most.1.max(self.refused.len() + postponed);
        self.waiting.extend(change.found);
        gone
    }

    /// Notes that a program was started now, which may connect to the display soon.
    pub(super) fn program_started(&mut self) {
        self.finder.program_started(sys::bpf::clock_ns());
    }

    /// Notes that a process has connected to a display now.
    pub(super) fn program_connected(&mut self, process: u32) {
        let is_noted = self.connected.iter().any(|(_, of)| *of == process);
        if !is_noted && self.connected.len() < MOST_PROGRAMS {
            self.connected.push((sys::bpf::clock_ns(), process));
        }
    }

    /// Takes those that have connected and live on.
    fn take_connected(&mut self, now_ns: u64) {
        let is_over = |(at_ns, _): &(u64, u32)| now_ns.saturating_sub(*at_ns) >= CONNECTED_NS;
        let count = self.connected.iter().take_while(|connected| is_over(connected)).count();
        for (_, process) in self.connected.drain(..count) {
            self.waiting.extend(self.finder.add_connected(process));
        }
    }

    /// Notes that a program that was found is followed from now on.
    pub(super) fn program_followed(&mut self) {
        self.finder.program_followed(sys::bpf::clock_ns());
    }

    /// Returns when the next search is due if that is before others, or a process is to be followed that has connected, in nanoseconds.
    pub(super) fn soon_due_ns(&self) -> Option<u64> {
        let connected = self.connected.first().map(|(at_ns, _)| at_ns + CONNECTED_NS);
        self.finder.soon_due_ns().into_iter().chain(connected).min()
    }

    /// Returns the next program to follow, if there is one and a place for it beside the `followed`.
    pub(super) fn next(&mut self, followed: usize) -> Option<u32> {
        if followed >= MOST_PROGRAMS {
            return None;
        }
        self.waiting.pop_first().map(|ProcessIdentity { process, .. }| process)
    }

    /// Notes that the kernel does not let us look at a process.
    pub(super) fn refuse(&mut self, process: u32) {
        self.refused.insert(process);
    }

    /// Forgets those that were refused and have ended: the kernel refuses looks at a process that is about to end, too, and each end
    /// is not noticed at the next search.
    fn forget_ended(&mut self) {
        self.refused.retain(|process| process::identity(*process).is_some());
    }

    /// Puts a program off that could not be marked now.
    pub(super) fn postpone(&mut self, process: u32) {
        self.postponed.extend(process::identity(process));
    }

    /// Returns how many programs are not watched, for a period in which so many hangs were lost.
    pub(super) fn unwatched(&mut self, lost: u32) -> UnwatchedCounts {
        self.forget_ended();
        let (waiting, refused) = std::mem::take(&mut self.most);
        UnwatchedCounts {
            over_limit: self.waiting.len().max(waiting),
            refused: (self.refused.len() + self.postponed.len()).max(refused),
            lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_not_watched_is_told_although_it_has_ended_since() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("never-watched");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let finder = InteractiveFinder::new(user, vec!["never-watched".to_owned()]);
        let mut candidates = Candidates::new(finder);
        let start = || std::process::Command::new(&program).arg("600").spawn().unwrap();
        let (mut waits, mut refused) = (start(), start());
        let second = |at: u64| at * 1_000_000_000;
        candidates.search_at(second(100));
        candidates.refuse(refused.id());
        // Those of the user that have a display are found, too, at each search, and are none of this test.
        let own = waits.id();
        let forget_others = |candidates: &mut Candidates| {
            candidates.waiting.retain(|waits_for| waits_for.process == own);
        };
        forget_others(&mut candidates);
        candidates.search_at(second(110));
        forget_others(&mut candidates);
        for child in [&mut waits, &mut refused] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        candidates.search_at(second(120));
        candidates.waiting.clear();
        let told = candidates.unwatched(0);
        assert_eq!((told.over_limit, told.refused), (1, 1));
        candidates.search_at(second(130));
        candidates.waiting.clear();
        let told = candidates.unwatched(0);
        assert_eq!((told.over_limit, told.refused), (0, 0), "that was told");
    }

    #[test]
    fn a_program_that_connects_just_before_a_search_has_not_waited_for_a_place() {
        let user = rustix::process::geteuid().as_raw();
        let mut candidates = Candidates::new(InteractiveFinder::new(user, Vec::new()));
        let second = |at: u64| at * 1_000_000_000;
        candidates.search_at(second(100));
        candidates.waiting.clear();
        candidates.unwatched(0);
        let own = std::process::id();
        candidates.connected.push((second(109), own));
        candidates.search_at(second(110));
        while candidates.next(0).is_some() {}
        assert_eq!(candidates.unwatched(0).over_limit, 0);
        candidates.waiting.extend(process::identity(own));
        candidates.search_at(second(120));
        candidates.waiting.clear();
        assert_eq!(candidates.unwatched(0).over_limit, 1, "that one waits");
    }

    #[test]
    fn a_program_that_was_refused_as_it_ended_was_watched() {
        let user = rustix::process::geteuid().as_raw();
        let mut candidates = Candidates::new(InteractiveFinder::new(user, Vec::new()));
        let second = |at: u64| at * 1_000_000_000;
        candidates.search_at(second(100));
        candidates.unwatched(0);
        let mut ends = std::process::Command::new("/bin/true").spawn().unwrap();
        candidates.refuse(ends.id());
        ends.wait().unwrap();
        // So soon nobody looks who has ended.
        candidates.search_at(second(101));
        assert_eq!(candidates.unwatched(0).refused, 0);
    }
}
