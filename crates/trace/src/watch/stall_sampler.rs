//! The sampling thread of `trace watch` with the peek backend: it never waits for symbols, nor for the thread that prints.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use sys::clock::{Clock, SystemClock};

use super::WatchOptions;
use super::analyzer::{CACHED_STACKS, ResolvedTarget};
use super::find::ProcessFinder;
use super::stops::{StopTracker, StoppedTime};
use crate::backend::blocked::{BlockedSyscall, ForeignPrograms};
use crate::backend::peek::pacer::SamplingPacer;
use crate::backend::peek::sampler::{
    BlockDetails, BlockedPeriod, SampledThreads, Sampler, SamplerObserver,
};
use crate::backend::procfs;
use crate::call::{CallEnd, StackId};
use crate::place::{ContextLookup, SyscallContext};
use crate::recorder::TraceRecorder;
use crate::recording::Backend;
use crate::stack::KnownRegisters;
use crate::syscall::runs_program;

/// The share of a CPU that sampling may use over the day.
const BUDGET: f64 = 0.003;

/// The most periods between two samples, even if they cost more than the budget: no stall may be missed.
const MAX_PERIODS: u32 = 4;

/// The most bytes of a stack that are copied.
const STACK_BYTES: usize = 256 << 10;

/// The capacity of the channel of events, some of which contain a copy of a stack.
pub(super) const EVENT_CAPACITY: usize = 128;

/// An event of the sampling thread.
#[derive(Debug)]
pub(super) enum StallEvent {
    /// A process is sampled from now on; it runs this program.
    Found { process: u32, executable: Vec<u8> },
    /// A thread has been blocked for the threshold, and still is.
    Reached(Box<StackSnapshot>),
    /// A thread is no longer blocked, or the watch ends.
    Unblocked(Box<FinishedPeriod>),
    /// A process runs another program, or its thread was not found.
    Changed { process: u32 },
    /// A process was stopped or frozen.
    Stopped { process: u32, stop: StoppedTime },
    /// A process may not be sampled.
    Refused { process: u32 },
    /// A process has ended.
    Ended { process: u32 },
}

/// A copy of the stack of a blocked thread.
#[derive(Debug)]
pub(super) struct StackSnapshot {
    /// The number of the copy.
    pub(super) number: u32,
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) registers: KnownRegisters,
    /// The bytes from the stack pointer on.
    pub(super) bytes: Vec<u8>,
}

/// A period in which a thread was blocked in one call.
#[derive(Debug)]
pub(super) struct FinishedPeriod {
    pub(super) period: BlockedPeriod,
    pub(super) outcome: CallEnd,
    /// The number of the copy of its stack, if the stack did not change while it was copied.
    pub(super) copy: Option<u32>,
    pub(super) target: Option<ResolvedTarget>,
}

/// Returns the sampling interval: a fifth of the threshold.
fn interval(threshold: Duration) -> Duration {
    (threshold / 5).clamp(Duration::from_millis(2), Duration::from_millis(50))
}

/// Samples until `stop` is set, the chosen process has ended, or the receiver is gone; returns how many periods were lost.
pub(super) fn watch(
    options: &WatchOptions,
    stop: &AtomicBool,
    clock: &SystemClock,
    events: SyncSender<StallEvent>,
) -> io::Result<u64> {
    let now = || u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
    let threshold = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let mut sender = EventSender::new(events, clock);
    let mut finder = ProcessFinder::new(options.subject.clone());
    let mut samplers: BTreeMap<u32, (Sampler, StopTracker)> = BTreeMap::new();
    let mut pacer = SamplingPacer::new(interval(options.threshold), BUDGET).at_most(MAX_PERIODS);
    while !stop.load(Ordering::Relaxed) && !sender.is_disconnected {
        let change = finder.search(clock.monotonic());
        for process in change.found {
            let sampler = Sampler::new(process, SampledThreads::First, threshold);
            samplers.insert(process, (sampler, StopTracker::default()));
            let executable = procfs::executable(process);
            sender.send(StallEvent::Found { process, executable });
        }
        for process in change.gone {
            if let Some((mut sampler, stops)) = samplers.remove(&process) {
                // The process may have ended while its thread was blocked, or stopped.
                sampler.end(&mut sender);
                if let Some(stop) = stops.open(now()) {
                    sender.send(StallEvent::Stopped { process, stop });
                }
            }
            sender.programs.remove(&process);
            sender.send(StallEvent::Ended { process });
        }
        if finder.is_over() {
            break;
        }
        samplers.retain(|process, (sampler, stops)| {
            sampler.sample_round(now, &mut sender);
            if let Some(stop) = stops.look(*process, now()) {
                sender.send(StallEvent::Stopped { process: *process, stop });
            }
            if !sampler.is_permitted() {
                sender.send(StallEvent::Refused { process: *process });
            }
            sampler.is_permitted()
        });
        pacer.rest()?;
    }
    for (process, (sampler, stops)) in &samplers {
        for period in sampler.open_periods() {
            sender.finish_period(&period, CallEnd::Running);
        }
        if let Some(stop) = stops.open(now()) {
            sender.send(StallEvent::Stopped { process: *process, stop });
        }
    }
    Ok(sender.lost)
}

