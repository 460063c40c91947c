//! Offsets of the kernel's structures that the programs read, from its BTF.

use sys::bpf::btf::{self, BtfKind, KernelTypesError, Types};

/// Offsets in bytes, and numbers of types.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadOffsets {
    pub(super) switch: u32,
    /// The number of the type of `sched_process_exec`.
    pub(super) exec: u32,
    /// None before Linux 6.3.
    pub(super) connect: Option<ConnectOffsets>,
    pub(super) thread: i16,
    pub(super) state: i16,
    /// Whether `sched_switch` tells the state in which the thread leaves, as since Linux 5.18.
    pub(super) switch_tells_state: bool,
    pub(super) memory: i16,
    pub(super) faults: i16,
    /// None where the kernel does not count it.
    pub(super) ready: Option<i16>,
    /// See `ready`.
    pub(super) arrived: Option<i16>,
}

/// What tells of a connection to a listening socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectOffsets {
    /// The number of the type of `sk_data_ready`.
    pub(super) ready: u32,
    /// `sock`: its family, and whether it listens.
    pub(super) family: i16,
    /// See `family`.
    pub(super) state: i16,
    /// `unix_sock`: where it listens.
    pub(super) address: i16,
    /// `unix_address`: the `struct sockaddr_un`.
    pub(super) name: i16,
}

impl ConnectOffsets {
    const READY: &str = "btf_trace_sk_data_ready";

    fn find(types: &Types<'_>) -> Option<ConnectOffsets> {
        let field = |structure, path| types.offset(structure, path);
        Some(ConnectOffsets {
            ready: types.number(BtfKind::Typedef, ConnectOffsets::READY)?,
            family: field("sock", "__sk_common.skc_family")?,
            state: field("sock", "__sk_common.skc_state")?,
            address: field("unix_sock", "addr")?,
            name: field("unix_address", "name")?,
        })
    }
}

impl ThreadOffsets {
    pub(super) fn of_this_kernel() -> Result<ThreadOffsets, KernelTypesError> {
        btf::of_this_kernel(ThreadOffsets::read)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<ThreadOffsets, KernelTypesError> {
        const SWITCH: &str = "btf_trace_sched_switch";
        const EXEC: &str = "btf_trace_sched_process_exec";
        let wanted = [
            (BtfKind::Structure, "task_struct"),
            (BtfKind::Typedef, SWITCH),
            (BtfKind::Typedef, EXEC),
            (BtfKind::Typedef, ConnectOffsets::READY),
            (BtfKind::Structure, "sock"),
            (BtfKind::Structure, "unix_sock"),
            (BtfKind::Structure, "unix_address"),
        ];
        let types = Types::read(bytes, &wanted).ok_or(KernelTypesError::NotUnderstood)?;
        let find = |path| types.offset("task_struct", path);
        let field = |path: &'static str| find(path).ok_or(KernelTypesError::Missing(path));
        let tracepoint = |name: &'static str| {
            types.number(BtfKind::Typedef, name).ok_or(KernelTypesError::Missing(name))
        };
        Ok(ThreadOffsets {
            switch: tracepoint(SWITCH)?,
            exec: tracepoint(EXEC)?,
            connect: ConnectOffsets::find(&types),
            thread: field("pid")?,
            state: field("__state")?,
            switch_tells_state: types
                .tracepoint_arguments(SWITCH)
                .is_some_and(|arguments| arguments.len() >= 4),
            memory: field("mm")?,
            faults: field("maj_flt")?,
            ready: find("sched_info.run_delay"),
            arrived: find("sched_info.last_arrival"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_types_are_refused() {
        for bytes in [&b""[..], b"x", &[0x9f, 0xeb, 1, 0]] {
            assert!(matches!(ThreadOffsets::read(bytes), Err(KernelTypesError::NotUnderstood)));
        }
    }
}
