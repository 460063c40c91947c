//! `otlp`: every hang is acknowledged once, whatever the receiver does.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use hangs::model::{Hang, HangRecord};
use hangs::store::{EraseSelection, erase, lock_recorder};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;

use crate::fixture::{DAY_NS, Place, SECOND, hang, read_post, refusal, stdout};
use crate::otlp_metrics::LIMIT;

/// What a receiver does with a request.
#[derive(Clone, Copy)]
enum Answer {
    Take,
    /// It takes the records, and the answer is lost.
    TakeSilently,
    Status(u16),
    /// It answers 413 to more records than this.
    AtMost(usize),
}

/// Starts a receiver that answers so, the last one for all that follow. It ends with the test.
fn receive(answers: Vec<Answer>) -> (String, Receiver<LogRecord>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (taken, records) = channel();
    thread::spawn(move || {
        let mut count = 0;
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            while let Some(request) = read_request(&mut stream) {
                let answer = answers[count.min(answers.len() - 1)];
                count += 1;
                let all = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs);
                let all: Vec<LogRecord> = all.flat_map(|logs| logs.log_records).collect();
                let status = match answer {
                    Answer::Take | Answer::TakeSilently => 200,
                    Answer::AtMost(most) => {
                        if all.len() > most {
                            413
                        } else {
                            200
                        }
                    }
                    Answer::Status(status) => status,
                };
                if status == 200 {
                    all.into_iter().for_each(|record| taken.send(record).unwrap_or(()));
                }
                if matches!(answer, Answer::TakeSilently) {
                    break;
                }
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                stream.get_mut().write_all(head.as_bytes()).unwrap();
            }
        }
    });
    (url, records)
}

fn read_request(stream: &mut BufReader<TcpStream>) -> Option<ExportLogsServiceRequest> {
    let (_, body) = read_post(stream)?;
    Some(ExportLogsServiceRequest::decode(&*body).unwrap())
}

fn attribute(record: &LogRecord, key: &str) -> Option<String> {
    let found = record.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        other => Some(format!("{other:?}")),
    }
}

/// How often each identifier came.
fn counts(records: &Receiver<LogRecord>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for record in records.try_iter() {
        *counts.entry(attribute(&record, "log.record.uid").unwrap()).or_default() += 1;
    }
    counts
}

fn is_once(counts: &BTreeMap<String, usize>) -> bool {
    counts.values().all(|count| *count == 1)
}

#[test]
fn every_hang_is_sent_once_and_a_second_run_sends_nothing() {
    let place = Place::new();
    place.record_hangs(1..601);
    let (url, records) = receive(vec![Answer::Take]);
    assert!(stdout(&place.run(&["otlp", "--to", &url])).ends_with("600 hangs.\n"));
    assert!(stdout(&place.run(&["otlp", "--to", &url])).starts_with("Nothing new"));
    place.record_hangs(601..603);
    stdout(&place.run(&["otlp", "--to", &url]));
    let counts = counts(&records);
    assert!(counts.len() == 602 && is_once(&counts));
}

#[test]
fn what_a_receiver_does_not_take_is_sent_later() {
    let place = Place::new();
    place.record_hangs(1..601);
    let (url, records) = receive(vec![Answer::Take, Answer::Status(503), Answer::Take]);
    let said = refused_late(&place, &url);
    assert!(
        said.contains("it answers 503") && said.contains("hint: what was not taken waits"),
        "{said}"
    );
    stdout(&place.run(&["otlp", "--to", &url]));
    let counts = counts(&records);
    assert!(counts.len() == 600 && is_once(&counts));
}

