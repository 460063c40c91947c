//! Decodes the records of the programs in the ring.

use sys::bpf::file_names::CopiedFile;
use sys::bpf::record::{long, word};

use crate::layout::{CALLS, record};
use sys::syscall::call_name;

/// The other end of a socket, as the kernel's programs copied it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopiedSocket<'a> {
    /// The process at the other end of a Unix socket, or 0.
    pub peer: u32,
    /// The type of the socket, as `SOCK_STREAM`.
    pub kind: u32,
    /// The address of the other end, a `struct sockaddr`.
    pub address: &'a [u8],
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub enum BpfRecord<'a> {
    /// A call that ended.
    Call(Box<CallRecord<'a>>),
    /// A new thread or process.
    Fork {
        /// It.
        thread: u32,
        /// Its process.
        process: u32,
        /// The process that made it.
        parent: u32,
        /// When, of the monotonic clock in nanoseconds.
        at_ns: u64,
    },
    /// A process runs another program.
    Exec {
        /// Its only thread, which has its number now.
        process: u32,
        /// When, of the monotonic clock in nanoseconds.
        at_ns: u64,
        /// The path of the program, as it was given.
        path: &'a [u8],
        /// The command line, each argument with a final zero; its first 4096 bytes.
        command: &'a [u8],
    },
    /// The event loop of a main thread looked for events.
    Turn {
        /// The thread.
        thread: u32,
        /// The number of the call with which it looked.
        number: u32,
        /// When it had looked, of the monotonic clock in nanoseconds.
        at_ns: u64,
        /// How long it waited for some.
        wall_ns: u64,
        /// Its time on processors in all of its life, as of the last tick.
        processor_ns: u64,
        /// Its time without a processor although it could run.
        ready_ns: u64,
    },
    /// A thread sends a message that looks like a call of D-Bus.
    Sent {
        /// Its process.
        process: u32,
        /// When, of the monotonic clock, in nanoseconds.
        at_ns: u64,
        /// The socket.
        descriptor: i32,
        /// The beginning of the message.
        message: &'a [u8],
    },
    /// A thread ended.
    Exit {
        /// It.
        thread: u32,
        /// Its process.
        process: u32,
        /// When, of the monotonic clock in nanoseconds.
        at_ns: u64,
        /// The status, as of `wait(2)`.
        status: u32,
        /// Whether it was the last of its process.
        is_last: bool,
        /// The call that it ended in, and when that began.
        inside: Option<(u32, u64)>,
        /// Its time on processors and without one although it could run, and how often it waited for a page.
        counters: [u64; 3],
        /// The calls that it has totals of.
        seen: ThreadTotals,
        /// Its name.
        name: &'a [u8],
    },
}

/// A call that was slow.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord<'a> {
    /// The thread.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The call.
    pub number: u32,
    /// The thread that let it out of a futex, or 0.
    pub waker: u32,
    /// When it began, of the monotonic clock in nanoseconds.
    pub start_ns: u64,
    /// How long it took.
    pub wall_ns: u64,
    /// How long it ran in it.
    pub cpu_ns: u64,
    /// How long it waited for a CPU in it.
    pub queued_ns: u64,
    /// What it returned.
    pub result: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// What it stands for, if it was short.
    pub short: Option<ShortCalls>,
    /// What a `poll` waited for: its only descriptor, or the first that was ready.
    pub polled: Option<i32>,
    /// Of a `select`: which of the first 64 descriptors were to be read, and which written.
    pub sets: Option<[u64; 2]>,
    /// The list of a `poll`, or the address of a `connect`.
    pub memory: &'a [u8],
    /// Instruction pointer, stack pointer, frame pointer, and `rbx`, `r12` to `r15`; none without a stack.
    pub registers: Option<[u64; 8]>,
    /// The first path among the arguments.
    pub first_path: Option<&'a [u8]>,
    /// The second path among the arguments.
    pub second_path: Option<&'a [u8]>,
    /// The number of the mount that the program's root is the root of, or 0; of calls with a path.
    pub root_mount: u32,
    /// The file of its descriptor, or the directory that its path is relative to.
    pub file: Option<FileRecord<'a>>,
    /// A copy of the stack, from the stack pointer on.
    pub stack: &'a [u8],
}

