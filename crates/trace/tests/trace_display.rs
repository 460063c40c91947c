//! Event loops of a program's own that wait for the display are told from waits for an answer, beside every backend.
#![expect(clippy::unwrap_used, reason = "a program that cannot be built or started fails the test")]

use crate::waiting;

use std::path::PathBuf;

use unjank_trace::recording::Backend;
use unjank_trace::report::TraceReport;
use unjank_trace::report::schema::{Slow, TargetKind, TraceMethod};

const MS: u64 = 1_000_000;
const BACKENDS: [Backend; 4] = [Backend::Bpf, Backend::Seccomp, Backend::Ptrace, Backend::Peek];

/// How the names of the functions of the program begin that wait.
const WAITS: [&str; 2] = ["wait_", "QDBus"];

struct Planted {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Planted {
    fn new() -> Planted {
        Planted::built(&["-O1", "-g", "-pthread"])
    }

    fn built(how: &[&str]) -> Planted {
        let dir = tempfile::tempdir().unwrap();
        let program = waiting::build(dir.path(), "display.c", how);
        Planted { dir, program }
    }

    /// Records the program with some backends, those of this case, that are allowed, and gives the long waits of its main thread to `check`.
    ///
    /// On a busy machine what it waits for may be there before it waits: then it is recorded once more, up to five times.
    fn each(&self, case: usize, how: &str, check: impl Fn(&str, &TraceReport, &[&Slow])) {
        for backend in waiting::recorded::some_of(&BACKENDS, case) {
            for attempt in 1..=5 {
                // Each run has a socket of its own.
                let place = self.dir.path().join(format!("{how}-{}-{attempt}", backend.name()));
                std::fs::create_dir(&place).unwrap();
                let words = [self.program.as_os_str(), how.as_ref(), place.as_os_str()];
                let Some(report) = waiting::recorded::once(&words, backend) else { break };
                let waits = waits(&report);
                let context = format!("{} {how}: {}", backend.name(), report.verdict);
                if !waits.is_empty() {
                    check(&context, &report, &waits);
                    break;
                }
                assert!(attempt < 5, "{context}: {:?}", report.slow);
            }
        }
    }
}

/// Returns the long waits of the main thread. On a busy machine other calls take long, too.
fn waits(report: &TraceReport) -> Vec<&Slow> {
    let main = report.main().unwrap().id;
    let is_wait = |slow: &&Slow| {
        let is_long = slow.wall_ns.saturating_sub(slow.queued_ns.unwrap_or(0)) > 50 * MS;
        let of_main = report.threads[slow.thread as usize].id == main;
        let name = blamed(report, slow).unwrap_or_default();
        is_long && of_main && WAITS.iter().any(|beginning| name.starts_with(beginning))
    };
    report.slow.iter().filter(is_wait).collect()
}

fn blamed<'a>(report: &'a TraceReport, slow: &Slow) -> Option<&'a str> {
    let stack = &report.stacks[slow.stack? as usize];
    let frame = stack.frames[stack.blamed? as usize];
    Some(&report.frames[frame as usize].name)
}

#[test]
fn a_loop_of_ones_own_that_waits_for_the_display_is_idle() {
    let planted = Planted::new();
    for (case, how) in ["poll", "select", "tick", "read", "recvmsg"].into_iter().enumerate() {
        planted.each(case, how, |context, report, waits| {
            for wait in waits {
                assert_eq!(wait.how, TraceMethod::Idle, "{context}: {wait:?}");
            }
            assert!(!report.verdict.contains("another program"), "{context}");
            let notes = report.notes();
            assert!(!notes.iter().any(|note| note.contains(UNNAMED)), "{context}: {notes:?}");
        });
    }
}

/// What a report notes of rests in which no function has a name.
const UNNAMED: &str = "although no function in them has a name";

#[test]
fn a_rest_of_which_no_function_has_a_name_is_told() {
    let planted = Planted::built(&["-O1", "-s", "-pthread"]);
    for backend in waiting::recorded::some_of(&BACKENDS, 2) {
        for attempt in 1..=5 {
            let place = planted.dir.path().join(format!("{}-{attempt}", backend.name()));
            std::fs::create_dir(&place).unwrap();
            let words = [planted.program.as_os_str(), "answer".as_ref(), place.as_os_str()];
            let Some(report) = waiting::recorded::once(&words, backend) else { break };
            let notes = report.notes();
            let is_told = notes.iter().any(|note| note.contains(UNNAMED));
            let rests = |slow: &Slow| slow.how == TraceMethod::Idle && slow.wall_ns > 50 * MS;
            if report.slow.iter().any(rests) {
                assert!(is_told, "{}: {notes:?}", backend.name());
                break;
            }
            // What it waits for may be there before it waits.
            assert!(attempt < 5, "{}: {:?}", backend.name(), report.slow);
        }
    }
}

#[test]
fn an_answer_of_the_display_and_of_another_server_are_waited_for() {
    let planted = Planted::new();
    for (case, how) in ["answer", "full", "service"].into_iter().enumerate() {
        planted.each(case, how, |context, _, waits| {
            for wait in waits {
                assert_eq!(wait.how, TraceMethod::Stall, "{context}: {wait:?}");
            }
        });
    }
}

#[test]
fn a_lock_behind_which_an_answer_from_the_bus_is_waited_for_names_the_request() {
    // By sampling, too: it does not see what a thread sends.
    Planted::new().each(2, "bus", |context, report, waits| {
        for wait in waits {
            assert_eq!(wait.how, TraceMethod::Stall, "{context}: {wait:?}");
            let target = &report.targets[wait.target.unwrap() as usize];
            assert_eq!(target.kind, TargetKind::Socket, "{context}: {target:?}");
            // Without stops, what a thread sends is not seen.
            if report.watch.backend == Backend::Peek.name() {
                assert!(target.name.contains("answer"), "{context}: {target:?}");
            } else {
                let request = target.request.as_deref();
                assert_eq!(request, Some("org.notes /notes Save"), "{context}: {target:?}");
                assert!(target.name.ends_with("/bus"), "{context}: {target:?}");
            }
        }
        let parts = report.main().unwrap().account.as_ref().unwrap().parts;
        assert!(parts.call_ns > parts.lock_ns, "{context}: {parts:?}");
    });
}
