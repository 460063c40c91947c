//! The programs that could be followed: those that wait for a place, and those that the kernel does not let us look at.

use std::collections::BTreeSet;

use super::interactive::{self, InteractiveFinder, ProcessIdentity};
use super::period::UnwatchedCounts;
use super::{MOST_PROGRAMS, processor_ns};

/// Finds programs, and remembers those that are not followed.
pub(super) struct Candidates {
    finder: InteractiveFinder,
    /// Programs beyond the most that are followed, which take the place of one that ends.
    waiting: BTreeSet<ProcessIdentity>,
    refused: BTreeSet<u32>,
    /// Programs that could not be marked for a reason that may pass, like want of memory; they are tried again after each search.
    postponed: Vec<ProcessIdentity>,
}

impl Candidates {
    pub(super) fn new(finder: InteractiveFinder) -> Candidates {
        Candidates {
            finder,
            waiting: BTreeSet::new(),
            refused: BTreeSet::new(),
            postponed: Vec::new(),
        }
    }

    /// Searches for programs; returns those that have ended, or have no display any more, and were not waiting.
    pub(super) fn search(&mut self) -> Vec<u32> {
        let now_ns = sys::bpf::clock_ns();
        if now_ns >= self.finder.due_ns() {
            self.waiting.extend(self.postponed.drain(..));
        }
        let change = self.finder.search(now_ns, &processor_ns);
        let mut gone = Vec::new();
        for identity in change.gone {
            self.refused.remove(&identity.process);
            if !self.waiting.remove(&identity) {
                gone.push(identity.process);
            }
        }
        self.waiting.extend(change.found);
        gone
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

    /// Puts a program off that could not be marked now.
    pub(super) fn postpone(&mut self, process: u32) {
        self.postponed.extend(interactive::identity(process));
    }

    /// Returns how many programs are not watched, for a period in which so many hangs were lost.
    pub(super) fn unwatched(&mut self, lost: u32) -> UnwatchedCounts {
        // The kernel refuses looks at a process that is about to end, too.
        self.refused.retain(|process| interactive::identity(*process).is_some());
        let refused = self.refused.len() + self.postponed.len();
        UnwatchedCounts { over_limit: self.waiting.len(), refused, lost }
    }
}
