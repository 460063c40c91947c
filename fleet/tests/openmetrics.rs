//! `openmetrics`: what a scraper reads.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use hangs::model::HangRecord;

use crate::fixture::{DAY_NS, Place, period, refusal, stdout};

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
