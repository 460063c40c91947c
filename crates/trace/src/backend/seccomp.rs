//! The backend for started programs: a filter stops the chosen calls; all others cost only a comparison.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use sys::clock::{Clock, SystemClock};
use sys::ptrace::{self, Orphans};
use sys::seccomp::tracing::SeccompFilter;
use sys::spawn::{self, ProgramToStart};

use super::engine::{self, Engine, StopMechanism, TracingEnd};
use super::placement::Placement;
use super::thread::SpecialSyscalls;
use super::{BackendChoice, RecordingOutcome, RemainingProcesses, TraceError, TraceOptions};
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, Exit, Recording};

/// The result that the tracing thread sends when the recording has ended.
struct RecordingResult {
    recording: Recording,
    root: u32,
    end: TracingEnd,
}

/// Runs `command` and records the chosen calls of it and of all that it starts.
///
/// # Errors
///
/// [`TraceError`].
pub(crate) fn run(
    options: &TraceOptions,
    command: &ProgramToStart,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
) -> Result<RecordingOutcome, TraceError> {
    start(options, command, choice, stop, StopMechanism::Filter)
}

/// Does the same as [`run`], with either mechanism to stop at calls.
pub(super) fn start(
    options: &TraceOptions,
    command: &ProgramToStart,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
    stops: StopMechanism,
) -> Result<RecordingOutcome, TraceError> {
    let (say, said) = channel();
    let (options, command) = (options.clone(), command.clone());
    let (choice, stop) = (choice.clone(), Arc::clone(stop));
    // Only the thread that seized may trace, and that thread may have to stay longer than the caller waits.
    let tracer = thread::Builder::new()
        .name("tracer".to_owned())
        .spawn(move || trace(&options, &command, &choice, &stop, stops, &say))
        .map_err(TraceError::Trace)?;
    let lost = || TraceError::Trace(std::io::ErrorKind::BrokenPipe.into());
    let RecordingResult { recording, root: process, end } = said.recv().map_err(|_| lost())??;
    let rest = match end {
        TracingEnd::Early => Some(RemainingProcesses(tracer)),
        TracingEnd::AllEnded => {
            let _ = tracer.join();
            None
        }
    };
    Ok(RecordingOutcome { recording, process, rest })
}

/// The tracing thread: records, sends the recording, and stays for the processes that still run.
fn trace(
    options: &TraceOptions,
    command: &ProgramToStart,
    choice: &BackendChoice,
    stop: &AtomicBool,
    stops: StopMechanism,
    say: &Sender<Result<RecordingResult, TraceError>>,
) -> Option<Exit> {
    let (recorded, placement) = match record(options, command, choice, stop, stops) {
        Ok((recorded, placement)) => (recorded, placement),
        Err(e) => {
            // The receiver is gone only if the caller has panicked.
            let _ = say.send(Err(e));
            return None;
        }
    };
    let RecordingResult { root, end, .. } = recorded;
    // Even without a receiver, the program's stops have to be resumed.
    let _ = say.send(Ok(recorded));
    if end == TracingEnd::AllEnded { None } else { engine::pass_through(root, &placement) }
}

fn record(
    options: &TraceOptions,
    command: &ProgramToStart,
    choice: &BackendChoice,
    stop: &AtomicBool,
    stops: StopMechanism,
) -> Result<(RecordingResult, Placement), TraceError> {
    let program = || PathBuf::from(command.arguments.first().cloned().unwrap_or_default());
    let cannot_start = |source| TraceError::Start { program: program(), source };
    let words = command.arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
    let backend = match stops {
        StopMechanism::Filter => Backend::Seccomp,
        StopMechanism::Every => Backend::Ptrace,
    };
    let mut recorder = TraceRecorder::new(backend, words, SystemClock::start().now());
    recorder.recording().notes.push(choice.reason.clone());
    let refused = |e: std::io::Error| match sys::thread::is_refusal(&e) {
        true => TraceError::Trace(e),
        false => TraceError::Backend { backend, reason: e.to_string() },
    };
    let mut engine = Engine::new(options, stops, recorder).map_err(refused)?;
    let filter = (stops == StopMechanism::Filter).then(|| filter(options));
    let held = spawn::hold(command, filter.as_ref()).map_err(cannot_start)?;
    let process = held.process();
    if let Err(source) = ptrace::seize(process, Orphans::Die) {
        drop(held);
        engine::pass_through(process, &Placement::new());
        return Err(TraceError::Attach { process, source });
    }
    engine.begin(process, &[process]);
    if stops == StopMechanism::Every {
        // A seized thread stops at no calls before it has been stopped once.
        ptrace::interrupt(process).map_err(TraceError::Trace)?;
    }
    let mut started = held.release().map_err(cannot_start)?;
    let end = engine.record(stop).map_err(TraceError::Trace)?;
    let (recording, placement) = engine.finish();
    match started.failure() {
        Some(source) => Err(cannot_start(source)),
        None => Ok((RecordingResult { recording, root: process, end }, placement)),
    }
}

/// Returns the filter for the chosen calls and those that the tracer itself needs.
fn filter(options: &TraceOptions) -> SeccompFilter {
    if options.calls.is_all() {
        return SeccompFilter::tracing_all();
    }
    let mut numbers = options.calls.numbers();
    numbers.extend(SpecialSyscalls::of_this_kernel().numbers());
    SeccompFilter::tracing(&numbers)
}
