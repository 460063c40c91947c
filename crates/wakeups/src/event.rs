//! What is recorded: a thread that waited, and who woke it.

/// The bytes of a thread's name in the kernel (`comm`), with its final zero.
pub const NAME_BYTES: usize = 16;

/// A thread of the machine.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ThreadIdentity {
    /// Its number, which the kernel gives to another thread later.
    pub thread: u32,
    /// When it began, in whichever unit: it tells two threads of one number apart.
    pub began: u32,
}

/// What an interrupt was about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InterruptKind {
    /// A moment that somebody had chosen.
    Timer,
    /// Packets; of the machine's own network the sender may have been on the processor.
    Network,
    /// The end of a request to a disk.
    Disk,
    /// A device, or not known.
    Other,
}

/// In what a processor was when it woke a thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WakeupContext {
    /// A thread of a program, in a system call or at its end.
    #[default]
    Program,
    /// A thread of the kernel.
    Kernel,
    /// An interrupt: the thread that was found on the processor has nothing to do with it.
    Interrupt(InterruptKind),
    /// The source made the thread: it begins here.
    Birth,
}

impl WakeupContext {
    /// Returns whether it was an interrupt, so that the source is only who was on the processor.
    #[must_use]
    pub fn is_interrupt(self) -> bool {
        matches!(self, WakeupContext::Interrupt(_))
    }
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WakeupSource {
    /// The thread.
    pub who: ThreadIdentity,
    /// Its process.
    pub process: u32,
    /// Its name, ended by a zero.
    pub name: [u8; NAME_BYTES],
    /// What it was in.
    pub context: WakeupContext,
    /// When, in nanoseconds of any clock that all events share.
    pub at_ns: u64,
}

impl WakeupSource {
    /// Returns whether it is not told who it is, since it is another user's, or a thread of the kernel.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.process == 0 && !self.context.is_interrupt()
    }
}

/// A thread waited and was woken, or was made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ThreadWait {
    /// The thread.
    pub who: ThreadIdentity,
    /// Its process.
    pub process: u32,
    /// Its name, ended by a zero.
    pub name: [u8; NAME_BYTES],
    /// When it left its processor.
    pub from_ns: u64,
    /// When it was woken; the same as `from_ns` for a thread that was made.
    pub to_ns: u64,
    /// The number of the system call that it waited in, if it was in one.
    pub call: Option<u32>,
    /// Addresses of the kernel's functions that it waited in, the innermost first.
    pub functions: Vec<u64>,
    /// Whether signals could not end the wait, as in most waits for a disk.
    pub uninterruptible: bool,
    /// Its time on processors in all of its life.
    pub processor_ns: u64,
    /// Its time without a processor although it could run, in all of its life.
    pub ready_ns: u64,
    /// Who woke it; then who had woken that one last, and so on, as far as that was recorded.
    pub sources: Vec<WakeupSource>,
    /// The first source's time on processors and ready, in its life, when it woke the thread.
    pub source_counters: Option<[u64; 2]>,
}

impl ThreadWait {
    /// Returns whether this is the beginning of the thread.
    #[must_use]
    pub fn is_birth(&self) -> bool {
        self.sources.first().is_some_and(|source| source.context == WakeupContext::Birth)
    }
}
