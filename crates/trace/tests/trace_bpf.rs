//! Programs in the kernel watch real programs.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be built or started fails the test; a test says what it skips"
)]

use crate::waiting;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sys::bpf::LoadError;
use unjank_trace::backend::bpf::programs::{KernelStacks, WakeupPolicy, WatchedThreads};
use unjank_trace::backend::bpf::record::BpfRecord;
use unjank_trace::backend::bpf::session::{BpfSession, BpfSettings, WatchStart};
use unjank_trace::backend::{self, TraceOptions, TraceTarget};
use unjank_trace::call::{CallEnd, TracedCall};
use unjank_trace::recording::{Backend, Exit, Recording, StackEnd, Target};
use unjank_trace::stack::names::{Names, SymbolSources};
use unjank_trace::syscall::{call_name, call_number};
use unjank_trace::syscall_set::Set;

use waiting::{build, pause};

fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
    eprintln!("SKIPPED: {why}");
}

fn session(threshold_ns: u64, ring_bytes: u32) -> Option<BpfSession> {
    let settings = BpfSettings {
        calls: &Set::all(),
        threshold_ns,
        kept: &[],
        threads: WatchedThreads::All,
        stacks: KernelStacks::Copied,
        ring_bytes,
        wakes: WakeupPolicy::Paced,
        owner: None,
    };
    match BpfSession::load(&settings) {
        Ok(session) => Some(session),
        Err(
            error @ (LoadError::NotAllowed(_) | LoadError::OtherNumbers | LoadError::OtherMachine),
        ) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Says whether programs can be put into the kernel here; else the test is skipped.
fn can() -> bool {
    session(u64::MAX, 4096).is_some()
}

/// Builds the program that is watched, in a directory that goes away; nothing where programs cannot be put into the kernel.
fn victim() -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = can().then(|| tempfile::tempdir().unwrap())?;
    let victim = build(dir.path(), "calls.c", &["-O1", "-g", "-pthread"]);
    Some((dir, victim))
}

fn options(words: &[&str], threshold: Duration) -> TraceOptions {
    let arguments = words.iter().map(|word| (*word).into()).collect();
    let command = backend::ProgramToStart { arguments, ..backend::ProgramToStart::default() };
    let mut options = TraceOptions::new(TraceTarget::Run(command), Set::all());
    options.threshold = threshold;
    options.backend = Some(Backend::Bpf);
    options
}

fn record(words: &[&str], threshold: Duration) -> Recording {
    let stop = Arc::new(AtomicBool::new(false));
    backend::run(&options(words, threshold), &stop).unwrap().recording
}

const NEVER: Duration = Duration::from_secs(3600);

fn count(recording: &Recording, name: &str) -> u64 {
    let number = call_number(name).unwrap();
    let totals = recording.totals.iter().filter(|((_, called), _)| *called == number);
    totals.map(|(_, total)| total.count).sum()
}

fn slow<'a>(recording: &'a Recording, name: &str) -> Vec<&'a TracedCall> {
    let number = call_number(name).unwrap();
    recording.slow.iter().filter(|call| call.number == number).collect()
}

fn names(recording: &Recording, call: &TracedCall) -> Vec<String> {
    let Some(stack) = call.stack else { return Vec::new() };
    let stack = &recording.stacks[usize::try_from(stack.0).unwrap()];
    let frames = Names::new(SymbolSources::default()).frames(recording, call.process, stack);
    frames.into_iter().map(|frame| frame.name).collect()
}

fn target<'a>(recording: &'a Recording, call: &TracedCall) -> &'a Target {
    &recording.targets[usize::try_from(call.target.unwrap().0).unwrap()]
}

/// Counts and errors by call, as `strace -f -c` has them.
fn counted_by_strace(words: &[&str], dir: &Path) -> BTreeMap<String, (u64, u64)> {
    let summary = dir.join("summary");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "name,calls,errors", "-o"]).arg(&summary).args(words);
    strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(dir);
    strace.status().unwrap();
    let text = std::fs::read_to_string(&summary).unwrap();
    std::fs::remove_file(&summary).unwrap();
    let lines = text.lines().skip(2).filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().filter(|name| *name != "total" && !name.starts_with('-'))?;
        let calls = words.next()?.parse().unwrap();
        let errors = words.next().map_or(0, |errors| errors.parse().unwrap());
        Some((name.to_owned(), (calls, errors)))
    });
    lines.collect()
}

