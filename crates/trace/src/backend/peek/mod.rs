//! The sampling backend: samples blocked threads through `/proc`, without stopping them.
//!
//! It sees a call if two samples find the thread in it, and does not see its result. It needs only the permission to read
//! the state of the process: the same user, and a permissive setting of Yama.

pub(crate) mod pacer;
pub(crate) mod sampler;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use report::figure::duration;
use sys::clock::{Clock, SystemClock};
use sys::spawn;

use self::pacer::SamplingPacer;
use self::sampler::{BlockDetails, BlockedPeriod, SampledThreads, Sampler, SamplerObserver};
pub use super::blocked::{self, BlockedSyscall, blocked_syscall};
use super::blocked::{FileRetention, ForeignPrograms, ThreadFiles};
use super::timing::TimeAccountant;
use super::{
    BackendChoice, RecordingLimit, RecordingOutcome, RemainingProcesses, Stacks, TraceError,
    TraceOptions, TraceTarget, procfs,
};
use crate::call::{self, TracedCall};
use crate::place::{ContextLookup, SyscallContext};
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, Exit};
use crate::stack::{KnownRegisters, Unwinder};
use crate::syscall::runs_program;
use crate::syscall_set::Set;
use crate::timeline::ThreadCounters;

/// The sampling interval of a main thread, if that is cheap enough.
const PERIOD: Duration = Duration::from_millis(1);

/// The share of a CPU that sampling may use.
const BUDGET: f64 = 0.03;

/// Records a program until it has ended or `stop` is set.
///
/// # Errors
///
/// [`TraceError::Attach`] if the kernel denies access to the process.
pub fn run(
    options: &TraceOptions,
    choice: &BackendChoice,
    stop: &Arc<AtomicBool>,
) -> Result<RecordingOutcome, TraceError> {
    match &options.subject {
        TraceTarget::Run(command) => {
            let program = || PathBuf::from(command.arguments.first().cloned().unwrap_or_default());
            let cannot_start = |source| TraceError::Start { program: program(), source };
            let words = command.arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
            let held = spawn::hold(command, None).map_err(cannot_start)?;
            let process = held.process();
            let mut started = held.release().map_err(cannot_start)?;
            // This waits for the `execve`, so that the child is not sampled before it runs the program.
            if let Some(source) = started.failure() {
                let _ = super::child::wait(process);
                return Err(cannot_start(source));
            }
            let (recording, exit) =
                record(options, choice, process, words, stop, ProgramOrigin::Started)?;
            let rest = exit.is_none().then(|| {
                let waiter = std::thread::Builder::new().name("waiter".to_owned());
                waiter.spawn(move || super::child::wait(process)).map(RemainingProcesses)
            });
            Ok(RecordingOutcome {
                recording,
                process,
                rest: rest.transpose().map_err(TraceError::Trace)?,
            })
        }
        TraceTarget::Attach(process) => {
            let command = procfs::command_line(*process);
            let cannot = |source| TraceError::Attach { process: *process, source };
            // Reading this file needs the same permission as all other files that the sampler reads.
            std::fs::read(format!("/proc/{process}/syscall")).map_err(cannot)?;
            let (recording, _) =
                record(options, choice, *process, command, stop, ProgramOrigin::Attached)?;
            Ok(RecordingOutcome { recording, process: *process, rest: None })
        }
    }
}

/// Returns the counters of a main thread that has ended and was not waited for yet.
fn counters_at_end(process: u32, at_ns: u64) -> Option<ThreadCounters> {
    let counters = ThreadFiles::new(process, process, FileRetention::Closed).counters()?;
    let faults = procfs::fault_count(process).unwrap_or(0);
    let (processor_ns, ready_ns) = (counters.cpu_ns, counters.queued_ns);
    Some(ThreadCounters { at_ns, processor_ns, ready_ns, faults })
}

/// How the program came to be recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ProgramOrigin {
    /// It was started for the recording, and is a child of this process.
    Started,
    /// It was already running.
    Attached,
}

