//! The layout of what the programs in the kernel and we share: offsets in bytes, numbers in the machine's order.

/// What is kept of an operation in flight, by the address of its request.
pub(super) mod flight {
    /// When it was submitted.
    pub(crate) const START: i16 = 0;
    /// Its ring.
    pub(crate) const RING: i16 = 8;
    /// The process.
    pub(crate) const PROCESS: i16 = 16;
    /// The thread that submitted it.
    pub(crate) const THREAD: i16 = 20;
    /// Its descriptor, or the directory that its path is relative to.
    pub(crate) const DESCRIPTOR: i16 = 24;
    /// The flags of its submission.
    pub(crate) const FLAGS: i16 = 28;
    /// Its number.
    pub(crate) const OPCODE: i16 = 32;
    /// Bits, see below.
    pub(crate) const HOW: i16 = 36;
    /// Bytes of its path, with the final zero.
    pub(crate) const PATH_LENGTH: i16 = 40;
    /// Its path.
    pub(crate) const PATH: i16 = 48;
    /// The most bytes of a path.
    pub(crate) const PATH_LIMIT: i32 = 256;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 48 + 256;

    /// In `HOW`: a worker has it.
    pub(crate) const WORKER: i32 = 1;
    /// In `HOW`: it waits until its file is ready.
    pub(crate) const READINESS: i32 = 2;
    /// In `FLAGS`: its descriptor is the index of a registered file.
    pub(crate) const REGISTERED: u32 = 1;
}

/// The key of a sum.
pub(super) mod key {
    /// The inode's number.
    pub(crate) const INODE: i16 = 0;
    /// Its device.
    pub(crate) const DEVICE: i16 = 8;
    /// The process.
    pub(crate) const PROCESS: i16 = 12;
    /// The operation.
    pub(crate) const OPCODE: i16 = 16;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 24;
}

/// A sum.
pub(super) mod total {
    pub(crate) const COUNT: i16 = 0;
    pub(crate) const ERRORS: i16 = 8;
    pub(crate) const WALL: i16 = 16;
    pub(crate) const LONGEST: i16 = 24;
    pub(crate) const RESULTS: i16 = 32;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 40;
}

/// What is kept of a thread that works for memory, by thread and kind of work.
pub(super) mod began {
    /// When that began.
    pub(crate) const START: i16 = 0;
    /// The thread's time on processors less the clock of its run queue then.
    pub(crate) const PROCESSOR: i16 = 8;
    /// Its time ready.
    pub(crate) const READY: i16 = 16;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 24;
}

/// A record in the ring.
pub(super) mod record {
    /// What it is: one of the kinds below.
    pub(crate) const KIND: i16 = 0;
    /// Bits, see below.
    pub(crate) const FLAGS: i16 = 4;
    pub(crate) const PROCESS: i16 = 8;
    pub(crate) const THREAD: i16 = 12;
    pub(crate) const START: i16 = 16;
    pub(crate) const WALL: i16 = 24;
    /// The ring; of memory, the time ready.
    pub(crate) const RING: i16 = 32;
    /// What an operation returned; of reclaim, how many pages were taken back; of a fault, the address.
    pub(crate) const RESULT: i16 = 40;
    /// The inode's number; of memory, the time on a processor.
    pub(crate) const INODE: i16 = 48;
    pub(crate) const DEVICE: i16 = 56;
    pub(crate) const MODE: i16 = 60;
    pub(crate) const MOUNT: i16 = 64;
    /// Bytes of what follows.
    pub(crate) const LENGTH: i16 = 68;
    /// The descriptor; of a new ring its own.
    pub(crate) const DESCRIPTOR: i16 = 72;
    /// The flags of the submission, or of the new ring.
    pub(crate) const SUBMITTED: i16 = 76;
    /// The number of the operation, or the kind of work for memory.
    pub(crate) const OPCODE: i16 = 80;
    /// See `flight::HOW`.
    pub(crate) const HOW: i16 = 84;
    /// What follows: the path that was asked for, or names from the file up to the root.
    pub(crate) const DATA: i16 = 96;
    /// Of memory: the registers, as `struct pt_regs` has them, and behind them the stack.
    pub(crate) const REGISTERS: i16 = 96;
    /// Bytes of them.
    pub(crate) const REGISTERS_SIZE: i16 = 168;
    pub(crate) const STACK: i16 = REGISTERS + REGISTERS_SIZE;
    /// The most of a stack that is copied.
    pub(crate) const STACK_LIMIT: i32 = 8192;

