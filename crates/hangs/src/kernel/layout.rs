//! The layout of what the programs in the kernel and user space share: offsets in bytes, numbers in the machine's order.

use crate::model::STEP_BOUNDS_NS;

/// What is kept of a marked thread.
pub(super) mod thread {
    /// The timer that reports a long absence; its 16 bytes belong to the kernel. What is before `PHASE` is told to nobody.
    pub(crate) const TIMER: i16 = 0;
    /// The address of its memory's description, which is another one after each `execve`; 0 before it was first seen.
    pub(crate) const MEMORY: i16 = 16;
    /// When it was last seen to get a processor; 0 before.
    pub(crate) const ARRIVED: i16 = 24;
    /// By how much the clock of the programs is ahead of the one with which the kernel notes that moment; 0 before it is known.
    pub(crate) const AHEAD: i16 = 32;
    /// When it left its processor, whatever it was in; 0 while it has one.
    pub(crate) const LEFT: i16 = 40;
    /// One of the values below.
    pub(crate) const PHASE: i16 = 48;
    /// The stack pointer and the instruction of the last wait of the main loop.
    pub(crate) const LOOP_SP: i16 = 56;
    /// See `LOOP_SP`.
    pub(crate) const LOOP_IP: i16 = 64;
    /// 1 while the timer runs, and until it is prepared.
    pub(crate) const ARMED: i16 = 72;
    /// 1 once the absence that goes on was reported.
    pub(crate) const REPORTED: i16 = 80;
    /// Not 0 while it is in a wait that is not classified and counts as the main loop's until then: 1, or 2 at a place at which another
    /// wait is that of the main loop.
    pub(crate) const ASKS: i16 = 88;
    /// When the absence began.
    pub(crate) const START: i16 = 96;
    /// Its time of waiting for processors, and its major page faults, at that moment.
    pub(crate) const START_READY: i16 = 104;
    /// See `START_READY`.
    pub(crate) const START_FAULTS: i16 = 112;
    /// How long it has been off the processors in the absence.
    pub(crate) const OFF_TOTAL: i16 = 120;
    /// When it left its processor in the absence; 0 while it has one.
    pub(crate) const OFF: i16 = 128;
    /// The state in which it left: 0 if it could have gone on.
    pub(crate) const OFF_STATE: i16 = 136;
    /// Waits in the absence that were not reported for want of room.
    pub(crate) const DROPPED: i16 = 144;
    /// When it left its processor in a wait for events; 0 if it is in none.
    pub(crate) const WAIT: i16 = 152;
    /// Where it is made: the stack pointer.
    pub(crate) const WAIT_SP: i16 = 160;
    /// Where it is made: the instruction.
    pub(crate) const WAIT_IP: i16 = 168;
    /// `OFF_TOTAL` when it began.
    pub(crate) const WAIT_OFF_TOTAL: i16 = 176;
    /// The time of waiting for processors in the absence when it began.
    pub(crate) const WAIT_READY: i16 = 184;
    /// The major page faults in the absence when it began.
    pub(crate) const WAIT_FAULTS: i16 = 192;
    /// The stack pointer of the shallowest wait.
    pub(crate) const SHALLOWEST: i16 = 200;
    /// When the thread was first seen in a wait that is known to be that of its main loop; 0 before.
    pub(crate) const KNOWN: i16 = 208;
    /// How often the main loop's wait began or ended; adding to it orders what was stored before.
    pub(crate) const TURNS: i16 = 216;
    /// How long it has been blocked in the absence since a wait was last reported.
    pub(crate) const OWED: i16 = 224;
    /// Counts of steps by their length.
    pub(crate) const STEPS: i16 = 232;
    /// With what registers it left its processor in the absence: the number of the system call, or -1.
    pub(crate) const OFF_CALL: i16 = STEPS + 8 * super::CLASSES;
    /// See `OFF_CALL`: the stack pointer.
    pub(crate) const OFF_SP: i16 = OFF_CALL + 8;
    /// See `OFF_CALL`: the instruction.
    pub(crate) const OFF_IP: i16 = OFF_SP + 8;
    /// See `OFF_CALL`: six arguments.
    pub(crate) const OFF_ARGUMENTS: i16 = OFF_IP + 8;
    /// What the wait for events is for, as [`EventWait::subject`](super::super::EventWait::subject) says.
    pub(crate) const WAIT_SUBJECT: i16 = OFF_ARGUMENTS + 48;
    /// Bytes of all.
    pub(crate) const SIZE: i16 = WAIT_SUBJECT + 8;

