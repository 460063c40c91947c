//! The backend that only looks: samples blocked threads through `/proc`, and stops nobody.
//!
//! It sees a call when a thread stays in it from one look to another, and not what the call returns. It needs no more than
//! the right to look at the process: the same user, and Yama's consent.

pub mod glance;
pub mod pace;
pub mod sampler;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use session::clock::{Clock, SystemClock};
use sys::spawn;

pub use self::glance::{Glance, look};
use self::pace::Pace;
use self::sampler::{Block, Found, Sampler, Scope, Witness};
use super::{Choice, Options, Outcome, Rest, Stacks, Subject, TraceError, Until, procfs};
use crate::trace::call::{self, Call};
use crate::trace::calls::Set;
use crate::trace::kernel::runs_program;
use crate::trace::place::{Made, Places};
use crate::trace::recorder::Recorder;
use crate::trace::recording::{Backend, Exit};
use crate::trace::stack::{Registers, Unwinder};

/// How often a first thread is looked at, where that is cheap enough.
const PERIOD: Duration = Duration::from_millis(1);

/// The share of a CPU that looking may take.
const BUDGET: f64 = 0.03;

/// Watches a program until it has ended or `stop` is set.
///
/// # Errors
///
/// [`TraceError::Attach`] when the kernel does not let us look at it.
pub fn run(
    options: &Options,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, TraceError> {
    match &options.subject {
        Subject::Run(command) => {
            let program = || PathBuf::from(command.arguments.first().cloned().unwrap_or_default());
            let cannot_start = |source| TraceError::Start { program: program(), source };
            let words = command.arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
            let held = spawn::hold(command, None).map_err(cannot_start)?;
            let process = held.process();
            let mut started = held.release().map_err(cannot_start)?;
            // This waits until the program runs, so that we do not take ourselves for it.
            if let Some(source) = started.failure() {
                let _ = super::bpf::wait(process);
                return Err(cannot_start(source));
            }
            let (recording, exit) = record(options, choice, process, words, stop, Whose::Ours)?;
            let rest = exit.is_none().then(|| {
                let waiter = std::thread::Builder::new().name("waiter".to_owned());
                waiter.spawn(move || super::bpf::wait(process)).map(Rest)
            });
            Ok(Outcome { recording, process, rest: rest.transpose().map_err(TraceError::Trace)? })
        }
        Subject::Attach(process) => {
            let command = procfs::command_line(*process);
            let cannot = |source| TraceError::Attach { process: *process, source };
            // Whoever may read this may look at everything that we look at.
            std::fs::read(format!("/proc/{process}/syscall")).map_err(cannot)?;
            let (recording, _) = record(options, choice, *process, command, stop, Whose::Foreign)?;
            Ok(Outcome { recording, process: *process, rest: None })
        }
    }
}

/// Whose child the program is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    /// Ours: its end waits for us.
    Ours,
    /// Somebody else's.
    Foreign,
}

