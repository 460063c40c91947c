//! The layout of data shared between the programs in the kernel and user space: offsets in bytes, numbers in the machine's order.

/// Call numbers at and above this are not watched; the kernel's tables have some 470.
pub const CALLS: u32 = 1024;

/// The table of calls: four bytes for each number.
pub mod table {
    /// Bytes of an entry.
    pub const ENTRY: u32 = 4;
    /// Whether the call is watched: one of the values below.
    pub const WATCH: i16 = 0;
    /// One more than the number of the argument that is the first path; 0 for none.
    pub const FIRST_PATH: i16 = 1;
    /// One more than the number of the argument that is the second path; 0 for none.
    pub const SECOND_PATH: i16 = 2;
    /// One more than the number of the argument that is a descriptor or a directory; 0 for none.
    pub const DESCRIPTOR: i16 = 3;
    /// In `DESCRIPTOR`: what a `poll` waited for, which is copied behind the arguments.
    pub const POLLED: u8 = 7;
    /// Nothing is done for it.
    pub const UNWATCHED: u8 = 0;
    /// It is counted.
    pub const WATCHED: u8 = 1;
    /// It is not counted, but it tells that an interrupted call is over.
    pub const CONTROL: u8 = 2;
    /// It is not counted, but a long one of a main thread is reported.
    pub const LONG_ONLY: u8 = 3;
}

/// The filter of processes: what a process is there for.
pub mod filter {
    /// It is watched.
    pub const ACTIVE: u32 = 1;
    /// It is watched from the `execve` on that will succeed next.
    pub const FROM_EXEC: u32 = 2;
}

/// What is kept of each thread.
pub mod thread {
    /// When its call was entered.
    pub const START: i16 = 0;
    /// Its CPU time less the clock of its run queue, at entry.
    pub const CPU: i16 = 8;
    /// How long it had waited for CPUs, at entry.
    pub const DELAY: i16 = 16;
    /// The call's number.
    pub const NUMBER: i16 = 24;
    /// One of the states below.
    pub const STATE: i16 = 28;
    /// Its number.
    pub const THREAD: i16 = 32;
    /// Its process.
    pub const PROCESS: i16 = 36;
    /// The thread that woke it last from a futex.
    pub const WAKER: i16 = 40;
    /// Not 0 while it is not watched but for the `execve` that is waited for.
    pub const AWAITS: i16 = 44;
    /// When a call that may be restarted was left, with `CPU` and `DELAY` then.
    pub const END: i16 = 48;
    /// See `END`.
    pub const END_CPU: i16 = 56;
    /// See `END`.
    pub const END_DELAY: i16 = 64;
    /// The arguments, where the registers will not have them at the exit.
    pub const ARGUMENTS: i16 = 72;
    /// A bit for each call number that it has a total of.
    pub const SEEN: i16 = 120;
    /// When it was last told that its event loop looked for events.
    pub const TURN: i16 = 248;
    /// Of a `select`: which of the first 64 descriptors are to be read, and which written; the kernel writes its answer over them.
    pub const SETS: i16 = 256;
    /// How long the short calls since the last report of one were blocked.
    pub const SHORT_BLOCKED: i16 = 272;
    /// How many of them were blocked.
    pub const SHORT_COUNT: i16 = 280;
    /// Up to which `SHORT_BLOCKED` goes before one is reported; 0 before the first was blocked.
    pub const SHORT_LIMIT: i16 = 288;
    /// Bytes of all.
    pub const SIZE: u32 = 296;

    /// It is in no watched call.
    pub const OUTSIDE: i32 = 0;
    /// It is in a watched call.
    pub const INSIDE: i32 = 1;
    /// It left a call that the kernel will restart unless a signal has a handler.
    pub const INTERRUPTED: i32 = 2;
}

/// A total: sums over the calls of one number by one thread.
pub mod total {
    /// How many.
    pub const COUNT: i16 = 0;
    /// How many failed.
    pub const ERRORS: i16 = 8;
    /// Their wall time.
    pub const WALL: i16 = 16;
    /// Their CPU time.
    pub const CPU: i16 = 24;
    /// The longest.
    pub const LONGEST: i16 = 32;
    /// Counts of 32 bits by duration.
    pub const HISTOGRAM: i16 = 40;
    /// Bytes of all.
    pub const SIZE: u32 = 40 + 160 * 4;
}