fn counted_by_us(words: &[&str], dir: &Path) -> BTreeMap<String, (u64, u64)> {
    // A shell closes what the test has open, so that both see the same descriptors.
    let line = ["exec \"$@\" < /dev/null > /dev/null 2> /dev/null"];
    let mut all = vec!["/bin/sh", "-c", line[0], "sh"];
    all.extend(words);
    let mut options = options(&all, NEVER);
    if let TraceTarget::Run(command) = &mut options.subject {
        command.directory = Some(dir.into());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let recording = backend::run(&options, &stop).unwrap().recording;
    assert_eq!(recording.lost, 0);
    let mut counted: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut errors = 0;
    for ((_, number), total) in &recording.totals {
        errors += total.errors;
        assert_eq!(total.histogram.counts().iter().sum::<u64>(), total.count);
        // A number that no call has is not a call to strace.
        let Some(name) = call_name(*number) else { continue };
        let sum = counted.entry(name.to_owned()).or_default();
        sum.0 += total.count;
        sum.1 += total.errors;
    }
    let by_error: u64 = recording.errors.values().sum();
    assert_eq!(by_error, errors);
    counted
}

/// What the shell of `counted_by_us` does before it becomes the program, measured with `true` in its place.
fn counted_of_the_shell(dir: &Path) -> BTreeMap<String, (u64, u64)> {
    let mut counted = counted_by_us(&["/bin/true"], dir);
    for (name, (calls, errors)) in counted_by_strace(&["/bin/true"], dir) {
        let sum = counted.get_mut(&name).unwrap();
        sum.0 -= calls;
        sum.1 -= errors;
    }
    counted
}

#[test]
fn counts_and_errors_are_those_of_strace() {
    let Some((dir, victim)) = victim() else { return };
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        return skip("no strace");
    }
    let victim = victim.to_str().unwrap();
    std::fs::write(dir.path().join("text"), "b\na\nc\n").unwrap();
    let shell = counted_of_the_shell(dir.path());
    let programs: &[&[&str]] = &[
        &["/bin/true"],
        &["/bin/false"],
        &["/bin/echo", "hello"],
        &["/bin/cat", "text"],
        &["/bin/cat", "missing"],
        &["/bin/ls", "-l", "/usr"],
        &["/bin/ls", "/missing"],
        &["/bin/uname", "-a"],
        &["/bin/pwd"],
        &["/bin/cp", "text", "copy"],
        // Not `-sf`: for the name of its temporary link it draws random numbers until one is fair.
        &["/bin/ln", "-s", "text", "link"],
        &["/bin/touch", "touched"],
        &["/bin/chmod", "600", "text"],
        &["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=500"],
        &["/bin/grep", "a", "text"],
        &["/bin/sed", "s/a/b/", "text"],
        &["/bin/sleep", "0.01"],
        &["/usr/bin/wc", "text"],
        &["/usr/bin/head", "-1", "text"],
        &["/usr/bin/tail", "-1", "text"],
        &["/usr/bin/tr", "a", "b"],
        &["/usr/bin/cut", "-c1", "text"],
        &["/usr/bin/uniq", "text"],
        &["/usr/bin/od", "text"],
        &["/usr/bin/md5sum", "text"],
        &["/usr/bin/stat", "text"],
        &["/usr/bin/seq", "100"],
        &["/usr/bin/env"],
        &["/usr/bin/basename", "/a/b"],
        &["/usr/bin/find", "/usr/include/linux", "-name", "b*"],
        &[victim, "ask", "1000"],
        &[victim, "vfork", "5"],
        &[victim, "wild"],
    ];
    for words in programs {
        // What the first run makes, both others find.
        let mut first = Command::new(words[0]);
        first.args(&words[1..]).current_dir(dir.path());
        first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let mut ours = counted_by_us(words, dir.path());
        for (name, (calls, errors)) in &shell {
            let sum = ours.get_mut(name).unwrap();
            sum.0 -= calls;
            sum.1 -= errors;
        }
        ours.retain(|_, sum| *sum != (0, 0));
        let mut theirs = counted_by_strace(words, dir.path());
        theirs.retain(|name, _| !name.starts_with("syscall_"));
        assert_eq!(ours, theirs, "{words:?}");
    }
}

