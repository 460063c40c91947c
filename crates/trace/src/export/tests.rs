//! Each export is taken apart again by a reader that believes nothing.

use std::collections::HashMap;

use serde_json::Value;

use super::*;
use crate::report::tests::report;

/// A field of a message: its number, and its value.
enum Field<'a> {
    Number(u32, u64),
    Bytes(u32, &'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than 64 bits");
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = u32::try_from(key >> 3).unwrap();
        fields.push(match key & 7 {
            0 => Field::Number(number, varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (inside, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(number, inside)
            }
            1 => {
                let (eight, rest) = bytes.split_first_chunk().expect("a number ends");
                bytes = rest;
                Field::Number(number, u64::from_le_bytes(*eight))
            }
            other => panic!("wire type {other}"),
        });
    }
    fields
}

fn number(of: &[Field<'_>], wanted: u32) -> Option<u64> {
    of.iter().find_map(|field| match field {
        Field::Number(number, value) if *number == wanted => Some(*value),
        _ => None,
    })
}

fn bytes<'a>(of: &[Field<'a>], wanted: u32) -> Vec<&'a [u8]> {
    let one = |field: &Field<'a>| match field {
        Field::Bytes(number, bytes) if *number == wanted => Some(*bytes),
        _ => None,
    };
    of.iter().filter_map(one).collect()
}

#[test]
fn perfetto_gets_tracks_and_slices_that_do_not_overlap() {
    let report = report();
    let trace = perfetto(&report);
    let trace = fields(&trace);
    let mut tracks = Vec::new();
    let mut open: HashMap<u64, u64> = HashMap::new();
    let (mut slices, mut texts) = (0, String::new());
    for packet in bytes(&trace, 1) {
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "each packet is of the one sequence");
        for track in bytes(&packet, 60) {
            tracks.push(number(&fields(track), 1).unwrap());
        }
        for event in bytes(&packet, 11) {
            let at = number(&packet, 8).unwrap();
            let event = fields(event);
            let track = number(&event, 11).unwrap();
            assert!(tracks.contains(&track), "a slice is on a track that was described");
            match number(&event, 9).unwrap() {
                1 => {
                    assert_eq!(open.insert(track, at), None, "slices do not overlap");
                    assert_eq!(bytes(&event, 23).len(), 1);
                    slices += 1;
                    for annotation in bytes(&event, 4) {
                        let annotation = fields(annotation);
                        for text in bytes(&annotation, 6) {
                            texts.push_str(std::str::from_utf8(text).unwrap());
                        }
                    }
                }
                2 => assert!(open.remove(&track).expect("it was begun") <= at),
                other => panic!("an event of type {other}"),
            }
        }
    }
    assert!(open.is_empty());
    assert_eq!(slices, report.slow.len());
    assert_eq!(tracks.len(), report.threads.len() + report.processes.len());
    assert!(texts.contains("KRecentDocument::add(QUrl const&)"));
    let planted = [fields(&[0x08, 0x96, 0x01]), fields(&[0x12, 0x01, b'x'])];
    assert_eq!((number(&planted[0], 1), bytes(&planted[1], 2)), (Some(150), vec![&b"x"[..]]));
}

