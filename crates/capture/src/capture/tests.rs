//! Records that we write are read back the same, and damaged ones as far as they go.

use super::*;
use wire::MessageType;
use wire::write::Draft;

fn signal(serial: u32) -> Vec<u8> {
    Draft { path: "/a", member: "M", interface: "a.b", ..Draft::new(MessageType::Signal, serial) }
        .bytes()
}

fn events(messages: &[Vec<u8>]) -> Vec<CaptureEvent<'_>> {
    let bus = |bus, name: &str| {
        CaptureEvent::Bus(Box::new(CapturedBus { name: name.into(), ..CapturedBus::numbered(bus) }))
    };
    let mut events = vec![bus(0, "session"), bus(1, "system")];
    events.push(CaptureEvent::Peer(Box::new(PeerRecord {
        at: 5,
        bus: 1,
        unique: ":1.1".into(),
        names: vec!["a.b".into()],
        pid: Some(7),
        exe: Some("/bin/ä".into()),
        ..PeerRecord::default()
    })));
    for (at, bytes) in (1_000_000_000_123..).zip(messages) {
        let length = u32::try_from(bytes.len()).unwrap();
        events.push(CaptureEvent::Message(CapturedMessage {
            at: CaptureTime(at),
            bus: u16::from(at % 2 == 1),
            length,
            bytes,
        }));
    }
    events.push(CaptureEvent::Dropped(Dropped { bus: 1, count: 3, bytes: 99, from: 6, to: 7 }));
    events
}

fn written(format: RecordFormat, events: &[CaptureEvent<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(format);
    events.iter().for_each(|event| encoder.event(&mut out, event).unwrap());
    out
}

fn messages(capture: &Capture) -> Vec<Vec<u8>> {
    let taken = capture.events().filter_map(|event| match event {
        CaptureEvent::Message(message) => Some(message.bytes.to_vec()),
        _ => None,
    });
    taken.collect()
}

#[test]
fn pcapng_keeps_everything() {
    let sent: Vec<_> = (1..20).map(signal).collect();
    let events = events(&sent);
    let capture = Capture::of(written(RecordFormat::Pcapng, &events)).unwrap();
    assert_eq!(capture.format(), RecordFormat::Pcapng);
    assert_eq!(capture.events().collect::<Vec<_>>(), events);
}

#[test]
fn pcap_keeps_the_messages_of_one_bus() {
    let sent: Vec<_> = (1..20).map(signal).collect();
    for format in [RecordFormat::Pcap, RecordFormat::Binary] {
        let of_one: Vec<_> = events(&sent)
            .into_iter()
            .map(|event| match event {
                CaptureEvent::Message(message) => {
                    CaptureEvent::Message(CapturedMessage { bus: 0, ..message })
                }
                event => event,
            })
            .collect();
        let capture = Capture::of(written(format, &of_one)).unwrap();
        assert_eq!((capture.format(), messages(&capture)), (format, sent.clone()));
    }
    let mut encoder = Encoder::new(RecordFormat::Pcap);
    let written = events(&sent).iter().try_for_each(|event| encoder.event(&mut Vec::new(), event));
    assert_eq!(written, Err(EncodeError::AnotherBus));
}

#[test]
fn a_file_that_was_cut_off_is_read_up_to_there() {
    let sent: Vec<_> = (1..5).map(signal).collect();
    for format in [RecordFormat::Pcapng, RecordFormat::Pcap, RecordFormat::Binary] {
        let of_one: Vec<_> = events(&sent)
            .into_iter()
            .filter(|event| !matches!(event, CaptureEvent::Message(m) if m.bus == 1))
            .collect();
        let whole = written(format, &of_one);
        let all = messages(&Capture::of(whole.clone()).unwrap());
        assert_eq!(all.len(), 2);
        for end in 28..whole.len() {
            let Some(capture) = Capture::of(whole[..end].to_vec()) else { continue };
            let read = messages(&capture);
            assert_eq!(read[..], all[..read.len()], "{format:?} {end}");
            assert!(capture.events().count() <= of_one.len() + 1);
        }
    }
}

#[test]
fn what_follows_a_damage_is_read() {
    let sent: Vec<_> = (1..9).map(signal).collect();
    for format in [RecordFormat::Pcapng, RecordFormat::Pcap] {
        let of_one: Vec<_> = events(&sent)
            .into_iter()
            .filter(|event| !matches!(event, CaptureEvent::Message(m) if m.bus == 1))
            .collect();
        let whole = written(format, &of_one);
        let all = messages(&Capture::of(whole.clone()).unwrap());
        // The length of the second message's record.
        let first = whole.windows(all[0].len()).position(|bytes| bytes == all[0]).unwrap();
        let mut broken = whole.clone();
        let stride = whole.windows(all[1].len()).position(|bytes| bytes == all[1]).unwrap() - first;
        let length_at =
            if format == RecordFormat::Pcapng { first + stride - 24 } else { first + stride - 8 };
        broken[length_at + 3] = 0x7f;
        let capture = Capture::of(broken).unwrap();
        let read = messages(&capture);
        assert_eq!(read.len(), all.len() - 1, "{format:?}");
        assert_eq!((&read[0], &read[1]), (&all[0], &all[2]));
        let damages = capture.events().filter(|event| matches!(event, CaptureEvent::Damaged(_)));
        assert_eq!(damages.count(), 1);
    }
}

#[test]
fn what_is_no_record_is_none() {
    assert!(Capture::of(Vec::new()).is_none());
    assert!(Capture::of(b"hello, this is text".to_vec()).is_none());
    assert!(matches!(Capture::open("/nowhere".as_ref()), Err(CaptureError::Read { .. })));
}
