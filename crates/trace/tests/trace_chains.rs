//! Waits of main threads are followed to the programs that ended them.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be started fails the test; a test says what it skips"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use report::provenance::Provenance;
use unjank_trace::backend::{self, TraceError, TraceOptions, TraceTarget};
use unjank_trace::recording::Backend;
use unjank_trace::report::chains::{StallChain, WakeupRow};
use unjank_trace::report::{ReportOptions, build};
use unjank_trace::stack::names::SymbolSources;
use unjank_trace::symbolizer::Symbolizer;
use unjank_trace::syscall_set::Set;

/// Records a shell with a script, and returns the chain of its main thread's longest wait. What was lost, or not
/// told by the kernel, may be a wait of these: then it is recorded once more, up to five times.
fn longest_of(script: &str) -> Option<StallChain> {
    Some(longest_with_wakeups(script)?.0)
}

/// Returns the wake-ups of all chains, too.
fn longest_with_wakeups(script: &str) -> Option<(StallChain, Vec<WakeupRow>)> {
    let chains = std::iter::repeat_with(|| record_longest_of(script)).take(5);
    let mut last = None;
    for chain in chains {
        last = chain;
        let is_whole = |(chain, _): &(StallChain, _)| !chain.has_losses && chain.end != "not-known";
        if last.as_ref().is_none_or(is_whole) {
            break;
        }
    }
    last
}

/// See `longest_of`.
fn record_longest_of(script: &str) -> Option<(StallChain, Vec<WakeupRow>)> {
    let arguments = ["sh", "-c", script].map(Into::into).to_vec();
    let command = backend::ProgramToStart { arguments, ..backend::ProgramToStart::default() };
    let mut options = TraceOptions::new(TraceTarget::Run(command), Set::all());
    options.threshold = Duration::from_millis(1);
    options.backend = Some(Backend::Bpf);
    let recording = match backend::run(&options, &Arc::new(AtomicBool::new(false))) {
        Ok(outcome) => outcome.recording,
        Err(TraceError::Backend { reason, .. }) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {reason}");
            eprintln!("SKIPPED: {reason}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let shell = recording.threads.values().min_by_key(|thread| thread.start_ns).unwrap().id;
    let symbolizer = Symbolizer::new(&recording, SymbolSources::default(), None);
    let provenance = Provenance::of_this_machine(String::new(), std::time::UNIX_EPOCH);
    let report = build(&recording, &symbolizer, provenance, &ReportOptions::default());
    let chain = report.chains.into_iter().find(|chain| chain.thread == shell);
    let chain = chain.unwrap_or_else(|| panic!("no chain: {:#?}", recording.chains));
    Some((chain, report.wakeups))
}

#[test]
fn a_shell_that_waits_for_a_pipe_names_each_program_of_it() {
    let script = "x=$( (sleep 1.5; echo x) | cat | tail -n 1); exit 0";
    let Some(chain) = longest_of(script) else { return };
    let programs: Vec<&str> =
        chain.hops.iter().map(|hop| hop.executable.rsplit('/').next().unwrap()).collect();
    let told = format!("{} {programs:?} {:?}\n{chain:#?}", chain.end, chain.sentences);
    assert_eq!(chain.end, "timer", "{told}");
    assert_eq!(programs.len(), 5, "{told}");
    assert_eq!([programs[1], programs[2], programs[4]], ["tail", "cat", "sleep"], "{told}");
    // On a busy machine the programs begin late.
    assert!(chain.end_ns > 0 && chain.end_ns <= chain.wall_ns, "{chain:#?}");
    assert!(chain.sentences[4].contains("slept"), "{chain:#?}");
}

#[test]
fn each_thread_of_a_chain_is_woken_by_the_next_one() {
    let script = "x=$( (sleep 1; echo x) | cat | tail -n 1); exit 0";
    let Some((chain, wakeups)) = longest_with_wakeups(script) else { return };
    for pair in chain.hops.windows(2) {
        let woken = wakeups.iter().filter(|row| row.thread == pair[0].thread);
        let by: Vec<Option<u32>> = woken.map(|row| row.by).collect();
        assert!(by.contains(&Some(pair[1].thread)), "{by:?} {pair:#?}");
    }
    let last = chain.hops.last().unwrap();
    let ends = wakeups.iter().filter(|row| row.thread == last.thread);
    assert!(
        ends.clone().any(|row| row.by_interrupt && row.waited_ns > 900_000_000),
        "{wakeups:#?}"
    );
}

#[test]
fn a_name_of_a_thread_that_is_made_to_harm_a_terminal_is_spelt() {
    // The child changes its own name, and the shell waits for it.
    let script =
        "sh -c 'printf \"\\033[31m\\nx\" >/proc/$$/comm; read x </dev/null; sleep 1'; true";
    let Some(chain) = longest_of(script) else { return };
    let text = chain.sentences.join("");
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(chain.hops.iter().any(|hop| hop.name.contains("\\x1b")), "{chain:#?}");
}

#[test]
fn a_wait_is_that_of_the_program_that_a_process_ran_then() {
    // The shell waits, and waits longer when it is another program.
    let script = "x=$(sleep 0.3; echo x); exec env sh -c 'exec timeout 9 sleep 1'";
    let Some(chain) = longest_of(script) else { return };
    let program = chain.hops[0].executable.rsplit('/').next().unwrap();
    assert_eq!(program, "timeout", "{chain:#?}");
    assert_eq!(chain.end, "timer", "{chain:#?}");
    let sleep = chain.hops.last().unwrap();
    assert_eq!(sleep.name, "sleep", "{chain:#?}");
}

#[test]
fn a_hop_of_another_user_says_so() {
    let script = "x=$(setpriv --reuid 65534 --clear-groups sh -c 'sleep 1; echo x; sleep 0.3; true'); exit 0";
    let setpriv = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "true"])
        .status();
    if !setpriv.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: no other user");
        eprintln!("SKIPPED: no other user");
        return;
    }
    let Some(chain) = longest_of(script) else { return };
    let others: Vec<&String> =
        chain.sentences.iter().filter(|text| text.contains("(user 65534")).collect();
    assert!(!others.is_empty(), "{chain:#?}");
    assert!(!chain.sentences[0].contains("user 0"), "{chain:#?}");
}
