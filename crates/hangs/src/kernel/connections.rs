//! The programs that report which processes may be interactive: those that connect to a display, or, where the kernel does not tell that, those
//! that start a program.
//!
//! Registers by convention as in `programs`; `R6` is the socket, then its address.

use sys::bpf::Instruction;
use sys::bpf::assembler::{
    AssembleError, Assembler, Helper, JumpCondition, Operation, Register, Size,
};

use super::layout::{record, shared};
use super::offsets::ConnectOffsets;
use super::programs::{HangPlan, frame};

use Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};

/// Of programs that are started one is told each time that this has passed, in nanoseconds.
const STARTED_PAUSE_NS: u64 = 2_000_000_000;
/// The same of programs that connect to a display: the others are found by the next search.
const CONNECTED_PAUSE_NS: u64 = 1_000_000;
/// What listening sockets and a `struct sockaddr_un` hold, and what the sockets of display servers are called.
mod address {
    /// `AF_UNIX`.
    pub(super) const FAMILY: i32 = 1;
    /// `TCP_LISTEN`, which stands for this state in all families.
    pub(super) const LISTENS: i32 = 10;
    /// Where the name begins.
    pub(super) const NAME: i32 = 2;
    /// How long it is at most.
    pub(super) const NAME_BYTES: i32 = 108;
    /// The beginning of `/tmp/.X11-unix/X0`.
    pub(super) const X: u64 = u64::from_ne_bytes(*b"/tmp/.X1");
    /// What is so far before the end of a name, that of its final zero: `wayland-0` and `wayland-10`, `gamescope-0` and `gamescope-10`.
    pub(super) const ENDS: [(i32, u64); 4] = [
        (10, u64::from_ne_bytes(*b"wayland-")),
        (11, u64::from_ne_bytes(*b"wayland-")),
        (12, u64::from_ne_bytes(*b"gamescop")),
        (13, u64::from_ne_bytes(*b"gamescop")),
    ];
}

impl HangPlan {
    /// Writes the program of `sched_process_exec(task, old number, program)`: says that a program was started, which may connect to
    /// the display soon.
    pub(super) fn exec(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let out = p.label();
        p.load(Size::Long, R8, R1, 0);
        if let Some(owner) = &self.owner {
            owner.unless_owned(p, R8, out);
        }
        p.call(Helper::Clock).set(R7, R0).set_array(R1, self.words);
        p.load(Size::Long, R2, R1, shared::STARTED).set(R3, R7);
        p.calculate(Operation::Subtract, R3, R2).set_long(R2, STARTED_PAUSE_NS);
        p.jump_if(R3, JumpCondition::Below, R2, out).store(Size::Long, R1, shared::STARTED, R7);
        p.load(Size::Word, R1, R8, self.offsets.thread).store(Size::Word, R10, frame::KEY, R1);
        Self::write_head(p, record::STARTED);
        self.send(p);
        p.place(out).leave();
        program.finish()
    }

    /// Writes the program of `sk_data_ready(socket)`: reports a process that connects to a socket with the name of a display server's. A
    /// listening socket becomes ready in the call by which a client connects.
    pub(super) fn connect(
        &self,
        offsets: &ConnectOffsets,
    ) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let (is_display, is_name, out) = (p.label(), p.label(), p.label());
        p.load(Size::Long, R6, R1, 0).load(Size::Byte, R2, R6, offsets.state);
        p.jump_if(R2, JumpCondition::Differ, address::LISTENS, out);
        p.load(Size::Half, R2, R6, offsets.family);
        p.jump_if(R2, JumpCondition::Differ, address::FAMILY, out);
        p.call(Helper::CurrentUser).set_low(R0, R0).set_long(R2, self.user.into());
        p.jump_if(R0, JumpCondition::Differ, R2, out);
        if let Some(owner) = &self.owner {
            p.call(Helper::CurrentTask).set(R8, R0);
            owner.unless_owned(p, R8, out);
        }
        Self::read_word(p, i32::from(offsets.address), None);
        p.set(R6, R2).add(R6, i32::from(offsets.name));
        Self::read_word(p, address::NAME, None);
        p.set_long(R3, address::X).jump_if(R2, JumpCondition::Equal, R3, is_display);
        p.calculate(Operation::And, R2, 0xff).jump_if(R2, JumpCondition::Differ, 0, is_name);
        // One of those without a file begins with a zero.
        Self::read_word(p, address::NAME + 1, None);
        p.set_long(R3, address::X).jump_if(R2, JumpCondition::Equal, R3, is_display).jump(out);
        p.place(is_name).set(R1, R10).add(R1, i32::from(frame::NAME));
        p.set(R2, address::NAME_BYTES).set(R3, R6).add(R3, address::NAME);
        p.call(Helper::ReadKernelText).set(R9, R0);
        for (before_end, wanted) in address::ENDS {
            p.jump_if(R9, JumpCondition::SignedBelow, before_end, out);
            Self::read_word(p, address::NAME - before_end, Some(R9));
            p.set_long(R3, wanted).jump_if(R2, JumpCondition::Equal, R3, is_display);
        }
        p.jump(out).place(is_display);
        p.call(Helper::Clock).set(R7, R0).set_array(R1, self.words);
        p.load(Size::Long, R2, R1, shared::CONNECTED).set(R3, R7);
        p.calculate(Operation::Subtract, R3, R2).set_long(R2, CONNECTED_PAUSE_NS);
        p.jump_if(R3, JumpCondition::Below, R2, out).store(Size::Long, R1, shared::CONNECTED, R7);
        p.call(Helper::CurrentNumbers).calculate(Operation::Right, R0, 32);
        p.store(Size::Word, R10, frame::KEY, R0);
        Self::write_head(p, record::CONNECTED);
        self.send(p);
        p.place(out).leave();
        program.finish()
    }

    /// Reads eight bytes of the address in `R6` into `R2`: at an offset, and further by what `more` holds.
    fn read_word(p: &mut Assembler, offset: i32, more: Option<Register>) {
        p.set(R1, R10).add(R1, i32::from(frame::WORD)).set(R2, 8).set(R3, R6).add(R3, offset);
        if let Some(more) = more {
            p.add(R3, more);
        }
        p.store(Size::Long, R10, frame::WORD, 0).call(Helper::ReadKernel);
        p.load(Size::Long, R2, R10, frame::WORD);
    }
}
