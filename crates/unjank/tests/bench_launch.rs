//! `unjank bench launch` and `bench impact` as their users run them: on a model disk, cut short, killed, and given nonsense.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

use crate::fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fixture::{has, in_time, skip};
use serde_json::Value;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank-bench");

/// A program that is launched, and brought to the disk.
const TRUE: &str = "/usr/bin/true";

/// Says whether a disk can be made here.
fn may() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("not root");
        return false;
    }
    if !Path::new("/dev/fuse").exists() {
        skip("no /dev/fuse");
        return false;
    }
    has(&["losetup", "mkfs.ext4", "tar"])
}

/// A small matrix whose samples go to `samples`.
fn launch(samples: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(UNJANK);
    command
        .args(["bench", "launch", "--quick", "--json", "--foreground", TRUE, "--bring", TRUE])
        .args(["--schedulers", "none", "--wbt", "default", "--runs", "1", "--samples"])
        .arg(samples)
        .args(more)
        .stdin(Stdio::null());
    command
}

/// Waits until nothing is left of the measurement that was process `pid`.
fn leaves_nothing(pid: u32, temporary: &Path) {
    let mounts = sys::mounts::Mounts::read().unwrap();
    let own = jobs::cgroup::Cgroup::of(&mounts, std::process::id());
    let cgroup = own.map(|own| own.path().join(format!("unjank-bench-{pid}")));
    let trace = PathBuf::from(format!("/sys/kernel/tracing/instances/unjank-bench-{pid}"));
    until(|| cgroup.as_ref().is_none_or(|cgroup| !cgroup.exists()));
    until(|| !trace.exists());
    until(|| fs::read_dir(temporary).unwrap().next().is_none());
    let is_ours = |entry: &fs::DirEntry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        file.starts_with(temporary.to_str().unwrap())
    };
    until(|| {
        !fs::read_dir("/sys/block").unwrap().filter_map(Result::ok).any(|disk| is_ours(&disk))
    });
}

fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        fixture::pause();
    }
}

fn document(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn finish(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// Compares all of two documents; a number that was written and read again may differ in its last digit.
fn assert_alike(one: &Value, other: &Value) {
    match (one, other) {
        (Value::Array(ones), Value::Array(others)) => {
            assert_eq!(ones.len(), others.len());
            ones.iter().zip(others).for_each(|(one, other)| assert_alike(one, other));
        }
        (Value::Object(ones), Value::Object(others)) => {
            assert!(ones.keys().eq(others.keys()), "{one:#} {other:#}");
            ones.values().zip(others.values()).for_each(|(one, other)| assert_alike(one, other));
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            assert!((one - other).abs() <= other.abs() * 1e-14, "{one} {other}");
        }
        _ => assert_eq!(one, other),
    }
}

#[test]
fn a_matrix_is_measured_once_and_leaves_nothing() {
    if !may() {
        return;
    }
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let samples = directory.path().join("samples.jsonl");
        let page = directory.path().join("page.html");
        let arguments =
            ["--background", "tar", "--classes", "plain,run", "-o", page.to_str().unwrap()];
        let mut command = launch(&samples, &arguments);
        command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = child.id();
        let output = finish(child);
        let first = document(&output);
        assert_eq!(first["schema"], "unjank.bench.launch/1");
        let cells = first["cells"].as_array().unwrap();
        let classes: Vec<&str> = cells.iter().map(|cell| cell["class"].as_str().unwrap()).collect();
        assert_eq!(classes, ["unloaded", "plain", "run"]);
        assert!(cells.iter().all(|cell| cell["n"] == 1 && cell["failed"] == 0), "{first:#}");
        assert!(cells.iter().all(|cell| cell["median"].as_f64().unwrap() > 0.0));
        assert_eq!(cells[2]["result"], "not-judged", "{first:#}");
        assert_eq!(output.status.code(), Some(0));
        assert!(fs::read_to_string(&page).unwrap().contains("none, unloaded"));
        leaves_nothing(pid, temporary.path());

        // All is there: the second run reads it, and makes no disk.
        let lines = fs::read_to_string(&samples).unwrap();
        assert_eq!(lines.lines().count(), 3);
        assert!(
            lines.contains("\"order\":\"fifo\"") && lines.contains("\"scheduler-seen\":\"none\"")
        );
        let again = launch(&samples, &arguments[..4]).output().unwrap();
        assert_alike(&document(&again)["cells"], &first["cells"]);
        assert_eq!(fs::read_to_string(&samples).unwrap(), lines);
        assert!(!String::from_utf8_lossy(&again.stderr).contains("making the disk"));
    });
}

