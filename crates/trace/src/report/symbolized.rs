//! A recording with names: the input of each part of a report.

use std::collections::{BTreeMap, HashMap};

use super::names::{Confidence, Frame, Names};
use super::schema::{TargetKind, TraceMethod};
use super::spelling::spell;
use super::stalls::StallClassifier;
use crate::call::{StackId, TracedCall};
use crate::kernel_work::{ExplainedWait, RingWaitKind, ThreadMemory};
use crate::recording::{self, Recording, StackEnd};
use crate::timeline::{ShortCallSample, TimeSlice};

/// The most stacks of one timeline that get names.
const TIMELINE_STACKS: usize = 400;

/// Turns a count into an index of the schema.
pub(super) fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A stack that has been named.
pub(super) struct SymbolizedStack {
    /// Indexes into the report's frames.
    pub(super) frames: Vec<u32>,
    /// The place of the blamed frame in those.
    pub(super) blamed: Option<usize>,
    pub(super) is_idle: bool,
    rests_for: Option<&'static str>,
    waits_for_answer: bool,
    pub(super) end: StackEnd,
}

/// A recording whose stacks have names, and whose slow calls are classified.
pub(super) struct SymbolizedRecording<'a> {
    pub(super) recording: &'a Recording,
    pub(super) call_names: BTreeMap<u32, String>,
    pub(super) frames: Vec<Frame>,
    frame_index: HashMap<Frame, u32>,
    pub(super) stacks: HashMap<StackId, SymbolizedStack>,
    pub(super) how: Vec<TraceMethod>,
    /// How the samples of short calls count, of all timelines one after the other; none of which nobody knows what they were.
    short: Vec<Option<TraceMethod>>,
}

impl<'a> SymbolizedRecording<'a> {
    /// Names the stacks of all slow calls.
    pub(super) fn new(recording: &'a Recording, names: &dyn Names) -> SymbolizedRecording<'a> {
        let numbers = recording.totals.keys().map(|(_, number)| *number);
        let numbers = numbers.chain(recording.slow.iter().map(|call| call.number));
        // Totals of a thread that the kernel had no room for may be missing.
        let short = recording.timelines.values().flat_map(|timeline| &timeline.short_calls);
        let numbers = numbers.chain(short.map(|sample| sample.call.number));
        let mut symbolized = SymbolizedRecording {
            recording,
            call_names: numbers
                .map(|number| (number, spell(names.call(number).as_bytes())))
                .collect(),
            frames: Vec::new(),
            frame_index: HashMap::new(),
            stacks: HashMap::new(),
            how: Vec::new(),
            short: Vec::new(),
        };
        let owners = recording.targets.iter().filter_map(|target| match target {
            recording::Target::Lock { owner_stack, .. } => *owner_stack,
            _ => None,
        });
        for id in recording.slow.iter().filter_map(|call| call.stack).chain(owners) {
            symbolized.name(id, names);
        }
        for timeline in recording.timelines.values() {
            let samples = timeline.samples.iter().map(|(_, stack)| *stack);
            let on_processor = samples.chain(timeline.faults.iter().map(|fault| fault.stack));
            let of_short_calls = frequent_stacks(timeline.short_stacks());
            for id in frequent_stacks(on_processor).into_iter().chain(of_short_calls) {
                symbolized.name(id, names);
            }
        }
        for id in recording.kernel.memory.values().flat_map(longest_stacks) {
            symbolized.name(id, names);
        }
        let idle = |call: &TracedCall| {
            let stack = symbolized.stacks.get(&call.stack?)?;
            let target = || item(&recording.targets, call.target?.0);
            // Whoever waits to read from the display waits for the person at it, whatever its loop is called.
            let is_own_loop = || {
                !stack.frames.is_empty()
                    && !stack.waits_for_answer
                    && matches!(target(), Some(recording::Target::Display { .. }))
            };
            Some(stack.is_idle || is_own_loop())
        };
        let name = |number: u32| symbolized.call_names.get(&number).map_or("", String::as_str);
        let judge = StallClassifier::new(recording, &name, &idle);
        symbolized.how = recording
            .slow
            .iter()
            .map(|call| judge.how(call, name(call.number), idle(call)))
            .collect();
        let short = recording.timelines.values().flat_map(|timeline| &timeline.short_calls);
        symbolized.short = short
            .map(|ShortCallSample { call, .. }| {
                let name = name(call.number);
                (!judge.may_be_rest(call, name)).then(|| judge.how(call, name, idle(call)))
            })
            .collect();
        symbolized
    }

    /// Returns the language whose runtime had a thread rest while the program's functions waited elsewhere, if one did.
    pub(super) fn runtime_of(&self, thread: u32) -> Option<&'static str> {
        let calls = self.recording.slow.iter().filter(|call| call.thread == thread);
        calls.filter_map(|call| self.stacks.get(&call.stack?)?.rests_for).next()
    }

