//! Wake-ups of real programs, as this kernel records them.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be started fails the test; a test says what it skips"
)]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sys::bpf::LoadError;
use unjank_wakeups::kernel::{WakeupTracer, read_wait};
use unjank_wakeups::{ChainEnd, ThreadWait, WakeupChain, WakeupHistory};

/// Records waits of at least this length; none where this user may not.
fn load(shortest: Duration) -> Option<WakeupTracer> {
    match WakeupTracer::load_for(shortest) {
        Ok(tracer) => Some(tracer),
        Err(
            why @ (LoadError::NotAllowed(_) | LoadError::OtherNumbers | LoadError::OtherMachine),
        ) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Records a shell with this script, and follows its wait between its start and its end. What this kernel does not tell, as what
/// happens while the agent of a virtual machine has the processor, is recorded once more.
fn chain_of(script: &str) -> Option<WakeupChain> {
    let mut chain = record_chain_of(script)?;
    for _ in 0..5 {
        if chain.end == ChainEnd::NotKnown {
            chain = record_chain_of(script)?;
        }
    }
    Some(chain)
}

/// See `chain_of`.
fn record_chain_of(script: &str) -> Option<WakeupChain> {
    let mut tracer = load(Duration::from_micros(300))?;
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

#[test]
fn what_a_thread_computed_before_a_wait_that_ends_at_once_is_no_wait() {
    for _ in 0..5 {
        let Some((wrong, waits, lost)) = computed_waits() else { return };
        if wrong.is_empty() {
            return;
        }
        // A thread whose return to a processor the kernel did not report waits on; the tracer counts that.
        assert!(lost > 0, "{} of {waits}: {:?}", wrong.len(), wrong[0]);
    }
    panic!("the kernel left out reports in all rounds");
}

/// Has a thread compute between waits that end about when they begin. Returns waits that were told while it computed, how many were told
/// in all, and how many reports are known to be lost.
fn computed_waits() -> Option<(Vec<ThreadWait>, usize, u64)> {
    const ROUNDS: u64 = 4_000;
    const COMPUTES_NS: u64 = 250_000;
    let mut tracer = load(Duration::from_micros(200))?;
    let round = AtomicU64::new(0);
    let (waiting, computed) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let computed = (1..=ROUNDS).map(|now| {
                let began_ns = sys::bpf::clock_ns();
                let ended_ns = loop {
                    let now_ns = sys::bpf::clock_ns();
                    if now_ns > began_ns + COMPUTES_NS {
                        break now_ns;
                    }
                };
                round.store(now, Ordering::Release);
                thread::park();
                (began_ns, ended_ns)
            });
            let computed: Vec<_> = computed.collect();
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let own = own.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap();
            (own, computed)
        });
        // Another thread ends the wait at about the moment at which it begins, also before and after.
        let waiter = waiting.thread().clone();
        for now in 1..=ROUNDS {
            while round.load(Ordering::Acquire) < now {
                std::hint::spin_loop();
            }
            for _ in 0..now * 7 % 400 {
                std::hint::spin_loop();
            }
            waiter.unpark();
        }
        waiting.join().unwrap()
    });
    let lost = tracer.lost().unwrap();
    tracer.detach();
    let mut waits = Vec::new();
    tracer.offer(usize::MAX, |bytes| {
        waits.extend(read_wait(bytes).filter(|wait| wait.who.thread == waiting));
        true
    });
    let is_computing = |wait: &ThreadWait| {
        computed.iter().any(|(began_ns, ended_ns)| {
            let overlap = wait.to_ns.min(*ended_ns).saturating_sub(wait.from_ns.max(*began_ns));
            overlap > COMPUTES_NS / 2
        })
    };
    let told = waits.len();
    waits.retain(is_computing);
    Some((waits, told, lost))
}
