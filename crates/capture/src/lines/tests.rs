//! Lines say what messages say, and can be read back.

use super::*;
use crate::capture::{Capture, CaptureTime, Encoder, RecordFormat};
use wire::write::{Draft, Marshal};

fn body() -> Vec<u8> {
    let mut body = Marshal::new(Endian::Big);
    body.text("a \"b\"\n");
    body.array(8, |entries| {
        entries.pad(8);
        entries.text("key");
        entries.signature("as");
        entries.array(4, |texts| texts.text("one"));
    });
    body.array(1, |bytes| bytes.raw(b"/a/path\0"));
    body.array(1, |bytes| bytes.raw(b"\x01\x02"));
    body.bytes()
}

fn sent(body: &[u8]) -> Vec<u8> {
    Draft {
        signature: "sa{sv}ayay",
        body,
        endian: Endian::Big,
        sender: ":1.2",
        flags: 1,
        ..Draft::to_bus(7, "Look")
    }
    .bytes()
}

#[test]
fn a_line_has_the_header_and_the_body() {
    let body = body();
    let bytes = sent(&body);
    let length = u32::try_from(bytes.len()).unwrap();
    let event = CaptureEvent::Message(CapturedMessage {
        at: CaptureTime(5),
        bus: 0,
        length,
        bytes: &bytes,
    });
    let mut out = Vec::new();
    write(&mut out, &event, Bytes::LeftOut);
    let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(line["type"], "call");
    assert_eq!((&line["serial"], &line["sender"]), (&7.into(), &":1.2".into()));
    assert_eq!(line["flags"], serde_json::json!(["no_reply_expected"]));
    assert_eq!(line["endian"], "big");
    let expected = serde_json::json!(["a \"b\"\n", {"key": ["one"]}, "/a/path", "\\x01\\x02"]);
    assert_eq!(line["body"], expected);
    assert!(line.get("bytes").is_none());
    let shown = text(&event).unwrap();
    assert!(shown.contains("Look (\"a \\\"b\\\"\\n\", {…}"), "{shown}");
}

#[test]
fn a_body_that_breaks_off_says_so_and_the_line_is_json() {
    let body = body();
    let bytes = sent(&body);
    for end in 0..bytes.len() {
        let length = u32::try_from(bytes.len()).unwrap();
        let bytes = &bytes[..end];
        let mut out = Vec::new();
        let event =
            CaptureEvent::Message(CapturedMessage { at: CaptureTime(5), bus: 0, length, bytes });
        write(&mut out, &event, Bytes::Included);
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert!(line["fault"].is_string(), "{end}");
    }
}

#[test]
fn lines_are_read_back() {
    let body = body();
    let bytes = sent(&body);
    let length = u32::try_from(bytes.len()).unwrap();
    let events = [
        CaptureEvent::Bus(Box::new(CapturedBus {
            name: "session".into(),
            ..CapturedBus::default()
        })),
        CaptureEvent::Peer(Box::new(PeerRecord {
            unique: ":1.2".into(),
            pid: Some(3),
            ..PeerRecord::default()
        })),
        CaptureEvent::Message(CapturedMessage {
            at: CaptureTime(u64::MAX / 3),
            bus: 0,
            length,
            bytes: &bytes,
        }),
        CaptureEvent::Dropped(Dropped { count: 4, ..Dropped::default() }),
    ];
    let mut out = Vec::new();
    events.iter().for_each(|event| write(&mut out, event, Bytes::Included));
    let capture = Capture::of(out).unwrap();
    assert_eq!(capture.format(), RecordFormat::Lines);
    assert_eq!(capture.events().collect::<Vec<_>>(), events);
    // And what they were converted from is the same.
    let mut pcapng = Vec::new();
    let mut encoder = Encoder::new(RecordFormat::Pcapng);
    events.iter().for_each(|event| encoder.event(&mut pcapng, event).unwrap());
    assert_eq!(Capture::of(pcapng).unwrap().events().collect::<Vec<_>>(), events);
}

#[test]
fn lines_that_say_nothing_are_counted() {
    let lines = b"{\"event\":\"bus\",\"bus\":0}\nhello\n{\"event\":\"message\",\"at\":1,\"bus\":0,\"length\":1}\n{\"event\":\"peer\",\"at\":1,\"bus\":7,\"unique\":\":1.1\"}\n";
    let capture = Capture::of(lines.to_vec()).unwrap();
    let events: Vec<_> = capture.events().collect();
    assert!(matches!(&events[0], CaptureEvent::Bus(_)), "{events:?}");
    assert!(matches!(&events[1], CaptureEvent::Damaged(damaged) if damaged.what.starts_with("3 ")));
}
