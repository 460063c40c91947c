//! The programs: one notes when threads stop to run, two record who wakes or makes them, six note the interrupts of processors.
//!
//! Registers by convention: `R6` the program's arguments, `R7` what is
//! kept of the thread, `R8` the thread, `R9` who wakes it.

use sys::bpf::assembler::{
    AssembleError, Assembler, Helper, JumpCondition, Label, Operation, Register, Size,
};
use sys::bpf::owner::OwnerPlan;
use sys::bpf::{FOREIGN_CALL, Instruction, SharedMap};

use super::layout::{FUNCTIONS, SOURCES, processor, record, shared, source, thread};
use super::offsets::SchedulerOffsets;

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const MAKE: i32 = 1;
/// Does not wake the reader of the ring.
const QUIETLY: i32 = 1;
/// The states in which a thread waits: interruptible, uninterruptible, stopped, traced.
const WAITS: i32 = 0xf;
/// `PF_KTHREAD`.
const KERNEL_THREAD: i32 = 0x20_0000;
/// The second halves of interrupts that are told apart, by their numbers in the kernel.
const SOFT_INTERRUPTS: [(i32, i32); 5] = [
    (1, source::TIMER),
    (2, source::NETWORK),
    (3, source::NETWORK),
    (4, source::DISK),
    (8, source::TIMER),
];
/// Where `struct pt_regs` of x86-64 has the number of the system call.
const CALL_REGISTER: i16 = 120;

/// Words on the stack of a program, by their offset from the frame.
mod frame {
    /// The time.
    pub(super) const NOW: i16 = -8;
    /// A key of four bytes.
    pub(super) const KEY: i16 = -16;
    /// What the thread that wakes is in.
    pub(super) const CONTEXT: i16 = -24;
    /// The beginning of the wait.
    pub(super) const FROM: i16 = -32;
    /// 1 if who wakes is told, 0 if he is another user's.
    pub(super) const IS_TOLD: i16 = -40;
    /// The record.
    pub(super) const RECORD: i16 = IS_TOLD - super::record::SIZE;
}

/// What the programs are written for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WakeupPlan {
    pub(super) offsets: SchedulerOffsets,
    pub(super) threads: SharedMap,
    pub(super) words: SharedMap,
    pub(super) processors: SharedMap,
    pub(super) ring: SharedMap,
    /// Waits shorter than this are not recorded each, in nanoseconds.
    pub(super) shortest_ns: i32,
    /// Whose threads are told of; without it those of all.
    pub(super) owner: Option<OwnerPlan>,
}

/// How a thread comes to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    Woken,
    Made,
}

impl WakeupPlan {
    /// Writes the program of `sched_switch`.
    pub(super) fn switch(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_switch(&mut program);
        program.finish()
    }

    /// Writes the program of `sched_waking`.
    pub(super) fn waking(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_start(&mut program, Start::Woken);
        program.finish()
    }

    /// Writes the program of `sched_wakeup_new`.
    pub(super) fn wakeup_new(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_start(&mut program, Start::Made);
        program.finish()
    }

    /// Writes the programs of the beginning and the end of a timer, of a device's interrupt, and of the second half of one.
    pub(super) fn interrupts(&self) -> Result<[[Vec<Instruction>; 2]; 3], AssembleError> {
        let pair = |word| Ok([self.interrupt_begins(word)?, self.interrupt_ends(word)?]);
        Ok([pair(processor::TIMER)?, pair(processor::DEVICE)?, pair(processor::SOFT)?])
    }

