//! Entry and exit of calls.

use super::account::{LARGEST_ERROR, Source};
use super::{ProgramPlan, WatchedThreads, frame, registers};
use crate::layout::{CALLS, filter, shared, table, thread};
use sys::bpf::FOREIGN_CALL;
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};

use Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// The results of a call that the kernel will restart: `ERESTARTSYS` and similar ones, which programs never see.
const RESTARTS: [i32; 4] = [-512, -513, -514, -516];

/// `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const MAKE: i32 = 1;

/// What an interrupted call returns when it is not started again: `EINTR`.
const INTERRUPTED: i32 = -4;

impl ProgramPlan {
    /// `sys_enter(registers, number)`.
    pub(super) fn write_enter(&self, p: &mut Assembler) {
        let out = p.label();
        let limit = CALLS.cast_signed();
        p.set(R6, R1).load(Size::Long, R7, R6, 8).jump_if(R7, JumpCondition::AtLeast, limit, out);
        self.load_watch(p, R7);
        p.jump_if(R1, JumpCondition::Equal, i32::from(table::UNWATCHED), out);
        p.store(Size::Long, R10, frame::WATCH, R1);
        p.call(Helper::CurrentTask).set(R8, R0);
        let counts = p.label();
        p.load(Size::Long, R1, R10, frame::WATCH);
        p.jump_if(R1, JumpCondition::Differ, i32::from(table::LONG_ONLY), counts);
        self.unless_main(p, out);
        p.place(counts);
        self.find_thread(p, R8, 0);
        let known = p.label();
        p.jump_if(R0, JumpCondition::Differ, 0, known);
        self.write_first_call(p, out);
        p.place(known).set(R9, R0);
        self.unless_owned(p, R8, out);
        let watched = p.label();
        p.load(Size::Word, R1, R9, thread::AWAITS).jump_if(R1, JumpCondition::Equal, 0, watched);
        self.unless_exec(p, R7, out);
        p.place(watched);
        if self.threads == WatchedThreads::First {
            p.load(Size::Word, R1, R9, thread::THREAD).load(Size::Word, R2, R9, thread::PROCESS);
            p.jump_if(R1, JumpCondition::Differ, R2, out);
        }
        // The numbers of 32-bit code mean other calls.
        let is_ours = p.label();
        p.load(Size::Word, R1, R8, self.fields.task_status);
        p.calculate(Operation::And, R1, FOREIGN_CALL);
        p.jump_if(R1, JumpCondition::Equal, 0, is_ours);
        self.count(p, shared::OTHER_NUMBERS);
        p.jump(out).place(is_ours);

        let begin = p.label();
        p.load(Size::Word, R1, R9, thread::STATE);
        p.jump_if(R1, JumpCondition::Differ, thread::INTERRUPTED, begin);
        self.write_after_interruption(p, out);
        let begins = p.label();
        p.place(begin).load(Size::Long, R1, R10, frame::WATCH);
        p.jump_if(R1, JumpCondition::Equal, i32::from(table::WATCHED), begins);
        p.jump_if(R1, JumpCondition::Differ, i32::from(table::LONG_ONLY), out).place(begins);
        p.store(Size::Word, R9, thread::NUMBER, R7);
        p.store(Size::Word, R9, thread::STATE, thread::INSIDE);
        p.store(Size::Word, R9, thread::WAKER, 0);
        let plain = p.label();
        self.unless_exec(p, R7, plain);
        self.write_save_arguments(p);
        p.place(plain);
        self.write_sent(p);
        self.write_sets(p);
        self.fields.task_times.write_read(p, R8);
        p.store(Size::Long, R9, thread::CPU, R1).store(Size::Long, R9, thread::DELAY, R2);
        // The clock is read last here and first at the exit, so that what we do is not counted.
        p.call(Helper::Clock).store(Size::Long, R9, thread::START, R0);
        p.place(out).leave();
    }

    /// Jumps to `out` unless the task in `R8` is a main thread. Idle threads wait for locks, and busy ones look at them often: what is
    /// not the main thread's costs no look-up.
    fn unless_main(&self, p: &mut Assembler, out: super::Label) {
        p.load(Size::Word, R1, R8, self.fields.task_thread);
        p.load(Size::Word, R2, R8, self.fields.task_process);
        p.jump_if(R1, JumpCondition::Differ, R2, out);
    }

