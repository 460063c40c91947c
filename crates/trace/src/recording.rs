//! The model of a recording, which every backend fills and every report reads.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::call::{StackId, TargetId, TracedCall};
use super::kernel_work::KernelWork;
use super::mark::RecordedMark;
use super::timeline::ThreadTimeline;
use wakeups::{ChainWakeup, ProgramFacts, WakeupChain};

pub use kerneltrace::totals::Total;

/// A mechanism that observes a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Backend {
    /// A seccomp filter stops the chosen calls, ptrace reads them.
    Seccomp,
    /// Programs in the kernel see every call; slow ones come with a copy of the stack.
    Bpf,
    /// Blocked threads are sampled from outside; nothing is stopped.
    Peek,
    /// Every call is stopped by ptrace.
    Ptrace,
    /// Read from a log of strace.
    Import,
}

impl Backend {
    /// Returns the name by which users choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Backend::Seccomp => "seccomp",
            Backend::Bpf => "bpf",
            Backend::Peek => "peek",
            Backend::Ptrace => "ptrace",
            Backend::Import => "import",
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A process of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedProcess {
    /// Its number.
    pub id: u32,
    /// Its parent's ID, if known.
    pub parent: Option<u32>,
    /// The path of its program after its last `execve`.
    pub executable: Vec<u8>,
    /// Its command line after its last `execve`.
    pub command: Vec<Vec<u8>>,
    /// The time of its first event, in nanoseconds since the recording began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: Option<u64>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// Whether it was connected to a display.
    pub has_window: bool,
}

/// A thread of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// Its process.
    pub process: u32,
    /// Its name (`comm`).
    pub name: Vec<u8>,
    /// The time of its first event, in nanoseconds since the recording began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: Option<u64>,
}

/// The object that a call worked on or waited for, at the time of the call.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// A file by its path, with its file system if that is known.
    File {
        /// Its path; the kernel's `(deleted)` is kept.
        path: Vec<u8>,
        /// An index into [`Recording::mounts`].
        mount: Option<u32>,
    },
    /// Two paths, as of `rename` and `link`.
    Files {
        /// The path that is read or moved.
        from: Vec<u8>,
        /// The path that is made or replaced.
        to: Vec<u8>,
        /// An index into [`Recording::mounts`].
        mount: Option<u32>,
    },
    /// A socket: its peer, and for D-Bus the request (`org.kde.kded5 /kded loadModule`).
    Socket {
        /// The program or the address at the other end.
        peer: String,
        /// The request to it, if it could be read.
        request: Option<String>,
    },
    /// The connection to the display server, which the call waits to read from.
    Display {
        /// The program or the address at the other end.
        peer: String,
        /// How many other descriptors the call waits for.
        others: u32,
    },
    /// A lock in memory.
    Lock {
        /// The thread that holds it, if it could be read.
        owner: Option<u32>,
        /// The activity of that thread at the time, if known.
        owner_stack: Option<StackId>,
    },
    /// A child process that is waited for: its ID and its command.
    Child(u32, Vec<u8>),
    /// A pipe, an event counter, a timer and so on, as the kernel names it.
    Other(String),
}

/// A request on a bus, to which an answer is expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SentRequest {
    /// The process that sent it.
    pub process: u32,
    /// When, in nanoseconds since the recording began.
    pub at_ns: u64,
    /// Who is asked for what: a [`Target::Socket`].
    pub target: TargetId,
}

/// A wait of a main thread, followed to what ended it.
#[derive(Clone, Debug)]
pub struct RecordedChain {
    /// The thread.
    pub thread: u32,
    /// When its call began, in nanoseconds since the recording did.
    pub start_ns: u64,
    /// How long the call took.
    pub wall_ns: u64,
    /// The number of the call.
    pub number: u32,
    /// The chain; its times are of the monotonic clock.
    pub chain: WakeupChain,
    /// The wake-ups of its threads, in the order of time; its clock is the chain's.
    pub wakeups: Vec<ChainWakeup>,
    /// The function of the kernel in which each hop waited.
    pub functions: Vec<Option<String>>,
    /// What each hop's process ran then, and in which control group; empty where that is not known.
    pub programs: Vec<ProgramFacts>,
}

/// A file system that a file was on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedMount {
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Its type, as `ext4`.
    pub kind: String,
    /// Its options, of the mount and of the file system.
    pub options: String,
    /// Its source, as `/dev/sda2`.
    pub source: Vec<u8>,
    /// Whether the device is rotational, if there is one.
    pub rotational: Option<bool>,
    /// The device's scheduler, if there is one.
    pub scheduler: Option<String>,
}

/// Which file it is, and that it is still the same.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FileIdentity {
    /// Its device.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// How many bytes it has.
    pub size: i64,
    /// When its contents were changed last, in seconds and nanoseconds.
    pub modified: (i64, u64),
    /// When anything of it was changed last.
    pub changed: (i64, u64),
}