    /// Returns how the samples of a thread's short calls count.
    pub(super) fn short_of(&self, thread: u32) -> &[Option<TraceMethod>] {
        let before = self.recording.timelines.range(..thread);
        let from: usize = before.map(|(_, timeline)| timeline.short_calls.len()).sum();
        self.short.get(from..).unwrap_or_default()
    }

    fn name(&mut self, id: StackId, names: &dyn Names) {
        if self.stacks.contains_key(&id) {
            return;
        }
        let Some(stack) = item(&self.recording.stacks, id.0) else { return };
        let named = names.frames(self.recording, id);
        let blamed = named.blamed.filter(|at| *at < named.frames.len());
        let blamed = blamed.or_else(|| named.frames.iter().position(|frame| !frame.folded));
        let frames = named.frames.into_iter().map(|frame| self.frame(frame)).collect();
        let named = SymbolizedStack {
            frames,
            blamed,
            is_idle: named.is_idle,
            rests_for: named.rests_for,
            waits_for_answer: named.waits_for_answer,
            end: stack.end,
        };
        self.stacks.insert(id, named);
    }

    /// Returns the index of a frame; texts of others are made harmless.
    fn frame(&mut self, mut frame: Frame) -> u32 {
        let spelt = |text: &mut String| *text = spell(text.as_bytes());
        spelt(&mut frame.name);
        frame.module.as_mut().map(spelt);
        frame.line.as_mut().map(spelt);
        frame.object = frame.object.filter(|at| item(&self.recording.modules, *at).is_some());
        *self.frame_index.entry(frame).or_insert_with_key(|frame| {
            self.frames.push(frame.clone());
            index(self.frames.len() - 1)
        })
    }

    /// Returns the slow calls with how they count.
    pub(super) fn slow(&self) -> impl Iterator<Item = (&'a TracedCall, TraceMethod)> {
        self.recording.slow.iter().zip(self.how.iter().copied())
    }

    /// Returns for how long main threads rested by what they waited for alone, the display, in nanoseconds: no function has a name there
    /// that would say whether it waits for an answer.
    pub(super) fn unnamed_rests_ns(&self) -> u64 {
        let has_name = |at: &u32| {
            let frame = item(&self.frames, *at);
            frame.is_some_and(|frame| !frame.folded && frame.confidence == Confidence::Exact)
        };
        let is_unnamed = |call: &TracedCall| {
            let stack = call.stack.and_then(|stack| self.stacks.get(&stack));
            let target = call.target.and_then(|target| item(&self.recording.targets, target.0));
            matches!(target, Some(recording::Target::Display { .. }))
                && stack.is_some_and(|stack| !stack.is_idle && !stack.frames.iter().any(has_name))
        };
        let rests = self.slow().filter(|(call, how)| *how == TraceMethod::Idle && is_unnamed(call));
        rests.map(|(call, _)| call.wall_ns).fold(0, u64::saturating_add)
    }

    /// Returns the frame to blame of a stack that has names.
    pub(super) fn blamed(&self, stack: StackId) -> Option<u32> {
        let named = self.stacks.get(&stack)?;
        named.frames.get(named.blamed?).copied()
    }

