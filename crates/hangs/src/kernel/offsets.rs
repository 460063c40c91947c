//! Offsets of the kernel's structures that the programs read, from its BTF.

use sys::bpf::btf::{self, BtfKind, KernelTypesError, Types};

/// Offsets in bytes, and numbers of types.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadOffsets {
    pub(super) switch: u32,
    /// The number of the type of `sched_process_exec`.
    pub(super) exec: u32,
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