/// Short calls of a main thread, of which one is reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShortCalls {
    /// How long they were blocked together, in nanoseconds.
    pub blocked_ns: u64,
    /// How many were blocked.
    pub count: u32,
}

/// A file as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileRecord<'a> {
    /// The names from it up to the root, each with a final zero.
    names: &'a [u8],
    /// Whether they go up to the root.
    is_whole: bool,
    /// Whether it has no name in its directory any more.
    is_deleted: bool,
    /// Whether it is the working directory.
    pub is_working_directory: bool,
    /// Whether it is the file that the call opened.
    pub is_opened: bool,
    /// The other end, if it is a socket.
    pub socket: Option<CopiedSocket<'a>>,
    /// Its mode.
    pub mode: u32,
    /// Its mount, as in `mountinfo`.
    pub mount: u32,
    /// Its inode number.
    pub inode: u64,
}

fn at(offset: i16) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl<'a> BpfRecord<'a> {
    /// Reads a record; none for bytes that are none.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<BpfRecord<'a>> {
        let kind = word(bytes, at(record::KIND))?.cast_signed();
        let flags = word(bytes, at(record::FLAGS))?;
        let thread = word(bytes, at(record::THREAD))?;
        let process = word(bytes, at(record::PROCESS))?;
        let at_ns = long(bytes, at(record::START))?;
        match kind {
            record::CALL => call(bytes).map(|call| BpfRecord::Call(Box::new(call))),
            record::FORK => {
                let parent = word(bytes, at(record::WAKER))?;
                Some(BpfRecord::Fork { thread, process, parent, at_ns })
            }
            record::TURN => Some(BpfRecord::Turn {
                thread,
                number: word(bytes, at(record::NUMBER))?,
                at_ns,
                wall_ns: long(bytes, at(record::WALL))?,
                processor_ns: long(bytes, at(record::CPU))?,
                ready_ns: long(bytes, at(record::QUEUED))?,
            }),
            record::SENT => Some(BpfRecord::Sent {
                process,
                at_ns,
                descriptor: word(bytes, at(record::NUMBER))?.cast_signed(),
                message: bytes.get(at(record::MESSAGE)..)?,
            }),
            record::EXEC => {
                let mut data = bytes.get(at(record::DATA)..)?;
                let path = part(bytes, &mut data, record::FIRST_PATH)?;
                let command = part(bytes, &mut data, record::SECOND_PATH)?;
                Some(BpfRecord::Exec { process, at_ns, path: text(path), command })
            }
            record::EXIT => {
                let start = long(bytes, at(record::WALL))?;
                let number = word(bytes, at(record::NUMBER))?;
                let mut seen = [0; 16];
                for (index, seen) in seen.iter_mut().enumerate() {
                    *seen = long(bytes, at(record::ARGUMENTS) + 8 * index)?;
                }
                Some(BpfRecord::Exit {
                    thread,
                    process,
                    at_ns,
                    status: word(bytes, at(record::RESULT))?,
                    is_last: flags & record::LAST_THREAD.cast_unsigned() != 0,
                    counters: [
                        long(bytes, at(record::CPU))?,
                        long(bytes, at(record::QUEUED))?,
                        u64::from(word(bytes, at(record::WAKER))?),
                    ],
                    inside: (start > 0).then_some((number, start)),
                    seen: ThreadTotals(seen),
                    name: text(bytes.get(at(record::EXIT_NAME)..)?),
                })
            }
            _ => None,
        }
    }
}

/// Takes the part whose length is at `length` off the front of `data`.
fn part<'a>(bytes: &[u8], data: &mut &'a [u8], length: i16) -> Option<&'a [u8]> {
    let length = usize::try_from(word(bytes, at(length))?).ok()?;
    let (part, rest) = data.split_at_checked(length)?;
    *data = rest;
    Some(part)
}

