//! Says which operation a thread waited for, that waited for completions of a ring.

use super::opcodes::name_of;
use super::operation::RingOperation;

/// A thread is told of a completion this long after it at most, on a processor or not, in nanoseconds.
const TOLD_NS: u64 = 1_000_000;
/// The most operations that are looked at for each wait.
const MOST: usize = 4096;

/// A wait of a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RingWait {
    /// Its process.
    pub process: u32,
    /// The ring, if it is known.
    pub ring: Option<u64>,
    /// When it began, of the same clock as the operations.
    pub from_ns: u64,
    /// When it ended; none while it goes on.
    pub to_ns: Option<u64>,
    /// How long the thread was on a processor or ready in it: so much later than the completion the wait may have ended.
    pub settled_ns: u64,
}

/// What a wait was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Explanation {
    /// The operation: an index.
    pub operation: usize,
    /// How long it was in flight during the wait.
    pub common_ns: u64,
    /// Whether the wait is that of an event loop: something from outside could have ended it, too.
    pub is_loop: bool,
    /// Whether no other operation of the ring was in flight during the wait, except for time limits.
    pub is_alone: bool,
}

/// Operations in the order in which they were completed; those that run are last.
#[derive(Debug)]
pub struct OperationSpan<'a> {
    operations: &'a [RingOperation],
    /// The ends, with the index of the operation.
    ends: Vec<(u64, usize)>,
}

fn end_of(operation: &RingOperation) -> u64 {
    operation.end_ns().unwrap_or(u64::MAX)
}

/// Whether an operation shows that the thread waits for events beside it. A time limit does not: it guards a wait.
fn is_of_loop(operation: &RingOperation) -> bool {
    operation.waits_for_events() && !is_time_limit(operation)
}

fn is_time_limit(operation: &RingOperation) -> bool {
    matches!(name_of(operation.opcode), Some("TIMEOUT" | "LINK_TIMEOUT"))
}

impl<'a> OperationSpan<'a> {
    /// Sorts operations.
    #[must_use]
    pub fn new(operations: &'a [RingOperation]) -> OperationSpan<'a> {
        let mut ends: Vec<(u64, usize)> =
            operations.iter().enumerate().map(|(at, operation)| (end_of(operation), at)).collect();
        ends.sort_unstable();
        OperationSpan { operations, ends }
    }

    fn from(&self, end_ns: u64) -> impl Iterator<Item = (usize, &'a RingOperation)> {
        let first = self.ends.partition_point(|(end, _)| *end < end_ns);
        let ends = self.ends[first..].iter().take(MOST);
        ends.filter_map(|(_, at)| Some((*at, self.operations.get(*at)?)))
    }
}

/// Returns the operation that a wait was for: the longest of its ring that was completed when it ended; of a wait that
/// goes on, the longest that runs.
#[must_use]
pub fn explain(wait: &RingWait, operations: &OperationSpan<'_>) -> Option<Explanation> {
    let is_of_ring = |operation: &RingOperation| {
        operation.process == wait.process
            && wait.ring.is_none_or(|ring| ring == operation.ring)
            && end_of(operation) > wait.from_ns
    };
    let to_ns = wait.to_ns.unwrap_or(u64::MAX);
    let earliest = to_ns.saturating_sub(wait.settled_ns.saturating_add(TOLD_NS));
    let ended = operations.from(earliest.max(wait.from_ns));
    let ended = ended
        .take_while(|(_, operation)| end_of(operation) <= to_ns)
        .filter(|(_, operation)| is_of_ring(operation) && operation.start_ns < to_ns);
    let (at, operation) = ended.max_by_key(|(at, operation)| {
        let length = end_of(operation).saturating_sub(operation.start_ns);
        (length, std::cmp::Reverse(operation.start_ns), std::cmp::Reverse(*at))
    })?;
    let beside = operations.from(to_ns).find(|(_, other)| {
        is_of_ring(other) && is_of_loop(other) && other.start_ns <= wait.from_ns
    });
    let mut in_flight = operations.from(wait.from_ns.saturating_add(1));
    let is_alone = !in_flight.any(|(other_at, other)| {
        other_at != at && is_of_ring(other) && other.start_ns < to_ns && !is_time_limit(other)
    });
    let last = match (operation.end_ns(), wait.to_ns) {
        (Some(end), _) => end,
        (None, Some(to)) => to,
        (None, None) => operation.start_ns.saturating_add(operation.wall_ns),
    };
    Some(Explanation {
        operation: at,
        common_ns: last.saturating_sub(operation.start_ns.max(wait.from_ns)),
        is_loop: operation.waits_for_events() || beside.is_some(),
        is_alone,
    })
}