#[test]
fn a_measurement_that_is_killed_leaves_nothing() {
    if !may() {
        return;
    }
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let samples = directory.path().join("samples.jsonl");
        let mut command = Command::new(UNJANK);
        command
            .args(["bench", "launch", "--foreground", TRUE, "--background", "fsync"])
            .args(["--schedulers", "none", "--wbt", "default", "--classes", "run"])
            .args(["--runs", "1000", "--samples"])
            .arg(&samples);
        command.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let is_beside =
            || fs::read_to_string(&samples).is_ok_and(|lines| lines.contains("\"class\":\"run\""));
        until(|| is_beside() || child.try_wait().unwrap().is_some());
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        leaves_nothing(child.id(), temporary.path());
    });
}

#[test]
fn a_background_that_ends_and_a_scheduler_that_is_not_there_are_errors() {
    if !may() {
        return;
    }
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let samples = directory.path().join("samples.jsonl");
        let said = |more: &[&str]| {
            let output = launch(&samples, more).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let text = said(&["--background", "echo no more >&2; exit 3", "--classes", "plain"]);
        assert!(text.contains("it ended: no more"), "{text}");
        let text = said(&["--background", "tar", "--classes", "plain", "--schedulers", "elevator"]);
        assert!(text.contains("cannot give") && text.contains("elevator"), "{text}");
    });
}

#[test]
fn nonsense_is_told_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let diary = directory.path().join("diary");
    fs::write(&diary, "dear diary\n").unwrap();
    let samples = directory.path().join("samples.jsonl");
    let nowhere = directory.path().join("no/page.html");
    let cases: [(&Path, &[&str], &str); 9] = [
        (&samples, &["-o", diary.to_str().unwrap()], "diary: File exists"),
        (&samples, &["-o", nowhere.to_str().unwrap()], "does not exist"),
        (&samples, &["--show"], "samples.jsonl: No such file"),
        (&samples, &["--disk", "model:floppy"], "the models are emmc"),
        (&samples, &["--disk", "/no/such/place"], "No such file"),
        (&samples, &["--classes", "polite"], "one of plain, idle, run"),
        (&samples, &["--wbt", "fast"], "default, off, or a target"),
        (&samples, &["--measure", "all"], "one of launch, whole, alone, shared"),
        (&diary, &[], "cannot read line 1 of"),
    ];
    for (samples, more, told) in cases {
        let output = launch(samples, more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(told), "{told} in {said}");
    }
    assert_eq!(fs::read_to_string(&diary).unwrap(), "dear diary\n");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was made");
    fs::write(&samples, "").unwrap();
    let shown = launch(&samples, &["--show", "--background", "tar"]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stderr).contains("contains none of these cells"));
}

#[test]
fn the_impact_of_a_command_decides_how_the_score_ends() {
    if !may() {
        return;
    }
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let samples = directory.path().join("samples.jsonl");
        let impact = |limit: &str| {
            let mut command = Command::new(UNJANK);
            command.args(["bench", "impact", "--json", "--runs", "1", "--limit", limit]);
            command.args(["--foreground", TRUE, "--bring", TRUE, "--samples"]).arg(&samples);
            command.args([
                "--",
                "dd",
                "if=/dev/zero",
                "of=file",
                "bs=1M",
                "count=8",
                "status=none",
            ]);
            command.output().unwrap()
        };
        let loose = impact("1e9");
        let document = document(&loose);
        assert_eq!(loose.status.code(), Some(0), "{document:#}");
        let disks: Vec<&str> = document["disks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|disk| disk["disk"].as_str().unwrap())
            .collect();
        assert_eq!(disks, ["model:emmc", "model:hdd", "model:ssd"]);
        assert!(document["score"].as_f64().unwrap() > 0.0);
        // The same samples, held to what nothing reaches.
        let strict = impact("0.000001");
        assert_eq!(strict.status.code(), Some(1));
    });
}
