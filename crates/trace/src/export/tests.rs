//! Each export is taken apart again by a reader that believes nothing.

use std::collections::HashMap;

use serde_json::Value;

use super::*;
use crate::report::chains::WakeupRow;
use crate::report::example_report as report;
use crate::report::schema::TraceMethod;

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
        user: None,
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
fn threads_of_chains_have_the_states_and_wake_ups_that_the_kernel_s_own_events_would_give_them() {
    let mut report = followed();
    let ms = 1_000_000;
    let main = report.chains[0].thread;
    let row = |thread, at_ms: u64, waited_ms: u64, by: Option<u32>| WakeupRow {
        thread,
        process: thread,
        name: format!("t{thread}"),
        at_ns: at_ms * ms,
        waited_ns: waited_ms * ms,
        uninterruptible: thread == 9002,
        by,
        by_interrupt: by.is_none(),
        ready_ns: ms,
        processor_ns: Some(2 * ms),
    };
    report.wakeups = vec![
        row(main, 154, 134, Some(9001)),
        row(9001, 60, 20, Some(9002)),
        row(9001, 153, 80, Some(9002)),
        row(9002, 152, 130, None),
    ];
    let trace = perfetto::render(&report);
    let (mut switches, mut wakings, mut processors) = (Vec::new(), Vec::new(), Vec::new());
    for packet in bytes(&fields(&trace), 1) {
        for bundle in bytes(&fields(packet), 1) {
            let bundle = fields(bundle);
            processors.push(number(&bundle, 1).unwrap());
            let mut last_ns = 0;
            for event in bytes(&bundle, 2) {
                let event = fields(event);
                let at_ns = number(&event, 1).unwrap();
                assert!(at_ns >= last_ns, "the events of a processor are in the order of time");
                last_ns = at_ns;
                for switch in bytes(&event, 4) {
                    let switch = fields(switch);
                    let [from, state, to] = [2, 4, 6].map(|at| number(&switch, at).unwrap());
                    switches.push((at_ns / ms, from, state, to));
                }
                for waking in bytes(&event, 20) {
                    let woken = number(&fields(waking), 2).unwrap();
                    let by = number(&event, 2).unwrap();
                    wakings.push((at_ns / ms, woken, by, number(&event, 5).unwrap_or(0)));
                }
            }
        }
    }
    processors.sort_unstable();
    assert_eq!(processors, [0, 1, 2], "a processor for each thread");
    let main = u64::from(main);
    wakings.sort_unstable();
    let wanted =
        [(60, 9001, 9002, 0), (152, 9002, 0, 8), (153, 9001, 9002, 0), (154, main, 9001, 0)];
    assert_eq!(wakings, wanted);
    let of = |thread| switches.iter().filter(move |s| s.1 == thread || s.3 == thread).copied();
    let wanted = [
        (40, 9001, 1, 0),
        (61, 0, 0, 9001),
        (63, 9001, 1, 0),
        // From then on it waits, shortly at first, until it is woken.
        (154, 0, 0, 9001),
        (156, 9001, 1, 0),
    ];
    assert_eq!(of(9001).collect::<Vec<_>>(), wanted);
    assert_eq!(of(9002).next(), Some((22, 9002, 2, 0)), "signals could not end it");
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

#[test]
fn pprof_gets_stalls_by_stack_with_every_number_defined() {
    let report = report();
    let profile = pprof(&report);
    let profile = fields(&profile);
    let strings: Vec<&str> =
        bytes(&profile, 6).iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(strings[0], "");
    let text =
        |of: &[Field<'_>], at: u32| strings[usize::try_from(number(of, at).unwrap()).unwrap()];
    let types: Vec<(&str, &str)> = bytes(&profile, 1)
        .iter()
        .map(|kind| fields(kind))
        .map(|kind| (text(&kind, 1), text(&kind, 2)))
        .collect();
    assert_eq!(types[..2], [("stalls", "count"), ("wall", "nanoseconds")]);
    assert_eq!(text(&profile, 14), "wall");
    let numbered = |field: u32| -> HashMap<u64, Vec<Field<'_>>> {
        let messages = bytes(&profile, field).into_iter().map(fields);
        messages.map(|message| (number(&message, 1).unwrap(), message)).collect()
    };
    let (mappings, locations, functions) = (numbered(3), numbered(4), numbered(5));
    assert_eq!(mappings.len(), report.modules.len());
    let main = bytes(&profile, 3)[0];
    assert!(text(&fields(main), 5).ends_with("/kde-open5"), "the program itself comes first");
    let packed = |mut bytes: &[u8]| {
        let mut values = Vec::new();
        while !bytes.is_empty() {
            values.push(varint(&mut bytes));
        }
        values
    };
    let (mut count, mut wall, mut stacks, mut labels) = (0, 0, Vec::new(), Vec::new());
    for sample in bytes(&profile, 2) {
        let sample = fields(sample);
        let values = packed(bytes(&sample, 2)[0]);
        assert_eq!(values.len(), types.len());
        count += values[0];
        wall += values[1];
        let names: Vec<&str> = packed(bytes(&sample, 1)[0])
            .iter()
            .map(|number| {
                let location = &locations[number];
                assert!(
                    super::tests::number(location, 2).is_none_or(|at| mappings.contains_key(&at))
                );
                let line = fields(bytes(location, 4)[0]);
                text(&functions[&super::tests::number(&line, 1).unwrap()], 2)
            })
            .collect();
        stacks.push(names.join(";"));
        labels.extend(
            bytes(&sample, 3)
                .iter()
                .map(|label| fields(label))
                .map(|label| format!("{}={}", text(&label, 1), text(&label, 2))),
        );
    }
    let stalls = || report.slow.iter().filter(|slow| slow.how == TraceMethod::Stall);
    assert_eq!((count, wall), (stalls().count() as u64, stalls().map(|slow| slow.wall_ns).sum()));
    let whole = "fdatasync;fdatasync;KRecentDocument::add(QUrl const&);main";
    assert!(stacks.iter().any(|stack| stack == whole), "{stacks:?}");
    assert!(labels.iter().any(|label| label == "program=kde-open5"), "{labels:?}");
    assert!(labels.iter().any(|label| label.starts_with("target=")), "{labels:?}");
}

/// A frame of sysprof's capture: its type, process, time and content.
fn capture_frames(capture: &[u8]) -> Vec<(u32, u32, u64, &[u8])> {
    let number = |at: &[u8]| u64::from_le_bytes(at[..8].try_into().unwrap());
    let small = |at: &[u8]| u32::from_le_bytes(at[..4].try_into().unwrap());
    let mut rest = &capture[256..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        assert!(len >= 24 && len % 8 == 0, "{len}");
        let (frame, behind) = rest.split_at(len);
        frames.push((small(&frame[16..]), small(&frame[4..]), number(&frame[8..]), &frame[24..]));
        rest = behind;
    }
    frames
}

fn until_zero(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).expect("a text ends");
    std::str::from_utf8(&bytes[..end]).unwrap()
}

