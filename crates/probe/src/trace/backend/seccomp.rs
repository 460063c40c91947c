//! The backend for programs of one's own: a filter stops the chosen calls, all others cost what a comparison costs.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use session::clock::{Clock, SystemClock};
use sys::ptrace::{self, Orphans};
use sys::seccomp::tracing::Filter;
use sys::spawn::{self, Command};

use super::engine::{self, End, Engine, Stops};
use super::placement::Placement;
use super::thread::Special;
use super::{Choice, Options, Outcome, Rest, TraceError};
use crate::trace::recorder::Recorder;
use crate::trace::recording::{Backend, Exit, Recording};

/// What the tracing thread says when the recording has ended.
struct Recorded {
    recording: Recording,
    root: u32,
    end: End,
}

/// Runs `command` and records the chosen calls of it and of all that it starts.
///
/// # Errors
///
/// [`TraceError`].
pub fn run(
    options: &Options,
    command: &Command,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, TraceError> {
    start(options, command, choice, stop, Stops::Filter)
}

/// As [`run`], with either way to stop at calls.
pub(super) fn start(
    options: &Options,
    command: &Command,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    stops: Stops,
) -> Result<Outcome, TraceError> {
    let (say, said) = channel();
    let (options, command) = (options.clone(), command.clone());
    let (choice, stop) = (choice.clone(), Arc::clone(stop));
    // The kernel lets only the thread that seized trace, and that thread may have to stay longer than the caller wants to wait.
    let tracer = thread::Builder::new()
        .name("tracer".to_owned())
        .spawn(move || trace(&options, &command, &choice, &stop, stops, &say))
        .map_err(TraceError::Trace)?;
    let lost = || TraceError::Trace(std::io::ErrorKind::BrokenPipe.into());
    let Recorded { recording, root: process, end } = said.recv().map_err(|_| lost())??;
    let rest = match end {
        End::Early => Some(Rest(tracer)),
        End::AllEnded => {
            let _ = tracer.join();
            None
        }
    };
    Ok(Outcome { recording, process, rest })
}

/// The tracing thread: records, says what was recorded, and stays for what still runs.
fn trace(
    options: &Options,
    command: &Command,
    choice: &Choice,
    stop: &AtomicBool,
    stops: Stops,
    say: &Sender<Result<Recorded, TraceError>>,
) -> Option<Exit> {
    let (recorded, placement) = match record(options, command, choice, stop, stops) {
        Ok((recorded, placement)) => (recorded, placement),
        Err(e) => {
            // Nobody listens only if the caller has panicked.
            let _ = say.send(Err(e));
            return None;
        }
    };
    let Recorded { root, end, .. } = recorded;
    // If nobody listens, the program still needs its answers.
    let _ = say.send(Ok(recorded));
    if end == End::AllEnded { None } else { engine::pass_through(root, &placement) }
}

fn record(
    options: &Options,
    command: &Command,
    choice: &Choice,
    stop: &AtomicBool,
    stops: Stops,
) -> Result<(Recorded, Placement), TraceError> {
    let program = || PathBuf::from(command.arguments.first().cloned().unwrap_or_default());
    let cannot_start = |source| TraceError::Start { program: program(), source };
    let words = command.arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
    let backend = match stops {
        Stops::Filter => Backend::Seccomp,
        Stops::Every => Backend::Ptrace,
    };
    let mut recorder = Recorder::new(backend, words, SystemClock::start().now());
    recorder.recording().notes.push(choice.reason.clone());
    let refused = |e: std::io::Error| TraceError::Backend { backend, reason: e.to_string() };
    let mut engine = Engine::new(options, stops, recorder).map_err(refused)?;
    let filter = (stops == Stops::Filter).then(|| filter(options));
    let held = spawn::hold(command, filter.as_ref()).map_err(cannot_start)?;
    let process = held.process();
    if let Err(source) = ptrace::seize(process, Orphans::Die) {
        drop(held);
        engine::pass_through(process, &Placement::new());
        return Err(TraceError::Attach { process, source });
    }
    engine.begin(process, &[process]);
    if stops == Stops::Every {
        // A seized thread stops at no calls before it has been stopped once.
        ptrace::interrupt(process).map_err(TraceError::Trace)?;
    }
    let mut started = held.release().map_err(cannot_start)?;
    let end = engine.record(stop).map_err(TraceError::Trace)?;
    let (recording, placement) = engine.finish();
    match started.failure() {
        Some(source) => Err(cannot_start(source)),
        None => Ok((Recorded { recording, root: process, end }, placement)),
    }
}

/// Returns the filter for the chosen calls and those that the tracer itself has to see.
fn filter(options: &Options) -> Filter {
    if options.calls.is_all() {
        return Filter::tracing_all();
    }
    let mut numbers = options.calls.numbers();
    numbers.extend(Special::of_this_kernel().numbers());
    Filter::tracing(&numbers)
}
