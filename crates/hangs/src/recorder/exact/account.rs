//! What the time of an absence went to, from what the programs in the kernel report of it.

use std::collections::HashMap;

use trace::report::account::TimeParts;
use trace::syscall::{call_name, sleeps};

use super::operations::is_ring_wait;
use crate::kernel::{AbsenceAccount, ThreadBlock};
use crate::model::{CallObject, CallShare};
use crate::recorder::absence::scaled;
use crate::recorder::cause::DescribedWait;

/// A description of a thread that is blocked: its stack, and what its call works on.
#[derive(Clone, Debug)]
pub(super) struct BlockDescription {
    /// The number of the description.
    pub(super) number: u32,
    /// When the wait began in which it was made.
    pub(super) from_ns: u64,
    /// What the thread was blocked in.
    pub(super) key: BlockKey,
    /// The object, if it was read.
    pub(super) object: Option<CallObject>,
}

impl BlockDescription {
    /// The number of all descriptions that have only an object, read between two waits.
    pub(super) const WITHOUT_STACK: u32 = 0;
}

/// What a thread is blocked in: the number of the call and its first argument, which of most calls is the descriptor; none
/// outside of calls.
pub(super) type BlockKey = Option<(u32, u64)>;

fn key_of(block: &ThreadBlock) -> BlockKey {
    block.call.map(|number| (number, block.arguments[0]))
}

/// What a wait is known to have been for by itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct WaitFact {
    /// The operation of `io_uring`.
    pub(super) operation: Option<&'static str>,
    /// What it waited for.
    pub(super) object: Option<CallObject>,
}

