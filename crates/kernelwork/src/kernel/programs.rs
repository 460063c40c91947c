//! The programs of `io_uring`: one notes submissions, one sums and reports completions, four note what an operation goes through.
//!
//! Registers by convention: `R6` the program's arguments, `R7` the room for the record, `R8` what is kept of the operation.

use sys::bpf::assembler::{
    AssembleError, Assembler, Helper, JumpCondition, Label, Operation, Register, Size,
};
use sys::bpf::owner::OwnerPlan;
use sys::bpf::{Instruction, SharedMap, file_names};

use super::layout::{flight, key, record, room, shared, total};
use super::offsets::{ResultPlace, RingOffsets, TaskOffsets};

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// `BPF_NOEXIST`.
const IF_NEW: i32 = 1;
/// Does not wake the reader of the ring.
const QUIETLY: i32 = 1;
/// `IORING_REGISTER_EVENTFD` and `IORING_REGISTER_EVENTFD_ASYNC`.
const COUNTERS: [i32; 2] = [4, 7];

/// Words on the stack of a program, by their offset from the frame.
pub(super) mod frame {
    /// The address of a request.
    pub(crate) const REQUEST: i16 = -8;
    /// A key of four bytes.
    pub(crate) const SMALL_KEY: i16 = -16;
    /// The key of a sum.
    pub(crate) const SUM: i16 = -48;
    /// The key of a work for memory: the thread, and the kind in the upper half.
    pub(crate) const WORK: i16 = -56;
    /// What is kept of a work for memory.
    pub(crate) const BEGAN: i16 = -80;
}

/// What the programs are written for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkPlan {
    pub(super) task: TaskOffsets,
    pub(super) threshold_ns: u64,
    pub(super) filter: SharedMap,
    pub(super) flights: SharedMap,
    pub(super) totals: SharedMap,
    pub(super) began: SharedMap,
    pub(super) room: SharedMap,
    pub(super) words: SharedMap,
    pub(super) ring: SharedMap,
    /// Whose operations are told; nobody is asked if the reader has the rights to see all.
    pub(super) owner: Option<OwnerPlan>,
}

type Written = Result<Vec<Instruction>, AssembleError>;

impl WorkPlan {
    /// Goes to `out` unless the process is watched. Leaves it in the upper half of `R9`, and the thread in the lower.
    pub(super) fn unless_watched(&self, p: &mut Assembler, out: Label) {
        p.call(Helper::CurrentNumbers).set(R9, R0).calculate(Operation::Right, R0, 32);
        p.store(Size::Word, R10, frame::SMALL_KEY, R0);
        self.find(p, self.filter, frame::SMALL_KEY);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
    }

    /// Leaves in `R0` the value of the key at `key` of the frame in `map`, or 0.
    pub(super) fn find(&self, p: &mut Assembler, map: SharedMap, key: i16) {
        p.set_map(R1, map).set(R2, R10).add(R2, i32::from(key)).call(Helper::MapLookup);
    }

    /// Leaves the room with this number in `R7`, or goes to `out`.
    pub(super) fn find_room(&self, p: &mut Assembler, number: i32, out: Label) {
        p.store(Size::Word, R10, frame::SMALL_KEY, number);
        self.find(p, self.room, frame::SMALL_KEY);
        p.jump_if(R0, JumpCondition::Equal, 0, out).set(R7, R0);
    }

    /// Copies `bytes` of the kernel from the address in `R3` to `to` of the room, or goes to `otherwise`.
    pub(super) fn copy(&self, p: &mut Assembler, to: i16, bytes: i32, otherwise: Label) {
        file_names::copy(p, to, bytes, otherwise);
    }

    /// Adds 1 to a word that all programs share. Spoils `R1` and `R2`.
    pub(super) fn count(&self, p: &mut Assembler, word: i16) {
        p.set_array(R1, self.words).set(R2, 1).add_shared(R1, word, R2);
    }

    /// Sends as many bytes of the room as `R3` says.
    pub(super) fn write_send(&self, p: &mut Assembler) {
        let sent = p.label();
        p.set_map(R1, self.ring).set(R2, R7).set(R4, QUIETLY).call(Helper::RingOutput);
        p.jump_if(R0, JumpCondition::Equal, 0, sent);
        self.count(p, shared::LOST);
        p.place(sent);
    }

