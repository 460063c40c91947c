//! `openmetrics`: what a scraper reads.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hangs::model::{Hang, HangRecord};
use hangs::store::{EraseSelection, erase};

use crate::fixture::{DAY_NS, Place, hang, period, refusal, stdout};

fn get(path: &std::path::Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_is_printed_has_counts_and_no_path() {
    let place = Place::new();
    place.record_hangs(1..4);
    place.record(&[HangRecord::Watched(period(DAY_NS))]);
    let text = stdout(&place.run(&["openmetrics", "--print"]));
    assert!(text.contains("unjank_hangs_total{program=\"nautilus\",cause=\"sync\"} 3\n"), "{text}");
    assert!(text.contains("unjank_watched_seconds_total{program=\"nautilus\"} 60.000000000\n"));
    let bucket = "unjank_step_seconds_bucket{program=\"nautilus\",le=\"0.050000000\"} 9\n";
    assert!(text.contains(bucket), "{text}");
    assert!(text.ends_with("# EOF\n") && !text.contains("excluded:") && !text.contains("fsync"));
    if fs::metadata("/proc/pressure/io").is_ok() {
        assert!(text.contains("\nnode_pressure_io_stalled_seconds_total "), "{text}");
    }
    refusal(&place.run(&["openmetrics"]));
}

#[test]
fn a_socket_serves_the_counts_of_now_and_one_that_was_left_is_replaced() {
    let place = Place::new();
    place.record_hangs(1..2);
    let path = place.path("metrics.sock");
    for round in 0..2 {
        let mut command = place.command();
        command.args(["openmetrics", "--listen"]).arg(&path).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("listening on "), "{line}");
        let answer = get(&path, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("openmetrics-text"));
        place.record_hangs(2 + round..3 + round);
        let answer = get(&path, "GET / HTTP/1.1\r\n\r\n");
        let count = 2 + round;
        assert!(answer.contains(&format!("cause=\"sync\"}} {count}\n")), "{answer}");
        assert!(get(&path, "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(get(&path, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        let second = place.command().args(["openmetrics", "--listen"]).arg(&path).output().unwrap();
        assert!(refusal(&second).contains("cannot listen on"));
        // It leaves its socket behind.
        server.kill().unwrap();
        server.wait().unwrap();
    }
    let file = place.path("file");
    fs::write(&file, "mine").unwrap();
    refusal(&place.command().args(["openmetrics", "--listen"]).arg(&file).output().unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_program_that_was_erased_is_not_served_any_more() {
    let place = Place::new();
    place.record_hangs(1..3);
    let secret = Hang { program: "secret".to_owned(), ..hang(3, DAY_NS) };
    place.record(&[HangRecord::Hang(Box::new(secret))]);
    let path = place.path("metrics.sock");
    let mut server = serve(&place, &path, "077");
    let served = || get(&path, "GET /metrics HTTP/1.1\r\n\r\n");
    let before = served();
    let selection = EraseSelection { program: Some("secret".to_owned()), ..Default::default() };
    erase(&*store::disk::real(), &place.path("store"), &selection, u64::MAX).unwrap();
    let after = served();
    place.record_hangs(4..5);
    let later = served();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(before.contains("program=\"secret\"") && before.contains("cause=\"sync\"} 2\n"));
    assert!(after.starts_with("HTTP/1.1 200") && !after.contains("secret"), "{after}");
    assert!(!later.contains("secret"), "{later}");
    assert!(later.contains("program=\"nautilus\",cause=\"sync\"} 1\n"), "counted anew: {later}");
}

/// Starts a server under this umask, and waits until it listens.
fn serve(place: &Place, path: &std::path::Path, umask: &str) -> Child {
    let program = place.command();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    command.args(["openmetrics", "--listen"]).arg(path).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    server
}

#[test]
fn only_the_owner_can_connect_whatever_the_umask_is() {
    let place = Place::new();
    place.record_hangs(1..2);
    for umask in ["000", "002", "022"] {
        let path = place.path(umask);
        let mut server = serve(&place, &path, umask);
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(mode & 0o777, 0o600, "umask {umask}");
    }
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_does_not_keep_the_others_waiting() {
    let place = Place::new();
    place.record_hangs(1..2);
    let path = place.path("metrics.sock");
    let mut server = serve(&place, &path, "077");
    let mut slow = UnixStream::connect(&path).unwrap();
    let writer = std::thread::spawn(move || {
        // The server hangs up; 1,000 bytes are 100 s, less than the longest request.
        let mut sent = 0;
        while sent < 1000 && slow.write_all(b"x").is_ok() {
            sent += 1;
            // A slow client is what is tested; nothing is waited for.
            std::thread::sleep(Duration::from_millis(100));
        }
        sent
    });
    let answer = get(&path, "GET /metrics HTTP/1.1\r\n\r\n");
    let sent = writer.join().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(sent < 1000, "the server waited for the slow client");
}

#[test]
fn names_and_lengths_of_any_kind_make_labels_that_a_terminal_does_not_obey() {
    let place = Place::new();
    let mut hangs = [hang(1, DAY_NS), hang(2, DAY_NS + 1)];
    for hang in &mut hangs {
        hang.program = "a\"\\\n\r\u{1b}[31m\u{9b}2J\u{202e}".to_owned();
        hang.length_ns = u64::MAX - 1;
    }
    place.record(&hangs.map(|hang| HangRecord::Hang(Box::new(hang))));
    let text = stdout(&place.run(&["openmetrics", "--print"]));
    let is_plain = |letter: char| letter == '\n' || !(letter.is_control() || letter == '\u{202e}');
    assert!(text.chars().all(is_plain), "{text:?}");
    assert!(text.contains("cause=\"sync\"} 2\n"), "{text}");
    assert!(text.contains("cause=\"sync\"} 18446744073.709551615\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("unjank_hangs_total{")).count(), 1);
    let text = stdout(&place.run(&["otlp", "--dry-run", "--to", "http://127.0.0.1:9"]));
    assert!(text.chars().all(is_plain), "{text:?}");
}
