//! Histories that chance makes: a walk ends, and what it says is possible.

use proptest::prelude::*;
use unjank_wakeups::{
    ChainEnd, InterruptKind, MOST_HOPS, ThreadIdentity, ThreadWait, WakeupChain, WakeupContext,
    WakeupHistory, WakeupSource,
};

use super::chains::{by, id, wait};

fn context() -> impl Strategy<Value = WakeupContext> {
    prop_oneof![
        5 => Just(WakeupContext::Program),
        1 => Just(WakeupContext::Kernel),
        1 => Just(WakeupContext::Interrupt(InterruptKind::Timer)),
        1 => Just(WakeupContext::Interrupt(InterruptKind::Other)),
        1 => Just(WakeupContext::Birth),
    ]
}

fn source() -> impl Strategy<Value = WakeupSource> {
    (0_u32..12, 0_u32..2, 0_u64..2000, context(), 0_usize..4).prop_map(
        |(thread, began, at_ns, context, name)| {
            let name = ["dbus-daemon", "kworker/0:1", "a", "b"][name];
            let who = ThreadIdentity { thread, began };
            WakeupSource { who, context, ..by(thread, name, at_ns) }
        },
    )
}

/// Anything: waits that overlap, end before they begin, and are woken by threads that slept.
fn any_wait() -> impl Strategy<Value = ThreadWait> {
    let sources = proptest::collection::vec(source(), 0..5);
    let counters = proptest::option::of([0_u64..3000, 0_u64..3000]);
    (source(), 0_u64..2000, 0_u64..2000, sources, counters, any::<bool>()).prop_map(
        |(of, from_ns, to_ns, sources, source_counters, uninterruptible)| ThreadWait {
            who: of.who,
            processor_ns: of.at_ns,
            source_counters,
            uninterruptible,
            ..wait(of.who.thread, from_ns, to_ns, sources)
        },
    )
}

fn is_possible(chain: &WakeupChain, length_ns: u64) {
    assert!(!chain.hops.is_empty() && chain.hops.len() <= MOST_HOPS + 1);
    let mut most = length_ns;
    let mut seen = std::collections::BTreeSet::new();
    for hop in &chain.hops {
        assert!(seen.insert(hop.who), "there twice: {chain:?}");
        assert!(hop.asked_ns <= most, "longer than what waited for it: {chain:?}");
        let sum = hop.processor_ns + hop.ready_ns + hop.waited_ns + hop.other_ns;
        assert!(sum <= hop.asked_ns, "{chain:?}");
        assert!(hop.waited_ns <= hop.asked_ns && hop.to_ns >= hop.from_ns);
        most = hop.waited_ns;
    }
    assert!(chain.end_ns <= chain.hops.last().unwrap().asked_ns);
}

/// Nested waits with known lengths: each thread waits for the next one, and the last one for the clock.
fn nested(lengths: &[u64]) -> (WakeupHistory, u64) {
    let mut history = WakeupHistory::new(1000);
    let total: u64 = lengths.iter().sum::<u64>() + 1_000_000;
    let mut from = 0;
    let mut waits = Vec::new();
    let mut to = total;
    for (index, own) in (0_u32..).zip(lengths) {
        let next = by(index + 1, "next", to);
        waits.push(wait(index, from, to, vec![next]));
        from += own / 2;
        to -= own - own / 2;
    }
    let last = u32::try_from(lengths.len()).unwrap();
    let clock = WakeupSource {
        context: WakeupContext::Interrupt(InterruptKind::Timer),
        ..by(500, "idle", to)
    };
    waits.push(wait(last, from, to, vec![clock]));
    // The innermost ends first.
    waits.into_iter().rev().for_each(|wait| history.add(wait));
    (history, total)
}

proptest! {
    #[test]
    fn any_history_is_walked_to_an_end_that_is_possible(
        waits in proptest::collection::vec(any_wait(), 0..60),
        limit in 1_usize..80,
        thread in 0_u32..12,
        (from, length) in (0_u64..2000, 0_u64..2000),
    ) {
        let mut history = WakeupHistory::new(limit);
        waits.iter().cloned().for_each(|wait| history.add(wait));
        prop_assert!(history.len() <= limit);
        let identity = history.identity(thread, from + length).unwrap_or(id(thread));
        let chain = history.walk(identity, from, from + length);
        is_possible(&chain, length);
        prop_assert_eq!(&chain, &history.walk(identity, from, from + length));
        let dropped = waits.len().saturating_sub(limit) as u64;
        prop_assert_eq!(history.losses(), (0, dropped));
    }

    #[test]
    fn nested_waits_are_followed_to_the_clock_with_their_times(
        lengths in proptest::collection::vec(2_u64..50_000, 0..=MOST_HOPS),
    ) {
        let (history, total) = nested(&lengths);
        let chain = history.walk(id(0), 0, total);
        is_possible(&chain, total);
        prop_assert_eq!(chain.end, ChainEnd::Timer);
        prop_assert_eq!(chain.hops.len(), lengths.len() + 1);
        prop_assert_eq!(chain.end_ns, 1_000_000);
    }

    #[test]
    fn the_order_in_which_waits_arrive_changes_nothing(
        lengths in proptest::collection::vec(2_u64..50_000, 1..=MOST_HOPS),
        turn in 0_usize..9,
    ) {
        let (history, total) = nested(&lengths);
        let mut waits = Vec::new();
        for thread in 0..=lengths.len() {
            let who = id(u32::try_from(thread).unwrap());
            waits.extend(history.waits(who).cloned());
        }
        let turn = turn % waits.len();
        waits.rotate_left(turn);
        let mut other = WakeupHistory::new(1000);
        waits.into_iter().for_each(|wait| other.add(wait));
        prop_assert_eq!(other.walk(id(0), 0, total), history.walk(id(0), 0, total));
    }

    #[test]
    fn a_chain_that_is_too_long_says_so(lengths in proptest::collection::vec(2_u64..5_000, 9..20)) {
        let (history, total) = nested(&lengths);
        let chain = history.walk(id(0), 0, total);
        is_possible(&chain, total);
        prop_assert_eq!((chain.hops.len(), chain.end), (MOST_HOPS + 1, ChainEnd::TooLong));
    }
}
