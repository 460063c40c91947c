//! The recorder, which backends fill: totals of all calls, slow calls with all details, and processes, stacks and targets once each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::mpsc::Sender;
use std::thread::Thread as ReceiverThread;
use std::time::SystemTime;

use super::call::{CallEnd, StackId, TargetId, TracedCall};
use super::mark::RecordedMark;
use super::recording::{
    Backend, Exit, Module, RecordedMount, RecordedProcess, Recording, SentRequest, Stack, Target,
    Thread, Total,
};
use super::syscall::call_name;
use super::syscall_set::waits_in_memory;
use super::timeline::{ShortCallSample, ThreadCounters};

/// The most slow calls that are kept.
const SLOW_CALLS: usize = 200_000;

/// The most marks that are kept.
const MARKS: usize = 10_000;

/// The most distinct targets that are kept.
const TARGETS: usize = 100_000;
/// The most requests on buses that are kept.
const REQUESTS: usize = 8192;
/// A wait in a call to run a program that begins so long after the last one is what that had left to do, in nanoseconds.
const RETURN_NS: u64 = 50_000_000;

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

/// A wait in a call that is not recorded one by one, of which the kernel's wake-ups told when it began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnrecordedWait {
    /// The number of the call.
    pub(crate) number: u32,
    /// When it began, in nanoseconds since the recording did.
    pub(crate) from_ns: u64,
    /// When the thread was woken.
    pub(crate) to_ns: u64,
    /// Whether a call that was sampled is this wait.
    pub(crate) is_told: bool,
}

impl UnrecordedWait {
    /// Finds the wait that a sampled call was, and gives the call its beginning and its end.
    fn fit(call: &mut TracedCall, waits: &mut [UnrecordedWait]) {
        if call.outcome != CallEnd::Unknown {
            return;
        }
        let end_ns = end_of(call);
        let first = waits.partition_point(|wait| wait.to_ns <= call.start_ns);
        let inside = waits[first..].iter_mut().take_while(|wait| wait.from_ns < end_ns);
        let could_be = |wait: &&mut UnrecordedWait| wait.number == call.number && !wait.is_told;
        let common = |wait: &&mut UnrecordedWait| {
            wait.to_ns.min(end_ns).saturating_sub(wait.from_ns.max(call.start_ns))
        };
        let Some(wait) = inside.filter(could_be).max_by_key(common) else { return };
        wait.is_told = true;
        (call.start_ns, call.wall_ns) = (wait.from_ns, wait.to_ns.saturating_sub(wait.from_ns));
    }

    /// Returns it as a call of a main thread.
    fn call(&self, thread: u32) -> TracedCall {
        TracedCall {
            process: thread,
            thread,
            number: self.number,
            arguments: [0; 6],
            outcome: CallEnd::Unknown,
            start_ns: self.from_ns,
            wall_ns: self.to_ns.saturating_sub(self.from_ns),
            cpu_ns: Some(0),
            queued_ns: None,
            stack: None,
            target: None,
        }
    }

    /// Marks the waits that were in a call which the kernel's programs reported as told.
    fn tell(call: &TracedCall, waits: &mut [UnrecordedWait]) {
        let first = waits.partition_point(|wait| wait.to_ns <= call.start_ns);
        let inside = waits[first..].iter_mut().take_while(|wait| wait.from_ns < end_of(call));
        inside.filter(|wait| wait.number == call.number).for_each(|wait| wait.is_told = true);
    }
}

/// The waits for locks that the kernel's programs reported: by thread their places among the slow calls, in the order of time.
#[derive(Debug, Default)]
struct ReportedLocks(HashMap<u32, Vec<usize>>);

impl ReportedLocks {
    fn of(slow: &[TracedCall]) -> ReportedLocks {
        let mut locks = ReportedLocks::default();
        let all = slow.iter().enumerate();
        for (at, call) in all.filter(|(_, call)| waits_in_memory(call.number)) {
            locks.0.entry(call.thread).or_default().push(at);
        }
        locks.0.values_mut().for_each(|places| {
            places.sort_by_key(|at| slow.get(*at).map(|call| call.start_ns));
        });
        locks
    }

    /// Returns the place of the reported wait that a sampled one was.
    fn find(&self, call: &TracedCall, slow: &[TracedCall]) -> Option<usize> {
        let places = self.0.get(&call.thread).filter(|_| waits_in_memory(call.number))?;
        let ended = |at: &usize| slow.get(*at).is_some_and(|lock| end_of(lock) <= call.start_ns);
        let first = places.partition_point(ended);
        let locks = places[first..].iter().filter_map(|at| Some((*at, slow.get(*at)?)));
        let inside = locks.take_while(|(_, lock)| lock.start_ns < end_of(call));
        let common = |lock: &TracedCall| {
            end_of(lock).min(end_of(call)).saturating_sub(lock.start_ns.max(call.start_ns))
        };
        let same = inside.filter(|(_, lock)| lock.number == call.number);
        same.max_by_key(|(_, lock)| common(lock)).map(|(at, _)| at)
    }
}

/// Says whether a wait is in what a call to run a program had left to do: between two of them there is a program.
fn has_run_program(call: &TracedCall, wait: &UnrecordedWait) -> bool {
    let runs = call_name(call.number).is_some_and(|name| name.starts_with("execve"));
    runs && wait.from_ns.saturating_sub(end_of(call)) < RETURN_NS
}

