//! The report as it is stored: what `docs/trace-report.md` promises, field by field.

use serde::{Deserialize, Serialize};

use super::account::TimeAccount;
use super::chains::{StallChain, WakeupRow};
use super::names::Frame;
use super::operations::{OperationRow, OperationSum};
use crate::syscall::SyscallClass;
use report::advice::Advice;
use report::provenance::Provenance;

/// The name and version of the schema; a field may be added without a new version, never changed or removed.
pub const SCHEMA: &str = "unjank.trace/1";

/// The report of a recording, with symbols.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The finding in a sentence or two.
    pub verdict: String,
    /// The command that was watched, a word each; bytes that are not text as `\xNN`.
    pub command: Vec<String>,
    /// The home directory that screens shorten to `~`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// The same moment by the monotonic clock of that machine, in nanoseconds, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_monotonic_ns: Option<u64>,
    /// How long it lasted, in nanoseconds.
    pub length_ns: u64,
    /// The budget of one step, in nanoseconds.
    pub frame_ns: u64,
    /// How it was watched.
    pub watch: RecordingMethod,
    /// Sums over everything.
    pub sums: Sums,
    /// The thread whose waits the user feels: an index into `threads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_thread: Option<u32>,
    /// All processes.
    pub processes: Vec<ProcessRow>,
    /// All threads, those that stall most first.
    pub threads: Vec<Thread>,
    /// Each kind of call, the one that took most time first.
    pub calls: Vec<CallKind>,
    /// Files, sockets, locks and children, the one that took most time first.
    pub targets: Vec<Target>,
    /// Targets that were left out, all faster than those that are in.
    pub targets_left_out: u64,
    /// File systems that files were on.
    pub mounts: Vec<MountRow>,
    /// Code that made slow calls, by the frame to blame and the call, the one that took most time first.
    pub paths: Vec<CodePath>,
    /// Stacks of slow calls.
    pub stacks: Vec<Stack>,
    /// Frames of stacks.
    pub frames: Vec<Frame>,
    /// Files that frames are in.
    pub modules: Vec<Module>,
    /// The slowest calls and a sample of the other slow ones, in the order of time.
    pub slow: Vec<Slow>,
    /// The moments that the program named, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<MarkRow>,
    /// Slow calls that are only in the sums.
    pub slow_left_out: u64,
    /// Long waits of main threads that were followed across processes, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<StallChain>,
    /// The wake-ups of the threads of the chains, by thread and time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakeups: Vec<WakeupRow>,
    /// Slow operations of `io_uring`, in the order in which they were submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationRow>,
    /// Slow operations that are only in the sums.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub operations_left_out: u64,
    /// All operations by kind and file, those that took most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operation_sums: Vec<OperationSum>,
    /// The remedies, the most important first.
    pub advice: Vec<MatchedPattern>,
    /// The machine and the command.
    pub provenance: Provenance,
}

/// How a recording was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingMethod {
    /// The mechanism: `seccomp`, `bpf`, `peek`, `ptrace` or `import`.
    pub backend: String,
    /// Which calls were watched.
    pub calls: String,
    /// Calls at least this long are kept whole, in nanoseconds.
    pub threshold_ns: u64,
    /// What was subtracted from each call for the tracer's own share, in nanoseconds.
    pub bias_ns: u64,
    /// How far that share scattered, in nanoseconds.
    pub bias_spread_ns: u64,
    /// What the mechanism cannot see and what it did, a sentence each.
    pub notes: Vec<String>,
    /// Events that were lost.
    pub lost: u64,
    /// Those of them that are in no sum: calls that were not counted, and processes of which not all calls were recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_counted: u64,
    /// 32-bit calls, and programs that make such, which were not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub foreign_calls: u64,
    /// Whether the user asked for no stacks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves_out_stacks: bool,
    /// Slow calls without their stacks, since there were too many at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stacks_left_out: u64,
    /// How long the host of a virtual machine kept processors for itself meanwhile, that of all processors together, in nanoseconds.
    #[serde(default)]
    pub stolen_ns: u64,
}

