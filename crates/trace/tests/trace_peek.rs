//! Programs are looked at from outside, once and live.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be built or started fails the test; a test says so when it skips"
)]

use crate::waiting;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unjank_trace::backend::{self, TraceError, TraceOptions, TraceTarget};
use unjank_trace::call::{CallEnd, TracedCall};
use unjank_trace::recording::{Backend, Exit, Recording, StackEnd, Target};
use unjank_trace::stack::names::{Names, SymbolSources};
use unjank_trace::syscall::{call_name, call_number};
use unjank_trace::syscall_set::Set;
use unjank_trace::watch::{self, StallKind, WatchEvent};

use waiting::{build, pause};

const MILLISECOND: Duration = Duration::from_millis(1);

fn victim(dir: &Path) -> PathBuf {
    build(dir, "calls.c", &["-O1", "-g", "-pthread"])
}

fn options(subject: TraceTarget) -> TraceOptions {
    let mut options = TraceOptions::new(subject, Set::all());
    options.threshold = 5 * MILLISECOND;
    options.backend = Some(Backend::Peek);
    options
}

fn slow<'a>(recording: &'a Recording, name: &str) -> Vec<&'a TracedCall> {
    recording.slow.iter().filter(|call| call_name(call.number) == Some(name)).collect()
}

fn names(recording: &Recording, call: &TracedCall) -> Vec<String> {
    let Some(stack) = call.stack else { return Vec::new() };
    let stack = &recording.stacks[usize::try_from(stack.0).unwrap()];
    let frames = Names::new(SymbolSources::default()).frames(recording, call.process, stack);
    frames.into_iter().map(|frame| frame.name).collect()
}

