//! Adding a finished call to the totals.

use super::{Label, ProgramPlan, WatchedThreads, frame, registers};
use crate::histogram::BUCKETS;
use crate::layout::{CALLS, record, shared, table, thread, total};
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};
use sys::syscall::SLEEPS;

use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R9, R10};

/// Where the arguments and the registers of a call are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// In the registers, which are those of the call.
    Registers,
    /// Kept of the thread; the registers are those of another call.
    Kept,
}

/// Turns of an event loop are reported at most this often, in nanoseconds.
const TURN_NS: i32 = 1_000_000;

/// One of a main thread's short calls is reported each time that they were blocked so long together at least, in nanoseconds.
const SHORT_LEAST: i32 = 500_000;
/// The bits of a random number that are added: a millisecond in the mean.
const SHORT_MASK: i32 = (1 << 20) - 1;
/// The most calls that one stands for, as far as the record can say.
const MOST_SHORT: i32 = (1 << 24) - 1;

/// Of calls that are not counted, those are reported that took as long, in nanoseconds.
const LONG_NS: u64 = 4_000_000;

/// `BPF_NOEXIST`.
const IF_NEW: i32 = 1;

/// What a call returns that finds no file: `ENOENT`.
const NOT_FOUND: i32 = -2;

/// The largest error number.
pub(super) const LARGEST_ERROR: i32 = 4095;

impl ProgramPlan {
    /// Adds the call of the thread in `R9`, whose end is in the frame, to the totals, and reports it if it was slow.
    ///
    /// Spoils all registers but `R6`; what is kept of the thread is in the frame afterwards.
    pub(super) fn write_account(&self, p: &mut Assembler, source: Source) {
        p.store(Size::Long, R10, frame::STATE, R9);
        self.write_durations(p);
        let (slow, fast, turn, done) = (p.label(), p.label(), p.label(), p.label());
        p.store(Size::Long, R10, frame::SHORT, 0);
        if self.threads == WatchedThreads::All {
            self.write_long_only(p, slow, done);
        }
        let (found, added) = (p.label(), p.label());
        p.load(Size::Word, R1, R9, thread::THREAD).store(Size::Word, R10, frame::KEY, R1);
        p.load(Size::Word, R1, R9, thread::NUMBER).store(Size::Word, R10, frame::KEY_NUMBER, R1);
        self.find(p, self.maps.totals, frame::KEY);
        p.jump_if(R0, JumpCondition::Differ, 0, found);
        p.set_array(R3, self.maps.zero);
        self.put(p, self.maps.totals, frame::KEY, IF_NEW);
        self.find(p, self.maps.totals, frame::KEY);
        let full = p.label();
        p.jump_if(R0, JumpCondition::Equal, 0, full);
        self.write_seen(p);
        p.jump(found).place(full);
        self.count(p, shared::WITHOUT_THREAD);
        self.find(p, self.maps.overflow, frame::KEY_NUMBER);
        p.jump_if(R0, JumpCondition::Equal, 0, added);
        p.place(found);
        self.write_sums(p);
        p.place(added);
        self.write_error(p);

        p.load(Size::Long, R1, R10, frame::WALL).set_long(R2, self.threshold_ns);
        p.jump_if(R1, JumpCondition::AtLeast, R2, slow);
        self.write_is_kept(p, source, slow, fast);
        p.place(fast);
        match self.threads {
            WatchedThreads::First => _ = p.jump(turn),
            WatchedThreads::All => self.write_short(p, turn),
        }
        p.place(slow);
        self.write_call_record(p, source, done);
        p.load(Size::Long, R9, R10, frame::STATE);
        // A watch is told of every wait for events: they end the time in which a thread is busy. Else a slow one says so itself.
        if self.threads == WatchedThreads::All {
            // It is read from the record: the verifier knows what the frame holds, and would follow each case through all of the record.
            p.load(Size::Long, R1, R7, record::SHORT).jump_if(R1, JumpCondition::Equal, 0, done);
        }
        p.place(turn);
        self.write_turn(p, source, done);
        p.place(done);
    }

