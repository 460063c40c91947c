//! Stores that nobody's recorder wrote: what others put there is told or left out, and never becomes something else.

use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use hangs::model::{CallObject, CallShare, Hang, HangCause, HangRecord, ObjectKind};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prost::Message;
use unjank_export::identity::RecordSource;
use unjank_export::otlp::events::request;
use unjank_export::viewer::{MOST_BYTES, ViewerFileError};
use unjank_export::{perfetto, pprof};

use crate::fixture::{DAY_NS, Place, SECOND, files, hang, period, refusal, stdout};

fn row(lake: &Path, table: &str) -> RecordBatch {
    let file = fs::File::open(&files(&lake.join(table))[0]).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.map(Result::unwrap).next().unwrap()
}

fn export(place: &Place) {
    stdout(&place.run(&["parquet", "--to", place.path("lake").to_str().unwrap()]));
}

#[test]
fn the_call_that_is_named_and_its_object_are_of_one_share() {
    let place = Place::new();
    let mut hang = hang(1, DAY_NS);
    hang.cause = HangCause::OtherProgram;
    let object = CallObject {
        kind: ObjectKind::Socket,
        name: "tracker".to_owned(),
        file_system: String::new(),
        device: String::new(),
    };
    let share = |call: &str, blocked_ns, object| CallShare {
        call: call.to_owned(),
        blocked_ns,
        seen: 1,
        object,
    };
    hang.calls = vec![
        share("futex", 300_000_000, None),
        share("recvmsg", 300_000_000, Some(object)),
        share("read", 1000, None),
    ];
    place.record(&[HangRecord::Hang(Box::new(hang))]);
    export(&place);
    let rows = row(&place.path("lake"), "hangs");
    let text =
        |name: &str| rows.column_by_name(name).unwrap().as_string::<i32>().value(0).to_owned();
    assert_eq!([text("call"), text("object")], ["recvmsg", "tracker"]);
    let more = rows.column_by_name("more_calls").unwrap().as_list::<i32>().value(0);
    let more = more.as_struct().column(0).as_string::<i32>().clone();
    assert_eq!(more.iter().flatten().collect::<Vec<_>>(), ["futex", "read"]);
}

#[test]
fn a_program_without_a_name_is_not_the_recorder_itself() {
    let place = Place::new();
    let mut watched = period(DAY_NS);
    watched.programs[0].program = String::new();
    place.record(&[HangRecord::Watched(watched)]);
    export(&place);
    let rows = row(&place.path("lake"), "watched");
    let programs = rows.column_by_name("program").unwrap().as_string::<i32>().clone();
    let watched = rows.column_by_name("watched_us").unwrap().as_primitive::<Int64Type>().clone();
    assert_eq!(programs.iter().collect::<Vec<_>>(), [None, Some("")]);
    assert_eq!(watched.values(), &[60_000_000, 60_000_000]);
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, tag = "10")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, repeated, tag = "4")]
    annotations: Vec<Annotation>,
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Clocks {
    #[prost(uint32, tag = "2")]
    primary: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "6")]
    clocks: Option<Clocks>,
    #[prost(uint64, tag = "8")]
    timestamp: u64,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

fn trace(hangs: &[Hang]) -> Vec<Packet> {
    Trace::decode(&*perfetto::trace(hangs, MOST_BYTES).unwrap()).unwrap().packets
}

#[test]
fn a_trace_says_of_which_clock_its_times_are_and_none_is_beyond_what_a_reader_takes() {
    let mut late = hang(1, u64::MAX);
    late.length_ns = u64::MAX;
    let mut endless = hang(2, DAY_NS);
    endless.length_ns = u64::MAX;
    endless.process = 2;
    let packets = trace(&[late, endless]);
    assert_eq!(packets[0].clocks, Some(Clocks { primary: 1 }));
    let times: Vec<u64> =
        packets.iter().filter(|packet| packet.event.is_some()).map(|p| p.timestamp).collect();
    let last = i64::MAX as u64;
    assert_eq!(times, [DAY_NS, last, last, last]);
}

