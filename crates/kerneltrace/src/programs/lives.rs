//! The beginning and end of processes and threads, and wake-ups.

use super::{ProgramPlan, frame};
use crate::layout::{filter, record, shared, thread};
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};

use Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

impl ProgramPlan {
    /// Begins a record of a `kind` in `R7` about the task in `task`. Spoils `R0` to `R5`.
    fn write_head(&self, p: &mut Assembler, kind: i32, task: Register) {
        p.store(Size::Word, R7, record::KIND, kind).store(Size::Word, R7, record::FLAGS, 0);
        p.load(Size::Word, R1, task, self.fields.task_thread);
        p.store(Size::Word, R7, record::THREAD, R1);
        p.load(Size::Word, R1, task, self.fields.task_process);
        p.store(Size::Word, R7, record::PROCESS, R1);
        for word in [record::NUMBER, record::WALL, record::CPU, record::QUEUED, record::RESULT] {
            p.store(Size::Long, R7, word, 0);
        }
        p.call(Helper::Clock).store(Size::Long, R7, record::START, R0);
    }

    /// `sched_process_fork(parent, child)`: a watched process's child is watched from its first call on.
    pub(super) fn write_process_fork(&self, p: &mut Assembler) {
        let (out, is_thread) = (p.label(), p.label());
        p.set(R6, R1).load(Size::Long, R8, R6, 0).load(Size::Long, R9, R6, 8);
        self.find_in_filter(p, R8);
        p.jump_if(R0, JumpCondition::Equal, 0, out).load(Size::Word, R1, R0, 0);
        p.jump_if(R1, JumpCondition::Differ, filter::ACTIVE.cast_signed(), out);
        self.unless_owned(p, R8, out);
        p.load(Size::Word, R1, R8, self.fields.task_process);
        p.load(Size::Word, R2, R9, self.fields.task_process);
        p.jump_if(R1, JumpCondition::Equal, R2, is_thread);
        p.store(Size::Word, R10, frame::SMALL_KEY, R2);
        p.store(Size::Word, R10, frame::SMALL_VALUE, filter::ACTIVE.cast_signed());
        p.set(R3, R10).add(R3, i32::from(frame::SMALL_VALUE));
        self.put(p, self.maps.filter, frame::SMALL_KEY, 0);
        p.jump_if(R0, JumpCondition::Equal, 0, is_thread);
        self.count(p, shared::PROCESSES_LEFT_OUT);
        p.place(is_thread);
        self.find_scratch(p, out);
        self.write_head(p, record::FORK, R9);
        p.load(Size::Word, R1, R8, self.fields.task_thread);
        p.store(Size::Word, R7, record::NUMBER, R1);
        p.load(Size::Word, R1, R8, self.fields.task_process);
        p.store(Size::Word, R7, record::WAKER, R1);
        self.write_send_quietly(p, record::FORK_SIZE);
        p.place(out).leave();
    }

    /// `sched_process_exec(task, old number, program)`: reports its path and command line.
    pub(super) fn write_process_exec(&self, p: &mut Assembler) {
        let (out, unknown, foreign) = (p.label(), p.label(), p.label());
        p.set(R6, R1).load(Size::Long, R8, R6, 0);
        self.find_in_filter(p, R8);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
        self.unless_owned(p, R8, foreign);
        p.store(Size::Word, R0, 0, filter::ACTIVE.cast_signed());
        // A thread that is not the first takes over the first one's number.
        self.find_thread(p, R8, 0);
        p.jump_if(R0, JumpCondition::Equal, 0, unknown);
        p.load(Size::Word, R1, R8, self.fields.task_thread);
        p.store(Size::Word, R0, thread::THREAD, R1);
        p.store(Size::Word, R0, thread::AWAITS, 0).place(unknown);
        self.find_scratch(p, out);
        self.write_head(p, record::EXEC, R8);
        self.write_count_foreign(p);
        p.load(Size::Long, R1, R6, 8).store(Size::Word, R7, record::NUMBER, R1);
        p.store(Size::Long, R7, record::FIRST_PATH, 0).store(Size::Long, R7, record::NAMES, 0);
        let (no_path, no_command) = (p.label(), p.label());
        p.load(Size::Long, R1, R6, 16).load(Size::Long, R3, R1, self.fields.program_path);
        p.set(R8, 0);
        self.data_address(p);
        p.set(R2, record::PATH).call(Helper::ReadKernelText);
        p.jump_if(R0, JumpCondition::SignedAtMost, 0, no_path);
        p.store(Size::Word, R7, record::FIRST_PATH, R0).set(R8, R0).place(no_path);

        p.load(Size::Long, R1, R6, 0).load(Size::Long, R1, R1, self.fields.task_memory);
        p.jump_if(R1, JumpCondition::Equal, 0, no_command);
        p.load(Size::Long, R3, R1, self.fields.memory_arguments);
        p.load(Size::Long, R9, R1, self.fields.memory_arguments_end);
        let short = p.label();
        p.calculate(Operation::Subtract, R9, R3);
        p.jump_if(R9, JumpCondition::AtMost, record::PATH, short)
            .set(R9, record::PATH)
            .place(short);
        self.data_address(p);
        p.set(R2, R9).call(Helper::ReadUser).jump_if(R0, JumpCondition::Differ, 0, no_command);
        p.store(Size::Word, R7, record::SECOND_PATH, R9).add(R8, R9).place(no_command);
        p.add(R8, i32::from(record::DATA));
        self.write_send(p, shared::LOST_LIVES);
        if self.owner.is_some() {
            p.jump(out);
            p.place(foreign);
            self.write_leave_session(p);
        }
        p.place(out).leave();
    }

