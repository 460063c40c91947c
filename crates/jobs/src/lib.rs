//! Background jobs that the user does not feel: their scheduling class, when they are held, and how their writes reach the disk.
//!
//! Begin with [`SchedulingClass`], [`Controller`](controller::Controller), which decides when a job is held, and
//! [`keeper::keep`], which holds it. README.md has an example.
//!
//! A job is two processes of ours beside its own. The *supervisor* stands between the shell and the command: signals, stops and the exit status go through it.
//! The *keeper* watches the others' waiting and holds the job. Each lets the job run when the other one is gone, so that no end of ours, not even `kill -9`, leaves it frozen.

pub mod adoption;
pub mod attached;
pub mod cgroup;
pub mod claim;
pub mod controller;
pub mod held_command;
pub mod keeper;
pub mod linking;
pub mod outcome;
pub mod pressure;
pub mod report;
pub mod request_trace;
pub mod runtime;
mod stat;
pub mod supervisor;
pub mod tree;
pub mod units;
pub mod writeback;

/// The preload library that hands files over: `libunjank-writeback.so`.
pub const PRELOAD: &str = "writeback";

/// The environment variable that tells the preload the path of the mailbox.
pub const MAILBOX: &str = "UNJANK_WRITEBACK";

/// How far a job steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingClass {
    /// The idle I/O class and SCHED_IDLE.
    Idle,
    /// After all others: the last level of the usual I/O class, SCHED_BATCH.
    Low,
}

impl SchedulingClass {
    /// Returns its I/O class.
    #[must_use]
    pub fn io(self) -> sys::sched::IoClass {
        match self {
            SchedulingClass::Idle => sys::sched::IoClass::Idle,
            SchedulingClass::Low => sys::sched::IoClass::BestEffort(7),
        }
    }

    /// Returns its processor class.
    #[must_use]
    pub fn cpu(self) -> sys::sched::CpuClass {
        match self {
            SchedulingClass::Idle => sys::sched::CpuClass::Idle,
            SchedulingClass::Low => sys::sched::CpuClass::Batch,
        }
    }
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
