//! Offsets of the kernel's structures that the programs read, from its BTF.

use sys::bpf::btf::{self, BtfKind, KernelTypesError, Types};

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
    /// Whether it is in a call of 32-bit code.
    pub(super) status: i16,
    pub(super) processor: i16,
    /// Whether it has a processor; none where there is one processor only.
    pub(super) has_processor: Option<i16>,
    /// None where the kernel does not count it.
    pub(super) ready: Option<i16>,
}

impl SchedulerOffsets {
    pub(super) fn of_this_kernel() -> Result<SchedulerOffsets, KernelTypesError> {
        btf::of_this_kernel(SchedulerOffsets::read)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<SchedulerOffsets, KernelTypesError> {
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
        let types = Types::read(bytes, &wanted).ok_or(KernelTypesError::NotUnderstood)?;
        let point = |name: &'static str| {
            types.number(BtfKind::Typedef, name).ok_or(KernelTypesError::Missing(name))
        };
        let find = |path| types.offset("task_struct", path);
        let field = |path: &'static str| find(path).ok_or(KernelTypesError::Missing(path));
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
            status: field("thread_info.status")?,
            processor: field("se.sum_exec_runtime")?,
            has_processor: find("on_cpu"),
            ready: find("sched_info.run_delay"),
        })
    }
}
