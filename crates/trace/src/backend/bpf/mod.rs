//! The backend for root: programs in the kernel count every call, and report slow ones with a copy of the stack.
//!
//! Nothing is stopped and nothing is changed in the watched program, which another tracer may trace at the same time. See
//! `docs/trace-bpf.md` for what the programs do.

mod chains;
mod notes;
mod target;
mod watcher;
mod work;

pub(crate) use kerneltrace::kernel_session;
pub use kerneltrace::{fields, programs, record, served, session};

use report::error::chain;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sys::bpf::LoadError;
use sys::spawn::{self, ProgramToStart};

use self::chains::ChainLoader;
use self::kernel_session::KernelSession;
use self::served::protocol::AuthorizationPrompt;
use self::served::{RecorderConnection, ServedError};
use self::session::{BpfSession, BpfSettings, WatchStart};
pub(crate) use self::target::recorded;
use self::watcher::{KernelLoaders, Watcher};
use self::work::WorkLoader;
use super::{
    BackendChoice, RecordingOutcome, RemainingProcesses, Stacks, TraceError, TraceOptions,
    TraceTarget, child,
};
use crate::recording::Backend;

/// Bytes of the ring: room for five hundred calls with their stacks.
const RING: u32 = 8 << 20;

/// Why a session of the service has no chains.
const NO_CHAINS: &str = "Waits are not followed to other programs: the recorder service shows each user his own processes alone.";

/// Records a program and its descendants until it has ended or `stop` is set, by programs of our own or of the service.
///
/// # Errors
///
/// [`TraceError::Backend`] when the kernel does not take the programs; then nothing was started.
pub fn run(
    options: &TraceOptions,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
    recorder: Option<RecorderConnection>,
) -> Result<RecordingOutcome, TraceError> {
    let recorder = match recorder {
        None if !is_allowed() => ask_for_service(options)?,
        recorder => recorder,
    };
    // The service's caller sees his own processes alone; who woke whom is about everybody's.
    let chains = match &recorder {
        None => ChainLoader::start(),
        Some(_) => ChainLoader::left_out(NO_CHAINS),
    };
    let session = load(options, recorder)?;
    let work = WorkLoader::start(session.filter(), threshold_ns(options));
    let session = (session, KernelLoaders { chains, work });
    match &options.subject {
        TraceTarget::Run(command) => start(options, command, choice, stop, session),
        TraceTarget::Attach(process) => attach(options, *process, choice, stop, session),
    }
}

/// Returns whether programs can be put into this kernel by this user, as far as that is known without doing it.
#[must_use]
pub fn is_allowed() -> bool {
    session::is_allowed()
}

/// Connects to the service, because the user wants programs in the kernel and may not load them; none where there is no service.
fn ask_for_service(options: &TraceOptions) -> Result<Option<RecorderConnection>, TraceError> {
    let Some(path) = &options.recorder else { return Ok(None) };
    match RecorderConnection::connect(path, AuthorizationPrompt::Allowed) {
        Ok(connection) => Ok(Some(connection)),
        // What our own rights are missing says more.
        Err(ServedError::Absent(_)) => Ok(None),
        Err(error) => Err(unserved(&error)),
    }
}

pub(crate) fn unserved(error: &ServedError) -> TraceError {
    TraceError::Backend { backend: Backend::Bpf, reason: chain(error) }
}

fn load(
    options: &TraceOptions,
    recorder: Option<RecorderConnection>,
) -> Result<KernelSession, TraceError> {
    let settings = BpfSettings {
        calls: &options.calls,
        threshold_ns: if options.stacks == Stacks::All { 0 } else { threshold_ns(options) },
        kept: &options.kept,
        threads: programs::WatchedThreads::All,
        stacks: match options.stacks {
            Stacks::None => programs::KernelStacks::LeftOut,
            Stacks::Slow | Stacks::All => programs::KernelStacks::Copied,
        },
        ring_bytes: RING,
        wakes: programs::WakeupPolicy::Paced,
        owner: None,
    };
    match recorder {
        None => {
            let session = BpfSession::load(&settings).map_err(|error| refused(&error))?;
            Ok(KernelSession::Own(Box::new(session)))
        }
        Some(recorder) => {
            let session = recorder.open(&settings).map_err(|error| unserved(&error))?;
            Ok(KernelSession::Served(Box::new(session)))
        }
    }
}

fn threshold_ns(options: &TraceOptions) -> u64 {
    u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the error for programs that cannot be loaded, with all causes.
pub(crate) fn refused(error: &LoadError) -> TraceError {
    TraceError::Backend { backend: Backend::Bpf, reason: chain(error) }
}

/// Starts a program, watched from its `execve` on.
fn start(
    options: &TraceOptions,
    command: &ProgramToStart,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
    (mut session, loaders): (KernelSession, KernelLoaders),
) -> Result<RecordingOutcome, TraceError> {
    let program = || PathBuf::from(command.arguments.first().cloned().unwrap_or_default());
    let cannot_start = |source| TraceError::Start { program: program(), source };
    let words = command.arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
    let held = spawn::hold(command, None).map_err(cannot_start)?;
    let process = held.process();
    session.watch(process, WatchStart::Exec).map_err(TraceError::Trace)?;
    let mut watcher = Watcher::new(session, loaders, options, choice, words, process);
    watcher.releases();
    let mut started = held.release().map_err(cannot_start)?;
    let has_ended = watcher.watch(stop).map_err(TraceError::Trace)?;
    let mut recording = watcher.finish().map_err(TraceError::Trace)?;
    let rest = if has_ended {
        // The record of its end may be missing.
        let exit = child::wait(process);
        if let Some(recorded) = recording.processes.get_mut(&process) {
            recorded.exit = recorded.exit.or(exit);
        }
        None
    } else {
        let waiter = std::thread::Builder::new().name("waiter".to_owned());
        Some(RemainingProcesses(
            waiter.spawn(move || child::wait(process)).map_err(TraceError::Trace)?,
        ))
    };
    match started.failure() {
        Some(source) if has_ended => Err(cannot_start(source)),
        _ => Ok(RecordingOutcome { recording, process, rest }),
    }
}

/// Watches a program that runs already, and lets it go on.
fn attach(
    options: &TraceOptions,
    process: u32,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
    (mut session, loaders): (KernelSession, KernelLoaders),
) -> Result<RecordingOutcome, TraceError> {
    let command = super::procfs::command_line(process);
    if !std::fs::exists(format!("/proc/{process}")).unwrap_or(false) {
        let source = io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error());
        return Err(TraceError::Attach { process, source });
    }
    session
        .watch(process, WatchStart::Now)
        .map_err(|source| TraceError::Attach { process, source })?;
    let mut watcher = Watcher::new(session, loaders, options, choice, command, process);
    watcher.know_threads();
    watcher.watch(stop).map_err(TraceError::Trace)?;
    let recording = watcher.finish().map_err(TraceError::Trace)?;
    Ok(RecordingOutcome { recording, process, rest: None })
}