#[test]
fn firefox_gets_markers_with_stacks_and_samples_in_milliseconds() {
    let report = report();
    let profile: Value = serde_json::from_str(&firefox(&report).unwrap()).unwrap();
    let threads = profile["threads"].as_array().unwrap();
    assert_eq!(threads.len(), report.threads.len());
    let main =
        threads.iter().find(|thread| thread["isMainThread"] == true && thread["tid"] == "10");
    let main = main.unwrap_or_else(|| {
        panic!("{:?}", threads.iter().map(|t| t["tid"].clone()).collect::<Vec<_>>())
    });
    let column = |table: &str, name: &str| main[table][name].as_array().unwrap().clone();
    let length = |table: &str| usize::try_from(main[table]["length"].as_u64().unwrap()).unwrap();
    // Every column is as long as its table says, and every index leads somewhere.
    for (table, names) in [
        ("markers", &["data", "name", "startTime", "endTime", "phase", "category"][..]),
        ("stackTable", &["frame", "prefix"]),
        ("samples", &["stack", "weight"]),
    ] {
        for name in names {
            assert_eq!(column(table, name).len(), length(table), "{table}.{name}");
        }
    }
    for stack in column("samples", "stack") {
        assert!(usize::try_from(stack.as_u64().unwrap()).unwrap() < length("stackTable"));
    }
    for (at, prefix) in column("stackTable", "prefix").iter().enumerate() {
        assert!(prefix.is_null() || usize::try_from(prefix.as_u64().unwrap()).unwrap() < at);
    }
    let total: f64 =
        column("samples", "weight").iter().map(|weight| weight.as_f64().unwrap()).sum();
    // Nine tenths of the stalls' 224.5 ms: the rest was on a CPU.
    assert!((total - 202.05).abs() < 0.1, "{total}");
    assert_eq!(main["samples"]["weightType"], "tracing-ms");
    let kinds: Vec<String> = column("markers", "data")
        .iter()
        .map(|data| data["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "FileIO").count(), 3);
    assert_eq!(kinds.iter().filter(|kind| *kind == "Syscall").count(), 5);
    let with_stack =
        column("markers", "data").iter().filter(|data| data.get("cause").is_some()).count();
    assert_eq!(with_stack, kinds.len());
    let schemas = profile["meta"]["markerSchema"].as_array().unwrap();
    assert!(schemas.iter().any(|schema| schema["name"] == "FileIO"));
}

#[test]
fn lines_for_programs_have_what_the_report_has() {
    let report = report();
    let folded = folded(&report);
    assert!(folded.contains("kde-open5;kde-open5 10;main (kde-open5);KRecentDocument::add(QUrl const&) (libKF5KIOCore.so.5);fdatasync (libc.so.6);fdatasync 134000\n"), "{folded}");
    assert!(!folded.contains("ppoll"), "idle waits are no flame");
    for line in folded.lines() {
        assert!(line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap() > 0);
    }
    let lines = json_lines(&report).unwrap();
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), report.slow.len());
    assert!(
        events.iter().any(|event| event["blamed"] == "KConfig::sync()" && event["how"] == "stall")
    );
    let csv = csv(&report);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns));
    assert_eq!(csv.lines().count(), report.calls.len() + 1);
}

/// A report with a wait that was followed to two other programs.
fn followed() -> crate::report::TraceReport {
    use crate::report::chains::{StallChain, StallHop};
    let mut report = report();
    let main = report.main().unwrap().id;
    let hop = |process: u32| StallHop {
        thread: process,
        process,
        name: format!("p{process}"),
        executable: String::new(),
        command: String::new(),
        unit: None,
        cgroup: String::new(),
        bus_names: Vec::new(),
        from_ns: 20_000_000,
        to_ns: 150_000_000,
        asked_ns: 130_000_000,
        processor_ns: 0,
        ready_ns: 0,
        waited_ns: 130_000_000,
        other_ns: 0,
        waits: 1,
        call: None,
        function: None,
        started_ns: None,
        through: Vec::new(),
    };
    report.chains.push(StallChain {
        thread: main,
        at_ns: 20_000_000,
        wall_ns: 134_000_000,
        hops: vec![hop(main), hop(9001), hop(9002)],
        end: "disk".to_owned(),
        end_ns: 130_000_000,
        has_losses: false,
        sentences: ["the first waited", "the second waited", "the third waited for a disk"]
            .map(str::to_owned)
            .to_vec(),
    });
    report
}

#[test]
fn the_hops_of_a_wait_are_slices_with_arrows_and_markers() {
    let report = followed();
    let trace = perfetto::render(&report);
    let mut flows: HashMap<u64, usize> = HashMap::new();
    for packet in bytes(&fields(&trace), 1) {
        for event in bytes(&fields(packet), 11) {
            for field in fields(event) {
                if let Field::Number(47, flow) = field {
                    *flows.entry(flow).or_default() += 1;
                }
            }
        }
    }
    assert_eq!(flows.len(), 2, "an arrow between each two of three");
    assert!(flows.values().all(|ends| *ends == 2), "{flows:?}");
    let profile = firefox::render(&report).unwrap();
    for sentence in &report.chains[0].sentences {
        assert!(profile.contains(sentence.as_str()), "{sentence}");
    }
}
