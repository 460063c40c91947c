//! How long a thread has run, as programs in the kernel read it at any moment without a hook in the scheduler.

use super::assembler::{Assembler, Operation, Register, Size};
use super::btf::{KernelTypesError, Types};

use Register::{R1, R2, R3};

/// Where the kernel keeps the times of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTimeFields {
    /// `task_struct`: time on processors, in nanoseconds, up to `updated`.
    pub processor: i16,
    /// `task_struct`: the clock of the run queue when `processor` was right.
    updated: i16,
    /// `task_struct`: time that it waited for processors; none where the kernel does not count it.
    pub ready: Option<i16>,
    clocks: Option<QueueClocks>,
}

/// The way from a thread to the two clocks of its run queue.
#[derive(Clone, Copy, Debug)]
struct QueueClocks {
    /// `sched_entity` in `task_struct`: the part of a run queue that it is on.
    part: i16,
    /// `cfs_rq`: the run queue.
    queue: i16,
    /// `rq`: a clock that goes on all the time.
    clock: i16,
    /// `rq`: one that stands still while the processor serves interrupts, or the host of a virtual machine has it.
    task_clock: i16,
}

impl ProcessorTimeFields {
    /// The structures that are wanted beside `task_struct`.
    pub const STRUCTURES: [&'static str; 2] = ["cfs_rq", "rq"];

    /// Reads them from a kernel's types.
    ///
    /// # Errors
    ///
    /// [`KernelTypesError`]: the kernel has other structures than the known ones.
    pub fn read(types: &Types<'_>) -> Result<ProcessorTimeFields, KernelTypesError> {
        let task = |path: &'static str| {
            types.offset("task_struct", path).ok_or(KernelTypesError::Missing(path))
        };
        Ok(ProcessorTimeFields {
            processor: task("se.sum_exec_runtime")?,
            updated: task("se.exec_start")?,
            ready: types.offset("task_struct", "sched_info.run_delay"),
            clocks: QueueClocks::find(types),
        })
    }

    /// Puts the time on processors, less a clock that all processors share, of the running task in `task` into `R1`, and its waits for
    /// processors into `R2`. Spoils `R3`.
    ///
    /// The time on processors is only brought up to date when the kernel looks at it, and the clock of the run queue says when that
    /// was. The difference at two moments, with the time between them added, is the time that the thread ran. The clocks of two
    /// processors differ by all that interrupts and a host have taken of them since the start of the machine, up to minutes: so
    /// that is added, or a thread that has changed its processor would have run all the time in between, or not at all.
    pub fn write_read(&self, p: &mut Assembler, task: Register) {
        p.load(Size::Long, R1, task, self.processor).load(Size::Long, R2, task, self.updated);
        p.calculate(Operation::Subtract, R1, R2);
        if let Some(QueueClocks { part, queue, clock, task_clock }) = self.clocks {
            p.load(Size::Long, R2, task, part).load(Size::Long, R2, R2, queue);
            p.load(Size::Long, R3, R2, task_clock).calculate(Operation::Add, R1, R3);
            p.load(Size::Long, R3, R2, clock).calculate(Operation::Subtract, R1, R3);
        }
        match self.ready {
            Some(ready) => p.load(Size::Long, R2, task, ready),
            None => p.set(R2, 0),
        };
    }
}

impl QueueClocks {
    /// Returns none for a kernel without groups of fairly scheduled threads, where no thread leads to its run queue.
    fn find(types: &Types<'_>) -> Option<QueueClocks> {
        Some(QueueClocks {
            part: types.offset("task_struct", "se.cfs_rq")?,
            queue: types.offset("cfs_rq", "rq")?,
            clock: types.offset("rq", "clock")?,
            task_clock: types.offset("rq", "clock_task")?,
        })
    }
}
