//! The layout of what the programs in the kernel and we share: offsets in bytes, numbers in the machine's order.

/// The most threads before the one that woke a thread of which is kept who woke it.
pub(super) const SOURCES: i16 = 4;
/// Return addresses of the kernel that are kept of a wait.
pub(super) const FUNCTIONS: i16 = 8;

/// One who woke a thread.
pub(super) mod source {
    /// When.
    pub(crate) const AT: i16 = 0;
    /// The thread.
    pub(crate) const THREAD: i16 = 8;
    /// Its process.
    pub(crate) const PROCESS: i16 = 12;
    /// When it began, in units of 2^20 ns.
    pub(crate) const BEGAN: i16 = 16;
    /// One of the values below; 0 for none.
    pub(crate) const CONTEXT: i16 = 20;
    /// Its name.
    pub(crate) const NAME: i16 = 24;
    /// Bytes of all.
    pub(crate) const SIZE: i16 = 40;

    pub(crate) const PROGRAM: i32 = 1;
    pub(crate) const KERNEL: i32 = 2;
    pub(crate) const BIRTH: i32 = 3;
    /// This and what is larger is an interrupt.
    pub(crate) const TIMER: i32 = 4;
    pub(crate) const NETWORK: i32 = 5;
    pub(crate) const DISK: i32 = 6;
    pub(crate) const OTHER: i32 = 7;
}

/// What is kept of each thread.
pub(super) mod thread {
    /// When it left its processor to wait.
    pub(crate) const OFF: i16 = 0;
    /// Who woke it last, and who had woken that one, and so on.
    pub(crate) const SOURCES: i16 = 8;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = (SOURCES + super::SOURCES * super::source::SIZE) as u32;
}

/// A record in the ring.
pub(super) mod record {
    /// The thread.
    pub(crate) const THREAD: i16 = 0;
    /// Its process.
    pub(crate) const PROCESS: i16 = 4;
    /// When it began, in units of 2^20 ns.
    pub(crate) const BEGAN: i16 = 8;
    /// The state that it waited in.
    pub(crate) const STATE: i16 = 12;
    /// When it left its processor.
    pub(crate) const FROM: i16 = 16;
    /// When it was woken.
    pub(crate) const TO: i16 = 24;
    /// Its time on processors.
    pub(crate) const PROCESSOR: i16 = 32;
    /// Its time ready.
    pub(crate) const READY: i16 = 40;
    /// The time on processors of who woke it.
    pub(crate) const SOURCE_PROCESSOR: i16 = 48;
    /// The time ready of who woke it.
    pub(crate) const SOURCE_READY: i16 = 56;
    /// The system call that it is in, or -1.
    pub(crate) const CALL: i16 = 64;
    /// Its name.
    pub(crate) const NAME: i16 = 72;
    /// Where in the kernel it waited.
    pub(crate) const FUNCTIONS: i16 = 88;
    /// Who woke it.
    pub(crate) const SOURCES: i16 = FUNCTIONS + 8 * super::FUNCTIONS;
    /// Bytes of all.
    pub(crate) const SIZE: i16 = SOURCES + super::SOURCES * super::source::SIZE;
}

/// Which interrupts a processor is in: words with one of the values of `source`, or 0.
pub(super) mod processor {
    /// A timer.
    pub(crate) const TIMER: i16 = 0;
    /// That of a device.
    pub(crate) const DEVICE: i16 = 8;
    /// The second half of one.
    pub(crate) const SOFT: i16 = 16;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 24;
}

/// Words that all programs share.
pub(super) mod shared {
    /// Since when is recorded.
    pub(crate) const SINCE: i16 = 0;
    /// Records that found no room.
    pub(crate) const LOST: i16 = 8;
    /// Threads of which nothing could be kept for want of memory.
    pub(crate) const NOT_KEPT: i16 = 16;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 24;
}
