//! The backends that stop programs, on programs that are hard to stop, and beside strace.
#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
#![expect(clippy::unwrap_used, reason = "a program that cannot be built or started fails the test")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unjank_trace::backend::{
    self, RecordingLimit, RecordingOutcome, Stacks, TraceOptions, TraceTarget,
};
use unjank_trace::call;
use unjank_trace::recording::{Backend, Exit, Recording, Total};
use unjank_trace::syscall::{call_name, call_number};

use crate::waiting::pause;

const BACKENDS: [Backend; 2] = [Backend::Seccomp, Backend::Ptrace];

/// Builds the victim once and returns its path; the directory stays as long as the test program.
fn edges() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("edges");
        // Not everybody for whom a test runs can read this folder.
        let source = directory.path().join("edges.c");
        std::fs::write(&source, include_str!("victims/edges.c")).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(source);
        assert!(compiler.status().unwrap().success(), "gcc");
        (directory, program)
    });
    &built.1
}

/// Traces `command` with its output in a file, and returns what was seen and what it printed.
fn trace(command: &[&str], calls: &str, with: Backend) -> (RecordingOutcome, String) {
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut words: Vec<OsString> =
        ["/bin/sh", "-c", "exec \"$@\" > \"$0\""].map(OsString::from).into();
    words.push(out.path().into());
    words.extend(command.iter().map(OsString::from));
    let outcome = run(
        TraceTarget::Run(backend::ProgramToStart { arguments: words, ..Default::default() }),
        calls,
        with,
    );
    let printed = std::fs::read_to_string(out.path()).unwrap();
    (outcome, printed)
}

fn run(subject: TraceTarget, calls: &str, with: Backend) -> RecordingOutcome {
    let mut options = TraceOptions::new(subject, calls.parse().unwrap());
    options.backend = Some(with);
    backend::run(&options, &Arc::new(AtomicBool::new(false))).unwrap()
}

fn edge(case: &[&str], calls: &str, with: Backend) -> (RecordingOutcome, String) {
    let mut command = vec![edges().to_str().unwrap()];
    command.extend(case);
    trace(&command, calls, with)
}

/// Sums of all threads, by the name of the call.
fn totals(recording: &Recording) -> BTreeMap<&'static str, Total> {
    let mut sums = BTreeMap::new();
    for ((_, number), total) in &recording.totals {
        let sum: &mut Total = sums.entry(call_name(*number).unwrap()).or_default();
        sum.merge(total);
    }
    sums
}

fn count(outcome: &RecordingOutcome, call: &str) -> u64 {
    totals(&outcome.recording).get(call).map_or(0, |total| total.count)
}

fn errors(outcome: &RecordingOutcome, call: &str) -> u64 {
    totals(&outcome.recording).get(call).map_or(0, |total| total.errors)
}

fn exit(outcome: &RecordingOutcome) -> Exit {
    outcome.recording.processes[&outcome.process].exit.unwrap()
}

#[test]
fn a_call_that_signals_interrupt_is_counted_once() {
    for with in BACKENDS {
        let (outcome, printed) = edge(&["restart"], "read,getpgid", with);
        assert_eq!(printed, "handled 3 broken 0\n", "{with:?}");
        assert_eq!(count(&outcome, "getpgid"), 3, "{with:?}");
        assert_eq!(errors(&outcome, "read"), 0, "{with:?}");
        let whole = reads_of_a_byte(&outcome);
        assert_eq!(whole.len(), 1, "{with:?}: {whole:?}");
        assert!(whole[0].wall_ns > 40_000_000, "{with:?}: from the first entry to the last exit");
    }
}

/// The slow reads of one byte.
fn reads_of_a_byte(outcome: &RecordingOutcome) -> Vec<&call::TracedCall> {
    let read = call_number("read").unwrap();
    let slow = outcome.recording.slow.iter();
    slow.filter(|call| call.number == read && call.arguments[2] == 1 && call.wall_ns > 10_000_000)
        .collect()
}