/// Sums over all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// How many calls.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// How many were slow.
    pub slow: u64,
    /// Time in them, all threads together, in nanoseconds.
    pub wall_ns: u64,
    /// The part of it that was an event loop waiting for something to do.
    pub idle_ns: u64,
    /// The part of it that was waiting for children that were watched too.
    pub child_ns: u64,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Its number.
    pub id: u32,
    /// Its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The path of its program.
    pub executable: String,
    /// Its command line, quoted for a shell.
    pub command: String,
    /// When it was first seen, in nanoseconds since the beginning.
    pub start_ns: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// How it ended: `exit 3`, `signal 9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Whether it is its process's first thread.
    pub main: bool,
    /// When it was first seen, in nanoseconds since the beginning.
    pub start_ns: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// How many calls it made.
    pub count: u64,
    /// Time in them, in nanoseconds.
    pub wall_ns: u64,
    /// How it stalled.
    pub stalls: ThreadStalls,
    /// What all of its time went to; of main threads, where that was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<TimeAccount>,
}

/// Slow calls of a thread that were not idle; calls that follow one another within a millisecond are one stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadStalls {
    /// Stalls longer than a frame; those that are felt or hang too.
    pub missed: u64,
    /// Stalls over 100 ms; those that hang too.
    pub felt: u64,
    /// Stalls over a second.
    pub hung: u64,
    /// Frames that could not be drawn in stalls longer than one.
    pub frames: u64,
    /// Time in slow calls that were not idle, in nanoseconds.
    pub wall_ns: u64,
    /// The longest stall, in nanoseconds.
    pub longest_ns: u64,
    /// When that began.
    pub longest_at_ns: u64,
    /// Waits of an event loop for something to do.
    pub idle: u64,
    /// Time in those, in nanoseconds.
    pub idle_ns: u64,
    /// Time in waits for children that were watched too, of threads without an event loop.
    pub child_ns: u64,
}

/// All calls of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallKind {
    /// Its name.
    pub name: String,
    /// Its number on the machine that recorded it.
    pub number: u32,
    /// What it is about.
    pub class: SyscallClass,
    /// How many.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// With which errors, the most frequent first.
    pub errnos: Vec<ErrnoCount>,
    /// The time from entry to exit, in nanoseconds.
    pub wall_ns: u64,
    /// Time on a CPU, in nanoseconds, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Half of the calls were no longer than this, in nanoseconds, to within a fifth.
    pub p50_ns: u64,
    /// 19 of 20 were no longer than this.
    pub p95_ns: u64,
    /// 99 of 100 were no longer than this.
    pub p99_ns: u64,
    /// The longest, exactly.
    pub longest_ns: u64,
    /// How many were slow.
    pub slow: u64,
    /// Of the slow ones: time that the thread could run but waited for a CPU, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_ns: Option<u64>,
    /// Of the slow ones: time that the thread neither ran nor could run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ns: Option<u64>,
    /// How many of the slow ones were idle waits of an event loop, or waits for watched children.
    pub idle: u64,
    /// Time in those, in nanoseconds.
    pub idle_ns: u64,
}

/// How often a call failed with an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrnoCount {
    /// The error, as `ENOENT`.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// What kind of thing a call worked on or waited for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A file, or two.
    File,
    /// A socket.
    Socket,
    /// A lock in memory.
    Lock,
    /// A child process.
    Child,
    /// Anything else.
    Other,
}

/// A file, socket, lock or child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What it is.
    pub kind: TargetKind,
    /// A path, a peer, a thread …; bytes that are not text as `\xNN`.
    pub name: String,
    /// The path that was made or replaced, where there are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What was asked of a peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The file system: an index into `mounts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<u32>,
    /// The thread that held a lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// What that thread did meanwhile: an index into `stacks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_stack: Option<u32>,
    /// How many calls, of those whose target was looked at.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Time in them, in nanoseconds.
    pub wall_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// The part of the time that was idle.
    pub idle_ns: u64,
    /// By kind of call, the one that took most time first.
    pub calls: Vec<TargetCall>,
}

