//! Makes the account of a main thread's time from its timeline and its calls.

use std::collections::HashMap;

use report::paragraph::counted;

use super::account::{MemoryRow, PageShare, ProcessorShare, TimeAccount, TimeBlock, TimeParts};
use super::schema::TraceMethod;
use super::short_calls::{self, ShortCalls};
use super::spelling::spell;
use super::symbolized::{SymbolizedRecording, item};
use super::verdict::time;
use crate::call::{CallEnd, StackId, TracedCall};
use crate::kernel_work::{MemoryShare, RingWaitKind, ThreadMemory};
use crate::recording::{Backend, Recording, Target, Thread};
use crate::syscall::polls_at_once;
use crate::timeline::{ThreadTimeline, TimeSlice};
use kernelwork::{MemoryTimeline, MemoryWork};

/// The most blocks, functions and files of an account.
const ROWS: usize = 10;
/// The most rows of a block's short calls.
const ROWS_OF_BLOCK: usize = 3;

/// What was recorded of a thread.
struct ThreadRecord<'a> {
    sums: &'a SliceSums<'a>,
    memory: &'a MemoryTimeline,
    /// The stops that were told, in the order of time.
    stops: &'a [(u64, u64)],
    /// In the order of time.
    calls: &'a [(&'a TracedCall, TraceMethod)],
    short: &'a ShortCalls<'a>,
}

impl ThreadRecord<'_> {
    /// Returns what [`SliceSums::between`] does, with the stops that were told.
    fn between(&self, from_ns: u64, to_ns: u64) -> [u64; 5] {
        let [processor, ready, fault, stopped, tracer] = self.sums.between(from_ns, to_ns);
        let common = |(from, to): &(u64, u64)| to.min(&to_ns).saturating_sub(*from.max(&from_ns));
        let first = self.stops.partition_point(|(_, to)| *to <= from_ns);
        let inside = self.stops[first..].iter().take_while(|(from, _)| *from < to_ns);
        let told: u64 = inside.map(common).sum();
        // A tracer that is told of a stop by a signal holds the thread meanwhile.
        [processor, ready, fault, stopped.max(told), tracer.saturating_sub(told)]
    }
}

/// Sums of a timeline up to each slice, for the sums of any time.
struct SliceSums<'a> {
    slices: &'a [TimeSlice],
    before: Vec<[u64; 5]>,
}

fn values(slice: &TimeSlice) -> [u64; 5] {
    [slice.processor_ns, slice.ready_ns, slice.fault_ns, slice.stopped_ns, slice.tracer_ns]
}