#[test]
fn a_call_that_a_handler_ends_is_an_error_each_time() {
    for with in BACKENDS {
        let (outcome, printed) = edge(&["eintr"], "read,getpgid", with);
        assert_eq!(printed, "handled 3 broken 3\n", "{with:?}");
        assert_eq!(errors(&outcome, "read"), 3, "{with:?}");
        let eintr = outcome.recording.errors.get(&(call_number("read").unwrap(), 4));
        assert_eq!(eintr, Some(&3), "{with:?}");
    }
}

#[test]
fn a_stop_and_a_continue_are_seen_by_the_parent_and_do_not_break_a_sleep() {
    for with in BACKENDS {
        let (outcome, printed) = edge(&["stopped"], "nanosleep,clock_nanosleep", with);
        assert_eq!(printed, "stopped 1 continued 1 exit 0\n", "{with:?}");
        let sleeps = count(&outcome, "nanosleep") + count(&outcome, "clock_nanosleep");
        assert_eq!(sleeps, 2, "{with:?}: a sleep that goes on is one");
        assert_eq!(errors(&outcome, "clock_nanosleep"), 0, "{with:?}");
    }
}

#[test]
fn no_signal_is_eaten() {
    for with in BACKENDS {
        let (outcome, printed) = edge(&["signals", "500"], "getpgid", with);
        assert_eq!(printed, "500 signals\n", "{with:?}");
        assert_eq!(count(&outcome, "getpgid"), 500, "{with:?}");
    }
}

#[test]
fn every_thread_and_every_child_is_seen() {
    for with in BACKENDS {
        let (outcome, printed) = edge(&["threads", "500"], "getpgid", with);
        assert_eq!(printed, "500 threads\n", "{with:?}");
        assert_eq!(count(&outcome, "getpgid"), 500, "{with:?}");
        assert!(outcome.recording.threads.len() > 500, "{with:?}");
        assert!(outcome.recording.threads.values().all(|thread| thread.end_ns.is_some()));
        let (outcome, printed) = edge(&["forks", "100"], "getpgid", with);
        assert_eq!(printed, "100 ended\n", "{with:?}");
        assert_eq!(count(&outcome, "getpgid"), 100, "{with:?}");
        let children = outcome.recording.processes.values();
        let children: Vec<_> = children.filter(|p| p.parent == Some(outcome.process)).collect();
        assert_eq!(children.len(), 100, "{with:?}");
        assert!(children.iter().all(|p| p.exit == Some(Exit::Code(0))), "{with:?}");
    }
}

#[test]
fn a_call_that_runs_another_program_was_made_by_the_old_one() {
    for with in BACKENDS {
        let words = ["/bin/sh", "-c", "exec /bin/true"].map(OsString::from).into();
        let command = backend::ProgramToStart { arguments: words, ..Default::default() };
        let mut options = TraceOptions::new(TraceTarget::Run(command), "execve".parse().unwrap());
        options.backend = Some(with);
        options.stacks = Stacks::All;
        options.threshold = Duration::ZERO;
        let recording =
            backend::run(&options, &Arc::new(AtomicBool::new(false))).unwrap().recording;
        let last = recording.slow.iter().max_by_key(|call| call.start_ns).unwrap();
        assert_eq!(last.outcome, call::CallEnd::Returned(0), "{with:?}");
        let stack = &recording.stacks[usize::try_from(last.stack.unwrap().0).unwrap()];
        let files: Vec<String> = stack
            .frames
            .iter()
            .filter_map(|frame| recording.modules.get(usize::try_from(frame.module?).unwrap()))
            .map(|module| String::from_utf8_lossy(&module.path).into_owned())
            .collect();
        assert!(files[0].contains("libc"), "{with:?}: {files:?}");
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        assert!(files.iter().any(|file| Path::new(file) == shell), "{with:?}: {files:?}");
    }
}

