//! The recorder, which backends fill: totals of all calls, slow calls with all details, and processes, stacks and targets once each.

mod waits;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::mpsc::Sender;
use std::thread::Thread as ReceiverThread;
use std::time::SystemTime;

use self::waits::ReportedLocks;
pub(crate) use self::waits::UnrecordedWait;
use super::call::{CallEnd, StackId, TargetId, TracedCall};
use super::mark::RecordedMark;
use super::recording::{
    Backend, Exit, Module, RecordedMount, RecordedProcess, Recording, SentRequest, Stack, Target,
    Thread, Total,
};
use super::syscall::call_name;
use super::timeline::{ShortCallSample, ThreadCounters};

/// The most slow calls that are kept.
const SLOW_CALLS: usize = 200_000;

/// The most marks that are kept.
const MARKS: usize = 10_000;

/// The most distinct targets that are kept.
const TARGETS: usize = 100_000;
/// The most requests on buses that are kept.
const REQUESTS: usize = 8192;

/// Fills a [`Recording`].
#[derive(Debug)]
pub struct TraceRecorder {
    recording: Recording,
    stacks: HashMap<Stack, u32>,
    modules: HashMap<Module, u32>,
    targets: HashMap<Target, u32>,
    /// The counters of main threads at their end.
    ends: HashMap<u32, ThreadCounters>,
    /// Waits of main threads in calls that are recorded by looks from outside, by thread, in the order of time.
    unrecorded: HashMap<u32, Vec<UnrecordedWait>>,
    /// The numbers of calls that are kept however short they are.
    kept: Vec<u32>,
    /// Is told of each process that is new.
    announcer: Option<ProcessAnnouncer>,
}

/// Tells a thread of each process that is new, and wakes it: a program may have ended before it would look by itself.
#[derive(Debug)]
pub(crate) struct ProcessAnnouncer {
    /// Takes the number of the process, and when that was, of the monotonic clock in nanoseconds.
    pub(crate) processes: Sender<(u32, u64)>,
    /// The thread that receives them.
    pub(crate) receiver: ReceiverThread,
}

impl ProcessAnnouncer {
    fn announce(&self, process: u32) {
        // Nobody receives any more when the recording ends.
        let _ = self.processes.send((process, sys::bpf::clock_ns()));
        self.receiver.unpark();
    }
}

fn item<T: Copy>(all: &[T], at: u32) -> Option<T> {
    all.get(usize::try_from(at).ok()?).copied()
}

/// Returns the index of `item`, which is added if it is new.
fn intern<T: Clone + Eq + Hash>(known: &mut HashMap<T, u32>, all: &mut Vec<T>, item: T) -> u32 {
    if let Some(index) = known.get(&item) {
        return *index;
    }
    let index = u32::try_from(all.len()).unwrap_or(u32::MAX);
    all.push(item.clone());
    known.insert(item, index);
    index
}

impl TraceRecorder {
    /// Starts a recording of `command` by `backend`, at the wall clock time `began`.
    #[must_use]
    pub fn new(backend: Backend, command: Vec<Vec<u8>>, began: SystemTime) -> TraceRecorder {
        TraceRecorder {
            recording: Recording {
                command,
                backend,
                notes: Vec::new(),
                watched: String::new(),
                leaves_out_stacks: false,
                threshold_ns: 0,
                began,
                began_monotonic_ns: None,
                length_ns: 0,
                bias: super::recording::Bias::default(),
                processes: std::collections::BTreeMap::new(),
                threads: std::collections::BTreeMap::new(),
                totals: std::collections::BTreeMap::new(),
                target_totals: std::collections::BTreeMap::new(),
                errors: std::collections::BTreeMap::new(),
                slow: Vec::new(),
                marks: Vec::new(),
                slow_dropped: 0,
                lost: 0,
                not_counted: 0,
                foreign_calls: 0,
                stacks_left_out: 0,
                stolen_ns: 0,
                timelines: std::collections::BTreeMap::new(),
                chains: Vec::new(),
                chain_bus_names: std::collections::BTreeMap::new(),
                requests: Vec::new(),
                kernel: super::kernel_work::KernelWork::default(),
                unseen: Vec::new(),
                stacks: Vec::new(),
                modules: Vec::new(),
                targets: Vec::new(),
                mounts: Vec::new(),
            },
            stacks: HashMap::new(),
            modules: HashMap::new(),
            targets: HashMap::new(),
            ends: HashMap::new(),
            unrecorded: HashMap::new(),
            kept: Vec::new(),
            announcer: None,
        }
    }

