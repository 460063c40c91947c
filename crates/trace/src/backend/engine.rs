//! The tracer's loop: one thread that waits for stops, measures calls, and resumes the threads.

mod ending;
mod lives;

pub(super) use self::ending::pass_through;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sys::clock::{Clock, SystemClock};
use sys::ptrace::{self, At, Patience, TraceStop, Waited};
use sys::tick::Ticker;

use super::blocked::{BlockedSyscall, blocked_syscall};
use super::calibrate::{self, ProcessorPlacement};
use super::placement::Placement;
use super::procfs::{self, CpuUsage, SchedstatFile};
use super::thread::{CompletedCall, EnteredCall, SpecialSyscalls, TracedThread};
use super::timing::TimeAccountant;
use super::{RecordingLimit, Stacks, TraceOptions, TraceTarget, caller};
use crate::call::{CallEnd, TargetId, TracedCall};
use crate::mark::NOT_FOUND;
use crate::place::{self, ContextLookup, SyscallContext};
use crate::recorder::TraceRecorder;
use crate::recording::{Bias, Exit, Target};
use crate::stack::Unwinder;
use crate::syscall::{EVENT_WAITS, call_number, sleeps};
use crate::syscall_set;

/// How often the loop checks for the end of the recording and revises the placement.
const TICK: Duration = Duration::from_millis(50);

/// The most threads whose counters are kept open.
const COUNTERS: usize = 200;

/// The number of calls to measure the overhead on the tracer's CPU, and on another one, where each takes longer.
const CALIBRATION: (u32, u32) = (200, 32);

/// The architecture of our own calls, as a stop says it.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };

/// The mechanism that stops threads at calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StopMechanism {
    /// A filter stops at the entry of the chosen calls.
    Filter,
    /// The kernel stops at each entry and exit.
    Every,
}

/// The overhead to subtract from calls, by the placement of the thread.
#[derive(Clone, Copy, Debug)]
struct OverheadEstimates {
    beside: Bias,
    free: Bias,
}

/// Traces the calling thread's tracees.
#[derive(Debug)]
pub(super) struct Engine<'a> {
    options: &'a TraceOptions,
    stops: StopMechanism,
    root: u32,
    clock: SystemClock,
    recorder: TraceRecorder,
    time: TimeAccountant,
    unwinder: Unwinder,
    places: ContextLookup,
    special: SpecialSyscalls,
    senders: [Option<u32>; 2],
    /// Calls that write their answer over what they were asked.
    selects: [Option<u32>; 2],
    executes: [Option<u32>; 2],
    event_waits: Vec<u32>,
    /// Set until a started program's `execve` succeeds: before that it is our own child, which looks for the program.
    is_before_program: bool,
    /// Filters that every process has: ours, and those that we run under.
    filters: Option<u64>,
    /// Processes with filters of their own.
    filtered: u64,
    threads: HashMap<u32, TracedThread>,
    counters_open: usize,
    /// By number: whether the counters are read before each call.
    split: Vec<bool>,
    placement: Placement,
    biases: OverheadEstimates,
    foreign_calls: u64,
    foreign_programs: u64,
}

/// Why the recording ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TracingEnd {
    /// No traced thread is left.
    AllEnded,
    /// The recording is complete, or `stop` was set; threads are still traced.
    Early,
}