#[test]
fn programs_started_by_vfork_and_from_a_thread_go_on_being_traced() {
    for with in BACKENDS {
        let (outcome, printed) = edge(&["vfork", "20"], "execve,vfork", with);
        assert_eq!(printed, "20 children\n", "{with:?}");
        // The shell, the program, and its children.
        assert_eq!(count(&outcome, "execve"), 22, "{with:?}");
        let (outcome, printed) = edge(&["exec_in_thread"], "getpgid,execve,pause", with);
        assert_eq!(printed, "another program, first thread: 1\n", "{with:?}");
        assert_eq!(exit(&outcome), Exit::Code(5), "{with:?}");
        assert_eq!(count(&outcome, "getpgid"), 1, "{with:?}");
        assert_eq!(count(&outcome, "execve"), 3, "{with:?}");
        let process = &outcome.recording.processes[&outcome.process];
        assert_eq!(process.command.last().unwrap(), b"after_exec", "{with:?}");
    }
}

#[test]
fn a_program_that_traces_and_one_with_a_filter_of_its_own_get_the_answers_they_expect() {
    for with in BACKENDS {
        let (_, printed) = edge(&["tracer"], "all", with);
        assert_eq!(printed, "traceme 1 seize -1 1\n", "{with:?}: EPERM, as under any tracer");
        let (outcome, printed) = edge(&["filtered"], "getpgid,write", with);
        assert_eq!(printed, "result -1 25\n", "{with:?}");
        assert!(count(&outcome, "write") >= 1, "{with:?}");
    }
}

#[test]
fn the_end_of_the_program_comes_back() {
    for with in BACKENDS {
        assert_eq!(exit(&edge(&["killed"], "all", with).0), Exit::Signal(9), "{with:?}");
        let (outcome, _) = edge(&["exit_under_threads", "20"], "pause", with);
        assert_eq!(exit(&outcome), Exit::Code(6), "{with:?}");
        let missing =
            backend::ProgramToStart { arguments: vec!["/nowhere/x".into()], ..Default::default() };
        let options = TraceOptions {
            backend: Some(with),
            ..TraceOptions::new(TraceTarget::Run(missing), "all".parse().unwrap())
        };
        let error = backend::run(&options, &Arc::new(AtomicBool::new(false))).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /nowhere/x", "{with:?}");
    }
}

#[test]
fn a_bound_program_sees_its_own_cpus() {
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
    for with in BACKENDS {
        let (outcome, printed) = edge(&["cpus"], "getpgid", with);
        assert_eq!(printed, format!("{cpus} cpus\n"), "{with:?}");
        assert_eq!(count(&outcome, "getpgid"), 2000, "{with:?}");
    }
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), cpus);
}

/// A program that waits for a line; it ends with the test.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn waiting() -> (Waiting, BufReader<impl Read>) {
    let mut command = Command::new(edges());
    let child = command.arg("lives_on").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut waiting = Waiting(child.unwrap());
    let mut printed = BufReader::new(waiting.0.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, format!("{}\n", waiting.0.id()));
    (waiting, printed)
}

#[test]
fn an_attached_program_is_traced_let_go_and_lives() {
    let (mut waiting, mut printed) = waiting();
    let stop = Arc::new(AtomicBool::new(false));
    let process = waiting.0.id();
    let mut options = TraceOptions::new(TraceTarget::Attach(process), "all".parse().unwrap());
    options.backend = Some(Backend::Ptrace);
    let (tracer, flag) = (options.clone(), Arc::clone(&stop));
    let tracer = std::thread::spawn(move || backend::run(&tracer, &flag));
    // Traced when the kernel says so.
    let status = format!("/proc/{process}/status");
    while !std::fs::read_to_string(&status)
        .unwrap()
        .lines()
        .any(|l| l.starts_with("TracerPid:") && !l.ends_with("\t0"))
    {
        pause();
    }
    stop.store(true, Ordering::Relaxed);
    let outcome = tracer.join().unwrap().unwrap();
    assert!(outcome.rest.is_none());
    assert_eq!(outcome.recording.threads.len(), 1);
    assert!(std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n"));
    writeln!(waiting.0.stdin.take().unwrap(), "go").unwrap();
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "lived\n");
    assert_eq!(waiting.0.wait().unwrap().code(), Some(7));
}

fn about(process: u32, what: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{what}")).unwrap_or_default()
}