    /// An operation.
    pub(crate) const OPERATION: i32 = 1;
    /// A new ring.
    pub(crate) const CREATED: i32 = 2;
    /// A ring tells of completions by an event counter.
    pub(crate) const COUNTER: i32 = 3;
    /// Work for memory.
    pub(crate) const MEMORY: i32 = 4;

    /// In `FLAGS`: the operation was slow.
    pub(crate) const SLOW: u32 = 1;
    /// In `FLAGS`: the file was not seen before; its names follow.
    pub(crate) const NAMED: u32 = 2;
    /// In `FLAGS`: they go up to the root.
    pub(crate) const WHOLE: u32 = 4;
    /// In `FLAGS`: the file has no name in its directory any more.
    pub(crate) const DELETED: u32 = 8;
    /// In `FLAGS`: the path that was asked for follows.
    pub(crate) const ASKED: u32 = 16;
    /// In `FLAGS`: the operation has a file.
    pub(crate) const FILE: u32 = 32;
}

/// Room for a record while it is put together, one for each kind of program and processor.
pub(super) mod room {
    /// For submissions.
    pub(crate) const SUBMITTED: i32 = 0;
    /// For completions.
    pub(crate) const COMPLETED: i32 = 1;
    /// For memory.
    pub(crate) const MEMORY: i32 = 2;
    /// How many there are.
    pub(crate) const COUNT: u32 = 3;

    /// Bytes of names at most.
    pub(crate) const NAMES: i32 = 4096;
    /// The longest name, with its final zero.
    pub(crate) const NAME: i32 = 256;
    /// Where names stop being added, so that one more fits.
    pub(crate) const NAMES_LIMIT: i32 = NAMES - 2 * NAME;
    /// Where the walk up the directories is: entry, mount, and bytes of names so far.
    pub(crate) const ENTRY: i16 = 8704;
    pub(crate) const MOUNT: i16 = ENTRY + 8;
    pub(crate) const FOUND: i16 = ENTRY + 16;
    /// Addresses of the file and of its inode.
    pub(crate) const FILE: i16 = ENTRY + 24;
    pub(crate) const INODE: i16 = ENTRY + 32;
    /// Copies of the beginnings of a `struct dentry` and a `struct mount`.
    pub(crate) const ENTRY_COPY: i16 = ENTRY + 40;
    pub(crate) const MOUNT_COPY: i16 = ENTRY_COPY + COPY_SIZE;
    pub(crate) const COPY_SIZE: i16 = sys::bpf::file_names::WalkRoom::COPY_BYTES;
    /// A copy of the beginning of a request.
    pub(crate) const REQUEST: i16 = MOUNT_COPY + COPY_SIZE;
    pub(crate) const REQUEST_SIZE: i16 = 128;
    /// A sum of zeros.
    pub(crate) const ZERO: i16 = REQUEST + REQUEST_SIZE;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = (ZERO as u32 + super::total::SIZE).next_multiple_of(8);
}

/// Words that all programs share.
pub(super) mod shared {
    /// Records that found no room.
    pub(crate) const LOST: i16 = 0;
    /// Operations that were not followed, for there were too many.
    pub(crate) const NOT_FOLLOWED: i16 = 8;
    /// Operations whose file was one too many: they are in no sum.
    pub(crate) const NOT_SUMMED: i16 = 16;
    /// Bytes of all.
    pub(crate) const SIZE: u32 = 24;
}

/// The walk has its own room behind every record.
const _: () = assert!(
    record::STACK as i32 + record::STACK_LIMIT <= room::ENTRY as i32
        && record::DATA as i32 + room::NAMES + room::NAME <= room::ENTRY as i32
);
