//! `unjank bench listing` on a small directory, beside the real programs.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_unjank-bench");

fn bench(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["bench", "listing", "--quick", "--warm", "--dir"]).arg(dir).args(arguments);
    command
}

fn left_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn every_figure_is_measured_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let peer = ["--entries", "3000", "--json", "--peer", "ls=ls -U {dir}"];
    let output = bench(dir.path(), &peer).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "unjank.bench.listing/1");
    assert_eq!(document["missing"].as_array().unwrap().len(), 0, "{:#}", document["missing"]);
    assert_eq!(output.status.code(), Some(0), "a quick run judges no time: {document:#}");
    let figures = document["figures"].as_array().unwrap();
    let ids: Vec<&str> = figures.iter().map(|figure| figure["id"].as_str().unwrap()).collect();
    let wanted = [
        "attributes",
        "names",
        "sorted",
        "first",
        "ls",
        "ls-find",
        "small",
        "small-long",
        "memory",
        "growth",
        "peers",
    ];
    assert_eq!(ids, wanted);
    for figure in figures {
        assert!(figure["ours"]["median"].as_f64().unwrap() > 0.0, "{figure:#}");
    }
    assert_eq!(left_in(dir.path()), 0);
}

#[test]
fn a_peer_that_fails_is_missing_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--entries", "100", "--only", "names,peers", "--peer", "no=false {dir}"];
    let output = bench(dir.path(), &arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("peers: cannot run false {dir}: exit status: 1"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    let wrong = bench(dir.path(), &["--peer", "ls -l"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(left_in(dir.path()), 0);
}

#[test]
fn an_interrupted_run_removes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = bench(dir.path(), &["--entries", "20000", "--only", "growth,memory"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut steps = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(steps.any(|line| line.starts_with("making 20000 files")));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(steps.last().unwrap().contains("interrupted"));
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_eq!(left_in(dir.path()), 0);
}