    /// `io_uring_create(descriptor, ring, entries, completions, flags)`.
    pub(super) fn created(&self) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let out = p.label();
        p.set(R6, R1);
        self.write_ring(p, record::CREATED, 8, out);
        p.load(Size::Long, R1, R6, 0).store(Size::Word, R7, record::DESCRIPTOR, R1);
        p.load(Size::Long, R1, R6, 32).store(Size::Word, R7, record::SUBMITTED, R1);
        p.set(R3, i32::from(record::DATA));
        self.write_send(p);
        p.place(out).leave();
        program.finish()
    }

    /// `io_uring_register(ring, what, files, buffers, result)`.
    pub(super) fn registered(&self) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let (out, is_counter) = (p.label(), p.label());
        p.set(R6, R1).load(Size::Long, R1, R6, 8).set_low(R1, R1);
        for counter in COUNTERS {
            p.jump_if(R1, JumpCondition::Equal, counter, is_counter);
        }
        p.jump(out).place(is_counter);
        self.write_ring(p, record::COUNTER, 0, out);
        p.set(R3, i32::from(record::DATA));
        self.write_send(p);
        p.place(out).leave();
        program.finish()
    }

    /// Begins a record about the ring in the argument at `argument`.
    fn write_ring(&self, p: &mut Assembler, kind: i32, argument: i16, out: Label) {
        self.unless_watched(p, out);
        self.find_room(p, room::SUBMITTED, out);
        p.store(Size::Word, R7, record::KIND, kind).store(Size::Word, R7, record::FLAGS, 0);
        p.store(Size::Word, R7, record::THREAD, R9).calculate(Operation::Right, R9, 32);
        p.store(Size::Word, R7, record::PROCESS, R9);
        p.load(Size::Long, R1, R6, argument).store(Size::Long, R7, record::RING, R1);
        p.call(Helper::Clock).store(Size::Long, R7, record::START, R0);
    }

    /// `io_uring_submit_req(request)`: an operation begins.
    pub(super) fn submitted(&self, offsets: &RingOffsets) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let (out, kept) = (p.label(), p.label());
        p.set(R6, R1).load(Size::Long, R1, R6, 0).store(Size::Long, R10, frame::REQUEST, R1);
        self.unless_watched(p, out);
        if let Some(owner) = &self.owner {
            p.call(Helper::CurrentTask).set(R8, R0);
            owner.unless_owned(p, R8, out);
        }
        self.find_room(p, room::SUBMITTED, out);
        p.store(Size::Word, R7, flight::THREAD, R9).calculate(Operation::Right, R9, 32);
        p.store(Size::Word, R7, flight::PROCESS, R9);
        p.load(Size::Long, R3, R10, frame::REQUEST);
        self.copy(p, room::REQUEST, i32::from(room::REQUEST_SIZE), out);
        let of_request = |field: i16| room::REQUEST + field;
        p.load(Size::Byte, R8, R7, of_request(offsets.request_opcode));
        p.store(Size::Word, R7, flight::OPCODE, R8);
        p.load(Size::Word, R1, R7, of_request(offsets.request_flags));
        p.store(Size::Word, R7, flight::FLAGS, R1);
        p.load(Size::Word, R1, R7, of_request(offsets.request_descriptor));
        p.store(Size::Word, R7, flight::DESCRIPTOR, R1);
        p.load(Size::Long, R1, R7, of_request(offsets.request_ring));
        p.store(Size::Long, R7, flight::RING, R1).store(Size::Word, R7, flight::HOW, 0);
        p.store(Size::Word, R7, flight::PATH_LENGTH, 0);
        let ready = p.label();
        for (numbers, directory, path) in &offsets.paths {
            let (is_it, next) = (p.label(), p.label());
            p.jump_if(R8, JumpCondition::Equal, numbers[0], is_it);
            p.jump_if(R8, JumpCondition::Differ, numbers[1], next).place(is_it);
            p.load(Size::Word, R1, R7, of_request(*directory));
            p.store(Size::Word, R7, flight::DESCRIPTOR, R1);
            p.load(Size::Long, R3, R7, of_request(*path)).jump(ready).place(next);
        }
        p.jump(kept).place(ready).jump_if(R3, JumpCondition::Equal, 0, kept);
        // `struct filename` begins with the address of the path.
        self.copy(p, room::FILE, 8, kept);
        p.load(Size::Long, R3, R7, room::FILE).set(R1, R7).add(R1, i32::from(flight::PATH));
        p.set(R2, flight::PATH_LIMIT).call(Helper::ReadKernelText);
        p.jump_if(R0, JumpCondition::SignedAtMost, 0, kept);
        p.store(Size::Word, R7, flight::PATH_LENGTH, R0).place(kept);
        p.call(Helper::Clock).store(Size::Long, R7, flight::START, R0);
        p.set_map(R1, self.flights).set(R2, R10).add(R2, i32::from(frame::REQUEST));
        p.set(R3, R7).set(R4, 0).call(Helper::MapUpdate);
        p.jump_if(R0, JumpCondition::Equal, 0, out);
        self.count(p, shared::NOT_FOLLOWED);
        p.place(out).leave();
        program.finish()
    }

    /// `io_uring_queue_async_work(request, …)` and `io_uring_poll_arm(request, …)`: notes a bit of `flight::HOW`.
    pub(super) fn noted(&self, bit: i32) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let out = p.label();
        p.load(Size::Long, R1, R1, 0).store(Size::Long, R10, frame::REQUEST, R1);
        self.find(p, self.flights, frame::REQUEST);
        p.jump_if(R0, JumpCondition::Equal, 0, out).load(Size::Word, R1, R0, flight::HOW);
        p.calculate(Operation::Or, R1, bit).store(Size::Word, R0, flight::HOW, R1);
        p.place(out).leave();
        program.finish()
    }

    /// `io_uring_complete(ring, request, …)`: an operation has ended.
    pub(super) fn completed(&self, offsets: &RingOffsets) -> Written {
        let mut program = Assembler::default();
        let p = &mut program;
        let out = p.label();
        p.set(R6, R1).load(Size::Long, R1, R6, 8).jump_if(R1, JumpCondition::Equal, 0, out);
        p.store(Size::Long, R10, frame::REQUEST, R1);
        self.find(p, self.flights, frame::REQUEST);
        p.jump_if(R0, JumpCondition::Equal, 0, out).set(R8, R0);
        self.forget_unless_owned(p, out);
        p.call(Helper::Clock).set(R9, R0);
        self.find_room(p, room::COMPLETED, out);
        p.load(Size::Long, R1, R8, flight::START).store(Size::Long, R7, record::START, R1);
        p.calculate(Operation::Subtract, R9, R1).store(Size::Long, R7, record::WALL, R9);
        p.store(Size::Word, R7, record::KIND, record::OPERATION);
        for (from, to) in [
            (flight::PROCESS, record::PROCESS),
            (flight::THREAD, record::THREAD),
            (flight::DESCRIPTOR, record::DESCRIPTOR),
            (flight::FLAGS, record::SUBMITTED),
            (flight::OPCODE, record::OPCODE),
            (flight::HOW, record::HOW),
        ] {
            p.load(Size::Word, R1, R8, from).store(Size::Word, R7, to, R1);
        }
        p.load(Size::Long, R1, R8, flight::RING).store(Size::Long, R7, record::RING, R1);
        for word in [record::FLAGS, record::DEVICE, record::MODE, record::MOUNT, record::LENGTH] {
            p.store(Size::Word, R7, word, 0);
        }
        p.store(Size::Long, R7, record::INODE, 0);
        self.write_result(p, offsets.result, out);
        self.write_asked(p);
        self.write_file(p, offsets);
        self.write_sums(p, offsets);
        p.set_map(R1, self.flights).set(R2, R10).add(R2, i32::from(frame::REQUEST));
        p.call(Helper::MapDelete);
        let (slow, send) = (p.label(), p.label());
        p.load(Size::Long, R1, R7, record::WALL).set_long(R2, self.threshold_ns);
        p.jump_if(R1, JumpCondition::AtLeast, R2, slow).load(Size::Word, R1, R7, record::FLAGS);
        p.jump_if(R1, JumpCondition::AnyBit, record::NAMED.cast_signed(), send).jump(out);
        p.place(slow);
        self.flag(p, record::SLOW);
        p.place(send).load(Size::Word, R3, R7, record::LENGTH);
        p.calculate(Operation::And, R3, 2 * room::NAMES - 1);
        let fits = p.label();
        p.jump_if(R3, JumpCondition::AtMost, room::NAMES, fits).set(R3, 0).place(fits);
        p.add(R3, i32::from(record::DATA));
        self.write_send(p);
        p.place(out).leave();
        program.finish()
    }

    /// Forgets the operation in `R8` and goes to `out` unless its own process completes it, and is still its owner's to trace. Spoils
    /// `R9`.
    fn forget_unless_owned(&self, p: &mut Assembler, out: Label) {
        let Some(owner) = &self.owner else { return };
        let (foreign, own) = (p.label(), p.label());
        p.call(Helper::CurrentNumbers).calculate(Operation::Right, R0, 32);
        p.load(Size::Word, R1, R8, flight::PROCESS);
        p.jump_if(R0, JumpCondition::Differ, R1, foreign);
        p.call(Helper::CurrentTask).set(R9, R0);
        owner.unless_owned(p, R9, foreign);
        p.jump(own).place(foreign);
        p.set_map(R1, self.flights).set(R2, R10).add(R2, i32::from(frame::REQUEST));
        p.call(Helper::MapDelete).jump(out).place(own);
    }

    pub(super) fn flag(&self, p: &mut Assembler, flag: u32) {
        p.load(Size::Word, R1, R7, record::FLAGS);
        p.calculate(Operation::Or, R1, flag.cast_signed());
        p.store(Size::Word, R7, record::FLAGS, R1);
    }

    fn write_result(&self, p: &mut Assembler, place: ResultPlace, out: Label) {
        match place {
            ResultPlace::Argument => {
                p.load(Size::Long, R1, R6, 24);
            }
            ResultPlace::Completion(at) => {
                p.load(Size::Long, R3, R6, 16).add(R3, i32::from(at));
                self.copy(p, record::RESULT, 4, out);
                p.load(Size::Word, R1, R7, record::RESULT);
            }
        }
        p.calculate(Operation::Left, R1, 32).calculate(Operation::SignedRight, R1, 32);
        p.store(Size::Long, R7, record::RESULT, R1);
    }

    /// Adds the path that the operation was given.
    fn write_asked(&self, p: &mut Assembler) {
        let none = p.label();
        p.load(Size::Word, R9, R8, flight::PATH_LENGTH).jump_if(R9, JumpCondition::Equal, 0, none);
        p.set(R3, R8).add(R3, i32::from(flight::PATH));
        self.copy(p, record::DATA, flight::PATH_LIMIT, none);
        p.store(Size::Word, R7, record::LENGTH, R9);
        self.flag(p, record::ASKED);
        p.place(none);
    }

    /// Adds the operation to the sums; of a file that is in none yet, adds its names to the record.
    fn write_sums(&self, p: &mut Assembler, offsets: &RingOffsets) {
        let (found, done) = (p.label(), p.label());
        let at = |field: i16| frame::SUM + field;
        p.load(Size::Long, R1, R7, record::INODE).store(Size::Long, R10, at(key::INODE), R1);
        p.load(Size::Word, R1, R7, record::DEVICE).store(Size::Word, R10, at(key::DEVICE), R1);
        p.load(Size::Word, R1, R7, record::PROCESS).store(Size::Word, R10, at(key::PROCESS), R1);
        p.load(Size::Word, R1, R7, record::OPCODE).store(Size::Long, R10, at(key::OPCODE), R1);
        self.find(p, self.totals, frame::SUM);
        p.jump_if(R0, JumpCondition::Differ, 0, found);
        for word in 0..i16::try_from(total::SIZE / 8).unwrap_or(0) {
            p.store(Size::Long, R7, room::ZERO + 8 * word, 0);
        }
        p.set_map(R1, self.totals).set(R2, R10).add(R2, i32::from(frame::SUM));
        p.set(R3, R7).add(R3, i32::from(room::ZERO)).set(R4, IF_NEW).call(Helper::MapUpdate);
        let unnamed = p.label();
        p.load(Size::Word, R1, R7, record::FLAGS).calculate(Operation::And, R1, 0xff);
        p.jump_if(R1, JumpCondition::Differ, record::FILE.cast_signed(), unnamed);
        if let Some(files) = &offsets.files {
            self.write_names(p, files);
        }
        p.place(unnamed);
        self.find(p, self.totals, frame::SUM);
        p.jump_if(R0, JumpCondition::Differ, 0, found);
        self.count(p, shared::NOT_SUMMED);
        p.jump(done).place(found).set(R9, R0);
        p.set(R1, 1).add_shared(R9, total::COUNT, R1);
        p.load(Size::Long, R1, R7, record::WALL).add_shared(R9, total::WALL, R1);
        let (longest, good, summed) = (p.label(), p.label(), p.label());
        p.load(Size::Long, R2, R9, total::LONGEST).jump_if(R2, JumpCondition::AtLeast, R1, longest);
        p.store(Size::Long, R9, total::LONGEST, R1).place(longest);
        p.load(Size::Long, R1, R7, record::RESULT).set(R2, -1);
        p.jump_if(R2, JumpCondition::SignedBelow, R1, good);
        p.set(R1, 1).add_shared(R9, total::ERRORS, R1).jump(summed);
        p.place(good).add_shared(R9, total::RESULTS, R1).place(summed).place(done);
    }
}
