//! Reads lines of JSON back, as far as they hold the bytes of their messages.

use serde::Deserialize;

use crate::event::{
    CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, Dropped, PeerRecord, RecordingEnd,
};

/// A line.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Bus(CapturedBus),
    Peer(Box<PeerRecord>),
    Dropped(Dropped),
    End(RecordingEnd),
    Damaged {},
    Message { at: u64, bus: u16, length: u32, bytes: Option<String> },
}

/// Returns whether this begins as our lines do.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(br#"{"event":""#)
}

/// Gives each event of the lines to `take`, and returns how many lines are none, or were not taken.
pub(crate) fn events(bytes: &[u8], take: &mut dyn FnMut(&CaptureEvent<'_>) -> bool) -> u64 {
    let mut buses = 0;
    let mut missed = 0;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let written = serde_json::from_slice(line).ok().and_then(|line: Line| {
            let mut raw = Vec::new();
            let event = event(line, &mut raw)?;
            let (bus, is_bus) = match &event {
                CaptureEvent::Bus(bus) => (bus.bus, true),
                CaptureEvent::Peer(peer) => (peer.bus, false),
                CaptureEvent::Dropped(dropped) => (dropped.bus, false),
                CaptureEvent::End(end) => (end.bus, false),
                CaptureEvent::Message(message) => (message.bus, false),
                CaptureEvent::Damaged(_) => return Some(()),
            };
            // A bus is the next one, and everything else is of one that is there.
            if is_bus != (bus == buses) || bus > buses {
                return None;
            }
            buses += u16::from(is_bus);
            take(&event).then_some(())
        });
        missed += u64::from(written.is_none());
    }
    missed
}

fn event(line: Line, raw: &mut Vec<u8>) -> Option<CaptureEvent<'_>> {
    Some(match line {
        Line::Bus(bus) => CaptureEvent::Bus(Box::new(bus)),
        Line::Peer(peer) => CaptureEvent::Peer(peer),
        Line::Dropped(dropped) => CaptureEvent::Dropped(dropped),
        Line::End(end) => CaptureEvent::End(end),
        Line::Damaged {} => CaptureEvent::Damaged(Box::default()),
        Line::Message { at, bus, length, bytes } => {
            *raw = bytes_of(&bytes?)?;
            let stored = u32::try_from(raw.len()).ok()?;
            if stored > length || length > wire::LONGEST {
                return None;
            }
            CaptureEvent::Message(CapturedMessage { at: CaptureTime(at), bus, length, bytes: raw })
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