/// Observes the samplers, and sends events to the thread that unwinds and prints.
struct EventSender {
    events: SyncSender<StallEvent>,
    recorder: TraceRecorder,
    places: ContextLookup,
    foreign: ForeignPrograms,
    /// The targets of blocked threads, by thread.
    targets: HashMap<u32, ResolvedTarget>,
    /// The programs of processes.
    programs: HashMap<u32, Vec<u8>>,
    copies: u32,
    lost: u64,
    is_disconnected: bool,
}

impl EventSender {
    fn new(events: SyncSender<StallEvent>, clock: &SystemClock) -> EventSender {
        EventSender {
            events,
            recorder: TraceRecorder::new(Backend::Peek, Vec::new(), clock.now()),
            places: ContextLookup::new(),
            foreign: ForeignPrograms::default(),
            targets: HashMap::new(),
            programs: HashMap::new(),
            copies: 0,
            lost: 0,
            is_disconnected: false,
        }
    }

    /// Sends a rare event, which must arrive; waits while the channel is full.
    fn send(&mut self, event: StallEvent) {
        self.is_disconnected |= self.events.send(event).is_err();
    }

    /// Sends an event unless the channel is full, and returns whether it was sent.
    fn try_send(&mut self, event: StallEvent) -> bool {
        match self.events.try_send(event) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => {
                self.is_disconnected = true;
                false
            }
        }
    }

    fn finish_period(&mut self, period: &BlockedPeriod, outcome: CallEnd) {
        let copy = period.details.and_then(|details| details.stack).map(|StackId(number)| number);
        let target = self.targets.remove(&period.thread);
        // If the stack changed meanwhile, the target may be that of another call.
        let target =
            target.filter(|_| period.details.is_some_and(|details| details.stack.is_some()));
        let finished = FinishedPeriod { period: *period, outcome, copy, target };
        if !self.try_send(StallEvent::Unblocked(Box::new(finished))) {
            self.lost += 1;
        }
    }
}

impl SamplerObserver for EventSender {
    fn observes_syscall(&mut self, process: u32, syscall: &BlockedSyscall) -> bool {
        !self.foreign.makes(process, syscall)
    }

    /// Copies the stack; the number of the copy is returned in place of the id of a stack.
    fn on_threshold(&mut self, period: &BlockedPeriod) -> BlockDetails {
        let BlockedPeriod { process, thread, syscall, .. } = *period;
        let (number, arguments) = (syscall.number, syscall.arguments);
        if procfs::hangs(process) {
            self.targets.remove(&thread);
            return BlockDetails::default();
        }
        self.copies = self.copies.wrapping_add(1);
        // In an `execve`, the stack may already be that of the new program.
        if !runs_program(number) {
            let mut bytes = vec![0; STACK_BYTES];
            let read = sys::remote::read(process, syscall.sp, &mut bytes).unwrap_or(0);
            bytes.truncate(read);
            bytes.shrink_to_fit();
            let registers = KnownRegisters::new(syscall.ip, syscall.sp);
            let snapshot = StackSnapshot { number: self.copies, process, thread, registers, bytes };
            // If the channel is full, the stall is reported without its callers.
            self.try_send(StallEvent::Reached(Box::new(snapshot)));
        }
        if self.recorder.recording().targets.len() > CACHED_STACKS {
            let began = self.recorder.recording().began;
            self.recorder = TraceRecorder::new(Backend::Peek, Vec::new(), began);
        }
        let context = SyscallContext { process, thread, number, arguments, returned: None };
        let target = self.places.target(&context, &mut self.recorder);
        self.targets.remove(&thread);
        let resolved =
            target.and_then(|target| ResolvedTarget::from_recorder(target, &mut self.recorder));
        if let Some(resolved) = resolved {
            self.targets.insert(thread, resolved);
        }
        BlockDetails { stack: Some(StackId(self.copies)), target: None }
    }

    fn on_unblocked(&mut self, period: &BlockedPeriod) {
        self.finish_period(period, CallEnd::Unknown);
    }

    fn on_thread_found(&mut self, process: u32, _thread: u32) {
        self.programs.insert(process, procfs::executable(process));
    }

    fn on_process_listed(&mut self, process: u32) {
        let executable = procfs::executable(process);
        if !executable.is_empty() && self.programs.get(&process) != Some(&executable) {
            self.programs.insert(process, executable);
            self.places.forget(process);
            self.send(StallEvent::Changed { process });
        }
    }

    fn on_thread_gone(&mut self, process: u32, thread: u32) {
        self.places.forget(process);
        self.targets.remove(&thread);
        self.send(StallEvent::Changed { process });
    }
}