#[test]
fn a_started_program_is_seen_to_its_end() {
    let command = backend::ProgramToStart {
        arguments: vec!["/bin/sh".into(), "-c".into(), "/bin/sleep 0.5; exit 3".into()],
        ..backend::ProgramToStart::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let outcome = backend::run(&options(TraceTarget::Run(command)), &stop).unwrap();
    let recording = outcome.recording;
    assert_eq!(recording.processes[&outcome.process].exit, Some(Exit::Code(3)));
    // The shell waits for its child, which sleeps; both are seen when the listing is not late.
    let waits = slow(&recording, "wait4");
    assert!(waits.iter().all(|call| call.outcome == CallEnd::Unknown), "{waits:?}");
    assert!(!waits.is_empty());
    assert!(waits.iter().any(|call| call.stack.is_some()));
}

/// A program that says when it is about to read, and reads.
struct Reader {
    child: Child,
}

impl Reader {
    fn start(program: &Path) -> Reader {
        let mut command = Command::new(program);
        let child = command.arg("read").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut reader = Reader { child: child.spawn().unwrap() };
        reader.wait_for_dot();
        reader
    }

    fn wait_for_dot(&mut self) {
        self.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    fn answer(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        self.wait_for_dot();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

#[test]
fn what_a_thread_is_blocked_in_comes_with_its_callers_and_without_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let reader = Reader::start(&victim(dir.path()));
    let process = reader.child.id();
    let stop = Arc::new(AtomicBool::new(false));
    let recording = std::thread::scope(|scope| {
        let options = options(TraceTarget::Attach(process));
        let its_stop = Arc::clone(&stop);
        let watcher = scope.spawn(move || backend::run(&options, &its_stop).unwrap());
        // It is blocked for as long as we like: long enough for any machine.
        std::thread::park_timeout(Duration::from_secs(2));
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        assert!(status.contains("TracerPid:\t0"));
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap().recording
    });
    let [read] = *slow(&recording, "read") else { panic!("{:?}", recording.slow) };
    assert_eq!((read.outcome, read.arguments[0]), (CallEnd::Running, 0));
    assert_eq!(read.cpu_ns, Some(0));
    assert_eq!(names(&recording, read)[..2], ["read", "main"]);
    let stack = &recording.stacks[usize::try_from(read.stack.unwrap().0).unwrap()];
    assert_eq!(stack.end, StackEnd::Whole);
    let target = &recording.targets[usize::try_from(read.target.unwrap().0).unwrap()];
    assert!(matches!(target, Target::Other(what) if what.starts_with("pipe:")), "{target:?}");
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let stop = Arc::new(AtomicBool::new(false));
    let error = backend::run(&options(TraceTarget::Attach(u32::MAX)), &stop).unwrap_err();
    assert!(matches!(error, TraceError::Attach { .. }), "{error}");
}

/// Watches in a thread and keeps what is told.
struct Watching {
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<WatchEvent>>>,
    thread: Option<std::thread::JoinHandle<Result<watch::WatchSummary, TraceError>>>,
}

impl Watching {
    fn start(subject: watch::WatchTarget, backend: Backend) -> Watching {
        let stop = Arc::new(AtomicBool::new(false));
        let events = Arc::new(Mutex::new(Vec::new()));
        let (its_stop, its_events) = (Arc::clone(&stop), Arc::clone(&events));
        let options = watch::WatchOptions {
            recorder: None,
            subject,
            threshold: 50 * MILLISECOND,
            backend: Some(backend),
            sources: SymbolSources::default(),
        };
        let thread = std::thread::spawn(move || {
            let mut keep = |event| its_events.lock().unwrap().push(event);
            watch::watch(&options, &its_stop, &mut keep)
        });
        Watching { stop, events, thread: Some(thread) }
    }

    /// Waits until something that was told is wanted.
    fn wait_for(&self, what: &str, mut is_wanted: impl FnMut(&WatchEvent) -> bool) -> WatchEvent {
        let began = std::time::Instant::now();
        loop {
            let events = self.events.lock().unwrap();
            if let Some(event) = events.iter().find(|event| is_wanted(event)) {
                return event.clone();
            }
            drop(events);
            assert!(began.elapsed() < Duration::from_secs(60), "no {what}");
            pause();
        }
    }

    fn end(&mut self) -> Result<watch::WatchSummary, TraceError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A watch by name: a program of that name stays in a read, ends, and is started again.
fn stays_are_told_through_a_restart(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let built = victim(dir.path());
    // A name that no other test has, of fifteen bytes at most.
    let unique = dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.');
    let program = dir.path().join(format!("w{unique}"));
    // By another process: what a test beside this one starts would have our descriptor, and that cannot be run.
    assert!(Command::new("cp").arg(built).arg(&program).status().unwrap().success());
    let name = program.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.len() <= 15, "{name}");

    let mut watching = Watching::start(watch::WatchTarget::Named(name), backend);
    let mut told = 0;
    for _ in 0..2 {
        let mut reader = Reader::start(&program);
        let process = reader.child.id();
        watching.wait_for(
            "process",
            |event| matches!(event, WatchEvent::Found { process: found, .. } if *found == process),
        );
        // From now on each read lasts until it is long enough to be told.
        let event = loop {
            std::thread::park_timeout(Duration::from_millis(300));
            reader.answer();
            let wanted = |event: &&WatchEvent| matches!(event, WatchEvent::Stall(block) if block.call.process == process);
            if let Some(event) = watching.events.lock().unwrap().iter().find(wanted) {
                break event.clone();
            }
        };
        let WatchEvent::Stall(block) = event else { panic!("{event:?}") };
        assert_eq!((block.call_name(), block.kind), ("read", StallKind::Stall));
        assert!(block.call.wall_ns >= 50_000_000, "{block:?}");
        let frames: Vec<&str> = block.frames.iter().map(|frame| &*frame.name).collect();
        assert_eq!(frames[..2], ["read", "main"]);
        assert!(matches!(block.target, Some(Target::Other(_))), "{block:?}");
        told += 1;
        drop(reader);
        watching.wait_for(
            "end",
            |event| matches!(event, WatchEvent::Ended { process: ended } if *ended == process),
        );
    }
    let summary = watching.end().unwrap();
    assert!(summary.reported >= told, "{summary:?}");
}

#[test]
fn stays_are_told_live_by_looking() {
    stays_are_told_through_a_restart(Backend::Peek);
}

/// Says whether programs can be put into the kernel here; else the test is skipped.
fn can_load() -> bool {
    let can = {
        let mut watching =
            Watching::start(watch::WatchTarget::Process(std::process::id()), Backend::Bpf);
        watching.end()
    };
    match can {
        Err(TraceError::Backend { reason, .. }) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {reason}");
            eprintln!("SKIPPED: {reason}");
            false
        }
        _ => true,
    }
}

#[test]
fn stays_are_told_live_by_the_kernel() {
    if can_load() {
        stays_are_told_through_a_restart(Backend::Bpf);
    }
}

/// Keeps a program where it is for so long that no load makes it a short stay.
fn hold() {
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(700) {
        std::thread::park_timeout(Duration::from_millis(700));
    }
}

/// A large program, whose names take long to find, reads three times; it is in the first read when the watch begins, and ends
/// at once after the last.
fn each_of_three_stays_is_told_once(backend: Backend) {
    let mut python = Command::new("python3");
    python.args([
        "-c",
        "import os\nwhile True:\n os.write(1, b'.')\n if not os.read(0, 1): os._exit(0)",
    ]);
    let child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = Reader { child };
    reader.wait_for_dot();
    let process = reader.child.id();
    let call = format!("/proc/{process}/syscall");
    let is_reading = || std::fs::read_to_string(&call).unwrap().starts_with("0 0x0 ");
    while !is_reading() {
        pause();
    }
    let mut watching = Watching::start(watch::WatchTarget::Process(process), backend);
    watching.wait_for("process", |event| matches!(event, WatchEvent::Found { .. }));
    for _ in 0..2 {
        hold();
        reader.answer();
    }
    hold();
    drop(reader.child.stdin.take());
    // A child that nobody waits for is gone for the watch, too.
    watching.wait_for("end", |event| matches!(event, WatchEvent::Ended { .. }));
    let summary = watching.thread.take().unwrap().join().unwrap().unwrap();
    let events = watching.events.lock().unwrap();
    let reads: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            WatchEvent::Stall(block) if block.call_name() == "read" => Some(block),
            _ => None,
        })
        .collect();
    assert_eq!((reads.len(), summary.lost), (3, 0), "{events:?}");
    assert!(reads.iter().all(|block| block.call.wall_ns >= 50_000_000), "{reads:?}");
    assert!(reads.windows(2).all(|pair| pair[0].at < pair[1].at), "{reads:?}");
    assert!(reads[0].frames.iter().any(|frame| frame.module.contains("python")), "{reads:?}");
}