#[test]
fn a_process_whose_id_is_used_again_has_a_track_of_its_own() {
    let mut first = hang(1, DAY_NS);
    (first.process_began_ns, first.length_ns) = (DAY_NS - SECOND, 60 * SECOND);
    let mut second = hang(2, DAY_NS + SECOND);
    second.process_began_ns = DAY_NS;
    let packets = trace(&[first, second]);
    let begun = packets.iter().filter(|p| p.event.as_ref().is_some_and(|event| event.kind == 1));
    let begun: Vec<(u64, u64)> =
        begun.map(|p| (p.timestamp, p.event.as_ref().unwrap().track)).collect();
    assert_eq!(begun, [(DAY_NS, 1), (DAY_NS + SECOND, 2)]);
}

#[test]
fn no_two_arguments_of_a_slice_have_one_name() {
    let mut hang = hang(1, DAY_NS);
    let again = hang.calls[0].clone();
    let named = |call: &str| CallShare { call: call.to_owned(), ..again.clone() };
    hang.calls.extend([named("fsync"), named("hang"), named("fsync (2)"), named(""), named("")]);
    let packets = trace(&[hang]);
    let event = packets.iter().find_map(|packet| packet.event.as_ref()).unwrap();
    let mut names: Vec<&str> = event.annotations.iter().map(|argument| &*argument.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == count && !names.contains(&""), "{names:?}");
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[test]
fn the_samples_of_a_profile_can_be_added_up() {
    let endless = |number: u64| {
        let mut hang = hang(number, DAY_NS);
        hang.length_ns = u64::MAX;
        hang.program = format!("program{number}");
        hang
    };
    let hangs = [endless(1), endless(2), hang(3, DAY_NS)];
    let profile = Profile::decode(&*pprof::profile(&hangs, MOST_BYTES).unwrap()).unwrap();
    assert_eq!(profile.samples.len(), 3);
    for at in 0..3 {
        let values = profile.samples.iter().map(|sample| sample.values[at]);
        let sum = values.clone().try_fold(0_i64, i64::checked_add);
        assert!(sum.is_some(), "{:?}", values.collect::<Vec<_>>());
    }
    assert_eq!(profile.samples[2].values, [1, 250_003_000, 250_003_000]);
}

#[test]
fn a_file_that_no_viewer_reads_is_not_made() {
    let hangs = [hang(1, DAY_NS), hang(2, DAY_NS + SECOND)];
    let lengths = [
        perfetto::trace(&hangs, MOST_BYTES).unwrap().len(),
        pprof::profile(&hangs, MOST_BYTES).unwrap().len(),
    ];
    for less in [0, 1] {
        let made = [
            perfetto::trace(&hangs, lengths[0] - less).map(|bytes| bytes.len()),
            pprof::profile(&hangs, lengths[1] - less).map(|bytes| bytes.len()),
        ];
        let expected = if less == 0 { lengths.map(Ok) } else { [Err(ViewerFileError::TooLong); 2] };
        assert_eq!(made, expected);
    }
}

#[test]
fn an_event_has_no_time_before_1970_and_a_line_of_its_stack_is_one_frame() {
    let mut late = hang(1, u64::MAX);
    let forged = "f\n\u{1b}[31mmain (libc.so.6)";
    late.program = forged.to_owned();
    late.frames[1].function = forged.to_owned();
    let disk = store::disk::real();
    let source = RecordSource::find(&*disk, Path::new("/nonexistent"), Some("a"), 1).unwrap();
    let request = request(&source, &[], &[&late]);
    let record = &request.resource_logs[0].scope_logs[0].log_records[0];
    let last = i64::MAX as u64;
    assert_eq!((record.time_unix_nano, record.observed_time_unix_nano), (last, last));
    let text = |value: &opentelemetry_proto::tonic::common::v1::AnyValue| {
        use opentelemetry_proto::tonic::common::v1::any_value::Value;
        match value.value.as_ref().unwrap() {
            Value::StringValue(text) => text.clone(),
            other => panic!("{other:?}"),
        }
    };
    let body = text(record.body.as_ref().unwrap());
    assert!(body.starts_with("f\\n\\x1b[31mmain") && !body.contains('\n'), "{body}");
    let stack = record.attributes.iter().find(|item| item.key == "exception.stacktrace").unwrap();
    assert_eq!(text(stack.value.as_ref().unwrap()).lines().count(), 2);
}

/// What writes hangs somewhere, each with a place for them.
fn commands(place: &Place) -> Vec<Vec<String>> {
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    vec![
        words(&["parquet", "--to", &path("lake")]),
        words(&["pprof", "-o", &path("out.pprof")]),
        words(&["perfetto", "-o", &path("out.pftrace")]),
        words(&["otlp", "--dry-run", "--to", "http://127.0.0.1:9"]),
        words(&["otlp", "--to", "http://127.0.0.1:9"]),
    ]
}

fn run(place: &Place, command: &[String]) -> std::process::Output {
    place.run(&command.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_store_of_which_nothing_can_be_read_is_an_error_and_not_an_export_without_hangs() {
    let good = Place::new();
    good.record_hangs(1..3);
    let whole = fs::read(good.path("store/00000001.hangs")).unwrap();
    type Planting = fn(&Path, &[u8]);
    let plantings: [(&str, Planting); 6] = [
        ("garbage", |path, _| fs::write(path, [7; 4096]).unwrap()),
        ("nothing", |path, _| fs::write(path, "").unwrap()),
        ("a directory", |path, _| fs::create_dir(path).unwrap()),
        ("a link", |path, _| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("a pipe", |path, _| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
        }),
        ("a huge file", |path, whole| {
            fs::write(path, whole).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap();
        }),
    ];
    for (what, plant) in plantings {
        let place = Place::new();
        fs::create_dir(place.path("store")).unwrap();
        plant(&place.path("store/00000001.hangs"), &whole);
        for command in commands(&place) {
            let said = refusal(&run(&place, &command));
            let store = place.path("store");
            let names = said.contains(store.to_str().unwrap()) && said.contains("00000001.hangs");
            assert!(names && said.contains("hint: "), "{what}: {command:?}: {said}");
        }
        for left in ["lake", "out.pprof", "out.pftrace"] {
            assert!(!place.path(left).exists(), "{what}: {left}");
        }
        let text = stdout(&place.run(&["openmetrics", "--print"]));
        assert!(text.contains("\nunjank_store_whole 0\n"), "{what}: {text}");
        // Beside a file that can be read it is a part that cannot.
        fs::write(place.path("store/00000002.hangs"), &whole).unwrap();
        for command in &commands(&place)[..4] {
            let output = run(&place, command);
            let said = String::from_utf8_lossy(&output.stderr);
            let (of_store, rest) =
                (said.contains("Not read: 1 file"), said.contains(" The rest of"));
            assert!(output.status.success() && of_store && rest, "{what}: {command:?}: {said}");
        }
    }
}

#[test]
fn what_stands_in_the_place_of_the_salt_is_not_followed_and_not_loaded() {
    let place = Place::new();
    place.record_hangs(1..3);
    let salt = place.path("store/salt");
    fs::write(place.path("other"), "sixteen bytes!!!").unwrap();
    type Planting = fn(&Path);
    let plantings: [Planting; 3] = [
        |salt| std::os::unix::fs::symlink("../other", salt).unwrap(),
        |salt| fs::File::create(salt).unwrap().set_len(1 << 29).unwrap(),
        |salt| fs::create_dir(salt).unwrap(),
    ];
    for plant in plantings {
        plant(&salt);
        for command in commands(&place) {
            let said = refusal(&run(&place, &command));
            assert!(said.contains("store/salt\"") && !said.contains("--machine"), "{said}");
        }
        let _ = fs::remove_file(&salt).or_else(|_| fs::remove_dir(&salt));
    }
}

#[test]
fn a_store_that_ends_anywhere_has_a_part_of_its_hangs_or_is_refused() {
    let place = Place::new();
    place.record_hangs(1..4);
    let whole = fs::read(place.path("store/00000001.hangs")).unwrap();
    let all = hangs::store::read(&*store::disk::real(), &place.path("store")).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let cut = Place::new();
    fs::create_dir(cut.path("store")).unwrap();
    let mut counts = Vec::new();
    for length in (0..end).chain([end, whole.len()]) {
        fs::write(cut.path("store/00000001.hangs"), &whole[..length]).unwrap();
        let part = hangs::store::read(&*store::disk::real(), &cut.path("store")).unwrap();
        assert!(part.hangs.iter().all(|(number, hang)| all.hangs.get(number) == Some(hang)));
        assert!(part.unreadable_files == 0 || part.hangs.is_empty());
        counts.push(part.hangs.len());
    }
    assert!(counts.is_sorted() && counts.last() == Some(&3), "{counts:?}");
}