/// A record in the ring.
pub mod record {
    /// What it is: one of the kinds below.
    pub const KIND: i16 = 0;
    /// Bits, see below.
    pub const FLAGS: i16 = 4;
    /// The thread.
    pub const THREAD: i16 = 8;
    /// Its process.
    pub const PROCESS: i16 = 12;
    /// The call's number; of a fork the parent's thread; of an exec the number that the thread had before.
    pub const NUMBER: i16 = 16;
    /// The thread that woke it; of a fork the parent's process; of an exit how often it waited for a page.
    pub const WAKER: i16 = 20;
    /// When it began, of the monotonic clock.
    pub const START: i16 = 24;
    /// How long it took; of an exit, when a call that it ended in began, or 0.
    pub const WALL: i16 = 32;
    /// CPU time in it; of an exit and of a turn in all of the thread's life.
    pub const CPU: i16 = 40;
    /// Time that it waited for a CPU in it; of an exit in all of the thread's life.
    pub const QUEUED: i16 = 48;
    /// What it returned; of an exit the status as of `wait(2)`.
    pub const RESULT: i16 = 56;
    /// Six arguments, and the descriptor that a `poll` waited for or -1; of an exit the thread's `SEEN`.
    pub const ARGUMENTS: i16 = 64;
    /// Of a short call that stands for others: how long they were blocked together, in the lower [`SHORT_BITS`] bits, and above how
    /// many they are; 0 of a call that is reported for itself.
    pub const SHORT: i16 = 120;
    /// Enough for 18 minutes.
    pub const SHORT_BITS: i32 = 40;
    /// Bytes of a fork's record.
    pub const FORK_SIZE: i32 = 64;
    /// Bytes of a turn's record.
    pub const TURN_SIZE: i32 = 56;
    /// Of an exit: the name of the thread, of 16 bytes with its final zero.
    pub const EXIT_NAME: i16 = 192;
    /// Bytes of an exit's record.
    pub const EXIT_SIZE: i32 = 208;
    /// Of a message that is sent: its beginning, up to the end of the record.
    pub const MESSAGE: i16 = 64;
    /// The most of a message that is copied.
    pub const MESSAGE_LIMIT: i32 = 1024;
    /// The registers, as `struct pt_regs` has them.
    pub const REGISTERS: i16 = 128;
    /// Bytes of them.
    pub const REGISTERS_SIZE: i16 = 168;
    /// Bytes of the first path, with its final zero; of an exec, of the program's path.
    pub const FIRST_PATH: i16 = 296;
    /// Bytes of the second path; of an exec, of the command line; of a `poll`, of its list; of a `select`, of its sets; of a `connect`, of
    /// its address.
    pub const SECOND_PATH: i16 = 300;
    /// Bytes of the names on the way from the descriptor's file to the root, each with its final zero.
    pub const NAMES: i16 = 304;
    /// Bytes of the stack.
    pub const STACK: i16 = 308;
    /// The mode of the descriptor's file.
    pub const MODE: i16 = 312;
    /// The number of its mount, as in `mountinfo`.
    pub const MOUNT: i16 = 316;
    /// Its inode number.
    pub const INODE: i16 = 320;
    /// Its device, in the kernel's own form: 12 bits and 20 bits.
    pub const DEVICE: i16 = 328;
    /// Whether the names are of the descriptor's file or of the working directory: one of the values below.
    pub const NAMES_OF: i16 = 332;
    /// Of a socket: the process at its other end, or 0.
    pub const PEER: i16 = 336;
    /// Of a socket: bytes of the address of its other end; 0 if it has none.
    pub const ADDRESS_LENGTH: i16 = 340;
    /// Of a socket: its type, as `SOCK_STREAM`.
    pub const SOCKET_TYPE: i16 = 344;
    /// Of a path: the number of the mount that the program's root is the root of; 0 if it is none's.
    pub const ROOT_MOUNT: i16 = 348;
    /// Of a socket: the address of its other end, as a `struct sockaddr`.
    pub const ADDRESS: i16 = 352;
    /// The longest address: that of a Unix socket.
    pub const ADDRESS_LIMIT: i32 = 110;
    /// What follows: first path, second path, names, stack.
    pub const DATA: i16 = ADDRESS + 112;

    /// A call.
    pub const CALL: i32 = 1;
    /// A new thread or process.
    pub const FORK: i32 = 2;
    /// A new program.
    pub const EXEC: i32 = 3;
    /// The end of a thread.
    pub const EXIT: i32 = 4;
    /// A main thread looked for events and had not to wait.
    pub const TURN: i32 = 5;
    /// A message that looks like a call of D-Bus is sent on the descriptor in `NUMBER`.
    pub const SENT: i32 = 6;