/// Whether a process sleeps in `read`, and is not stopped at its entry.
fn sleeps_in_read(process: u32) -> bool {
    let number = call_number("read").unwrap().to_string();
    let sleeps = about(process, "stat").contains(") S ");
    about(process, "syscall").split(' ').next() == Some(&*number) && sleeps
}

/// How often a process has gone to sleep.
fn switches(process: u32) -> u64 {
    let status = about(process, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn an_attached_program_is_traced_to_its_end() {
    let (mut waiting, mut printed) = waiting();
    let process = waiting.0.id();
    let mut input = waiting.0.stdin.take().unwrap();
    while !sleeps_in_read(process) {
        pause();
    }
    let before = switches(process);
    let teller = std::thread::spawn(move || {
        // Stopped once, and asleep in the call again: from then on its calls are seen.
        while switches(process) < before + 2 {
            pause();
        }
        writeln!(input, "go").unwrap();
    });
    let outcome = run(TraceTarget::Attach(process), "getpgid,write,read", Backend::Ptrace);
    teller.join().unwrap();
    // The call that it was in when the tracer came is one call, and ended with the line.
    assert_eq!((count(&outcome, "read"), errors(&outcome, "read")), (1, 0));
    let waits =
        outcome.recording.slow.iter().find(|call| call.number == call_number("read").unwrap());
    assert_eq!(waits.unwrap().outcome, call::CallEnd::Returned(3));
    let notes = outcome.recording.notes.join("\n");
    assert!(notes.contains("1 call had begun before the recording"), "{notes}");
    assert_eq!(count(&outcome, "getpgid"), 100);
    assert_eq!(exit(&outcome), Exit::Code(7));
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "lived\n");
}

#[test]
fn a_stopped_recording_is_whole_at_once_and_the_program_lives_on() {
    for with in BACKENDS {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("in");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let out = directory.path().join("out");
        let script = "exec \"$0\" lives_on < \"$1\" > \"$2\"";
        let words = [
            "/bin/sh".into(),
            "-c".into(),
            script.into(),
            edges().into(),
            fifo.clone().into(),
            out.clone().into(),
        ];
        let command = backend::ProgramToStart {
            arguments: words.map(|w: OsString| w).into(),
            ..Default::default()
        };
        let mut options =
            TraceOptions::new(TraceTarget::Run(command), "getpgid,write,read".parse().unwrap());
        options.backend = Some(with);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let tracer = std::thread::spawn(move || backend::run(&options, &flag));
        let mut input = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        let process = || std::fs::read_to_string(&out).unwrap_or_default().trim_end().parse();
        while !process().is_ok_and(sleeps_in_read) {
            pause();
        }
        stop.store(true, Ordering::Relaxed);
        let outcome = tracer.join().unwrap().unwrap();
        let running =
            outcome.recording.slow.iter().filter(|c| c.outcome == call::CallEnd::Running).count();
        assert_eq!(running, 1, "{with:?}: the read that it waits in");
        assert!(outcome.recording.processes[&outcome.process].exit.is_none(), "{with:?}");
        writeln!(input, "go").unwrap();
        assert_eq!(outcome.rest.unwrap().wait(), Some(Exit::Code(7)), "{with:?}");
        assert!(std::fs::read_to_string(&out).unwrap().ends_with("\nlived\n"), "{with:?}");
    }
}

#[test]
fn a_recording_can_end_with_the_program_while_its_children_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done");
    let script = "(read line < \"$0\"; echo done > \"$1\") & exit 4";
    let fifo = directory.path().join("in");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let words: [OsString; 5] =
        ["/bin/sh".into(), "-c".into(), script.into(), fifo.clone().into(), done.clone().into()];
    let command = backend::ProgramToStart { arguments: words.into(), ..Default::default() };
    let mut options = TraceOptions::new(TraceTarget::Run(command), "disk".parse().unwrap());
    options.backend = Some(Backend::Seccomp);
    options.until = RecordingLimit::ProgramEnded;
    let outcome = backend::run(&options, &Arc::new(AtomicBool::new(false))).unwrap();
    assert_eq!(exit(&outcome), Exit::Code(4));
    std::fs::OpenOptions::new().write(true).open(&fifo).unwrap().write_all(b"x\n").unwrap();
    assert_eq!(outcome.rest.unwrap().wait(), None, "the program itself ended before");
    assert_eq!(std::fs::read_to_string(&done).unwrap(), "done\n");
}

