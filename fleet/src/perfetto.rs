//! Hangs as a trace for Perfetto: a process for each program, a slice for each hang, its calls as annotations.
//!
//! The messages are those of `perfetto/trace`. Times are nanoseconds since 1970 (`BUILTIN_CLOCK_REALTIME`), so that traces of
//! several machines can be joined.

use std::collections::BTreeMap;

use hangs::model::Hang;
use prost::Message;
use report::text::{Charset, visible};

use crate::tables::{PART_NAMES, part_times};

/// `BUILTIN_CLOCK_REALTIME`.
const REALTIME: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`.
const STATE_CLEARED: u32 = 1;
/// The packets of one writer.
const SEQUENCE: u32 = 1;
/// `TYPE_SLICE_BEGIN`.
const SLICE_BEGIN: i32 = 1;
/// `TYPE_SLICE_END`.
const SLICE_END: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    number: Option<u64>,
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    sequence: Option<u32>,
    #[prost(message, optional, tag = "11")]
    event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    clock: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<TracePacket>,
}

fn packet() -> TracePacket {
    TracePacket { sequence: Some(SEQUENCE), ..TracePacket::default() }
}

/// Writes text of others so that no viewer obeys it.
fn shown(text: &str) -> String {
    visible(text, Charset::Unicode).into_owned()
}

fn text(name: &str, text: &str) -> DebugAnnotation {
    DebugAnnotation { name: Some(shown(name)), text: Some(shown(text)), number: None }
}

fn number(name: &str, number: u64) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), number: Some(number), text: None }
}

fn annotations(hang: &Hang) -> Vec<DebugAnnotation> {
    let mut all = vec![number("hang", hang.number), text("cause", hang.cause.word())];
    if !hang.unit.is_empty() {
        all.push(text("unit", &hang.unit));
    }
    for call in &hang.calls {
        let object = call.object.as_ref().map_or(String::new(), |object| {
            let on = if object.device.is_empty() { "" } else { " on " };
            format!(" of {}{on}{}", object.name, object.device)
        });
        all.push(text(&call.call, &format!("{} ns{object}", call.blocked_ns)));
    }
    for (name, time) in PART_NAMES.into_iter().zip(part_times(hang)).filter(|(_, time)| *time > 0) {
        all.push(number(&format!("{name}_ns"), time));
    }
    let stack: Vec<String> = hang
        .frames
        .iter()
        .map(|frame| shown(&format!("{} ({})", frame.function, frame.module)))
        .collect();
    if !stack.is_empty() {
        // A line for each frame.
        all.push(DebugAnnotation { text: Some(stack.join("\n")), ..text("stack", "") });
    }
    all
}

/// Returns a trace of hangs; ui.perfetto.dev and `trace_processor` open it.
///
/// Hangs of one process never overlap; of one that the records say otherwise of, the later one begins where the earlier ended.
#[must_use]
pub fn trace<'a>(hangs: impl IntoIterator<Item = &'a Hang>) -> Vec<u8> {
    let mut processes: BTreeMap<(u32, &str), Vec<&Hang>> = BTreeMap::new();
    for hang in hangs {
        processes.entry((hang.process, &*hang.program)).or_default().push(hang);
    }
    let mut packets = Vec::new();
    for (uuid, ((process, program), mut hangs)) in (1_u64..).zip(processes) {
        let described =
            ProcessDescriptor { pid: i32::try_from(process).ok(), name: Some(shown(program)) };
        let track = TrackDescriptor {
            uuid: Some(uuid),
            process: Some(described),
            ..TrackDescriptor::default()
        };
        // The first packet says that nothing before it is needed.
        let flags = packets.is_empty().then_some(STATE_CLEARED);
        packets.push(TracePacket { track: Some(track), flags, ..packet() });
        hangs.sort_by_key(|hang| hang.started_ns);
        let mut free_ns = 0;
        for hang in hangs {
            let begin_ns = hang.started_ns.max(free_ns);
            let end_ns = hang.started_ns.saturating_add(hang.length_ns).max(begin_ns);
            free_ns = end_ns;
            let function = hang.blamed_frame().map(|frame| format!(" in {}", frame.function));
            let name = format!("{}{}", hang.cause.words(), function.unwrap_or_default());
            let begin = TrackEvent {
                annotations: annotations(hang),
                kind: Some(SLICE_BEGIN),
                track: Some(uuid),
                categories: vec![hang.cause.word().to_owned()],
                name: Some(shown(&name)),
            };
            let end =
                TrackEvent { kind: Some(SLICE_END), track: Some(uuid), ..TrackEvent::default() };
            for (at, event) in [(begin_ns, begin), (end_ns, end)] {
                packets.push(TracePacket {
                    timestamp: Some(at),
                    clock: Some(REALTIME),
                    event: Some(event),
                    ..packet()
                });
            }
        }
    }
    Trace { packets }.encode_to_vec()
}