impl<'a> SliceSums<'a> {
    fn new(slices: &'a [TimeSlice]) -> SliceSums<'a> {
        let mut sum = [0; 5];
        let mut before = vec![sum];
        for slice in slices {
            sum.iter_mut().zip(values(slice)).for_each(|(sum, part)| *sum += part);
            before.push(sum);
        }
        SliceSums { slices, before }
    }

    fn until(&self, at_ns: u64) -> [u64; 5] {
        let whole = self.slices.partition_point(|slice| slice.end_ns() <= at_ns);
        let mut sum = self.before[whole];
        if let Some(slice) = self.slices.get(whole)
            && at_ns > slice.start_ns
        {
            let part = |part: u64| {
                let share = u128::from(part) * u128::from(at_ns - slice.start_ns);
                u64::try_from(share / u128::from(slice.length_ns.max(1))).unwrap_or(part)
            };
            sum.iter_mut().zip(values(slice)).for_each(|(sum, value)| *sum += part(value));
        }
        sum
    }

    /// Returns the time on a processor, ready, in page faults, stopped, and stopped by a tracer, from one moment to another.
    fn between(&self, from_ns: u64, to_ns: u64) -> [u64; 5] {
        let (from, to) = (self.until(from_ns), self.until(to_ns));
        std::array::from_fn(|at| to[at].saturating_sub(from[at]))
    }
}

fn end_of(call: &TracedCall) -> u64 {
    call.start_ns.saturating_add(call.wall_ns)
}

/// Makes the account of `thread`, whose slow calls are `calls`, in the order of time; `None` where it was not sampled.
pub(super) fn account(
    builder: &SymbolizedRecording<'_>,
    thread: &Thread,
    calls: &[(&TracedCall, TraceMethod)],
    count: u64,
    frame_ns: u64,
) -> Option<TimeAccount> {
    let recording = builder.recording;
    let timeline = recording.timelines.get(&thread.id)?;
    let first = timeline.slices.first()?;
    let end_ns = thread.end_ns.unwrap_or(recording.length_ns);
    let start_ns = thread.start_ns.max(first.start_ns).min(end_ns);
    let sums = SliceSums::new(&timeline.slices);
    let none = MemoryTimeline::default();
    let memory = recording.kernel.memory.get(&thread.id);
    let shortage = memory.map_or(&none, |memory| &memory.timeline);
    let short = short_calls::of_thread(builder, thread.id, timeline);
    let stops = &*apart(timeline.stops.clone());
    let recorded = ThreadRecord { sums: &sums, memory: shortage, stops, calls, short: &short };
    let parts_of = |from: u64, to: u64| parts(builder, &recorded, from, to);
    let short_in = |from: u64, to: u64, most: usize| {
        short_calls::rows(builder, short_calls::between(&short, from, to), most)
    };
    let mut account = TimeAccount {
        wall_ns: end_ns - start_ns,
        parts: parts_of(start_ns, end_ns),
        page_faults: timeline.fault_count,
        unseen: recording.unseen.iter().map(|text| spell(text.as_bytes())).collect(),
        runtime: builder.runtime_of(thread.id).map(str::to_owned),
        ..TimeAccount::default()
    };
    let per_stop = 2 * recording.bias.subtracted_ns;
    let stopped = match recording.backend {
        Backend::Seccomp | Backend::Ptrace => count.saturating_mul(per_stop),
        _ => 0,
    };
    let unknown_ns = account.parts.unknown_ns;
    let tracer_ns = stopped.min(unknown_ns);
    account.parts.tracer_ns += tracer_ns;
    account.parts.unknown_ns -= tracer_ns;

    let waits = &recording.kernel.waits;
    let rings = calls.iter().filter_map(|(call, _)| {
        Some((call.start_ns, waits.get(&(call.thread, call.start_ns))?.kind))
    });
    let turns = ring_turns(&timeline.ring_turns, &rings.collect::<Vec<_>>());
    for (from, to) in between_rests(timeline, &turns, calls, start_ns, end_ns) {
        if to - from < frame_ns / 2 {
            continue;
        }
        let mut parts = parts_of(from, to);
        let share = u128::from(tracer_ns) * u128::from(parts.unknown_ns);
        let tracer = u64::try_from(share / u128::from(unknown_ns.max(1))).unwrap_or(0);
        parts.unknown_ns = parts.unknown_ns.saturating_sub(tracer);
        // Without the tracer it would have been shorter.
        let length = (to - from).saturating_sub(parts.tracer_ns + tracer);
        parts.tracer_ns = 0;
        if length > frame_ns {
            account.missed += 1;
            account.frames = account.frames.saturating_add(length / frame_ns.max(1));
        }
        let is_long = account.blocks.len() < ROWS
            || account.blocks.last().is_some_and(|last| last.wall_ns < length);
        if length < frame_ns / 2 || !is_long {
            continue;
        }
        let samples = timeline.samples.iter().filter(|(at, _)| (from..to).contains(at));
        let function = functions(builder, samples.map(|(_, stack)| *stack)).into_iter().next();
        account.blocks.push(TimeBlock {
            at_ns: from,
            wall_ns: length,
            parts,
            frame: function.map(|(frame, _)| frame),
            frame_ns: function
                .map_or(0, |(_, count)| count.saturating_mul(timeline.sample_ns))
                .min(parts.processor_ns),
            short_calls: short_in(from, to, ROWS_OF_BLOCK),
        });
        account.blocks.sort_by_key(|block| (std::cmp::Reverse(block.wall_ns), block.at_ns));
        account.blocks.truncate(ROWS);
    }
    // Reads from swap are page faults, too, and a few of them are too short to be told.
    let swapped = shortage.count(MemoryWork::SwapIn);
    if account.page_faults > swapped + swapped / 16 && account.parts.fault_ns == 0 {
        account.unseen.push("how long page faults took, apart from the other waits".to_owned());
    }
    account.unseen.extend(callers_not_known(recording, calls, &short, frame_ns));
    let all = functions(builder, timeline.samples.iter().map(|(_, stack)| *stack));
    account.functions = all
        .into_iter()
        .take(ROWS)
        .map(|(frame, count)| ProcessorShare {
            frame,
            count,
            wall_ns: count.saturating_mul(timeline.sample_ns),
        })
        .collect();
    account.pages = pages(builder, timeline);
    account.short_calls = short_in(start_ns, end_ns, ROWS);
    account.short_calls_ns = short_calls::blocked_ns(&short);
    account.memory = memory.map_or_else(Vec::new, |memory| memory_rows(builder, memory));
    Some(account)
}

/// Divides the time from one moment to another.
fn parts(
    builder: &SymbolizedRecording<'_>,
    recorded: &ThreadRecord<'_>,
    from_ns: u64,
    to_ns: u64,
) -> TimeParts {
    let ThreadRecord { memory, calls, short, .. } = recorded;
    let [processor_ns, ready_ns, fault_ns, stopped_ns, tracer_ns] =
        recorded.between(from_ns, to_ns);
    let mut parts = TimeParts {
        processor_ns,
        ready_ns,
        fault_ns,
        stopped_ns,
        tracer_ns,
        ..TimeParts::default()
    };
    // What the kernel did for memory in the thread is that, wherever the thread was.
    let shortage = memory.between(from_ns, to_ns);
    parts.reclaim_ns = shortage.reclaim_processor_ns.saturating_add(shortage.reclaim_blocked_ns);
    parts.swap_ns = shortage.swap_processor_ns.saturating_add(shortage.swap_blocked_ns);
    parts.processor_ns = parts.processor_ns.saturating_sub(shortage.processor_ns());
    let mut shortage_outside_ns = shortage.blocked_ns();
    let mut counted_ns = from_ns;
    // Calls do not overlap, but for those that were sampled, whose ends are not exact.
    let first = calls.partition_point(|(call, _)| end_of(call) <= from_ns);
    for (call, how) in calls[first..].iter().take_while(|(call, _)| call.start_ns < to_ns) {
        let (from, to) = (call.start_ns.max(counted_ns), end_of(call).min(to_ns));
        if to <= from {
            continue;
        }
        counted_ns = to;
        let [ran, ready, fault, stopped, tracer] = recorded.between(from, to);
        let length = to - from;
        // A wait that was sampled, not seen to return, has no counters of its own but zeros. What its slices count stays
        // theirs, or the time would be divided twice.
        let is_whole = !matches!(call.outcome, CallEnd::Unknown | CallEnd::Running);
        let own = |counter: Option<u64>| counter.filter(|&ns| is_whole || ns > 0);
        let ran = own(call.cpu_ns).unwrap_or(ran).min(ran.max(length / 64));
        let ready = own(call.queued_ns).map_or(ready, |queued| queued.min(ready));
        let short_ns = memory.between(from, to).blocked_ns();
        shortage_outside_ns = shortage_outside_ns.saturating_sub(short_ns);
        let blocked = length.saturating_sub(ran + ready + stopped + tracer + short_ns);
        // A wait for a page in a call is the call's.
        parts.fault_ns = parts.fault_ns.saturating_sub(fault);
        let part = match how {
            TraceMethod::Idle => &mut parts.idle_ns,
            TraceMethod::Child => &mut parts.child_ns,
            TraceMethod::Stall if builder.waits_for_ring(call) => &mut parts.ring_ns,
            TraceMethod::Stall if builder.waits_for_lock(call) => &mut parts.lock_ns,
            TraceMethod::Stall => &mut parts.call_ns,
        };
        *part += blocked;
    }
    // A thread that is blocked outside of calls is taken for one that waits for a page.
    parts.fault_ns = parts.fault_ns.saturating_sub(shortage_outside_ns);
    short_calls::add(builder, short_calls::between(short, from_ns, to_ns), &mut parts);
    settle(&mut parts, to_ns.saturating_sub(from_ns));
    parts
}

/// Says of how many stalls nobody knows which function made the call: the program ended before its mappings were read, or
/// while it was in the call, or no look from outside fell into a wait for a lock, which is told as a short call is.
fn callers_not_known(
    recording: &Recording,
    calls: &[(&TracedCall, TraceMethod)],
    short: &ShortCalls<'_>,
    frame_ns: u64,
) -> Option<String> {
    if recording.leaves_out_stacks {
        return None;
    }
    let is_known = |call: &TracedCall| {
        let stack = call.stack.and_then(|id| recording.stacks.get(id.0 as usize));
        stack.and_then(|stack| stack.frames.first()).is_some_and(|frame| frame.module.is_some())
    };
    let locks = short.iter().map(|(sample, how)| (&sample.call, how));
    let locks = locks.filter(|(call, _)| call.wall_ns > frame_ns);
    let all = calls.iter().map(|(call, how)| (*call, how)).chain(locks);
    let unknown = all.filter(|(call, how)| **how == TraceMethod::Stall && !is_known(call));
    let lengths: Vec<u64> = unknown.map(|(call, _)| call.wall_ns).collect();
    let ns = lengths.iter().copied().fold(0, u64::saturating_add);
    (!lengths.is_empty()).then(|| {
        let calls = counted(lengths.len(), "slow call");
        let why = "their callers could not be read in time";
        format!("the functions that made {calls}, {}: {why}", time(ns))
    })
}

/// Makes the parts the whole of `length`: what is missing is not explained, and no sum is more.
fn settle(parts: &mut TimeParts, length: u64) {
    let mut left = length;
    for part in [
        &mut parts.stopped_ns,
        &mut parts.reclaim_ns,
        &mut parts.swap_ns,
        &mut parts.processor_ns,
        &mut parts.ready_ns,
        &mut parts.idle_ns,
        &mut parts.child_ns,
        &mut parts.call_ns,
        &mut parts.ring_ns,
        &mut parts.lock_ns,
        &mut parts.fault_ns,
        &mut parts.tracer_ns,
    ] {
        *part = (*part).min(left);
        left -= *part;
    }
    parts.unknown_ns = left;
}

/// Returns the times between two moments at which the thread had nothing to do, or its event loop looked for events.
fn between_rests(
    timeline: &ThreadTimeline,
    ring_turns: &[u64],
    calls: &[(&TracedCall, TraceMethod)],
    start_ns: u64,
    end_ns: u64,
) -> Vec<(u64, u64)> {
    let rests = calls.iter().filter(|(_, how)| *how != TraceMethod::Stall);
    let mut rests: Vec<(u64, u64)> = rests.map(|(call, _)| (call.start_ns, end_of(call))).collect();
    rests.extend(timeline.turns.iter().chain(ring_turns).map(|at| (*at, *at)));
    // On a busy machine a look for events takes long, too, although it does not wait.
    rests.extend(calls.iter().map(|(call, _)| call).filter_map(|call| {
        let is_look = matches!(call.outcome, CallEnd::Returned(_))
            && polls_at_once(call.number, &call.arguments);
        is_look.then(|| (end_of(call), end_of(call)))
    }));
    // Whoever is stopped while it has nothing to do cannot begin anything either.
    let stops = stops(timeline);
    let mut rests: Vec<(u64, u64)> =
        rests.into_iter().flat_map(|rest| without(rest, &stops)).collect();
    rests.sort_unstable();
    rests.push((end_ns, end_ns));
    let mut from = start_ns;
    let mut between = Vec::new();
    for (rest, until) in rests {
        let to = rest.min(end_ns);
        if to > from {
            between.push((from, to));
        }
        from = from.max(until);
    }
    between
}

/// Returns which looks at a ring were turns of an event loop: a thread whose long waits for the ring before it, or behind it
/// if there were none, were for single operations made each short one for one, too. `waits` are in the order of time.
fn ring_turns(looks: &[u64], waits: &[(u64, RingWaitKind)]) -> Vec<u64> {
    let is_turn = |at: &u64| {
        let behind = waits.partition_point(|(start_ns, _)| start_ns <= at);
        let before = behind.checked_sub(1).and_then(|last| waits.get(last));
        let nearest = before.or_else(|| waits.get(behind));
        nearest.is_none_or(|(_, kind)| *kind != RingWaitKind::ForOperation)
    };
    looks.iter().copied().filter(is_turn).collect()
}

/// Returns when the thread was stopped or frozen, in the order of time and apart from one another.
fn stops(timeline: &ThreadTimeline) -> Vec<(u64, u64)> {
    let slices = timeline.slices.iter().filter(|slice| slice.stopped_ns > slice.length_ns / 2);
    apart(
        slices
            .map(|slice| (slice.start_ns, slice.end_ns()))
            .chain(timeline.stops.clone())
            .collect(),
    )
}

/// Puts times in order, and those together that touch.
fn apart(mut all: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    all.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match apart.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => apart.push((from, to)),
        }
    }
    apart
}

