//! Records what the kernel does for a program outside of its system calls: operations of `io_uring`, memory reclaim, swap-ins.
//!
//! [`kernel::WorkTracer`] records with programs in the kernel; [`explain`] says which operation a wait was for, and
//! [`MemoryTimeline`] sums what a thread lost to a shortage of memory. README.md has an example.

mod explain;
pub mod kernel;
mod memory;
mod opcodes;
mod operation;

pub use explain::{Explanation, OperationSpan, RingWait, explain};
pub use memory::{MemorySums, MemoryTimeline, MemoryWait, MemoryWork};
pub use opcodes::{OperationKind, kind_of, moves_data, name_of};
pub use operation::{OperationTotal, RingOperation, WorkFile};

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
