//! The threads of chains as the kernel's events of its scheduler, from which Perfetto makes their states and critical paths.
//!
//! Which processor a thread had is not recorded: each has one of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::super::protobuf::Message;
use super::{SEQUENCE, TRACK_DESCRIPTOR, process_track, thread_track};
use crate::report::TraceReport;
use crate::report::chains::WakeupRow;

// `TracePacket`
const FTRACE: u32 = 1;
// `FtraceEventBundle`
const PROCESSOR: u32 = 1;
const EVENT: u32 = 2;
// `FtraceEvent`
const AT: u32 = 1;
const BY: u32 = 2;
const SWITCH: u32 = 4;
const FLAGS: u32 = 5;
const WAKING: u32 = 20;

/// In the flags of an event: it was made in an interrupt.
const IN_INTERRUPT: u64 = 8;
/// The priority of a thread that nobody has given another one.
const PRIORITY: u64 = 120;
/// What a thread leaves its processor for: a wait that signals can end, and one that they cannot.
const INTERRUPTIBLE: u64 = 1;
const UNINTERRUPTIBLE: u64 = 2;
/// It leaves its processor for ever.
const ENDED: u64 = 16;

/// Writes the states of the threads of chains.
pub(super) fn schedule(report: &TraceReport) -> Message {
    let mut threads: BTreeMap<u32, Vec<&WakeupRow>> = BTreeMap::new();
    for row in &report.wakeups {
        threads.entry(row.thread).or_default().push(row);
    }
    let mut trace = names(report, &threads);
    let packet = |message: Message| message.number(SEQUENCE, 1);
    for (processor, (thread, rows)) in (0..).zip(threads) {
        let known = report.threads.iter().find(|known| known.id == thread);
        let events = events(&rows, known.and_then(|known| known.end_ns));
        let bundle = events
            .into_iter()
            .fold(Message::default().number(PROCESSOR, processor), |bundle, (at_ns, event)| {
                bundle.message(EVENT, event.number(AT, at_ns))
            });
        trace = trace.message(1, packet(Message::default().message(FTRACE, bundle)));
    }
    trace
}

/// Names the threads and processes that are not recorded themselves.
fn names(report: &TraceReport, threads: &BTreeMap<u32, Vec<&WakeupRow>>) -> Message {
    let mut trace = Message::default();
    let mut processes: BTreeSet<u32> = report.processes.iter().map(|process| process.id).collect();
    let known: BTreeSet<u32> = report.threads.iter().map(|thread| thread.id).collect();
    let packet =
        |track: Message| Message::default().message(TRACK_DESCRIPTOR, track).number(SEQUENCE, 1);
    let hops = report.chains.iter().flat_map(|chain| &chain.hops);
    for row in threads.values().filter_map(|rows| rows.first()) {
        // A thread of the kernel has none.
        if row.process != 0 && processes.insert(row.process) {
            let program = hops.clone().find(|hop| hop.process == row.process);
            let name = program.and_then(|hop| hop.executable.rsplit('/').next());
            let name = name.filter(|name| !name.is_empty()).unwrap_or(&row.name);
            let process = Message::default().number(1, u64::from(row.process)).text(6, name);
            let track =
                Message::default().number(1, process_track(row.process)).message(3, process);
            trace = trace.message(1, packet(track));
        }
        if !known.contains(&row.thread) {
            let thread = Message::default()
                .number(1, u64::from(row.process))
                .number(2, u64::from(row.thread))
                .text(5, &row.name);
            let track = Message::default().number(1, thread_track(row.thread)).message(4, thread);
            trace = trace.message(1, packet(track));
        }
    }
    trace
}

/// Returns the events of one thread, in the order of time; `end_ns` is when it ended, if it did and that is known.
fn events(rows: &[&WakeupRow], end_ns: Option<u64>) -> Vec<(u64, Message)> {
    let mut events = Vec::new();
    // Since when it has no processor, once that is known.
    let mut left_ns = None;
    for (at, row) in rows.iter().copied().enumerate() {
        let begin_ns = row.at_ns.saturating_sub(row.waited_ns);
        if left_ns.is_none() && row.waited_ns > 0 {
            events.push((begin_ns, leaves(row, waits_as(row))));
        }
        // Of whom it was woken is not always known; a state without that says as much.
        if row.by.is_some() || row.by_interrupt {
            events.push((row.at_ns, waking(row)));
        }
        let next = rows.get(at + 1).copied();
        let next_ns = next.map_or(u64::MAX, |next| next.at_ns.saturating_sub(next.waited_ns));
        let next_ns = next_ns.max(row.at_ns);
        let from_ns = row.at_ns.saturating_add(row.ready_ns).min(next_ns);
        events.push((from_ns, comes(row)));
        let end_ns = row.processor_ns.map(|ns| from_ns.saturating_add(ns).min(next_ns));
        left_ns = end_ns.or(next.map(|_| next_ns));
        if let Some(left_ns) = left_ns {
            // What it leaves the processor for is known of the next wait.
            events.push((left_ns, leaves(row, waits_as(next.unwrap_or(row)))));
        }
    }
    if let (None, Some(end_ns), Some(last)) = (left_ns, end_ns, rows.last()) {
        let from_ns = events.last().map_or(0, |(at_ns, _)| *at_ns);
        events.push((end_ns.max(from_ns), leaves(last, ENDED)));
    }
    events
}

fn waits_as(row: &WakeupRow) -> u64 {
    if row.uninterruptible { UNINTERRUPTIBLE } else { INTERRUPTIBLE }
}

fn leaves(row: &WakeupRow, state: u64) -> Message {
    let switch = Message::default()
        .text(1, &row.name)
        .number(2, u64::from(row.thread))
        .number(3, PRIORITY)
        .number(4, state)
        .text(5, "idle")
        .number(6, 0)
        .number(7, PRIORITY);
    Message::default().number(BY, u64::from(row.thread)).message(SWITCH, switch)
}

fn comes(row: &WakeupRow) -> Message {
    let switch = Message::default()
        .text(1, "idle")
        .number(2, 0)
        .number(3, PRIORITY)
        .number(4, 0)
        .text(5, &row.name)
        .number(6, u64::from(row.thread))
        .number(7, PRIORITY);
    Message::default().number(BY, 0).message(SWITCH, switch)
}

fn waking(row: &WakeupRow) -> Message {
    let waking = Message::default()
        .text(1, &row.name)
        .number(2, u64::from(row.thread))
        .number(3, PRIORITY)
        .number(4, 1);
    let event = Message::default().number(BY, u64::from(row.by.unwrap_or(0)));
    let event = if row.by_interrupt { event.number(FLAGS, IN_INTERRUPT) } else { event };
    event.message(WAKING, waking)
}
