//! What the time of an absence went to, from what the programs in the kernel report of it.

use std::collections::HashMap;

use trace::report::account::TimeParts;
use trace::syscall::call_name;

use crate::kernel::{AbsenceAccount, ThreadBlock};
use crate::model::{CallObject, CallShare};

/// A description of a thread that is blocked: its stack, and what its call works on.
#[derive(Clone, Debug)]
pub(super) struct BlockDescription {
    /// The number of the description.
    pub(super) number: u32,
    /// When the wait began in which it was made.
    pub(super) from_ns: u64,
    /// The object, if it was read.
    pub(super) object: Option<CallObject>,
}

/// What a time went to.
#[derive(Clone, Debug, Default)]
pub(super) struct AbsenceTime {
    /// The parts; their sum is the length.
    pub(super) parts: TimeParts,
    /// The calls, each with its own object.
    pub(super) calls: Vec<CallShare>,
    /// How much blocked time each description stands for.
    pub(super) descriptions: Vec<(u32, u64)>,
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
pub(super) fn divide(
    started_ns: u64,
    account: &AbsenceAccount,
    blocks: &[ThreadBlock],
    described: &[BlockDescription],
    stops: &[u64],
) -> AbsenceTime {
    let mut time = AbsenceTime::default();
    let length_ns = account.at_ns.saturating_sub(started_ns);
    let off_ns = account.off_ns.min(length_ns);
    let ready_ns = account.ready_ns.min(off_ns);
    time.parts.processor_ns = length_ns - off_ns;
    time.parts.ready_ns = ready_ns;
    // Waits too short to be reported each are in none of the blocks.
    let mut rest_ns = off_ns - ready_ns;
    let mut most_ns = 0;
    let mut keys = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        if block.could_run {
            continue;
        }
        // The wait for a processor at its end is counted by the next report.
        let later = blocks.get(at + 1).map_or(account.ready_ns, |next| next.ready_ns);
        let own_ready_ns = later.saturating_sub(block.ready_ns);
        let span_ns = block.to_ns.saturating_sub(block.from_ns);
        let blocked_ns = (span_ns - own_ready_ns.min(span_ns)).min(rest_ns);
        rest_ns -= blocked_ns;
        let description = described.iter().rfind(|made| made.from_ns == block.from_ns);
        match class_of(block, stops) {
            BlockClass::Stopped => time.parts.stopped_ns += blocked_ns,
            BlockClass::Fault => time.parts.fault_ns += blocked_ns,
            BlockClass::Lock => time.parts.lock_ns += blocked_ns,
            BlockClass::Call => time.parts.call_ns += blocked_ns,
        }
        if let Some(number) = block.call
            && class_of(block, stops) != BlockClass::Stopped
        {
            keys.push((number, block.arguments[0]));
            time.calls.push(CallShare {
                call: call_name(number).unwrap_or("?").to_owned(),
                blocked_ns,
                seen: 1,
                object: description.and_then(|made| made.object.clone()),
            });
        }
        if let Some(made) = description {
            time.descriptions.push((made.number, blocked_ns));
        }
        if blocked_ns > most_ns {
            most_ns = blocked_ns;
            time.longest = Some(*block);
            time.has_unknown_object = description.is_none()
                && blocked_ns.saturating_mul(2) > length_ns
                && class_of(block, stops) == BlockClass::Call;
        }
    }
    fill_objects(&mut time.calls, &keys);
    // Short waits are most likely in the calls that were seen.
    match time.calls.last_mut() {
        Some(share) if rest_ns <= time.parts.call_ns => {
            share.blocked_ns += rest_ns;
            time.parts.call_ns += rest_ns;
        }
        _ => time.parts.unknown_ns += rest_ns,
    }
    time
}

/// Returns the account and the waits of a part of an absence, which begins and ends outside of waits.
pub(super) fn part_of(
    account: &AbsenceAccount,
    blocks: &[ThreadBlock],
    from_ns: u64,
    to_ns: u64,
) -> (AbsenceAccount, Vec<ThreadBlock>) {
    let first = blocks.partition_point(|block| block.from_ns < from_ns);
    let end = blocks.partition_point(|block| block.to_ns <= to_ns).max(first);
    let ready_at = |at: usize| blocks.get(at).map_or(account.ready_ns, |block| block.ready_ns);
    let before_ns = if first == 0 { 0 } else { ready_at(first) };
    let mut part = blocks[first..end].to_vec();
    for block in &mut part {
        block.ready_ns = block.ready_ns.saturating_sub(before_ns);
    }
    let off_ns = part.iter().map(|block| block.to_ns.saturating_sub(block.from_ns)).sum();
    let ready_ns = ready_at(end).saturating_sub(before_ns);
    (AbsenceAccount { at_ns: to_ns, off_ns, ready_ns, ..*account }, part)
}

