//! What holds for any operations and any waits.

use proptest::prelude::*;
use unjank_kernelwork::{
    MemoryTimeline, MemoryWait, MemoryWork, OperationSpan, RingOperation, RingWait, explain,
    name_of,
};

const MS: u64 = 1_000_000;
const READ: u8 = 22;
const FSYNC: u8 = 3;
const POLL_ADD: u8 = 6;
const TIMEOUT: u8 = 11;

fn operation(opcode: u8, start_ms: u64, wall_ms: u64) -> RingOperation {
    RingOperation {
        process: 1,
        thread: 1,
        opcode,
        descriptor: 3,
        is_registered: false,
        ring: 7,
        start_ns: start_ms * MS,
        wall_ns: wall_ms * MS,
        result: Some(0),
        file: None,
        path: None,
        by_worker: false,
        awaited_readiness: false,
    }
}

fn wait(from_ms: u64, to_ms: u64) -> RingWait {
    RingWait {
        process: 1,
        ring: Some(7),
        from_ns: from_ms * MS,
        to_ns: Some(to_ms * MS),
        settled_ns: 0,
    }
}

#[test]
fn a_wait_is_for_the_longest_operation_that_was_completed_when_it_ended() {
    let operations = [
        operation(READ, 10, 5),   // long over when the wait ends
        operation(READ, 20, 30),  // ends with it
        operation(FSYNC, 12, 38), // ends with it, and took longer
        operation(READ, 30, 90),  // goes on
    ];
    let span = OperationSpan::new(&operations);
    let found = explain(&wait(20, 50), &span).unwrap();
    assert_eq!((found.operation, found.common_ns, found.is_loop), (2, 30 * MS, false));
    // Another ring's, another process's, and a wait that something else ended.
    assert_eq!(explain(&RingWait { ring: Some(8), ..wait(20, 50) }, &span), None);
    assert_eq!(explain(&RingWait { process: 2, ..wait(20, 50) }, &span), None);
    assert_eq!(explain(&wait(20, 70), &span), None);
    // A thread that had no processor learns of it late.
    let late = RingWait { settled_ns: 20 * MS, ..wait(20, 70) };
    assert_eq!(explain(&late, &span).unwrap().operation, 2);
    // Where the ring is not known, any of the process counts.
    let any = RingWait { ring: None, ..wait(20, 50) };
    assert_eq!(explain(&any, &span).unwrap().operation, 2);
}

#[test]
fn a_wait_beside_an_event_that_could_end_it_is_that_of_a_loop_and_a_time_limit_is_none() {
    let read = operation(READ, 20, 30);
    let of = |other: RingOperation| {
        let operations = [read.clone(), other];
        explain(&wait(20, 50), &OperationSpan::new(&operations)).unwrap()
    };
    let running = RingOperation { result: None, ..operation(POLL_ADD, 5, 95) };
    assert!(of(running).is_loop);
    assert!(of(operation(POLL_ADD, 5, 80)).is_loop);
    assert!(!of(operation(POLL_ADD, 60, 80)).is_loop, "it was submitted later");
    assert!(!of(operation(TIMEOUT, 5, 80)).is_loop);
    assert!(!of(RingOperation { ring: 9, ..operation(POLL_ADD, 5, 80) }).is_loop, "another ring");
    let ready = RingOperation { awaited_readiness: true, ..read.clone() };
    let alone = [ready];
    assert!(explain(&wait(20, 50), &OperationSpan::new(&alone)).unwrap().is_loop);
}

