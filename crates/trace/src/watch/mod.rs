//! `trace watch`: reports each stall of a program's main thread, live, cheaply enough to run all day.
//!
//! The main thread draws and answers the user. Where permitted, programs in the kernel report its calls; otherwise it is
//! sampled from outside. Neither method stops it. The memory for caches is bounded.

mod analyzer;
mod busy;
mod by_bpf;
mod by_peek;
mod find;
mod stall_sampler;
mod stops;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use super::backend::TraceError;
use super::call::{CallEnd, TracedCall};
use super::recording::{Backend, RecordedMount, StackEnd, Target};
use super::stack::names::{Frame, SymbolSources};
use super::syscall::call_name;

/// Which processes are watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WatchTarget {
    /// The process with this ID, until it ends.
    Process(u32),
    /// All processes of this name, including those that are started later.
    Named(String),
}

/// The options of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Which processes are watched.
    pub subject: WatchTarget,
    /// Stalls of at least this length are reported.
    pub threshold: Duration,
    /// The backend, if the user chose one: bpf or peek.
    pub backend: Option<Backend>,
    /// Where symbols are searched.
    pub sources: SymbolSources,
    /// The socket of the recorder service, which is asked for programs in the kernel where this user may load none himself.
    pub recorder: Option<PathBuf>,
}

/// The kind of a stall.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StallKind {
    /// The thread waited for the result of a call.
    Stall,
    /// The thread waited for descriptors, a timeout, a lock or a child, for a reason that the stack does not show.
    Wait,
}

/// A long call of a main thread.
#[derive(Clone, Debug)]
pub struct Stall {
    /// When the call began.
    pub at: SystemTime,
    /// The kind of the stall.
    pub kind: StallKind,
    /// The call with its length; its stack and target are those of the fields below.
    pub call: TracedCall,
    /// The object that the call worked on or waited for.
    pub target: Option<Target>,
    /// The file system of the target.
    pub mount: Option<RecordedMount>,
    /// The callers, the innermost first.
    pub frames: Vec<Frame>,
    /// How far the stack was unwound.
    pub end: Option<StackEnd>,
    /// The index in `frames` of the frame to blame.
    pub blamed: Option<usize>,
}

impl Stall {
    /// Returns the name of the call.
    #[must_use]
    pub fn call_name(&self) -> &'static str {
        call_name(self.call.number).unwrap_or("?")
    }

    /// Returns whether the call has not ended yet.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.call.outcome == CallEnd::Running
    }
}

/// A time in which a main thread did not look for events, although no single call of it was long.
#[derive(Clone, Debug)]
pub struct BusyStep {
    /// When it began.
    pub at: SystemTime,
    /// How long it took, without the long calls in it, which are reported themselves.
    pub length: Duration,
    /// The part on a processor, and the part in which the thread could run and had none, if known.
    pub parts: Option<(Duration, Duration)>,
    /// The part in which it was stopped or frozen.
    pub stopped: Duration,
    /// Whether it has not ended yet.
    pub goes_on: bool,
    /// The stack of most samples on a processor, the innermost first; empty where the kernel allows no samples.
    pub frames: Vec<Frame>,
    /// The index in `frames` of the frame to blame.
    pub blamed: Option<usize>,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// A process is watched from now on.
    Found {
        /// Its process ID.
        process: u32,
        /// Its program.
        executable: Vec<u8>,
        /// The backend that watches it.
        backend: Backend,
    },
    /// No process has the name yet; processes that start later will be found.
    NotYet,
    /// A stall of its main thread.
    Stall(Box<Stall>),
    /// Its main thread was busy, or made many short calls.
    Busy(Box<BusyStep>),
    /// It was stopped by a signal or frozen, whatever it did before.
    Stopped {
        /// Its process ID.
        process: u32,
        /// When, to the time between two looks, as its length.
        at: SystemTime,
        /// How long.
        length: Duration,
        /// Whether it has not ended yet.
        goes_on: bool,
    },
    /// A process ended.
    Ended {
        /// Its process ID.
        process: u32,
    },
    /// A process cannot be watched, because the kernel denies access to it.
    Refused {
        /// Its process ID.
        process: u32,
    },
}

/// The totals at the end of a watch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WatchSummary {
    /// Stalls that were reported.
    pub reported: u64,
    /// Waits of event loops for work, which are not reported.
    pub idle_waits: u64,
    /// The total length of these waits.
    pub idle: Duration,
    /// Stalls that were lost because they occurred faster than they could be reported.
    pub lost: u64,
}

/// Watches until `stop` is set, or the process that was given by its ID has ended.
///
/// # Errors
///
/// [`TraceError`]: the process does not exist or may not be traced, or the chosen backend is not available.
pub fn watch(
    options: &WatchOptions,
    stop: &AtomicBool,
    each: &mut dyn FnMut(WatchEvent),
) -> Result<WatchSummary, TraceError> {
    if matches!(options.subject, WatchTarget::Named(_))
        && find::ProcessFinder::new(options.subject.clone()).search(Duration::ZERO).found.is_empty()
    {
        each(WatchEvent::NotYet);
    }
    match options.backend {
        Some(Backend::Bpf) => by_bpf::watch(by_bpf::load(options)?, options, stop, each),
        Some(Backend::Peek) => by_peek::watch(options, stop, each),
        Some(backend) => Err(TraceError::Backend {
            backend,
            reason: "it stops the program at each call; a watch needs bpf or peek".to_owned(),
        }),
        None => match by_bpf::load(options) {
            Ok(session) => by_bpf::watch(session, options, stop, each),
            Err(_) => by_peek::watch(options, stop, each),
        },
    }
}