/// Returns how long after `from_ns` the thread was last outside of waits, until `to_ns`: until then the main loop may have
/// looked for events without waiting.
pub(super) fn free_until_ns(blocks: &[ThreadBlock], from_ns: u64, to_ns: u64) -> u64 {
    let mut waits = blocks.iter().filter(|block| !block.could_run);
    let around = waits.find(|block| block.from_ns < to_ns && block.to_ns >= to_ns);
    around.map_or(to_ns, |block| block.from_ns).saturating_sub(from_ns)
}

/// Gives calls without an object that of another one with the same number and the same first argument.
fn fill_objects(calls: &mut [CallShare], keys: &[(u32, u64)]) {
    let known: HashMap<(u32, u64), CallObject> = keys
        .iter()
        .zip(&*calls)
        .filter_map(|(key, share)| Some((*key, share.object.clone()?)))
        .collect();
    for (share, key) in calls.iter_mut().zip(keys) {
        share.object = share.object.take().or_else(|| known.get(key).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectKind;
    use trace::syscall::call_number;

    const MS: u64 = 1_000_000;

    fn block(from_ms: u64, to_ms: u64, ready_ms: u64, call: Option<&str>) -> ThreadBlock {
        ThreadBlock {
            from_ns: from_ms * MS,
            to_ns: to_ms * MS,
            ready_ns: ready_ms * MS,
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
        let time = divide(100 * MS, &account(300, 130, 40), &blocks, &[], &[]);
        assert_eq!(time.parts.processor_ns, 70 * MS);
        assert_eq!(time.parts.ready_ns, 40 * MS);
        assert_eq!(time.parts.call_ns, 70 * MS, "60 ms of fsync, and 10 ms in short waits");
        assert_eq!(time.parts.fault_ns, 20 * MS);
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
        let made = BlockDescription { number: 7, from_ns: 60 * MS, object: Some(object) };
        let blocks = [block(10, 50, 0, Some("fsync")), block(60, 100, 0, Some("fsync"))];
        let time = divide(0, &account(110, 80, 0), &blocks, &[made], &[]);
        assert!(time.calls.iter().all(|share| share.object.is_some()), "{time:?}");
        assert_eq!(time.descriptions, [(7, 40 * MS)]);
        assert!(!time.has_unknown_object);
    }

    #[test]
    fn a_part_of_an_absence_has_its_own_waits_only() {
        let mut preempted = block(150, 160, 5, None);
        preempted.could_run = true;
        let blocks = [block(10, 50, 0, Some("fsync")), preempted, block(170, 180, 15, None)];
        let (part, waits) = part_of(&account(200, 60, 16), &blocks, 100 * MS, 200 * MS);
        assert_eq!((part.off_ns, part.ready_ns), (20 * MS, 11 * MS));
        let time = divide(100 * MS, &part, &waits, &[], &[]);
        assert_eq!(time.parts.processor_ns, 80 * MS);
        assert_eq!((time.parts.ready_ns, time.parts.fault_ns), (11 * MS, 9 * MS));
        assert_eq!(free_until_ns(&blocks, 0, 30 * MS), 10 * MS, "it was in a wait then");
        assert_eq!(free_until_ns(&blocks, 0, 60 * MS), 60 * MS);
    }

    #[test]
    fn a_stop_is_told_from_the_call_in_which_it_was_made() {
        let mut stopped = block(10, 90, 0, Some("poll"));
        stopped.is_stopped = true;
        let frozen = block(100, 150, 0, Some("poll"));
        let time = divide(0, &account(160, 130, 0), &[stopped, frozen], &[], &[100 * MS]);
        assert_eq!(time.parts.stopped_ns, 130 * MS);
        assert!(time.calls.is_empty());
    }

    #[test]
    fn counters_that_do_not_fit_each_other_give_no_more_than_the_length() {
        let blocks = [block(0, 500, 0, Some("read")), block(0, 500, 900, Some("read"))];
        let time = divide(0, &account(100, 4000, 5000), &blocks, &[], &[]);
        let sum: u64 = time.parts.named().iter().map(|(_, part)| part).sum();
        assert_eq!(sum, 100 * MS);
    }
}