#[test]
fn each_of_three_stays_is_told_once_by_looking() {
    each_of_three_stays_is_told_once(Backend::Peek);
}

#[test]
fn each_of_three_stays_is_told_once_by_the_kernel() {
    if can_load() {
        each_of_three_stays_is_told_once(Backend::Bpf);
    }
}

#[test]
fn a_stay_that_goes_on_when_the_watch_ends_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let program = victim(dir.path());
    for backend in [Backend::Peek, Backend::Bpf] {
        if backend == Backend::Bpf && !can_load() {
            continue;
        }
        let reader = Reader::start(&program);
        let process = reader.child.id();
        let call = format!("/proc/{process}/syscall");
        while !std::fs::read_to_string(&call).unwrap().starts_with("0 0x0 ") {
            pause();
        }
        let mut watching = Watching::start(watch::WatchTarget::Process(process), backend);
        watching.wait_for("process", |event| matches!(event, WatchEvent::Found { .. }));
        hold();
        assert_eq!(watching.end().unwrap().reported, 1, "{backend:?}");
        let event = watching.wait_for("stay", |event| matches!(event, WatchEvent::Stall(_)));
        let WatchEvent::Stall(block) = event else { panic!("{event:?}") };
        assert!(block.goes_on() && block.call_name() == "read", "{block:?}");
        assert_eq!(block.frames[0].name, "read", "{block:?}");
    }
}

#[test]
fn a_watch_of_one_process_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let reader = Reader::start(&victim(dir.path()));
    let process = reader.child.id();
    let mut watching = Watching::start(watch::WatchTarget::Process(process), Backend::Peek);
    watching.wait_for("process", |event| matches!(event, WatchEvent::Found { .. }));
    drop(reader);
    watching.wait_for("end", |event| matches!(event, WatchEvent::Ended { .. }));
    assert!(watching.thread.take().unwrap().join().unwrap().is_ok());
    assert!(call_number("read").is_some());
}