    /// Announces each process that is added from now on, and those that are known.
    pub(crate) fn announce_processes(&mut self, announcer: ProcessAnnouncer) {
        self.recording.processes.keys().for_each(|process| announcer.announce(*process));
        self.announcer = Some(announcer);
    }

    /// Returns the recording, for fields that are set once.
    pub fn recording(&mut self) -> &mut Recording {
        &mut self.recording
    }

    /// Returns whether a call of this length is slow, so that its stack and target should be recorded.
    #[must_use]
    pub fn is_slow(&self, wall_ns: u64) -> bool {
        wall_ns >= self.recording.threshold_ns
    }

    /// Keeps each of these calls with all details, however short it is.
    pub(crate) fn keep_always(&mut self, numbers: Vec<u32>) {
        self.kept = numbers;
    }

    /// Returns whether a call should be kept with its stack and target: it is slow, or all calls of its kind are kept.
    #[must_use]
    pub(crate) fn is_kept(&self, number: u32, wall_ns: u64) -> bool {
        self.is_slow(wall_ns) || self.kept.contains(&number)
    }

    /// Adds a process, unless it is already known.
    pub fn process(&mut self, id: u32) -> &mut RecordedProcess {
        if let Some(announcer) = &self.announcer
            && !self.recording.processes.contains_key(&id)
        {
            announcer.announce(id);
        }
        self.recording
            .processes
            .entry(id)
            .or_insert_with(|| RecordedProcess { id, ..RecordedProcess::default() })
    }

    /// Adds a thread, unless it is already known.
    pub fn thread(&mut self, id: u32, process: u32, at_ns: u64) -> &mut Thread {
        let thread = Thread { id, process, start_ns: at_ns, ..Thread::default() };
        self.recording.threads.entry(id).or_insert(thread)
    }

    /// Records the end of a thread.
    pub fn thread_ended(&mut self, id: u32, at_ns: u64) {
        if let Some(thread) = self.recording.threads.get_mut(&id) {
            thread.end_ns = Some(at_ns);
        }
    }

    /// Records the end of a process.
    pub fn process_ended(&mut self, id: u32, exit: Option<Exit>, at_ns: u64) {
        if let Some(process) = self.recording.processes.get_mut(&id) {
            process.end_ns = Some(at_ns);
            process.exit = exit;
        }
    }

    /// Adds a call to the totals, and to the slow calls if it is slow or still running.
    pub fn call(&mut self, call: TracedCall) {
        self.recording.totals.entry((call.thread, call.number)).or_default().add(
            call.failed(),
            call.wall_ns,
            call.cpu_ns,
        );
        if let CallEnd::Failed(errno) = call.outcome {
            *self.recording.errors.entry((call.number, errno)).or_default() += 1;
        }
        if self.is_kept(call.number, call.wall_ns) || call.outcome == CallEnd::Running {
            self.keep(call);
        } else {
            self.add_to_target(&call);
        }
    }

    fn add_to_target(&mut self, call: &TracedCall) {
        if let Some(target) = call.target {
            let key = (target, call.number);
            self.recording.target_totals.entry(key).or_default().add(
                call.failed(),
                call.wall_ns,
                call.cpu_ns,
            );
        }
    }