#[test]
fn slow_calls_have_stacks_and_say_what_they_waited_for() {
    for with in BACKENDS {
        let command = ["/bin/sleep", "0.05"].map(OsString::from).into();
        let command = backend::ProgramToStart { arguments: command, ..Default::default() };
        let mut options = TraceOptions::new(TraceTarget::Run(command), "blocking".parse().unwrap());
        options.backend = Some(with);
        options.threshold = Duration::from_millis(20);
        for stacks in [Stacks::Slow, Stacks::None] {
            options.stacks = stacks;
            let outcome = backend::run(&options, &Arc::new(AtomicBool::new(false))).unwrap();
            let slow = &outcome.recording.slow;
            let sleep = slow
                .iter()
                .find(|call| call.number == call_number("clock_nanosleep").unwrap())
                .unwrap();
            assert!(sleep.wall_ns >= 50_000_000, "{sleep:?}");
            assert!(sleep.blocked_ns().unwrap() > sleep.cpu_ns.unwrap(), "{sleep:?}");
            let frames = sleep.stack.map(|s| outcome.recording.stacks[s.0 as usize].frames.len());
            match stacks {
                Stacks::Slow => assert!(frames.unwrap() >= 3, "{frames:?}"),
                _ => assert_eq!(frames, None),
            }
        }
    }
}

/// What strace counts: calls and errors, by name.
fn strace(command: &[&str]) -> BTreeMap<String, (u64, u64)> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(log.path())
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap();
    let mut counted = BTreeMap::new();
    for line in std::fs::read_to_string(log.path()).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (calls, errors, name) = match words[..] {
            [_, _, _, calls, name] => (calls, "0", name),
            [_, _, _, calls, errors, name] => (calls, errors, name),
            _ => continue,
        };
        if name != "total"
            && let (Ok(calls), Ok(errors)) = (calls.parse(), errors.parse())
        {
            counted.insert(name.to_owned(), (calls, errors));
        }
    }
    assert!(!counted.is_empty(), "strace counted nothing for {command:?}");
    counted
}

/// Counts with us, with nothing on the program's descriptors, as strace above.
fn ours(command: &[&str], with: Backend) -> BTreeMap<String, (u64, u64)> {
    let mut words: Vec<OsString> =
        ["/bin/sh", "-c", "exec \"$@\" < /dev/null > /dev/null 2>&1", "sh"]
            .map(OsString::from)
            .into();
    words.extend(command.iter().map(OsString::from));
    let command = backend::ProgramToStart { arguments: words, ..Default::default() };
    let outcome = run(TraceTarget::Run(command), "all", with);
    let counted = totals(&outcome.recording)
        .into_iter()
        .map(|(name, t)| (name.to_owned(), (t.count, t.errors)));
    counted.collect()
}

/// Real programs whose calls are the same in each run.
const PROGRAMS: [&[&str]; 30] = [
    &["/bin/true"],
    &["/bin/false"],
    &["/bin/echo", "hello"],
    &["/bin/ls", "-l", "/usr/bin"],
    &["/bin/ls", "-R", "/usr/share/doc/libc6"],
    &["/bin/cat", "/etc/passwd", "/etc/group", "/nowhere"],
    &["/usr/bin/find", "/usr/share/doc/gcc", "-name", "x*"],
    &["/usr/bin/find", "/usr/include/linux", "-newer", "/etc/passwd"],
    &["/bin/grep", "-r", "PTRACE_SEIZE", "/usr/include/linux"],
    &["/bin/sed", "-n", "1,5p", "/etc/passwd"],
    &["/usr/bin/awk", "{ n += NF } END { print n }", "/etc/passwd"],
    &["/usr/bin/sort", "--parallel=1", "/etc/passwd"],
    &["/usr/bin/uniq", "/etc/group"],
    &["/usr/bin/head", "-c", "100", "/bin/ls"],
    &["/usr/bin/tail", "-n", "3", "/etc/passwd"],
    &["/usr/bin/wc", "-l", "/etc/passwd", "/etc/group"],
    &["/usr/bin/md5sum", "/bin/ls"],
    &["/usr/bin/sha256sum", "/bin/bash"],
    &["/usr/bin/stat", "/etc", "/nowhere"],
    &["/usr/bin/du", "-s", "/usr/include/linux"],
    &["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000"],
    &["/usr/bin/cut", "-d:", "-f1", "/etc/passwd"],
    &["/usr/bin/tr", "a", "b"],
    &["/usr/bin/od", "-c", "/etc/hostname"],
    &["/usr/bin/cmp", "/bin/ls", "/bin/cat"],
    &["/usr/bin/diff", "/etc/passwd", "/etc/group"],
    &["/usr/bin/env", "-i", "/bin/true"],
    &["/bin/sh", "-c", "for i in 1 2 3; do /bin/true; done; /nowhere; test -e /nowhere"],
    &["/bin/tar", "-cf", "/dev/null", "/usr/include/linux"],
    &["/usr/bin/gzip", "-c", "/bin/ls"],
];

