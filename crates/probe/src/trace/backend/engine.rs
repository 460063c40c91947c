//! The tracer's loop: one thread that waits for stops, stamps calls, and lets everything go on.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use session::clock::{Clock, SystemClock};
use sys::ptrace::{self, At, Patience, Status, Waited};
use sys::tick::Ticker;

use super::calibrate::{self, Place};
use super::placement::Placement;
use super::procfs::{self, Counters, Used};
use super::sampled::Sampled;
use super::thread::{Entered, Left, Special, Traced};
use super::{Exits, Options, Stacks, Subject, Until, caller};
use crate::trace::call::{Call, Outcome, TargetId};
use crate::trace::calls;
use crate::trace::kernel::call_number;
use crate::trace::place::{Made, Places};
use crate::trace::recorder::Recorder;
use crate::trace::recording::{Bias, Exit, Recording};
use crate::trace::stack::Unwinder;

/// How often the loop looks whether it is to stop, and whether the placement is still right.
const TICK: Duration = Duration::from_millis(50);

/// The most threads whose counters are kept open.
const COUNTERS: usize = 200;

/// Calls that are measured for the bias beside the tracer, and elsewhere, where each takes longer.
const CALIBRATION: (u32, u32) = (200, 32);

/// The architecture of our own calls, as a stop says it.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };

/// What stops threads at calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stops {
    /// A filter, at the entry of what it chose.
    Filter,
    /// The kernel, at each entry and exit.
    Every,
}

/// What is subtracted from calls, by where the thread runs.
#[derive(Clone, Copy, Debug)]
struct Biases {
    beside: Bias,
    free: Bias,
}

/// Traces the calling thread's tracees.
#[derive(Debug)]
pub(super) struct Engine<'a> {
    options: &'a Options,
    stops: Stops,
    root: u32,
    clock: SystemClock,
    recorder: Recorder,
    unwinder: Unwinder,
    places: Places,
    special: Special,
    senders: [Option<u32>; 2],
    executes: [Option<u32>; 2],
    /// Set until a started program's `execve` where a filter does not begin with it: before that it is our own child.
    is_before_program: bool,
    threads: HashMap<u32, Traced>,
    counters_open: usize,
    /// By number: whether the counters are read before each call.
    split: Vec<bool>,
    sampled: Sampled,
    placement: Placement,
    biases: Biases,
    foreign_calls: u64,
    foreign_programs: u64,
}

/// Why the recording ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// Nothing is traced any more.
    AllEnded,
    /// What was asked for is there, or `stop` was set; threads are still traced.
    Early,
}

