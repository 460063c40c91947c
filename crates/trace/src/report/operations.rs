//! The operations of `io_uring` in a report: each slow one, and the sums.

use serde::{Deserialize, Serialize};

/// An operation of `io_uring`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRow {
    /// Its name, as `READ`; `IORING_OP_` is left out.
    pub name: String,
    /// The process.
    pub process: u32,
    /// The thread that submitted it.
    pub thread: u32,
    /// When it was submitted, in nanoseconds since the beginning.
    pub at_ns: u64,
    /// The time to its completion, in nanoseconds; of one without a result, to the end of the recording.
    pub wall_ns: u64,
    /// What it returned, if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<i32>,
    /// The error with which it failed, as `EIO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How many bytes it moved, if it moves data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What it worked on: an index into `targets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
    /// Its descriptor, or the index of the registered file.
    pub descriptor: i32,
    /// Whether its file was registered with the ring.
    #[serde(default, skip_serializing_if = "is_false")]
    pub registered: bool,
    /// Whether a worker thread of the kernel did it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub worker: bool,
    /// Whether it waited until its file was ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub readiness: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Operations of one kind on one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationSum {
    /// Their name.
    pub name: String,
    /// What they worked on: an index into `targets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
    /// How many.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// The time from submission to completion, in nanoseconds; operations overlap.
    pub wall_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// How many bytes they moved, if they move data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
