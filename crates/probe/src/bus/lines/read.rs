//! Reads lines of JSON back, as far as they hold the bytes of their messages.

use serde::Deserialize;

use crate::bus::capture::{
    Bus, Dropped, Encoder, Event, Format, Message, Peer, RecordingEnd, Timestamp,
};
use crate::bus::wire;

/// A line.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Bus(Bus),
    Peer(Box<Peer>),
    Dropped(Dropped),
    End(RecordingEnd),
    Damaged {},
    Message { at: u64, bus: u16, length: u32, bytes: Option<String> },
}

/// Says whether this begins as our lines do.
pub(in crate::bus) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(br#"{"event":""#)
}

/// Returns the record that the lines are, as pcapng, and how many lines it does not have.
pub(in crate::bus) fn rewritten(bytes: &[u8]) -> (Vec<u8>, u64) {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Format::Pcapng);
    encoder.begin(&mut out);
    let mut buses = 0;
    let mut missed = 0;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let written = serde_json::from_slice(line).ok().and_then(|line: Line| {
            let mut raw = Vec::new();
            let event = event(line, &mut raw)?;
            let (bus, is_bus) = match &event {
                Event::Bus(bus) => (bus.bus, true),
                Event::Peer(peer) => (peer.bus, false),
                Event::Dropped(dropped) => (dropped.bus, false),
                Event::End(end) => (end.bus, false),
                Event::Message(message) => (message.bus, false),
                Event::Damaged(_) => return Some(()),
            };
            // A bus is the next one, and everything else is of one that is there.
            if is_bus != (bus == buses) || bus > buses {
                return None;
            }
            buses += u16::from(is_bus);
            encoder.event(&mut out, &event).ok()
        });
        missed += u64::from(written.is_none());
    }
    (out, missed)
}

fn event(line: Line, raw: &mut Vec<u8>) -> Option<Event<'_>> {
    Some(match line {
        Line::Bus(bus) => Event::Bus(Box::new(bus)),
        Line::Peer(peer) => Event::Peer(peer),
        Line::Dropped(dropped) => Event::Dropped(dropped),
        Line::End(end) => Event::End(end),
        Line::Damaged {} => Event::Damaged(Box::default()),
        Line::Message { at, bus, length, bytes } => {
            *raw = bytes_of(&bytes?)?;
            let stored = u32::try_from(raw.len()).ok()?;
            if stored > length || length > wire::LONGEST {
                return None;
            }
            Event::Message(Message { at: Timestamp(at), bus, length, bytes: raw })
        }
    })
}

/// Reads hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