/// What a time went to.
#[derive(Clone, Debug, Default)]
pub(super) struct AbsenceTime {
    /// The parts; their sum is the length.
    pub(super) parts: TimeParts,
    /// The calls, each with its own object.
    pub(super) calls: Vec<CallShare>,
    /// The waits whose stacks were described.
    pub(super) descriptions: Vec<DescribedWait>,
    /// Whether the object of the longest call was not looked for, although it took the most.
    pub(super) has_unknown_object: bool,
    /// The longest wait, if there was one.
    pub(super) longest: Option<ThreadBlock>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BlockClass {
    Stopped,
    Fault,
    Lock,
    Call,
}

fn class_of(block: &ThreadBlock, stops: &[u64]) -> BlockClass {
    if block.is_stopped || stops.contains(&block.from_ns) {
        return BlockClass::Stopped;
    }
    match block.call.map(call_name) {
        None => BlockClass::Fault,
        Some(Some("futex")) => BlockClass::Lock,
        Some(_) => BlockClass::Call,
    }
}

/// Returns what the time between `started_ns` and the account's moment went to. `stops` are the beginnings of waits in which
/// the thread was seen stopped or frozen.
///
/// The sums are the account's; the waits that were reported divide the blocked time among them. `facts` are what is known
/// of the waits, one for each or none; other waits were for what they were described with.
pub(super) fn divide(
    started_ns: u64,
    account: &AbsenceAccount,
    blocks: &[ThreadBlock],
    described: &[BlockDescription],
    stops: &[u64],
    facts: &[WaitFact],
) -> AbsenceTime {
    let mut time = AbsenceTime::default();
    let length_ns = account.at_ns.saturating_sub(started_ns);
    let off_ns = account.off_ns.min(length_ns);
    let ready_ns = account.ready_ns.min(off_ns);
    time.parts.processor_ns = length_ns - off_ns;
    time.parts.ready_ns = ready_ns;
    let blocked_ns = off_ns - ready_ns;
    let weights: Vec<u64> = blocks
        .iter()
        .enumerate()
        .map(|(at, block)| {
            // The wait for a processor at its end is counted by the next report.
            let later_ns = blocks.get(at + 1).map_or(account.ready_ns, |next| next.ready_ns);
            block.blocked_ns.saturating_sub(later_ns.saturating_sub(block.ready_ns))
        })
        .collect();
    let known_ns: u64 = weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight));
    // Of what was not reported, less than the rest, nothing else is known: it is in the same waits.
    let shared_ns = if blocked_ns / 2 <= known_ns { blocked_ns } else { known_ns };
    let mut left_ns = shared_ns;
    let mut most_ns = 0;
    let mut sums: HashMap<BlockKey, (u64, bool)> = HashMap::new();
    let mut unknown_pages_ns = 0_u64;
    let no_fact = WaitFact::default();
    for (at, (block, weight)) in blocks.iter().zip(weights).enumerate() {
        let share_ns = scaled(weight, shared_ns, known_ns).min(left_ns);
        if share_ns == 0 {
            continue;
        }
        left_ns -= share_ns;
        let class = class_of(block, stops);
        match class {
            BlockClass::Stopped => time.parts.stopped_ns += share_ns,
            BlockClass::Fault => time.parts.fault_ns += share_ns,
            BlockClass::Lock => time.parts.lock_ns += share_ns,
            BlockClass::Call => time.parts.call_ns += share_ns,
        }
        let key = key_of(block);
        let is_certain = |made: &&BlockDescription| {
            made.number != BlockDescription::WITHOUT_STACK
                || blocks.iter().any(|later| later.from_ns > made.from_ns && key_of(later) == key)
        };
        let of_key = || described.iter().rev().filter(|made| made.key == key).filter(is_certain);
        let description = of_key()
            .find(|made| made.from_ns == block.from_ns)
            .or_else(|| of_key().find(|made| made.object.is_some()))
            .or_else(|| of_key().next());
        let fact = facts.get(at).unwrap_or(&no_fact);
        if class != BlockClass::Stopped {
            let call = match (fact.operation, block.call) {
                (Some(operation), _) => CallShare::of_operation(operation),
                (None, Some(number)) => {
                    CallShare::of_call(number, sleeps(number, &block.arguments))
                }
                (None, None) => CallShare::PAGE_FAULT.to_owned(),
            };
            let described = description.filter(|_| fact.operation.is_none());
            let object =
                fact.object.clone().or_else(|| described.and_then(|made| made.object.clone()));
            if class == BlockClass::Fault && object.is_none() {
                unknown_pages_ns = unknown_pages_ns.saturating_add(share_ns);
            }
            let share = CallShare { call, blocked_ns: share_ns, seen: 1, object };
            time.descriptions
                .extend(description.map(|made| DescribedWait::of(made.number, &share)));
            time.calls.push(share);
        }
        let sum = sums.entry(key).or_default();
        sum.0 += share_ns;
        // A ring is not what its operations work on.
        let is_described = description.is_some() && !is_ring_wait(block);
        sum.1 |= *fact != no_fact || is_described || class != BlockClass::Call;
        let own_ns = share_ns.min(block.to_ns.saturating_sub(block.from_ns));
        if own_ns > most_ns {
            most_ns = own_ns;
            time.longest = Some(*block);
        }
    }
    time.has_unknown_object =
        sums.values().any(|(sum_ns, is_known)| !is_known && sum_ns.saturating_mul(2) > length_ns)
            || unknown_pages_ns.saturating_mul(2) > length_ns;
    time.parts.unknown_ns += blocked_ns - shared_ns + left_ns;
    time
}

/// A wait that a thread was seen in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SeenWait {
    /// When it began.
    pub(super) from_ns: u64,
    /// When it was seen to go on for the last time.
    pub(super) until_ns: u64,
    /// What the thread was blocked in, if that was read.
    pub(super) key: BlockKey,
}