#[test]
fn an_operation_is_alone_if_no_other_of_its_ring_was_in_flight_during_the_wait() {
    let read = RingOperation { awaited_readiness: true, ..operation(READ, 20, 30) };
    let is_alone = |other: RingOperation| {
        let operations = [read.clone(), other];
        explain(&wait(21, 50), &OperationSpan::new(&operations)).unwrap().is_alone
    };
    assert!(is_alone(operation(READ, 5, 10)), "it was over");
    assert!(is_alone(operation(READ, 60, 10)), "it was submitted later");
    assert!(is_alone(operation(TIMEOUT, 20, 90)), "a time limit");
    assert!(is_alone(RingOperation { ring: 9, ..operation(READ, 5, 90) }), "another ring");
    assert!(!is_alone(operation(READ, 5, 90)));
    assert!(!is_alone(operation(READ, 5, 20)), "it ended within the wait");
    assert!(!is_alone(operation(READ, 30, 90)), "it was submitted within the wait");
    assert!(!is_alone(RingOperation { result: None, ..operation(POLL_ADD, 5, 95) }));
}

#[test]
fn operations_for_event_loops_are_told_from_those_that_are_like_calls() {
    for name in ["READ", "RECV", "WAITID", "FUTEX_WAIT", "TIMEOUT", "CONNECT"] {
        let opcode = (0..=u8::MAX).find(|opcode| name_of(*opcode) == Some(name)).unwrap();
        assert!(operation(opcode, 0, 1).is_like_a_call(), "{name}");
    }
    for name in ["POLL_ADD", "EPOLL_WAIT", "ACCEPT", "READ_MULTISHOT", "LINK_TIMEOUT"] {
        let opcode = (0..=u8::MAX).find(|opcode| name_of(*opcode) == Some(name)).unwrap();
        assert!(!operation(opcode, 0, 1).is_like_a_call(), "{name}");
    }
}

#[test]
fn a_wait_that_goes_on_is_for_the_longest_operation_that_runs() {
    let running = |at| RingOperation { result: None, ..operation(READ, at, 100 - at) };
    let operations = [running(60), running(20), operation(READ, 1, 5)];
    let wait = RingWait { to_ns: None, ..wait(50, 100) };
    let found = explain(&wait, &OperationSpan::new(&operations)).unwrap();
    assert_eq!((found.operation, found.common_ns), (1, 50 * MS));
}

fn memory_work() -> impl Strategy<Value = MemoryWork> {
    prop_oneof![Just(MemoryWork::Reclaim), Just(MemoryWork::Compaction), Just(MemoryWork::SwapIn)]
}

/// A wait with others inside of it, as the kernel nests them: in the order of their ends.
fn nested() -> impl Strategy<Value = Vec<MemoryWait>> {
    let one = (memory_work(), 0..2_000_u64, 1..3_000_u64, 0..100_u64, 0..100_u64, 0..5_usize);
    prop::collection::vec(one, 0..40).prop_map(|all| {
        let mut now = 0;
        let mut waits = Vec::new();
        for (work, rest, length, processor, ready, inner) in all {
            now += rest;
            let start_ns = now;
            let part = length / 8;
            let (mut inside_ran, mut inside_ready) = (0, 0);
            for at in 0..inner as u64 {
                let ran = part * processor / 100;
                let queued = (part - ran) * ready / 100;
                (inside_ran, inside_ready) = (inside_ran + ran, inside_ready + queued);
                waits.push(MemoryWait {
                    work: MemoryWork::Reclaim,
                    start_ns: start_ns + at * part,
                    wall_ns: part,
                    processor_ns: ran,
                    ready_ns: queued,
                });
            }
            let own = length - part * inner as u64;
            let ran = own * processor / 100;
            waits.push(MemoryWait {
                work,
                start_ns,
                wall_ns: length,
                processor_ns: inside_ran + ran,
                ready_ns: inside_ready + (own - ran) * ready / 100,
            });
            now += length;
        }
        waits
    })
}