    /// Returns the operation of `io_uring` that ended a call.
    pub(super) fn ring_wait(&self, call: &TracedCall) -> Option<&'a ExplainedWait> {
        self.recording.kernel.waits.get(&(call.thread, call.start_ns))
    }

    /// Returns whether a call waited for an operation of `io_uring` and nothing else.
    pub(super) fn waits_for_ring(&self, call: &TracedCall) -> bool {
        self.ring_wait(call).is_some_and(|wait| wait.kind == RingWaitKind::ForOperation)
    }

    /// Returns whether a call waited for a lock, and not for an answer that another thread receives.
    pub(super) fn waits_for_lock(&self, call: &TracedCall) -> bool {
        let target = || item(&self.recording.targets, call.target?.0);
        self.call_name(call.number).starts_with("futex")
            && !matches!(target(), Some(recording::Target::Socket { .. }))
    }

    /// Returns how long the thread of a call was stopped in it; `None` if nothing is known of that.
    pub(super) fn stopped_ns(&self, call: &TracedCall) -> Option<u64> {
        let timeline = self.recording.timelines.get(&call.thread)?;
        let end_ns = call.start_ns.saturating_add(call.wall_ns);
        let told = timeline
            .stops
            .iter()
            .map(|(from, to)| to.min(&end_ns).saturating_sub(*from.max(&call.start_ns)));
        let sampled = self.share_of(call, |slice| slice.stopped_ns).unwrap_or(0);
        let most = call.wall_ns.saturating_sub(call.queued_ns.unwrap_or(0));
        Some(sampled.max(told.sum()).min(most))
    }

    /// Returns how long the thread of a call was ready in it without a processor: as the backend measured it, or else as the
    /// account of a main thread has it.
    pub(super) fn queued_ns(&self, call: &TracedCall) -> Option<u64> {
        call.queued_ns.or_else(|| self.share_of(call, |slice| slice.ready_ns))
    }

    /// Returns how much of a part of the thread's slices is in a call; of a slice that reaches beyond it, its share.
    fn share_of(&self, call: &TracedCall, part: impl Fn(&TimeSlice) -> u64) -> Option<u64> {
        let slices = &self.recording.timelines.get(&call.thread)?.slices;
        let end_ns = call.start_ns.saturating_add(call.wall_ns);
        let first = slices.partition_point(|slice| slice.end_ns() <= call.start_ns);
        let inside = slices[first..].iter().take_while(|slice| slice.start_ns < end_ns);
        let share = |slice: &TimeSlice| {
            let from_ns = slice.start_ns.max(call.start_ns);
            let common = u128::from(slice.end_ns().min(end_ns).saturating_sub(from_ns));
            let share = u128::from(part(slice)) * common / u128::from(slice.length_ns.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Some(inside.map(share).fold(0, u64::saturating_add).min(call.wall_ns))
    }

    /// Returns how long the thread of a call waited in it for what the call asks for, if that is known.
    pub(super) fn blocked_ns(&self, call: &TracedCall) -> Option<u64> {
        let stopped = self.stopped_ns(call).unwrap_or(0);
        call.blocked_ns().map(|blocked| blocked.saturating_sub(stopped))
    }

    pub(super) fn call_name(&self, number: u32) -> &str {
        self.call_names.get(&number).map_or("", String::as_str)
    }
}

/// Returns the most frequent of these stacks; naming all of them would take longer than the run.
fn frequent_stacks(all: impl Iterator<Item = StackId>) -> Vec<StackId> {
    let mut counts: BTreeMap<StackId, u64> = BTreeMap::new();
    all.for_each(|stack| *counts.entry(stack).or_default() += 1);
    let mut stacks: Vec<(StackId, u64)> = counts.into_iter().collect();
    stacks.sort_by_cached_key(|(_, count)| std::cmp::Reverse(*count));
    stacks.truncate(TIMELINE_STACKS);
    stacks.into_iter().map(|(stack, _)| stack).collect()
}

/// Returns the callers that lost most to a shortage of memory.
fn longest_stacks(memory: &ThreadMemory) -> Vec<StackId> {
    let shares = memory.shares.values().flat_map(|share| &share.stacks);
    let mut stacks: Vec<(StackId, u64)> = shares.map(|(stack, ns)| (*stack, *ns)).collect();
    stacks.sort_by_key(|(stack, ns)| (std::cmp::Reverse(*ns), *stack));
    stacks.truncate(TIMELINE_STACKS);
    stacks.into_iter().map(|(stack, _)| stack).collect()
}

/// Returns an item by an index of the recording.
pub(super) fn item<T>(all: &[T], at: u32) -> Option<&T> {
    all.get(usize::try_from(at).ok()?)
}

/// Adds a part that may not be known to a sum that may not be.
pub(super) fn add(sum: &mut Option<u64>, part: Option<u64>) {
    if let Some(part) = part {
        *sum = Some(sum.unwrap_or(0).saturating_add(part));
    }
}

/// Returns the kind of a target.
pub(super) fn kind_of(target: &recording::Target) -> TargetKind {
    match target {
        recording::Target::File { .. } | recording::Target::Files { .. } => TargetKind::File,
        recording::Target::Socket { .. } | recording::Target::Display { .. } => TargetKind::Socket,
        recording::Target::Lock { .. } => TargetKind::Lock,
        recording::Target::Child(..) => TargetKind::Child,
        recording::Target::Other(_) => TargetKind::Other,
    }
}
