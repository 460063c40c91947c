//! The programs themselves, written for the running kernel.
//!
//! One handles entries of calls, one exits, and three the beginning and end of processes; if locks are observed, a sixth records
//! wake-ups. Registers by convention: `R6` the program's arguments, `R9` what is kept of the thread, `R7` the record
//! that is put together.

mod account;
mod calls;
mod lives;
mod owner;
mod paths;
mod record;
mod sockets;

use sys::bpf::assembler::{AssembleError, Assembler, Helper, JumpCondition, Label, Register, Size};
use sys::bpf::{Instruction, SharedMap};

use crate::fields::KernelOffsets;
use sys::syscall::{EVENT_WAITS, SLEEPS};

use sys::bpf::owner::OwnerPlan;

use Register::{R1, R2, R3, R4, R10};

/// The first eight bytes of the path of a mark, which a program looks up to name a moment, as a number in memory.
pub const MARK_BEGINNING: u64 = u64::from_le_bytes(*b"/unjank-");

/// The maps, as instructions name them.
#[derive(Clone, Copy, Debug)]
pub struct SharedMaps {
    /// The table of calls.
    pub table: SharedMap,
    /// The filter of processes.
    pub filter: SharedMap,
    /// The state of each thread.
    pub threads: SharedMap,
    /// Totals by thread and call.
    pub totals: SharedMap,
    /// Totals by call, apart for each CPU, of threads that `totals` had no room for.
    pub overflow: SharedMap,
    /// A total of zeros, to begin with.
    pub zero: SharedMap,
    /// Failures by call and error.
    pub errors: SharedMap,
    /// Room for a record.
    pub scratch: SharedMap,
    /// Words that all share.
    pub words: SharedMap,
    /// The ring.
    pub ring: SharedMap,
}

/// Which threads are watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchedThreads {
    /// All of a process.
    All,
    /// The first of each process.
    First,
}

/// How soon the reader of the ring is woken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WakeupPolicy {
    /// For each reported call.
    Each,
    /// At most once in a millisecond, because many calls may be reported.
    Paced,
}

/// Whether slow calls come with a copy of the stack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KernelStacks {
    /// With up to 16 KiB of it.
    Copied,
    /// Without.
    LeftOut,
}

/// The most kinds of calls that are reported however short they are.
pub const KEPT: usize = 8;

/// The configuration of the programs.
#[derive(Clone, Copy, Debug)]
pub struct ProgramPlan {
    /// The kernel's structures.
    pub fields: KernelOffsets,
    /// The maps.
    pub maps: SharedMaps,
    /// The threshold in nanoseconds from which calls are reported individually.
    pub threshold_ns: u64,
    /// Numbers of calls that are reported however short they are; -1 for none.
    pub kept: [i32; KEPT],
    /// Bytes of the ring.
    pub ring_bytes: u32,
    /// Which threads are watched.
    pub threads: WatchedThreads,
    /// Whether slow calls come with a copy of the stack.
    pub stacks: KernelStacks,
    /// How soon the reader is woken.
    pub wakes: WakeupPolicy,
    /// Whose processes are recorded; `None` for everybody's.
    pub owner: Option<OwnerPlan>,
    /// Numbers of `execve` and `execveat`.
    pub execs: [i32; 2],
    /// The number of `restart_syscall`.
    pub restart: i32,
    /// The number of `futex`.
    pub futex: i32,
    /// Numbers of `sendmsg` and `sendto`.
    pub senders: [i32; 2],
    /// Numbers of the calls that return the descriptor of what they opened.
    pub opens: [i32; 4],
    /// Numbers of `select` and `pselect6`.
    pub selects: [i32; 2],
    /// The number of `connect`.
    pub connect: i32,
    /// The numbers of the calls in which event loops wait.
    pub event_waits: [i32; EVENT_WAITS.len()],
    /// The numbers of those that may be sleeps, of [`SLEEPS`].
    pub sleeps: [i32; SLEEPS.len()],
}