    /// The call of the thread in `R9` may be one that is not counted: then goes to `slow` if it was long, else to `done`.
    fn write_long_only(&self, p: &mut Assembler, slow: Label, done: Label) {
        let counts = p.label();
        p.load(Size::Word, R1, R9, thread::NUMBER);
        p.calculate(Operation::And, R1, CALLS.cast_signed() - 1);
        self.load_watch(p, R1);
        p.jump_if(R1, JumpCondition::Differ, i32::from(table::LONG_ONLY), counts);
        p.load(Size::Long, R1, R10, frame::WALL);
        p.set_long(R2, self.threshold_ns.max(LONG_NS)).jump_if(
            R1,
            JumpCondition::AtLeast,
            R2,
            slow,
        );
        p.jump(done).place(counts);
    }

    /// Adds the short call of the main thread in `R9` to those that were blocked; goes to `out` unless it is to be reported for them.
    ///
    /// Calls are reported one by one if they are slow. A thread may wait as long in many that are not: of these one is reported
    /// each time that they were blocked for about a millisecond together, so that what is reported often is what was waited for most.
    fn write_short(&self, p: &mut Assembler, out: Label) {
        p.load(Size::Word, R1, R9, thread::THREAD).load(Size::Word, R2, R9, thread::PROCESS);
        p.jump_if(R1, JumpCondition::Differ, R2, out);
        p.load(Size::Long, R1, R10, frame::WALL).load(Size::Long, R2, R10, frame::CPU);
        p.calculate(Operation::Subtract, R1, R2).load(Size::Long, R2, R10, frame::QUEUED);
        p.calculate(Operation::Subtract, R1, R2).jump_if(R1, JumpCondition::Equal, 0, out);
        p.load(Size::Long, R2, R9, thread::SHORT_BLOCKED).add(R1, R2);
        p.load(Size::Long, R2, R9, thread::SHORT_COUNT).add(R2, 1);
        p.store(Size::Long, R9, thread::SHORT_BLOCKED, R1);
        p.store(Size::Long, R9, thread::SHORT_COUNT, R2);
        let (drawn, reached, fits, counted) = (p.label(), p.label(), p.label(), p.label());
        p.load(Size::Long, R3, R9, thread::SHORT_LIMIT).jump_if(
            R3,
            JumpCondition::Differ,
            0,
            drawn,
        );
        self.write_draw_limit(p);
        p.load(Size::Long, R3, R9, thread::SHORT_LIMIT).place(drawn);
        p.load(Size::Long, R1, R9, thread::SHORT_BLOCKED);
        p.jump_if(R1, JumpCondition::AtLeast, R3, reached).jump(out).place(reached);
        self.write_draw_limit(p);
        p.load(Size::Long, R1, R9, thread::SHORT_BLOCKED);
        p.set_long(R3, (1 << record::SHORT_BITS) - 1).jump_if(R1, JumpCondition::AtMost, R3, fits);
        p.set(R1, R3).place(fits);
        p.load(Size::Long, R2, R9, thread::SHORT_COUNT);
        p.jump_if(R2, JumpCondition::AtMost, MOST_SHORT, counted)
            .set(R2, MOST_SHORT)
            .place(counted);
        p.calculate(Operation::Left, R2, record::SHORT_BITS).calculate(Operation::Or, R1, R2);
        p.store(Size::Long, R10, frame::SHORT, R1);
        p.store(Size::Long, R9, thread::SHORT_BLOCKED, 0);
        p.store(Size::Long, R9, thread::SHORT_COUNT, 0);
    }

