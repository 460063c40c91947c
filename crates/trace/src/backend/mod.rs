//! The backends, their common options, and the choice between them.

#[doc(hidden)] // For tests and fuzz targets.
pub mod blocked;
#[doc(hidden)] // For tests and fuzz targets.
pub mod bpf;
pub(crate) mod calibrate;
mod caller;
mod child;
mod engine;
#[doc(hidden)] // For tests and fuzz targets.
pub mod peek;
mod placement;
pub(crate) mod procfs;
pub(crate) mod ptrace;
pub(crate) mod seccomp;
mod thread;
mod timing;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

pub use sys::spawn::{ProgramStdout, ProgramToStart};

pub use self::bpf::served::protocol::SOCKET as RECORDER_SOCKET;
pub use self::procfs::is_frozen;

use self::bpf::served::protocol::AuthorizationPrompt;
use self::bpf::served::{RecorderConnection, ServedError};

use super::recording::{Backend, Exit, Recording};
use super::syscall_set::Set;

/// What only the `bpf` backend sees.
const KERNEL_WORK_UNSEEN: &str = "Not seen: operations of io_uring, the reclaim of memory and reads from swap; `sudo unjank trace …` shows them.";

/// The program to record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TraceTarget {
    /// A program that is started for the recording, and its descendants.
    Run(ProgramToStart),
    /// The process with this ID, and the processes that it starts from now on.
    Attach(u32),
}

/// The calls whose callers are recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stacks {
    /// Calls that reach the threshold.
    Slow,
    /// All recorded calls.
    All,
    /// No calls.
    None,
}

/// When the recording of a started program ends automatically.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordingLimit {
    /// When the program and all its descendants have ended.
    AllEnded,
    /// When the program has ended; its descendants continue and are not recorded any more.
    ProgramEnded,
}

/// The options of a recording.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The program to record.
    pub subject: TraceTarget,
    /// The calls to record.
    pub calls: Set,
    /// The threshold of slow calls.
    pub threshold: Duration,
    /// The calls whose callers are recorded.
    pub stacks: Stacks,
    /// The numbers of calls that are kept with all details however short they are, such as syncs.
    pub kept: Vec<u32>,
    /// When the recording ends automatically.
    pub until: RecordingLimit,
    /// The backend, if the user chose one.
    pub backend: Option<Backend>,
    /// The socket of the recorder service, which is asked for programs in the kernel where this user may load none himself.
    pub recorder: Option<PathBuf>,
}

impl TraceOptions {
    /// Returns the default options for `subject`: slow calls from 100 µs on with their stacks, until all processes have ended.
    ///
    /// The recorded calls are `calls`.
    #[must_use]
    pub fn new(subject: TraceTarget, calls: Set) -> TraceOptions {
        TraceOptions {
            subject,
            calls,
            threshold: Duration::from_micros(100),
            stacks: Stacks::Slow,
            kept: Vec::new(),
            until: RecordingLimit::AllEnded,
            backend: None,
            recorder: None,
        }
    }
}

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The program could not be started, and did not run.
    #[error("cannot run {}", program.display())]
    Start {
        /// Its name as given by the user.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel denies tracing of this process, which continues unchanged.
    #[error("cannot trace process {process}")]
    Attach {
        /// Its number.
        process: u32,
        /// Why.
        source: io::Error,
    },
    /// The backend is not available on this machine or for this user; nothing was started.
    #[error("cannot use the {} backend: {reason}", backend.name())]
    Backend {
        /// The mechanism.
        backend: Backend,
        /// Why not.
        reason: String,
    },
    /// Tracing failed: a started program was killed, an attached one continues.
    #[error("cannot continue tracing")]
    Trace(#[source] io::Error),
}

/// A recording, and the remaining processes of the program.
#[derive(Debug)]
pub struct RecordingOutcome {
    /// The recording, which contains the end of the program in its process.
    pub recording: Recording,
    /// The number of the program's process.
    pub process: u32,
    /// A handle that must be kept until the program ends, if it has not.
    pub rest: Option<RemainingProcesses>,
}

/// Serves a program that was still running when its recording ended.
///
/// A filter cannot be removed from a program, and without a tracer the filtered calls would fail. Therefore a thread continues
/// to resume them, recording nothing, until the program and its descendants have ended. If this process ends first, they are
/// killed.
#[derive(Debug)]
pub struct RemainingProcesses(JoinHandle<Option<Exit>>);

impl RemainingProcesses {
    /// Waits until the program and its descendants have ended, and returns how the program ended.
    #[must_use]
    pub fn wait(self) -> Option<Exit> {
        self.0.join().ok().flatten()
    }
}

/// The chosen backend, with the reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BackendChoice {
    /// The mechanism.
    pub backend: Backend,
    /// A sentence for the notes of the recording.
    pub reason: String,
}