/// Words on the stack of a program, by their offset from the frame.
mod frame {
    /// A thread's number, and after it a call's: a key of the totals.
    pub(super) const KEY: i16 = -8;
    /// The second half of `KEY`.
    pub(super) const KEY_NUMBER: i16 = -4;
    /// The time.
    pub(super) const NOW: i16 = -16;
    /// What the call returned.
    pub(super) const RESULT: i16 = -24;
    /// How long it took.
    pub(super) const WALL: i16 = -32;
    /// CPU time in it.
    pub(super) const CPU: i16 = -40;
    /// First the thread's time of waiting for CPUs at the end, then that in the call.
    pub(super) const QUEUED: i16 = -48;
    /// A key of four or eight bytes.
    pub(super) const SMALL_KEY: i16 = -56;
    /// A value of eight bytes.
    pub(super) const SMALL_VALUE: i16 = -64;
    /// The thread's CPU time less its run queue's clock, at the end.
    pub(super) const END_CPU: i16 = -72;
    /// How a call is watched.
    pub(super) const WATCH: i16 = -80;
    /// What is kept of the thread, when its register is needed for something else.
    pub(super) const STATE: i16 = -88;
    /// For how long short calls were blocked that the reported one stands for, and how many they are: as in the record.
    pub(super) const SHORT: i16 = -96;
}

/// Offsets in `struct pt_regs` of x86-64, which is part of the kernel's interface.
mod registers {
    pub(super) const ORIGINAL_AX: i16 = 120;
    pub(super) const STACK_POINTER: i16 = 152;
    /// The six arguments of a call.
    pub(super) const ARGUMENTS: [i16; 6] = [112, 104, 96, 56, 72, 64];
}

impl ProgramPlan {
    /// Writes the program of `sys_enter`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] is our mistake.
    pub fn enter(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_enter(&mut program);
        program.finish()
    }

    /// Writes the program of `sys_exit`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] is our mistake.
    pub fn exit(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_exit(&mut program);
        program.finish()
    }

    /// Writes the program of `sched_process_fork`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] is our mistake.
    pub fn process_fork(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_process_fork(&mut program);
        program.finish()
    }

    /// Writes the program of `sched_process_exec`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] is our mistake.
    pub fn process_exec(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_process_exec(&mut program);
        program.finish()
    }

    /// Writes the program of `sched_process_exit`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] is our mistake.
    pub fn process_exit(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_process_exit(&mut program);
        program.finish()
    }

    /// Writes the program of `sched_waking`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] is our mistake.
    pub fn waking(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        self.write_waking(&mut program);
        program.finish()
    }

    /// Leaves in `R0` what is kept of the thread in `task`, or 0; `flags` says whether it is made.
    fn find_thread(&self, program: &mut Assembler, task: Register, flags: i32) {
        program.set(R2, task).set_map(R1, self.maps.threads).set(R3, 0).set(R4, flags);
        program.call(Helper::TaskStorage);
    }

    /// Adds 1 to a word that all programs share. Spoils `R1` and `R2`.
    fn count(&self, program: &mut Assembler, word: i16) {
        program.set_array(R1, self.maps.words).set(R2, 1).add_shared(R1, word, R2);
    }

    /// Puts the process of the task in `task` into the small key and leaves its place in the filter, or 0, in `R0`.
    fn find_in_filter(&self, program: &mut Assembler, task: Register) {
        program.load(Size::Word, R1, task, self.fields.task_process);
        program.store(Size::Word, R10, frame::SMALL_KEY, R1);
        self.find(program, self.maps.filter, frame::SMALL_KEY);
    }

    /// Leaves in `R0` the value of the key at `key` of the frame in `map`, or 0.
    fn find(&self, program: &mut Assembler, map: SharedMap, key: i16) {
        program.set_map(R1, map).set(R2, R10).add(R2, i32::from(key)).call(Helper::MapLookup);
    }

    /// Sets the value of the key at `key` to what `R3` points to. Spoils `R0` to `R5`.
    fn put(&self, program: &mut Assembler, map: SharedMap, key: i16, flags: i32) {
        program.set_map(R1, map).set(R2, R10).add(R2, i32::from(key)).set(R4, flags);
        program.call(Helper::MapUpdate);
    }

    /// Jumps to `label` when the number in `number` is not that of a call that runs another program.
    fn unless_exec(&self, program: &mut Assembler, number: Register, label: Label) {
        let is_exec = program.label();
        program.jump_if(number, JumpCondition::Equal, self.execs[0], is_exec);
        program.jump_if(number, JumpCondition::Differ, self.execs[1], label);
        program.place(is_exec);
    }
}