    /// Draws the time up to the next report of the thread in `R9`: at a fixed one, calls that come in a fixed order would be reported
    /// by their places in it. Spoils `R0` to `R5`.
    fn write_draw_limit(&self, p: &mut Assembler) {
        p.call(Helper::Random).calculate(Operation::And, R0, SHORT_MASK).add(R0, SHORT_LEAST);
        p.store(Size::Long, R9, thread::SHORT_LIMIT, R0);
    }

    /// Goes to `kept` if the call of the thread in `R9` is reported however short it is, else to `fast`.
    fn write_is_kept(&self, p: &mut Assembler, source: Source, kept: Label, fast: Label) {
        p.load(Size::Word, R1, R9, thread::NUMBER);
        for number in self.kept.into_iter().filter(|number| *number >= 0) {
            p.jump_if(R1, JumpCondition::Equal, number, kept);
        }
        if source == Source::Kept || self.threads == WatchedThreads::First {
            p.jump(fast);
            return;
        }
        // A mark is a name that is not found.
        p.load(Size::Long, R2, R10, frame::RESULT);
        p.jump_if(R2, JumpCondition::Differ, NOT_FOUND, fast);
        p.calculate(Operation::And, R1, CALLS.cast_signed() - 1);
        p.calculate(Operation::Left, R1, 2).set(R2, R1).set_array(R1, self.maps.table);
        p.add(R1, R2).load(Size::Byte, R1, R1, table::FIRST_PATH);
        let (read, second) = (p.label(), p.label());
        p.load(Size::Long, R2, R6, 0).jump_if(R1, JumpCondition::Differ, 1, second);
        p.load(Size::Long, R3, R2, registers::ARGUMENTS[0]).jump(read).place(second);
        p.jump_if(R1, JumpCondition::Differ, 2, fast);
        p.load(Size::Long, R3, R2, registers::ARGUMENTS[1]).place(read);
        p.set(R1, R10).add(R1, i32::from(frame::SMALL_VALUE)).set(R2, 8).call(Helper::ReadUser);
        p.jump_if(R0, JumpCondition::Differ, 0, fast);
        p.load(Size::Long, R1, R10, frame::SMALL_VALUE).set_long(R2, super::MARK_BEGINNING);
        p.jump_if(R1, JumpCondition::Equal, R2, kept).jump(fast);
    }

    /// Reports that the main thread in `R9` looked for events, at most once in a millisecond.
    fn write_turn(&self, p: &mut Assembler, source: Source, done: Label) {
        let is_wait = p.label();
        p.load(Size::Word, R1, R9, thread::THREAD).load(Size::Word, R2, R9, thread::PROCESS);
        p.jump_if(R1, JumpCondition::Differ, R2, done);
        p.load(Size::Word, R1, R9, thread::NUMBER);
        for number in self.event_waits {
            p.jump_if(R1, JumpCondition::Equal, number, is_wait);
        }
        p.jump(done).place(is_wait);
        // With no descriptor it sleeps.
        for (number, call) in self.sleeps.into_iter().zip(SLEEPS) {
            let (waits, argument) = (p.label(), |index: usize| match source {
                Source::Registers => registers::ARGUMENTS[index],
                Source::Kept => thread::ARGUMENTS + 8 * i16::try_from(index).unwrap_or(0),
            });
            p.jump_if(R1, JumpCondition::Differ, number, waits);
            match source {
                Source::Registers => p.load(Size::Long, R2, R6, 0),
                Source::Kept => p.set(R2, R9),
            };
            p.load(Size::Word, R3, R2, argument(call.count));
            p.jump_if(R3, JumpCondition::Differ, 0, waits);
            p.load(Size::Long, R3, R2, argument(call.time));
            p.jump_if(R3, JumpCondition::Differ, 0, done).place(waits);
        }
        p.load(Size::Long, R1, R10, frame::NOW).load(Size::Long, R2, R9, thread::TURN).set(R3, R1);
        p.calculate(Operation::Subtract, R3, R2);
        p.jump_if(R3, JumpCondition::Below, TURN_NS, done);
        p.store(Size::Long, R9, thread::TURN, R1);
        self.find_scratch(p, done);
        p.store(Size::Word, R7, record::KIND, record::TURN);
        p.store(Size::Word, R7, record::FLAGS, 0);
        p.load(Size::Word, R1, R9, thread::THREAD).store(Size::Word, R7, record::THREAD, R1);
        p.load(Size::Word, R1, R9, thread::PROCESS).store(Size::Word, R7, record::PROCESS, R1);
        p.store(Size::Long, R7, record::NUMBER, 0);
        p.load(Size::Word, R1, R9, thread::NUMBER).store(Size::Word, R7, record::NUMBER, R1);
        p.load(Size::Long, R1, R10, frame::WALL).store(Size::Long, R7, record::WALL, R1);
        // As old as the last tick, but the same on each processor; the run queues' clocks differ by what was stolen of them.
        p.call(Helper::CurrentTask).load(Size::Long, R1, R0, self.fields.task_times.processor);
        p.store(Size::Long, R7, record::CPU, R1);
        p.load(Size::Long, R1, R10, frame::QUEUED).load(Size::Long, R2, R9, thread::DELAY);
        p.add(R1, R2).store(Size::Long, R7, record::QUEUED, R1);
        p.load(Size::Long, R1, R10, frame::NOW).store(Size::Long, R7, record::START, R1);
        self.write_send_quietly(p, record::TURN_SIZE);
    }

