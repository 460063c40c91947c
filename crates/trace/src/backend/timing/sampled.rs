//! One main thread: its counters, what it is blocked in, and the samples of it while it runs.

use std::collections::BTreeSet;
use std::time::Duration;

use sys::perf::{ThreadSample, ThreadSampler};

use crate::backend::blocked::{
    BlockedSyscall, FileRetention, ForeignPrograms, RestartedSyscall, SchedulerCounters,
    ThreadActivity, ThreadFiles,
};
use crate::backend::procfs::{self, StoppedBy};
use crate::backend::{Stacks, TraceOptions, TraceTarget};
use crate::call::{CallEnd, StackId, TargetId, TracedCall};
use crate::place::{ContextLookup, SyscallContext, has_display};
use crate::recorder::TraceRecorder;
use crate::recording::{Backend, Recording};
use crate::stack::{KnownRegisters, Unwinder};
use crate::syscall::runs_program;
use crate::syscall_set::Set;
use crate::timeline::{MajorFault, TICK_NS, ThreadCounters, ThreadTimeline, TimeSlice};

/// A running thread is sampled each time that it has run so long.
const SAMPLE: Duration = Duration::from_millis(4);
/// The most threads whose running is sampled at a time: each takes some 260 KiB of locked memory.
const RUNNING: usize = 16;
/// A thread has run so long before its running is sampled, in nanoseconds.
const BUSY_NS: u64 = 1_000_000;
/// A slice of a thread that runs is closed after so long, when the kernel has brought its counters up to date.
const OPEN_NS: u64 = 16_000_000;
/// A slice is closed after so long, even if the counters do not explain it.
const BEHIND_NS: u64 = 1_000_000_000;
/// A wait in a call that the backend does not record is recorded from here on.
const WAIT_NS: u64 = 4_000_000;
/// How long a process has run before it is looked at for a window, in nanoseconds.
const WINDOW_NS: u64 = 250_000_000;
/// Whether a blocked thread is stopped is looked at once in so many samples.
const STOPPED_EVERY: u32 = 16;

/// What all sampled threads share.
#[derive(Debug)]
pub(super) struct SamplingTools {
    recorder: TraceRecorder,
    unwinder: Unwinder,
    places: ContextLookup,
    foreign: ForeignPrograms,
    /// The calls that the backend records.
    recorded: Set,
    /// Whether waits in other calls are recorded, too: not if the user chose a few calls.
    wants_waits: bool,
    stacks: Stacks,
    /// What records the calls meanwhile.
    backend: Backend,
    /// The monotonic clock when the recording began.
    began_ns: u64,
    /// The process that ran before the recording began.
    attached: Option<u32>,
    /// How many threads have a sampler of the processor.
    running: usize,
    unseen: BTreeSet<String>,
    /// What the host of a virtual machine had kept for itself at the beginning.
    stolen_ns: u64,
}

impl SamplingTools {
    pub(super) fn new(
        recorder: TraceRecorder,
        options: &TraceOptions,
        backend: Backend,
        began_ns: u64,
    ) -> SamplingTools {
        let wants_waits = options.calls.has_waits();
        let few = "waits in calls that --calls leaves out".to_owned();
        SamplingTools {
            recorder,
            unwinder: Unwinder::new(),
            places: ContextLookup::new(),
            foreign: ForeignPrograms::default(),
            recorded: options.calls.clone(),
            wants_waits,
            stacks: options.stacks,
            backend,
            began_ns,
            attached: match options.subject {
                TraceTarget::Attach(process) => Some(process),
                TraceTarget::Run(_) => None,
            },
            running: 0,
            unseen: Some(few).filter(|_| !wants_waits).into_iter().collect(),
            stolen_ns: procfs::stolen_ns(),
        }
    }

    /// Returns the time since the recording began.
    fn now(&self) -> u64 {
        sys::bpf::clock_ns().saturating_sub(self.began_ns)
    }

    /// Forgets what is known of a process that runs another program than `program` now.
    fn know_program(&mut self, process: u32, program: &mut Vec<u8>) {
        let runs = procfs::executable(process);
        if runs != *program && !runs.is_empty() {
            self.unwinder.forget(process);
            self.places.forget(process);
            *program = runs;
        }
    }

