//! One system call, finished or still running when the recording ended.

/// An index into [`Recording::stacks`](super::recording::Recording::stacks).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StackId(pub u32);

/// An index into [`Recording::targets`](super::recording::Recording::targets).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TargetId(pub u32);

/// How a call ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It returned this value.
    Returned(i64),
    /// It failed with this `errno`.
    Failed(i32),
    /// It had not ended when the recording did.
    Running,
    /// It has no result: the thread ended in it, or the backend cannot see results.
    Unknown,
}

/// One logical call: a call that the kernel restarted after a signal is one, from its first entry to its last exit.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The process, as the tracer numbers it.
    pub process: u32,
    /// The thread, as the tracer numbers it.
    pub thread: u32,
    /// The number of the call in the kernel's table of this architecture.
    pub number: u32,
    /// The raw arguments at entry.
    pub arguments: [u64; 6],
    /// How it ended.
    pub outcome: Outcome,
    /// When it was entered, in nanoseconds of `CLOCK_MONOTONIC` since the recording began.
    pub start_ns: u64,
    /// From entry to exit in nanoseconds, the tracer's own share subtracted.
    pub wall_ns: u64,
    /// The part of it that the thread ran on a CPU, where the backend knows.
    pub cpu_ns: Option<u64>,
    /// The part of it that the thread could run but waited for a CPU, where the backend knows.
    pub queued_ns: Option<u64>,
    /// Where the program called it from; slow calls only.
    pub stack: Option<StackId>,
    /// What it worked on or waited for.
    pub target: Option<TargetId>,
}

impl Call {
    /// Returns the time that the thread neither ran nor could run, where the backend knows.
    #[must_use]
    pub fn blocked_ns(&self) -> Option<u64> {
        let known = self.cpu_ns?.saturating_add(self.queued_ns?);
        Some(self.wall_ns.saturating_sub(known))
    }

    /// Says whether it ended with an error.
    #[must_use]
    pub fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}
