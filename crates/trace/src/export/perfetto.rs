//! Perfetto's trace: a track a process and a thread, calls as slices with their arguments and stack.
//!
//! The numbers of the fields are those of `perfetto_trace.proto`.

mod schedule;

use std::collections::BTreeMap;

use super::protobuf::Message;
use crate::report::TraceReport;
use crate::report::schema::{Slow, TraceMethod};

// `TracePacket`
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;
// `TrackEvent`
const ANNOTATION: u32 = 4;
const KIND: u32 = 9;
const TRACK: u32 = 11;
const CATEGORY: u32 = 22;
const NAME: u32 = 23;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;

/// Arrows from one slice to another: both have the same number.
const FLOW: u32 = 47;

/// Numbers of tracks: threads and processes share the kernel's numbers, but not these.
fn process_track(id: u32) -> u64 {
    1 << 40 | u64::from(id)
}

fn thread_track(id: u32) -> u64 {
    2 << 40 | u64::from(id)
}

/// Of a hop of a chain; a chain has fewer than 256.
fn hop_track(chain: usize, hop: usize) -> u64 {
    3 << 40 | (chain as u64) << 8 | hop as u64 & 255
}

/// Writes the chains: below the process that waited a track for each hop, with arrows to the next one.
fn chains(report: &TraceReport) -> Message {
    let mut trace = Message::default();
    let packet = |message: Message| message.number(SEQUENCE, 1);
    for (number, chain) in report.chains.iter().enumerate() {
        let process = chain.hops.first().map_or(0, |hop| hop.process);
        for (at, (hop, sentence)) in chain.hops.iter().zip(&chain.sentences).enumerate() {
            let track = hop_track(number, at);
            let described = Message::default()
                .number(1, track)
                .text(2, &format!("wait {}: {} {}", number + 1, hop.name, hop.thread))
                .number(5, process_track(process));
            trace =
                trace.message(1, packet(Message::default().message(TRACK_DESCRIPTOR, described)));
            let mut begin = Message::default()
                .text(CATEGORY, "chain")
                .text(NAME, sentence)
                .number(KIND, SLICE_BEGIN)
                .number(TRACK, track);
            if at > 0 {
                begin = begin.fixed(FLOW, hop_track(number, at - 1));
            }
            if at + 1 < chain.hops.len() {
                begin = begin.fixed(FLOW, track);
            }
            let ended = Message::default().number(KIND, SLICE_END).number(TRACK, track);
            for (at, event) in [(hop.from_ns, begin), (hop.to_ns, ended)] {
                let timed = Message::default().number(TIMESTAMP, at).message(TRACK_EVENT, event);
                trace = trace.message(1, packet(timed));
            }
        }
    }
    trace
}

/// Of one of several operations of `io_uring` at a time, in a process.
fn operation_track(process: u32, lane: usize) -> u64 {
    4 << 40 | u64::from(process) << 8 | lane as u64 & 255
}

/// Writes the operations of `io_uring`: below their process as many tracks as there were operations at a time.
fn operations(report: &TraceReport) -> Message {
    let mut trace = Message::default();
    let packet = |message: Message| message.number(SEQUENCE, 1);
    // When the last slice of each track ends.
    let mut ends: BTreeMap<(u32, usize), u64> = BTreeMap::new();
    for operation in &report.operations {
        let process = operation.process;
        let is_free =
            |lane: &usize| ends.get(&(process, *lane)).is_none_or(|end| *end <= operation.at_ns);
        // On top of more than these at a time no track is legible.
        let Some(lane) = (0..64).find(is_free) else { continue };
        let track = operation_track(process, lane);
        let end = operation.at_ns.saturating_add(operation.wall_ns);
        if ends.insert((process, lane), end).is_none() {
            let described = Message::default()
                .number(1, track)
                .text(2, &format!("io_uring {}", lane + 1))
                .number(5, process_track(process));
            trace =
                trace.message(1, packet(Message::default().message(TRACK_DESCRIPTOR, described)));
        }
        let mut begin = Message::default()
            .text(CATEGORY, "io_uring")
            .text(NAME, &operation.name)
            .number(KIND, SLICE_BEGIN)
            .number(TRACK, track);
        if let Some(target) = operation.target.and_then(|at| report.target_name(at)) {
            begin =
                begin.message(ANNOTATION, Message::default().text(10, "target").text(6, &target));
        }
        let ended = Message::default().number(KIND, SLICE_END).number(TRACK, track);
        for (at, event) in [(operation.at_ns, begin), (end, ended)] {
            let timed = Message::default().number(TIMESTAMP, at).message(TRACK_EVENT, event);
            trace = trace.message(1, packet(timed));
        }
    }
    trace
}

