//! The programs: one for switches, one that prepares the timer of a thread, whose function is in `timer`, and those of `connections`.
//!
//! A wait for events is seen when the thread leaves its processor in it, and its end when the thread gets one again.
//! Registers by convention: `R6` what is kept of the thread, `R7` the time, `R8` the thread, `R9` the registers with which it
//! entered the kernel, or a length.

use sys::bpf::assembler::{
    AssembleError, Assembler, Helper, JumpCondition, Label, Operation, Register, Size,
};
use sys::bpf::owner::OwnerPlan;
use sys::bpf::{Instruction, SharedMap};

use trace::syscall::{EVENT_WAITS, SLEEPS};

use super::event::PLAIN_SLEEPS;
use super::layout::{place, record, shared, subject, thread};
use super::offsets::ThreadOffsets;
use crate::model::{FRAME_NS, HANG_NS, STEP_BOUNDS_NS};

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// An absence is reported after this time, in nanoseconds.
pub(super) const LATE_NS: i32 = 30_000_000;
/// A wait that is not classified is asked about after this time, in nanoseconds.
pub(super) const ASK_NS: i32 = 50_000_000;
/// The same before any is classified, in nanoseconds, because nothing is recorded of the thread until then, and of another wait at a
/// place of the main loop, because it counts as rest until then.
pub(super) const SOON_ASK_NS: i32 = 2_000_000;
/// A timer that is early by less than this is on time, in nanoseconds.
pub(super) const SLACK_NS: i32 = 1_000_000;
/// See [`EventWait::of`](super::EventWait::of).
const SECOND_SHIFT: i32 = super::event::SECOND_SHIFT.cast_signed();
/// Waits of a thread that is away are reported when together they have taken so long, in nanoseconds: shorter ones by one of
/// them, which stands for the others.
const SHORTEST_NS: i32 = 1_000_000;

/// Does not wake the reader of the ring.
const QUIETLY: i32 = 1;
/// Wakes the reader of the ring.
const WAKING: i32 = 2;
/// `BPF_RB_AVAIL_DATA`.
const UNREAD: i32 = 0;
/// `CLOCK_MONOTONIC`.
const MONOTONIC: i32 = 1;
/// The state of a thread that has ended.
const DEAD: i32 = 0x80;
/// The state of a thread that signals can wake.
const INTERRUPTIBLE: i32 = 1;
/// The state of a thread that another processor wakes already.
const BEING_WOKEN: i32 = 0x200;
/// The code segment of 32-bit code, whose calls have other numbers.
const CODE_SEGMENT_32: i32 = 0x23;
/// What a call seems to return as long as it is not over: `ENOSYS`.
const NOT_OVER: i32 = -38;

/// Offsets in `struct pt_regs` of x86-64, which is part of the kernel's interface.
mod registers {
    pub(super) const RESULT: i16 = 80;
    pub(super) const CALL: i16 = 120;
    pub(super) const IP: i16 = 128;
    pub(super) const CODE_SEGMENT: i16 = 136;
    pub(super) const SP: i16 = 152;
    /// The six arguments of a call.
    pub(super) const ARGUMENTS: [i16; 6] = [112, 104, 96, 56, 72, 64];
}

/// Words on the stack of a program, by their offset from the frame.
pub(super) mod frame {
    /// The number of the thread, in four bytes.
    pub(in super::super) const KEY: i16 = -8;
    /// The state in which the thread leaves its processor: 0 if it could run.
    pub(in super::super) const STATE: i16 = -16;
    /// The thread that gets the processor.
    pub(in super::super) const NEXT: i16 = -24;
    /// A key of the waits: the thread.
    pub(in super::super) const PLACE: i16 = PLACE_SP - 8;
    /// See `PLACE`: the stack pointer.
    pub(in super::super) const PLACE_SP: i16 = PLACE_IP - 8;
    /// See `PLACE`: the instruction.
    pub(in super::super) const PLACE_IP: i16 = PLACE_SUBJECT - 8;
    /// See `PLACE`: what is waited for.
    pub(in super::super) const PLACE_SUBJECT: i16 = NEXT - 8;
    /// The record.
    pub(in super::super) const RECORD: i16 = PLACE - super::record::SIZE;
    /// The moment and whether the thread was preempted, while an earlier moment is made up for.
    pub(in super::super) const NOW: i16 = RECORD - 8;
    /// See `NOW`.
    pub(in super::super) const PREEMPTED: i16 = NOW - 8;
    /// Eight bytes of a name.
    pub(in super::super) const WORD: i16 = PREEMPTED - 8;
    /// A name.
    pub(in super::super) const NAME: i16 = WORD - 112;
}

