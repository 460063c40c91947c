//! Putting a record together and sending it.

use super::account::Source;
use super::{KernelStacks, Label, ProgramPlan, WakeupPolicy, frame, registers};
use crate::layout::{CALLS, record, shared, table, thread};
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// Does not wake the reader of the ring.
const QUIETLY: i32 = 1;
/// Wakes the reader of the ring.
const WAKING: i32 = 2;
/// How long a reader is left asleep at least: a millisecond.
const REST_NS: i32 = 1_000_000;
/// `BPF_RB_AVAIL_DATA`.
const UNREAD: i32 = 0;
/// Pages of stack that are tried one by one.
const PAGE: i32 = 4096;

impl ProgramPlan {
    /// Leaves the room for a record in `R7`, or goes to `out`.
    pub(super) fn find_scratch(&self, p: &mut Assembler, out: Label) {
        p.store(Size::Word, R10, frame::SMALL_KEY, 0);
        self.find(p, self.maps.scratch, frame::SMALL_KEY);
        p.jump_if(R0, JumpCondition::Equal, 0, out).set(R7, R0);
    }

    /// Reports the call of the thread in `R9`, or goes to `out` where there is no room. Leaves the record in `R7`, and clobbers all other
    /// registers but `R6`.
    pub(super) fn write_call_record(&self, p: &mut Assembler, source: Source, out: Label) {
        self.find_scratch(p, out);
        p.store(Size::Word, R7, record::KIND, record::CALL);
        p.store(Size::Word, R7, record::FLAGS, 0);
        for (from, to) in [
            (thread::THREAD, record::THREAD),
            (thread::PROCESS, record::PROCESS),
            (thread::NUMBER, record::NUMBER),
            (thread::WAKER, record::WAKER),
        ] {
            p.load(Size::Word, R1, R9, from).store(Size::Word, R7, to, R1);
        }
        p.load(Size::Long, R1, R9, thread::START).store(Size::Long, R7, record::START, R1);
        for (from, to) in [
            (frame::WALL, record::WALL),
            (frame::CPU, record::CPU),
            (frame::QUEUED, record::QUEUED),
            (frame::RESULT, record::RESULT),
        ] {
            p.load(Size::Long, R1, R10, from).store(Size::Long, R7, to, R1);
        }
        for nothing in [record::FIRST_PATH, record::NAMES, record::PEER, record::SOCKET_TYPE] {
            p.store(Size::Long, R7, nothing, 0);
        }
        p.store(Size::Word, R7, record::NAMES_OF, record::OF_NOTHING);
        p.store(Size::Long, R7, record::ARGUMENTS + 48, -1);
        p.load(Size::Long, R1, R10, frame::SHORT);
        p.store(Size::Long, R7, record::SHORT, R1);
        let (kept, send) = (p.label(), p.label());
        p.set(R8, 0);
        if source == Source::Registers {
            let from_registers = p.label();
            p.load(Size::Word, R1, R9, thread::NUMBER);
            self.unless_exec(p, R1, from_registers);
            self.write_kept_arguments(p);
            // After another program was started, the old one's memory is gone.
            p.load(Size::Long, R1, R7, record::RESULT).jump_if(R1, JumpCondition::Equal, 0, send);
            p.jump(kept).place(from_registers);
            p.load(Size::Long, R1, R6, 0);
            for (index, register) in (0_i16..).zip(registers::ARGUMENTS) {
                p.load(Size::Long, R2, R1, register);
                p.store(Size::Long, R7, record::ARGUMENTS + 8 * index, R2);
            }
            self.write_memory(p);
            p.place(kept);
            self.write_path(p, table::FIRST_PATH, record::FIRST_PATH);
            self.write_path(p, table::SECOND_PATH, record::SECOND_PATH);
            if let Some(paths) = &self.fields.paths {
                self.write_names(p, paths, self.fields.sockets.as_ref());
            }
            if self.stacks == KernelStacks::Copied {
                self.write_stack(p);
            }
        } else {
            // The program goes on in a handler already; what the call worked on may be gone.
            self.write_kept_arguments(p);
        }
        p.place(send).add(R8, i32::from(record::DATA));
        self.write_send(p, shared::LOST_CALLS);
    }