/// Runs a transfer that stops in the middle, and returns what is said of it.
fn refused_late(place: &Place, url: &str) -> String {
    let output = place.run(&["otlp", "--to", url]);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_receiver_that_is_away_loses_nothing() {
    let place = Place::new();
    place.record_hangs(1..4);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = refusal(&place.run(&["otlp", "--to", &url]));
    assert!(said.contains("Connection refused"), "{said}");
    // Another address is another receiver.
    let (url, records) = receive(vec![Answer::Take]);
    stdout(&place.run(&["otlp", "--to", &url]));
    assert_eq!(counts(&records).len(), 3);
}

#[test]
fn after_a_lost_answer_the_same_identifiers_come_again() {
    let place = Place::new();
    place.record_hangs(1..301);
    let (url, records) = receive(vec![Answer::TakeSilently, Answer::Take]);
    refused_late(&place, &url);
    stdout(&place.run(&["otlp", "--to", &url]));
    let counts = counts(&records);
    assert_eq!(counts.len(), 300);
    assert_eq!(counts.values().filter(|count| **count == 2).count(), 256, "one batch");
}

#[test]
fn a_batch_that_is_too_large_is_divided() {
    let place = Place::new();
    place.record_hangs(1..301);
    let (url, records) = receive(vec![Answer::AtMost(50)]);
    stdout(&place.run(&["otlp", "--to", &url]));
    let counts = counts(&records);
    assert!(counts.len() == 300 && is_once(&counts));
    let (url, _records) = receive(vec![Answer::AtMost(0)]);
    let said = refusal(&place.run(&["otlp", "--to", &url]));
    assert!(said.contains("a single hang is too large"), "{said}");
}

#[test]
fn what_is_refused_is_an_error_and_nothing_counts_as_sent() {
    let place = Place::new();
    place.record_hangs(1..4);
    let (url, records) = receive(vec![Answer::Status(400), Answer::Status(302), Answer::Take]);
    for status in ["400", "302"] {
        let said = refusal(&place.run(&["otlp", "--to", &url]));
        assert!(said.contains(&format!("takes no hangs: it answers {status}")), "{said}");
    }
    stdout(&place.run(&["otlp", "--to", &url]));
    assert_eq!(counts(&records).len(), 3);
    for url in ["https://127.0.0.1:4318", "127.0.0.1:4318", ""] {
        refusal(&place.run(&["otlp", "--to", url]));
    }
}

#[test]
fn a_dry_run_shows_what_is_sent_and_leaves_no_trace() {
    let place = Place::new();
    place.record_hangs(1..3);
    let (url, records) = receive(vec![Answer::Take]);
    let shown = stdout(&place.run(&["otlp", "--dry-run", "--to", &url]));
    let shown: ExportLogsServiceRequest = serde_json::from_str(&shown).unwrap();
    assert!(counts(&records).is_empty() && !place.path("state").exists());
    stdout(&place.run(&["otlp", "--to", &url]));
    let sent: Vec<LogRecord> = records.try_iter().collect();
    assert_eq!(shown.resource_logs[0].scope_logs[0].log_records, sent);
    let again = stdout(&place.run(&["otlp", "--dry-run", "--to", &url]));
    assert_eq!(again, "", "what was sent is not shown");
}

#[test]
fn an_event_has_the_names_of_the_conventions_and_a_path_that_is_excluded_is_none() {
    let place = Place::new();
    let mut long = hang(2, DAY_NS);
    long.length_ns = 6 * SECOND;
    let mut open = hang(3, DAY_NS);
    open.calls[0].object.as_mut().unwrap().name = "/srv/open.txt".to_owned();
    place.record_hangs(1..2);
    place.record(&[HangRecord::Hang(Box::new(long)), HangRecord::Hang(Box::new(open))]);
    let (url, records) = receive(vec![Answer::Take]);
    stdout(&place.run(&["otlp", "--to", &url]));
    let sent: Vec<LogRecord> = records.try_iter().collect();
    let names: Vec<&str> = sent.iter().map(|record| &*record.event_name).collect();
    assert_eq!(names, ["app.jank", "device.anr", "app.jank"]);
    let get = |at: usize, key| attribute(&sent[at], key);
    assert_eq!(get(0, "file.path"), None);
    assert_eq!(get(0, "unjank.hang.object").unwrap(), "excluded:0011223344556677");
    assert_eq!(get(2, "file.path").unwrap(), "/srv/open.txt");
    assert_eq!(get(0, "exception.stacktrace").unwrap(), "fsync (libc.so.6)\nsave_notes (nautilus)");
    assert_eq!(get(0, "code.function.name").unwrap(), "save_notes");
    assert_eq!(get(0, "app.jank.frame_count").unwrap(), "IntValue(1)");
    assert_eq!(get(1, "app.jank.frame_count"), None);
}

#[test]
fn a_hang_that_goes_on_waits_for_its_end_and_one_whose_recorder_ended_does_not() {
    let place = Place::new();
    let mut old = hang(1, SECOND);
    old.goes_on = true;
    let mut young = hang(2, u64::MAX / 2);
    young.goes_on = true;
    place.record(&[HangRecord::Hang(Box::new(old)), HangRecord::Hang(Box::new(young))]);
    let (url, records) = receive(vec![Answer::Take]);
    let waits = "Not sent before its end: 1 hang.\n";
    for arguments in [&["otlp", "--dry-run", "--to", &url][..], &["otlp", "--to", &url]] {
        let output = place.run(arguments);
        stdout(&output);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.ends_with(waits), "{said}");
    }
    assert_eq!(counts(&records).len(), 1);
}

#[test]
fn a_hang_whose_recorder_and_process_live_is_awaited_however_long_it_was_not_stored() {
    let place = Place::new();
    let mut suspended = hang(1, SECOND);
    (suspended.goes_on, suspended.process) = (true, std::process::id());
    let mut gone = hang(2, SECOND);
    (gone.goes_on, gone.process) = (true, i32::MAX.unsigned_abs());
    place.record(&[HangRecord::Hang(Box::new(suspended)), HangRecord::Hang(Box::new(gone))]);
    let (url, records) = receive(vec![Answer::Take]);
    let recorder = lock_recorder(&*store::disk::real(), &place.path("store")).unwrap();
    assert!(stdout(&place.run(&["otlp", "--to", &url])).ends_with(": 1 hang.\n"));
    assert_eq!(counts(&records).len(), 1, "that of the process which has ended");
    drop(recorder);
    assert!(stdout(&place.run(&["otlp", "--to", &url])).ends_with(": 1 hang.\n"));
    assert_eq!(counts(&records).len(), 1);
}