proptest! {
    #[test]
    fn no_time_is_lost_and_none_is_counted_twice(
        waits in nested(),
        mut cuts in prop::collection::vec(0..200_000_u64, 0..10),
    ) {
        let mut timeline = MemoryTimeline::default();
        waits.iter().for_each(|wait| timeline.add(wait));
        let all = timeline.between(0, u64::MAX);
        // The outer waits are the time; what is inside of them is in them.
        let outer: Vec<&MemoryWait> = waits
            .iter()
            .filter(|wait| {
                let end = wait.start_ns + wait.wall_ns;
                !waits.iter().any(|other| {
                    !std::ptr::eq(*wait, other)
                        && other.start_ns <= wait.start_ns
                        && other.start_ns + other.wall_ns >= end
                        && (other.wall_ns > wait.wall_ns || other.wall_ns == wait.wall_ns && std::ptr::from_ref(other) > std::ptr::from_ref(*wait))
                })
            })
            .collect();
        let wanted: u64 = outer.iter().map(|wait| wait.wall_ns - wait.ready_ns).sum();
        prop_assert_eq!(all.processor_ns() + all.blocked_ns(), wanted);
        // Any division of time has the same sum.
        cuts.extend([0, u64::MAX]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|pair| timeline.between(pair[0], pair[1]));
        let sum: u64 = parts.map(|part| part.processor_ns() + part.blocked_ns()).sum();
        prop_assert_eq!(sum, wanted);
        // Nothing is longer than the time that it is in.
        for pair in cuts.windows(2) {
            let part = timeline.between(pair[0], pair[1]);
            prop_assert!(part.processor_ns() + part.blocked_ns() <= (pair[1] - pair[0]).saturating_add(8));
        }
    }

    #[test]
    fn waits_in_any_order_and_of_any_size_end_in_no_panic_and_in_no_more_than_their_time(
        waits in prop::collection::vec(
            (memory_work(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
            0..100,
        ),
    ) {
        let mut timeline = MemoryTimeline::default();
        for (work, start_ns, wall_ns, processor_ns, ready_ns) in waits {
            let (start_ns, wall_ns) = (start_ns >> 20, wall_ns >> 20);
            timeline.add(&MemoryWait { work, start_ns, wall_ns, processor_ns, ready_ns });
        }
        let all = timeline.between(0, u64::MAX);
        prop_assert!(all.processor_ns().saturating_add(all.blocked_ns()) <= u64::MAX >> 19);
    }
}

#[test]
fn a_thread_that_had_no_processor_lost_that_time_to_no_work_for_memory() {
    let mut timeline = MemoryTimeline::default();
    // What both clocks together count is more than the time that passed.
    timeline.add(&MemoryWait {
        work: MemoryWork::Reclaim,
        start_ns: 0,
        wall_ns: 10 * MS,
        processor_ns: 9 * MS,
        ready_ns: 8 * MS,
    });
    let sums = timeline.between(0, 10 * MS);
    assert_eq!((sums.reclaim_processor_ns, sums.reclaim_blocked_ns), (2 * MS, 0));
}

#[test]
fn what_is_inside_of_a_swap_in_is_reclaim_and_the_rest_is_the_swap_in() {
    let mut timeline = MemoryTimeline::default();
    let wait = |work, start_ms, wall_ms: u64, processor_ms: u64| MemoryWait {
        work,
        start_ns: start_ms * MS,
        wall_ns: wall_ms * MS,
        processor_ns: processor_ms * MS,
        ready_ns: 0,
    };
    timeline.add(&wait(MemoryWork::Reclaim, 12, 2, 1));
    timeline.add(&wait(MemoryWork::SwapIn, 10, 10, 2));
    let sums = timeline.between(0, 100 * MS);
    assert_eq!((sums.reclaim_processor_ns, sums.reclaim_blocked_ns), (MS, MS));
    assert_eq!((sums.swap_processor_ns, sums.swap_blocked_ns), (MS, 7 * MS));
    assert_eq!(timeline.count(MemoryWork::SwapIn), 1);
    assert_eq!(timeline.count(MemoryWork::Compaction), 0);
    let half = timeline.between(0, 15 * MS);
    assert_eq!(half.blocked_ns(), 4 * MS);
}