    /// Copies the list of a `poll`, the sets of a `select` and the address of a `connect`: when user space looks, their memory holds something else.
    ///
    /// They have no paths, and are the first of the data.
    fn write_memory(&self, p: &mut Assembler) {
        let (list, list_fits, address_fits) = (p.label(), p.label(), p.label());
        let (copy, done) = (p.label(), p.label());
        self.load_column(p, table::DESCRIPTOR);
        p.jump_if(R1, JumpCondition::Equal, i32::from(table::POLLED), list);
        p.load(Size::Word, R1, R7, record::NUMBER);
        let (selects, other) = (p.label(), p.label());
        for select in self.selects {
            p.jump_if(R1, JumpCondition::Equal, select, selects);
        }
        p.jump(other).place(selects);
        for word in [0, 8] {
            p.load(Size::Long, R2, R9, thread::SETS + word);
            p.store(Size::Long, R7, record::DATA + word, R2);
        }
        p.set(R8, 16).store(Size::Word, R7, record::SECOND_PATH, R8).jump(done).place(other);
        p.jump_if(R1, JumpCondition::Differ, self.connect, done);
        p.load(Size::Word, R2, R7, record::ARGUMENTS + 16);
        p.load(Size::Long, R3, R7, record::ARGUMENTS + 8);
        p.jump_if(R2, JumpCondition::AtMost, record::CONNECT_LIMIT, address_fits);
        p.set(R2, record::CONNECT_LIMIT).place(address_fits).jump(copy);
        p.place(list).load(Size::Long, R2, R7, record::ARGUMENTS + 8);
        p.load(Size::Long, R3, R7, record::ARGUMENTS);
        p.jump_if(R2, JumpCondition::AtMost, record::POLL_LIST_LIMIT / 8, list_fits);
        p.set(R2, record::POLL_LIST_LIMIT / 8).place(list_fits);
        p.calculate(Operation::Left, R2, 3);
        p.place(copy).jump_if(R2, JumpCondition::Equal, 0, done);
        p.store(Size::Long, R10, frame::SMALL_VALUE, R2);
        self.data_address(p);
        p.call(Helper::ReadUser).jump_if(R0, JumpCondition::Differ, 0, done);
        p.load(Size::Long, R8, R10, frame::SMALL_VALUE);
        p.store(Size::Word, R7, record::SECOND_PATH, R8);
        // What the call waited for: its only descriptor, or the first that is ready. Its file is looked up as an argument's.
        self.load_column(p, table::DESCRIPTOR);
        p.jump_if(R1, JumpCondition::Differ, i32::from(table::POLLED), done);
        p.load(Size::Word, R1, R7, record::DATA).load(Size::Long, R2, R7, record::ARGUMENTS + 8);
        let found = p.label();
        p.jump_if(R2, JumpCondition::Equal, 1, found);
        for entry in 0_i16..16 {
            let at = record::DATA + 8 * entry;
            p.jump_if(R2, JumpCondition::AtMost, i32::from(entry), done);
            p.load(Size::Word, R1, R7, at).load(Size::Half, R3, R7, at + 6);
            p.jump_if(R3, JumpCondition::Differ, 0, found);
        }
        p.jump(done).place(found).store(Size::Word, R7, record::ARGUMENTS + 48, R1).place(done);
    }

    fn write_kept_arguments(&self, p: &mut Assembler) {
        for index in 0_i16..6 {
            p.load(Size::Long, R2, R9, thread::ARGUMENTS + 8 * index);
            p.store(Size::Long, R7, record::ARGUMENTS + 8 * index, R2);
        }
    }

    /// Puts the number of the argument in this column of the table, plus one, into `R1`.
    pub(super) fn load_column(&self, p: &mut Assembler, column: i16) {
        p.set_array(R1, self.maps.table).load(Size::Word, R2, R7, record::NUMBER);
        p.calculate(Operation::And, R2, CALLS.cast_signed() - 1).calculate(Operation::Left, R2, 2);
        p.add(R1, R2).load(Size::Byte, R1, R1, column);
    }

    /// Puts the argument whose number plus one is in `R1` into `R3`.
    pub(super) fn load_argument(&self, p: &mut Assembler) {
        p.add(R1, -1).calculate(Operation::And, R1, 7).calculate(Operation::Left, R1, 3);
        p.set(R2, R7).add(R2, R1).load(Size::Long, R3, R2, record::ARGUMENTS);
    }

    /// Adds the path in the argument of this column, if there is one, to the `R8` bytes of data.
    fn write_path(&self, p: &mut Assembler, column: i16, length: i16) {
        let none = p.label();
        self.load_column(p, column);
        p.jump_if(R1, JumpCondition::Equal, 0, none);
        self.load_argument(p);
        self.data_address(p);
        p.set(R2, record::USER_PATH).call(Helper::ReadUserText);
        p.jump_if(R0, JumpCondition::SignedAtMost, 0, none);
        p.store(Size::Word, R7, length, R0).add(R8, R0).place(none);
    }