    /// Makes durations of the moments in the frame, none below zero or above the wall time.
    fn write_durations(&self, p: &mut Assembler) {
        p.load(Size::Long, R1, R10, frame::NOW).load(Size::Long, R2, R9, thread::START);
        p.calculate(Operation::Subtract, R1, R2).store(Size::Long, R10, frame::WALL, R1);
        let (not_negative, not_long) = (p.label(), p.label());
        p.load(Size::Long, R2, R10, frame::END_CPU).load(Size::Long, R3, R9, thread::CPU);
        p.calculate(Operation::Subtract, R2, R3).add(R2, R1).set(R3, 0);
        p.jump_if(R2, JumpCondition::SignedAtMost, R3, not_long);
        p.set(R3, R2).jump_if(R3, JumpCondition::AtMost, R1, not_long).set(R3, R1);
        p.place(not_long).store(Size::Long, R10, frame::CPU, R3);
        // What did not run can have waited.
        p.calculate(Operation::Subtract, R1, R3);
        p.load(Size::Long, R2, R10, frame::QUEUED).load(Size::Long, R3, R9, thread::DELAY);
        p.calculate(Operation::Subtract, R2, R3).jump_if(
            R2,
            JumpCondition::AtMost,
            R1,
            not_negative,
        );
        p.set(R2, R1).place(not_negative).store(Size::Long, R10, frame::QUEUED, R2);
    }

    /// Records that the thread in `R9` has a total of the call, so that it can be found when the thread has ended.
    fn write_seen(&self, p: &mut Assembler) {
        p.load(Size::Word, R1, R10, frame::KEY_NUMBER);
        p.calculate(Operation::And, R1, CALLS.cast_signed() - 1).set(R2, R1);
        p.calculate(Operation::Right, R2, 6).calculate(Operation::Left, R2, 3);
        p.set(R3, R9).add(R3, R2).calculate(Operation::And, R1, 63);
        p.set(R4, 1).calculate(Operation::Left, R4, R1);
        p.load(Size::Long, R5, R3, thread::SEEN).calculate(Operation::Or, R5, R4);
        p.store(Size::Long, R3, thread::SEEN, R5);
    }

