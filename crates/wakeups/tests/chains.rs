//! Histories as real programs make them.

use unjank_wakeups::{
    ChainEnd, InterruptKind, ThreadIdentity, ThreadWait, WakeupContext, WakeupHistory, WakeupSource,
};

const MS: u64 = 1_000_000;

pub(crate) fn id(thread: u32) -> ThreadIdentity {
    ThreadIdentity { thread, began: 1 }
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

pub(crate) fn by(thread: u32, text: &str, at_ns: u64) -> WakeupSource {
    let context = WakeupContext::Program;
    WakeupSource { who: id(thread), process: thread, name: name(text), context, at_ns }
}

fn interrupt(kind: InterruptKind, at_ns: u64) -> WakeupSource {
    let context = WakeupContext::Interrupt(kind);
    WakeupSource { context, ..by(777, "innocent", at_ns) }
}

pub(crate) fn wait(
    thread: u32,
    from_ns: u64,
    to_ns: u64,
    sources: Vec<WakeupSource>,
) -> ThreadWait {
    let processor_ns = 5 * MS;
    ThreadWait {
        who: id(thread),
        process: thread,
        name: name("program"),
        from_ns,
        to_ns,
        call: Some(7),
        sources,
        processor_ns,
        ..ThreadWait::default()
    }
}

/// Four services that each ask the next one through the daemon of the bus; the last one sleeps for two seconds.
#[test]
fn a_chain_of_four_services_over_a_bus_has_four_hops_and_no_daemon() {
    let mut history = WakeupHistory::new(1000);
    let (start, end) = (1000 * MS, 3000 * MS);
    let clock = interrupt(InterruptKind::Timer, end);
    history.add(wait(14, start + 400_000, end, vec![clock]));
    // The daemon slept as long as the last service; afterwards it passes on answers, and its waits are too short to be kept.
    let bus = |at| by(2, "dbus-daemon", at);
    let step = 50_000;
    let first = vec![by(14, "d", end + step), clock];
    history.add(wait(2, start + 350_000, end + step, first));
    let mut lineage = vec![by(14, "d", end + step), clock];
    for (index, service) in [13, 12, 11, 10].into_iter().enumerate() {
        let at = end + step * (2 + 2 * index as u64);
        let mut sources = vec![bus(at)];
        sources.extend(lineage.iter().copied());
        sources.truncate(4);
        history.add(wait(service, start + 80_000 * (4 - index as u64), at, sources.clone()));
        // It answers: the daemon was asleep for a moment only.
        lineage = vec![by(service, "service", at + step)];
        lineage.extend(sources);
    }
    let chain = history.walk(id(10), start, end + 12 * step);
    let threads: Vec<u32> = chain.hops.iter().map(|hop| hop.who.thread).collect();
    assert_eq!(threads, [10, 11, 12, 13, 14]);
    assert_eq!(chain.end, ChainEnd::Timer);
    assert!(chain.hops[1..].iter().all(|hop| hop.through.len() == 1), "{chain:?}");
    assert!(chain.end_ns.abs_diff(2000 * MS) < MS, "{}", chain.end_ns);
    assert!(!chain.has_losses);
}

#[test]
fn a_service_that_computes_is_the_end_and_its_processor_time_is_told() {
    let mut history = WakeupHistory::new(1000);
    history.add(wait(20, 0, 100 * MS, vec![by(10, "client", 100 * MS)]));
    let mut answer = wait(10, 101 * MS, 2101 * MS, vec![by(20, "busy", 2101 * MS)]);
    answer.source_counters = Some([1705 * MS, 200 * MS]);
    history.add(answer);
    let chain = history.walk(id(10), 100 * MS, 2102 * MS);
    assert_eq!((chain.hops.len(), chain.end), (2, ChainEnd::Processor));
    assert_eq!((chain.hops[1].processor_ns, chain.hops[1].ready_ns), (1700 * MS, 200 * MS));
}

#[test]
fn an_interrupt_is_never_charged_to_the_program_that_it_found() {
    for (kind, is_disk, end) in [
        (InterruptKind::Timer, false, ChainEnd::Timer),
        (InterruptKind::Disk, true, ChainEnd::Disk),
        (InterruptKind::Other, true, ChainEnd::Disk),
        (InterruptKind::Other, false, ChainEnd::Device),
        (InterruptKind::Network, false, ChainEnd::Network),
    ] {
        let mut history = WakeupHistory::new(10);
        let mut slept = wait(10, 0, 500 * MS, vec![interrupt(kind, 500 * MS)]);
        slept.uninterruptible = is_disk;
        history.add(slept);
        let chain = history.walk(id(10), 0, 500 * MS);
        assert_eq!((chain.hops.len(), chain.end), (1, end));
        assert_eq!(chain.end_ns, 500 * MS);
    }
}

#[test]
fn a_program_that_calls_itself_a_bus_and_sleeps_is_a_hop() {
    let mut history = WakeupHistory::new(10);
    let clock = interrupt(InterruptKind::Timer, 900 * MS);
    history.add(wait(66, MS, 900 * MS, vec![clock]));
    history.add(wait(10, 0, 901 * MS, vec![by(66, "dbus-daemon", 901 * MS), clock]));
    let chain = history.walk(id(10), 0, 901 * MS);
    assert_eq!((chain.hops.len(), chain.end), (2, ChainEnd::Timer));
    assert_eq!(chain.hops[1].who, id(66));
}

#[test]
fn a_service_that_is_started_for_the_call_says_when_and_by_whom() {
    let mut history = WakeupHistory::new(10);
    let mut made = by(1, "systemd", 20 * MS);
    made.context = WakeupContext::Birth;
    let mut birth = wait(30, 20 * MS, 20 * MS, vec![made]);
    birth.processor_ns = 0;
    history.add(birth);
    history.add(wait(30, 120 * MS, 1900 * MS, vec![interrupt(InterruptKind::Timer, 1900 * MS)]));
    let sources = vec![by(2, "dbus-daemon", 1910 * MS), by(30, "slow", 1909 * MS)];
    history.add(wait(10, 0, 1910 * MS, sources));
    let chain = history.walk(id(10), 0, 1910 * MS);
    assert_eq!((chain.hops.len(), chain.end), (2, ChainEnd::Timer));
    assert_eq!(chain.hops[1].born_ns, Some(20 * MS));
    assert_eq!(chain.hops[1].parent.map(|parent| parent.who.thread), Some(1));
}

#[test]
fn many_short_calls_to_one_service_are_one_hop() {
    let mut history = WakeupHistory::new(1000);
    for index in 0..40 {
        let at = index * 50 * MS;
        let disk = interrupt(InterruptKind::Disk, at + 45 * MS);
        let mut sync = wait(20, at + 2 * MS, at + 45 * MS, vec![disk]);
        sync.uninterruptible = true;
        history.add(sync);
        history.add(wait(10, at, at + 46 * MS, vec![by(20, "service", at + 46 * MS), disk]));
    }
    let chain = history.walk(id(10), 0, 2000 * MS);
    assert_eq!((chain.hops.len(), chain.end), (2, ChainEnd::Disk));
    assert_eq!((chain.hops[0].waits, chain.hops[1].waits), (40, 40));
    assert_eq!(chain.end_ns, 40 * 43 * MS);
}

#[test]
fn a_number_that_another_thread_had_before_is_not_mistaken() {
    let mut history = WakeupHistory::new(10);
    let old = ThreadIdentity { thread: 20, began: 1 };
    let new = ThreadIdentity { thread: 20, began: 2 };
    let mut earlier = wait(20, 0, 400 * MS, vec![interrupt(InterruptKind::Timer, 400 * MS)]);
    earlier.who = old;
    history.add(earlier);
    let mut later = wait(20, 410 * MS, 900 * MS, vec![interrupt(InterruptKind::Timer, 900 * MS)]);
    later.who = new;
    history.add(later);
    let source = WakeupSource { who: new, ..by(20, "new", 901 * MS) };
    history.add(wait(10, 0, 901 * MS, vec![source]));
    let chain = history.walk(id(10), 0, 901 * MS);
    assert_eq!(chain.hops[1].who, new);
    assert_eq!(chain.hops[1].waited_ns, 490 * MS);
    assert_eq!(history.identity(20, 500 * MS), Some(old));
    assert_eq!(history.identity(20, 950 * MS), Some(new));
}

#[test]
fn what_was_lost_or_dropped_is_told() {
    let mut history = WakeupHistory::new(2);
    for index in 1..=5 {
        history.add(wait(index, 0, u64::from(index), Vec::new()));
    }
    assert_eq!((history.len(), history.losses()), (2, (0, 3)));
    assert!(history.walk(id(5), 2, 5).has_losses);
    assert!(!history.walk(id(5), 4, 5).has_losses);
    history.count_lost(7);
    assert_eq!(history.losses(), (7, 3));
    assert!(history.walk(id(5), 4, 5).has_losses);
    let unknown = history.walk(id(99), 0, 10);
    assert_eq!((unknown.hops.len(), unknown.end), (1, ChainEnd::NotKnown));
}

#[test]
fn a_wait_that_was_not_told_is_neither_running_nor_the_shorter_wait_beside_it() {
    for shorter_ns in [0, 20 * MS] {
        let mut history = WakeupHistory::new(1000);
        let born = WakeupSource { context: WakeupContext::Birth, ..by(10, "sh", 5 * MS) };
        let mut birth = wait(20, 5 * MS, 5 * MS, vec![born]);
        birth.processor_ns = 0;
        history.add(birth);
        if shorter_ns > 0 {
            let ended = 10 * MS + shorter_ns;
            let mut shorter = wait(20, 10 * MS, ended, vec![interrupt(InterruptKind::Disk, ended)]);
            shorter.processor_ns = MS;
            history.add(shorter);
        }
        // It slept nearly all of the time, which nobody was told.
        let mut waited = wait(10, 10 * MS, 510 * MS, vec![by(20, "sleep", 510 * MS)]);
        waited.source_counters = Some([2 * MS, 7 * MS]);
        history.add(waited);
        let chain = history.walk(id(10), 10 * MS, 510 * MS);
        assert_eq!((chain.hops.len(), chain.end), (2, ChainEnd::NotKnown), "{chain:?}");
        assert!(chain.end_ns.abs_diff(491 * MS - shorter_ns) <= 2 * MS, "{chain:?}");
    }
}

/// A service that syncs again and again is a hop, although the journal's thread woke it a moment before it answered.
#[test]
fn who_waited_often_is_not_taken_for_one_who_passed_something_on() {
    let mut history = WakeupHistory::new(1000);
    for index in 0..80 {
        let (from, to) = (index * 25 * MS + MS, (index + 1) * 25 * MS);
        history.add(wait(40, from + MS, to - MS, vec![interrupt(InterruptKind::Disk, to - MS)]));
        let journal = WakeupSource { context: WakeupContext::Kernel, ..by(40, "jbd2/sda-8", to) };
        history.add(wait(20, from, to, vec![journal]));
    }
    let end = 2001 * MS;
    let last = by(40, "jbd2/sda-8", 2000 * MS);
    let sources = vec![by(2, "dbus-daemon", end), by(20, "service", end - 10_000), last];
    history.add(wait(10, 0, end, sources));
    let chain = history.walk(id(10), 0, end);
    let threads: Vec<u32> = chain.hops.iter().map(|hop| hop.who.thread).collect();
    assert_eq!((threads, chain.end), (vec![10, 20, 40], ChainEnd::Disk));
    assert_eq!(chain.hops[1].waits, 80);
}
