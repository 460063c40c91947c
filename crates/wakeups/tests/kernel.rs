//! Wake-ups of real programs, as this kernel records them.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be started fails the test; a test says what it skips"
)]

use std::process::{Command, Stdio};

use sys::bpf::LoadError;
use unjank_wakeups::kernel::WakeupTracer;
use unjank_wakeups::{ChainEnd, WakeupChain, WakeupHistory};

/// Records a shell with this script, and follows its wait between its start and its end.
fn chain_of(script: &str) -> Option<WakeupChain> {
    let mut tracer = match WakeupTracer::load() {
        Ok(tracer) => tracer,
        Err(
            why @ (LoadError::NotAllowed(_) | LoadError::OtherNumbers | LoadError::OtherMachine),
        ) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
            eprintln!("SKIPPED: {why}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut shell = Command::new("sh")
        .args(["-c", &format!("read begin; {script}; exit 0")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = sys::bpf::clock_ns();
    drop(shell.stdin.take());
    assert!(shell.wait().unwrap().success());
    let end = sys::bpf::clock_ns();
    tracer.detach();
    let mut history = WakeupHistory::new(100_000);
    assert!(tracer.take(&mut history) > 0);
    history.count_lost(tracer.lost().unwrap());
    let thread = history.identity(shell.id(), end).unwrap();
    Some(history.walk(thread, begin, end))
}

fn names(chain: &WakeupChain) -> Vec<String> {
    let text = |name: &[u8]| {
        String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap()).into_owned()
    };
    chain.hops.iter().map(|hop| text(&hop.name)).collect()
}

#[test]
fn a_pipe_of_programs_is_followed_to_the_one_that_sleeps() {
    let Some(chain) = chain_of("x=$( (sleep 1.5; echo x) | cat | tail -n 1)") else { return };
    assert_eq!(names(&chain), ["sh", "tail", "cat", "sh", "sleep"], "{chain:#?}");
    assert_eq!(chain.end, ChainEnd::Timer, "{chain:#?}");
    let last = chain.hops.last().unwrap();
    assert!(chain.end_ns > 0 && chain.end_ns <= last.asked_ns, "{chain:#?}");
    assert!(chain.hops[1..].iter().all(|hop| hop.born_ns.is_some()), "{chain:#?}");
}

#[test]
fn a_child_that_computes_is_named_with_its_processor_time() {
    let Some(chain) = chain_of("sh -c 'i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done'; true")
    else {
        return;
    };
    assert_eq!(names(&chain), ["sh", "sh"], "{chain:#?}");
    let last = chain.hops.last().unwrap();
    assert!(matches!(chain.end, ChainEnd::Processor | ChainEnd::Ready), "{chain:#?}");
    let used = last.processor_ns + last.ready_ns;
    assert!(used * 10 > last.asked_ns * 8, "{chain:#?}");
}