#[test]
fn two_states_of_a_hang_are_one_hang_also_if_it_is_found_to_have_begun_later() {
    let place = Place::new();
    let (url, records) = receive(vec![Answer::Take]);
    for (started_ns, length_ns) in [(DAY_NS, 9 * SECOND), (DAY_NS + 7, 17 * SECOND)] {
        let state = Hang { length_ns, ..hang(1, started_ns) };
        place.record(&[HangRecord::Hang(Box::new(state))]);
        stdout(&place.run(&["otlp", "--to", &url]));
    }
    let counts = counts(&records);
    assert!(counts.len() == 1 && is_once(&counts), "{counts:?}");
}

#[test]
fn what_is_erased_while_hangs_are_sent_is_not_sent() {
    let place = Place::new();
    place.record_hangs(1..601);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut sender = place.command();
    let sender = sender.args(["otlp", "--to", &url]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let length = |request: ExportLogsServiceRequest| {
        let all = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs);
        all.map(|logs| logs.log_records.len()).sum::<usize>()
    };
    assert_eq!(length(read_request(&mut stream).unwrap()), 256);
    // The first batch is on its way.
    erase(&*store::disk::real(), &place.path("store"), &EraseSelection::default(), u64::MAX)
        .unwrap();
    stream.get_mut().write_all(b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(read_request(&mut stream).map(length), None);
    assert!(stdout(&sender.wait_with_output().unwrap()).ends_with(": 256 hangs.\n"));
}

#[test]
fn whoever_exports_a_store_its_hangs_have_the_same_identifiers() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    place.record_hangs(1..3);
    let shown = || stdout(&place.run(&["otlp", "--dry-run", "--to", "http://127.0.0.1:4318"]));
    let of_root = shown();
    let owned = |user| {
        std::os::unix::fs::chown(place.path("store"), Some(user), Some(user)).unwrap();
        shown()
    };
    assert_ne!(owned(65534), of_root, "of another user");
    assert_eq!(owned(0), of_root);
}

#[test]
fn what_was_erased_before_it_was_sent_is_not_sent() {
    let place = Place::new();
    place.record_hangs(1..4);
    let everything = EraseSelection::default();
    erase(&*store::disk::real(), &place.path("store"), &everything, u64::MAX).unwrap();
    let (url, records) = receive(vec![Answer::Take]);
    assert!(stdout(&place.run(&["otlp", "--to", &url])).starts_with("Nothing new"));
    assert!(counts(&records).is_empty());
}

#[test]
fn a_receiver_that_says_to_come_back_at_once_is_not_asked_without_a_pause() {
    let place = Place::new();
    place.record_hangs(1..3);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            while read_request(&mut stream).is_some() {
                asked.send(()).unwrap_or(());
                let head = "HTTP/1.1 503 X\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
                stream.get_mut().write_all(head.as_bytes()).unwrap();
            }
        }
    });
    let mut sender = place.command();
    let mut sender = sender.args(["otlp", "--follow", "--to", &url]).spawn().unwrap();
    let first = requests.recv_timeout(LIMIT);
    let begin = Instant::now();
    let next = [(); 2].map(|()| requests.recv_timeout(LIMIT));
    let length = begin.elapsed();
    sender.kill().unwrap();
    sender.wait().unwrap();
    first.expect("a request comes within LIMIT");
    next.into_iter().for_each(|request| request.expect("it is tried again within LIMIT"));
    // Two pauses of a second, of which a busy machine may have taken a part before the first request was told.
    assert!(length > Duration::from_secs(1), "two more requests in {length:?}");
}

#[test]
fn whom_a_hang_waited_for_and_what_disks_did_is_sent() {
    let place = Place::new();
    place.record(&[HangRecord::Hang(Box::new(crate::parquet::followed_hang(1)))]);
    let (url, records) = receive(vec![Answer::Take]);
    stdout(&place.run(&["otlp", "--to", &url]));
    let record = records.try_iter().next().unwrap();
    let told = |key: &str| attribute(&record, &format!("unjank.hang.{key}")).unwrap();
    assert_eq!(told("waited_for"), "gvfsd");
    assert_eq!(told("chain_end"), "disk");
    let chain = told("chain");
    let places = ["nautilus", "dbus-daemon", "gvfsd"].map(|name| chain.find(name).unwrap());
    assert!(places.is_sorted() && chain.contains("230000000"), "{chain}");
    assert!(told("disk.read_bytes").contains("20000"));
    assert!(told("disk.programs").contains("tar"));
}