fn record(
    options: &TraceOptions,
    choice: &BackendChoice,
    root: u32,
    command: Vec<Vec<u8>>,
    stop: &AtomicBool,
    origin: ProgramOrigin,
) -> Result<(crate::recording::Recording, Option<Exit>), TraceError> {
    let clock = SystemClock::start();
    let now = || u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
    let mut recorder = TraceRecorder::new(Backend::Peek, command, clock.now());
    let time = TimeAccountant::start(&mut recorder, options, sys::bpf::clock_ns());
    let threshold = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    // Blocks shorter than two samples are not visible.
    let threshold = threshold.max(u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX));
    let recording = recorder.recording();
    recording.watched = options.calls.to_string();
    recording.leaves_out_stacks = options.stacks == Stacks::None;
    recording.threshold_ns = threshold;
    recording.notes.push(choice.reason.clone());
    let process = recorder.process(root);
    process.executable = procfs::executable(root);
    process.command = procfs::command_line(root);
    recorder.recording().foreign_calls += u64::from(procfs::is_surely_foreign(root));
    let mut observer = RecordingObserver {
        calls: &options.calls,
        stacks: options.stacks,
        recorder,
        unwinder: Unwinder::new(),
        places: ContextLookup::new(),
        foreign: ForeignPrograms::default(),
        now_ns: 0,
    };
    let mut sampler = Sampler::new(root, SampledThreads::All, threshold);
    let mut pacer = SamplingPacer::new(PERIOD, BUDGET);
    let mut exit = None;
    while !stop.load(Ordering::Relaxed) {
        observer.now_ns = now();
        sampler.sample_round(now, &mut observer);
        if origin == ProgramOrigin::Started && exit.is_none() && super::child::is_over(root) {
            // What it did since the last look is in its counters only.
            if let Some(counters) = counters_at_end(root, now()) {
                observer.recorder.ended_with(root, counters);
            }
            exit = super::child::has_ended(root);
        }
        let is_over = match options.until {
            RecordingLimit::ProgramEnded if origin == ProgramOrigin::Started => exit.is_some(),
            _ => !sampler.has_threads() && (exit.is_some() || origin == ProgramOrigin::Attached),
        };
        if is_over {
            break;
        }
        pacer.rest().map_err(TraceError::Trace)?;
    }
    if !sampler.is_permitted() {
        let source = io::ErrorKind::PermissionDenied.into();
        return Err(TraceError::Attach { process: root, source });
    }
    let end = now();
    for period in sampler.open_periods() {
        let call = observer.call(&period, call::CallEnd::Running);
        observer.recorder.call(call);
    }
    if exit.is_some() {
        observer.recorder.process_ended(root, exit, end);
    }
    let mut recorder = observer.recorder;
    let refused = sampler.refused_descendants();
    if refused > 0 {
        recorder.recording().notes.push(format!(
            "Not recorded: {refused} of the processes that it started, which run as another user; root can trace them."
        ));
    }
    let foreign = recorder.recording().foreign_calls;
    if foreign > 0 {
        recorder
            .recording()
            .notes
            .push(format!("{foreign} programs made 32-bit calls, which are not recorded."));
    }
    let between = pacer.mean();
    recorder.recording().notes.extend([
        format!(
            "Sampled from outside about every {:.1} ms: shorter calls are not recorded, lengths are those between the first and the last sample, and results are not known.",
            between.as_secs_f64() * 1e3
        ),
        format!(
            "Not recorded: processes that lived for less than {}.",
            duration(Duration::from_nanos(sampler.longest_unlisted(end)))
        ),
        super::KERNEL_WORK_UNSEEN.to_owned(),
    ]);
    Ok((time.finish(recorder, end), exit))
}

/// Records the events of the sampler.
#[derive(Debug)]
struct RecordingObserver<'a> {
    calls: &'a Set,
    stacks: Stacks,
    recorder: TraceRecorder,
    unwinder: Unwinder,
    places: ContextLookup,
    foreign: ForeignPrograms,
    now_ns: u64,
}

impl RecordingObserver<'_> {
    fn call(&self, period: &BlockedPeriod, outcome: call::CallEnd) -> TracedCall {
        let details = period.details.unwrap_or_default();
        TracedCall {
            process: period.process,
            thread: period.thread,
            number: period.syscall.number,
            arguments: period.syscall.arguments,
            outcome,
            start_ns: period.first_ns,
            wall_ns: period.wall_ns(),
            cpu_ns: Some(period.cpu_ns()),
            queued_ns: Some(period.queued_ns()),
            stack: details.stack,
            target: details.target,
        }
    }
}

impl SamplerObserver for RecordingObserver<'_> {
    fn observes_syscall(&mut self, process: u32, syscall: &BlockedSyscall) -> bool {
        self.calls.contains(syscall.number) && !self.foreign.makes(process, syscall)
    }

    fn on_threshold(&mut self, period: &BlockedPeriod) -> BlockDetails {
        let RecordingObserver { unwinder, recorder, places, stacks, .. } = self;
        let BlockedPeriod { process, thread, syscall, .. } = *period;
        if procfs::hangs(process) {
            return BlockDetails::default();
        }
        let registers = KnownRegisters::new(syscall.ip, syscall.sp);
        // In an `execve`, the stack may already be that of the new program.
        let captures_stack = *stacks != Stacks::None && !runs_program(syscall.number);
        let stack = captures_stack.then(|| unwinder.capture(process, &registers, recorder));
        let context = SyscallContext {
            process,
            thread,
            number: syscall.number,
            arguments: syscall.arguments,
            returned: None,
        };
        BlockDetails { stack, target: places.target(&context, recorder) }
    }

    fn on_unblocked(&mut self, period: &BlockedPeriod) {
        let call = self.call(period, call::CallEnd::Unknown);
        self.recorder.call(call);
    }

    fn on_thread_found(&mut self, process: u32, thread: u32) {
        let at_ns = self.now_ns;
        let is_new = !self.recorder.recording().processes.contains_key(&process);
        let known = self.recorder.process(process);
        if is_new {
            known.start_ns = at_ns;
            self.recorder.recording().foreign_calls +=
                u64::from(procfs::is_surely_foreign(process));
        }
        let known = self.recorder.process(process);
        if thread == process {
            known.executable = procfs::executable(process);
            known.command = procfs::command_line(process);
        }
        self.recorder.thread(thread, process, at_ns).name = procfs::thread_name(process, thread);
    }

    fn on_process_listed(&mut self, process: u32) {
        let executable = procfs::executable(process);
        if !executable.is_empty() && executable != self.recorder.process(process).executable {
            self.unwinder.forget(process);
            self.places.forget(process);
            let known = self.recorder.process(process);
            known.executable = executable;
            known.command = procfs::command_line(process);
            self.recorder.recording().foreign_calls +=
                u64::from(procfs::is_surely_foreign(process));
        }
    }

    fn on_thread_gone(&mut self, process: u32, thread: u32) {
        self.recorder.thread_ended(thread, self.now_ns);
        if thread == process {
            self.recorder.process_ended(process, None, self.now_ns);
            self.unwinder.forget(process);
            self.places.forget(process);
        }
    }
}