impl<'a> Engine<'a> {
    /// Prepares to trace `root` and measures the overhead; to be called by the tracing thread.
    ///
    /// # Errors
    ///
    /// Those of [`calibrate::measure`].
    pub(super) fn new(
        options: &'a TraceOptions,
        stops: StopMechanism,
        mut recorder: TraceRecorder,
    ) -> io::Result<Engine<'a>> {
        let clock = SystemClock::start();
        let (beside, free) = CALIBRATION;
        let biases = OverheadEstimates {
            beside: calibrate::measure(beside, ProcessorPlacement::Beside, &clock)?,
            free: calibrate::measure(free, ProcessorPlacement::Free, &clock)?,
        };
        let recording = recorder.recording();
        recording.bias = biases.beside;
        recording.watched = options.calls.to_string();
        recording.leaves_out_stacks = options.stacks == Stacks::None;
        recording.threshold_ns = nanoseconds(options.threshold);
        recorder.keep_always(options.kept.clone());
        let clock = SystemClock::start();
        let time = TimeAccountant::start(&mut recorder, options, sys::bpf::clock_ns());
        Ok(Engine {
            options,
            stops,
            root: 0,
            clock,
            recorder,
            time,
            unwinder: Unwinder::new(),
            places: ContextLookup::new(),
            senders: [call_number("sendmsg"), call_number("sendto")],
            selects: [call_number("select"), call_number("pselect6")],
            executes: [call_number("execve"), call_number("execveat")],
            event_waits: EVENT_WAITS.into_iter().filter_map(call_number).collect(),
            is_before_program: matches!(options.subject, TraceTarget::Run(_)),
            filters: procfs::filters(std::process::id()).map(|count| count + 1),
            filtered: 0,
            special: SpecialSyscalls::of_this_kernel(),
            threads: HashMap::new(),
            counters_open: 0,
            split: (0..syscall_set::NUMBERS)
                .map(|number| !syscall_set::is_mostly_fast(number))
                .collect(),
            placement: Placement::new(),
            biases,
            foreign_calls: 0,
            foreign_programs: 0,
        })
    }

    /// Notes the program that was started or attached to, of which these threads are traced already.
    pub(super) fn begin(&mut self, root: u32, threads: &[u32]) {
        self.root = root;
        let now = self.now();
        for tid in threads {
            self.threads.insert(*tid, TracedThread::new(root));
            self.recorder.thread(*tid, root, now);
        }
        let process = self.recorder.process(root);
        process.start_ns = now;
        process.executable = procfs::executable(root);
        process.command = procfs::command_line(root);
        if let ([only], TraceTarget::Run(_)) = (threads, &self.options.subject) {
            // A program that starts makes many calls, and from one thread.
            self.placement.bind(*only, now);
        }
    }

    /// Notes the calls in which the threads of a running program are, before it is stopped for the first time: how long they
    /// have been in them is not known, so their lengths count from now on.
    pub(super) fn adopt_calls(&mut self) {
        let (root, start_ns) = (self.root, self.now());
        self.foreign_programs += u64::from(procfs::is_surely_foreign(root));
        let mut count = 0_u64;
        for tid in self.tids() {
            let seen = blocked_syscall(root, tid);
            let Some(seen) = seen.filter(|seen| self.options.calls.contains(seen.number)) else {
                continue;
            };
            let BlockedSyscall { number, arguments, sp, ip } = seen;
            let used = self.used(tid);
            let call = EnteredCall { number, arguments, ip, sp, start_ns, used, stack: None };
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.adopt(call);
                count += 1;
            }
        }
        if count > 0 {
            self.recorder.recording().notes.push(procfs::note_of_adopted(count));
        }
    }

    /// Ends the call in which a thread was found, if it was over when the thread stopped for the first time.
    fn end_adopted(&mut self, tid: u32, now: u64) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.has_interrupted())
        else {
            return;
        };
        if !thread.is_first_stop() {
            return;
        }
        let process = thread.process;
        let Ok(result) = ptrace::call_result(tid) else { return };
        let left = self.threads.get_mut(&tid).and_then(|thread| thread.adopted_ended(result, now));
        if let Some(left) = left {
            self.keep(tid, process, left, now);
        }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.clock.monotonic())
    }

    /// Traces until no thread is left, `stop` is set, or the recording is complete.
    ///
    /// # Errors
    ///
    /// As `wait4(2)`.
    pub(super) fn record(&mut self, stop: &AtomicBool) -> io::Result<TracingEnd> {
        let _ticker = Ticker::start(TICK)?;
        loop {
            match ptrace::wait(Patience::Blocks)? {
                Waited::Nobody => return Ok(TracingEnd::AllEnded),
                Waited::Nothing => {
                    let now = self.now();
                    self.placement.tick(now);
                }
                Waited::Thread(tid, status) => {
                    let now = self.now();
                    self.happened(tid, status, now);
                    let has_ended = matches!(status, TraceStop::Exited(_) | TraceStop::Killed(_));
                    if has_ended
                        && tid == self.root
                        && self.options.until == RecordingLimit::ProgramEnded
                    {
                        return self.rest_of_ended();
                    }
                }
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(TracingEnd::Early);
            }
        }
    }

    /// Returns whether a process is left when the program has ended, including a child that has not stopped yet.
    fn rest_of_ended(&mut self) -> io::Result<TracingEnd> {
        Ok(match ptrace::wait(Patience::None)? {
            Waited::Nobody => TracingEnd::AllEnded,
            Waited::Nothing => TracingEnd::Early,
            Waited::Thread(tid, status) => {
                let now = self.now();
                self.happened(tid, status, now);
                TracingEnd::Early
            }
        })
    }

    /// Returns the target of a call, while its thread is in it or has just left it.
    fn target(
        &mut self,
        thread: u32,
        process: u32,
        call: &EnteredCall,
        returned: Option<i64>,
    ) -> Option<TargetId> {
        let EnteredCall { number, arguments, .. } = *call;
        let made = SyscallContext { process, thread, number, arguments, returned };
        self.places.target(&made, &mut self.recorder)
    }

    /// Returns the threads that are traced.
    pub(super) fn tids(&self) -> Vec<u32> {
        self.threads.keys().copied().collect()
    }

    /// Handles one stop or end. Requests to a thread that was killed meanwhile fail; a later wait reports its end.
    fn happened(&mut self, tid: u32, status: TraceStop, now: u64) {
        let stopped_ns = self.threads.get_mut(&tid).and_then(|thread| thread.stopped_ns.take());
        if let Some(from_ns) = stopped_ns {
            self.recorder.stopped(tid, from_ns, now);
        }
        match status {
            TraceStop::Exited(code) => self.ended(tid, Exit::Code(code), now),
            TraceStop::Killed(signal) => self.ended(tid, Exit::Signal(signal), now),
            TraceStop::Seccomp | TraceStop::Call => self.at_call(tid, now),
            TraceStop::Group(_) => {
                self.know(tid, now).stopped_ns = Some(now);
                let _ = ptrace::listen(tid);
            }
            TraceStop::Signal(signal) => {
                self.know(tid, now);
                self.resume(tid, signal);
            }
            TraceStop::Exec => {
                self.runs_another(tid, now);
                self.resume(tid, 0);
            }
            TraceStop::Exiting => {
                self.exiting(tid, now);
                self.resume(tid, 0);
            }
            TraceStop::Stopped | TraceStop::Started | TraceStop::Other => {
                self.know(tid, now);
                self.end_adopted(tid, now);
                self.resume(tid, 0);
            }
        }
    }

    /// Resumes a thread until its next stop.
    fn resume(&self, tid: u32, signal: i32) {
        let in_call = self.threads.get(&tid).is_some_and(|thread| thread.call.is_some());
        let _ = if in_call || self.stops == StopMechanism::Every {
            ptrace::cont_to_call(tid, signal)
        } else {
            ptrace::cont(tid, signal)
        };
    }

    /// A thread stopped at the entry or the exit of a call.
    fn at_call(&mut self, tid: u32, now: u64) {
        let Ok(stop) = ptrace::call_stop(tid) else { return };
        self.know(tid, now);
        if stop.architecture != ARCHITECTURE {
            self.foreign_calls += u64::from(matches!(stop.at, At::Entry { .. }));
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.call = None;
            }
            self.resume(tid, 0);
            return;
        }
        match stop.at {
            At::Entry { number, arguments } => {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let call = EnteredCall {
                    number,
                    arguments,
                    ip: stop.ip,
                    sp: stop.sp,
                    start_ns: now,
                    used: None,
                    stack: None,
                };
                self.entered(tid, call, now);
                self.placement.stopped(tid, now);
            }
            At::Exit { value, failed } => {
                self.left(tid, value, failed, now);
                self.resume(tid, 0);
            }
            // The kernel does not say; it needs no answer but to go on.
            At::Elsewhere => self.resume(tid, 0),
        }
    }

    /// Handles the entry of a call: stores the time and resumes the thread until the end of this or another call.
    fn entered(&mut self, tid: u32, mut call: EnteredCall, now: u64) {
        let special = self.special;
        let number = Some(call.number);
        if number == special.ask_cpus {
            self.placement.asked(now);
        } else if number == special.set_cpus {
            self.placement.hands_off(now);
        }
        let is_of_program = !self.is_before_program || self.executes.contains(&number);
        let is_watched = is_of_program && self.options.calls.contains(call.number);
        let is_restart = number == special.restart || number == special.handled;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let is_told = is_watched || is_restart && thread.has_interrupted();
        if !is_told {
            self.resume(tid, 0);
            return;
        }
        if is_watched && self.is_split(call.number) {
            call.used = self.used(tid);
        }
        let wants_stack = self.options.stacks != Stacks::None && !self.is_before_program;
        if self.executes.contains(&number) && wants_stack {
            let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
            let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
            call.stack = caller::of_stopped(unwinder, recorder, process, tid);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if self.senders.contains(&number) {
            let process = thread.process;
            let (number, arguments) = (call.number, call.arguments);
            let made = SyscallContext { process, thread: tid, number, arguments, returned: None };
            self.places.sent(&made, now, &mut self.recorder);
        }
        if tid == thread.process && self.selects.contains(&number) {
            let (number, arguments) = (call.number, call.arguments);
            let made =
                SyscallContext { process: tid, thread: tid, number, arguments, returned: None };
            self.places.selects(&made);
        }
        call.start_ns = nanoseconds(self.clock.monotonic());
        thread.entered(call, &special);
        let _ = ptrace::cont_to_call(tid, 0);
    }

    /// Returns whether the counters should be read before this call.
    ///
    /// For frequent calls that are nearly always fast, only after one of them has been slow.
    fn is_split(&self, number: u32) -> bool {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        self.split.get(at).copied().unwrap_or(true)
    }

    /// Reads the counters of a thread.
    fn used(&mut self, tid: u32) -> Option<CpuUsage> {
        let thread = self.threads.get_mut(&tid)?;
        if thread.counters.is_none() {
            if self.counters_open >= COUNTERS {
                self.threads.values_mut().for_each(|thread| thread.counters = None);
                self.counters_open = 0;
            }
            let thread = self.threads.get_mut(&tid)?;
            thread.counters = SchedstatFile::open(thread.process, tid);
            self.counters_open += usize::from(thread.counters.is_some());
        }
        self.threads.get(&tid)?.counters.as_ref()?.read()
    }

    /// A call of a thread ended.
    fn left(&mut self, tid: u32, value: i64, failed: bool, now: u64) {
        let special = self.special;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let process = thread.process;
        for left in thread.left(value, failed, now, &special).into_iter().flatten() {
            self.keep(tid, process, left, now);
        }
    }

    /// Records a call that ended.
    fn keep(&mut self, tid: u32, process: u32, left: CompletedCall, now: u64) {
        let CompletedCall { call, outcome, end_ns } = left;
        // Our own child tries each place where the program could be.
        if self.is_before_program || !self.options.calls.contains(call.number) {
            return;
        }
        let OverheadEstimates { beside, free } = self.biases;
        let bias = if self.placement.is_beside(tid) { beside } else { free };
        let wall_ns = end_ns.saturating_sub(call.start_ns).saturating_sub(bias.subtracted_ns);
        let is_slow = self.recorder.is_kept(call.number, wall_ns);
        let is_look =
            self.event_waits.contains(&call.number) && !sleeps(call.number, &call.arguments);
        if !is_slow && tid == process && is_look {
            self.recorder.turned(tid, call.number, end_ns);
        }
        if is_slow
            && let Some(split) =
                usize::try_from(call.number).ok().and_then(|number| self.split.get_mut(number))
        {
            *split = true;
        }
        // The target of an interrupted call cannot be identified any more, because the thread is elsewhere.
        let is_here = end_ns == now;
        if outcome == CallEnd::Failed(NOT_FOUND) && is_here {
            self.mark(tid, process, &call, end_ns);
        }
        let used = if is_slow && is_here { self.used(tid).zip(call.used) } else { None };
        let wants_stack = match self.options.stacks {
            Stacks::All => true,
            Stacks::Slow => is_slow,
            Stacks::None => false,
        };
        let stack = if self.executes.contains(&Some(call.number)) {
            call.stack.filter(|_| wants_stack)
        } else if wants_stack && is_here {
            caller::of_stopped(&mut self.unwinder, &mut self.recorder, process, tid)
        } else {
            None
        };
        let returned = match outcome {
            CallEnd::Returned(value) => Some(value),
            _ => None,
        };
        let target = match outcome {
            // The memory that its path was in is gone; what runs now is what was asked for.
            CallEnd::Returned(_) if self.executes.contains(&Some(call.number)) => {
                let path = self.recorder.process(process).executable.clone();
                let target = Target::File { path, mount: None };
                is_slow.then(|| self.recorder.target(target)).flatten()
            }
            _ if is_slow && is_here => self.target(tid, process, &call, returned),
            _ => None,
        };
        self.recorder.call(TracedCall {
            process,
            thread: tid,
            number: call.number,
            arguments: call.arguments,
            outcome,
            start_ns: call.start_ns,
            wall_ns,
            cpu_ns: used.map(|(now, before)| now.cpu_ns.saturating_sub(before.cpu_ns).min(wall_ns)),
            queued_ns: used.map(|(now, before)| {
                let cpu = now.cpu_ns.saturating_sub(before.cpu_ns).min(wall_ns);
                now.queued_ns.saturating_sub(before.queued_ns).min(wall_ns - cpu)
            }),
            stack,
            target,
        });
    }

    /// Records the mark that a call set, if its path is that of one.
    fn mark(&mut self, thread: u32, process: u32, call: &EnteredCall, at_ns: u64) {
        let EnteredCall { number, arguments, .. } = *call;
        let made = SyscallContext { process, thread, number, arguments, returned: None };
        if let Some(name) = place::mark(&made) {
            self.recorder.mark(&name, process, at_ns);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