    /// In `FLAGS`: the names go up to the root.
    pub const WHOLE_PATH: u32 = 1;
    /// In `FLAGS`: the last thread of its process.
    pub const LAST_THREAD: i32 = 2;
    /// In `FLAGS`: there was no room for the stack.
    pub const STACK_LEFT_OUT: u32 = 4;
    /// In `FLAGS`: the file has no name in its directory any more.
    pub const DELETED: u32 = 8;

    /// In `NAMES_OF`: there are no names.
    pub const OF_NOTHING: i32 = 0;
    /// In `NAMES_OF`: of the file of the descriptor argument.
    pub const OF_DESCRIPTOR: i32 = 1;
    /// In `NAMES_OF`: of the working directory.
    pub const OF_WORKING_DIRECTORY: i32 = 2;
    /// In `NAMES_OF`: of the file that the call opened.
    pub const OF_RESULT: i32 = 3;

    /// The longest command line, and the room for names.
    pub const PATH: i32 = 4096;
    /// The longest path: one byte less, so that the sum of two is below a power of two.
    pub const USER_PATH: i32 = 4095;
    /// The longest name, with its final zero.
    pub const NAME: i32 = 256;
    /// Where names stop being added, so that one more fits.
    pub const NAMES_LIMIT: i32 = 4096 - 2 * NAME;
    /// The most of a stack that is copied.
    pub const STACK_LIMIT: i32 = 16384;
    /// The most of the list of a `poll` that is copied: 64 descriptors.
    pub const POLL_LIST_LIMIT: i32 = 512;
    /// The most of the address of a `connect` that is copied.
    pub const CONNECT_LIMIT: i32 = 128;
}

/// Room for a record while it is put together, one for each CPU.
pub mod scratch {
    /// Where the walk up the directories is: the name that is looked at, its mount, and that mount's root.
    pub const ENTRY: i16 = 29_312;
    /// See `ENTRY`.
    pub const MOUNT: i16 = ENTRY + 8;
    /// Bytes of names so far.
    pub const NAMES: i16 = ENTRY + 16;
    /// A file's address.
    pub const FILE: i16 = ENTRY + 24;
    /// An inode's address.
    pub const INODE: i16 = ENTRY + 32;
    /// Bytes of data so far, where the verifier shall not follow them.
    pub const LENGTH: i16 = ENTRY + 40;
    /// A copy of the beginning of a `struct dentry`.
    pub const ENTRY_COPY: i16 = ENTRY + 48;
    /// A copy of the beginning of a `struct mount`.
    pub const MOUNT_COPY: i16 = ENTRY_COPY + COPY_SIZE;
    /// Bytes of each of these copies.
    pub const COPY_SIZE: i16 = sys::bpf::file_names::WalkRoom::COPY_BYTES;
    /// The address of the open file that the names are of.
    pub const OPEN_FILE: i16 = MOUNT_COPY + COPY_SIZE;
    /// The address of a `struct sock`.
    pub const SOCKET: i16 = OPEN_FILE + 8;
    /// The state of a connection.
    pub const CONNECTION: i16 = OPEN_FILE + 16;
    /// The address of a `struct unix_address`, or of the other end that is looked at again.
    pub const OTHER_END: i16 = OPEN_FILE + 24;
    /// The address of the open file's place in the table of descriptors.
    pub const TABLE_PLACE: i16 = OPEN_FILE + 32;
    /// Bytes of all; the kernel allows 32 KiB per CPU.
    pub const SIZE: u32 = 29_312 + 48 + 2 * 128 + 40;
}

/// Words that all programs share.
pub mod shared {
    /// When we were last woken.
    pub const WOKEN: i16 = 0;
    /// Records of calls that found no room in the ring.
    pub const LOST_CALLS: i16 = 8;
    /// Records of forks, execs and exits that found no room.
    pub const LOST_LIVES: i16 = 16;
    /// Calls that were counted without their thread, for there were too many threads.
    pub const WITHOUT_THREAD: i16 = 24;
    /// Calls that could not be followed for want of memory.
    pub const NOT_FOLLOWED: i16 = 32;
    /// Calls of 32-bit code, which has other numbers, and programs of 32 bits that were executed.
    pub const OTHER_NUMBERS: i16 = 40;
    /// Stacks that were left out for want of room.
    pub const STACKS_LEFT_OUT: i16 = 48;
    /// Processes that the filter had no room for.
    pub const PROCESSES_LEFT_OUT: i16 = 56;
    /// Messages of D-Bus that found no room in the ring.
    pub const LOST_MESSAGES: i16 = 64;
    /// Processes that executed a program which the session's owner may not look into.
    pub const LEFT_WITH_OTHER_RIGHTS: i16 = 72;
    /// Bytes of all.
    pub const SIZE: u32 = 80;
}
