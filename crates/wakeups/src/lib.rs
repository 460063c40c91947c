//! Follows a thread's wait across processes to what ended it, by the wake-ups that were recorded.
//!
//! Begin with [`WakeupHistory`], which keeps waits as [`ThreadWait`]s, and its [`walk`](WakeupHistory::walk), which returns a
//! [`WakeupChain`]. README.md has an example.

mod chain;
mod event;
mod history;
pub mod kernel;
mod origin;
mod program;
mod schedule;
mod walk;

pub use chain::{ChainEnd, ChainHop, MOST_HOPS, WakeupChain};
pub use event::{
    InterruptKind, NAME_BYTES, ThreadIdentity, ThreadWait, WakeupContext, WakeupSource,
};
pub use history::WakeupHistory;
pub use program::{KernelFunctions, KnownPrograms, ProgramFacts, SystemdUnit, systemd_unit};
pub use schedule::ChainWakeup;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