/// Calls of one kind on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetCall {
    /// An index into `calls`.
    pub call: u32,
    /// How many.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Time in them, in nanoseconds.
    pub wall_ns: u64,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountRow {
    /// Where it is mounted.
    pub point: String,
    /// Its type.
    pub kind: String,
    /// Its options.
    pub options: String,
    /// Its source.
    pub source: String,
    /// Whether the device turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// The device's scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
}

/// Slow calls of one kind that came from one place in the code and worked on one kind of thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodePath {
    /// The frame to blame: an index into `frames`; none for calls without a stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
    /// An index into `calls`.
    pub call: u32,
    /// What they worked on, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TargetKind>,
    /// How it counts.
    pub how: TraceMethod,
    /// How many.
    pub count: u64,
    /// How many on main threads.
    pub on_main: u64,
    /// Time in them, in nanoseconds.
    pub wall_ns: u64,
    /// Time on a CPU, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Time blocked, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_ns: Option<u64>,
    /// Time in which the thread could run but had no CPU, or was stopped: not what the calls wait for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub elsewhere_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// On which targets, the one that took most time first: an index into `targets` and the share.
    pub targets: Vec<Share>,
    /// By which stacks, the one that took most time first: an index into `stacks` and the share.
    pub stacks: Vec<Share>,
}

/// A part of a code path's calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// An index.
    pub index: u32,
    /// How many calls.
    pub count: u64,
    /// Time in them, in nanoseconds.
    pub wall_ns: u64,
}

/// How a slow call counts.
#[derive(
    Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum TraceMethod {
    /// The thread could not go on.
    #[default]
    Stall,
    /// An event loop waited for something to do.
    Idle,
    /// A shell or the like waited for a child that was watched too.
    Child,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// Indexes into `frames`, the innermost first.
    pub frames: Vec<u32>,
    /// Which of them, counted from the innermost, is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blamed: Option<u32>,
    /// How far it goes: `whole`, `cut` or `lost`.
    pub end: String,
}

/// A file with code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its build id, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// A moment that the program named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkRow {
    /// The name: up to 64 letters, digits, `.`, `_` and `-` of ASCII.
    pub name: String,
    /// The process that named it.
    pub process: u32,
    /// When, in nanoseconds since the beginning.
    pub at_ns: u64,
}

/// A slow call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// An index into `calls`.
    pub call: u32,
    /// An index into `threads`.
    pub thread: u32,
    /// When it began, in nanoseconds since the beginning.
    pub at_ns: u64,
    /// From entry to exit, in nanoseconds.
    pub wall_ns: u64,
    /// The part of it on a CPU, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// The part of it waiting for a CPU, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_ns: Option<u64>,
    /// The part of it in which the thread was stopped by a signal or frozen, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_ns: Option<u64>,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<i64>,
    /// The error it failed with, as `ENOENT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it had not ended when the recording did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// How it counts.
    #[serde(default, skip_serializing_if = "is_stall")]
    pub how: TraceMethod,
    /// Its arguments as text.
    pub arguments: String,
    /// An index into `targets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
    /// An index into `stacks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
    /// The operation of `io_uring` that ended it: an index into `operations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
}

impl Slow {
    /// Returns the part of it in which the thread could run but had no CPU, or was stopped: not what the call waits for.
    #[must_use]
    pub fn elsewhere_ns(&self) -> u64 {
        let known = self.queued_ns.unwrap_or(0).saturating_add(self.stopped_ns.unwrap_or(0));
        known.min(self.wall_ns)
    }

    /// Returns whether that is most of it, so that neither a disk nor another program is to blame.
    #[must_use]
    pub fn is_mostly_elsewhere(&self) -> bool {
        self.elsewhere_ns() > self.wall_ns / 2
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_stall(how: &TraceMethod) -> bool {
    *how == TraceMethod::Stall
}

/// A known pattern that was found, with what helps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchedPattern {
    /// The pattern's name, for programs: `sync-of-cache`.
    pub pattern: String,
    /// What was seen, in a sentence.
    pub reason: String,
    /// What it took, in nanoseconds.
    pub wall_ns: u64,
    /// What helps.
    pub advice: Vec<Advice>,
}