    /// Counts a program of 32 bits: its calls have other numbers, so that most of them look like calls that are not watched.
    fn write_count_foreign(&self, p: &mut Assembler) {
        /// The first bytes of an ELF file.
        const ELF: i32 = i32::from_le_bytes(*b"\x7fELF");
        /// Of 32 bits; x32 has that, too.
        const CLASS_32: i32 = 1;
        let is_ours = p.label();
        p.load(Size::Long, R1, R6, 16).load(Size::Word, R2, R1, self.fields.program_head);
        p.jump_if(R2, JumpCondition::Differ, ELF, is_ours);
        p.load(Size::Byte, R2, R1, self.fields.program_head + 4);
        p.jump_if(R2, JumpCondition::Differ, CLASS_32, is_ours);
        self.count(p, shared::OTHER_NUMBERS);
        p.place(is_ours);
    }

    /// `sched_process_exit(task)`: reports the call in which the thread ended, and removes a process with its last thread.
    pub(super) fn write_process_exit(&self, p: &mut Assembler) {
        let (out, lives, send, foreign) = (p.label(), p.label(), p.label(), p.label());
        p.set(R6, R1).load(Size::Long, R8, R6, 0);
        self.find_in_filter(p, R8);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
        self.unless_owned_at_end(p, R8, foreign);
        self.find_scratch(p, out);
        self.write_head(p, record::EXIT, R8);
        p.load(Size::Word, R1, R8, self.fields.task_exit_code);
        p.store(Size::Word, R7, record::RESULT, R1);
        for part in [0, 8] {
            p.load(Size::Long, R1, R8, self.fields.task_name + part);
            p.store(Size::Long, R7, record::EXIT_NAME + part, R1);
        }
        p.load(Size::Long, R1, R8, self.fields.task_times.processor).store(
            Size::Long,
            R7,
            record::CPU,
            R1,
        );
        if let Some(delay) = self.fields.task_times.ready {
            p.load(Size::Long, R1, R8, delay).store(Size::Long, R7, record::QUEUED, R1);
        }
        p.store(Size::Word, R7, record::WAKER, 0);
        if let Some(faults) = self.fields.task_faults {
            p.load(Size::Long, R1, R8, faults).store(Size::Word, R7, record::WAKER, R1);
        }
        p.load(Size::Long, R1, R8, self.fields.task_signal);
        p.load(Size::Word, R1, R1, self.fields.signal_live).jump_if(
            R1,
            JumpCondition::Differ,
            0,
            lives,
        );
        p.store(Size::Word, R7, record::FLAGS, record::LAST_THREAD);
        self.forget_process(p, R8);
        p.place(lives);
        for word in 0..16 {
            p.store(Size::Long, R7, record::ARGUMENTS + 8 * word, 0);
        }
        self.find_thread(p, R8, 0);
        p.jump_if(R0, JumpCondition::Equal, 0, send).set(R9, R0);
        for word in 0..16 {
            p.load(Size::Long, R1, R9, thread::SEEN + 8 * word);
            p.store(Size::Long, R7, record::ARGUMENTS + 8 * word, R1);
        }
        p.load(Size::Word, R1, R9, thread::STATE);
        p.jump_if(R1, JumpCondition::Equal, thread::OUTSIDE, send);
        p.load(Size::Word, R1, R9, thread::NUMBER).store(Size::Word, R7, record::NUMBER, R1);
        p.load(Size::Long, R1, R9, thread::START).store(Size::Long, R7, record::WALL, R1);
        p.place(send);
        self.write_send_quietly(p, record::EXIT_SIZE);
        if self.owner.is_some() {
            p.jump(out).place(foreign);
            p.load(Size::Long, R1, R8, self.fields.task_signal);
            p.load(Size::Word, R1, R1, self.fields.signal_live);
            p.jump_if(R1, JumpCondition::Differ, 0, out);
            self.forget_process(p, R8);
        }
        p.place(out).leave();
    }

    /// `sched_waking(task)`: the thread that wakes another one from a futex is mostly its holder.
    pub(super) fn write_waking(&self, p: &mut Assembler) {
        let out = p.label();
        p.set(R6, R1).load(Size::Long, R8, R6, 0);
        self.find_thread(p, R8, 0);
        p.jump_if(R0, JumpCondition::Equal, 0, out).set(R9, R0);
        p.load(Size::Word, R1, R9, thread::STATE);
        p.jump_if(R1, JumpCondition::Differ, thread::INSIDE, out);
        p.load(Size::Word, R1, R9, thread::NUMBER).jump_if(
            R1,
            JumpCondition::Differ,
            self.futex,
            out,
        );
        if self.owner.is_some() {
            p.call(Helper::CurrentTask).set(R7, R0);
            self.unless_owned(p, R7, out);
        }
        p.call(Helper::CurrentNumbers).store(Size::Word, R9, thread::WAKER, R0);
        p.place(out).leave();
    }
}