#[test]
fn a_slow_sync_comes_with_its_file_and_callers_though_the_file_is_closed() {
    let Some((dir, victim)) = victim() else { return };
    let file = dir.path().join("saved file");
    let recording =
        record(&[victim.to_str().unwrap(), "save", file.to_str().unwrap()], Duration::ZERO);
    let [sync] = *slow(&recording, "fsync") else { panic!("{:?}", recording.slow.len()) };
    assert_eq!(sync.outcome, CallEnd::Returned(0));
    let Target::File { path, mount } = target(&recording, sync) else { panic!("no file") };
    assert_eq!(path, file.as_os_str().as_encoded_bytes());
    assert!(mount.is_some());
    let names = names(&recording, sync);
    let inner = names.get(..4).unwrap_or_default();
    assert_eq!(inner, ["fsync", "save_inner", "save", "main"], "{names:?} {:?}", recording.notes);
    let stack = &recording.stacks[usize::try_from(sync.stack.unwrap().0).unwrap()];
    assert_eq!(stack.end, StackEnd::Whole);
    let parts = sync.cpu_ns.unwrap() + sync.queued_ns.unwrap();
    assert!(parts <= sync.wall_ns, "{sync:?}");
    // Relative paths come with the directory.
    let opened = slow(&recording, "openat");
    assert!(opened.iter().all(|call| matches!(target(&recording, call), Target::File { .. })));
}

#[test]
fn each_of_many_short_processes_is_counted_and_ends_with_its_status() {
    let Some((_dir, victim)) = victim() else { return };
    let recording = record(&[victim.to_str().unwrap(), "forks", "300"], NEVER);
    assert_eq!(recording.processes.len(), 301);
    assert_eq!(count(&recording, "getppid"), 3000);
    let ends = recording.processes.values().filter(|process| process.parent.is_some());
    let mut by_code = BTreeMap::new();
    for process in ends {
        let Some(Exit::Code(code)) = process.exit else { panic!("{process:?}") };
        *by_code.entry(code).or_insert(0) += 1;
    }
    assert_eq!(by_code.into_values().collect::<Vec<_>>(), [43, 43, 43, 43, 43, 43, 42]);
}

#[test]
fn threads_are_counted_apart() {
    let Some((_dir, victim)) = victim() else { return };
    let recording = record(&[victim.to_str().unwrap(), "threads", "50"], NEVER);
    assert_eq!((recording.processes.len(), recording.threads.len()), (1, 51));
    let number = call_number("getppid").unwrap();
    let counts: Vec<u64> = recording
        .totals
        .iter()
        .filter(|((_, called), _)| *called == number)
        .map(|(_, total)| total.count)
        .collect();
    assert_eq!(counts, [100; 50]);
    assert!(recording.threads.values().all(|thread| thread.end_ns.is_some()));
}

#[test]
fn long_waits_of_main_threads_for_locks_have_callers_and_no_others_are_counted() {
    let Some((_dir, victim)) = victim() else { return };
    let locks = |held_ms: &str, calls: &str| {
        let mut options = options(&[victim.to_str().unwrap(), "locks", held_ms], NEVER);
        (options.calls, options.threshold) = (calls.parse().unwrap(), Duration::from_millis(1));
        let stop = Arc::new(AtomicBool::new(false));
        backend::run(&options, &stop).unwrap().recording
    };
    let recording = locks("200", "blocking");
    assert_eq!(count(&recording, "futex"), 0, "{:?}", recording.totals);
    let waits = slow(&recording, "futex");
    assert!(waits.iter().all(|wait| wait.thread == wait.process), "{waits:?}");
    let takes_lock = |wait: &&&TracedCall| names(&recording, wait).iter().any(|n| n == "take_lock");
    let Some(wait) = waits.iter().find(takes_lock) else { panic!("{waits:?}") };
    assert_eq!(wait.outcome, CallEnd::Returned(0));
    assert!(wait.wall_ns > 100_000_000, "{wait:?}");
    // Who asks for a few calls is told of these alone.
    assert_eq!(slow(&locks("200", "sync"), "futex"), Vec::<&TracedCall>::new());
    // Who asks for locks has them counted, of each thread.
    let counted = locks("200", "blocking,futex");
    assert!(count(&counted, "futex") >= 2, "{:?}", counted.totals);
    let of_others =
        slow(&counted, "futex").iter().filter(|wait| wait.thread != wait.process).count();
    assert!(of_others >= 1);
}