/// Returns what is left of a time without the stops in it, which are in the order of time.
fn without((start_ns, end_ns): (u64, u64), stops: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let first = stops.partition_point(|(_, to)| *to <= start_ns);
    let inside = stops.iter().skip(first).take_while(|(from, _)| *from < end_ns);
    let mut left = Vec::new();
    let mut from_ns = start_ns;
    for (from, to) in inside {
        if *from > from_ns {
            left.push((from_ns, *from));
        }
        from_ns = *to;
    }
    if from_ns <= end_ns {
        left.push((from_ns, end_ns));
    }
    left
}

/// Counts the stacks by the function to blame, the one with most first.
fn functions(
    builder: &SymbolizedRecording<'_>,
    stacks: impl Iterator<Item = StackId>,
) -> Vec<(u32, u64)> {
    let mut counts: HashMap<StackId, u64> = HashMap::new();
    stacks.for_each(|stack| *counts.entry(stack).or_default() += 1);
    let mut functions: HashMap<(&str, Option<&str>), (u32, u64)> = HashMap::new();
    for (stack, count) in counts {
        let Some(frame) = builder.blamed(stack) else { continue };
        let Some(shown) = item(&builder.frames, frame) else { continue };
        let key = (&*shown.name, shown.module.as_deref());
        let known = functions.entry(key).or_insert((frame, 0));
        *known = (known.0.min(frame), known.1 + count);
    }
    let mut functions: Vec<(u32, u64)> = functions.into_values().collect();
    functions.sort_by_key(|(frame, count)| (std::cmp::Reverse(*count), *frame));
    functions
}

