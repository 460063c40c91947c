//! What a user gets through the service is what root gets without it.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use trace::backend::{self, ProgramToStart, RecordingOutcome, TraceOptions, TraceTarget};
use trace::recording::{Backend, Recording, Target};
use trace::syscall::call_name;
use trace::syscall_set::Set;

use crate::stage::{ANN, BOB, Stage, detail, say, socket, wait_until};

fn options(subject: TraceTarget) -> TraceOptions {
    let mut options = TraceOptions::new(subject, Set::all());
    options.threshold = Duration::ZERO;
    options.backend = Some(Backend::Bpf);
    options
}

fn run(words: &str) -> TraceTarget {
    let arguments = ["/bin/sh", "-c", words].map(Into::into).to_vec();
    TraceTarget::Run(ProgramToStart { arguments, ..ProgramToStart::default() })
}

/// Says what a recording holds, in lines that are the same for the same work.
fn describe(recording: &Recording) -> Vec<String> {
    let mut calls: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for ((_, number), total) in &recording.totals {
        let sum = calls.entry(call_name(*number).unwrap_or("?")).or_default();
        sum.0 += total.count;
        sum.1 += total.errors;
    }
    let mut lines: Vec<String> = calls
        .iter()
        .map(|(name, (count, errors))| format!("call {name} {count} {errors}"))
        .collect();
    lines.extend(recording.targets.iter().filter_map(|target| match target {
        Target::File { path, .. } => Some(format!("file {}", String::from_utf8_lossy(path))),
        _ => None,
    }));
    let stacks = recording.slow.iter().filter(|call| call.stack.is_some()).count();
    lines.push(format!("stacks {}", stacks > 10));
    lines.push(format!("processes {}", recording.processes.len()));
    let exits = recording.processes.values().filter(|process| process.exit.is_some()).count();
    lines.push(format!("exits {exits}"));
    lines
}

/// The role: traces a command line of a shell through the service, and says what was recorded.
pub(crate) fn trace_command() {
    let detail = detail();
    // Root needs no service.
    let words = detail.strip_prefix("without ");
    let mut options = options(run(words.unwrap_or(&detail)));
    options.recorder = words.is_none().then(socket);
    // No choice is made: an ordinary user has the service because it is there.
    options.backend = None;
    let stop = Arc::new(AtomicBool::new(false));
    let RecordingOutcome { recording, process, .. } = backend::run(&options, &stop).unwrap();
    assert_eq!(recording.backend, Backend::Bpf, "{:?}", recording.notes);
    describe(&recording).iter().for_each(say);
    say(format!("ended {:?}", recording.processes.get(&process).and_then(|process| process.exit)));
    say(format!("length {}", recording.length_ns));
    recording.notes.iter().for_each(|note| say(format!("note {note}")));
    recording.unseen.iter().for_each(|unseen| say(format!("unseen {unseen}")));
}

/// The role: attaches to the process in the detail and records it until it has ended.
pub(crate) fn attach() {
    let mut options = options(TraceTarget::Attach(detail().parse().unwrap()));
    options.recorder = Some(socket());
    say("ready");
    let stop = Arc::new(AtomicBool::new(false));
    match backend::run(&options, &stop) {
        Ok(outcome) => describe(&outcome.recording).iter().for_each(say),
        Err(error) => say(format!("error {}", report_chain(&error))),
    }
}

fn report_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Says whether a line is not the same for the same work.
fn is_said_in_words(line: &str) -> bool {
    ["note ", "unseen ", "length "].iter().any(|kind| line.starts_with(kind))
}

const WORK: &str = "ls /etc/passwd >/dev/null; cat /etc/hostname /nowhere/file >/dev/null 2>&1; (cd /usr; true); exit 3";

#[test]
fn a_user_gets_the_same_calls_through_the_service_as_root_without_it() {
    let Some(stage) = Stage::set() else { return };
    let of_root = stage.play(0, "trace", &format!("without {WORK}"));
    let said = stage.play(ANN, "trace", WORK);
    let (notes, lines): (Vec<String>, Vec<String>) =
        said.into_iter().partition(|line| is_said_in_words(line));
    let is_count = |line: &String| line.starts_with("call ");
    let wanted: Vec<String> = of_root.into_iter().filter(|line| !is_said_in_words(line)).collect();
    let counts = |lines: &[String]| lines.iter().filter(|line| is_count(line)).cloned().collect();
    let (of_user, of_root): (Vec<String>, Vec<String>) = (counts(&lines), counts(&wanted));
    assert_eq!(of_user, of_root);
    for line in wanted.iter().filter(|line| !is_count(line) && !line.contains("/proc/")) {
        assert!(lines.contains(line), "{line} is not in {lines:?}");
    }
    assert!(lines.contains(&"file /nowhere/file".to_owned()), "{lines:?}");
    assert!(lines.contains(&"stacks true".to_owned()), "{lines:?}");
    let notes = notes.join("\n");
    assert!(notes.contains("The recorder service has programs in the kernel"), "{notes}");
    assert!(notes.contains("Waits are not followed to other programs"), "{notes}");
    wait_until("all programs are gone", || stage.programs() == 0);
}

#[test]
fn a_running_program_of_the_user_is_attached_to_and_another_users_is_not() {
    let Some(stage) = Stage::set() else { return };
    let script = "echo; read a; cat /etc/hostname; true";
    let start = |user| {
        let mut shell = stage.command_of(user, "/bin/sh".as_ref());
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        child
    };
    let mut own = start(ANN);
    let mut reader = stage.start(ANN, "attach", &own.id().to_string());
    assert_eq!(reader.line().as_deref(), Some("ready"));
    wait_until("the programs are at work", || stage.programs() > 0);
    // It reads its line when it is watched: the call that it is in has been entered into the records by then, or ends as one of them.
    wait_until("the session is logged", || stage.log().contains("began a session"));
    std::thread::park_timeout(Duration::from_millis(300));
    drop(own.stdin.take());
    assert!(own.wait().unwrap().success());
    let lines = reader.end();
    assert!(lines.contains(&"file /etc/hostname".to_owned()), "{lines:?}");

    let mut other = start(BOB);
    let lines = stage.play(ANN, "attach", &other.id().to_string());
    let error = lines.iter().find(|line| line.starts_with("error ")).unwrap();
    assert!(error.contains("is not one that its caller may trace"), "{error}");
    drop(other.stdin.take());
    other.wait().unwrap();
}
