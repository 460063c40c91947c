//! `unjank trace` as its user meets it: the program is left as it is, the report is whole, the exit status tells.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stands for other programs"
)]

use crate::fixture;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fixture::{copy_program, has, in_time, skip};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unjank");

fn trace(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("trace").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    trace(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the counts and the errors of each call in a report.
fn counts(report: &Value) -> BTreeMap<String, (u64, u64)> {
    let calls = report["calls"].as_array().unwrap().iter();
    calls
        .map(|call| {
            let number = |field: &str| call[field].as_u64().unwrap();
            (call["name"].as_str().unwrap().to_owned(), (number("count"), number("errors")))
        })
        .collect()
}

#[test]
fn a_program_keeps_its_streams_and_its_status() {
    let mut child = trace(&["--", "sh", "-c", "cat; echo to stderr >&2; exit 7"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "through");
    let said = text(&output.stderr);
    assert!(said.starts_with("to stderr\n"), "{said}");
    assert!(said.contains("watched by "), "{said}");
}

#[test]
fn a_program_that_dies_by_a_signal_is_told_as_a_shell_tells_it() {
    let output = run(&["sh", "-c", "kill -USR1 $$"]);
    assert_eq!(output.status.code(), Some(128 + 10), "{}", text(&output.stderr));
}

/// What a program does so that no record of its end finds room: it stops its tracer, makes more calls than there is room for, and fills
/// what is left with the short records of short lives.
const FLOOD: &str = "kill -STOP $PPID; dd if=/dev/zero of=/dev/null bs=1 count=150000 2>/dev/null; i=0; while [ $i -lt 300 ]; do (:); i=$((i+1)); done; ";

#[test]
fn a_program_whose_end_found_no_room_in_the_ring_keeps_its_status() {
    if !trace::backend::bpf::is_allowed() {
        return skip("no programs can be loaded into this kernel");
    }
    for (ending, status) in [("exit 3", 3), ("kill -USR1 $$", 128 + 10)] {
        let script = format!("echo $$; {FLOOD}{ending}");
        let mut tracer =
            trace(&["--backend", "bpf", "--calls", "all", "--stacks", "all", "--json"]);
        let tracer = tracer.args(["--threshold", "1us", "--", "sh", "-c", &script]);
        let mut tracer = tracer.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(tracer.stdout.take().unwrap());
        let mut program = String::new();
        said.read_line(&mut program).unwrap();
        let stat = format!("/proc/{}/stat", program.trim());
        // Its end waits for its parent.
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&tracer), Signal::CONT).unwrap();
        let report: Value = serde_json::from_reader(said).unwrap();
        assert_eq!(tracer.wait().unwrap().code(), Some(status), "{ending}");
        assert!(notes_of(&report).contains("ends of threads were told too fast"), "{report}");
    }
}

fn notes_of(report: &Value) -> String {
    let notes = report["watch"]["notes"].as_array().unwrap().iter();
    notes.map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_cannot_be_run_is_an_error_with_its_name() {
    let output = run(&["--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("cannot run /no/such/program"), "{said}");
}

#[test]
fn a_report_is_read_back_by_show_check_and_compare() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let page = page.to_str().unwrap();
    let file = dir.path().join("file");
    let of = format!("of={}", file.display());
    let dd = ["dd", "if=/dev/zero", &of, "count=3", "oflag=dsync", "conv=fdatasync"];
    let output = run(&[&["--threshold", "0ns", "-o", page, "--"][..], &dd].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let shown = run(&["show", "--json", page]);
    let report: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(counts(&report)["fdatasync"], (1, 0));
    let text_of = |arguments: &[&str]| {
        let output = run(arguments);
        (output.status.code(), text(&output.stdout))
    };
    let (status, shown) = text_of(&["show", page]);
    assert!(status == Some(0) && shown.contains("fdatasync"), "{shown}");

    let (status, said) = text_of(&["check", "--max", "fdatasync=1", page]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = text_of(&["check", "--max", "fdatasync=0", page]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("fdatasync was called 1 times, 0 allowed"), "{said}");

    let (status, said) = text_of(&["compare", page, page]);
    assert_eq!(status, Some(0), "{said}");

    let again = run(&["-o", page, "--", "true"]);
    assert_eq!(again.status.code(), Some(2));
    let said = text(&again.stderr);
    assert!(said.contains("File exists") && said.contains("--force"), "{said}");
    let forced = run(&["-o", page, "--force", "--", "true"]);
    assert_eq!(forced.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&run(&["show", "--json", page]).stdout).unwrap();
    assert!(!counts(&report).contains_key("fdatasync"), "the old report is gone");
}

#[test]
fn a_command_is_checked_and_its_failure_is_an_error() {
    let check = |limit: &str, command: &[&str]| {
        let output = run(&[&["check", "--max", limit, "--"][..], command].concat());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(check("fsync=0", &["true"]).0, Some(0));
    let dir = tempfile::tempdir().unwrap();
    let of = format!("of={}", dir.path().join("file").display());
    assert_eq!(check("fsync=0", &["dd", "if=/dev/zero", &of, "count=1", "conv=fsync"]).0, Some(1));
    let (status, said) = check("fsync=0", &["sh", "-c", "exit 3"]);
    assert!(status == Some(2) && said.contains("it failed with status 3"), "{said}");
    let none = run(&["check", "true"]);
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn what_is_no_report_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("page", b"<!DOCTYPE html><p>no report"),
        ("json", b"{\"schema\":\"other/1\"}"),
        ("torn", b"{\"schema\":\"unjank.trace/1\",\"ver"),
        ("bytes", &[0xff; 4096]),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        for command in ["show", "check"] {
            let mut arguments = vec![command];
            // `check` takes what does not begin as a report for a command, which cannot be run.
            arguments.extend(if command == "check" { &["--max", "fsync=0"][..] } else { &[] });
            arguments.push(path.to_str().unwrap());
            let output = run(&arguments);
            assert_eq!(output.status.code(), Some(2), "{command} {name}");
            let said = text(&output.stderr);
            assert!(said.starts_with("unjank: cannot "), "{command} {name}: {said}");
        }
    }
    assert_eq!(run(&["show", "/no/such/file"]).status.code(), Some(2));
}

#[test]
fn a_full_disk_loses_the_page_and_not_the_summary() {
    if !Path::new("/dev/full").exists() {
        return skip("no /dev/full");
    }
    let output = run(&["-o", "/dev/full", "--force", "--", "echo", "printed"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("watched by") && said.contains("cannot write /dev/full: No space"),
        "{said}"
    );
    assert_eq!(text(&output.stdout), "printed\n");
}

#[test]
fn a_file_that_waited_for_a_report_in_vain_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let output = run(&["-o", page.to_str().unwrap(), "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!page.exists());
}

#[test]
fn without_an_environment_it_works() {
    let output = trace(&["--", "/bin/true"]).env_clear().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn counts_and_errors_are_those_of_strace() {
    if !has(&["strace"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    for command in [
        &["ls", "-l", "/usr/share"][..],
        &["sh", "-c", "for i in 1 2 3; do cat /etc/passwd /no/such; done >/dev/null 2>&1; true"],
        &["find", "/etc/apt", "-newer", "/etc/passwd"],
    ] {
        let counted = Command::new("strace")
            .args(["-f", "-c", "-o", log.to_str().unwrap()])
            .args(command)
            .output()
            .unwrap();
        assert!(counted.status.success(), "{command:?}");
        let table = std::fs::read_to_string(&log).unwrap();
        let ours = run(&[&["--calls", "all", "--json", "--"][..], command].concat());
        // What the program prints comes first.
        let json = text(&ours.stdout).lines().last().unwrap().to_owned();
        let ours = counts(&serde_json::from_str(&json).unwrap());
        let mut compared = 0;
        for line in table.lines().filter(|line| line.contains("0.") || line.contains("100")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // % time, seconds, usecs/call, calls, [errors,] name
            let (Some(name), Some(calls)) = (words.last(), words.get(3)) else { continue };
            // The start of the program is the tracer's, memory differs from run to run.
            let differs = ["execve", "total", "brk", "mmap", "munmap", "wait4", "rt_sigreturn"];
            let Ok(calls) = calls.parse::<u64>() else { continue };
            if differs.contains(name) {
                continue;
            }
            let errors = if words.len() == 6 { words[4].parse().unwrap() } else { 0 };
            assert_eq!(ours.get(*name), Some(&(calls, errors)), "{name} of {command:?}\n{table}");
            compared += 1;
        }
        assert!(compared > 5, "{table}");
    }
}

/// Starts a traced program in a process group of its own and waits until it says that it runs.
fn started(arguments: &[&str]) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child = trace(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, stdout)
}

#[test]
fn ctrl_c_is_the_programs_and_the_report_is_whole() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("report.html");
        let (child, _stdout) = started(&[
            "-o",
            page.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]);
        // As a terminal does it.
        kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        assert_eq!(run(&["show", page.to_str().unwrap()]).status.code(), Some(0));
    });
}

#[test]
fn a_program_that_handles_ctrl_c_goes_on_and_so_does_its_recording() {
    in_time(|| {
        let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done";
        let (child, mut stdout) = started(&["--", "sh", "-c", script]);
        kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "caught\n");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("watched by "));
    });
}

#[test]
fn sigterm_ends_the_recording_with_a_report_and_the_program_lives_on() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("report.html");
        let fifo = dir.path().join("end");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let script = format!("echo ready; read line < {}; exit 5", fifo.display());
        let (mut child, _stdout) =
            started(&["-o", page.to_str().unwrap(), "--", "sh", "-c", &script]);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        // The line behind the report says that all is written.
        let stderr = BufReader::new(child.stderr.take().unwrap());
        assert!(
            stderr.lines().map_while(Result::ok).any(|line| line.contains("The program goes on"))
        );
        assert_eq!(run(&["show", page.to_str().unwrap()]).status.code(), Some(0));
        std::fs::write(&fifo, "go\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(5), "the program's own end");
    });
}

#[test]
fn an_attached_program_outlives_ctrl_c_and_the_report_is_whole() {
    in_time(|| {
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("report.html");
        let pid = sleeper.id().to_string();
        let child = trace(&["attach", "--backend", "ptrace", "-o", page.to_str().unwrap(), &pid])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It is traced once the kernel says so.
        let traced = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            !status.contains("TracerPid:\t0")
        };
        while !traced() {
            fixture::pause();
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(sleeper.try_wait().unwrap().is_none() && !traced());
        assert_eq!(run(&["show", page.to_str().unwrap()]).status.code(), Some(0));
        sleeper.kill().unwrap();
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    });
}

#[test]
fn nobody_may_trace_his_own_programs() {
    if !rustix::process::geteuid().is_root() || !has(&["setpriv"]) {
        return skip("only root can become nobody");
    }
    let dir = tempfile::tempdir().unwrap();
    // Our own directory may be closed to others.
    let program = dir.path().join("unjank");
    copy_program(PROGRAM, &program);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.arg("trace").args(arguments).env_remove("HOME").current_dir("/");
        command
    };
    for backend in ["seccomp", "ptrace", "peek"] {
        let output = nobody(&["--backend", backend, "--", "ls", "/"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{backend}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(&format!("watched by {backend}")));
    }
    // A child that has ended and was not waited for, and one that runs as another user.
    let watched = |script: &str| {
        let output = nobody(&["--backend", "peek", "--", "sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{script}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(!watched("true & exec sleep 0.4").contains("another user"));
    let changes_user = dir.path().join("sleep");
    copy_program("/bin/sleep", &changes_user);
    let set_user = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&changes_user, set_user).unwrap();
    // Where the recorder was given no processor for as long as that lived, it says so.
    let unlisted_ms = |said: &str| {
        let time = said.split("lived for less than ").nth(1)?;
        time.split(" ms").next()?.parse::<f64>().ok()
    };
    let mut tries = (0..5).map(|_| watched(&format!("{} 0.4; true", changes_user.display())));
    let said = tries.find(|said| unlisted_ms(said).is_some_and(|ms| ms < 400.0));
    let said = said.expect("it was given a processor once");
    assert!(said.contains("Not recorded: 1 of the processes that it started"), "{said}");

    let refused = nobody(&["attach", "1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("cannot trace process 1") && said.contains("hint: "), "{said}");
    let full = nobody(&["-o", "/report.html", "--", "true"]).output().unwrap();
    assert_eq!(full.status.code(), Some(2));
    assert!(text(&full.stderr).contains("cannot write /report.html: Permission denied"));
}

#[test]
fn a_log_of_strace_becomes_a_report() {
    if !has(&["strace"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (log, page) = (at("log"), at("report.html"));
    let made = Command::new("strace")
        .args(["-f", "-T", "-tt", "-o", &log, "cat", "/etc/passwd"])
        .stdout(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    let output = run(&["import", "-o", &page, &log]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = run(&["show", "--json", &page]);
    let report: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let log = std::fs::read_to_string(&log).unwrap();
    let opened = log.lines().filter(|line| line.contains(" openat(")).count();
    assert_eq!(counts(&report)["openat"].0, u64::try_from(opened).unwrap());
    assert_eq!(run(&["import", "/etc/passwd"]).status.code(), Some(2));
}

#[test]
fn the_doctor_says_what_launchers_wait_for_and_leaves_the_home_alone() {
    if !has(&["dbus-daemon", "gio"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let runtime = tempfile::tempdir().unwrap();
    let output = Command::new(PROGRAM)
        .args(["doctor", "--only", "launches", "--json"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", runtime.path())
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let gio = findings.iter().find(|finding| finding["name"] == "waits of gio");
    assert!(gio.unwrap()["time"]["n"].as_u64() > Some(0), "{document:#}");
    for dir in [home.path(), runtime.path()] {
        let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_watch_of_a_name_says_that_it_waits_for_a_process() {
    in_time(|| {
        let mut watch = trace(&["watch", "--backend", "peek", "nobody-is-called-so"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
        let first = told.next().unwrap();
        assert_eq!(first, "no process is called nobody-is-called-so yet; waiting for one");
        let pid = rustix::process::Pid::from_child(&watch);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(told.last().unwrap().starts_with("0 stalls printed"));
        assert_eq!(watch.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn a_watch_tells_of_a_main_thread_that_stands_still_and_ends_with_it() {
    in_time(|| {
        if !has(&["python3"]) {
            return;
        }
        // Reading from a pipe into which somebody writes now and then is no event loop's wait.
        let script = "import os,time; p=os.getpid(); r,w=os.pipe()\nwhile os.fork() == 0:\n  while os.getppid() == p: time.sleep(0.5); os.write(w,b'x')\n  os._exit(0)\nwhile True: os.read(r,1)";
        let mut watched = Command::new("python3").args(["-c", script]).spawn().unwrap();
        let pid = watched.id().to_string();
        let mut watch = trace(&["watch", "--threshold", "100ms", "--backend", "peek", &pid])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(told.next().unwrap().starts_with("watching "));
        assert!(told.any(|line| line.contains(" in read(")));
        watched.kill().unwrap();
        watched.wait().unwrap();
        assert!(told.any(|line| line.contains("idle waits")));
        assert_eq!(watch.wait().unwrap().code(), Some(0));
    });
}