/// Writes the trace; ui.perfetto.dev opens it.
#[must_use]
pub fn render(report: &TraceReport) -> Vec<u8> {
    let mut trace = Message::default();
    let packet = |message: Message| message.number(SEQUENCE, 1);
    for (number, process) in report.processes.iter().enumerate() {
        let described = Message::default()
            .number(1, u64::from(process.id))
            .text(2, &process.command)
            .text(6, report.program(process.id));
        let track = Message::default().number(1, process_track(process.id)).message(3, described);
        // The first packet says that nothing before it is needed.
        let first = if number == 0 {
            Message::default().number(SEQUENCE_FLAGS, 1)
        } else {
            Message::default()
        };
        trace = trace.message(1, packet(first.message(TRACK_DESCRIPTOR, track)));
    }
    for thread in &report.threads {
        let described = Message::default()
            .number(1, u64::from(thread.process))
            .number(2, u64::from(thread.id))
            .text(5, &thread.name);
        let track = Message::default()
            .number(1, thread_track(thread.id))
            .number(5, process_track(thread.process))
            .message(4, described);
        trace = trace.message(1, packet(Message::default().message(TRACK_DESCRIPTOR, track)));
    }
    // Slices of one track must not overlap: a call that seems to reach into the next ends where that begins.
    let mut next: Vec<Option<u64>> = vec![None; report.slow.len()];
    let mut later: Vec<Option<u64>> = vec![None; report.threads.len()];
    for (at, slow) in report.slow.iter().enumerate().rev() {
        if let Some(seen) = later.get_mut(slow.thread as usize) {
            next[at] = seen.replace(slow.at_ns);
        }
    }
    for (slow, next) in report.slow.iter().zip(next) {
        let Some(thread) = report.threads.get(slow.thread as usize) else { continue };
        let track = thread_track(thread.id);
        let end = slow.at_ns.saturating_add(slow.wall_ns).min(next.unwrap_or(u64::MAX));
        let begin = event(report, slow).number(KIND, SLICE_BEGIN).number(TRACK, track);
        let ended = Message::default().number(KIND, SLICE_END).number(TRACK, track);
        for (at, event) in [(slow.at_ns, begin), (end, ended)] {
            let timed = Message::default().number(TIMESTAMP, at).message(TRACK_EVENT, event);
            trace = trace.message(1, packet(timed));
        }
    }
    let chains = chains(report).append(schedule::schedule(report));
    trace.append(operations(report)).append(chains).into_bytes()
}

/// Says what a call was.
fn event(report: &TraceReport, slow: &Slow) -> Message {
    let class = report.calls.get(slow.call as usize).map_or("other", |kind| kind.class.word());
    let how = match slow.how {
        TraceMethod::Stall => "stall",
        TraceMethod::Idle => "idle",
        TraceMethod::Child => "child",
    };
    let text = |message: Message, name: &str, text: &str| {
        message.message(ANNOTATION, Message::default().text(10, name).text(6, text))
    };
    let number = |message: Message, name: &str, value: u64| {
        message.message(ANNOTATION, Message::default().text(10, name).number(3, value))
    };
    let mut event = Message::default()
        .text(CATEGORY, class)
        .text(CATEGORY, how)
        .text(NAME, report.call_name(slow.call));
    event = text(event, "call", &slow.arguments);
    if let Some(target) = slow.target.and_then(|at| report.target_name(at)) {
        event = text(event, "target", &target);
    }
    if let Some(operation) = report.operation_text(slow) {
        event = text(event, "operation", &operation);
    }
    if let Some(error) = &slow.error {
        event = text(event, "error", error);
    }
    let parts =
        [("cpu_ns", slow.cpu_ns), ("queued_ns", slow.queued_ns), ("stopped_ns", slow.stopped_ns)];
    for (name, value) in parts {
        if let Some(value) = value {
            event = number(event, name, value);
        }
    }
    let mut frames: Vec<String> =
        super::outermost_first(report, slow).map(super::frame_text).collect();
    if !frames.is_empty() {
        frames.reverse();
        event = text(event, "stack", &frames.join("\n"));
    }
    event
}