    /// Puts how the call in `number` (below the limit) is watched into `R1`. Spoils `R2`.
    pub(super) fn load_watch(&self, p: &mut Assembler, number: Register) {
        p.set(R2, number).calculate(Operation::Left, R2, 2).set_array(R1, self.maps.table);
        p.add(R1, R2).load(Size::Byte, R1, R1, table::WATCH);
    }

    /// Copies the arguments to what is kept of the thread in `R9`.
    fn write_save_arguments(&self, p: &mut Assembler) {
        p.load(Size::Long, R1, R6, 0);
        for (index, register) in (0_i16..).zip(registers::ARGUMENTS) {
            p.load(Size::Long, R2, R1, register);
            p.store(Size::Long, R9, thread::ARGUMENTS + 8 * index, R2);
        }
    }

    /// Copies the sets of descriptors of the `select` in `R7` to what is kept of the thread in `R9`.
    fn write_sets(&self, p: &mut Assembler) {
        let (done, selects) = (p.label(), p.label());
        let [select, pselect] = self.selects;
        p.jump_if(R7, JumpCondition::Equal, select, selects);
        p.jump_if(R7, JumpCondition::Differ, pselect, done).place(selects);
        for (set, argument) in [(0, 1), (8, 2)] {
            p.store(Size::Long, R9, thread::SETS + set, 0);
            p.load(Size::Long, R1, R6, 0).load(Size::Long, R3, R1, registers::ARGUMENTS[argument]);
            // Nothing is copied where there is no set.
            p.set(R1, R9).add(R1, i32::from(thread::SETS + set)).set(R2, 8).call(Helper::ReadUser);
        }
        p.place(done);
    }

    /// The thread in `R8` is not known: is its process watched? Then it is known from now on, in `R0`; else `out`.
    fn write_first_call(&self, p: &mut Assembler, out: super::Label) {
        self.find_in_filter(p, R8);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
        p.load(Size::Word, R1, R0, 0).store(Size::Word, R10, frame::SMALL_VALUE, R1);
        self.find_thread(p, R8, MAKE);
        let made = p.label();
        p.jump_if(R0, JumpCondition::Differ, 0, made);
        self.count(p, shared::NOT_FOLLOWED);
        p.jump(out).place(made);
        p.load(Size::Word, R1, R8, self.fields.task_thread);
        p.store(Size::Word, R0, thread::THREAD, R1);
        p.load(Size::Word, R1, R8, self.fields.task_process);
        p.store(Size::Word, R0, thread::PROCESS, R1);
        let active = p.label();
        p.load(Size::Word, R1, R10, frame::SMALL_VALUE);
        p.jump_if(R1, JumpCondition::Differ, filter::FROM_EXEC.cast_signed(), active);
        p.store(Size::Word, R0, thread::AWAITS, 1).place(active);
    }

    /// The thread's last call was interrupted. If this one continues it, go on with its start; else that one failed.
    fn write_after_interruption(&self, p: &mut Assembler, out: super::Label) {
        let (goes_on, failed) = (p.label(), p.label());
        p.jump_if(R7, JumpCondition::Equal, self.restart, goes_on);
        p.load(Size::Word, R1, R9, thread::NUMBER).jump_if(R1, JumpCondition::Differ, R7, failed);
        p.place(goes_on).store(Size::Word, R9, thread::STATE, thread::INSIDE).jump(out);
        p.place(failed).store(Size::Word, R9, thread::STATE, thread::OUTSIDE);
        p.store(Size::Long, R10, frame::RESULT, INTERRUPTED);
        for (from, to) in [
            (thread::END, frame::NOW),
            (thread::END_CPU, frame::END_CPU),
            (thread::END_DELAY, frame::QUEUED),
        ] {
            p.load(Size::Long, R1, R9, from).store(Size::Long, R10, to, R1);
        }
        // The account needs all registers; the number and the task are found again.
        self.write_account(p, Source::Kept);
        p.load(Size::Long, R9, R10, frame::STATE).load(Size::Long, R7, R6, 8);
        p.call(Helper::CurrentTask).set(R8, R0);
    }