    /// Adds a slow call whose totals are counted elsewhere, for example in the kernel.
    pub fn keep(&mut self, call: TracedCall) {
        self.add_to_target(&call);
        if self.recording.slow.len() < SLOW_CALLS {
            self.recording.slow.push(call);
        } else {
            self.recording.slow_dropped += 1;
        }
    }

    /// Adds a moment that the program named.
    pub fn mark(&mut self, name: &str, process: u32, at_ns: u64) {
        if self.recording.marks.len() < MARKS {
            self.recording.marks.push(RecordedMark { name: name.to_owned(), process, at_ns });
        } else {
            self.recording.lost += 1;
        }
    }

    /// Adds totals that were counted elsewhere, for example in the kernel.
    pub fn total(&mut self, thread: u32, number: u32, total: &Total) {
        self.recording.totals.entry((thread, number)).or_default().merge(total);
    }

    /// Returns the index of a stack.
    pub fn stack(&mut self, stack: Stack) -> StackId {
        StackId(intern(&mut self.stacks, &mut self.recording.stacks, stack))
    }

    /// Returns the index of a module.
    pub fn module(&mut self, module: Module) -> u32 {
        intern(&mut self.modules, &mut self.recording.modules, module)
    }

    /// Returns the index of a target; `None` if there are too many distinct ones.
    pub fn target(&mut self, target: Target) -> Option<TargetId> {
        if self.targets.len() >= TARGETS && !self.targets.contains_key(&target) {
            return None;
        }
        Some(TargetId(intern(&mut self.targets, &mut self.recording.targets, target)))
    }

    /// Records a request on a bus, to which an answer is expected.
    pub(crate) fn sent(&mut self, process: u32, at_ns: u64, target: Target) {
        let Some(target) = self.target(target) else { return };
        let requests = &mut self.recording.requests;
        if requests.len() >= REQUESTS {
            requests.drain(..REQUESTS / 2);
        }
        requests.push(SentRequest { process, at_ns, target });
    }

