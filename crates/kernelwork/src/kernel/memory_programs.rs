//! The programs of memory: where a main thread begins and ends to take memory back, to move it together, or to get a page that is on a disk.

use sys::bpf::Instruction;
use sys::bpf::assembler::{
    AssembleError, Assembler, Helper, JumpCondition, Label, Operation, Register, Size,
};

use super::layout::{began, record, room, shared};
use super::programs::{WorkPlan, frame};

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// Works that are shorter than this are not told, in nanoseconds.
const SHORTEST_NS: i32 = 2_000;
/// From here on the callers are copied each time, in nanoseconds.
const STACK_NS: i32 = 100_000;
/// Of the shorter works, the callers of one in so many are copied: of those whose length in nanoseconds this divides,
/// which is as good as chance. A power of two.
const ONE_OF: i32 = 8;
/// A page of user space.
const PAGE: i32 = 4096;
/// Where `struct bpf_perf_event_data` of x86-64 has the address that was touched.
const ADDRESS: i16 = 176;
/// Where `struct pt_regs` of x86-64 has the stack pointer.
const STACK_POINTER: i16 = 152;

/// What the threads work for, as records name it.
pub(super) mod work {
    pub(crate) const RECLAIM: i32 = 0;
    pub(crate) const COMPACTION: i32 = 1;
    pub(crate) const FAULT: i32 = 2;
}

type Written = Result<Vec<Instruction>, AssembleError>;

impl WorkPlan {
    /// Goes to `out` unless this is a watched process's main thread; else its key is in the frame.
    fn unless_main(&self, p: &mut Assembler, work: i32, out: Label) {
        p.call(Helper::CurrentNumbers).set(R9, R0).calculate(Operation::Right, R0, 32);
        p.set_low(R1, R9).jump_if(R0, JumpCondition::Differ, R1, out);
        p.store(Size::Word, R10, frame::SMALL_KEY, R0);
        p.store(Size::Word, R10, frame::WORK, R0).store(Size::Word, R10, frame::WORK + 4, work);
        self.find(p, self.filter, frame::SMALL_KEY);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
    }

    /// Reads the times of the thread that runs, as `ProcessorTimeFields::write_read` has them. Spoils `R0` to `R5`.
    fn read_times(&self, p: &mut Assembler) {
        p.call(Helper::CurrentTask);
        self.task.times.write_read(p, R0);
    }