/// Adds a wait that was seen from outside, and whose end the programs in the kernel did not see: on a busy machine switches of
/// a thread are missing now and then, and its time would be told as computing.
pub(super) fn add_missing(
    account: &mut AbsenceAccount,
    blocks: &mut Vec<ThreadBlock>,
    seen: &SeenWait,
) {
    let until_ns = seen.until_ns.min(account.at_ns);
    let length_ns = until_ns.saturating_sub(seen.from_ns);
    let at = blocks.partition_point(|block| block.from_ns < seen.from_ns);
    let is_known = blocks.get(at).is_some_and(|block| block.from_ns < until_ns)
        || at.checked_sub(1).is_some_and(|before| blocks[before].to_ns > seen.from_ns);
    if is_known || length_ns == 0 {
        return;
    }
    let (off_before_ns, ready_ns) = match blocks.get(at) {
        Some(next) => (next.off_before_ns, next.ready_ns),
        None => (account.off_ns, account.ready_ns),
    };
    for later in &mut blocks[at..] {
        later.off_before_ns = later.off_before_ns.saturating_add(length_ns);
    }
    account.off_ns = account.off_ns.saturating_add(length_ns);
    blocks.insert(
        at,
        ThreadBlock {
            from_ns: seen.from_ns,
            to_ns: until_ns,
            ready_ns,
            blocked_ns: length_ns,
            off_before_ns,
            could_run: false,
            is_stopped: false,
            call: seen.key.map(|(number, _)| number),
            arguments: [seen.key.map_or(0, |(_, first)| first), 0, 0, 0, 0, 0],
            place: (0, 0),
        },
    );
}

/// Adds a part of so many nanoseconds of a time of which the scheduler's counters alone are known; what it waited for is not.
pub(super) fn add_share(
    parts: &mut TimeParts,
    counted: &AbsenceAccount,
    part_ns: u64,
    whole_ns: u64,
) {
    let off_ns = scaled(counted.off_ns, part_ns, whole_ns).min(part_ns);
    let ready_ns = scaled(counted.ready_ns, part_ns, whole_ns).min(off_ns);
    parts.processor_ns += part_ns - off_ns;
    parts.ready_ns += ready_ns;
    parts.unknown_ns += off_ns - ready_ns;
}

/// Returns what an absence had gone to at a moment outside of waits, from what it had at a later one.
fn account_at(account: &AbsenceAccount, blocks: &[ThreadBlock], at_ns: u64) -> AbsenceAccount {
    let next = blocks.iter().find(|block| block.from_ns >= at_ns);
    let (off_ns, ready_ns) = match next {
        Some(next) if at_ns < account.at_ns => (next.off_before_ns, next.ready_ns),
        // No wait was reported since.
        _ => (account.off_ns, account.ready_ns),
    };
    AbsenceAccount { at_ns, off_ns, ready_ns, ..*account }
}

/// Returns the account and the waits of a part of an absence, which begins and ends outside of waits. Without `from_ns` it
/// begins with the absence.
pub(super) fn part_of(
    account: &AbsenceAccount,
    blocks: &[ThreadBlock],
    from_ns: Option<u64>,
    to_ns: u64,
) -> (AbsenceAccount, Vec<ThreadBlock>) {
    let before = match from_ns {
        Some(from_ns) => account_at(account, blocks, from_ns),
        None => AbsenceAccount::default(),
    };
    let mut part = account_at(account, blocks, to_ns);
    part.off_ns = part.off_ns.saturating_sub(before.off_ns);
    part.ready_ns = part.ready_ns.saturating_sub(before.ready_ns);
    let from_ns = from_ns.unwrap_or(0);
    let is_in = |block: &&ThreadBlock| block.from_ns >= from_ns && block.to_ns <= to_ns;
    let mut waits: Vec<ThreadBlock> = blocks.iter().filter(is_in).copied().collect();
    for wait in &mut waits {
        wait.ready_ns = wait.ready_ns.saturating_sub(before.ready_ns);
        wait.off_before_ns = wait.off_before_ns.saturating_sub(before.off_ns);
    }
    (part, waits)
}

/// The waits of an absence that are kept as they are, the first ones.
const KEPT: usize = 64;