/// Returns what a shortage of memory cost a thread, by the kind of work.
fn memory_rows(builder: &SymbolizedRecording<'_>, memory: &ThreadMemory) -> Vec<MemoryRow> {
    let row = |(work, share): (&MemoryWork, &MemoryShare)| {
        let word = match work {
            MemoryWork::Reclaim => "reclaim",
            MemoryWork::Compaction => "compaction",
            MemoryWork::SwapIn => "swap-in",
        };
        let mut frames: HashMap<u32, u64> = HashMap::new();
        for (stack, ns) in &share.stacks {
            let frame = builder.blamed(*stack);
            frame.into_iter().for_each(|frame| *frames.entry(frame).or_default() += ns);
        }
        let frame = frames.into_iter().max_by_key(|(frame, ns)| (*ns, std::cmp::Reverse(*frame)));
        // Of less than half of the time the callers do not tell whose it was.
        let known_ns = share.stacks.values().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
        let frame = frame.filter(|_| known_ns >= share.wall_ns / 2);
        MemoryRow {
            work: word.to_owned(),
            count: share.count,
            wall_ns: share.wall_ns,
            longest_ns: share.longest_ns,
            pages: share.pages,
            swap: share.swap.as_ref().map(|name| spell(name.as_bytes())),
            frame: frame.map(|(frame, _)| frame),
        }
    };
    memory.shares.iter().map(row).collect()
}

