//! Waits in calls that were each too short to be recorded, of which samples stand for all.

use std::cell::LazyCell;
use std::collections::HashMap;

use super::account::{ShortCallRow, TimeAccount, TimeParts};
use super::schema::{Thread, TraceMethod};
use super::symbolized::{SymbolizedRecording, index};
use crate::call::TargetId;
use crate::recording::Recording;
use crate::syscall::call_name;
use crate::timeline::{ShortCallSample, ThreadTimeline};

/// The call in which a thread waits for operations of `io_uring`.
const RING_WAIT: &str = "io_uring_enter";

/// The samples of one thread between two moments, with how each counts.
pub(super) type ShortCalls<'a> = [(&'a ShortCallSample, TraceMethod)];

/// Returns the samples of a thread, in the order of time; what nobody knows of stays "not explained".
pub(super) fn of_thread<'a>(
    builder: &SymbolizedRecording<'_>,
    thread: u32,
    timeline: &'a ThreadTimeline,
) -> Vec<(&'a ShortCallSample, TraceMethod)> {
    let known = timeline.short_calls.iter().zip(builder.short_of(thread));
    known.filter_map(|(sample, how)| how.map(|how| (sample, how))).collect()
}

fn end_of(sample: &ShortCallSample) -> u64 {
    sample.call.start_ns.saturating_add(sample.call.wall_ns)
}

/// Returns those that ended after the first moment, and not after the second.
pub(super) fn between<'a, 'b>(
    all: &'b ShortCalls<'a>,
    from_ns: u64,
    to_ns: u64,
) -> &'b ShortCalls<'a> {
    let first = all.partition_point(|(sample, _)| end_of(sample) <= from_ns);
    let behind = all.partition_point(|(sample, _)| end_of(sample) <= to_ns);
    all.get(first..behind).unwrap_or_default()
}

/// Adds the waits to what a time went to.
pub(super) fn add(
    builder: &SymbolizedRecording<'_>,
    samples: &ShortCalls<'_>,
    parts: &mut TimeParts,
) {
    for (ShortCallSample { call, blocked_ns, .. }, how) in samples {
        let part = match how {
            TraceMethod::Idle => &mut parts.idle_ns,
            TraceMethod::Child => &mut parts.child_ns,
            TraceMethod::Stall if builder.call_name(call.number) == RING_WAIT => &mut parts.ring_ns,
            TraceMethod::Stall if builder.waits_for_lock(call) => &mut parts.lock_ns,
            TraceMethod::Stall => &mut parts.call_ns,
        };
        *part = part.saturating_add(*blocked_ns);
    }
}

/// Returns how long the waits took that are no rest.
pub(super) fn blocked_ns(samples: &ShortCalls<'_>) -> u64 {
    let stalls = samples.iter().filter(|(_, how)| *how == TraceMethod::Stall);
    stalls.fold(0, |sum, (sample, _)| sum.saturating_add(sample.blocked_ns))
}

/// Calls of one function.
#[derive(Default)]
struct CallGroup {
    count: u64,
    wall_ns: u64,
    targets: HashMap<u32, u64>,
}

/// Sums the waits that are no rest by call and the function to blame, the most time first. Calls and objects have the numbers of the
/// recording until [`renumber`] is called.
pub(super) fn rows(
    builder: &SymbolizedRecording<'_>,
    samples: &ShortCalls<'_>,
    most: usize,
) -> Vec<ShortCallRow> {
    let mut groups: HashMap<(u32, Option<u32>), CallGroup> = HashMap::new();
    let in_ring = LazyCell::new(|| of_operations(builder.recording));
    for (ShortCallSample { call, blocked_ns, count }, how) in samples {
        if *how != TraceMethod::Stall {
            continue;
        }
        let frame = call.stack.and_then(|stack| builder.blamed(stack));
        let group = groups.entry((call.number, frame)).or_default();
        group.count = group.count.saturating_add(u64::from(*count));
        group.wall_ns = group.wall_ns.saturating_add(*blocked_ns);
        let is_ring = builder.call_name(call.number) == RING_WAIT;
        let of_ring = if is_ring { *in_ring } else { None };
        if let Some(target) = of_ring.or(call.target) {
            *group.targets.entry(target.0).or_default() += blocked_ns;
        }
    }
    let row = |((call, frame), group): ((u32, Option<u32>), CallGroup)| {
        let target =
            group.targets.iter().max_by_key(|(target, ns)| (**ns, std::cmp::Reverse(**target)));
        ShortCallRow {
            call,
            target: target.map(|(target, _)| *target),
            more_targets: index(group.targets.len().saturating_sub(1)),
            frame,
            count: group.count,
            wall_ns: group.wall_ns,
        }
    };
    let mut rows: Vec<ShortCallRow> = groups.into_iter().map(row).collect();
    // There are few to choose, which takes less code than the library's sort.
    let mut chosen = Vec::new();
    while chosen.len() < most {
        let key = |at: &usize| rows.get(*at).map(|row| (row.wall_ns, row.call, row.frame));
        let Some(at) = (0..rows.len()).max_by_key(key) else { break };
        chosen.push(rows.swap_remove(at));
    }
    chosen
}

/// Returns what most operations of `io_uring` worked on, by their time. It is what a wait for some of them was for if one process alone
/// has waited for any; single short operations are not recorded.
fn of_operations(recording: &Recording) -> Option<TargetId> {
    let waits = recording.totals.keys();
    let waits = waits.filter(|(_, number)| call_name(*number) == Some(RING_WAIT));
    let mut processes =
        waits.filter_map(|(thread, _)| Some(recording.threads.get(thread)?.process));
    let first = processes.next()?;
    let sums = &recording.kernel.totals;
    let most = sums.iter().max_by_key(|sum| sum.wall_ns)?;
    let all = sums.iter().fold(0_u64, |all, sum| all.saturating_add(sum.wall_ns));
    let is_it = processes.all(|process| process == first) && most.wall_ns.saturating_mul(2) >= all;
    most.target.filter(|_| is_it)
}

fn all_rows(account: &mut TimeAccount) -> impl Iterator<Item = &mut Vec<ShortCallRow>> {
    let of_blocks = account.blocks.iter_mut().map(|block| &mut block.short_calls);
    std::iter::once(&mut account.short_calls).chain(of_blocks)
}

/// Returns the objects that the rows of these threads have, by the recording's numbers.
pub(super) fn targets(threads: &[Thread]) -> impl Iterator<Item = u32> {
    let accounts = threads.iter().filter_map(|thread| thread.account.as_ref());
    let rows = accounts.flat_map(|account| {
        account.blocks.iter().flat_map(|block| &block.short_calls).chain(&account.short_calls)
    });
    rows.filter_map(|row| row.target)
}

/// Gives calls and objects the numbers of the report.
pub(super) fn renumber(
    threads: &mut [Thread],
    call_index: &HashMap<u32, u32>,
    target_index: &HashMap<TargetId, u32>,
) {
    let accounts = threads.iter_mut().filter_map(|thread| thread.account.as_mut());
    for rows in accounts.flat_map(all_rows) {
        rows.retain_mut(|row| {
            row.target = row.target.and_then(|at| target_index.get(&TargetId(at)).copied());
            call_index.get(&row.call).map(|at| row.call = *at).is_some()
        });
    }
}