/// Puts waits that follow each other in the same call together, to have room for more.
pub(super) fn merge(blocks: &mut Vec<ThreadBlock>) {
    let mut at = 0;
    blocks.dedup_by(|later, earlier| {
        at += 1;
        let kind = |block: &ThreadBlock| (key_of(block), block.could_run, block.is_stopped);
        let is_same = at > KEPT && at % 2 == 0 && kind(later) == kind(earlier);
        if is_same {
            earlier.to_ns = later.to_ns;
            earlier.blocked_ns = earlier.blocked_ns.saturating_add(later.blocked_ns);
        }
        is_same
    });
}

/// Returns by how much a step from `from_ns` to `to_ns` may have been shorter, if looks of the main loop at its events that took
/// no time are seen from `watched_ns` on only: there was none in a wait for something else, nor after the last moment outside
/// of waits until then.
pub(super) fn uncertain_ns(
    blocks: &[ThreadBlock],
    [from_ns, to_ns]: [u64; 2],
    watched_ns: u64,
) -> u64 {
    // Waits that were put together have moments between them.
    let is_one = |block: &&ThreadBlock| {
        !block.could_run && block.blocked_ns >= block.to_ns.saturating_sub(block.from_ns)
    };
    let before =
        blocks.iter().filter(is_one).take_while(|block| block.from_ns < watched_ns).map(|block| {
            let end_ns = if block.to_ns >= watched_ns { to_ns } else { block.to_ns };
            end_ns.saturating_sub(block.from_ns)
        });
    let certain_ns = before.fold(to_ns.saturating_sub(watched_ns), u64::max);
    to_ns.saturating_sub(from_ns).saturating_sub(certain_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectKind;
    use trace::syscall::call_number;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_part_of_what_the_scheduler_counted_has_its_share_and_is_not_longer_than_it_is() {
        let counted = AbsenceAccount { off_ns: 60 * MS, ready_ns: 20 * MS, ..Default::default() };
        let share = |part_ms: u64| {
            let mut parts = TimeParts { processor_ns: MS, ..TimeParts::default() };
            add_share(&mut parts, &counted, part_ms * MS, 100 * MS);
            [parts.processor_ns, parts.ready_ns, parts.unknown_ns].map(|ns| ns / MS)
        };
        assert_eq!(share(100), [41, 20, 40]);
        assert_eq!(share(50), [21, 10, 20]);
        assert_eq!(share(0), [1, 0, 0], "a step that began later");
    }

    fn block(from_ms: u64, to_ms: u64, ready_ms: u64, call: Option<&str>) -> ThreadBlock {
        ThreadBlock {
            from_ns: from_ms * MS,
            to_ns: to_ms * MS,
            ready_ns: ready_ms * MS,
            blocked_ns: (to_ms - from_ms) * MS,
            off_before_ns: 0,
            could_run: false,
            is_stopped: false,
            call: call.map(|name| call_number(name).unwrap()),
            arguments: [5, 0, 0, 0, 0, 0],
            place: (1, 1),
        }
    }

    fn account(at_ms: u64, off_ms: u64, ready_ms: u64) -> AbsenceAccount {
        AbsenceAccount {
            at_ns: at_ms * MS,
            off_ns: off_ms * MS,
            ready_ns: ready_ms * MS,
            ..AbsenceAccount::default()
        }
    }

    #[test]
    fn the_parts_are_the_length_and_a_wait_for_a_processor_is_no_part_of_the_call_before() {
        let blocks = [
            block(110, 200, 0, Some("fsync")),
            block(210, 230, 30, None),
            block(240, 250, 30, Some("futex")),
        ];
        let time = divide(100 * MS, &account(300, 130, 40), &blocks, &[], &[], &[]);
        assert_eq!(time.parts.processor_ns, 70 * MS);
        assert_eq!(time.parts.ready_ns, 40 * MS);
        // 10 ms in waits that were not reported are divided as the others are.
        assert_eq!(time.parts.call_ns, 67_500_000, "60 ms of fsync, and 7.5 ms");
        assert_eq!(time.parts.fault_ns, 22_500_000);
        assert_eq!(time.parts.lock_ns, 0, "all of it was the wait for a processor");
        let sum: u64 = time.parts.named().iter().map(|(_, part)| part).sum();
        assert_eq!(sum, 200 * MS);
        assert_eq!(time.longest.unwrap().from_ns, 110 * MS);
    }

    #[test]
    fn a_call_has_the_object_that_another_one_on_the_same_descriptor_was_described_with() {
        let object = CallObject {
            kind: ObjectKind::File,
            name: "/a".to_owned(),
            file_system: String::new(),
            device: String::new(),
        };
        let key = Some((call_number("fsync").unwrap(), 5));
        let made = BlockDescription { number: 7, from_ns: 60 * MS, key, object: Some(object) };
        let blocks = [block(10, 50, 0, Some("fsync")), block(60, 100, 0, Some("fsync"))];
        let time = divide(0, &account(110, 80, 0), &blocks, &[made], &[], &[]);
        assert!(time.calls.iter().all(|share| share.object.is_some()), "{time:?}");
        let described = time.descriptions.iter().map(|wait| (wait.number, wait.blocked_ns));
        assert_eq!(described.collect::<Vec<_>>(), [(7, 40 * MS), (7, 40 * MS)]);
        assert!(!time.has_unknown_object);
    }

    #[test]
    fn a_part_of_an_absence_has_its_own_waits_only() {
        let mut preempted = block(150, 160, 5, None);
        (preempted.could_run, preempted.blocked_ns) = (true, 0);
        let mut blocks = [block(10, 50, 0, Some("fsync")), preempted, block(170, 180, 15, None)];
        (blocks[1].off_before_ns, blocks[2].off_before_ns) = (40 * MS, 50 * MS);
        let all = account(200, 60, 16);
        let (part, waits) = part_of(&all, &blocks, Some(100 * MS), 200 * MS);
        assert_eq!((part.off_ns, part.ready_ns), (20 * MS, 11 * MS));
        let time = divide(100 * MS, &part, &waits, &[], &[], &[]);
        assert_eq!(time.parts.processor_ns, 80 * MS);
        assert_eq!((time.parts.ready_ns, time.parts.fault_ns), (11 * MS, 9 * MS));
        // The main loop looked for events without a wait: until then it had been blocked, and had waited for a processor.
        let (first, waits) = part_of(&all, &blocks, None, 165 * MS);
        let time = divide(0, &first, &waits, &[], &[], &[]);
        assert_eq!((time.parts.processor_ns, time.parts.ready_ns), (115 * MS, 15 * MS));
        assert_eq!(time.parts.call_ns, 35 * MS);
        let (last, waits) = part_of(&all, &blocks, Some(190 * MS), 200 * MS);
        assert_eq!((last.off_ns, last.ready_ns, waits.len()), (0, 0, 0));
        let uncertain = |watched_ms| uncertain_ns(&blocks, [0, 200 * MS], watched_ms * MS);
        assert_eq!(uncertain(0), 0, "it was watched from the beginning");
        assert_eq!(uncertain(30), 10 * MS, "it was in a wait then");
        assert_eq!(uncertain(60), 60 * MS);
        assert_eq!(uncertain(200), 160 * MS, "it was not watched: the longest wait is certain");
        let mut merged = block(20, 190, 0, Some("read"));
        merged.blocked_ns = 100 * MS;
        assert_eq!(uncertain_ns(&[merged], [0, 200 * MS], 200 * MS), 200 * MS);
    }

    #[test]
    fn a_wait_whose_end_was_not_seen_in_the_kernel_is_one_that_was_looked_at() {
        let key = Some((call_number("flock").unwrap(), 5));
        let seen = SeenWait { from_ns: 20 * MS, until_ns: 410 * MS, key };
        let mut all = account(430, 15, 0);
        let mut blocks = vec![block(2, 10, 0, Some("read")), block(411, 418, 0, None)];
        blocks[1].off_before_ns = 8 * MS;
        add_missing(&mut all, &mut blocks, &seen);
        let time = divide(0, &all, &blocks, &[], &[], &[]);
        assert_eq!((time.parts.call_ns, time.parts.fault_ns), (398 * MS, 7 * MS));
        assert_eq!((time.parts.processor_ns, time.parts.unknown_ns), (25 * MS, 0));
        let (last, waits) = part_of(&all, &blocks, Some(410 * MS), 430 * MS);
        assert_eq!((last.off_ns, waits.len()), (7 * MS, 1));
        // What was reported is not added once more.
        let before = (all, blocks.clone());
        add_missing(&mut all, &mut blocks, &seen);
        assert_eq!((all, blocks), before);
    }

    #[test]
    fn a_stop_is_told_from_the_call_in_which_it_was_made() {
        let mut stopped = block(10, 90, 0, Some("poll"));
        stopped.is_stopped = true;
        let frozen = block(100, 150, 0, Some("poll"));
        let time = divide(0, &account(160, 130, 0), &[stopped, frozen], &[], &[100 * MS], &[]);
        assert_eq!(time.parts.stopped_ns, 130 * MS);
        assert!(time.calls.is_empty());
    }

    #[test]
    fn short_waits_are_those_that_stand_for_them() {
        // Forty times 2.5 ms of fsync, of which every other was reported, for both.
        let blocks: Vec<ThreadBlock> = (0..20)
            .map(|at| {
                let mut wait = block(8 * at, 8 * at + 2, 0, Some("fsync"));
                (wait.blocked_ns, wait.off_before_ns) = (5 * MS, 5 * at * MS);
                wait
            })
            .collect();
        let time = divide(0, &account(160, 100, 0), &blocks, &[], &[], &[]);
        assert_eq!((time.parts.call_ns, time.parts.processor_ns), (100 * MS, 60 * MS));
        assert_eq!(time.parts.unknown_ns, 0);
        assert!(time.has_unknown_object);
        let mut many: Vec<ThreadBlock> =
            std::iter::repeat_n(&blocks, 20).flatten().copied().collect();
        let sum = |blocks: &[ThreadBlock]| blocks.iter().map(|wait| wait.blocked_ns).sum::<u64>();
        let before = (many.len(), sum(&many));
        merge(&mut many);
        assert!(many.len() < before.0 * 2 / 3, "{}", many.len());
        assert_eq!(sum(&many), before.1);
    }

    #[test]
    fn a_file_that_was_read_between_two_waits_counts_if_its_descriptor_is_used_again() {
        let object = CallObject {
            kind: ObjectKind::File,
            name: "/a".to_owned(),
            file_system: String::new(),
            device: String::new(),
        };
        let key = Some((call_number("read").unwrap(), 5));
        let number = BlockDescription::WITHOUT_STACK;
        let blocks = [block(10, 50, 0, Some("read")), block(60, 100, 0, Some("read"))];
        for (at_ms, is_known) in [(55, true), (105, false)] {
            let made =
                BlockDescription { number, from_ns: at_ms * MS, key, object: Some(object.clone()) };
            let time = divide(0, &account(110, 80, 0), &blocks, &[made], &[], &[]);
            assert!(time.calls.iter().all(|share| share.object.is_some() == is_known), "{time:?}");
        }
    }

    #[test]
    fn counters_that_do_not_fit_each_other_give_no_more_than_the_length() {
        let blocks = [block(0, 500, 0, Some("read")), block(0, 500, 900, Some("read"))];
        let time = divide(0, &account(100, 4000, 5000), &blocks, &[], &[], &[]);
        let sum: u64 = time.parts.named().iter().map(|(_, part)| part).sum();
        assert_eq!(sum, 100 * MS);
    }
}
