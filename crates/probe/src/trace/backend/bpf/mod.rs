//! The backend for root: programs in the kernel count every call, and tell of slow ones with a copy of the stack.
//!
//! Nothing is stopped and nothing is changed in the watched program, which another tracer may trace at the same time. See
//! `docs/trace-bpf.md` for what the programs do.

pub mod assembler;
pub mod fields;
pub mod layout;
mod notes;
pub mod programs;
pub mod record;
pub mod session;
mod target;
mod watcher;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sys::spawn::{self, Command};

use self::session::{From, LoadError, Session, Settings};
pub(in crate::trace) use self::target::recorded;
use self::watcher::Watcher;
use super::{Choice, Options, Outcome, Rest, Stacks, Subject, TraceError};
use crate::trace::recording::{Backend, Exit};

/// Bytes of the ring: room for five hundred calls with their stacks.
const RING: u32 = 8 << 20;

/// Watches a program, and what it starts, until it has ended or `stop` is set.
///
/// # Errors
///
/// [`TraceError::Backend`] when the kernel does not take the programs; then nothing was started.
pub fn run(
    options: &Options,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, TraceError> {
    let session = load(options)?;
    match &options.subject {
        Subject::Run(command) => start(options, command, choice, stop, session),
        Subject::Attach(process) => attach(options, *process, choice, stop, session),
    }
}

/// Says whether programs can be put into this kernel by this user, as far as that is known without doing it.
#[must_use]
pub fn is_allowed() -> bool {
    session::is_allowed()
}

fn load(options: &Options) -> Result<Session, TraceError> {
    let threshold = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let settings = Settings {
        calls: &options.calls,
        threshold_ns: if options.stacks == Stacks::All { 0 } else { threshold },
        threads: programs::Threads::All,
        stacks: match options.stacks {
            Stacks::None => programs::Stacks::LeftOut,
            Stacks::Slow | Stacks::All => programs::Stacks::Copied,
        },
        ring_bytes: RING,
        wakes: programs::Wakes::Paced,
    };
    Session::load(&settings).map_err(|error| refused(&error))
}

/// Says why programs in the kernel cannot be had, with all causes.
pub(in crate::trace) fn refused(error: &LoadError) -> TraceError {
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        reason = format!("{reason}: {source}");
        cause = source.source();
    }
    TraceError::Backend { backend: Backend::Bpf, reason }
}

/// Starts a program, watched from its `execve` on.
fn start(
    options: &Options,
    command: &Command,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    session: Session,
) -> Result<Outcome, TraceError> {
    let program = || PathBuf::from(command.arguments.first().cloned().unwrap_or_default());
    let cannot_start = |source| TraceError::Start { program: program(), source };
    let words = command.arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
    let held = spawn::hold(command, None).map_err(cannot_start)?;
    let process = held.process();
    session.watch(process, From::Exec).map_err(TraceError::Trace)?;
    let mut watcher = Watcher::new(session, options, choice, words, process);
    let mut started = held.release().map_err(cannot_start)?;
    let has_ended = watcher.watch(stop).map_err(TraceError::Trace)?;
    let recording = watcher.finish().map_err(TraceError::Trace)?;
    let rest = if has_ended {
        let _ = wait(process);
        None
    } else {
        let waiter = std::thread::Builder::new().name("waiter".to_owned());
        Some(Rest(waiter.spawn(move || wait(process)).map_err(TraceError::Trace)?))
    };
    match started.failure() {
        Some(source) if has_ended => Err(cannot_start(source)),
        _ => Ok(Outcome { recording, process, rest }),
    }
}

/// Returns how our child ended, if it has.
pub(super) fn has_ended(process: u32) -> Option<Exit> {
    wait_with(process, rustix::process::WaitOptions::NOHANG)
}

/// Waits for the end of our child.
pub(super) fn wait(process: u32) -> Option<Exit> {
    wait_with(process, rustix::process::WaitOptions::empty())
}

fn wait_with(process: u32, options: rustix::process::WaitOptions) -> Option<Exit> {
    let process = rustix::process::Pid::from_raw(i32::try_from(process).ok()?)?;
    let (_, status) =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(process), options))
            .ok()
            .flatten()?;
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Watches a program that runs already, and lets it go on.
fn attach(
    options: &Options,
    process: u32,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    session: Session,
) -> Result<Outcome, TraceError> {
    let command = super::procfs::command_line(process);
    if !std::fs::exists(format!("/proc/{process}")).unwrap_or(false) {
        let source = io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error());
        return Err(TraceError::Attach { process, source });
    }
    session.watch(process, From::Now).map_err(TraceError::Trace)?;
    let mut watcher = Watcher::new(session, options, choice, command, process);
    watcher.know_threads();
    watcher.watch(stop).map_err(TraceError::Trace)?;
    let recording = watcher.finish().map_err(TraceError::Trace)?;
    Ok(Outcome { recording, process, rest: None })
}
