//! Waits of main threads that were followed across processes, as rows.

use serde::{Deserialize, Serialize};

/// A wait of a main thread, followed to what ended it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallChain {
    /// The number of the thread that waited.
    pub thread: u32,
    /// When its call began, in nanoseconds since the beginning.
    pub at_ns: u64,
    /// How long the call took.
    pub wall_ns: u64,
    /// The threads; the first one is the one that waited.
    pub hops: Vec<StallHop>,
    /// What the last one's time went to: `disk`, `timer`, `network`, `device`, `processor`, `ready`, `several`, `too-long` or
    /// `not-known`.
    pub end: String,
    /// How much of its time that explains.
    pub end_ns: u64,
    /// Whether wake-ups were lost that may belong to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_losses: bool,
    /// The chain for people, a sentence a hop.
    pub sentences: Vec<String>,
}

/// A thread of a chain was woken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WakeupRow {
    /// Its number.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The thread's name.
    pub name: String,
    /// When it was woken, in nanoseconds since the beginning.
    pub at_ns: u64,
    /// How long it had waited, in nanoseconds; 0 where only the wake-up is known.
    pub waited_ns: u64,
    /// Whether signals could not end the wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uninterruptible: bool,
    /// The number of the thread that woke it; none if it was an interrupt, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// Whether an interrupt woke it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_interrupt: bool,
    /// Its time without a processor from then to its next wait that was recorded, in nanoseconds.
    pub ready_ns: u64,
    /// Its time on a processor from then to its next wait that was recorded, if that is known, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_ns: Option<u64>,
}

/// A thread of a chain, and what it did while the one before it waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallHop {
    /// Its number.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The thread's name.
    pub name: String,
    /// The path of its program; empty for a thread of the kernel.
    pub executable: String,
    /// Its command line, quoted for a shell.
    pub command: String,
    /// The unit of systemd that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Its control group.
    pub cgroup: String,
    /// The number of its user, where that is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Its names on the bus through which it was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bus_names: Vec<String>,
    /// When the one before it began to wait for it, in nanoseconds since the beginning.
    pub from_ns: u64,
    /// When it woke the one before it, for the last time.
    pub to_ns: u64,
    /// How long the one before it waited for it.
    pub asked_ns: u64,
    /// Of that: on a processor.
    pub processor_ns: u64,
    /// Of that: without a processor although it could run.
    pub ready_ns: u64,
    /// Of that: waiting for what comes next.
    pub waited_ns: u64,
    /// Of that: waiting for anything else.
    pub other_ns: u64,
    /// In how many waits.
    pub waits: u64,
    /// The system call of most of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The function of the kernel that it waited in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// When it was started, if that was during the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<u64>,
    /// Who only passed the wake-up on to the one before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
}
