//! Traffic of D-Bus: any bytes are a message or none, a record or none, and what is read can be written and read again.

use unjank_probe::bus::capture::{Capture, Encoder, Event, Format};
use unjank_probe::bus::wire::body::{check, values};
use unjank_probe::bus::{lines, wire};

/// Reads `bytes` as one message.
pub fn message(bytes: &[u8]) {
    let length = wire::length(bytes);
    let Ok(header) = wire::message(bytes) else { return };
    let whole = usize::try_from(length.expect("a message has a length")).unwrap_or(usize::MAX);
    assert_eq!(header.is_cut(), bytes.len() < whole);
    // A body that is checked can be walked through.
    let walked = values(&header).all(|value| value.is_ok());
    if check(&header).is_ok() {
        assert!(walked && !header.is_cut());
    }
    let event = Event::Message(unjank_probe::bus::capture::Message {
        at: unjank_probe::bus::capture::Timestamp(1),
        bus: 0,
        length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        bytes,
    });
    let mut line = Vec::new();
    lines::write(&mut line, &event, lines::Bytes::Included);
    let shown = lines::text(&event).expect("a message has a line");
    assert!(!shown.chars().any(char::is_control));
}

/// Reads `bytes` as a record.
pub fn record(bytes: &[u8]) {
    let Some(capture) = Capture::of(bytes.to_vec()) else { return };
    let mut encoder = Encoder::new(Format::Pcapng);
    let mut written = Vec::new();
    let mut count = 0;
    for event in capture.events() {
        encoder.event(&mut written, &event).expect("pcapng has a place for everything");
        count += usize::from(matches!(event, Event::Message(_)));
    }
    // Each thing that is read takes bytes of its own, so there is an end to them.
    assert!(count <= bytes.len());
    let again = Capture::of(written).map_or(0, |again| {
        again.events().filter(|event| matches!(event, Event::Message(_))).count()
    });
    assert_eq!(count, again);
}
