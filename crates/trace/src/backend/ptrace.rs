//! The backend for running programs: the kernel stops every call of every thread.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::io::Errno;
use sys::clock::{Clock, SystemClock};
use sys::ptrace::{self, Orphans, Patience, TraceStop, Waited};
use sys::thread::spawn_scoped;

use super::engine::{Engine, StopMechanism, TracingEnd};
use super::placement::Placement;
use super::procfs;
use super::{BackendChoice, RecordingOutcome, TraceError, TraceOptions, TraceTarget, seccomp};
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, Recording};

/// Records the chosen calls of a program that is started, or attached to and detached at the end.
///
/// # Errors
///
/// [`TraceError`].
pub(crate) fn run(
    options: &TraceOptions,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
) -> Result<RecordingOutcome, TraceError> {
    let process = match &options.subject {
        TraceTarget::Run(command) => {
            return seccomp::start(options, command, choice, stop, StopMechanism::Every);
        }
        TraceTarget::Attach(process) => *process,
    };
    // A thread of its own, so that events of other tracees and children are not mixed, and so that its affinity can be changed.
    let recorded = thread::scope(|scope| {
        let tracer = spawn_scoped(scope, "tracer", || attach(options, process, choice, stop));
        let tracer = tracer.map_err(|source| TraceError::Attach { process, source })?;
        tracer.join().unwrap_or_else(|_| Err(TraceError::Trace(io::ErrorKind::Other.into())))
    });
    Ok(RecordingOutcome { recording: recorded?, process, rest: None })
}

fn attach(
    options: &TraceOptions,
    process: u32,
    choice: &BackendChoice,
    stop: &AtomicBool,
) -> Result<Recording, TraceError> {
    let refused = |source| TraceError::Attach { process, source };
    let command = procfs::command_line(process);
    let mut recorder = TraceRecorder::new(Backend::Ptrace, command, SystemClock::start().now());
    recorder.recording().notes.push(choice.reason.clone());
    let mut engine = Engine::new(options, StopMechanism::Every, recorder).map_err(refused)?;
    let seized = seize_all(process).map_err(refused)?;
    engine.begin(process, &seized);
    engine.adopt_calls();
    for tid in &seized {
        // It may have ended, which the first wait tells.
        let _ = ptrace::interrupt(*tid);
    }
    let end = engine.record(stop);
    let tids = engine.tids();
    // What is still running is looked at before it is stopped to be let go.
    let (recording, placement) = engine.finish();
    if !matches!(end, Ok(TracingEnd::AllEnded)) {
        let_go(tids, &placement);
    }
    end.map_err(TraceError::Trace)?;
    Ok(recording)
}

/// Starts tracing all threads of a process, including those that start meanwhile.
fn seize_all(process: u32) -> io::Result<Vec<u32>> {
    let mut seized = HashSet::new();
    loop {
        let mut is_new = false;
        for tid in procfs::threads(process)? {
            if seized.contains(&tid) {
                continue;
            }
            match ptrace::seize(tid, Orphans::Live) {
                Ok(()) => is_new |= seized.insert(tid),
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                // A thread that a seized one started is traced by that already.
                Err(_) if procfs::is_traced_by_us(tid) => is_new |= seized.insert(tid),
                Err(e) => {
                    let_go(seized.into_iter().collect(), &Placement::new());
                    return Err(e);
                }
            }
        }
        if !is_new {
            let mut all: Vec<u32> = seized.into_iter().collect();
            all.sort_unstable();
            return if all.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(all) };
        }
    }
}

/// Detaches all traced threads, each at a stop, with the signal that it was about to receive.
fn let_go(tids: Vec<u32>, placement: &Placement) {
    let mut left: HashSet<u32> = tids.into_iter().collect();
    // One that is stopped already tells the stop that it is in, or that comes next; one that has ended tells that.
    left.retain(|tid| ptrace::interrupt(*tid).is_ok());
    while !left.is_empty() {
        let (tid, status) = match ptrace::wait(Patience::Blocks) {
            Ok(Waited::Thread(tid, status)) => (tid, status),
            Ok(Waited::Nothing) => continue,
            Ok(Waited::Nobody) | Err(_) => return,
        };
        let signal = match status {
            TraceStop::Exited(_) | TraceStop::Killed(_) => {
                left.remove(&tid);
                continue;
            }
            TraceStop::Signal(signal) => signal,
            // Its child is traced as well, and stops by itself.
            TraceStop::Started => {
                let child = ptrace::event_message(tid).ok().and_then(|c| u32::try_from(c).ok());
                left.extend(child);
                0
            }
            _ => 0,
        };
        placement.born(tid);
        // A process that is stopped by `SIGSTOP` stays so.
        if ptrace::detach(tid, signal).is_ok() {
            left.remove(&tid);
        }
    }
}