/// What differs between two counts of one program, without what each of the runs began with.
fn differences(
    left: &BTreeMap<String, (u64, u64)>,
    right: &BTreeMap<String, (u64, u64)>,
) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let differ = names.into_iter().filter(|name| left.get(*name) != right.get(*name));
    differ.map(|name| format!("{name}: {:?} / {:?}", left.get(name), right.get(name))).collect()
}

#[test]
fn counts_and_errors_are_straces_on_thirty_programs() {
    // What the shell does before it becomes the program: both have it, so both are counted alike.
    let script = "exec \"$@\" < /dev/null > /dev/null 2>&1";
    let all = std::env::var_os("ALL_BACKENDS").is_some();
    for (at, command) in PROGRAMS.into_iter().enumerate() {
        let whole: Vec<&str> =
            ["/bin/sh", "-c", script, "sh"].into_iter().chain(command.iter().copied()).collect();
        let expected = strace(&whole);
        // What is not the same in two runs of strace itself is not the same in ours: a heap that begins elsewhere.
        let again = strace(&whole);
        // By each of them in turn; ci/slow counts each program by both.
        let backends = if all { &BACKENDS[..] } else { &BACKENDS[at % 2..][..1] };
        for &with in backends {
            let mut counted = ours(command, with);
            // Calls that have no result; strace does not count them.
            counted.retain(|name, _| name != "exit_group" && name != "exit");
            let differ = differences(&expected, &counted);
            let unsteady = differences(&expected, &again);
            let unsteady = |line: &String| {
                unsteady.iter().any(|u| u.split(':').next() == line.split(':').next())
            };
            let differ: Vec<_> = differ.into_iter().filter(|line| !unsteady(line)).collect();
            assert!(differ.is_empty(), "{command:?} by {with:?}, strace / ours: {differ:?}");
        }
    }
}

#[test]
fn a_restart_that_is_counted_twice_is_noticed() {
    let once = BTreeMap::from([("read".to_owned(), (3, 0))]);
    let twice = BTreeMap::from([("read".to_owned(), (4, 0))]);
    assert_eq!(differences(&once, &twice), ["read: Some((3, 0)) / Some((4, 0))"]);
    assert_eq!(differences(&once, &once), Vec::<String>::new());
}

#[test]
fn a_stranger_without_privileges_can_trace_its_own() {
    if !rustix::process::getuid().is_root() {
        // Everything above was that already.
        return;
    }
    let program = std::env::current_exe().unwrap();
    // The test program again, as nobody, from a place that nobody can read.
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tests");
    // By another process: what a test beside this one starts would have our descriptor, and that cannot be run.
    assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let mut again = Command::new(copy);
    again.args([
        "--exact",
        "trace_backends::no_signal_is_eaten",
        "trace_backends::the_end_of_the_program_comes_back",
        "trace_backends::an_attached_program_is_traced_let_go_and_lives",
    ]);
    let output =
        again.env("TMPDIR", "/tmp").current_dir("/").uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("3 passed"), "{said}");
}
