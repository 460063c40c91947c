//! The operations of `io_uring` by their numbers in `linux/io_uring.h`.

/// What an operation is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OperationKind {
    /// Data of a file, or of whatever else its descriptor is.
    Data,
    /// A file's name, or its way to the disk: nothing comes from outside.
    File,
    /// Data of the network.
    Network,
    /// It waits until something happens: a timer, an event, a connection.
    Event,
    /// It does nothing that takes time by itself.
    Other,
}

use OperationKind::{Data, Event, File, Network, Other};

/// Each operation by its number.
const OPERATIONS: [(&str, OperationKind); 63] = [
    ("NOP", Other),
    ("READV", Data),
    ("WRITEV", Data),
    ("FSYNC", File),
    ("READ_FIXED", Data),
    ("WRITE_FIXED", Data),
    ("POLL_ADD", Event),
    ("POLL_REMOVE", Other),
    ("SYNC_FILE_RANGE", File),
    ("SENDMSG", Network),
    ("RECVMSG", Network),
    ("TIMEOUT", Event),
    ("TIMEOUT_REMOVE", Other),
    ("ACCEPT", Event),
    ("ASYNC_CANCEL", Other),
    ("LINK_TIMEOUT", Event),
    ("CONNECT", Network),
    ("FALLOCATE", File),
    ("OPENAT", File),
    ("CLOSE", File),
    ("FILES_UPDATE", Other),
    ("STATX", File),
    ("READ", Data),
    ("WRITE", Data),
    ("FADVISE", File),
    ("MADVISE", Other),
    ("SEND", Network),
    ("RECV", Network),
    ("OPENAT2", File),
    ("EPOLL_CTL", Other),
    ("SPLICE", Data),
    ("PROVIDE_BUFFERS", Other),
    ("REMOVE_BUFFERS", Other),
    ("TEE", Data),
    ("SHUTDOWN", Network),
    ("RENAMEAT", File),
    ("UNLINKAT", File),
    ("MKDIRAT", File),
    ("SYMLINKAT", File),
    ("LINKAT", File),
    ("MSG_RING", Other),
    ("FSETXATTR", File),
    ("SETXATTR", File),
    ("FGETXATTR", File),
    ("GETXATTR", File),
    ("SOCKET", Other),
    ("URING_CMD", Data),
    ("SEND_ZC", Network),
    ("SENDMSG_ZC", Network),
    ("READ_MULTISHOT", Event),
    ("WAITID", Event),
    ("FUTEX_WAIT", Event),
    ("FUTEX_WAKE", Other),
    ("FUTEX_WAITV", Event),
    ("FIXED_FD_INSTALL", Other),
    ("FTRUNCATE", File),
    ("BIND", Network),
    ("LISTEN", Network),
    ("RECV_ZC", Network),
    ("EPOLL_WAIT", Event),
    ("READV_FIXED", Data),
    ("WRITEV_FIXED", Data),
    ("PIPE", Other),
];

fn operation(opcode: u8) -> Option<&'static (&'static str, OperationKind)> {
    OPERATIONS.get(usize::from(opcode))
}

/// Returns the name of an operation without the `IORING_OP_` before it; none for one that is newer than the table.
#[must_use]
pub fn name_of(opcode: u8) -> Option<&'static str> {
    operation(opcode).map(|(name, _)| *name)
}

/// Returns what an operation is about.
#[must_use]
pub fn kind_of(opcode: u8) -> OperationKind {
    operation(opcode).map_or(Other, |(_, kind)| *kind)
}

/// Returns whether the result of an operation is how many bytes it moved.
#[must_use]
pub fn moves_data(opcode: u8) -> bool {
    matches!(kind_of(opcode), Data | Network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_kernels_numbers() {
        let known = [
            (0, "NOP"),
            (3, "FSYNC"),
            (6, "POLL_ADD"),
            (11, "TIMEOUT"),
            (18, "OPENAT"),
            (22, "READ"),
            (28, "OPENAT2"),
            (36, "UNLINKAT"),
            (46, "URING_CMD"),
            (62, "PIPE"),
        ];
        for (number, name) in known {
            assert_eq!(name_of(number), Some(name));
        }
        assert_eq!((name_of(63), kind_of(255)), (None, Other));
    }
}