    /// Returns whether a call of `process` is one of 32-bit code: which it is, is not known.
    fn is_foreign(&mut self, process: u32, call: &BlockedSyscall) -> bool {
        let is_foreign = self.foreign.makes(process, call);
        if is_foreign {
            self.unseen.insert("what programs of 32 bits wait for".to_owned());
        }
        is_foreign
    }

    /// Returns what was recorded; `left_out` processes were not sampled.
    pub(super) fn finish(mut self, left_out: u64) -> Recording {
        if left_out > 0 {
            self.unseen
                .insert(format!("the time of {left_out} processes, which ran beside many others"));
        }
        self.recorder.recording().stolen_ns = procfs::stolen_ns().saturating_sub(self.stolen_ns);
        self.recorder.recording().unseen = self.unseen.into_iter().collect();
        self.recorder.finish(0)
    }
}

/// A wait outside of the recorded calls.
#[derive(Clone, Copy, Debug)]
struct OpenWait {
    syscall: BlockedSyscall,
    start_ns: u64,
    turns: u64,
    /// The callers and the object, once the wait is long enough.
    details: Option<(Option<StackId>, Option<TargetId>)>,
}

/// A main thread that is sampled.
#[derive(Debug)]
pub(super) struct SampledThread {
    process: u32,
    /// The program that it ran when its stack was last looked at.
    program: Vec<u8>,
    files: ThreadFiles,
    timeline: ThreadTimeline,
    sampler: Option<ThreadSampler>,
    may_sample: bool,
    /// When the open slice began, with the counters and what the thread did then.
    at_ns: u64,
    counters: SchedulerCounters,
    activity: ThreadActivity,
    stopped: Option<StoppedBy>,
    /// Time on a processor that was counted before the kernel's counters had it.
    ahead_ns: u64,
    /// Samples in which the thread was blocked at one place.
    blocked: u32,
    faults: u64,
    wait: Option<OpenWait>,
    restarted: RestartedSyscall,
    /// When to look next whether the process has a window; never again once it has.
    look_ns: u64,
}

impl SampledThread {
    /// Begins to sample the main thread of `process`; `None` if it has ended or may not be looked at.
    pub(super) fn new(
        process: u32,
        found_ns: u64,
        tools: &mut SamplingTools,
    ) -> Option<SampledThread> {
        let files = ThreadFiles::new(process, process, FileRetention::Open);
        let Some(counters) = files.counters() else {
            if std::fs::exists(format!("/proc/{process}")).unwrap_or(false) {
                tools.unseen.insert(format!(
                    "the time of process {process}, whose scheduler counters cannot be read"
                ));
            }
            return None;
        };
        let activity = files.activity().ok().flatten().unwrap_or(ThreadActivity::Running);
        let mut faults = procfs::fault_count(process).unwrap_or(0);
        let (mut counters, mut activity, mut at_ns) = (counters, activity, tools.now());
        if tools.attached != Some(process) {
            // All that a new process has done since it was found is of this recording.
            (counters, activity) = (SchedulerCounters::default(), ThreadActivity::Running);
            (faults, at_ns) = (0, found_ns.saturating_sub(tools.began_ns).min(at_ns));
        }
        let last = ThreadCounters {
            at_ns,
            processor_ns: counters.cpu_ns,
            ready_ns: counters.queued_ns,
            faults,
        };
        Some(SampledThread {
            process,
            program: Vec::new(),
            files,
            timeline: ThreadTimeline { last, ..ThreadTimeline::default() },
            sampler: None,
            may_sample: tools.stacks != Stacks::None,
            at_ns,
            counters,
            activity,
            stopped: None,
            ahead_ns: 0,
            blocked: 0,
            faults,
            wait: None,
            restarted: RestartedSyscall::default(),
            look_ns: at_ns + WINDOW_NS,
        })
    }

