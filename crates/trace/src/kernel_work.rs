//! What the kernel did for the program outside of its calls: operations of `io_uring`, and work for memory.

use std::collections::{BTreeMap, HashMap};

use kernelwork::{MemoryTimeline, MemoryWait, MemoryWork};

use super::call::{StackId, TargetId};

/// An operation of `io_uring`, from its submission to its completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordedOperation {
    /// The process.
    pub process: u32,
    /// The thread that submitted it.
    pub thread: u32,
    /// Its number, see [`kernelwork::name_of`].
    pub opcode: u8,
    /// Its descriptor, or the index of the registered file.
    pub descriptor: i32,
    /// Whether `descriptor` is the index of a registered file.
    pub is_registered: bool,
    /// When it was submitted, in nanoseconds since the recording began.
    pub start_ns: u64,
    /// The time to its completion, or to the end of the recording.
    pub wall_ns: u64,
    /// Its result: what the call of the same name returns, or the negative error; none while it runs.
    pub result: Option<i32>,
    /// How many bytes it moved, if it moves data.
    pub bytes: Option<u64>,
    /// The file.
    pub target: Option<TargetId>,
    /// Whether a worker thread of the kernel did it.
    pub by_worker: bool,
    /// Whether it waited until its file was ready.
    pub awaited_readiness: bool,
}

/// Sums over all operations of one kind on one file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordedOperations {
    /// Their number.
    pub opcode: u8,
    /// The file.
    pub target: Option<TargetId>,
    /// How many.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// The time from submission to completion, in nanoseconds; operations overlap.
    pub wall_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// How many bytes they moved, if they move data.
    pub bytes: Option<u64>,
}

/// How a wait that an operation ended counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RingWaitKind {
    /// The thread waited for the operation alone.
    ForOperation,
    /// An event loop waited for whatever comes first.
    Loop,
    /// The wait was for other things, too; the call and its callers say how it counts.
    ForSeveral,
}

/// A wait that an operation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExplainedWait {
    /// An index into [`KernelWork::operations`].
    pub operation: u32,
    /// How long the operation was in flight during the wait, in nanoseconds.
    pub common_ns: u64,
    /// How the wait counts.
    pub kind: RingWaitKind,
}

/// Work of one kind for the memory of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryShare {
    /// How often.
    pub count: u64,
    /// How long, without the time in which the thread had no processor, in nanoseconds.
    pub wall_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that were taken back.
    pub pages: u64,
    /// The swap that was read from: a device or a file; several, if it is not known which.
    pub swap: Option<String>,
    /// The callers, with about the time of each: of the short waits only some are known, and stand for the others.
    pub stacks: HashMap<StackId, u64>,
}

/// What a main thread lost to a shortage of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadMemory {
    /// When; times since the recording began.
    pub timeline: MemoryTimeline,
    /// By the kind of work.
    pub shares: BTreeMap<MemoryWork, MemoryShare>,
}

impl ThreadMemory {
    /// Adds a wait with its callers, and for how many waits they stand; returns the share that it was added to.
    pub(crate) fn add(
        &mut self,
        wait: &MemoryWait,
        pages: u64,
        stack: Option<(StackId, u64)>,
    ) -> &mut MemoryShare {
        self.timeline.add(wait);
        let share = self.shares.entry(wait.work).or_default();
        let lost_ns = wait.wall_ns.saturating_sub(wait.ready_ns);
        share.count += 1;
        share.wall_ns = share.wall_ns.saturating_add(lost_ns);
        share.longest_ns = share.longest_ns.max(lost_ns);
        share.pages = share.pages.saturating_add(pages);
        if let Some((stack, stands_for)) = stack {
            let known = share.stacks.entry(stack).or_default();
            *known = known.saturating_add(lost_ns.saturating_mul(stands_for));
        }
        share
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelWork {
    /// The slow operations, in the order in which they ended.
    pub operations: Vec<RecordedOperation>,
    /// Slow operations beyond the limit: they are in the sums only.
    pub dropped: u64,
    /// Sums over all operations.
    pub totals: Vec<RecordedOperations>,
    /// Waits of threads that operations ended, by thread and when the call began.
    pub waits: BTreeMap<(u32, u64), ExplainedWait>,
    /// What main threads lost to a shortage of memory, by thread.
    pub memory: BTreeMap<u32, ThreadMemory>,
}
