//! `unjank bench settings` with our daemon beside the installed service.
#![expect(clippy::disallowed_methods, clippy::print_stderr, reason = "a test")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_unjank");
const PEER: &str = "/usr/libexec/dconf-service";

/// Starts a benchmark in a runtime directory of its own; nothing if there is nothing to compare with.
fn bench(runtime_dir: &Path, arguments: &[&str]) -> Option<Command> {
    let tools = [PEER, "/usr/bin/dbus-daemon"];
    if let Some(missing) = tools.iter().find(|tool| !Path::new(tool).exists()) {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "no {missing}");
        eprintln!("SKIPPED: no {missing}");
        return None;
    }
    let mut command = Command::new(PROGRAM);
    command.args([
        "bench",
        "settings",
        "--quick",
        "--peer",
        PEER,
        "--ours",
        env!("CARGO_BIN_EXE_unjankd"),
    ]);
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime_dir);
    Some(command)
}

/// Counts the directories that a benchmark's process made and left.
fn left_by(pid: u32) -> usize {
    let ours = format!(".unjank-{pid}-");
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count()
}

#[test]
fn a_run_prints_both_sides_and_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut command) = bench(dir.path(), &["--json", "--only", "noop-tmpfs,memory"]) else {
        return;
    };
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "unjank.bench.settings/1");
    let figures = document["figures"].as_array().unwrap();
    // Of few rounds no figure is judged, and so none falls short, however busy the machine is.
    assert_eq!(output.status.code(), Some(0), "{document:#}");
    assert_eq!((&document["passes"], &figures[0]["verdict"]), (&true.into(), &"not-judged".into()));
    let ids: Vec<&str> = figures.iter().map(|figure| figure["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["noop-tmpfs", "memory", "memory-own"]);
    assert_eq!(figures[0]["ours"]["n"], 60);
    assert_eq!(figures[0]["peer"]["n"], 60);
    assert_eq!(left_by(pid), 0);
}

#[test]
fn each_figure_in_memory_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut list) = bench(dir.path(), &["--list"]) else { return };
    let list = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let needs_disk = |id: &&str| id.ends_with("-disk");
    let ids: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let ids: Vec<&str> = ids.into_iter().filter(|id| !needs_disk(id)).collect();
    assert!(ids.len() > 5, "{list}");
    let mut command = bench(dir.path(), &["--json", "--only", &ids.join(",")]).unwrap();
    let output = command.stderr(Stdio::null()).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{document:#}");
    assert_eq!(document["missing"].as_array().map(Vec::len), Some(0), "{document:#}");
}

#[test]
fn a_figure_on_the_disk_without_a_disk_is_missing_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut command) = bench(dir.path(), &["--only", "write-disk"]) else { return };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("write-disk: needs --dir with a directory on a disk"), "{text}");
}

#[test]
fn an_interrupted_run_leaves_no_service_and_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut command) = bench(dir.path(), &["--only", "noop-tmpfs,start"]) else { return };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let mut steps = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(steps.any(|line| line.starts_with("from the first call")));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let rest: Vec<String> = steps.collect();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(text.contains("Interrupted") && text.contains("write, no change"), "{text}");
    assert!(rest.last().unwrap().contains("interrupted"), "{rest:?}");
    assert_eq!(left_by(pid), 0);
}

#[test]
fn a_program_that_cannot_be_run_is_an_error() {
    let output = Command::new(PROGRAM)
        .args(["bench", "settings", "--peer", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot run /no/such/program: "));
}