/// Returns the bytes before the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn call(bytes: &[u8]) -> Option<CallRecord<'_>> {
    let mut data = bytes.get(at(record::DATA)..)?;
    let first_path = part(bytes, &mut data, record::FIRST_PATH)?;
    let second_path = part(bytes, &mut data, record::SECOND_PATH)?;
    let names = part(bytes, &mut data, record::NAMES)?;
    let stack = part(bytes, &mut data, record::STACK)?;
    let mut arguments = [0; 6];
    for (index, argument) in arguments.iter_mut().enumerate() {
        *argument = long(bytes, at(record::ARGUMENTS) + 8 * index)?;
    }
    // ip, sp, bp, bx, r12, r13, r14, r15 in `struct pt_regs`.
    let mut registers = [128, 152, 32, 40, 24, 16, 8, 0];
    for register in &mut registers {
        *register = long(bytes, at(record::REGISTERS) + usize::try_from(*register).ok()?)?;
    }
    let flags = word(bytes, at(record::FLAGS))?;
    let names_of = word(bytes, at(record::NAMES_OF))?.cast_signed();
    let number = word(bytes, at(record::NUMBER))?;
    // These have no paths; the room for the second one holds what their argument pointed to.
    let is_select = matches!(call_name(number), Some("select" | "pselect6"));
    let is_memory = is_select || matches!(call_name(number), Some("poll" | "ppoll" | "connect"));
    let (memory, second_path) =
        if is_memory { (second_path, &[][..]) } else { (&[][..], second_path) };
    let file = FileRecord {
        names,
        is_whole: flags & record::WHOLE_PATH != 0,
        is_deleted: flags & record::DELETED != 0,
        is_working_directory: names_of == record::OF_WORKING_DIRECTORY,
        is_opened: names_of == record::OF_RESULT,
        socket: socket(bytes),
        mode: word(bytes, at(record::MODE))?,
        mount: word(bytes, at(record::MOUNT))?,
        inode: long(bytes, at(record::INODE))?,
    };
    // Of the root of all there are no names, and the path is whole.
    let has_file = !names.is_empty() || names_of != record::OF_NOTHING && file.is_whole;
    Some(CallRecord {
        thread: word(bytes, at(record::THREAD))?,
        process: word(bytes, at(record::PROCESS))?,
        number,
        waker: word(bytes, at(record::WAKER))?,
        start_ns: long(bytes, at(record::START))?,
        wall_ns: long(bytes, at(record::WALL))?,
        cpu_ns: long(bytes, at(record::CPU))?,
        queued_ns: long(bytes, at(record::QUEUED))?,
        result: long(bytes, at(record::RESULT))?.cast_signed(),
        arguments,
        short: long(bytes, at(record::SHORT)).filter(|short| *short > 0).map(|short| ShortCalls {
            blocked_ns: short & ((1 << record::SHORT_BITS) - 1),
            count: u32::try_from(short >> record::SHORT_BITS).unwrap_or(u32::MAX),
        }),
        polled: word(bytes, at(record::ARGUMENTS) + 48)
            .map(u32::cast_signed)
            .filter(|descriptor| *descriptor >= 0),
        memory: if is_select { &[] } else { memory },
        sets: is_select.then(|| long(memory, 0).zip(long(memory, 8))).flatten().map(Into::into),
        registers: (!stack.is_empty()).then_some(registers),
        first_path: (!first_path.is_empty()).then(|| text(first_path)),
        second_path: (!second_path.is_empty()).then(|| text(second_path)),
        root_mount: word(bytes, at(record::ROOT_MOUNT))?,
        file: has_file.then_some(file),
        stack,
    })
}

/// Reads the other end of a socket.
fn socket(bytes: &[u8]) -> Option<CopiedSocket<'_>> {
    let length = usize::try_from(word(bytes, at(record::ADDRESS_LENGTH))?).ok()?;
    let address = bytes.get(at(record::ADDRESS)..at(record::DATA))?.get(..length)?;
    Some(CopiedSocket {
        peer: word(bytes, at(record::PEER))?,
        kind: word(bytes, at(record::SOCKET_TYPE))?,
        address,
    })
    .filter(|_| length > 0)
}

impl FileRecord<'_> {
    /// Returns what `readlink /proc/PID/fd/N` said of it then: a path, or `socket:[4711]` and the like.
    #[must_use]
    pub fn link(&self) -> Vec<u8> {
        let FileRecord { names, is_whole, is_deleted, mode, inode, .. } = *self;
        CopiedFile { names, is_whole, is_deleted, mode, inode }.link()
    }
}

/// The calls that a thread has totals of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ThreadTotals(pub(crate) [u64; 16]);

impl ThreadTotals {
    /// Returns their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..CALLS).filter(|number| {
            let word = usize::try_from(number / 64).ok().and_then(|index| self.0.get(index));
            word.is_some_and(|word| word >> (number % 64) & 1 == 1)
        })
    }
}