/// What the programs are written for.
#[derive(Clone, Copy, Debug)]
pub(super) struct HangPlan {
    pub(super) offsets: ThreadOffsets,
    pub(super) threads: SharedMap,
    pub(super) places: SharedMap,
    pub(super) words: SharedMap,
    /// The thread whose timer is to be prepared.
    pub(super) prepared: SharedMap,
    pub(super) ring: SharedMap,
    pub(super) ring_bytes: u32,
    /// The numbers of the calls in which event loops wait.
    pub(super) event_waits: [i32; EVENT_WAITS.len()],
    /// The numbers of those that may be sleeps, of [`SLEEPS`].
    pub(super) sleeps: [i32; SLEEPS.len()],
    /// The numbers of those that are nothing else, of [`PLAIN_SLEEPS`].
    pub(super) plain_sleeps: [i32; PLAIN_SLEEPS.len()],
    /// The number of the one whose second argument changes from wait to wait.
    pub(super) ring_enter: i32,
    /// The number of `restart_syscall`, by which such a wait goes on after a stop.
    pub(super) restart: i32,
    /// The number of the one by which locks are waited for, and in which some main loops wait.
    pub(super) lock_wait: i32,
    /// Whose connections to displays are told.
    pub(super) user: u32,
    /// Who may be told of a thread; nobody is asked if the reader has the rights to see all.
    pub(super) owner: Option<OwnerPlan>,
}

impl HangPlan {
    /// Writes the program of `sched_switch(preempted, previous, next, state)`.
    pub(super) fn switch(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let (next, out) = (p.label(), p.label());
        if self.offsets.switch_tells_state {
            p.load(Size::Long, R8, R1, 24).store(Size::Long, R10, frame::STATE, R8);
        }
        p.load(Size::Long, R8, R1, 16).store(Size::Long, R10, frame::NEXT, R8);
        p.load(Size::Long, R8, R1, 8).load(Size::Long, R9, R1, 0);
        p.calculate(Operation::And, R9, 0xff);
        self.find(p, next);
        self.write_leaves_processor(p, next);
        p.place(next).load(Size::Long, R8, R10, frame::NEXT);
        self.find(p, out);
        self.write_gets_processor(p, out);
        p.place(out).leave();
        program.finish()
    }

    /// Writes the program that prepares the timer of a thread: no memory may be taken in `sched_switch`.
    pub(super) fn prepare(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let (out, function) = (p.label(), p.label());
        p.set_array(R1, self.prepared).load(Size::Word, R1, R1, 0);
        p.store(Size::Word, R10, frame::KEY, R1);
        self.find_thread(p, out);
        let told = p.label();
        p.set(R1, R6).add(R1, i32::from(thread::TIMER)).set_map(R2, self.threads);
        p.set(R3, MONOTONIC).call(Helper::TimerInit).jump_if(R0, JumpCondition::Differ, 0, told);
        p.set(R1, R6).add(R1, i32::from(thread::TIMER)).set_function(R2, function);
        p.call(Helper::TimerSetCallback).jump_if(R0, JumpCondition::Differ, 0, told);
        p.store(Size::Long, R6, thread::ARMED, 0);
        // Says what came of it.
        p.place(told).set_array(R1, self.prepared).store(Size::Word, R1, 0, R0);
        p.place(out).leave();
        self.write_timer(p, function);
        program.finish()
    }

    /// Leaves in `R6` what is kept of the thread whose number is in the frame, or goes to `out`.
    fn find_thread(&self, p: &mut Assembler, out: Label) {
        p.set_map(R1, self.threads).set(R2, R10).add(R2, i32::from(frame::KEY));
        p.call(Helper::MapLookup).jump_if(R0, JumpCondition::Equal, 0, out).set(R6, R0);
    }

