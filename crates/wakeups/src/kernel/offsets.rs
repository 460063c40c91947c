//! Offsets of the kernel's structures that the programs read, from its BTF.

use std::io;

use sys::bpf::btf::{self, BtfKind, Types};

/// Offsets in bytes, and numbers of types.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchedulerOffsets {
    pub(super) switch: u32,
    pub(super) waking: u32,
    pub(super) wakeup_new: u32,
    /// The beginning and the end of a timer, of a device's interrupt, and of the second half of one.
    pub(super) interrupts: [[u32; 2]; 3],
    pub(super) thread: i16,
    pub(super) process: i16,
    pub(super) name: i16,
    pub(super) began: i16,
    pub(super) state: i16,
    pub(super) flags: i16,
    pub(super) processor: i16,
    /// None where the kernel does not count it.
    pub(super) ready: Option<i16>,
}

/// Why the offsets are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerTypesError {
    /// The kernel was built without its types.
    #[error("cannot read {}", btf::PATH)]
    NoTypes(#[source] io::Error),
    /// They are not in the format that we know.
    #[error("cannot understand {}", btf::PATH)]
    NotUnderstood,
    /// The kernel lacks a type or a field.
    #[error("cannot find {0} in the kernel's types")]
    Missing(&'static str),
}

impl SchedulerOffsets {
    pub(super) fn of_this_kernel() -> Result<SchedulerOffsets, SchedulerTypesError> {
        let file = std::fs::File::open(btf::PATH).map_err(SchedulerTypesError::NoTypes)?;
        match sys::map::Map::of(&file) {
            Ok(map) => SchedulerOffsets::read(map.bytes()),
            Err(_) => {
                let bytes = std::fs::read(btf::PATH).map_err(SchedulerTypesError::NoTypes)?;
                SchedulerOffsets::read(&bytes)
            }
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<SchedulerOffsets, SchedulerTypesError> {
        let wanted = [
            (BtfKind::Structure, "task_struct"),
            (BtfKind::Typedef, "btf_trace_sched_switch"),
            (BtfKind::Typedef, "btf_trace_sched_waking"),
            (BtfKind::Typedef, "btf_trace_sched_wakeup_new"),
            (BtfKind::Typedef, "btf_trace_hrtimer_expire_entry"),
            (BtfKind::Typedef, "btf_trace_hrtimer_expire_exit"),
            (BtfKind::Typedef, "btf_trace_irq_handler_entry"),
            (BtfKind::Typedef, "btf_trace_irq_handler_exit"),
            (BtfKind::Typedef, "btf_trace_softirq_entry"),
            (BtfKind::Typedef, "btf_trace_softirq_exit"),
        ];
        let types = Types::read(bytes, &wanted).ok_or(SchedulerTypesError::NotUnderstood)?;
        let point = |name: &'static str| {
            types.number(BtfKind::Typedef, name).ok_or(SchedulerTypesError::Missing(name))
        };
        let find = |path| i16::try_from(types.field("task_struct", path)?).ok();
        let field = |path: &'static str| find(path).ok_or(SchedulerTypesError::Missing(path));
        Ok(SchedulerOffsets {
            switch: point("btf_trace_sched_switch")?,
            waking: point("btf_trace_sched_waking")?,
            wakeup_new: point("btf_trace_sched_wakeup_new")?,
            interrupts: [
                [point("btf_trace_hrtimer_expire_entry")?, point("btf_trace_hrtimer_expire_exit")?],
                [point("btf_trace_irq_handler_entry")?, point("btf_trace_irq_handler_exit")?],
                [point("btf_trace_softirq_entry")?, point("btf_trace_softirq_exit")?],
            ],
            thread: field("pid")?,
            process: field("tgid")?,
            name: field("comm")?,
            began: field("start_time")?,
            // Its name up to 5.13 was without the underscores.
            state: find("__state").map_or_else(|| field("state"), Ok)?,
            flags: field("flags")?,
            processor: field("se.sum_exec_runtime")?,
            ready: find("sched_info.run_delay"),
        })
    }
}
