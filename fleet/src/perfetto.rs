//! Hangs as a trace for Perfetto: a process for each program, a slice for each hang, its calls as annotations.
//!
//! The messages are those of `perfetto/trace`. Times are nanoseconds since 1970 (`BUILTIN_CLOCK_REALTIME`), so that traces of
//! several machines can be joined.

use std::collections::{BTreeMap, HashSet};

use hangs::model::Hang;
use prost::Message;
use report::text::{Charset, visible};

use crate::tables::{PART_NAMES, part_times};
use crate::viewer::{ViewerFileError, check_length};

/// The last moment of a trace: its readers take times as numbers with a sign.
const LAST_NS: u64 = i64::MAX as u64;

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
struct ClockReading {
    #[prost(uint32, optional, tag = "1")]
    clock: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<ClockReading>,
    #[prost(uint32, optional, tag = "2")]
    primary: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "6")]
    clocks: Option<ClockSnapshot>,
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

/// Returns the bytes of a packet in a trace, which is one packet after the other.
fn encoded(packet: TracePacket) -> Vec<u8> {
    Trace { packets: vec![packet] }.encode_to_vec()
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

/// Gives each annotation a name of its own: of several with one name a reader keeps only one.
fn name_apart(all: &mut [DebugAnnotation]) {
    let mut taken = HashSet::new();
    for annotation in all {
        let name = annotation.name.take().filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "(no name)".to_owned());
        let numbered = (2_u64..).map(|number| format!("{name} ({number})"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
        taken.extend(free.clone());
        annotation.name = free;
    }
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
    for hop in hang.chain.iter().flat_map(|chain| chain.hops.iter().skip(1)) {
        let place = if hop.call.is_empty() { String::new() } else { format!(" in {}", hop.call) };
        all.push(text("then", &format!("{}{place}, {} ns", hop.program, hop.waited_ns)));
    }
    if let Some(chain) = &hang.chain {
        all.push(text("chain_end", &chain.end));
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
    name_apart(&mut all);
    all
}

/// Returns a trace of hangs for ui.perfetto.dev and `trace_processor`.
///
/// Hangs of one process never overlap; of one that the records say otherwise of, the later one begins where the earlier ended.
///
/// # Errors
///
/// [`ViewerFileError::TooLong`]: it would have more than `most` bytes, which are not made; [`MOST_BYTES`] are what readers take.
///
/// [`MOST_BYTES`]: crate::viewer::MOST_BYTES
pub fn trace<'a>(
    hangs: impl IntoIterator<Item = &'a Hang>,
    most: usize,
) -> Result<Vec<u8>, ViewerFileError> {
    // Process IDs are used again.
    let mut processes: BTreeMap<(u32, u64, &str), Vec<&Hang>> = BTreeMap::new();
    let mut first_ns = LAST_NS;
    for hang in hangs {
        let process = (hang.process, hang.process_began_ns, &*hang.program);
        processes.entry(process).or_default().push(hang);
        first_ns = first_ns.min(hang.started_ns);
    }
    // The times of the trace are those of this clock: there is nothing to convert them to.
    let reading = ClockReading { clock: Some(REALTIME), timestamp: Some(first_ns) };
    let clocks = ClockSnapshot { clocks: vec![reading], primary: Some(REALTIME) };
    // The first packet says that nothing before it is needed.
    let flags = Some(STATE_CLEARED);
    let first = TracePacket { clocks: Some(clocks), flags, ..packet() };
    let mut bytes = encoded(first);
    for (uuid, ((process, _, program), mut hangs)) in (1_u64..).zip(processes) {
        let described =
            ProcessDescriptor { pid: i32::try_from(process).ok(), name: Some(shown(program)) };
        let track = TrackDescriptor {
            uuid: Some(uuid),
            process: Some(described),
            ..TrackDescriptor::default()
        };
        bytes.extend(encoded(TracePacket { track: Some(track), ..packet() }));
        hangs.sort_by_key(|hang| hang.started_ns);
        let mut free_ns = 0;
        for hang in hangs {
            let begin_ns = hang.started_ns.max(free_ns).min(LAST_NS);
            let end_ns = hang.ended_ns().min(LAST_NS).max(begin_ns);
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
                bytes.extend(encoded(TracePacket {
                    timestamp: Some(at),
                    clock: Some(REALTIME),
                    event: Some(event),
                    ..packet()
                }));
            }
            if bytes.len() > most {
                return Err(ViewerFileError::TooLong);
            }
        }
    }
    check_length(bytes, most)
}