#[test]
fn programs_that_are_run_by_vfork_and_by_a_thread_are_seen() {
    let Some((_dir, victim)) = victim() else { return };
    let victim = victim.to_str().unwrap();
    let recording = record(&[victim, "vfork", "7"], NEVER);
    let of_true = recording.processes.values().filter(|p| p.executable == b"/bin/true");
    assert_eq!((of_true.count(), count(&recording, "execve")), (7, 8));

    let recording = record(&[victim, "exec-in-thread"], Duration::ZERO);
    assert_eq!(recording.processes.len(), 1);
    let process = recording.processes.values().next().unwrap();
    assert_eq!(process.executable, b"/bin/true");
    assert_eq!(process.command, [b"true".to_vec(), b"from a thread".to_vec()]);
    assert_eq!((process.exit, count(&recording, "execve")), (Some(Exit::Code(0)), 2));
    let runs = slow(&recording, "execve");
    assert!(runs.iter().all(|call| call.thread == call.process), "{runs:?}");
    // The callers are gone with the old program; the new one's are not theirs.
    assert!(runs.iter().all(|call| call.stack.is_none()), "{runs:?}");
}

#[test]
fn an_interrupted_call_is_one_call_whether_it_goes_on_or_fails() {
    let Some((_dir, victim)) = victim() else { return };
    let mut session = session(1_000_000, 1 << 20).unwrap();
    let mut child =
        Command::new(victim).args(["interrupted", "10"]).stdout(Stdio::null()).spawn().unwrap();
    session.watch(child.id(), WatchStart::Now).unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    // It stops itself; then it goes on into a sleep, is stopped in it, and goes on again.
    wait_until(|| std::fs::read_to_string(&stat).unwrap().contains(") T "));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success());
    session.detach();
    let mut sleeps = Vec::new();
    let mut pauses = 0;
    session.take(usize::MAX, |record| {
        if let BpfRecord::Call(call) = record {
            match call_name(call.number) {
                Some("clock_nanosleep" | "nanosleep") => sleeps.push((call.result, call.wall_ns)),
                Some("pause") => {
                    assert_eq!(call.result, -4);
                    pauses += 1;
                }
                _ => {}
            }
        }
    });
    assert!((5..=10).contains(&pauses), "{pauses}");
    assert_eq!(sleeps.len(), 1, "{sleeps:?}");
    assert!(sleeps[0].0 == 0 && sleeps[0].1 >= 30_000_000, "{sleeps:?}");
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it did not come to it");
        pause();
    }
}

