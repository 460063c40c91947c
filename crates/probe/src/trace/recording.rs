//! What a backend saw of a program: the one model that every backend fills and every report reads.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::call::{Call, StackId, TargetId};
use super::histogram::Histogram;

/// A mechanism that watches a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Backend {
    /// A seccomp filter stops the chosen calls, ptrace reads them.
    Seccomp,
    /// Programs in the kernel see every call; slow ones come with a copy of the stack.
    Bpf,
    /// Blocked threads are looked at from outside; nothing is stopped.
    Peek,
    /// Every call is stopped by ptrace.
    Ptrace,
    /// Read from a log of strace.
    Import,
}

impl Backend {
    /// Returns the word by which people choose it.
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

/// A process that was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Its parent's number, if that was seen.
    pub parent: Option<u32>,
    /// What it runs: the path of its program after its last `execve`.
    pub executable: Vec<u8>,
    /// Its command line after its last `execve`.
    pub command: Vec<Vec<u8>>,
    /// When it was first seen, in nanoseconds since the recording began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: Option<u64>,
    /// How it ended.
    pub exit: Option<Exit>,
}

/// A thread that was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// Its process.
    pub process: u32,
    /// Its name (`comm`).
    pub name: Vec<u8>,
    /// When it was first seen, in nanoseconds since the recording began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: Option<u64>,
}

/// Sums over all calls of a kind, fast ones too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Time from entry to exit, in nanoseconds.
    pub wall_ns: u64,
    /// Time on a CPU in them, in nanoseconds, where the backend knows.
    pub cpu_ns: Option<u64>,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// All of them by duration.
    pub histogram: Histogram,
}

impl Total {
    /// Adds one call.
    pub fn add(&mut self, call: &Call) {
        self.count += 1;
        self.errors += u64::from(call.failed());
        self.wall_ns = self.wall_ns.saturating_add(call.wall_ns);
        if let Some(cpu) = call.cpu_ns {
            *self.cpu_ns.get_or_insert(0) += cpu;
        }
        self.longest_ns = self.longest_ns.max(call.wall_ns);
        self.histogram.add(call.wall_ns);
    }

    /// Adds the sums of another one.
    pub fn merge(&mut self, other: &Total) {
        self.count += other.count;
        self.errors += other.errors;
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        if let Some(cpu) = other.cpu_ns {
            *self.cpu_ns.get_or_insert(0) += cpu;
        }
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.histogram.merge(&other.histogram);
    }
}

/// What a call worked on or waited for, as it was when the call was made.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// A file by its path, with the file system that it is on where that is known.
    File {
        /// Its path; `(deleted)` is kept as the kernel says it.
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
    /// A socket: who is at the other end, and for D-Bus what was asked (`org.kde.kded5 /kded loadModule`).
    Socket {
        /// The program or the address at the other end.
        peer: String,
        /// What was asked of it, where that could be read.
        request: Option<String>,
    },
    /// A lock in memory.
    Lock {
        /// The thread that holds it, where that could be read.
        owner: Option<u32>,
        /// What that thread did at the time, where it was looked at.
        owner_stack: Option<StackId>,
    },
    /// A child process that is waited for: its number and what it runs.
    Child(u32, Vec<u8>),
    /// A pipe, an event counter, a timer and so on: in the kernel's words.
    Other(String),
}

/// A file system that a file was on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Its type, as `ext4`.
    pub kind: String,
    /// Its options, of the mount and of the file system.
    pub options: String,
    /// Its source, as `/dev/sda2`.
    pub source: Vec<u8>,
    /// Whether the device turns, where there is one.
    pub rotational: Option<bool>,
    /// The device's scheduler, where there is one.
    pub scheduler: Option<String>,
}

/// A file that was mapped with code in it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Module {
    /// Its path in the program's view; `[vdso]` and the like as the kernel says it.
    pub path: Vec<u8>,
    /// Its GNU build id, where it has one.
    pub build_id: Option<Vec<u8>>,
    /// A path by which we can read it, where that differs: `/proc/PID/root/…` of a container, `/proc/PID/map_files/…` of a deleted file.
    pub reached_by: Option<Vec<u8>>,
}

/// A place in code: an address in a module's own numbering (ELF virtual address), or an absolute one where no module is known.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Address {
    /// An index into [`Recording::modules`].
    pub module: Option<u32>,
    /// The address; of callers, the address they return to.
    pub address: u64,
}

/// How far a stack could be followed.
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
    pub frames: Vec<Address>,
    /// How far it goes.
    pub end: StackEnd,
}

/// The tracer's own share in each measured call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bias {
    /// What was subtracted from each call, in nanoseconds.
    pub subtracted_ns: u64,
    /// How far it scattered between quartiles when it was measured, in nanoseconds.
    pub spread_ns: u64,
}

/// All that was seen.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The command, or the attached program's command line.
    pub command: Vec<Vec<u8>>,
    /// What watched.
    pub backend: Backend,
    /// What it cannot see and what it did to the program (co-location …), a sentence each.
    pub notes: Vec<String>,
    /// The calls that were watched, as the user chose them: `blocking`, `sync`, `all` or names.
    pub watched: String,
    /// Calls at least this long were kept whole, in nanoseconds.
    pub threshold_ns: u64,
    /// The wall clock when it began.
    pub began: SystemTime,
    /// How long it lasted, in nanoseconds.
    pub length_ns: u64,
    /// The tracer's own share that was subtracted.
    pub bias: Bias,
    /// All processes, by number.
    pub processes: BTreeMap<u32, Process>,
    /// All threads, by number.
    pub threads: BTreeMap<u32, Thread>,
    /// Sums of every watched call, by thread and call number.
    pub totals: BTreeMap<(u32, u32), Total>,
    /// Sums by target and call number, of the calls whose target was looked at.
    pub target_totals: BTreeMap<(TargetId, u32), Total>,
    /// Failures by call number and `errno`.
    pub errors: BTreeMap<(u32, i32), u64>,
    /// The slow calls, in the order in which they ended.
    pub slow: Vec<Call>,
    /// Slow calls that did not fit any more.
    pub slow_dropped: u64,
    /// Events that the backend lost.
    pub lost: u64,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Distinct modules.
    pub modules: Vec<Module>,
    /// Distinct targets.
    pub targets: Vec<Target>,
    /// Distinct file systems.
    pub mounts: Vec<Mount>,
}
