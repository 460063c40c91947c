//! What the thread that observes programs and the one that describes their hangs send each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use trace::stack::KnownRegisters;

use super::callers::CallChain;
use super::cause::DescribedWait;
use super::places::PlaceEvidence;
use crate::kernel::EventWait;
use crate::model::{Hang, WatchedPeriod};

/// The most copies of stacks that wait to be described.
const COPIES: usize = 96;

/// Work for the thread.
#[derive(Debug)]
pub(crate) enum DescribeWork {
    /// The stack of a wait, to classify it, or the innermost part of it.
    Place {
        process: u32,
        call: u32,
        wait: EventWait,
        display: Option<bool>,
        copy: StackBytes,
        is_part: bool,
    },
    /// The stack of a call that a hang waits in.
    Stack { key: u64, process: u32, number: u32, copy: StackBytes },
    /// A sample of a thread that runs.
    Sample { key: u64, process: u32, registers: KnownRegisters, bytes: Vec<u8>, stands_for_ns: u64 },
    /// A hang has reached a length at which it is stored, or has ended.
    Hang(Box<HangDraft>),
    /// An absence was no hang.
    Dropped { key: u64 },
    /// A period has passed.
    Watched(WatchedPeriod),
    /// A process has ended, or runs another program.
    Forget { process: u32 },
    /// Everything is to be durable.
    Sync,
}

/// A copy of the stack of a blocked thread.
#[derive(Debug)]
pub(crate) struct StackBytes {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bytes: Vec<u8>,
    /// The functions of the kernel in which it is blocked, the innermost first, where they may be read.
    pub(crate) kernel: Vec<String>,
}

impl StackBytes {
    /// A copy without functions of the kernel.
    pub(crate) fn new(ip: u64, sp: u64, bytes: Vec<u8>) -> StackBytes {
        StackBytes { ip, sp, bytes, kernel: Vec::new() }
    }
}

/// What is read of a wait to classify it.
#[derive(Debug)]
pub(crate) struct CopiedWait {
    pub(crate) copy: StackBytes,
    /// The descriptors that it waits for, where they can be read.
    pub(crate) polled: Option<Vec<i32>>,
    /// Whether of its stack there is the innermost part alone.
    pub(crate) is_part: bool,
}

/// A hang without its stack.
#[derive(Debug)]
pub(crate) struct HangDraft {
    /// The number of the absence.
    pub(crate) key: u64,
    /// When it began, of the monotonic clock in nanoseconds.
    pub(crate) began_ns: u64,
    /// The fields that are known; number, cause and stack are not.
    pub(crate) hang: Hang,
    /// The waits whose stacks were described.
    pub(crate) descriptions: Vec<DescribedWait>,
}

/// The answer about a wait.
#[derive(Debug)]
pub(crate) struct PlaceAnswer {
    pub(crate) process: u32,
    pub(crate) wait: EventWait,
    /// None if the part of the stack says too little.
    pub(crate) evidence: Option<PlaceEvidence>,
    /// Its callers that show the same of other waits.
    pub(crate) chain: Option<CallChain>,
}

/// Counters that the two threads share.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    /// Copies of stacks that wait.
    pub(crate) copies: AtomicUsize,
    /// Hangs that could not be stored since that was last reported.
    pub(crate) lost: AtomicU32,
}

/// What connects the thread that observes with the one that describes.
#[derive(Debug)]
pub(crate) struct RecorderLink {
    pub(crate) work: Sender<DescribeWork>,
    pub(crate) answers: Receiver<PlaceAnswer>,
    pub(crate) counters: Arc<SharedCounters>,
}

impl RecorderLink {
    /// Sends work to the other thread, which lives as long as this one.
    pub(crate) fn send(&self, work: DescribeWork) {
        let _ = self.work.send(work);
    }

    /// Returns whether another copy of a stack may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.counters.copies.load(Ordering::Relaxed) < COPIES
    }

    /// Counts a copy of a stack that is about to be sent.
    pub(crate) fn count_copy(&self) {
        self.counters.copies.fetch_add(1, Ordering::Relaxed);
    }
}

/// Work that waits.
#[derive(Debug, Default)]
pub(super) struct WorkQueue(pub(super) VecDeque<DescribeWork>);

impl WorkQueue {
    /// Takes what is to be done next. What waits are is asked for the time that goes on: it comes before stacks of hangs, but not before
    /// it is known that a process runs another program.
    pub(super) fn take(&mut self) -> Option<DescribeWork> {
        let mut before = self.0.iter();
        let first = before.position(|item| {
            matches!(item, DescribeWork::Place { .. } | DescribeWork::Forget { .. })
        });
        let is_place = |at: &usize| matches!(self.0.get(*at), Some(DescribeWork::Place { .. }));
        self.0.remove(first.filter(is_place).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_are_is_found_out_before_hangs_are_described() {
        let place = |process: u32| DescribeWork::Place {
            process,
            call: 7,
            wait: EventWait { place: (1, 2), subject: 3 },
            display: None,
            copy: StackBytes::new(1, 2, Vec::new()),
            is_part: false,
        };
        let mut queue = WorkQueue::default();
        queue.0.extend([
            DescribeWork::Dropped { key: 1 },
            DescribeWork::Sync,
            place(1),
            place(2),
            DescribeWork::Dropped { key: 2 },
            DescribeWork::Forget { process: 3 },
            place(3),
        ]);
        let order: Vec<String> =
            std::iter::from_fn(|| queue.take()).map(|item| format!("{item:.20?}")).collect();
        let begins = ["Place", "Place", "Dropped", "Sync", "Dropped", "Forget", "Place"];
        assert_eq!(order.len(), begins.len());
        for (item, begin) in order.iter().zip(begins) {
            assert!(item.starts_with(begin), "{order:?}");
        }
    }
}