    /// Returns the index of a file system.
    pub fn mount(&mut self, mount: RecordedMount) -> u32 {
        let mounts = &mut self.recording.mounts;
        let at = mounts.iter().position(|known| *known == mount).unwrap_or_else(|| {
            mounts.push(mount);
            mounts.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Records that the event loop of a thread looked for events with this call and had not to wait.
    pub fn turned(&mut self, thread: u32, number: u32, at_ns: u64) {
        let timeline = self.recording.timelines.entry(thread).or_default();
        match call_name(number) {
            Some("io_uring_enter") => timeline.ring_turned(at_ns),
            _ => timeline.turned(at_ns),
        }
    }

    /// Records a sample of a main thread's short calls, which are counted elsewhere.
    pub fn waited_shortly(&mut self, sample: ShortCallSample) {
        let timeline = self.recording.timelines.entry(sample.call.thread).or_default();
        timeline.waited_shortly(sample);
    }

    /// Records the counters with which a main thread ended.
    pub(crate) fn ended_with(&mut self, thread: u32, counters: ThreadCounters) {
        self.ends.insert(thread, counters);
    }

    /// Records that a thread was stopped by a signal from one moment to another.
    pub(crate) fn stopped(&mut self, thread: u32, from_ns: u64, to_ns: u64) {
        self.recording.timelines.entry(thread).or_default().stops.push((from_ns, to_ns));
    }

    /// Takes over what another recorder has of the same processes: timelines, and calls that this one did not record.
    pub fn absorb(&mut self, other: Recording) {
        let modules: Vec<u32> =
            other.modules.into_iter().map(|module| self.module(module)).collect();
        let stacks: Vec<StackId> = other
            .stacks
            .into_iter()
            .map(|mut stack| {
                for frame in &mut stack.frames {
                    frame.module = frame.module.and_then(|at| item(&modules, at));
                }
                self.stack(stack)
            })
            .collect();
        let mounts: Vec<u32> = other.mounts.into_iter().map(|mount| self.mount(mount)).collect();
        let targets: Vec<Option<TargetId>> = other
            .targets
            .into_iter()
            .map(|mut target| {
                match &mut target {
                    Target::File { mount, .. } | Target::Files { mount, .. } => {
                        *mount = mount.and_then(|at| item(&mounts, at));
                    }
                    Target::Lock { owner_stack, .. } => {
                        *owner_stack = owner_stack.and_then(|at| item(&stacks, at.0));
                    }
                    _ => (),
                }
                self.target(target)
            })
            .collect();
        let target_of = |at: TargetId| item(&targets, at.0).flatten();
        let mut unrecorded = std::mem::take(&mut self.unrecorded);
        let reported = ReportedLocks::of(&self.recording.slow);
        for at in reported.0.values().flatten() {
            if let Some(call) = self.recording.slow.get(*at)
                && let Some(waits) = unrecorded.get_mut(&call.thread)
            {
                UnrecordedWait::tell(call, waits);
            }
        }
        for mut call in other.slow {
            call.stack = call.stack.and_then(|at| item(&stacks, at.0));
            call.target = call.target.and_then(target_of);
            if let Some(at) = reported.find(&call, &self.recording.slow) {
                self.complete(at, &call);
                continue;
            }
            if let Some(waits) = unrecorded.get_mut(&call.thread) {
                UnrecordedWait::fit(&mut call, waits);
            }
            self.call(call);
        }
        for (thread, waits) in unrecorded {
            self.add_unrecorded(thread, waits);
        }
        for (thread, mut timeline) in other.timelines {
            let known = self.recording.timelines.entry(thread).or_default();
            timeline
                .samples
                .retain_mut(|(_, stack)| item(&stacks, stack.0).map(|at| *stack = at).is_some());
            timeline.faults.retain_mut(|fault| {
                fault.target = fault.target.and_then(target_of);
                item(&stacks, fault.stack.0).map(|at| fault.stack = at).is_some()
            });
            timeline.turns = std::mem::take(&mut known.turns);
            timeline.ring_turns = std::mem::take(&mut known.ring_turns);
            timeline.stops = std::mem::take(&mut known.stops);
            timeline.short_calls = std::mem::take(&mut known.short_calls);
            *known = timeline;
            known.fault_count = known.fault_count.max(known.faults.len() as u64);
            if let Some(end) = self.ends.get(&thread).filter(|end| end.at_ns > known.last.at_ns) {
                known.end(*end);
            }
        }
        for process in other.processes.values().filter(|process| process.has_window) {
            if let Some(known) = self.recording.processes.get_mut(&process.id) {
                known.has_window = true;
            }
        }
        self.recording.unseen.extend(other.unseen);
        self.recording.stolen_ns += other.stolen_ns;
    }

    /// Adds to a reported wait for a lock what a look from outside saw of it: only while it lasts can the lock's holder be read, and
    /// the whole of a large stack.
    fn complete(&mut self, at: usize, seen: &TracedCall) {
        let recording = &mut self.recording;
        let worth = |stack: &Option<StackId>| {
            let frames = stack.and_then(|id| recording.stacks.get(usize::try_from(id.0).ok()?));
            let frames = frames.map_or(&[][..], |stack| &stack.frames);
            (frames.first().is_some_and(|frame| frame.module.is_some()), frames.len())
        };
        let Some(call) = recording.slow.get(at) else { return };
        let stack = [seen.stack, call.stack].into_iter().max_by_key(worth).flatten();
        let Some(call) = recording.slow.get_mut(at) else { return };
        call.stack = stack;
        call.target = seen.target.or(call.target);
    }

    /// Ends the recording, `length_ns` nanoseconds after it began.
    #[must_use]
    pub fn finish(mut self, length_ns: u64) -> Recording {
        self.recording.length_ns = length_ns;
        self.recording
    }
}