    /// Leaves in `R6` what is kept of the thread in `R8` and in `R7` the time, or goes to `out`.
    fn find(&self, p: &mut Assembler, out: Label) {
        p.load(Size::Word, R1, R8, self.offsets.thread);
        p.jump_if(R1, JumpCondition::Equal, 0, out).store(Size::Word, R10, frame::KEY, R1);
        self.find_thread(p, out);
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Equal, thread::GONE, out);
        p.call(Helper::Clock).set(R7, R0);
        self.check_owner(p, out);
    }

    /// Ends the mark of the thread in `R8` and goes to `out` if its owner may not look into its process any more. Nothing is
    /// told but that, also when he could again.
    fn check_owner(&self, p: &mut Assembler, out: Label) {
        let Some(owner) = &self.owner else { return };
        let (foreign, own) = (p.label(), p.label());
        owner.unless_owned_at_end(p, R8, foreign);
        p.jump(own).place(foreign).store(Size::Long, R6, thread::PHASE, thread::GONE);
        self.write_record(p, record::GONE);
        p.store(Size::Long, R10, frame::RECORD + record::START, 0);
        self.send(p);
        p.jump(out).place(own);
    }

    /// Goes to `out` if the thread in `R8` has other memory than it had: it has executed a program, or another process has its
    /// number.
    fn check_memory(&self, p: &mut Assembler, out: Label) {
        let (same, first) = (p.label(), p.label());
        p.load(Size::Long, R1, R8, self.offsets.memory);
        p.jump_if(R1, JumpCondition::Equal, 0, same);
        p.load(Size::Long, R2, R6, thread::MEMORY).jump_if(R2, JumpCondition::Equal, 0, first);
        p.jump_if(R1, JumpCondition::Equal, R2, same);
        self.write_gone(p);
        p.jump(out).place(first).store(Size::Long, R6, thread::MEMORY, R1).place(same);
    }

    /// Leaves in `R0` what the last wait for events is, or 0.
    fn find_wait(&self, p: &mut Assembler) {
        p.load(Size::Long, R1, R6, thread::WAIT_SUBJECT);
        p.store(Size::Long, R10, frame::PLACE_SUBJECT, R1);
        self.find_key(p);
    }

    /// Leaves in `R0` what the waits at its place are of which nothing is known, or 0.
    fn find_place(&self, p: &mut Assembler) {
        p.store(Size::Long, R10, frame::PLACE_SUBJECT, -1);
        self.find_key(p);
    }

    fn find_key(&self, p: &mut Assembler) {
        p.load(Size::Word, R1, R10, frame::KEY).store(Size::Long, R10, frame::PLACE, R1);
        for (from, to) in [(thread::WAIT_SP, frame::PLACE_SP), (thread::WAIT_IP, frame::PLACE_IP)] {
            p.load(Size::Long, R1, R6, from).store(Size::Long, R10, to, R1);
        }
        p.set_map(R1, self.places).set(R2, R10).add(R2, i32::from(frame::PLACE));
        p.call(Helper::MapLookup);
    }

    /// Notes the wait with the registers in `R9`, and what the absence's time went to until then.
    fn note_wait(&self, p: &mut Assembler) {
        let [first, second, ..] = registers::ARGUMENTS;
        let without_second = p.label();
        let of_lock = p.label();
        p.load(Size::Long, R2, R9, registers::CALL).set_long(R1, subject::LOCK);
        p.jump_if(R2, JumpCondition::Equal, self.lock_wait, of_lock).load(
            Size::Long,
            R1,
            R9,
            first,
        );
        p.jump_if(R2, JumpCondition::Equal, self.ring_enter, without_second);
        p.load(Size::Long, R2, R9, second).calculate(Operation::Left, R2, SECOND_SHIFT);
        p.calculate(Operation::Add, R1, R2).place(without_second).place(of_lock);
        self.note_wait_for(p);
    }

    /// The same of a wait for what is in `R1`.
    fn note_wait_for(&self, p: &mut Assembler) {
        p.store(Size::Long, R6, thread::WAIT_SUBJECT, R1).store(Size::Long, R6, thread::WAIT, R7);
        for (from, to) in [(registers::SP, thread::WAIT_SP), (registers::IP, thread::WAIT_IP)] {
            p.load(Size::Long, R1, R9, from).store(Size::Long, R6, to, R1);
        }
        p.load(Size::Long, R1, R6, thread::OFF_TOTAL);
        p.store(Size::Long, R6, thread::WAIT_OFF_TOTAL, R1);
        self.load_ready(p);
        p.store(Size::Long, R6, thread::WAIT_READY, R1);
        self.load_faults(p);
        p.store(Size::Long, R6, thread::WAIT_FAULTS, R1);
    }

    /// Notes in which call the thread in `R8` leaves its processor: when it is told that it has got one, it may be in another one.
    fn note_call(&self, p: &mut Assembler) {
        let (over, in_call, done) = (p.label(), p.label(), p.label());
        p.store(Size::Long, R6, thread::OFF_CALL, -1);
        p.set(R1, R8).call(Helper::TaskRegisters).jump_if(R0, JumpCondition::Equal, 0, done);
        p.load(Size::Long, R1, R0, registers::RESULT);
        p.jump_if(R1, JumpCondition::Differ, NOT_OVER, over);
        p.load(Size::Long, R1, R0, registers::CALL).jump(in_call).place(over).set(R1, -1);
        p.place(in_call).store(Size::Long, R6, thread::OFF_CALL, R1);
        for (from, to) in [(registers::SP, thread::OFF_SP), (registers::IP, thread::OFF_IP)] {
            p.load(Size::Long, R1, R0, from).store(Size::Long, R6, to, R1);
        }
        for (to, from) in (thread::OFF_ARGUMENTS..).step_by(8).zip(registers::ARGUMENTS) {
            p.load(Size::Long, R1, R0, from).store(Size::Long, R6, to, R1);
        }
        p.place(done);
    }

    /// Puts the time of waiting for processors of the absence of the thread in `R8` into `R1`.
    fn load_ready(&self, p: &mut Assembler) {
        let Some(ready) = self.offsets.ready else {
            p.set(R1, 0);
            return;
        };
        p.load(Size::Long, R1, R8, ready).load(Size::Long, R2, R6, thread::START_READY);
        p.calculate(Operation::Subtract, R1, R2);
    }

    /// Puts the number of major page faults of the absence of the thread in `R8` into `R1`.
    fn load_faults(&self, p: &mut Assembler) {
        p.load(Size::Long, R1, R8, self.offsets.faults);
        p.load(Size::Long, R2, R6, thread::START_FAULTS);
        p.calculate(Operation::Subtract, R1, R2);
    }

    /// Begins an absence of the thread in `R8` now.
    fn write_begin(&self, p: &mut Assembler) {
        p.store(Size::Long, R6, thread::START, R7);
        for word in [
            thread::START_READY,
            thread::OFF_TOTAL,
            thread::OFF,
            thread::OWED,
            thread::DROPPED,
            thread::REPORTED,
            thread::ASKS,
            thread::WAIT,
        ] {
            p.store(Size::Long, R6, word, 0);
        }
        if let Some(ready) = self.offsets.ready {
            p.load(Size::Long, R1, R8, ready).store(Size::Long, R6, thread::START_READY, R1);
        }
        p.load(Size::Long, R1, R8, self.offsets.faults);
        p.store(Size::Long, R6, thread::START_FAULTS, R1);
        p.store(Size::Long, R6, thread::PHASE, thread::AWAY);
        Self::note_turn(p);
    }

    /// Orders what was stored before it is read whether the timer runs.
    fn note_turn(p: &mut Assembler) {
        p.set(R1, 1).add_shared(R6, thread::TURNS, R1);
    }

    /// Counts the step that ends now, and reports it if it was long.
    fn write_end(&self, p: &mut Assembler) {
        let (counted, found, report, done) = (p.label(), p.label(), p.label(), p.label());
        p.load(Size::Long, R1, R6, thread::KNOWN).jump_if(R1, JumpCondition::Equal, 0, done);
        p.load(Size::Long, R1, R6, thread::START).set(R9, R7);
        p.calculate(Operation::Subtract, R9, R1);
        p.set_long(R2, FRAME_NS).jump_if(R9, JumpCondition::Below, R2, counted).set(R1, R6);
        for bound in STEP_BOUNDS_NS {
            p.set_long(R2, bound).jump_if(R9, JumpCondition::Below, R2, found).add(R1, 8);
        }
        p.place(found).load(Size::Long, R2, R1, thread::STEPS).add(R2, 1);
        p.store(Size::Long, R1, thread::STEPS, R2).place(counted);
        p.set_long(R2, HANG_NS).jump_if(R9, JumpCondition::AtLeast, R2, report);
        p.load(Size::Long, R1, R6, thread::REPORTED).jump_if(R1, JumpCondition::Equal, 0, done);
        p.place(report);
        self.write_record(p, record::ENDED);
        self.write_account(p);
        self.send(p);
        p.place(done);
    }

    /// Reports that the thread in `R8` is not followed any more.
    fn write_gone(&self, p: &mut Assembler) {
        let sent = p.label();
        self.write_record(p, record::GONE);
        p.load(Size::Long, R1, R6, thread::PHASE);
        let without = p.label();
        // Before the main loop is known nobody knows whether it was away from it.
        p.jump_if(R1, JumpCondition::Differ, thread::AWAY, without);
        p.load(Size::Long, R1, R6, thread::KNOWN).jump_if(R1, JumpCondition::Equal, 0, without);
        self.write_account(p);
        p.jump(sent).place(without).store(Size::Long, R10, frame::RECORD + record::START, 0);
        p.place(sent).store(Size::Long, R6, thread::PHASE, thread::GONE);
        self.send(p);
    }

    /// Makes up for what was not told: that the thread in `R8`, which leaves its processor now, has got it. When is noted by the
    /// kernel with a clock of its own, which was compared when the thread last got a processor.
    fn write_arrival_unless_told(&self, p: &mut Assembler, done: Label) {
        let Some(arrived) = self.offsets.arrived else { return };
        let (told, end) = (p.label(), p.label());
        p.load(Size::Long, R1, R6, thread::LEFT).jump_if(R1, JumpCondition::Equal, 0, told);
        p.load(Size::Long, R2, R6, thread::AHEAD).jump_if(R2, JumpCondition::Equal, 0, end);
        p.store(Size::Long, R10, frame::NOW, R7).store(Size::Long, R10, frame::PREEMPTED, R9);
        // The two clocks go apart by little: it was after the thread has left, and is over.
        let (not_early, not_late) = (p.label(), p.label());
        p.load(Size::Long, R1, R8, arrived).calculate(Operation::Add, R1, R2);
        p.load(Size::Long, R2, R6, thread::LEFT).jump_if(R1, JumpCondition::AtLeast, R2, not_early);
        p.set(R1, R2).place(not_early).jump_if(R1, JumpCondition::AtLeast, R7, not_late);
        p.set(R7, R1).place(not_late);
        let made_up = p.label();
        self.write_gets_processor(p, made_up);
        p.place(made_up);
        p.load(Size::Long, R7, R10, frame::NOW).load(Size::Long, R9, R10, frame::PREEMPTED);
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Equal, thread::GONE, done).jump(end).place(told);
        p.load(Size::Long, R1, R6, thread::ARRIVED).jump_if(R1, JumpCondition::Equal, 0, end);
        p.load(Size::Long, R2, R8, arrived).calculate(Operation::Subtract, R1, R2);
        p.store(Size::Long, R6, thread::AHEAD, R1).place(end);
    }

    /// The thread in `R8` leaves its processor; `R9` says whether it was preempted.
    fn write_leaves_processor(&self, p: &mut Assembler, done: Label) {
        self.write_arrival_unless_told(p, done);
        p.store(Size::Long, R6, thread::LEFT, R7);
        let (alive, blocked, off) = (p.label(), p.label(), p.label());
        let (is_wait, is_loop, nested) = (p.label(), p.label(), p.label());
        p.load(Size::Word, R1, R8, self.offsets.state).set(R2, R1);
        p.calculate(Operation::And, R2, DEAD).jump_if(R2, JumpCondition::Equal, 0, alive);
        self.write_gone(p);
        p.jump(done).place(alive).store(Size::Long, R6, thread::WAIT, 0);
        // It has been blocked, and another processor wakes it already: in which state it was is not in it any more.
        let settled = p.label();
        p.jump_if(R1, JumpCondition::Differ, BEING_WOKEN, settled);
        if self.offsets.switch_tells_state {
            p.load(Size::Word, R1, R10, frame::STATE);
        } else {
            p.set(R1, INTERRUPTIBLE);
        }
        p.place(settled);
        p.jump_if(R9, JumpCondition::Equal, 0, blocked).set(R1, 0).place(blocked);
        p.store(Size::Long, R10, frame::STATE, R1);
        p.jump_if(R1, JumpCondition::Equal, 0, off);
        p.calculate(Operation::And, R1, INTERRUPTIBLE).jump_if(R1, JumpCondition::Equal, 0, off);
        p.set(R1, R8).call(Helper::TaskRegisters).jump_if(R0, JumpCondition::Equal, 0, off);
        p.set(R9, R0);
        // After the call a stop may follow, with the call's number still there.
        p.load(Size::Long, R1, R9, registers::RESULT);
        p.jump_if(R1, JumpCondition::Differ, NOT_OVER, off);
        p.load(Size::Long, R1, R9, registers::CODE_SEGMENT);
        p.jump_if(R1, JumpCondition::Equal, CODE_SEGMENT_32, off);
        p.load(Size::Long, R1, R9, registers::CALL);
        for number in self.event_waits {
            p.jump_if(R1, JumpCondition::Equal, number, is_wait);
        }
        let (of_sleep, of_known) = (p.label(), p.label());
        for number in self.plain_sleeps {
            p.jump_if(R1, JumpCondition::Equal, number, of_sleep);
        }
        p.jump_if(R1, JumpCondition::Equal, self.lock_wait, of_known);
        p.jump_if(R1, JumpCondition::Differ, self.restart, off).place(of_known);
        // Of locks and of calls that are restarted only those at a known place are waits for events, or where the last one was.
        self.note_wait(p);
        self.find_wait(p);
        let known = p.label();
        let other = p.label();
        p.jump_if(R0, JumpCondition::Differ, 0, known);
        for (now, last) in [(thread::WAIT_SP, thread::LOOP_SP), (thread::WAIT_IP, thread::LOOP_IP)]
        {
            p.load(Size::Long, R1, R6, now).load(Size::Long, R2, R6, last);
            p.jump_if(R1, JumpCondition::Differ, R2, other);
        }
        // One for a lock may be that of a dialog, where the main loop's is one, too: that is asked about by who reads.
        p.jump(is_loop).place(other).load(Size::Long, R1, R9, registers::CALL);
        p.jump_if(R1, JumpCondition::Equal, self.lock_wait, off);
        let none = p.label();
        p.place(none).store(Size::Long, R6, thread::WAIT, 0).jump(off);
        // A program may sleep and look for events in turns. A long sleep turns out to be no rest.
        p.place(of_sleep).set_long(R1, subject::SLEEP);
        self.note_wait_for(p);
        self.note_call(p);
        self.find_wait(p);
        p.jump_if(R0, JumpCondition::Equal, 0, none).jump(known);

        let (asks, decided) = (p.label(), p.label());
        p.place(is_wait);
        for (number, call) in self.sleeps.into_iter().zip(SLEEPS) {
            let waits = p.label();
            p.jump_if(R1, JumpCondition::Differ, number, waits);
            p.load(Size::Word, R2, R9, registers::ARGUMENTS[call.count]);
            p.jump_if(R2, JumpCondition::Differ, 0, waits);
            p.load(Size::Long, R2, R9, registers::ARGUMENTS[call.time]);
            p.jump_if(R2, JumpCondition::Differ, 0, of_sleep).place(waits);
        }
        self.note_wait(p);
        self.find_wait(p);
        p.jump_if(R0, JumpCondition::Differ, 0, known);
        // Until it is classified it is what others at its place are.
        self.find_place(p);
        p.jump_if(R0, JumpCondition::Equal, 0, asks).load(Size::Word, R1, R0, 0);
        p.jump_if(R1, JumpCondition::Differ, place::LOOP, decided);
        p.store(Size::Long, R6, thread::ASKS, 2).jump(is_loop);
        p.place(known).load(Size::Word, R1, R0, 0).place(decided);
        p.store(Size::Long, R6, thread::ASKS, 0);
        p.jump_if(R1, JumpCondition::Differ, place::NESTED, is_loop).jump(nested).place(asks);
        // Until it is classified, the shallowest wait counts as that of the main loop.
        // While a program starts, all waits are asked about: the shallowest one may be made before the main loop.
        let (not_shallow, asked) = (p.label(), p.label());
        p.load(Size::Long, R1, R6, thread::WAIT_SP).load(Size::Long, R2, R6, thread::SHALLOWEST);
        p.jump_if(R1, JumpCondition::Below, R2, not_shallow);
        p.store(Size::Long, R6, thread::SHALLOWEST, R1).jump(asked).place(not_shallow);
        p.load(Size::Long, R1, R6, thread::KNOWN).jump_if(R1, JumpCondition::Differ, 0, nested);
        p.place(asked).store(Size::Long, R6, thread::ASKS, 1);
        p.place(is_loop);
        self.write_rests(p);
        p.jump(done).place(nested).place(off).load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Differ, thread::AWAY, done);
        p.store(Size::Long, R6, thread::OFF, R7).load(Size::Long, R1, R10, frame::STATE);
        p.store(Size::Long, R6, thread::OFF_STATE, R1);
        self.note_call(p);
        // The wait for a processor before the absence is counted by the kernel only after its beginning.
        if let Some(ready) = self.offsets.ready {
            p.load(Size::Long, R1, R6, thread::OFF_TOTAL);
            p.jump_if(R1, JumpCondition::Differ, 0, done);
            p.load(Size::Long, R1, R8, ready).store(Size::Long, R6, thread::START_READY, R1);
        }
    }

    /// The thread in `R8` is in the wait of its main loop.
    fn write_rests(&self, p: &mut Assembler) {
        let (not_away, known, done) = (p.label(), p.label(), p.label());
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Differ, thread::AWAY, not_away);
        self.write_end(p);
        p.place(not_away).load(Size::Long, R1, R6, thread::ASKS);
        p.jump_if(R1, JumpCondition::Differ, 0, known);
        self.note_known(p);
        p.place(known);
        for (from, to) in [(thread::WAIT_SP, thread::LOOP_SP), (thread::WAIT_IP, thread::LOOP_IP)] {
            p.load(Size::Long, R1, R6, from).store(Size::Long, R6, to, R1);
        }
        p.store(Size::Long, R6, thread::PHASE, thread::WAITING);
        p.load(Size::Long, R1, R6, thread::ASKS).jump_if(R1, JumpCondition::Equal, 0, done);
        Self::note_turn(p);
        // It may turn out to be no rest.
        self.note_call(p);
        let later = p.label();
        Self::load_ask_ns(p);
        p.jump_if(R2, JumpCondition::Equal, ASK_NS, later);
        self.arm(p, SOON_ASK_NS, done);
        p.jump(done).place(later);
        self.arm(p, ASK_NS, done);
        p.place(done);
    }

    /// The wait of the thread in `R8` was taken for the main loop's, and is one inside of a step: that has begun with it, as far as is
    /// known. Goes to `out` where no main loop is known.
    fn write_was_away(&self, p: &mut Assembler, out: Label) {
        let known = p.label();
        p.load(Size::Long, R1, R6, thread::KNOWN).jump_if(R1, JumpCondition::Differ, 0, known);
        p.store(Size::Long, R6, thread::WAIT, 0);
        p.store(Size::Long, R6, thread::PHASE, thread::UNKNOWN).jump(out).place(known);
        p.load(Size::Long, R1, R6, thread::WAIT).store(Size::Long, R6, thread::START, R1);
        p.store(Size::Long, R6, thread::OFF, R1);
        p.store(Size::Long, R6, thread::OFF_STATE, INTERRUPTIBLE);
        for (start, since) in
            [(thread::START_READY, thread::WAIT_READY), (thread::START_FAULTS, thread::WAIT_FAULTS)]
        {
            p.load(Size::Long, R1, R6, start).load(Size::Long, R2, R6, since);
            p.calculate(Operation::Add, R1, R2).store(Size::Long, R6, start, R1);
        }
        for word in [thread::OFF_TOTAL, thread::OWED, thread::DROPPED, thread::REPORTED] {
            p.store(Size::Long, R6, word, 0);
        }
        p.store(Size::Long, R6, thread::PHASE, thread::AWAY);
        Self::note_turn(p);
        let armed = p.label();
        self.arm(p, SLACK_NS, armed);
        p.place(armed);
    }

    /// Notes that the main loop is known from now on, unless it was before.
    fn note_known(&self, p: &mut Assembler) {
        let known = p.label();
        p.load(Size::Long, R1, R6, thread::KNOWN).jump_if(R1, JumpCondition::Differ, 0, known);
        p.store(Size::Long, R6, thread::KNOWN, R7).place(known);
    }

    /// The thread in `R8` gets a processor.
    fn write_gets_processor(&self, p: &mut Assembler, out: Label) {
        let (away, dropped, leaves, not_known) = (p.label(), p.label(), p.label(), p.label());
        let at_loop = p.label();
        p.store(Size::Long, R6, thread::LEFT, 0).store(Size::Long, R6, thread::ARRIVED, R7);
        self.check_memory(p, out);
        p.load(Size::Long, R1, R6, thread::WAIT).jump_if(R1, JumpCondition::Equal, 0, away);
        self.find_wait(p);
        p.jump_if(R0, JumpCondition::Equal, 0, not_known).load(Size::Word, R1, R0, 0);
        p.jump_if(R1, JumpCondition::Equal, place::LOOP, at_loop);
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Differ, thread::WAITING, away);
        self.write_was_away(p, out);
        p.jump(away).place(not_known).load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Differ, thread::WAITING, away).jump(leaves).place(at_loop);
        // Nobody looks for events in a sleep: a long one is a part of a step.
        let short = p.label();
        p.load(Size::Long, R1, R6, thread::WAIT_SUBJECT).set_long(R2, subject::SLEEP);
        p.jump_if(R1, JumpCondition::Differ, R2, short).load(Size::Long, R1, R6, thread::WAIT);
        p.set(R2, R7).calculate(Operation::Subtract, R2, R1).set_long(R1, HANG_NS);
        p.jump_if(R2, JumpCondition::Below, R1, short);
        self.write_was_away(p, out);
        p.jump(away).place(short);
        self.note_known(p);
        p.place(leaves);
        self.write_begin(p);
        self.arm(p, LATE_NS, out);
        p.jump(out).place(away).store(Size::Long, R6, thread::WAIT, 0);
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Differ, thread::AWAY, out);
        p.load(Size::Long, R1, R6, thread::OFF).jump_if(R1, JumpCondition::Equal, 0, out);
        p.store(Size::Long, R6, thread::OFF, 0);
        p.store(Size::Long, R10, frame::PLACE, R1).set(R2, R7);
        p.calculate(Operation::Subtract, R2, R1).load(Size::Long, R3, R6, thread::OFF_TOTAL);
        p.add(R3, R2).store(Size::Long, R6, thread::OFF_TOTAL, R3);
        let (preempted, due) = (p.label(), p.label());
        p.load(Size::Long, R3, R6, thread::OFF_STATE).jump_if(
            R3,
            JumpCondition::Equal,
            0,
            preempted,
        );
        p.load(Size::Long, R3, R6, thread::OWED).calculate(Operation::Add, R3, R2);
        p.store(Size::Long, R6, thread::OWED, R3);
        p.jump_if(R3, JumpCondition::Below, SHORTEST_NS, out).jump(due);
        p.place(preempted).jump_if(R2, JumpCondition::Below, SHORTEST_NS, out).place(due);
        // With the ring half full, begin and end of absences are better than what is between.
        p.set_map(R1, self.ring).set(R2, UNREAD).call(Helper::RingQuery);
        let half = (self.ring_bytes / 2).cast_signed();
        p.jump_if(R0, JumpCondition::AtLeast, half, dropped);
        self.write_record(p, record::WAITED);
        let at = |offset: i16| frame::RECORD + offset;
        self.write_account(p);
        p.load(Size::Long, R1, R10, frame::PLACE).store(Size::Long, R10, at(record::FROM), R1);
        p.load(Size::Long, R1, R6, thread::OFF_STATE);
        p.store(Size::Long, R10, at(record::STATE), R1);
        for (from, to) in [
            (thread::OFF_CALL, record::CALL),
            (thread::OFF_SP, record::SP),
            (thread::OFF_IP, record::IP),
        ] {
            p.load(Size::Long, R1, R6, from).store(Size::Long, R10, at(to), R1);
        }
        for word in (0..48).step_by(8) {
            p.load(Size::Long, R1, R6, thread::OFF_ARGUMENTS + word);
            p.store(Size::Long, R10, at(record::ARGUMENTS + word), R1);
        }
        let sent = p.label();
        p.load(Size::Long, R1, R6, thread::OFF_STATE).jump_if(R1, JumpCondition::Equal, 0, sent);
        p.load(Size::Long, R1, R6, thread::OWED).store(Size::Long, R10, at(record::OWED), R1);
        p.place(sent);
        self.output(p, QUIETLY);
        p.jump_if(R0, JumpCondition::Differ, 0, dropped);
        p.load(Size::Long, R1, R6, thread::OFF_STATE).jump_if(R1, JumpCondition::Equal, 0, out);
        p.store(Size::Long, R6, thread::OWED, 0).jump(out).place(dropped);
        p.load(Size::Long, R1, R6, thread::DROPPED).add(R1, 1);
        p.store(Size::Long, R6, thread::DROPPED, R1);
    }

    /// Begins a record of the marked thread whose number is in the frame.
    pub(super) fn write_record(&self, p: &mut Assembler, kind: i32) {
        Self::write_head(p, kind);
        p.load(Size::Long, R1, R6, thread::START);
        p.store(Size::Long, R10, frame::RECORD + record::START, R1);
    }

    /// Begins a record of the thread whose number is in the frame, marked or not.
    pub(super) fn write_head(p: &mut Assembler, kind: i32) {
        for word in (0..record::SIZE).step_by(8) {
            p.store(Size::Long, R10, frame::RECORD + word, 0);
        }
        p.store(Size::Long, R10, frame::RECORD + record::KIND, kind);
        p.load(Size::Word, R1, R10, frame::KEY);
        p.store(Size::Long, R10, frame::RECORD + record::THREAD, R1);
        p.store(Size::Long, R10, frame::RECORD + record::AT, R7);
    }

    /// Adds to the record what the absence of the thread in `R8` went to.
    fn write_account(&self, p: &mut Assembler) {
        let at = |offset: i16| frame::RECORD + offset;
        for (from, to) in
            [(thread::OFF_TOTAL, record::OFF_TOTAL), (thread::DROPPED, record::DROPPED)]
        {
            p.load(Size::Long, R1, R6, from).store(Size::Long, R10, at(to), R1);
        }
        self.load_ready(p);
        p.store(Size::Long, R10, at(record::READY), R1);
        self.load_faults(p);
        p.store(Size::Long, R10, at(record::FAULTS), R1);
    }

    /// Sends the record and wakes the reader, or counts it as lost.
    pub(super) fn send(&self, p: &mut Assembler) {
        let sent = p.label();
        self.output(p, WAKING);
        p.jump_if(R0, JumpCondition::Equal, 0, sent);
        p.set_array(R1, self.words).set(R2, 1).add_shared(R1, shared::LOST, R2).place(sent);
    }

    fn output(&self, p: &mut Assembler, wake: i32) {
        p.set_map(R1, self.ring).set(R2, R10).add(R2, i32::from(frame::RECORD));
        p.set(R3, i32::from(record::SIZE)).set(R4, wake).call(Helper::RingOutput);
    }
}

/// The stack of a program has 512 bytes.
const _: () = assert!(frame::NAME >= -512);
