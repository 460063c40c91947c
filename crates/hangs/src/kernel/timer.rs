//! The timer of a thread: it reports that the thread is away for long, and asks what a wait is.

use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Label, Operation, Register, Size};

use super::layout::{record, thread};
use super::programs::{ASK_NS, HangPlan, LATE_NS, SLACK_NS, SOON_ASK_NS, frame};

use Register::{R0, R1, R2, R3, R6, R7, R10};

impl HangPlan {
    /// Puts into `R2` after which time the wait of the thread is asked about.
    pub(super) fn load_ask_ns(p: &mut Assembler) {
        let (soon, done) = (p.label(), p.label());
        p.set(R2, SOON_ASK_NS).load(Size::Long, R1, R6, thread::KNOWN);
        p.jump_if(R1, JumpCondition::Equal, 0, soon).load(Size::Long, R1, R6, thread::ASKS);
        p.jump_if(R1, JumpCondition::Equal, 2, soon).set(R2, ASK_NS).jump(done).place(soon);
        p.place(done);
    }

    /// Has the timer's function called after `after_ns`, unless the timer runs already. Goes to `done` or on.
    pub(super) fn arm(&self, p: &mut Assembler, after_ns: i32, done: Label) {
        p.load(Size::Long, R1, R6, thread::ARMED).jump_if(R1, JumpCondition::Differ, 0, done);
        p.store(Size::Long, R6, thread::ARMED, 1);
        p.set(R1, R6).add(R1, i32::from(thread::TIMER));
        p.set(R2, after_ns).set(R3, 0);
        Self::start_timer(p);
    }

    /// Starts the timer with the helper's arguments. One that does not start is started the next time.
    fn start_timer(p: &mut Assembler) {
        let started = p.label();
        p.call(Helper::TimerStart).jump_if(R0, JumpCondition::Equal, 0, started);
        p.store(Size::Long, R6, thread::ARMED, 0).place(started);
    }

    /// Writes the timer's function: `(map, thread, what is kept of it)`.
    pub(super) fn write_timer(&self, p: &mut Assembler, function: Label) {
        let (out, asks, again) = (p.label(), p.label(), p.label());
        p.place(function).set(R6, R3).load(Size::Word, R1, R2, 0);
        p.store(Size::Word, R10, frame::KEY, R1).store(Size::Long, R6, thread::ARMED, 0);
        // Whoever finds the timer at rest starts it; whoever found it running has stored what is read here.
        p.set(R1, 1).add_shared(R6, thread::TURNS, R1).call(Helper::Clock).set(R7, R0);
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Equal, thread::WAITING, asks);
        p.jump_if(R1, JumpCondition::Differ, thread::AWAY, out);
        p.load(Size::Long, R1, R6, thread::REPORTED).jump_if(R1, JumpCondition::Differ, 0, out);
        p.load(Size::Long, R1, R6, thread::KNOWN).jump_if(R1, JumpCondition::Equal, 0, out);
        p.load(Size::Long, R1, R6, thread::START).set(R2, LATE_NS).set(R3, R7);
        p.calculate(Operation::Subtract, R3, R1).calculate(Operation::Subtract, R2, R3);
        p.jump_if(R2, JumpCondition::SignedBelow, SLACK_NS, asks);
        p.jump(again).place(asks);
        // Both ways come here; what is to be reported follows from the phase.
        let (wait, due) = (p.label(), p.label());
        p.load(Size::Long, R1, R6, thread::PHASE);
        p.jump_if(R1, JumpCondition::Equal, thread::WAITING, wait);
        p.store(Size::Long, R6, thread::REPORTED, 1);
        self.write_record(p, record::LATE);
        self.send(p);
        p.jump(out).place(wait);
        p.load(Size::Long, R1, R6, thread::ASKS).jump_if(R1, JumpCondition::Equal, 0, out);
        p.load(Size::Long, R1, R6, thread::WAIT).jump_if(R1, JumpCondition::Equal, 0, out);
        Self::load_ask_ns(p);
        p.load(Size::Long, R1, R6, thread::WAIT);
        p.set(R3, R7).calculate(Operation::Subtract, R3, R1);
        p.calculate(Operation::Subtract, R2, R3);
        p.jump_if(R2, JumpCondition::SignedBelow, SLACK_NS, due).jump(again).place(due);
        p.store(Size::Long, R6, thread::ASKS, 0);
        self.write_record(p, record::ASKS);
        for (from, to) in [
            (thread::WAIT_SP, record::SP),
            (thread::WAIT_IP, record::IP),
            (thread::WAIT_SUBJECT, record::ARGUMENTS),
        ] {
            p.load(Size::Long, R1, R6, from);
            p.store(Size::Long, R10, frame::RECORD + to, R1);
        }
        self.send(p);
        p.jump(out).place(again).store(Size::Long, R6, thread::ARMED, 1);
        p.set(R1, R6).add(R1, i32::from(thread::TIMER)).set(R3, 0);
        Self::start_timer(p);
        p.place(out).leave();
    }
}