    /// Samples the thread; returns whether it goes on.
    pub(super) fn sample(&mut self, tools: &mut SamplingTools) -> bool {
        let activity = match self.files.activity() {
            Ok(Some(ThreadActivity::InCall(call))) => {
                ThreadActivity::InCall(self.restarted.named(call))
            }
            Ok(Some(activity)) => activity,
            Ok(None) => self.activity,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                if procfs::is_exiting(self.process, self.process) {
                    return false;
                }
                tools.unseen.insert(
                    "what a thread that runs as another user or with more rights waits for: `sudo unjank trace …` shows it"
                        .to_owned(),
                );
                self.activity
            }
            Err(_) => return false,
        };
        // Afterwards: of a thread that is blocked they are exact then.
        let Some(counters) = self.files.counters() else { return false };
        let now = tools.now();
        if now >= self.look_ns {
            let has_window = has_display(self.process);
            // Less and less often: a program that has none after a while is a service.
            self.look_ns = if has_window { u64::MAX } else { 2 * now };
            if has_window {
                tools.recorder.process(self.process).has_window = true;
            }
        }
        self.sample_running(&counters, tools);
        self.close_slice(now, counters, activity);
        self.follow_wait(now, &counters, activity, tools);
        true
    }

    /// Closes the open slice, unless the thread runs and its counters may be behind.
    fn close_slice(&mut self, now: u64, counters: SchedulerCounters, activity: ThreadActivity) {
        let length = now.saturating_sub(self.at_ns);
        let runs = activity == ThreadActivity::Running;
        if length == 0 || runs && self.activity == activity && length < OPEN_NS {
            return;
        }
        let ran = counters.cpu_ns.saturating_sub(self.counters.cpu_ns);
        let queued = counters.queued_ns.saturating_sub(self.counters.queued_ns);
        let paid = self.ahead_ns.min(ran);
        let mut owed = self.ahead_ns - paid;
        // The kernel says of a thread that waits for a processor that it runs, and how long it waited when it has got one.
        let misjudged = owed.min(queued);
        owed -= misjudged;
        let used = (ran - paid).min(length);
        let ready = (queued - misjudged).min(length - used);
        let mut processor = used;
        let mut rest = length - used - ready;
        if runs && rest > TICK_NS && length < BEHIND_NS {
            // A thread that has no processor is told how long it waited when it gets one.
            return;
        }
        self.timeline.turn_into_ready(misjudged);
        if runs {
            // The counters of a running thread are as old as the last tick.
            let borrowed = rest.min(TICK_NS);
            processor += borrowed;
            rest -= borrowed;
            owed += borrowed;
        } else {
            // Those of a blocked thread are exact: who ran and waited by turns had not run as long as was borrowed for it.
            self.timeline.take_back(owed);
            owed = 0;
        }
        self.ahead_ns = owed;
        let was_blocked = self.activity != ThreadActivity::Running;
        let same =
            was_blocked && self.activity == activity && counters.turns == self.counters.turns;
        self.blocked = if same { self.blocked + 1 } else { 0 };
        // Whoever is blocked outside of a call waits for a page, or is stopped; on a busy machine one look stands for long.
        let outside = |activity| matches!(activity, ThreadActivity::OutsideOfCall(..));
        let is_outside = outside(activity) && rest > BUSY_NS / 2;
        if !same || is_outside || self.blocked % STOPPED_EVERY == 2 {
            let may_be = is_outside || !runs && same;
            self.stopped = may_be.then(|| procfs::stopped_by(self.process)).flatten();
        }
        // What the thread waited for when it was seen to wait, at the end or at the beginning.
        let faults = if rest > BUSY_NS / 2 {
            procfs::fault_count(self.process).unwrap_or(self.faults)
        } else {
            self.faults
        };
        let in_call = matches!(activity, ThreadActivity::InCall(_));
        let is_fault = self.stopped.is_none()
            && (outside(activity)
                || outside(self.activity) && !in_call
                // A thread that ran and is in a call now took its faults before; what the call waits is the call's (`report::timing`).
                || faults > self.faults && (!in_call || !was_blocked));
        self.timeline.fault_count += faults.saturating_sub(self.faults);
        self.faults = faults;
        let waited = |start_ns: u64, length_ns: u64| TimeSlice {
            start_ns,
            length_ns,
            fault_ns: if is_fault { length_ns } else { 0 },
            stopped_ns: if self.stopped == Some(StoppedBy::Signal) { length_ns } else { 0 },
            tracer_ns: if self.stopped == Some(StoppedBy::Tracer) { length_ns } else { 0 },
            ..TimeSlice::default()
        };
        // A thread that was blocked at the beginning of the slice ran afterwards.
        let before = if was_blocked { if runs { rest } else { rest / 2 } } else { 0 };
        let ran = TimeSlice {
            start_ns: self.at_ns + before,
            length_ns: processor + ready,
            processor_ns: processor,
            ready_ns: ready,
            ..TimeSlice::default()
        };
        let first = waited(self.at_ns, before);
        let last = waited(ran.end_ns(), rest - before);
        for slice in [first, ran, last] {
            self.timeline.push(slice);
        }
        (self.at_ns, self.counters, self.activity) = (now, counters, activity);
        self.timeline.last = ThreadCounters {
            at_ns: now,
            processor_ns: counters.cpu_ns + self.ahead_ns,
            ready_ns: counters.queued_ns,
            faults: self.faults,
        };
    }

    /// Reads the samples of the processor and of page faults.
    fn sample_running(&mut self, counters: &SchedulerCounters, tools: &mut SamplingTools) {
        // A program that waits for pages hardly runs meanwhile: of the one that is recorded, and of one that has begun to, each
        // wait is told.
        let is_wanted = counters.cpu_ns.saturating_sub(self.counters.cpu_ns) >= BUSY_NS
            || tools.attached == Some(self.process)
            || self.timeline.fault_count > 0;
        if self.sampler.is_none() && self.may_sample && is_wanted && tools.running < RUNNING {
            // Where it is allowed, what called the kernel is sampled while that works, too; but not while it works for a tracer.
            let whole = match tools.backend {
                Backend::Bpf | Backend::Peek => {
                    ThreadSampler::with_kernel(self.process, SAMPLE).ok()
                }
                _ => None,
            };
            match whole.map_or_else(|| ThreadSampler::open(self.process, SAMPLE), Ok) {
                Ok(sampler) => {
                    self.sampler = Some(sampler);
                    self.timeline.sample_ns = u64::try_from(SAMPLE.as_nanos()).unwrap_or(0);
                    tools.running += 1;
                }
                Err(error) => {
                    self.may_sample = false;
                    if !procfs::is_exiting(self.process, self.process) {
                        tools.unseen.insert(refusal(&error));
                    }
                }
            }
        }
        let (process, timeline) = (self.process, &mut self.timeline);
        if let Some(sampler) = &mut self.sampler
            && !sampler.is_empty()
        {
            tools.know_program(process, &mut self.program);
            sampler.take(|sample| keep_sample(process, sample, timeline, tools));
        }
    }

    /// Records a wait in a call that the backend does not record. What the thread does now counts, not what it did at the beginning of
    /// a slice that is still open: whoever has waited and runs would be in the call until the slice is closed.
    fn follow_wait(
        &mut self,
        now: u64,
        counters: &SchedulerCounters,
        activity: ThreadActivity,
        tools: &mut SamplingTools,
    ) {
        let syscall = match activity {
            ThreadActivity::InCall(syscall)
                if tools.wants_waits && !tools.recorded.contains(syscall.number) =>
            {
                Some(syscall)
            }
            _ => None,
        };
        let syscall = syscall.filter(|syscall| !tools.is_foreign(self.process, syscall));
        let goes_on = self
            .wait
            .is_some_and(|wait| syscall == Some(wait.syscall) && wait.turns == counters.turns);
        if !goes_on {
            // What it has run since is in no slice yet if that one is open.
            let ran_ns = counters.cpu_ns.saturating_sub(self.counters.cpu_ns);
            let queued_ns = counters.queued_ns.saturating_sub(self.counters.queued_ns);
            let until = now.saturating_sub(ran_ns.saturating_add(queued_ns)).max(self.at_ns);
            let ended_ns = self.end_wait(until, CallEnd::Unknown, tools);
            let start_ns = self.timeline.slices.last().map_or(now, |last| {
                let pure = last.processor_ns + last.ready_ns + last.fault_ns == 0;
                if pure { last.start_ns.max(now.saturating_sub(WAIT_NS)) } else { now }
            });
            self.wait = syscall.map(|syscall| OpenWait {
                syscall,
                // A thread is in one call at a time.
                start_ns: start_ns.max(ended_ns),
                turns: counters.turns,
                details: None,
            });
            return;
        }
        let Some(wait) = &mut self.wait else { return };
        if wait.details.is_some() || now.saturating_sub(wait.start_ns) < WAIT_NS {
            return;
        }
        if procfs::hangs(self.process) {
            wait.details = Some((None, None));
            return;
        }
        let BlockedSyscall { number, arguments, sp, ip } = wait.syscall;
        let wants = tools.stacks != Stacks::None && !runs_program(number);
        tools.know_program(self.process, &mut self.program);
        let stack = wants.then(|| {
            let registers = KnownRegisters::new(ip, sp);
            tools.unwinder.capture(self.process, &registers, &mut tools.recorder)
        });
        let context = SyscallContext {
            process: self.process,
            thread: self.process,
            number,
            arguments,
            returned: None,
        };
        let target = tools.places.target(&context, &mut tools.recorder);
        // The stack did not move if the thread was not put on a processor meanwhile.
        let is_still = self.files.counters().is_none_or(|again| again.turns == wait.turns);
        wait.details = Some(if is_still { (stack, target) } else { (None, None) });
    }

    /// Records the open wait, if it was long enough. Returns when it ended, or 0 if there is none.
    fn end_wait(&mut self, now: u64, outcome: CallEnd, tools: &mut SamplingTools) -> u64 {
        let Some(wait) = self.wait.take() else { return 0 };
        // The first time on a processor behind the wait says when it ended, to what the counters know: behind it the thread
        // may have waited in another call already.
        let slices = self.timeline.slices.iter().rev();
        let since = slices.take_while(|slice| slice.start_ns >= wait.start_ns);
        let is_running = |slice: &&TimeSlice| {
            slice.processor_ns > 0 && slice.processor_ns + slice.ready_ns == slice.length_ns
        };
        let ran_since = since.filter(is_running).last();
        let end_ns = ran_since.map_or(now, |ran| ran.start_ns.min(now));
        let wall_ns = end_ns.saturating_sub(wait.start_ns);
        if wall_ns < WAIT_NS {
            return end_ns;
        }
        let (stack, target) = wait.details.unwrap_or_default();
        tools.recorder.keep(TracedCall {
            process: self.process,
            thread: self.process,
            number: wait.syscall.number,
            arguments: wait.syscall.arguments,
            outcome,
            start_ns: wait.start_ns,
            wall_ns,
            cpu_ns: Some(0),
            queued_ns: Some(0),
            stack,
            target,
        });
        end_ns
    }

    /// Ends the sampling of the thread.
    pub(super) fn finish(mut self, tools: &mut SamplingTools) {
        let now = tools.now();
        let (process, timeline) = (self.process, &mut self.timeline);
        if let Some(sampler) = &mut self.sampler {
            sampler.take(|sample| keep_sample(process, sample, timeline, tools));
            tools.running -= 1;
        }
        let is_alive = self.files.counters().is_some();
        let end = if is_alive { CallEnd::Running } else { CallEnd::Unknown };
        if let (true, Some(counters)) = (is_alive, self.files.counters()) {
            // A thread that runs is as far as it is.
            self.activity = match self.activity {
                ThreadActivity::Running => ThreadActivity::OutsideOfCall(0, 0),
                other => other,
            };
            let activity = ThreadActivity::Running;
            self.close_slice(now, counters, activity);
        }
        self.end_wait(now, end, tools);
        tools.unwinder.forget(self.process);
        tools.recorder.recording().timelines.insert(self.process, self.timeline);
    }
}