    fn interrupt_begins(&self, word: i16) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let (out, known) = (p.label(), p.label());
        p.load(Size::Long, R6, R1, 0);
        self.find_processor(p, out);
        if word == processor::SOFT {
            for (number, kind) in SOFT_INTERRUPTS {
                p.set(R2, kind).jump_if(R6, JumpCondition::Equal, number, known);
            }
        }
        p.set(R2, if word == processor::TIMER { source::TIMER } else { source::OTHER });
        p.place(known).store(Size::Long, R0, word, R2).place(out).leave();
        program.finish()
    }

    fn interrupt_ends(&self, word: i16) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let out = p.label();
        self.find_processor(p, out);
        p.store(Size::Long, R0, word, 0).place(out).leave();
        program.finish()
    }

    /// Leaves in `R0` what is kept of this processor, or goes to `out`. Spoils `R1` to `R5`.
    fn find_processor(&self, p: &mut Assembler, out: Label) {
        p.store(Size::Word, R10, frame::KEY, 0);
        p.set_map(R1, self.processors).set(R2, R10).add(R2, i32::from(frame::KEY));
        p.call(Helper::MapLookup).jump_if(R0, JumpCondition::Equal, 0, out);
    }

    /// Leaves in `R0` what is kept of the thread in `task`, or 0.
    fn find(&self, p: &mut Assembler, task: Register, flags: i32) {
        p.set(R2, task).set_map(R1, self.threads).set(R3, 0).set(R4, flags);
        p.call(Helper::TaskStorage);
    }

    /// Adds a constant to a word that all programs share. Spoils `R1` and `R2`.
    fn add_to(&self, p: &mut Assembler, word: i16, what: i32) {
        p.set_array(R1, self.words).set(R2, what).add_shared(R1, word, R2);
    }

    /// Leaves in `R7` what is kept of the thread in `R8`, which is made; or counts it and goes to `out`.
    fn find_or_make(&self, p: &mut Assembler, out: Label) {
        let made = p.label();
        self.find(p, R8, MAKE);
        p.jump_if(R0, JumpCondition::Differ, 0, made);
        self.add_to(p, shared::NOT_KEPT, 1);
        p.jump(out).place(made).set(R7, R0);
    }

    /// `sched_switch(preempted, previous, next)`: the previous thread stops to run. One that is preempted while it begins to wait
    /// may be woken before it has a processor again.
    fn write_switch(&self, p: &mut Assembler) {
        let out = p.label();
        p.set(R6, R1);
        p.load(Size::Long, R8, R6, 8).load(Size::Word, R1, R8, self.offsets.state);
        p.calculate(Operation::And, R1, WAITS).jump_if(R1, JumpCondition::Equal, 0, out);
        self.find_or_make(p, out);
        p.call(Helper::Clock).store(Size::Long, R7, thread::OFF, R0).place(out).leave();
    }

    /// `sched_waking(thread)` and `sched_wakeup_new(thread)`.
    fn write_start(&self, p: &mut Assembler, start: Start) {
        let (out, quick) = (p.label(), p.label());
        p.set(R6, R1);
        p.load(Size::Long, R8, R6, 0);
        self.find_or_make(p, out);
        p.call(Helper::Clock).store(Size::Long, R10, frame::NOW, R0);
        p.call(Helper::CurrentTask).set(R9, R0);
        self.write_context(p, start);
        self.write_sources(p);
        // It has waited since before that was recorded.
        let known = p.label();
        p.load(Size::Long, R3, R7, thread::OFF).set_array(R1, self.words);
        p.load(Size::Long, R2, R1, shared::SINCE).jump_if(R3, JumpCondition::AtLeast, R2, known);
        p.set(R3, R2).place(known);
        p.load(Size::Long, R4, R10, frame::NOW);
        match start {
            Start::Made => {
                p.store(Size::Long, R10, frame::FROM, R4);
            }
            Start::Woken => {
                // Who has a processor has not waited yet: when it left one before is the beginning of another wait.
                if let Some(offset) = self.offsets.has_processor {
                    p.load(Size::Word, R1, R8, offset);
                    p.jump_if(R1, JumpCondition::Differ, 0, quick);
                }
                p.store(Size::Long, R10, frame::FROM, R3);
                p.jump_if(R3, JumpCondition::AtLeast, R4, quick);
                p.calculate(Operation::Subtract, R4, R3);
                p.jump_if(R4, JumpCondition::Below, self.shortest_ns, quick);
            }
        }
        if let Some(owner) = &self.owner {
            owner.unless_owned_at_end(p, R8, out);
        }
        self.write_record(p, start);
        p.place(quick).place(out).leave();
    }

    /// Puts what the thread that wakes is in into the frame.
    fn write_context(&self, p: &mut Assembler, start: Start) {
        if start == Start::Made {
            p.store(Size::Long, R10, frame::CONTEXT, source::BIRTH);
            return;
        }
        let (done, not_known) = (p.label(), p.label());
        self.find_processor(p, not_known);
        for word in [processor::TIMER, processor::DEVICE, processor::SOFT] {
            p.load(Size::Long, R1, R0, word).store(Size::Long, R10, frame::CONTEXT, R1);
            p.jump_if(R1, JumpCondition::Differ, 0, done);
        }
        p.place(not_known).store(Size::Long, R10, frame::CONTEXT, source::OTHER);
        // The idle thread does nothing by itself.
        p.load(Size::Word, R1, R9, self.offsets.thread);
        p.jump_if(R1, JumpCondition::Equal, 0, done);
        p.store(Size::Long, R10, frame::CONTEXT, source::KERNEL);
        p.load(Size::Word, R1, R9, self.offsets.flags);
        p.jump_if(R1, JumpCondition::AnyBit, KERNEL_THREAD, done);
        p.store(Size::Long, R10, frame::CONTEXT, source::PROGRAM).place(done);
    }

    /// Puts who wakes the thread, and who had woken that one, into what is kept of the thread.
    fn write_sources(&self, p: &mut Assembler) {
        let (nobody, done, foreign, told) = (p.label(), p.label(), p.label(), p.label());
        let later = thread::SOURCES + source::SIZE;
        let at = |offset: i16| thread::SOURCES + offset;
        p.store(Size::Long, R10, frame::IS_TOLD, 1);
        if let Some(owner) = &self.owner {
            owner.unless_owned_at_end(p, R9, foreign);
        }
        // Whatever woke the thread that an interrupt found has nothing to do with it.
        p.load(Size::Long, R1, R10, frame::CONTEXT);
        p.jump_if(R1, JumpCondition::AtLeast, source::TIMER, nobody);
        self.find(p, R9, 0);
        p.jump_if(R0, JumpCondition::Equal, 0, nobody);
        for word in 0..(SOURCES - 1) * source::SIZE / 8 {
            p.load(Size::Long, R1, R0, thread::SOURCES + 8 * word);
            p.store(Size::Long, R7, later + 8 * word, R1);
        }
        p.jump(done).place(nobody).store(Size::Word, R7, later + source::CONTEXT, 0);
        p.place(done);
        p.load(Size::Long, R1, R10, frame::NOW).store(Size::Long, R7, at(source::AT), R1);
        p.load(Size::Word, R1, R9, self.offsets.thread);
        p.store(Size::Word, R7, at(source::THREAD), R1);
        p.load(Size::Word, R1, R9, self.offsets.process);
        p.store(Size::Word, R7, at(source::PROCESS), R1);
        p.load(Size::Long, R1, R9, self.offsets.began).calculate(Operation::Right, R1, 20);
        p.store(Size::Word, R7, at(source::BEGAN), R1);
        p.load(Size::Long, R1, R10, frame::CONTEXT);
        p.store(Size::Word, R7, at(source::CONTEXT), R1);
        p.set(R1, R7).add(R1, i32::from(at(source::NAME))).set(R2, 16);
        p.set(R3, R9).add(R3, i32::from(self.offsets.name)).call(Helper::ReadKernel);
        if self.owner.is_none() {
            p.place(foreign).place(told);
            return;
        }
        // Of another user's thread is told that it was one, and whether it belongs to the kernel; nothing of those before it.
        p.jump(told).place(foreign).store(Size::Long, R10, frame::IS_TOLD, 0);
        for word in 0..source::SIZE / 8 {
            p.store(Size::Long, R7, at(8 * word), 0);
        }
        p.store(Size::Word, R7, later + source::CONTEXT, 0);
        p.load(Size::Long, R1, R10, frame::NOW).store(Size::Long, R7, at(source::AT), R1);
        p.load(Size::Long, R1, R10, frame::CONTEXT);
        p.store(Size::Word, R7, at(source::CONTEXT), R1).place(told);
    }

    /// Sends a record of the wait.
    fn write_record(&self, p: &mut Assembler, start: Start) {
        let at = |offset: i16| frame::RECORD + offset;
        let sent = p.label();
        for (from, to) in [
            (self.offsets.thread, record::THREAD),
            (self.offsets.process, record::PROCESS),
            (self.offsets.state, record::STATE),
        ] {
            p.load(Size::Word, R1, R8, from).store(Size::Word, R10, at(to), R1);
        }
        p.load(Size::Long, R1, R8, self.offsets.began).calculate(Operation::Right, R1, 20);
        p.store(Size::Word, R10, at(record::BEGAN), R1);
        p.load(Size::Long, R1, R10, frame::FROM).store(Size::Long, R10, at(record::FROM), R1);
        p.load(Size::Long, R1, R10, frame::NOW).store(Size::Long, R10, at(record::TO), R1);
        for (task, processor, ready) in [
            (R8, record::PROCESSOR, record::READY),
            (R9, record::SOURCE_PROCESSOR, record::SOURCE_READY),
        ] {
            let hidden = p.label();
            p.store(Size::Long, R10, at(processor), 0).store(Size::Long, R10, at(ready), 0);
            if task == R9 {
                p.load(Size::Long, R1, R10, frame::IS_TOLD);
                p.jump_if(R1, JumpCondition::Equal, 0, hidden);
            }
            p.load(Size::Long, R1, task, self.offsets.processor);
            p.store(Size::Long, R10, at(processor), R1);
            if let Some(offset) = self.offsets.ready {
                p.load(Size::Long, R1, task, offset).store(Size::Long, R10, at(ready), R1);
            }
            p.place(hidden);
        }
        for word in 0..FUNCTIONS {
            p.store(Size::Long, R10, at(record::FUNCTIONS + 8 * word), 0);
        }
        p.store(Size::Long, R10, at(record::CALL), -1);
        if start == Start::Woken {
            let (in_kernel, no_registers) = (p.label(), p.label());
            // Addresses of the kernel are for root.
            if self.owner.is_none() {
                p.set(R1, R8).set(R2, R10).add(R2, i32::from(at(record::FUNCTIONS)));
                p.set(R3, i32::from(8 * FUNCTIONS)).set(R4, 0).call(Helper::TaskStack);
            }
            p.load(Size::Word, R1, R8, self.offsets.flags);
            p.jump_if(R1, JumpCondition::AnyBit, KERNEL_THREAD, in_kernel);
            p.load(Size::Word, R1, R8, self.offsets.status);
            p.jump_if(R1, JumpCondition::AnyBit, FOREIGN_CALL, in_kernel);
            p.set(R1, R8).call(Helper::TaskRegisters);
            p.jump_if(R0, JumpCondition::Equal, 0, no_registers);
            p.load(Size::Long, R1, R0, CALL_REGISTER);
            p.store(Size::Long, R10, at(record::CALL), R1);
            p.place(no_registers).place(in_kernel);
        }
        p.set(R1, R10).add(R1, i32::from(at(record::NAME))).set(R2, 16);
        p.set(R3, R8).add(R3, i32::from(self.offsets.name)).call(Helper::ReadKernel);
        for word in 0..SOURCES * source::SIZE / 8 {
            p.load(Size::Long, R1, R7, thread::SOURCES + 8 * word);
            p.store(Size::Long, R10, at(record::SOURCES + 8 * word), R1);
        }
        p.set_map(R1, self.ring).set(R2, R10).add(R2, i32::from(frame::RECORD));
        p.set(R3, i32::from(record::SIZE)).set(R4, QUIETLY).call(Helper::RingOutput);
        p.jump_if(R0, JumpCondition::Equal, 0, sent);
        self.add_to(p, shared::LOST, 1);
        p.place(sent);
    }
}

/// The stack of a program has 512 bytes.
const _: () = assert!(frame::RECORD >= -512);