impl FileIdentity {
    /// Takes it from what `stat(2)` says.
    pub(crate) fn of(stat: &rustix::fs::Stat) -> FileIdentity {
        FileIdentity {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// A file that was mapped with code in it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Module {
    /// Its path as seen by the program; `[vdso]` and similar as the kernel names it.
    pub path: Vec<u8>,
    /// Its GNU build id, where it has one.
    pub build_id: Option<Vec<u8>>,
    /// Which file it was, where it has no build id to be known by; none where that was not seen.
    pub file: Option<FileIdentity>,
    /// A path by which the tracer can read it, if that differs: `/proc/PID/root/…` of a container, `/proc/PID/map_files/…` of a deleted file.
    pub reached_by: Option<Vec<u8>>,
}

/// A code address: relative to a module (ELF virtual address), or absolute if the module is unknown.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CodeAddress {
    /// An index into [`Recording::modules`].
    pub module: Option<u32>,
    /// The address; of callers, the address they return to.
    pub address: u64,
}

/// How far a stack could be unwound.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StackEnd {
    /// To the thread's start.
    Whole,
    /// To where the copy of the stack ended, or the limit of frames was.
    Cut,
    /// To code without unwind information.
    Lost,
}

/// The callers of a system call, the innermost first.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Stack {
    /// The innermost is the system call instruction's.
    pub frames: Vec<CodeAddress>,
    /// How far it goes.
    pub end: StackEnd,
}

/// The tracer's overhead in each measured call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bias {
    /// What was subtracted from each call, in nanoseconds.
    pub subtracted_ns: u64,
    /// Its interquartile range when it was measured, in nanoseconds.
    pub spread_ns: u64,
}

/// A recording of a program.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The command, or the attached program's command line.
    pub command: Vec<Vec<u8>>,
    /// The backend.
    pub backend: Backend,
    /// The limits of the backend and its effects on the program (co-location …), one sentence each.
    pub notes: Vec<String>,
    /// The recorded calls, as the user chose them: `blocking`, `sync`, `all` or names.
    pub watched: String,
    /// Whether the user asked for no stacks.
    pub leaves_out_stacks: bool,
    /// The threshold of slow calls, in nanoseconds.
    pub threshold_ns: u64,
    /// The wall clock when it began.
    pub began: SystemTime,
    /// The same moment by the monotonic clock, in nanoseconds, where it is known.
    pub began_monotonic_ns: Option<u64>,
    /// How long it lasted, in nanoseconds.
    pub length_ns: u64,
    /// The tracer's overhead that was subtracted.
    pub bias: Bias,
    /// All processes, by number.
    pub processes: BTreeMap<u32, RecordedProcess>,
    /// All threads, by number.
    pub threads: BTreeMap<u32, Thread>,
    /// Totals of every recorded call, by thread and call number.
    pub totals: BTreeMap<(u32, u32), Total>,
    /// Totals by target and call number, of the calls whose target was identified.
    pub target_totals: BTreeMap<(TargetId, u32), Total>,
    /// Failures by call number and `errno`.
    pub errors: BTreeMap<(u32, i32), u64>,
    /// The slow calls, in the order in which they ended.
    pub slow: Vec<TracedCall>,
    /// The moments that the program named, in the order in which they came.
    pub marks: Vec<RecordedMark>,
    /// The number of slow calls beyond the limit.
    pub slow_dropped: u64,
    /// Events that the backend lost.
    pub lost: u64,
    /// Those of them that are in no sum: calls that were not counted, and processes of which not all calls were recorded.
    pub not_counted: u64,
    /// 32-bit calls, and programs that make such, which no backend records.
    pub foreign_calls: u64,
    /// Slow calls that are kept without their stacks, since there were too many at once.
    pub stacks_left_out: u64,
    /// How long the host of a virtual machine kept processors for itself meanwhile, that of all processors together.
    pub stolen_ns: u64,
    /// What main threads did with their time, by thread.
    pub timelines: BTreeMap<u32, ThreadTimeline>,
    /// Long waits of main threads that were followed, in no order.
    pub chains: Vec<RecordedChain>,
    /// The names of processes in them on the buses that passed their messages on, by number.
    pub chain_bus_names: BTreeMap<u32, Vec<String>>,
    /// Requests to which answers are expected, in the order in which they were sent; of very many the last ones.
    pub requests: Vec<SentRequest>,
    /// What the kernel did for the program outside of its calls.
    pub kernel: KernelWork,
    /// What of it cannot be seen, and what would allow it, a sentence each.
    pub unseen: Vec<String>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Distinct modules.
    pub modules: Vec<Module>,
    /// Distinct targets.
    pub targets: Vec<Target>,
    /// Distinct file systems.
    pub mounts: Vec<RecordedMount>,
}

/// Moves a call from the sums of one target to those of another one.
pub(crate) fn move_total(
    totals: &mut BTreeMap<(TargetId, u32), Total>,
    from: TargetId,
    to: TargetId,
    call: &TracedCall,
) {
    if let Some(total) = totals.get_mut(&(from, call.number)) {
        total.count = total.count.saturating_sub(1);
        total.errors = total.errors.saturating_sub(u64::from(call.failed()));
        total.wall_ns = total.wall_ns.saturating_sub(call.wall_ns);
        total.longest_ns = total.longest_ns.min(total.wall_ns);
        if total.count == 0 {
            totals.remove(&(from, call.number));
        }
    }
    let total = totals.entry((to, call.number)).or_default();
    total.add(call.failed(), call.wall_ns, call.cpu_ns);
}
