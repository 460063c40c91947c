//! One system call, finished or still running when the recording ended.

/// An index into [`Recording::stacks`](super::recording::Recording::stacks).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StackId(pub u32);

/// An index into [`Recording::targets`](super::recording::Recording::targets).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TargetId(pub u32);

/// How a call ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallEnd {
    /// The call returned this value.
    Returned(i64),
    /// The call failed with this `errno`.
    Failed(i32),
    /// The call had not ended when the recording did.
    Running,
    /// The call has no result: the thread ended in it, or the backend does not see results.
    Unknown,
}

/// One logical call: a call that the kernel restarted after a signal is one, from its first entry to its last exit.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// The process ID, in the tracer's PID namespace.
    pub process: u32,
    /// The thread ID, in the tracer's PID namespace.
    pub thread: u32,
    /// The number of the call in the kernel's table of this architecture.
    pub number: u32,
    /// The raw arguments at entry.
    pub arguments: [u64; 6],
    /// How the call ended.
    pub outcome: CallEnd,
    /// The time of the entry, in nanoseconds of `CLOCK_MONOTONIC` since the recording began.
    pub start_ns: u64,
    /// The time from entry to exit in nanoseconds, without the tracer's overhead.
    pub wall_ns: u64,
    /// The part of it in which the thread ran on a CPU, if the backend knows it.
    pub cpu_ns: Option<u64>,
    /// The part of it in which the thread was runnable but waited for a CPU, if the backend knows it.
    pub queued_ns: Option<u64>,
    /// The callers; of slow calls only.
    pub stack: Option<StackId>,
    /// The object that the call worked on or waited for.
    pub target: Option<TargetId>,
}

impl TracedCall {
    /// Returns the time in which the thread was blocked, if the backend knows it.
    #[must_use]
    pub fn blocked_ns(&self) -> Option<u64> {
        let known = self.cpu_ns?.saturating_add(self.queued_ns?);
        Some(self.wall_ns.saturating_sub(known))
    }

    /// Returns whether the call failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        matches!(self.outcome, CallEnd::Failed(_))
    }
}