    /// Adds the call to the total in `R0`. Only the thread itself, or this CPU, adds to it.
    fn write_sums(&self, p: &mut Assembler) {
        let add = |p: &mut Assembler, at: i16, what: Register| {
            p.load(Size::Long, R5, R0, at).add(R5, what).store(Size::Long, R0, at, R5);
        };
        p.set(R2, 1);
        add(p, total::COUNT, R2);
        p.load(Size::Long, R2, R10, frame::CPU);
        add(p, total::CPU, R2);
        p.load(Size::Long, R1, R10, frame::WALL);
        add(p, total::WALL, R1);
        let (not_longest, no_error) = (p.label(), p.label());
        p.load(Size::Long, R2, R0, total::LONGEST).jump_if(
            R1,
            JumpCondition::AtMost,
            R2,
            not_longest,
        );
        p.store(Size::Long, R0, total::LONGEST, R1).place(not_longest);
        p.load(Size::Long, R2, R10, frame::RESULT).set(R3, 0);
        p.calculate(Operation::Subtract, R3, R2).add(R3, -1);
        // An error number less one, as an unsigned number: all else is larger.
        p.jump_if(R3, JumpCondition::AtLeast, LARGEST_ERROR, no_error).set(R2, 1);
        add(p, total::ERRORS, R2);
        p.place(no_error);
        self.write_bucket(p);
    }

    /// Counts the duration in `R1` in the histogram of the total in `R0`: see `histogram::bucket`.
    fn write_bucket(&self, p: &mut Assembler) {
        let (long_enough, in_range) = (p.label(), p.label());
        p.jump_if(R1, JumpCondition::AtLeast, 4, long_enough).set(R1, 4).place(long_enough);
        // Without branches: the verifier, and the processor, would follow each of 64 ways.
        p.set(R2, 0).set(R3, R1);
        for exponent in (0..6).rev() {
            // One if there is a bit above, as the sign of what is there, negated.
            p.set(R5, R3).calculate(Operation::Right, R5, 1 << exponent).set(R4, 0);
            p.calculate(Operation::Subtract, R4, R5).calculate(Operation::Right, R4, 63);
            p.calculate(Operation::Left, R4, exponent).calculate(Operation::Right, R3, R4);
            p.add(R2, R4);
        }
        p.set(R5, R2).add(R5, -2).set(R4, R1).calculate(Operation::Right, R4, R5);
        p.calculate(Operation::And, R4, 3).calculate(Operation::Left, R2, 2).add(R2, R4);
        let last = i32::try_from(BUCKETS - 1).unwrap_or(0);
        p.jump_if(R2, JumpCondition::AtMost, last, in_range).set(R2, last).place(in_range);
        p.calculate(Operation::Left, R2, 2).add(R2, R0);
        p.load(Size::Word, R3, R2, total::HISTOGRAM).add(R3, 1);
        p.store(Size::Word, R2, total::HISTOGRAM, R3);
    }

    /// Counts the error of the call, if it failed.
    fn write_error(&self, p: &mut Assembler) {
        let (done, found) = (p.label(), p.label());
        p.load(Size::Long, R2, R10, frame::RESULT).set(R1, 0);
        p.calculate(Operation::Subtract, R1, R2).set(R3, R1).add(R3, -1);
        p.jump_if(R3, JumpCondition::AtLeast, LARGEST_ERROR, done);
        p.load(Size::Word, R2, R10, frame::KEY_NUMBER);
        p.store(Size::Word, R10, frame::SMALL_KEY, R2);
        p.store(Size::Word, R10, frame::SMALL_KEY + 4, R1);
        self.find(p, self.maps.errors, frame::SMALL_KEY);
        p.jump_if(R0, JumpCondition::Differ, 0, found);
        p.store(Size::Long, R10, frame::SMALL_VALUE, 0).set(R3, R10);
        p.add(R3, i32::from(frame::SMALL_VALUE));
        self.put(p, self.maps.errors, frame::SMALL_KEY, IF_NEW);
        self.find(p, self.maps.errors, frame::SMALL_KEY);
        p.jump_if(R0, JumpCondition::Equal, 0, done);
        p.place(found).set(R1, 1).add_shared(R0, 0, R1).place(done);
    }
}