    /// Writes the beginning of a work.
    pub(super) fn work_begins(&self, work: i32) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let out = p.label();
        self.unless_main(p, work, out);
        let at = |field: i16| frame::BEGAN + field;
        self.read_times(p);
        p.store(Size::Long, R10, at(began::PROCESSOR), R1);
        p.store(Size::Long, R10, at(began::READY), R2);
        p.call(Helper::Clock).store(Size::Long, R10, at(began::START), R0);
        p.set_map(R1, self.began).set(R2, R10).add(R2, i32::from(frame::WORK));
        p.set(R3, R10).add(R3, i32::from(frame::BEGAN)).set(R4, 0).call(Helper::MapUpdate);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
        self.count(p, shared::NOT_FOLLOWED);
        p.place(out).leave();
        program.finish()
    }

    /// Writes the beginning of a fault, of which there are many: most are over without a disk, and nobody is told.
    pub(super) fn fault_begins(&self) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let (out, first) = (p.label(), p.label());
        self.unless_main(p, work::FAULT, out);
        // A tracer that copies its stack, for example in the middle of another fault.
        p.call(Helper::CurrentTask).load(Size::Word, R1, R0, self.task.forbidden);
        p.jump_if(R1, JumpCondition::Differ, 0, out);
        self.find(p, self.began, frame::WORK);
        p.jump_if(R0, JumpCondition::Equal, 0, first).set(R8, R0);
        self.read_times(p);
        p.store(Size::Long, R8, began::PROCESSOR, R1).store(Size::Long, R8, began::READY, R2);
        p.call(Helper::Clock).store(Size::Long, R8, began::START, R0);
        p.jump(out).place(first);
        let at = |field: i16| frame::BEGAN + field;
        self.read_times(p);
        p.store(Size::Long, R10, at(began::PROCESSOR), R1);
        p.store(Size::Long, R10, at(began::READY), R2);
        p.call(Helper::Clock).store(Size::Long, R10, at(began::START), R0);
        p.set_map(R1, self.began).set(R2, R10).add(R2, i32::from(frame::WORK));
        p.set(R3, R10).add(R3, i32::from(frame::BEGAN)).set(R4, 0).call(Helper::MapUpdate);
        p.place(out).leave();
        program.finish()
    }

    /// Writes the end of a fault for which a disk was read.
    pub(super) fn fault_ends(&self) -> Written {
        self.work_ends(work::FAULT, Some(ADDRESS))
    }

    /// Writes the end of a work; `amount` is where the arguments say how much was done.
    pub(super) fn work_ends(&self, work: i32, amount: Option<i16>) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let (out, gone, short) = (p.label(), p.label(), p.label());
        p.set(R6, R1);
        self.unless_main(p, work, out);
        self.find(p, self.began, frame::WORK);
        p.jump_if(R0, JumpCondition::Equal, 0, out).set(R8, R0);
        p.call(Helper::Clock).load(Size::Long, R1, R8, began::START);
        p.set(R9, R0).calculate(Operation::Subtract, R9, R1);
        p.jump_if(R9, JumpCondition::Below, SHORTEST_NS, short);
        self.find_room(p, room::MEMORY, gone);
        p.load(Size::Long, R1, R8, began::START).store(Size::Long, R7, record::START, R1);
        p.store(Size::Long, R7, record::WALL, R9);
        p.store(Size::Word, R7, record::KIND, record::MEMORY);
        p.store(Size::Word, R7, record::FLAGS, 0).store(Size::Word, R7, record::LENGTH, 0);
        p.store(Size::Word, R7, record::OPCODE, work);
        p.load(Size::Word, R1, R10, frame::WORK).store(Size::Word, R7, record::THREAD, R1);
        p.store(Size::Word, R7, record::PROCESS, R1);
        match amount {
            Some(amount) => p.load(Size::Long, R1, R6, amount),
            None => p.set(R1, 0),
        };
        p.store(Size::Long, R7, record::RESULT, R1);
        self.read_times(p);
        p.load(Size::Long, R3, R8, began::PROCESSOR).calculate(Operation::Subtract, R1, R3);
        p.add(R1, R9).store(Size::Long, R7, record::INODE, R1);
        p.load(Size::Long, R3, R8, began::READY).calculate(Operation::Subtract, R2, R3);
        p.store(Size::Long, R7, record::RING, R2);
        self.forget(p, work);
        let send = p.label();
        p.set(R8, i32::from(record::STACK));
        let copied = p.label();
        p.jump_if(R9, JumpCondition::AtLeast, STACK_NS, copied);
        p.set(R1, R9).calculate(Operation::And, R1, ONE_OF - 1);
        p.jump_if(R1, JumpCondition::Differ, 0, send).place(copied);
        self.write_callers(p, send);
        p.place(send).set(R3, R8);
        self.write_send(p);
        p.jump(out).place(gone).place(short);
        self.forget(p, work);
        p.place(out).leave();
        program.finish()
    }

    /// Forgets the beginning of a work; that of a fault stays, because the next one is near.
    fn forget(&self, p: &mut Assembler, work: i32) {
        if work == work::FAULT {
            return;
        }
        p.set_map(R1, self.began).set(R2, R10).add(R2, i32::from(frame::WORK));
        p.call(Helper::MapDelete);
    }

    /// Copies the registers with which the thread entered the kernel and its stack, and adds its length to `R8`.
    fn write_callers(&self, p: &mut Assembler, done: Label) {
        let registers = record::REGISTERS + STACK_POINTER;
        let whole = p.label();
        p.call(Helper::CurrentTask).set(R1, R0).call(Helper::TaskRegisters);
        p.jump_if(R0, JumpCondition::Equal, 0, done).set(R3, R0);
        self.copy(p, record::REGISTERS, i32::from(record::REGISTERS_SIZE), done);
        let limit = record::STACK_LIMIT;
        for bytes in [limit, limit / 2, 0] {
            p.set(R1, R7).add(R1, i32::from(record::STACK));
            p.load(Size::Long, R3, R7, registers);
            if bytes > 0 {
                p.set(R9, bytes).set(R2, bytes);
            } else {
                // The rest of the page.
                p.set(R9, R3).calculate(Operation::And, R9, PAGE - 1).set(R2, PAGE);
                p.calculate(Operation::Subtract, R2, R9).set(R9, R2);
            }
            p.call(Helper::ReadUser).jump_if(R0, JumpCondition::Equal, 0, whole);
        }
        p.jump(done).place(whole);
        p.calculate(Operation::And, R9, 2 * limit - 1);
        let fits = p.label();
        p.jump_if(R9, JumpCondition::AtMost, limit, fits).set(R9, 0).place(fits);
        p.store(Size::Word, R7, record::LENGTH, R9).add(R8, R9);
    }
}

/// Returns how many works the callers of one stand for.
pub(super) fn stands_for(wall_ns: u64) -> u64 {
    if wall_ns < u64::from(STACK_NS.unsigned_abs()) { u64::from(ONE_OF.unsigned_abs()) } else { 1 }
}