    /// Puts the address of the next free byte of data into `R1`; `R8` says how many there are.
    pub(super) fn data_address(&self, p: &mut Assembler) {
        p.set(R1, R7).add(R1, i32::from(record::DATA)).add(R1, R8);
    }

    /// Adds the registers and as much of the stack as there is to the data.
    fn write_stack(&self, p: &mut Assembler) {
        let (done, whole, some, no_room) = (p.label(), p.label(), p.label(), p.label());
        p.load(Size::Long, R1, R6, 0);
        for word in 0..record::REGISTERS_SIZE / 8 {
            p.load(Size::Long, R2, R1, 8 * word);
            p.store(Size::Long, R7, record::REGISTERS + 8 * word, R2);
        }
        // With the ring half full, calls without stacks are better than no calls.
        p.set_map(R1, self.maps.ring).set(R2, UNREAD).call(Helper::RingQuery);
        p.jump_if(R0, JumpCondition::AtLeast, (self.ring_bytes / 2).cast_signed(), no_room);

        let stack_pointer = record::REGISTERS + registers::STACK_POINTER;
        p.set(R9, record::STACK_LIMIT);
        self.data_address(p);
        p.set(R2, record::STACK_LIMIT).load(Size::Long, R3, R7, stack_pointer);
        p.call(Helper::ReadUser).jump_if(R0, JumpCondition::Equal, 0, whole);
        // The stack ends before that, or a page of it is not in memory: page by page.
        p.set(R9, 0);
        self.data_address(p);
        p.load(Size::Long, R3, R7, stack_pointer).set(R4, R3);
        p.calculate(Operation::And, R4, PAGE - 1).set(R2, PAGE);
        p.calculate(Operation::Subtract, R2, R4).store(Size::Long, R10, frame::SMALL_VALUE, R2);
        p.call(Helper::ReadUser).jump_if(R0, JumpCondition::Differ, 0, some);
        p.load(Size::Long, R9, R10, frame::SMALL_VALUE);
        for _ in 0..3 {
            self.data_address(p);
            p.add(R1, R9).set(R2, PAGE).load(Size::Long, R3, R7, stack_pointer).add(R3, R9);
            p.call(Helper::ReadUser).jump_if(R0, JumpCondition::Differ, 0, some).add(R9, PAGE);
        }
        p.place(some).place(whole).store(Size::Word, R7, record::STACK, R9).add(R8, R9);
        p.jump(done).place(no_room);
        self.count(p, shared::STACKS_LEFT_OUT);
        p.load(Size::Word, R1, R7, record::FLAGS);
        p.calculate(Operation::Or, R1, record::STACK_LEFT_OUT.cast_signed());
        p.store(Size::Word, R7, record::FLAGS, R1).place(done);
    }

    /// Sends `R8` bytes of the record in `R7`, and wakes the reader if enough time has passed, or for each record if configured so.
    pub(super) fn write_send(&self, p: &mut Assembler, lost: i16) {
        let (send, sent) = (p.label(), p.label());
        p.call(Helper::Clock).set_array(R1, self.maps.words);
        p.load(Size::Long, R2, R1, shared::WOKEN).set(R3, R0);
        p.calculate(Operation::Subtract, R3, R2).set(R4, QUIETLY);
        if self.wakes == WakeupPolicy::Paced {
            p.jump_if(R3, JumpCondition::Below, REST_NS, send);
        }
        p.store(Size::Long, R1, shared::WOKEN, R0).set(R4, WAKING).place(send);
        p.set_map(R1, self.maps.ring).set(R2, R7).set(R3, R8).call(Helper::RingOutput);
        p.jump_if(R0, JumpCondition::Equal, 0, sent);
        self.count(p, lost);
        p.place(sent);
    }

    /// Sends `bytes` of the record in `R7` without waking anybody.
    pub(super) fn write_send_quietly(&self, p: &mut Assembler, bytes: i32) {
        let sent = p.label();
        p.set_map(R1, self.maps.ring).set(R2, R7).set(R3, bytes).set(R4, QUIETLY);
        p.call(Helper::RingOutput).jump_if(R0, JumpCondition::Equal, 0, sent);
        self.count(p, shared::LOST_LIVES);
        p.place(sent);
    }
}