impl<'a> Engine<'a> {
    /// Prepares to trace `root` and measures our own share; for the thread that will trace.
    ///
    /// # Errors
    ///
    /// Those of [`calibrate::measure`].
    pub(super) fn new(
        options: &'a Options,
        stops: Stops,
        mut recorder: Recorder,
    ) -> io::Result<Engine<'a>> {
        let clock = SystemClock::start();
        let (beside, free) = CALIBRATION;
        let biases = Biases {
            beside: calibrate::measure(beside, Place::Beside, &clock)?,
            free: calibrate::measure(free, Place::Free, &clock)?,
        };
        let recording = recorder.recording();
        recording.bias = biases.beside;
        recording.watched = options.calls.to_string();
        recording.threshold_ns = nanoseconds(options.threshold);
        Ok(Engine {
            options,
            stops,
            root: 0,
            clock: SystemClock::start(),
            recorder,
            unwinder: Unwinder::new(),
            places: Places::new(),
            senders: [call_number("sendmsg"), call_number("sendto")],
            executes: [call_number("execve"), call_number("execveat")],
            is_before_program: stops == Stops::Every && matches!(options.subject, Subject::Run(_)),
            special: Special::of_this_kernel(),
            threads: HashMap::new(),
            counters_open: 0,
            split: (0..calls::NUMBERS).map(|number| !calls::is_mostly_fast(number)).collect(),
            sampled: Sampled::default(),
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
            self.threads.insert(*tid, Traced::new(root));
            self.recorder.thread(*tid, root, now);
        }
        let process = self.recorder.process(root);
        process.start_ns = now;
        process.executable = procfs::executable(root);
        process.command = procfs::command_line(root);
        if let ([only], Subject::Run(_)) = (threads, &self.options.subject) {
            // A program that starts makes many calls, and from one thread.
            self.placement.bind(*only, now);
        }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.clock.monotonic())
    }

    /// Traces until nothing is left, `stop` is set, or what was asked for is there.
    ///
    /// # Errors
    ///
    /// As `wait4(2)`.
    pub(super) fn record(&mut self, stop: &AtomicBool) -> io::Result<End> {
        let _ticker = Ticker::start(TICK)?;
        loop {
            match ptrace::wait(Patience::Blocks)? {
                Waited::Nobody => return Ok(End::AllEnded),
                Waited::Nothing => {
                    let now = self.now();
                    self.placement.tick(now);
                }
                Waited::Thread(tid, status) => {
                    let now = self.now();
                    self.happened(tid, status, now);
                    let has_ended = matches!(status, Status::Exited(_) | Status::Killed(_));
                    if has_ended && tid == self.root && self.options.until == Until::ProgramEnded {
                        return self.rest_of_ended();
                    }
                }
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(End::Early);
            }
        }
    }

    /// Says whether anything is left when the program has ended: a child may be that has not been heard of yet.
    fn rest_of_ended(&mut self) -> io::Result<End> {
        Ok(match ptrace::wait(Patience::None)? {
            Waited::Nobody => End::AllEnded,
            Waited::Nothing => End::Early,
            Waited::Thread(tid, status) => {
                let now = self.now();
                self.happened(tid, status, now);
                End::Early
            }
        })
    }

    /// Makes the recording of what was seen; the placement knows which CPUs are to be put back in what is still traced.
    pub(super) fn finish(mut self) -> (Recording, Placement) {
        let now = self.now();
        self.placement.unbind(now);
        self.keep_running_calls(now);
        for (tid, thread) in &self.threads {
            let name = procfs::thread_name(thread.process, *tid);
            self.recorder.thread(*tid, thread.process, now).name = name;
        }
        self.note(now);
        (self.recorder.finish(now), self.placement)
    }

    fn note(&mut self, now: u64) {
        let Biases { beside, free } = self.biases;
        let bound = self.placement.bound_ns();
        let mut notes = Vec::new();
        if bound > 0 {
            let share = bound.saturating_mul(100) / now.max(1);
            notes.push(format!(
                "For {share} % of the time the tracer and the busiest thread were bound to one CPU, where a stop costs least; the program's own CPUs were put back whenever it asked for them."
            ));
        }
        notes.push(format!(
            "Subtracted from each call: {} ns where tracer and thread shared a CPU, else {} ns (quartiles {} ns apart).",
            beside.subtracted_ns, free.subtracted_ns, free.spread_ns
        ));
        notes.push(
            "Not seen: calls answered without the kernel (vDSO), io_uring operations, page faults."
                .to_owned(),
        );
        if self.foreign_programs > 0 {
            notes.push(format!(
                "{} programs made 32-bit calls, which are not watched.",
                self.foreign_programs
            ));
        }
        if self.foreign_calls > 0 {
            notes.push(format!("{} 32-bit calls were not recorded.", self.foreign_calls));
        }
        notes.extend(self.sampled.add_to(&mut self.recorder));
        self.recorder.recording().notes.append(&mut notes);
    }

    /// Keeps the calls that have not ended, with their stacks, as far as they are slow already.
    fn keep_running_calls(&mut self, now: u64) {
        let mut running: Vec<(u32, u32, Entered)> = self
            .threads
            .iter()
            .filter_map(|(tid, thread)| Some((*tid, thread.process, thread.call?)))
            .filter(|(.., call)| self.options.calls.contains(call.number))
            .collect();
        running.sort_unstable_by_key(|(tid, ..)| *tid);
        for (tid, process, entered) in running {
            let wall_ns = now.saturating_sub(entered.start_ns);
            let wants = self.options.stacks != Stacks::None && self.recorder.is_slow(wall_ns);
            let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
            let stack = if self.executes.contains(&Some(entered.number)) {
                // The new program may be there already.
                entered.stack.filter(|_| wants)
            } else {
                wants.then(|| {
                    caller::of_blocked(unwinder, recorder, process, entered.ip, entered.sp)
                })
            };
            let target = self.target(tid, process, &entered, None);
            self.recorder.call(Call {
                process,
                thread: tid,
                number: entered.number,
                arguments: entered.arguments,
                outcome: Outcome::Running,
                start_ns: entered.start_ns,
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack,
                target,
            });
        }
    }

    /// Returns what a call works on, while its thread is in it or has just left it.
    fn target(
        &mut self,
        thread: u32,
        process: u32,
        call: &Entered,
        returned: Option<i64>,
    ) -> Option<TargetId> {
        let Entered { number, arguments, .. } = *call;
        let made = Made { process, thread, number, arguments, returned };
        self.places.target(&made, &mut self.recorder)
    }

    /// Returns the threads that are traced.
    pub(super) fn tids(&self) -> Vec<u32> {
        self.threads.keys().copied().collect()
    }

    /// Answers one stop or end. A thread that was killed meanwhile answers no request; its end is told by a later wait.
    fn happened(&mut self, tid: u32, status: Status, now: u64) {
        match status {
            Status::Exited(code) => self.ended(tid, Exit::Code(code), now),
            Status::Killed(signal) => self.ended(tid, Exit::Signal(signal), now),
            Status::Seccomp | Status::Call => self.at_call(tid, now),
            Status::Group(_) => {
                self.know(tid, now);
                let _ = ptrace::listen(tid);
            }
            Status::Signal(signal) => {
                self.know(tid, now);
                self.resume(tid, signal);
            }
            Status::Exec => {
                self.runs_another(tid, now);
                self.resume(tid, 0);
            }
            Status::Exiting => {
                self.exiting(tid, now);
                self.resume(tid, 0);
            }
            Status::Stopped | Status::Started | Status::Other => {
                self.know(tid, now);
                self.resume(tid, 0);
            }
        }
    }

    /// Lets a thread go on to where it is to stop next.
    fn resume(&self, tid: u32, signal: i32) {
        let in_call = self.threads.get(&tid).is_some_and(|thread| thread.call.is_some());
        let _ = if in_call || self.stops == Stops::Every {
            ptrace::cont_to_call(tid, signal)
        } else {
            ptrace::cont(tid, signal)
        };
    }

    /// Begins to know a thread at its first stop, which may come before its maker's.
    fn know(&mut self, tid: u32, now: u64) -> &mut Traced {
        if !self.threads.contains_key(&tid) {
            let kin = procfs::kin(tid);
            let process = kin.map_or(tid, |kin| kin.process);
            let parent = kin.map(|kin| kin.parent).filter(|_| process != self.root);
            let is_new = !self.recorder.recording().processes.contains_key(&process);
            if is_new {
                let made = self.recorder.process(process);
                made.parent = parent;
                made.start_ns = now;
                made.executable = procfs::executable(process);
                made.command = procfs::command_line(process);
            }
            self.recorder.thread(tid, process, now);
            self.threads.insert(tid, Traced::new(process));
            self.placement.born(tid);
        }
        self.threads.entry(tid).or_insert_with(|| Traced::new(tid))
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
                let call = Entered {
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

    /// A thread is about to make a call: stamps it and lets it go on to the end of the call, or of another one.
    fn entered(&mut self, tid: u32, mut call: Entered, now: u64) {
        let special = self.special;
        let number = Some(call.number);
        if number == special.ask_cpus {
            self.placement.asked(now);
        } else if number == special.set_cpus {
            self.placement.hands_off(now);
        }
        if self.is_before_program {
            self.is_before_program = !self.executes.contains(&number);
        }
        let is_watched = !self.is_before_program && self.options.calls.contains(call.number);
        let is_restart = number == special.restart || number == special.handled;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let may_pass = self.options.exits == Exits::Sampled && self.stops == Stops::Filter;
        if may_pass
            && is_watched
            && !thread.has_interrupted()
            && self.sampled.passes(tid, call.number)
        {
            self.resume(tid, 0);
            return;
        }
        let is_told = is_watched || is_restart && thread.has_interrupted();
        if !is_told {
            self.resume(tid, 0);
            return;
        }
        if is_watched && self.is_split(call.number) {
            call.used = self.used(tid);
        }
        if self.executes.contains(&number) && self.options.stacks != Stacks::None {
            let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
            let (unwinder, recorder) = (&mut self.unwinder, &mut self.recorder);
            call.stack = caller::of_stopped(unwinder, recorder, process, tid);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if self.senders.contains(&number) {
            let process = thread.process;
            let (number, arguments) = (call.number, call.arguments);
            self.places.sent(&Made { process, thread: tid, number, arguments, returned: None });
        }
        call.start_ns = nanoseconds(self.clock.monotonic());
        thread.entered(call, &special);
        let _ = ptrace::cont_to_call(tid, 0);
    }

    /// Says whether it is worth its time to ask what the thread has used before this call.
    ///
    /// Of the calls that programs make in storms and that are fast nearly always, only once one of them was slow.
    fn is_split(&self, number: u32) -> bool {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        self.split.get(at).copied().unwrap_or(true)
    }

    /// Returns what a thread has used so far.
    fn used(&mut self, tid: u32) -> Option<Used> {
        let thread = self.threads.get_mut(&tid)?;
        if thread.counters.is_none() {
            if self.counters_open >= COUNTERS {
                self.threads.values_mut().for_each(|thread| thread.counters = None);
                self.counters_open = 0;
            }
            let thread = self.threads.get_mut(&tid)?;
            thread.counters = Counters::open(thread.process, tid);
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
    fn keep(&mut self, tid: u32, process: u32, left: Left, now: u64) {
        let Left { call, outcome, end_ns } = left;
        if !self.options.calls.contains(call.number) {
            return;
        }
        let Biases { beside, free } = self.biases;
        let bias = if self.placement.is_beside(tid) { beside } else { free };
        let wall_ns = end_ns.saturating_sub(call.start_ns).saturating_sub(bias.subtracted_ns);
        if self.options.exits == Exits::Sampled {
            self.sampled.seen(call.number, wall_ns);
        }
        let is_slow = self.recorder.is_slow(wall_ns);
        if is_slow
            && let Some(split) =
                usize::try_from(call.number).ok().and_then(|number| self.split.get_mut(number))
        {
            *split = true;
        }
        // Of a call that a signal broke off nothing can be asked any more: the thread is elsewhere.
        let is_here = end_ns == now;
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
            Outcome::Returned(value) => Some(value),
            _ => None,
        };
        let target =
            if is_slow && is_here { self.target(tid, process, &call, returned) } else { None };
        self.recorder.call(Call {
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

    /// A process runs another program, by the thread `tid`, which may have had another number.
    fn runs_another(&mut self, tid: u32, now: u64) {
        self.know(tid, now);
        let former = ptrace::event_message(tid).ok().and_then(|f| u32::try_from(f).ok());
        if let Some(former) = former.filter(|former| *former != tid)
            && let Some(mut caller) = self.threads.remove(&former)
        {
            // The process's first thread ended without a word; the caller goes on under its number.
            caller.counters = None;
            if let Some(mut leader) = self.threads.insert(tid, caller) {
                self.broken_off(tid, &mut leader, now);
            }
            self.recorder.thread_ended(former, now);
            self.placement.renumbered(former, tid);
        }
        let Some(thread) = self.threads.get(&tid) else { return };
        let process = thread.process;
        self.unwinder.forget(process);
        self.places.forget(process);
        let runs = self.recorder.process(process);
        runs.executable = procfs::executable(process);
        runs.command = procfs::command_line(process);
        self.foreign_programs += u64::from(procfs::is_foreign(process));
    }

    /// Records what a thread had begun and will not end.
    fn broken_off(&mut self, tid: u32, thread: &mut Traced, now: u64) {
        for left in thread.ended() {
            self.keep(tid, thread.process, left, now);
        }
        let Some(call) = thread.call.take() else { return };
        let wall_ns = now.saturating_sub(call.start_ns);
        // Not in the totals, which are of calls that ended; as strace counts.
        if self.options.calls.contains(call.number) && self.recorder.is_slow(wall_ns) {
            self.recorder.keep(Call {
                process: thread.process,
                thread: tid,
                number: call.number,
                arguments: call.arguments,
                outcome: Outcome::Unknown,
                start_ns: call.start_ns,
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack: None,
                target: None,
            });
        }
    }

    /// A thread is about to end.
    fn exiting(&mut self, tid: u32, now: u64) {
        let process = self.know(tid, now).process;
        let name = procfs::thread_name(process, tid);
        self.recorder.thread(tid, process, now).name = name;
        if let Some(mut thread) = self.threads.remove(&tid) {
            self.broken_off(tid, &mut thread, now);
            self.counters_open =
                self.counters_open.saturating_sub(usize::from(thread.counters.is_some()));
            thread.counters = None;
            self.threads.insert(tid, thread);
        }
        self.placement.ended(tid, now);
    }

    /// A thread has ended, and its process with it if it is the first one.
    fn ended(&mut self, tid: u32, exit: Exit, now: u64) {
        if let Some(mut thread) = self.threads.remove(&tid) {
            self.broken_off(tid, &mut thread, now);
        }
        self.placement.ended(tid, now);
        self.recorder.thread_ended(tid, now);
        if self.recorder.recording().processes.contains_key(&tid) {
            self.recorder.process_ended(tid, Some(exit), now);
            self.unwinder.forget(tid);
            self.places.forget(tid);
        }
    }
}

/// Answers every stop with going on, until nothing is traced any more; returns how `root` ended.
pub(super) fn pass_through(root: u32, placement: &Placement) -> Option<Exit> {
    let mut exit = None;
    loop {
        let (tid, status) = match ptrace::wait(Patience::Blocks) {
            Ok(Waited::Thread(tid, status)) => (tid, status),
            Ok(Waited::Nothing) => continue,
            Ok(Waited::Nobody) | Err(_) => return exit,
        };
        // As in the loop above, a thread that was killed answers nothing.
        let _ = match status {
            Status::Exited(code) if tid == root => {
                exit = Some(Exit::Code(code));
                continue;
            }
            Status::Killed(signal) if tid == root => {
                exit = Some(Exit::Signal(signal));
                continue;
            }
            Status::Exited(_) | Status::Killed(_) => continue,
            Status::Group(_) => ptrace::listen(tid),
            Status::Signal(signal) => ptrace::cont(tid, signal),
            Status::Stopped => {
                placement.born(tid);
                ptrace::cont(tid, 0)
            }
            _ => ptrace::cont(tid, 0),
        };
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