/// Counts page faults by file.
fn pages(builder: &SymbolizedRecording<'_>, timeline: &ThreadTimeline) -> Vec<PageShare> {
    let mut files: HashMap<Option<&[u8]>, Vec<StackId>> = HashMap::new();
    for fault in &timeline.faults {
        let target = fault.target.and_then(|at| item(&builder.recording.targets, at.0));
        let path = target.and_then(|target| match target {
            Target::File { path, .. } => Some(&**path),
            _ => None,
        });
        files.entry(path).or_default().push(fault.stack);
    }
    let mut pages: Vec<PageShare> = files
        .into_iter()
        .map(|(file, stacks)| PageShare {
            file: file.map(spell),
            count: stacks.len() as u64,
            frame: functions(builder, stacks.into_iter()).first().map(|(frame, _)| *frame),
        })
        .collect();
    pages.sort_by(|a, b| (b.count, &a.file).cmp(&(a.count, &b.file)));
    pages.truncate(ROWS);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_a_ring_between_waits_for_single_operations_is_no_turn() {
        use RingWaitKind::{ForOperation, ForSeveral, Loop};
        // Nothing is known of the thread's waits: they may all have been short.
        assert_eq!(ring_turns(&[5, 15], &[]), [5, 15]);
        assert_eq!(ring_turns(&[5, 15], &[(10, ForOperation)]), [0; 0]);
        assert_eq!(ring_turns(&[5, 15], &[(10, Loop)]), [5, 15]);
        let waits = [(10, Loop), (20, ForOperation), (30, ForSeveral)];
        assert_eq!(ring_turns(&[5, 15, 25, 35], &waits), [5, 15, 35]);
    }

    #[test]
    fn a_rest_is_divided_by_the_stops_in_it() {
        let stops = [(10, 20), (30, 40)];
        assert_eq!(without((0, 50), &stops), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(without((15, 35), &stops), [(20, 30)]);
        assert_eq!(without((21, 29), &stops), [(21, 29)]);
        assert_eq!(without((12, 18), &stops), [(0, 0); 0]);
        // A moment at which it looked for events is a rest of no length.
        assert_eq!(without((25, 25), &stops), [(25, 25)]);
        let slice = |start_ns, length_ns, stopped_ns| TimeSlice {
            start_ns,
            length_ns,
            stopped_ns,
            ..TimeSlice::default()
        };
        let timeline = ThreadTimeline {
            slices: vec![slice(0, 10, 0), slice(10, 5, 5), slice(15, 5, 4), slice(20, 10, 2)],
            stops: vec![(18, 22), (30, 40)],
            ..ThreadTimeline::default()
        };
        assert_eq!(super::stops(&timeline), [(10, 22), (30, 40)]);
    }
}