#[test]
fn sysprof_gets_marks_and_samples_whose_addresses_have_names() {
    let mut report = report();
    report.began_monotonic_ns = Some(7_000_000_000);
    // Longer than a frame may be, and with a zero byte and a letter of two bytes at a border.
    report.processes[0].command = "ä".repeat(70_000);
    report.frames[0].name = format!("{}\0hidden", "ü".repeat(4_000));
    let capture = sysprof(&report);
    assert_eq!(capture[..6], [0x5e, 0x97, 0xca, 0xfd, 1, 1]);
    let frames = capture_frames(&capture);
    let of = |wanted: u32| frames.iter().filter(move |frame| frame.0 == wanted);
    assert_eq!(of(4).count(), report.processes.len());
    let mut names = HashMap::new();
    for (kind, _, _, content) in &frames {
        if *kind == 7 {
            let mut rest = &content[4..];
            for _ in 0..u32::from_le_bytes(content[..4].try_into().unwrap()) {
                let address = u64::from_le_bytes(rest[..8].try_into().unwrap());
                let name = until_zero(&rest[8..]);
                assert_eq!(names.insert(address, name), None, "a name is told once");
                rest = &rest[8 + name.len() + 1..];
            }
        } else if *kind == 2 {
            let count = usize::from(u16::from_le_bytes([content[0], content[1]]));
            for address in content[8..8 + count * 8].chunks_exact(8) {
                let address = u64::from_le_bytes(address.try_into().unwrap());
                assert!(names.contains_key(&address), "a name comes before what uses it");
            }
        }
    }
    assert!(names.values().any(|name| *name == "fdatasync"));
    let marks: Vec<(&str, &str, u64)> = of(10)
        .map(|(_, _, _, content)| {
            let length = u64::from_le_bytes(content[..8].try_into().unwrap());
            (until_zero(&content[8..]), until_zero(&content[32..]), length)
        })
        .collect();
    assert_eq!(marks.len(), report.slow.len() + report.marks.len());
    assert!(marks.contains(&("stall", "fdatasync", 134_000_000)), "{marks:?}");
    assert!(of(10).all(|frame| frame.2 >= 7_000_000_000), "times are those of the monotonic clock");
    let stalls = report.slow.iter().filter(|slow| slow.how == TraceMethod::Stall);
    let wanted: u64 = stalls.map(|slow| slow.wall_ns.div_ceil(1_000_000)).sum();
    assert_eq!(of(2).count() as u64, wanted, "a sample for each millisecond");
    // However long the stalls are, the capture stays small.
    report.slow[0].how = TraceMethod::Stall;
    report.slow[0].wall_ns = 3_600_000_000_000;
    let capture = sysprof(&report);
    let samples = capture_frames(&capture).iter().filter(|frame| frame.0 == 2).count();
    assert!((50_000..50_100).contains(&samples), "{samples}");
    // Nor do times that no clock has make it large.
    for slow in &mut report.slow {
        (slow.how, slow.at_ns, slow.wall_ns) = (TraceMethod::Stall, u64::MAX, u64::MAX);
    }
    let capture = sysprof(&report);
    let samples = capture_frames(&capture).iter().filter(|frame| frame.0 == 2).count();
    assert!((1..50_100).contains(&samples), "{samples}");
    let _ = pprof(&report);
}
