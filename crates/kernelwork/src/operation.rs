//! One operation of `io_uring`, and what operations worked on.

use super::opcodes::{OperationKind, kind_of, moves_data, name_of};

/// A file that operations worked on, by the numbers that the kernel knows it by; a file that was opened twice is one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WorkFile {
    /// Its inode number.
    pub inode: u64,
    /// Its device, in the kernel's own form: 12 bits and 20 bits.
    pub device: u32,
}

/// An operation, from its submission to its completion.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RingOperation {
    /// The process.
    pub process: u32,
    /// The thread that submitted it; with `IORING_SETUP_SQPOLL` that of the kernel.
    pub thread: u32,
    /// Its number, see [`name_of`](super::name_of).
    pub opcode: u8,
    /// The descriptor, or the index of the registered file; of a path the directory that it is relative to.
    pub descriptor: i32,
    /// Whether `descriptor` is the index of a registered file.
    pub is_registered: bool,
    /// The kernel's address of the ring.
    pub ring: u64,
    /// When it was submitted, of the monotonic clock in nanoseconds.
    pub start_ns: u64,
    /// The time from its submission to its completion, or to when that was looked at.
    pub wall_ns: u64,
    /// Its result: what the call of the same name returns, or the negative error; none while it runs.
    pub result: Option<i32>,
    /// The file, if it had one.
    pub file: Option<WorkFile>,
    /// The path that it was given, if it was given one.
    pub path: Option<Vec<u8>>,
    /// Whether it was given to a worker thread because it would have blocked.
    pub by_worker: bool,
    /// Whether it waited until its file was ready: for data of a socket, a pipe or a terminal.
    pub awaited_readiness: bool,
}

impl RingOperation {
    /// Returns when it was completed; none while it runs.
    #[must_use]
    pub fn end_ns(&self) -> Option<u64> {
        self.result.map(|_| self.start_ns.saturating_add(self.wall_ns))
    }

    /// Returns how many bytes it moved, of those that move data.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.result
            .filter(|_| moves_data(self.opcode))
            .and_then(|result| u64::try_from(result).ok())
    }

    /// Returns whether it waits for something from outside, as event loops do, and not for a disk.
    #[must_use]
    pub fn waits_for_events(&self) -> bool {
        self.awaited_readiness
            || matches!(kind_of(self.opcode), OperationKind::Event | OperationKind::Network)
    }

    /// Returns whether there is a system call that does the same and waits for it: of those that wait for events, all that are not made for event loops.
    #[must_use]
    pub fn is_like_a_call(&self) -> bool {
        match kind_of(self.opcode) {
            OperationKind::Event => matches!(
                name_of(self.opcode),
                Some("TIMEOUT" | "WAITID" | "FUTEX_WAIT" | "FUTEX_WAITV")
            ),
            _ => true,
        }
    }

    /// Returns whether it is about the data of whatever its descriptor is.
    #[must_use]
    pub fn is_of_data(&self) -> bool {
        kind_of(self.opcode) == OperationKind::Data
    }
}

/// Sums over all operations of one kind on one file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OperationTotal {
    /// The process.
    pub process: u32,
    /// Their number.
    pub opcode: u8,
    /// The file; none for operations without one.
    pub file: Option<WorkFile>,
    /// How many.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// The time from submission to completion, which may overlap.
    pub wall_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// The sum of the results that were no errors: bytes, of those that move data.
    pub results: u64,
}