fn end_of(call: &TracedCall) -> u64 {
    call.start_ns.saturating_add(call.wall_ns)
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

    /// Records a wait of a main thread that is sampled, too, if it is long. Those of a thread come in the order of time.
    pub(crate) fn waited_unrecorded(&mut self, thread: u32, wait: UnrecordedWait) {
        self.unrecorded.entry(thread).or_default().push(wait);
    }

    /// Records waits of main threads in calls that are recorded, which the calls themselves do not hold: what a call has left to do
    /// as it returns, as the last close of a file, waits when it is said to have ended. In the order of time.
    pub(crate) fn waited_returning(&mut self, waits: &[(u32, UnrecordedWait)]) {
        if self.recording.slow_dropped > 0 {
            // Some may be in calls that are only counted.
            return;
        }
        let mut calls: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, call) in self.recording.slow.iter().enumerate() {
            calls.entry(call.thread).or_default().push(at);
        }
        let slow = &self.recording.slow;
        calls.values_mut().for_each(|places| places.sort_by_key(|at| slow[*at].start_ns));
        for (thread, wait) in waits {
            let wall_ns = wait.to_ns.saturating_sub(wait.from_ns);
            if !self.is_slow(wall_ns) {
                continue;
            }
            let places = calls.entry(*thread).or_default();
            let slow = &mut self.recording.slow;
            let behind = places.partition_point(|at| slow[*at].start_ns < wait.to_ns);
            let last = behind.checked_sub(1).and_then(|at| slow.get_mut(places[at]));
            let total = self.recording.totals.entry((*thread, wait.number)).or_default();
            let (more_ns, longest_ns) = match last {
                Some(last) if end_of(last) > wait.from_ns => continue,
                // Of other calls there may have been another one meanwhile, of which nobody knows because it was short.
                Some(last) if last.number == wait.number && has_run_program(last, wait) => {
                    let more_ns = wait.to_ns - end_of(last);
                    last.wall_ns += more_ns;
                    (more_ns, last.wall_ns)
                }
                _ => {
                    places.insert(behind, slow.len());
                    (wall_ns, wall_ns)
                }
            };
            total.wall_ns = total.wall_ns.saturating_add(more_ns);
            total.longest_ns = total.longest_ns.max(longest_ns);
            if places.get(behind) == Some(&self.recording.slow.len()) {
                self.keep(wait.call(*thread));
            }
        }
    }

    /// Records the waits that no look from outside fell into. One for a lock may have been rest, which is judged together with those
    /// that were looked at: it is recorded as a short call is, however long it was.
    fn add_unrecorded(&mut self, thread: u32, waits: Vec<UnrecordedWait>) {
        for wait in waits {
            if wait.is_told {
                continue;
            }
            let call = wait.call(thread);
            let wall_ns = call.wall_ns;
            match call_name(wait.number).is_some_and(|name| name.starts_with("futex")) {
                true => {
                    self.waited_shortly(ShortCallSample { call, blocked_ns: wall_ns, count: 1 });
                }
                false => self.call(call),
            }
        }
        if let Some(timeline) = self.recording.timelines.get_mut(&thread) {
            let end_of = |sample: &ShortCallSample| sample.call.start_ns + sample.call.wall_ns;
            timeline.short_calls.sort_by_key(end_of);
        }
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::recording::Backend;

    const MS: u64 = 1_000_000;

    /// The slow calls, by name with begin and length in milliseconds, after a wait `from` to `to` in a call of this name.
    fn with_wait(
        threshold_ms: u64,
        calls: &[(&str, u64, u64)],
        waits: &[(&'static str, u64, u64)],
    ) -> Vec<(String, u64, u64)> {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        recorder.recording().threshold_ns = threshold_ms * MS;
        let number = |name: &str| crate::syscall::call_number(name).unwrap();
        let wait = |name: &str, from: u64, to: u64| UnrecordedWait {
            number: number(name),
            from_ns: from * MS,
            to_ns: to * MS,
            is_told: false,
        };
        for (name, at, length) in calls {
            recorder.keep(wait(name, *at, at + length).call(7));
        }
        let waits: Vec<(u32, UnrecordedWait)> =
            waits.iter().map(|(name, from, to)| (7, wait(name, *from, *to))).collect();
        recorder.waited_returning(&waits);
        let slow = &recorder.recording().slow;
        let told = |call: &TracedCall| {
            let name = call_name(call.number).unwrap().to_owned();
            (name, call.start_ns / MS, call.wall_ns / MS)
        };
        slow.iter().map(told).collect()
    }

    fn told(calls: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        calls.iter().map(|(name, at, length)| ((*name).to_owned(), *at, *length)).collect()
    }

    #[test]
    fn a_wait_behind_a_call_is_a_call_and_that_in_one_is_in_it() {
        let read = [("read", 10, 200)];
        assert_eq!(with_wait(1, &read, &[("read", 20, 190)]), told(&read));
        // A short call of the same name may have been between them, and is the one that waits.
        let both = told(&[("read", 10, 200), ("read", 240, 1000)]);
        assert_eq!(with_wait(1, &read, &[("read", 240, 1240)]), both);
        // The one that waits need not be slow before that, and no other has to be.
        assert_eq!(with_wait(200, &[], &[("close", 5, 1005)]), told(&[("close", 5, 1000)]));
        assert_eq!(with_wait(200, &[], &[("close", 5, 105)]), []);
        let closes = [("close", 0, 500), ("close", 501, 1001), ("close", 1100, 1601)];
        let each = told(&[("close", 0, 500), ("close", 501, 500), ("close", 1100, 501)]);
        assert_eq!(with_wait(200, &[], &closes), each);
    }

    #[test]
    fn a_program_begins_when_all_that_its_call_had_left_to_do_is_done() {
        let pieces = [("execve", 12, 27), ("execve", 28, 43), ("execve", 500, 515)];
        let told = told(&[("execve", 10, 33), ("execve", 500, 15)]);
        assert_eq!(with_wait(1, &[("execve", 10, 1)], &pieces), told);
    }
}