/// Chooses the backend: the user's choice, else the one with the least overhead. With it comes the connection to the recorder service, if
/// that one has to load the programs.
fn choose(options: &TraceOptions) -> (BackendChoice, Option<RecorderConnection>) {
    if let Some(backend) = options.backend {
        return (BackendChoice { backend, reason: "The user chose it.".to_owned() }, None);
    }
    if bpf::is_allowed() {
        return (choose_alone(options, true), None);
    }
    let mut choice = choose_alone(options, false);
    let Some(path) = &options.recorder else { return (choice, None) };
    match RecorderConnection::connect(path, AuthorizationPrompt::Unwanted) {
        Ok(connection) => {
            let reason = "The recorder service has programs in the kernel for this user's own processes; they see every call and stop none.";
            let choice = BackendChoice { backend: Backend::Bpf, reason: reason.to_owned() };
            (choice, Some(connection))
        }
        Err(ServedError::Absent(_)) => {
            choice.reason.push_str(" The recorder service would see every call and stop none: sudo unjank setup --system trace");
            (choice, None)
        }
        Err(error) => {
            let why = report::error::chain(&error);
            choice.reason.push_str(&format!(" Programs in the kernel would stop none, but {why}."));
            (choice, None)
        }
    }
}

/// Chooses between the backends that need nobody else.
fn choose_alone(options: &TraceOptions, is_bpf_allowed: bool) -> BackendChoice {
    match options.subject {
        TraceTarget::Run(_) if is_bpf_allowed => BackendChoice {
            backend: Backend::Bpf,
            reason: "Programs in the kernel see every call and stop none.".to_owned(),
        },
        TraceTarget::Run(_) => BackendChoice {
            backend: Backend::Seccomp,
            reason: "A filter stops only the chosen calls, and needs no privileges.".to_owned(),
        },
        TraceTarget::Attach(_) if is_bpf_allowed => BackendChoice {
            backend: Backend::Bpf,
            reason: "Programs in the kernel see a running program without stopping it.".to_owned(),
        },
        TraceTarget::Attach(_) => BackendChoice {
            backend: Backend::Ptrace,
            reason: "A filter cannot be installed in a running program.".to_owned(),
        },
    }
}

/// Records a program until it has ended or `stop` is set.
///
/// A started program runs in the caller's process group, with the same descriptors and terminal: it receives signals of the terminal
/// as usual. `stop` must not be set by a signal that is ignored, because programs inherit that. After `stop` the
/// recording is returned at once and the program continues, see [`RemainingProcesses`]. An attached program is detached.
///
/// # Errors
///
/// [`TraceError`], whose variants describe the resulting state.
pub fn run(options: &TraceOptions, stop: &Arc<AtomicBool>) -> Result<RecordingOutcome, TraceError> {
    let (choice, recorder) = choose(options);
    match (choice.backend, &options.subject) {
        (Backend::Seccomp, TraceTarget::Run(command)) => {
            seccomp::run(options, command, &choice, stop)
        }
        (Backend::Seccomp, TraceTarget::Attach(_)) => Err(TraceError::Backend {
            backend: choice.backend,
            reason: "a filter cannot be installed in a running program; use ptrace".to_owned(),
        }),
        (Backend::Bpf, _) => bpf::run(options, &choice, stop, recorder),
        (Backend::Peek, _) => peek::run(options, &choice, stop),
        (Backend::Ptrace, _) => ptrace::run(options, &choice, stop),
        (backend, _) => Err(TraceError::Backend {
            backend,
            reason: "it is a format of logs, not a tracer".to_owned(),
        }),
    }
}