/// Keeps a sample of a thread that runs, or that has waited for a page.
fn keep_sample(
    process: u32,
    sample: &ThreadSample<'_>,
    timeline: &mut ThreadTimeline,
    tools: &mut SamplingTools,
) {
    let registers = KnownRegisters::new(sample.ip, sample.sp).bp(sample.bp).kept(sample.kept);
    let stack = tools.unwinder.offline(process, &registers, sample.stack, &mut tools.recorder);
    let at_ns = sample.at_ns.saturating_sub(tools.began_ns);
    let Some(address) = sample.fault else {
        timeline.sampled(at_ns, stack);
        return;
    };
    let path = tools.unwinder.mapped_file(process, address);
    let target = path.and_then(|path| tools.places.mapped(process, path, &mut tools.recorder));
    timeline.faulted(MajorFault { at_ns, stack, target });
}

/// Says why running threads cannot be sampled, and what allows it.
fn refusal(error: &std::io::Error) -> String {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level = level.ok().and_then(|level| level.trim().parse::<i32>().ok());
    match level {
        Some(level) if level > 2 => format!(
            "which functions ran on the processor: kernel.perf_event_paranoid is {level}; `sudo sysctl kernel.perf_event_paranoid=2` allows it"
        ),
        _ => format!("which functions ran on the processor: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::call_number;

    const MS: u64 = 1_000_000;

    fn in_call(name: &str) -> ThreadActivity {
        let number = call_number(name).unwrap();
        ThreadActivity::InCall(BlockedSyscall { number, arguments: [0; 6], sp: 0, ip: 0 })
    }

    #[test]
    fn a_wait_ends_where_the_thread_ran_and_not_at_the_look_that_finds_it_in_the_next_one() {
        let own = std::process::id();
        let recorder =
            TraceRecorder::new(Backend::Peek, Vec::new(), std::time::SystemTime::UNIX_EPOCH);
        let calls: Set = "read,poll,wait4".parse().unwrap();
        let mut options = TraceOptions::new(TraceTarget::Attach(own), calls);
        options.stacks = Stacks::None;
        let mut tools = SamplingTools::new(recorder, &options, Backend::Peek, 0);
        let mut thread = SampledThread::new(own, 0, &mut tools).unwrap();
        let counters =
            |cpu_ms, turns| SchedulerCounters { cpu_ns: cpu_ms * MS, queued_ns: 0, turns };
        let (at_ns, activity) = (1000 * MS, in_call("flock"));
        (thread.at_ns, thread.counters, thread.activity) = (at_ns, counters(0, 1), activity);
        thread.timeline = ThreadTimeline::default();
        let mut look =
            |tools: &mut SamplingTools, at_ms: u64, counters: SchedulerCounters, activity| {
                thread.close_slice(at_ms * MS, counters, activity);
                thread.follow_wait(at_ms * MS, &counters, activity, tools);
            };
        for at_ms in [1001, 1011, 1021] {
            look(&mut tools, at_ms, counters(0, 1), in_call("flock"));
        }
        // It got the lock, ran for 2 ms, and waits for the next thing when it is looked at again.
        look(&mut tools, 1061, counters(2, 2), in_call("fsync"));
        look(&mut tools, 1071, counters(2, 2), in_call("fsync"));
        look(&mut tools, 1081, counters(3, 3), in_call("flock"));
        let calls = &tools.recorder.recording().slow;
        let [lock, sync] = &calls[..] else { panic!("{calls:?}") };
        assert!(lock.start_ns + lock.wall_ns < 1045 * MS, "{lock:?}");
        assert!(sync.start_ns >= lock.start_ns + lock.wall_ns, "{sync:?} and {lock:?}");
        assert!(sync.start_ns + sync.wall_ns < 1080 * MS, "{sync:?}");
        // It waits once more, and computes: as long as the kernel's counters do not explain all of the slice, that stays open.
        for (at_ms, turns) in [(1091, 3), (1101, 3), (1111, 3)] {
            look(&mut tools, at_ms, counters(3, turns), in_call("flock"));
        }
        for (at_ms, cpu_ms, turns) in [(1127, 7, 4), (1143, 23, 5), (1159, 39, 6), (1175, 55, 7)] {
            look(&mut tools, at_ms, counters(cpu_ms, turns), ThreadActivity::Running);
        }
        let calls = &tools.recorder.recording().slow;
        let [_, _, lock] = &calls[..] else { panic!("{calls:?}") };
        assert!((1120..1128).contains(&((lock.start_ns + lock.wall_ns) / MS)), "{lock:?}");
    }
}