    /// The thread in `R9` leaves the call in `R7`, which it has not entered: a filter of the program denied it. It is a call that
    /// failed at once, unless it is not watched.
    fn write_denied(&self, p: &mut Assembler, out: super::Label) {
        p.jump_if(R7, JumpCondition::AtLeast, CALLS.cast_signed(), out);
        self.load_watch(p, R7);
        p.jump_if(R1, JumpCondition::Differ, i32::from(table::WATCHED), out);
        p.load(Size::Word, R1, R9, thread::AWAITS).jump_if(R1, JumpCondition::Differ, 0, out);
        if self.threads == WatchedThreads::First {
            p.load(Size::Word, R1, R9, thread::THREAD).load(Size::Word, R2, R9, thread::PROCESS);
            p.jump_if(R1, JumpCondition::Differ, R2, out);
        }
        p.load(Size::Word, R1, R8, self.fields.task_status);
        p.jump_if(R1, JumpCondition::AnyBit, FOREIGN_CALL, out);
        self.unless_failed(p, out);
        p.store(Size::Word, R9, thread::NUMBER, R7).store(Size::Word, R9, thread::WAKER, 0);
        self.fields.task_times.write_read(p, R8);
        p.store(Size::Long, R9, thread::CPU, R1).store(Size::Long, R9, thread::DELAY, R2);
        p.call(Helper::Clock).store(Size::Long, R9, thread::START, R0);
    }

    /// Jumps to `out` unless the call that is left has failed.
    fn unless_failed(&self, p: &mut Assembler, out: super::Label) {
        // An error number less one, as an unsigned number: all else is larger.
        p.load(Size::Long, R2, R6, 8).set(R1, 0).calculate(Operation::Subtract, R1, R2).add(R1, -1);
        p.jump_if(R1, JumpCondition::AtLeast, LARGEST_ERROR, out);
    }

    /// `sys_exit(registers, result)`.
    pub(super) fn write_exit(&self, p: &mut Assembler) {
        let out = p.label();
        let maybe = p.label();
        p.set(R6, R1).load(Size::Long, R1, R6, 0);
        p.load(Size::Long, R7, R1, registers::ORIGINAL_AX);
        // `rt_sigreturn` leaves no number behind: what is kept of the thread decides.
        p.jump_if(R7, JumpCondition::AtLeast, CALLS.cast_signed(), maybe);
        self.load_watch(p, R7);
        p.jump_if(R1, JumpCondition::Equal, i32::from(table::UNWATCHED), out);
        let found = p.label();
        p.jump_if(R1, JumpCondition::Differ, i32::from(table::LONG_ONLY), maybe);
        p.call(Helper::CurrentTask).set(R8, R0);
        self.unless_main(p, out);
        p.jump(found).place(maybe).call(Helper::CurrentTask).set(R8, R0).place(found);
        self.find_thread(p, R8, 0);
        let (inside, known) = (p.label(), p.label());
        p.jump_if(R0, JumpCondition::Differ, 0, known);
        // It has entered no call since it is watched; this one may have been denied.
        p.jump_if(R7, JumpCondition::AtLeast, CALLS.cast_signed(), out);
        self.unless_failed(p, out);
        self.write_first_call(p, out);
        p.place(known).set(R9, R0);
        self.unless_owned(p, R8, out);
        p.load(Size::Word, R1, R9, thread::STATE);
        p.jump_if(R1, JumpCondition::Equal, thread::INSIDE, inside);
        p.jump_if(R1, JumpCondition::Differ, thread::OUTSIDE, out);
        self.write_denied(p, out);
        p.place(inside).call(Helper::Clock).store(Size::Long, R10, frame::NOW, R0);
        // The `execve` that is waited for failed: the next place in `PATH` is tried.
        let watched = p.label();
        p.load(Size::Word, R1, R9, thread::AWAITS).jump_if(R1, JumpCondition::Equal, 0, watched);
        p.store(Size::Word, R9, thread::STATE, thread::OUTSIDE).jump(out).place(watched);
        self.fields.task_times.write_read(p, R8);
        p.store(Size::Long, R10, frame::END_CPU, R1).store(Size::Long, R10, frame::QUEUED, R2);
        p.load(Size::Long, R3, R6, 8).store(Size::Long, R10, frame::RESULT, R3);

        let (interrupted, ended) = (p.label(), p.label());
        for restart in RESTARTS {
            p.jump_if(R3, JumpCondition::Equal, restart, interrupted);
        }
        p.jump(ended).place(interrupted);
        p.store(Size::Word, R9, thread::STATE, thread::INTERRUPTED);
        p.store(Size::Long, R9, thread::END_CPU, R1).store(Size::Long, R9, thread::END_DELAY, R2);
        p.store(Size::Long, R9, thread::END, R0);
        self.write_save_arguments(p);
        p.jump(out);

        p.place(ended).store(Size::Word, R9, thread::STATE, thread::OUTSIDE);
        self.write_account(p, Source::Registers);
        p.place(out).leave();
    }
}
