//! `trace watch`: tells live of each time that a program's first thread stays in a call, all day long.
//!
//! The first thread is the one that draws and answers the user. Programs in the kernel tell of its calls where we may load
//! them; else it is looked at from outside. Neither stops it. What is remembered is bounded.

mod by_bpf;
mod by_peek;
mod eye;
mod find;
mod teller;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use super::backend::TraceError;
use super::call::{Call, Outcome};
use super::kernel::call_name;
use super::recording::{Backend, Mount, StackEnd, Target};
use super::stack::names::{Frame, Sources};

/// What is watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
    /// The process with this number, until it ends.
    Process(u32),
    /// All processes of this name, those too that are started later.
    Named(String),
}

/// What to watch for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is watched.
    pub subject: Subject,
    /// Stays of at least this length are told.
    pub threshold: Duration,
    /// The mechanism, if the user chose one: bpf or peek.
    pub backend: Option<Backend>,
    /// Where names of functions are looked for.
    pub sources: Sources,
}

/// What a stay is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The thread wanted something and had to wait for it.
    Stall,
    /// A wait for descriptors, time, a lock or a child whose reason the stack does not tell.
    Wait,
}

/// A stay in a call.
#[derive(Clone, Debug)]
pub struct Block {
    /// When it began.
    pub at: SystemTime,
    /// What it is.
    pub kind: Kind,
    /// The call, with its length; its stack and target are those below.
    pub call: Call,
    /// What it worked on or waited for.
    pub target: Option<Target>,
    /// The file system of that.
    pub mount: Option<Mount>,
    /// Who called it, the innermost first.
    pub frames: Vec<Frame>,
    /// How far the callers could be followed.
    pub end: Option<StackEnd>,
    /// The frame to blame, of `frames`.
    pub blamed: Option<usize>,
}

impl Block {
    /// Returns the name of the call.
    #[must_use]
    pub fn call_name(&self) -> &'static str {
        call_name(self.call.number).unwrap_or("?")
    }

    /// Says whether it goes on.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.call.outcome == Outcome::Running
    }
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process is watched from now on, which runs this program.
    Found {
        /// Its number.
        process: u32,
        /// Its program.
        executable: Vec<u8>,
        /// What watches it.
        backend: Backend,
    },
    /// No process has the name yet: one that comes will be found.
    NotYet,
    /// Its first thread stayed in a call.
    Block(Box<Block>),
    /// It ended.
    Ended {
        /// Its number.
        process: u32,
    },
    /// It cannot be watched, for the kernel does not let us look at it.
    Refused {
        /// Its number.
        process: u32,
    },
}

/// What was seen in all, when the watch ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Stays that were told.
    pub told: u64,
    /// Waits of event loops for something to do, which were not told.
    pub idle_waits: u64,
    /// How long these were in all.
    pub idle: Duration,
    /// Stays that could not be told, for they came too fast.
    pub lost: u64,
}

/// Watches until `stop` is set, or a process that was given by its number has ended.
///
/// # Errors
///
/// [`TraceError`]: the process is not there or may not be looked at, or the chosen mechanism cannot be had.
pub fn watch(
    options: &Options,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Event),
) -> Result<Summary, TraceError> {
    if matches!(options.subject, Subject::Named(_))
        && find::Finder::new(options.subject.clone()).search(Duration::ZERO).found.is_empty()
    {
        each(Event::NotYet);
    }
    match options.backend {
        Some(Backend::Bpf) => by_bpf::watch(by_bpf::load(options)?, options, stop, each),
        Some(Backend::Peek) => by_peek::watch(options, stop, each),
        Some(backend) => Err(TraceError::Backend {
            backend,
            reason: "it stops the program at each call, and a watch is to leave it alone"
                .to_owned(),
        }),
        None => match by_bpf::load(options) {
            Ok(session) => by_bpf::watch(session, options, stop, each),
            Err(_) => by_peek::watch(options, stop, each),
        },
    }
}
