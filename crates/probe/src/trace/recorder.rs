//! Where a backend puts what it sees: totals of all calls, the slow ones whole, everything else once.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::SystemTime;

use super::call::{Call, Outcome, StackId, TargetId};
use super::recording::{
    Backend, Exit, Module, Mount, Process, Recording, Stack, Target, Thread, Total,
};

/// The most slow calls that are kept.
pub const SLOW_CALLS: usize = 200_000;

/// The most targets that are kept apart.
pub const TARGETS: usize = 100_000;

/// Fills a [`Recording`].
#[derive(Debug)]
pub struct Recorder {
    recording: Recording,
    stacks: HashMap<Stack, u32>,
    modules: HashMap<Module, u32>,
    targets: HashMap<Target, u32>,
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

impl Recorder {
    /// Begins a recording of `command` by `backend`, at the wall clock `began`.
    #[must_use]
    pub fn new(backend: Backend, command: Vec<Vec<u8>>, began: SystemTime) -> Recorder {
        Recorder {
            recording: Recording {
                command,
                backend,
                notes: Vec::new(),
                watched: String::new(),
                threshold_ns: 0,
                began,
                length_ns: 0,
                bias: super::recording::Bias::default(),
                processes: std::collections::BTreeMap::new(),
                threads: std::collections::BTreeMap::new(),
                totals: std::collections::BTreeMap::new(),
                target_totals: std::collections::BTreeMap::new(),
                errors: std::collections::BTreeMap::new(),
                slow: Vec::new(),
                slow_dropped: 0,
                lost: 0,
                stacks: Vec::new(),
                modules: Vec::new(),
                targets: Vec::new(),
                mounts: Vec::new(),
            },
            stacks: HashMap::new(),
            modules: HashMap::new(),
            targets: HashMap::new(),
        }
    }

    /// Gives direct access to what has been recorded, for the fields that are set once.
    pub fn recording(&mut self) -> &mut Recording {
        &mut self.recording
    }

    /// Says whether a call of this length is kept whole, and so deserves a stack and a target.
    #[must_use]
    pub fn is_slow(&self, wall_ns: u64) -> bool {
        wall_ns >= self.recording.threshold_ns
    }

    /// Notes a process; what is known of it already stays.
    pub fn process(&mut self, id: u32) -> &mut Process {
        self.recording.processes.entry(id).or_insert_with(|| Process { id, ..Process::default() })
    }

    /// Notes a thread; what is known of it already stays.
    pub fn thread(&mut self, id: u32, process: u32, at_ns: u64) -> &mut Thread {
        let thread = Thread { id, process, start_ns: at_ns, ..Thread::default() };
        self.recording.threads.entry(id).or_insert(thread)
    }

    /// Notes that a thread ended.
    pub fn thread_ended(&mut self, id: u32, at_ns: u64) {
        if let Some(thread) = self.recording.threads.get_mut(&id) {
            thread.end_ns = Some(at_ns);
        }
    }

    /// Notes that a process ended.
    pub fn process_ended(&mut self, id: u32, exit: Option<Exit>, at_ns: u64) {
        if let Some(process) = self.recording.processes.get_mut(&id) {
            process.end_ns = Some(at_ns);
            process.exit = exit;
        }
    }

    /// Adds a call: to the totals, and whole if it is slow or still running.
    pub fn call(&mut self, call: Call) {
        self.recording.totals.entry((call.thread, call.number)).or_default().add(&call);
        if let Some(target) = call.target {
            let key = (target, call.number);
            self.recording.target_totals.entry(key).or_default().add(&call);
        }
        if let Outcome::Failed(errno) = call.outcome {
            *self.recording.errors.entry((call.number, errno)).or_default() += 1;
        }
        if self.is_slow(call.wall_ns) || call.outcome == Outcome::Running {
            self.keep(call);
        }
    }

    /// Keeps a slow call whose totals were counted elsewhere, as in the kernel.
    pub fn keep(&mut self, call: Call) {
        if self.recording.slow.len() < SLOW_CALLS {
            self.recording.slow.push(call);
        } else {
            self.recording.slow_dropped += 1;
        }
    }

    /// Adds sums that were counted elsewhere, as in the kernel.
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

    /// Returns the index of a target; none when there are too many to keep apart.
    pub fn target(&mut self, target: Target) -> Option<TargetId> {
        if self.targets.len() >= TARGETS && !self.targets.contains_key(&target) {
            return None;
        }
        Some(TargetId(intern(&mut self.targets, &mut self.recording.targets, target)))
    }

    /// Returns the index of a file system.
    pub fn mount(&mut self, mount: Mount) -> u32 {
        let mounts = &mut self.recording.mounts;
        let at = mounts.iter().position(|known| *known == mount).unwrap_or_else(|| {
            mounts.push(mount);
            mounts.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Ends the recording, `length_ns` nanoseconds after it began.
    #[must_use]
    pub fn finish(mut self, length_ns: u64) -> Recording {
        self.recording.length_ns = length_ns;
        self.recording
    }
}