fn record(
    options: &Options,
    choice: &Choice,
    root: u32,
    command: Vec<Vec<u8>>,
    stop: &AtomicBool,
    whose: Whose,
) -> Result<(crate::trace::recording::Recording, Option<Exit>), TraceError> {
    let clock = SystemClock::start();
    let now = || u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
    let mut recorder = Recorder::new(Backend::Peek, command, clock.now());
    let threshold = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    // What lasts less than two looks cannot be told from nothing.
    let threshold = threshold.max(u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX));
    let recording = recorder.recording();
    recording.watched = options.calls.to_string();
    recording.threshold_ns = threshold;
    recording.notes.push(choice.reason.clone());
    let process = recorder.process(root);
    process.executable = procfs::executable(root);
    process.command = procfs::command_line(root);
    let mut eye = Eye {
        calls: &options.calls,
        stacks: options.stacks,
        recorder,
        unwinder: Unwinder::new(),
        places: Places::new(),
        now_ns: 0,
    };
    let mut sampler = Sampler::new(root, Scope::All, threshold);
    let mut pace = Pace::new(PERIOD, BUDGET);
    let mut exit = None;
    while !stop.load(Ordering::Relaxed) {
        eye.now_ns = now();
        sampler.round(now, &mut eye);
        if whose == Whose::Ours && exit.is_none() {
            exit = super::bpf::has_ended(root);
        }
        let is_over = match options.until {
            Until::ProgramEnded if whose == Whose::Ours => exit.is_some(),
            _ => !sampler.has_threads() && (exit.is_some() || whose == Whose::Foreign),
        };
        if is_over {
            break;
        }
        pace.rest().map_err(TraceError::Trace)?;
    }
    if !sampler.may_look() {
        let source = io::ErrorKind::PermissionDenied.into();
        return Err(TraceError::Attach { process: root, source });
    }
    let end = now();
    for block in sampler.staying() {
        let call = eye.call(&block, call::Outcome::Running);
        eye.recorder.call(call);
    }
    if exit.is_some() {
        eye.recorder.process_ended(root, exit, end);
    }
    let mut recorder = eye.recorder;
    let between = pace.mean();
    recorder.recording().notes.extend([
        format!(
            "Looked at from outside about every {:.1} ms: shorter calls are not seen, lengths are those between the first and the last look, and results are not known.",
            between.as_secs_f64() * 1e3
        ),
        "Not seen: processes that lived for less than a tenth of a second.".to_owned(),
    ]);
    Ok((recorder.finish(end), exit))
}

/// Notes what the sampler sees.
#[derive(Debug)]
struct Eye<'a> {
    calls: &'a Set,
    stacks: Stacks,
    recorder: Recorder,
    unwinder: Unwinder,
    places: Places,
    now_ns: u64,
}

impl Eye<'_> {
    fn call(&self, block: &Block, outcome: call::Outcome) -> Call {
        let found = block.found.unwrap_or_default();
        Call {
            process: block.process,
            thread: block.thread,
            number: block.glance.number,
            arguments: block.glance.arguments,
            outcome,
            start_ns: block.first_ns,
            wall_ns: block.wall_ns(),
            cpu_ns: Some(block.cpu_ns()),
            queued_ns: Some(block.queued_ns()),
            stack: found.stack,
            target: found.target,
        }
    }
}

impl Witness for Eye<'_> {
    fn wants(&self, number: u32) -> bool {
        self.calls.contains(number)
    }

    fn reached(&mut self, block: &Block) -> Found {
        let Eye { unwinder, recorder, places, stacks, .. } = self;
        let Block { process, thread, glance, .. } = *block;
        let registers = Registers::new(glance.ip, glance.sp);
        // Of a call that runs another program the stack may be the new one's already.
        let wants = *stacks != Stacks::None && !runs_program(glance.number);
        let stack = wants.then(|| unwinder.capture(process, &registers, recorder));
        let made = Made {
            process,
            thread,
            number: glance.number,
            arguments: glance.arguments,
            returned: None,
        };
        Found { stack, target: places.target(&made, recorder) }
    }

    fn left(&mut self, block: &Block) {
        let call = self.call(block, call::Outcome::Unknown);
        self.recorder.call(call);
    }

    fn met(&mut self, process: u32, thread: u32) {
        let at_ns = self.now_ns;
        let is_new = !self.recorder.recording().processes.contains_key(&process);
        let known = self.recorder.process(process);
        if is_new {
            known.start_ns = at_ns;
        }
        if thread == process {
            known.executable = procfs::executable(process);
            known.command = procfs::command_line(process);
        }
        self.recorder.thread(thread, process, at_ns).name = procfs::thread_name(process, thread);
    }

    fn again(&mut self, process: u32) {
        let executable = procfs::executable(process);
        if !executable.is_empty() && executable != self.recorder.process(process).executable {
            self.unwinder.forget(process);
            self.places.forget(process);
            let known = self.recorder.process(process);
            known.executable = executable;
            known.command = procfs::command_line(process);
        }
    }

    fn lost(&mut self, process: u32, thread: u32) {
        self.recorder.thread_ended(thread, self.now_ns);
        if thread == process {
            self.recorder.process_ended(process, None, self.now_ns);
            self.unwinder.forget(process);
            self.places.forget(process);
        }
    }
}