#[test]
fn a_running_program_is_watched_and_left_as_it_was() {
    let Some((_dir, victim)) = victim() else { return };
    let mut child = Command::new(victim)
        .arg("read")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let mut dots = child.stdout.take().unwrap();
    let mut bytes = child.stdin.take().unwrap();
    let mut dot = [0];
    dots.read_exact(&mut dot).unwrap();
    let mut answer = || {
        bytes.write_all(b"x").unwrap();
        dots.read_exact(&mut dot).unwrap();
    };
    let mut session = session(u64::MAX, 4096).unwrap();
    session.watch(process, WatchStart::Now).unwrap();
    (0..20).for_each(|_| answer());
    let write = call_number("write").unwrap();
    let writes = |session: &BpfSession| {
        let totals = session.totals().unwrap();
        let of_write = totals.iter().find(|(_, number, _)| *number == write).unwrap();
        assert_eq!(of_write.0, process);
        of_write.2.count
    };
    assert_eq!(writes(&session), 20);
    session.detach();
    // On a busy machine the kernel takes its time until every processor has left the programs.
    let mut counted = writes(&session);
    wait_until(|| {
        answer();
        std::mem::replace(&mut counted, writes(&session)) == counted
    });
    (0..20).for_each(|_| answer());
    assert_eq!(writes(&session), counted);

    // What it is in since before the recording is told too.
    wait_until(|| {
        std::fs::read_to_string(format!("/proc/{process}/syscall")).unwrap().starts_with("0 ")
    });
    let mut options = options(&["unused"], Duration::ZERO);
    options.subject = TraceTarget::Attach(process);
    let stop = Arc::new(AtomicBool::new(true));
    let recording = backend::run(&options, &stop).unwrap().recording;
    let [.., running] = *slow(&recording, "read") else { panic!("no reads") };
    assert_eq!((running.outcome, running.arguments[0]), (CallEnd::Running, 0));
    // Taking the programs out of the kernel is not of the recording, or the thread would be in no call for that long.
    assert_eq!(running.start_ns + running.wall_ns, recording.length_ns);
    let notes = recording.notes.join("\n");
    assert!(notes.contains("1 call had begun before the recording"), "{notes}");
    assert!(names(&recording, running).contains(&"main".to_owned()));
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0"));
    drop(bytes);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_the_ring_has_no_room_for_is_counted_to_the_call() {
    let Some((_dir, victim)) = victim() else { return };
    let mut session = session(0, 64 << 10).unwrap();
    // The shell reads a line before it becomes the program, which is watched from then on.
    let mut child = Command::new("/bin/sh")
        .args(["-c", "read line; exec \"$0\" ask 5000"])
        .arg(victim)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    session.watch(child.id(), WatchStart::Exec).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    session.detach();
    let counted: u64 = session.totals().unwrap().iter().map(|(_, _, total)| total.count).sum();
    let faults = session.faults().unwrap();
    let mut told = 0;
    session.take(usize::MAX, |record| told += u64::from(matches!(record, BpfRecord::Call(_))));
    assert!(faults.lost_calls > 1000 && told > 10, "{faults:?}, {told} told");
    assert_eq!(told + faults.lost_calls, counted);
}

#[test]
fn a_wild_stack_or_path_harms_nobody() {
    let Some((_dir, victim)) = victim() else { return };
    let recording = record(&[victim.to_str().unwrap(), "wild"], Duration::ZERO);
    let sleeps = slow(&recording, "nanosleep");
    assert_eq!(sleeps.len(), 4);
    assert!(sleeps.iter().all(|call| call.outcome == CallEnd::Returned(0)));
    let renames = slow(&recording, "renameat2");
    assert!(renames.iter().all(|call| call.outcome == CallEnd::Failed(14)), "{renames:?}");
    assert_eq!(renames.len(), 10);
    assert_eq!(count(&recording, "fsync"), 2);
}

#[test]
fn another_tracer_may_trace_the_same_program() {
    let Some((dir, victim)) = victim() else { return };
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        return skip("no strace");
    }
    let out = dir.path().join("out");
    let words =
        ["strace", "-f", "-o", out.to_str().unwrap(), victim.to_str().unwrap(), "forks", "20"];
    let recording = record(&words, NEVER);
    assert_eq!(count(&recording, "getppid"), 200);
}

#[test]
fn the_kernel_refuses_a_program_with_a_fault_and_says_why() {
    use sys::bpf::assembler::{Assembler, JumpCondition, Register, Size};
    use sys::bpf::{BpfProgram, Instruction, ProgramKind};
    use unjank_trace::backend::bpf::fields::KernelOffsets;
    if !can() {
        return;
    }
    let point = KernelOffsets::of_this_kernel().unwrap().tracepoints.sys_enter;
    let load = |instructions: &[Instruction]| {
        BpfProgram::load(ProgramKind::TypedTracepoint(point), "unjank_test", instructions)
    };
    let mut sound = Assembler::default();
    let end = sound.label();
    sound.load(Size::Long, Register::R1, Register::R1, 8);
    sound.jump_if(Register::R1, JumpCondition::Above, 7, end);
    sound.set_long(Register::R2, 1 << 40).place(end).leave();
    let sound = sound.finish().unwrap();
    assert!(load(&sound).is_ok());
    // A jump into the middle of a constant.
    let mut jumps_wrong = sound.clone();
    jumps_wrong[1].offset = 1;
    // Beyond the arguments.
    let mut reads_wrong = sound.clone();
    reads_wrong[0].offset = 4096;
    // Without an end.
    let runs_off = &sound[..sound.len() - 1];
    for wrong in [&jumps_wrong, &reads_wrong, runs_off] {
        let refused = load(wrong).unwrap_err();
        assert!(!refused.log.is_empty(), "{}", refused.error);
    }
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    if !can() {
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let error = backend::run(&options(&["/missing/program"], NEVER), &stop).unwrap_err();
    assert_eq!(error.to_string(), "cannot run /missing/program");
}
