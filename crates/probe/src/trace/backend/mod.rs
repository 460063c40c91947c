//! The mechanisms that watch a program, what they all take, and which one is right for whom.

pub mod bpf;
pub mod calibrate;
mod caller;
mod engine;
pub mod peek;
mod placement;
pub(in crate::trace) mod procfs;
pub mod ptrace;
mod sampled;
pub mod seccomp;
mod thread;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

pub use sys::spawn::Command;

use super::calls::Set;
use super::recording::{Backend, Exit, Recording};

/// What is watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
    /// A program that is started for it, and all that it starts.
    Run(Command),
    /// The process with this number, and all that it starts from now on.
    Attach(u32),
}

/// Of which calls the callers are collected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stacks {
    /// Of those that reach the threshold.
    Slow,
    /// Of all that are watched.
    All,
    /// Of none.
    None,
}

/// When a recording of a started program ends by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Until {
    /// When the program and all that it started have ended.
    AllEnded,
    /// When the program has ended; what it started goes on and is not recorded any more.
    ProgramEnded,
}

/// Of which calls the exits are seen, by the backend that stops at them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exits {
    /// Of all: every result, error and duration is exact.
    All,
    /// Of calls that are fast nearly always, of one in sixteen: fewer stops, and the counts are exact still. What that saves in time was
    /// inside the noise when it was measured. The recording's notes say how many there were.
    Sampled,
}

/// What to watch and how closely.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is watched.
    pub subject: Subject,
    /// The calls that are watched.
    pub calls: Set,
    /// Calls at least this long are kept whole.
    pub threshold: Duration,
    /// Of which calls the callers are collected.
    pub stacks: Stacks,
    /// When the recording ends by itself.
    pub until: Until,
    /// Of which calls the exits are seen.
    pub exits: Exits,
    /// The mechanism, if the user chose one.
    pub backend: Option<Backend>,
}

impl Options {
    /// Returns the options for `subject` that are right for most: slow calls of 100 µs with their stacks, until all has ended.
    ///
    /// Watched are `calls`.
    #[must_use]
    pub fn new(subject: Subject, calls: Set) -> Options {
        Options {
            subject,
            calls,
            threshold: Duration::from_micros(100),
            stacks: Stacks::Slow,
            until: Until::AllEnded,
            exits: Exits::All,
            backend: None,
        }
    }
}

/// Why a program cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The program could not be started; nothing of it ran.
    #[error("cannot run {}", program.display())]
    Start {
        /// Its name as it was given.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not let us trace this process, which goes on as before.
    #[error("cannot trace process {process}")]
    Attach {
        /// Its number.
        process: u32,
        /// Why.
        source: io::Error,
    },
    /// This mechanism cannot do what was asked on this machine or for this user; nothing was started.
    #[error("cannot use the {} backend: {reason}", backend.name())]
    Backend {
        /// The mechanism.
        backend: Backend,
        /// Why not.
        reason: String,
    },
    /// Tracing itself failed: a started program was killed, an attached one goes on.
    #[error("cannot go on tracing")]
    Trace(#[source] io::Error),
}

/// A recording, and what is left of the traced program.
#[derive(Debug)]
pub struct Outcome {
    /// What was seen. How the program ended is in its process there.
    pub recording: Recording,
    /// The number of the program's process.
    pub process: u32,
    /// What must stay until the program ends, if it has not.
    pub rest: Option<Rest>,
}

/// Keeps a program alive that was still running when its recording ended.
///
/// A filter in a program cannot be taken out again, and without a tracer the filtered calls would fail. So a thread of ours goes on
/// answering them, recording nothing, until the program and all that it started have ended. If our process ends first, they are
/// killed.
#[derive(Debug)]
pub struct Rest(JoinHandle<Option<Exit>>);

impl Rest {
    /// Waits until the program and all that it started have ended, and returns how the program ended.
    #[must_use]
    pub fn wait(self) -> Option<Exit> {
        self.0.join().ok().flatten()
    }
}

/// A mechanism, and why it is the one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The mechanism.
    pub backend: Backend,
    /// A sentence for the notes of the recording.
    pub reason: String,
}

/// Chooses the mechanism: the user's, else the one that costs the program least.
#[must_use]
pub fn choose(options: &Options) -> Choice {
    if let Some(backend) = options.backend {
        return Choice { backend, reason: "It was asked for.".to_owned() };
    }
    match options.subject {
        Subject::Run(_) if bpf::is_allowed() => Choice {
            backend: Backend::Bpf,
            reason: "Programs in the kernel see every call and stop none.".to_owned(),
        },
        Subject::Run(_) => Choice {
            backend: Backend::Seccomp,
            reason: "A filter stops only the chosen calls, and needs no privileges.".to_owned(),
        },
        Subject::Attach(_) if bpf::is_allowed() => Choice {
            backend: Backend::Bpf,
            reason: "Programs in the kernel see a running program without stopping it.".to_owned(),
        },
        Subject::Attach(_) => Choice {
            backend: Backend::Ptrace,
            reason: "A running program takes no filter from outside.".to_owned(),
        },
    }
}

/// Watches a program until it has ended or `stop` is set, and returns what was seen.
///
/// A started program runs in our process group, with our descriptors and terminal: signals of the terminal reach it as they would
/// without us, and what `stop` is set by must not be a signal that is ignored, because programs inherit that. After `stop` the
/// recording is returned at once and the program lives on, see [`Rest`]. An attached program is let go.
///
/// # Errors
///
/// [`TraceError`] says what each leaves.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<Outcome, TraceError> {
    let choice = choose(options);
    match (choice.backend, &options.subject) {
        (Backend::Seccomp, Subject::Run(command)) => seccomp::run(options, command, &choice, stop),
        (Backend::Seccomp, Subject::Attach(_)) => Err(TraceError::Backend {
            backend: choice.backend,
            reason: "a running program takes no filter from outside; use ptrace".to_owned(),
        }),
        (Backend::Bpf, _) => bpf::run(options, &choice, stop),
        (Backend::Peek, _) => peek::run(options, &choice, stop),
        (Backend::Ptrace, _) => ptrace::run(options, &choice, stop),
        (backend, _) => {
            Err(TraceError::Backend { backend, reason: "it watches nothing by itself".to_owned() })
        }
    }
}
