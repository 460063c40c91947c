//! Traffic of D-Bus: any bytes are a message or none, a record or none, and what is read can be written and read again;
//! any text is a filter, a set of rules or a description of interfaces, or none.

use std::sync::OnceLock;

use ::wire::body::{check, values};
use ::wire::known::CheckedHeaders;
use ::wire::write::{Draft, Marshal};
use ::wire::{Endian, MessageType};
use capture::capture::{
    Capture, CaptureEvent, CaptureTime, CapturedMessage, Encoder, RecordFormat,
};
use capture::expect::{self, ExpectRules};
use capture::filter::{Filter, FilterError};
use capture::introspection::Introspection;
use capture::lines;
use capture::model::{Ending, Model, read, rules};

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
    // Whoever has seen its texts reads the same.
    let mut known = CheckedHeaders::default();
    for _ in 0..2 {
        assert_eq!(known.message(bytes).map(|read| read.header), Ok(header));
    }
    let event = CaptureEvent::Message(CapturedMessage {
        at: CaptureTime(1),
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
    let mut encoder = Encoder::new(RecordFormat::Pcapng);
    let mut written = Vec::new();
    let mut count = 0;
    for event in capture.events() {
        encoder.event(&mut written, &event).expect("pcapng has a place for everything");
        count += usize::from(matches!(event, CaptureEvent::Message(_)));
    }
    // Each thing that is read takes bytes of its own, so there is an end to them.
    assert!(count <= bytes.len());
    let again = Capture::of(written).map_or(0, |again| {
        again.events().filter(|event| matches!(event, CaptureEvent::Message(_))).count()
    });
    assert_eq!(count, again);
}

/// Messages of every type, between two programs with names, for filters and rules to choose from.
fn traffic() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let mut body = Marshal::new(Endian::Little);
        ["org.example.A", "", ":1.2"].into_iter().for_each(|text| body.text(text));
        let body = body.bytes();
        let bus = "org.freedesktop.DBus";
        let owned = Draft {
            sender: bus,
            path: "/org/freedesktop/DBus",
            interface: bus,
            member: "NameOwnerChanged",
            signature: "sss",
            body: &body,
            ..Draft::new(MessageType::Signal, 1)
        };
        let call = |serial, member| Draft {
            sender: ":1.1",
            destination: "org.example.A",
            path: "/org/example/Object",
            interface: "org.example.Files",
            member,
            ..Draft::new(MessageType::Call, serial)
        };
        let answer = |serial, reply_serial, kind| Draft {
            sender: ":1.2",
            destination: ":1.1",
            reply_serial,
            error_name: if kind == MessageType::Error { "org.example.Error.Failed" } else { "" },
            ..Draft::new(kind, serial)
        };
        let signal = Draft {
            kind: MessageType::Signal,
            destination: "",
            sender: ":1.2",
            ..call(9, "Changed")
        };
        let drafts = [
            owned,
            call(1, "Open"),
            answer(2, 1, MessageType::Return),
            call(3, "Read"),
            answer(4, 3, MessageType::Error),
            call(5, "Close"),
            signal,
            Draft { destination: "org.example.Nobody", ..call(6, "Open") },
        ];
        let mut encoder = Encoder::new(RecordFormat::Pcap);
        let mut written = Vec::new();
        for (at, draft) in drafts.iter().enumerate() {
            let bytes = draft.bytes();
            let at = CaptureTime(1_000_000_000_000 + 7_000_000 * at as u64);
            let length = u32::try_from(bytes.len()).expect("it is short");
            let message =
                CaptureEvent::Message(CapturedMessage { at, bus: 0, length, bytes: &bytes });
            encoder.event(&mut written, &message).expect("there is one bus");
        }
        let capture = Capture::of(written).expect("it is a record");
        read(capture.events(), |_, _, _| Ending::Continue)
    })
}

/// Reads `bytes` as a filter.
pub fn filter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(chosen) = text.parse::<Filter>() else { return };
    let model = traffic();
    let chooses = |filter: &Filter| model.rows().map(|(at, _)| filter.chooses(model, at)).collect();
    let is: Vec<bool> = chooses(&chosen);
    if chosen.is_every() {
        return assert!(is.into_iter().all(|is| is));
    }
    match format!("not ({text})").parse::<Filter>() {
        Ok(other) => {
            let is_not: Vec<bool> = chooses(&other);
            assert!(is.iter().zip(&is_not).all(|(is, is_not)| is != is_not));
        }
        Err(error) => assert_eq!(error, FilterError::TooDeep),
    }
}

/// Reads `bytes` as rules for a test run, and as one rule by which a program asks for messages.
pub fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(rule) = rules::MatchRule::parse(text) {
        let hears = |interface: &str| {
            rule.hears(&rules::SignalFields {
                is_from: &|name| name == ":1.2",
                interface,
                member: "Changed",
                path: "/org/example/Object",
                arguments: &[Some("x"), None, Some("/a/")],
            })
        };
        let (one, other) = (hears("org.example.Files"), hears("org.example.Other"));
        // The interface makes a difference only to a rule that names one.
        assert!(one == other || rule.interface.is_some());
    }
    let Ok(wanted) = text.parse::<ExpectRules>() else { return };
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let outcomes = expect::check(&wanted, traffic());
    assert_eq!(outcomes.len(), lines.count());
    assert!(outcomes.iter().all(|outcome| !outcome.kept || outcome.examples.is_empty()));
}

/// Reads `bytes` as a description of interfaces.
pub fn introspection(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut known = Introspection::default();
    known.learn(text);
    let names = |known: &Introspection| {
        [MessageType::Call, MessageType::Return, MessageType::Signal]
            .map(|kind| known.arguments(kind, "a.b", "M").to_vec())
    };
    let first = names(&known);
    assert!(known.knows("a.b") || first.iter().all(Vec::is_empty));
    // What is learnt again is the same.
    known.learn(text);
    assert_eq!(names(&known), first);
}
