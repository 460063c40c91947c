//! What a walk finds.

use super::event::{NAME_BYTES, ThreadIdentity, WakeupSource};

/// The most hops of a chain, beside the thread that waited first.
pub const MOST_HOPS: usize = 8;

/// Where a chain ends: what the last hop's time mostly went to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChainEnd {
    /// It waited for a disk.
    Disk,
    /// It slept until a moment that it had chosen.
    Timer,
    /// It waited for a packet, or for something else that the kernel delivers in the second half of an interrupt.
    Network,
    /// An interrupt ended the wait, and it is not known of what.
    Device,
    /// It ran, most of the time on a processor.
    Processor,
    /// It could run, and had no processor most of the time.
    Ready,
    /// It waited often and shortly, or for several others, none for half of the time.
    Several,
    /// There were more hops than are followed.
    TooLong,
    /// The wake-up was not recorded, or was lost: of more than half of the time nothing is known.
    NotKnown,
}

impl ChainEnd {
    /// All of them.
    pub const ALL: [ChainEnd; 9] = [
        ChainEnd::Disk,
        ChainEnd::Timer,
        ChainEnd::Network,
        ChainEnd::Device,
        ChainEnd::Processor,
        ChainEnd::Ready,
        ChainEnd::Several,
        ChainEnd::TooLong,
        ChainEnd::NotKnown,
    ];

    /// Returns a word for it, as it stands in data: `disk`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ChainEnd::Disk => "disk",
            ChainEnd::Timer => "timer",
            ChainEnd::Network => "network",
            ChainEnd::Device => "device",
            ChainEnd::Processor => "processor",
            ChainEnd::Ready => "ready",
            ChainEnd::Several => "several",
            ChainEnd::TooLong => "too-long",
            ChainEnd::NotKnown => "not-known",
        }
    }
}

/// A thread of a chain, and what it did while the one before it waited for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainHop {
    /// The thread.
    pub who: ThreadIdentity,
    /// Its process.
    pub process: u32,
    /// Its name, ended by a zero.
    pub name: [u8; NAME_BYTES],
    /// When the one before it began to wait for it; of the first hop the beginning of the wait.
    pub from_ns: u64,
    /// When it woke the one before it, for the last time; of the first hop the end of the wait.
    pub to_ns: u64,
    /// How long the one before it waited for it.
    pub asked_ns: u64,
    /// Of that: how long it was on a processor.
    pub processor_ns: u64,
    /// Of that: how long it could run and had no processor.
    pub ready_ns: u64,
    /// Of that: how long it waited for what the next hop or the chain's end says.
    pub waited_ns: u64,
    /// Of that: its other waits, those too that were too short to be recorded.
    pub other_ns: u64,
    /// In how many waits it waited for what comes next.
    pub waits: u64,
    /// The system call of most of them.
    pub call: Option<u32>,
    /// Addresses of the kernel's functions of the longest of them, the innermost first.
    pub functions: Vec<u64>,
    /// When it was made, if that was during the wait of the first hop.
    pub born_ns: Option<u64>,
    /// Who made it then.
    pub parent: Option<WakeupSource>,
    /// Who only passed the wake-up on to the hop before, the nearest to that one first.
    pub through: Vec<WakeupSource>,
}

impl ChainHop {
    /// Returns whether the thread has the name that the kernel gives to the first thread of a program: the file's, cut.
    #[must_use]
    pub fn is_named_after(&self, executable: &[u8]) -> bool {
        let name = self.name.split(|byte| *byte == 0).next().unwrap_or_default();
        let file = executable.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !name.is_empty() && name == &file[..file.len().min(NAME_BYTES - 1)]
    }
}

/// The way from a thread that waited to what it waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct WakeupChain {
    /// The threads; the first one is the one that waited. There is always one.
    pub hops: Vec<ChainHop>,
    /// What the last one's time went to.
    pub end: ChainEnd,
    /// The time of the last hop that its end explains.
    pub end_ns: u64,
    /// Whether wake-ups were lost or dropped that may belong to the chain.
    pub has_losses: bool,
}