    /// Nothing is known of what it does.
    pub(crate) const UNKNOWN: i32 = 0;
    /// It is in the wait of its main loop.
    pub(crate) const WAITING: i32 = 1;
    /// It is away from it.
    pub(crate) const AWAY: i32 = 2;
    /// It runs another program, or has ended: it is not followed any more.
    pub(crate) const GONE: i32 = 3;
}

/// Classes of steps.
pub(super) const CLASSES: i16 = 10;
const _: () = assert!(STEP_BOUNDS_NS.len() + 1 == 10);

/// The key of a wait of a thread: the thread in eight bytes, the stack pointer, the instruction, what is waited for.
pub(super) mod place {
    /// Bytes of all.
    pub(crate) const SIZE: i16 = 32;
    /// In place of what is waited for: whatever nothing is known of at this place.
    pub(crate) const ANYTHING: u64 = u64::MAX;
    /// The main loop waits there.
    pub(crate) const LOOP: i32 = 1;
    /// Something is waited for there inside of a step.
    pub(crate) const NESTED: i32 = 2;
    /// Of [`ANYTHING`]: the main loop waits there, and nothing else is asked about.
    pub(crate) const LOOP_ALWAYS: i32 = 3;
}

/// What is waited for, where that is not told by the call's arguments.
pub(crate) mod subject {
    /// A lock.
    pub(crate) const LOCK: u64 = 0;
    /// A moment; all bits but the lowest one.
    pub(crate) const SLEEP: u64 = u64::MAX - 1;
    /// In place of what is waited for, where a thread is marked that is away from the wait at a place.
    pub(crate) const AWAY: u64 = u64::MAX - 2;
}

/// A record in the ring: words of eight bytes.
pub(super) mod record {
    /// One of the values below.
    pub(crate) const KIND: i16 = 0;
    /// The thread.
    pub(crate) const THREAD: i16 = 8;
    /// When: the end of what it is about.
    pub(crate) const AT: i16 = 16;
    /// When the absence began.
    pub(crate) const START: i16 = 24;
    /// How long it was off the processors in the absence.
    pub(crate) const OFF_TOTAL: i16 = 32;
    /// How long it waited for processors in the absence.
    pub(crate) const READY: i16 = 40;
    /// Major page faults in the absence.
    pub(crate) const FAULTS: i16 = 48;
    /// Waits that were not reported.
    pub(crate) const DROPPED: i16 = 56;
    /// Of a wait: when it began.
    pub(crate) const FROM: i16 = 64;
    /// Of a wait: the state in which it was made; 0 if the thread could run.
    pub(crate) const STATE: i16 = 72;
    /// Of a wait: the number of the system call, or -1.
    pub(crate) const CALL: i16 = 80;
    /// Of a wait: the stack pointer.
    pub(crate) const SP: i16 = 88;
    /// Of a wait: the instruction.
    pub(crate) const IP: i16 = 96;
    /// Of a wait: six arguments.
    pub(crate) const ARGUMENTS: i16 = 104;
    /// Of a wait: for how much blocked time it stands, with that of the shorter ones before it.
    pub(crate) const OWED: i16 = ARGUMENTS + 48;
    /// Bytes of all.
    pub(crate) const SIZE: i16 = OWED + 8;

    /// A thread has been away for long, and still is.
    pub(crate) const LATE: i32 = 1;
    /// An absence has ended.
    pub(crate) const ENDED: i32 = 2;
    /// A thread is in a wait whose place is not classified.
    pub(crate) const ASKS: i32 = 3;
    /// A thread that is away has waited.
    pub(crate) const WAITED: i32 = 4;
    /// A thread runs another program, or has ended.
    pub(crate) const GONE: i32 = 5;
    /// A process that need not be marked has begun to run a program.
    pub(crate) const STARTED: i32 = 6;
    /// A process that need not be marked has connected to a socket with the name of a display server's.
    pub(crate) const CONNECTED: i32 = 7;
}

/// Words that all programs share.
pub(super) mod shared {
    /// Records that found no room, those about waits not counted.
    pub(crate) const LOST: i16 = 0;
    /// When a program that was started was last told.
    pub(crate) const STARTED: i16 = 8;
    /// When a connection to a display was last told.
    pub(crate) const CONNECTED: i16 = 16;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 24;
}
