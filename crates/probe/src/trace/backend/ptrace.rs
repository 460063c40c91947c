//! The backend for programs that run already: the kernel stops every call of every thread.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::io::Errno;
use session::clock::{Clock, SystemClock};
use sys::ptrace::{self, Orphans, Patience, Status, Waited};
use sys::thread::spawn_scoped;

use super::engine::{End, Engine, Stops};
use super::placement::Placement;
use super::procfs;
use super::{Choice, Options, Outcome, Subject, TraceError, seccomp};
use crate::trace::recorder::Recorder;
use crate::trace::recording::{Backend, Recording};

/// Records the chosen calls of a program that is started, or attached to and let go at the end.
///
/// # Errors
///
/// [`TraceError`].
pub fn run(
    options: &Options,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, TraceError> {
    let process = match &options.subject {
        Subject::Run(command) => {
            return seccomp::start(options, command, choice, stop, Stops::Every);
        }
        Subject::Attach(process) => *process,
    };
    // A thread of its own, so that no other tracer's or child's news are mixed with ours, and its CPUs are its own affair.
    let recorded = thread::scope(|scope| {
        let tracer = spawn_scoped(scope, "tracer", || attach(options, process, choice, stop));
        let tracer = tracer.map_err(|source| TraceError::Attach { process, source })?;
        tracer.join().unwrap_or_else(|_| Err(TraceError::Trace(io::ErrorKind::Other.into())))
    });
    Ok(Outcome { recording: recorded?, process, rest: None })
}

fn attach(
    options: &Options,
    process: u32,
    choice: &Choice,
    stop: &AtomicBool,
) -> Result<Recording, TraceError> {
    let refused = |source| TraceError::Attach { process, source };
    let command = procfs::command_line(process);
    let mut recorder = Recorder::new(Backend::Ptrace, command, SystemClock::start().now());
    recorder.recording().notes.push(choice.reason.clone());
    let mut engine = Engine::new(options, Stops::Every, recorder).map_err(refused)?;
    let seized = seize_all(process).map_err(refused)?;
    engine.begin(process, &seized);
    for tid in &seized {
        // It may have ended, which the first wait tells.
        let _ = ptrace::interrupt(*tid);
    }
    let end = engine.record(stop);
    let tids = engine.tids();
    // What is still running is looked at before it is stopped to be let go.
    let (recording, placement) = engine.finish();
    if !matches!(end, Ok(End::AllEnded)) {
        let_go(tids, &placement);
    }
    end.map_err(TraceError::Trace)?;
    Ok(recording)
}

/// Begins to trace all threads of a process, those too that start while we look.
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

/// Lets all traced threads go, each from a stop, with the signal that it was about to receive.
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
            Status::Exited(_) | Status::Killed(_) => {
                left.remove(&tid);
                continue;
            }
            Status::Signal(signal) => signal,
            // Its child is traced as well, and stops by itself.
            Status::Started => {
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
