//! The time between two looks for events of a main thread: it computes, or makes many short calls.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sys::perf::ThreadSampler;

use super::analyzer::StallAnalyzer;
use super::stops::StopTracker;
use super::{BusyStep, WatchEvent};
use crate::call::StackId;
use crate::stack::KnownRegisters;
use crate::stack::blame::{blame, name_builtin};

/// The most samples of a thread that are kept.
const SAMPLES: usize = 512;

/// A look for events.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventLook {
    /// When it had ended, of the monotonic clock in nanoseconds.
    pub(super) at_ns: u64,
    /// How long it waited.
    pub(super) wall_ns: u64,
    /// The thread's time on processors.
    pub(super) processor_ns: u64,
    /// The thread's time without a processor although it could run.
    pub(super) ready_ns: u64,
}

/// Follows the steps of one main thread.
#[derive(Debug)]
pub(super) struct StepTracker {
    /// The last look for events; before the first one, when the watch began.
    last: Result<EventLook, u64>,
    /// The time of long calls since, which are reported themselves.
    reported_ns: u64,
    sampler: Option<ThreadSampler>,
    samples: VecDeque<(u64, StackId)>,
    /// When it was stopped.
    pub(super) stops: StopTracker,
}

impl StepTracker {
    /// Begins to follow the main thread of `process`; steps of `threshold_ns` will be reported.
    pub(super) fn new(process: u32, now_ns: u64, threshold_ns: u64) -> StepTracker {
        let period = Duration::from_nanos(threshold_ns / 5);
        let period = period.clamp(Duration::from_millis(4), Duration::from_millis(50));
        StepTracker {
            last: Err(now_ns),
            reported_ns: 0,
            sampler: ThreadSampler::open(process, period).ok(),
            samples: VecDeque::new(),
            stops: StopTracker::default(),
        }
    }

    /// Forgets the stacks, whose numbers are not valid any more.
    pub(super) fn forget_stacks(&mut self) {
        self.samples.clear();
    }

    /// Notes that a long call was reported.
    pub(super) fn reported(&mut self, wall_ns: u64) {
        self.reported_ns = self.reported_ns.saturating_add(wall_ns);
    }

    /// Reads the samples of the processor.
    pub(super) fn sample(&mut self, process: u32, analyzer: &mut StallAnalyzer) {
        let StepTracker { sampler: Some(sampler), samples, .. } = self else { return };
        let StallAnalyzer { unwinder, recorder, .. } = analyzer;
        sampler.take(|sample| {
            if sample.fault.is_some() {
                return;
            }
            let registers =
                KnownRegisters::new(sample.ip, sample.sp).bp(sample.bp).kept(sample.kept);
            let stack = unwinder.offline(process, &registers, sample.stack, recorder);
            if samples.len() >= SAMPLES {
                samples.pop_front();
            }
            samples.push_back((sample.at_ns, stack));
        });
    }

    /// Returns the step that ends with a look for events, if it was long.
    pub(super) fn looked(
        &mut self,
        process: u32,
        look: EventLook,
        [threshold_ns, began_ns]: [u64; 2],
        analyzer: &mut StallAnalyzer,
    ) -> Option<WatchEvent> {
        let end_ns = look.at_ns.saturating_sub(look.wall_ns);
        let parts = self.last.ok().map(|last| {
            (
                look.processor_ns.saturating_sub(last.processor_ns),
                look.ready_ns.saturating_sub(last.ready_ns),
            )
        });
        let event = self.step(process, end_ns, parts, false, [threshold_ns, began_ns], analyzer);
        self.last = Ok(look);
        self.reported_ns = 0;
        self.stops.forget();
        event
    }

    /// Returns the step that goes on until `end_ns`, if it was long.
    pub(super) fn step(
        &mut self,
        process: u32,
        end_ns: u64,
        parts: Option<(u64, u64)>,
        goes_on: bool,
        [threshold_ns, began_ns]: [u64; 2],
        analyzer: &mut StallAnalyzer,
    ) -> Option<WatchEvent> {
        let from_ns = self.last.map_or_else(|began| began, |last| last.at_ns);
        let length_ns = end_ns.saturating_sub(from_ns).saturating_sub(self.reported_ns);
        if length_ns < threshold_ns {
            return None;
        }
        self.sample(process, analyzer);
        let mut counts: HashMap<StackId, usize> = HashMap::new();
        let inside = self.samples.iter().filter(|(at, _)| (from_ns..end_ns).contains(at));
        inside.for_each(|(_, stack)| *counts.entry(*stack).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(stack, count)| (*count, stack.0));
        let mut frames = most.map(|(stack, _)| analyzer.frames(process, stack)).unwrap_or_default();
        let blamed = blame(&frames, None);
        name_builtin(&mut frames, blamed);
        analyzer.summary.reported += 1;
        let time = |ns: u64| Duration::from_nanos(ns.min(length_ns));
        Some(WatchEvent::Busy(Box::new(BusyStep {
            at: analyzer.time(from_ns.saturating_sub(began_ns)),
            length: Duration::from_nanos(length_ns),
            parts: parts.map(|(ran, ready)| (time(ran), time(ready))),
            stopped: time(self.stops.between(from_ns, end_ns)),
            goes_on,
            blamed,
            frames,
        })))
    }
}
