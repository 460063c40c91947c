//! Background work that is not felt: in which class it runs, when it is held, and how its bytes get to the disk.
//!
//! A job is two processes of ours beside its own. The *supervisor* stands between the shell and the command: signals, stops and the exit status go through it.
//! The *keeper* watches the others' waiting and holds the job. Each lets the job run when the other one is gone, so that no end of ours, not even `kill -9`, leaves it frozen.

pub mod cgroup;
pub mod claim;
pub mod controller;
pub mod issued;
pub mod keeper;
pub mod pressure;
pub mod report;
pub mod tree;
pub mod trust;
pub mod units;
pub mod writeback;

/// The preload library that hands files over: `libunjank-writeback.so`.
pub const PRELOAD: &str = "writeback";

/// The environment variable that tells the preload the path of the mailbox.
pub const MAILBOX: &str = "UNJANK_WRITEBACK";

/// How far a job steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Only what nobody else wants: idle I/O class, SCHED_IDLE.
    Idle,
    /// After all others: the last level of the usual I/O class, SCHED_BATCH.
    Low,
}

impl Class {
    /// Returns its I/O class.
    #[must_use]
    pub fn io(self) -> sys::sched::IoClass {
        match self {
            Class::Idle => sys::sched::IoClass::Idle,
            Class::Low => sys::sched::IoClass::BestEffort(7),
        }
    }

    /// Returns its processor class.
    #[must_use]
    pub fn cpu(self) -> sys::sched::CpuClass {
        match self {
            Class::Idle => sys::sched::CpuClass::Idle,
            Class::Low => sys::sched::CpuClass::Batch,
        }
    }
}
