//! Locks behind which an answer is waited for: Qt has a thread that receives from the bus, and whoever calls waits for that
//! thread.

use std::borrow::Cow;
use std::collections::HashMap;

use super::names::Names;
use crate::call::{StackId, TargetId, TracedCall};
use crate::recording::{Recording, SentRequest, Target, move_total};

/// A request that was sent so long before the wait is that of something else, in nanoseconds.
const NEAR_NS: u64 = 1_000_000_000;
/// What is waited for where the request was not seen.
const UNKNOWN: &str = "an answer of another program";

/// Returns a recording in which each wait of a main thread for a lock that is one for an answer has the request as its target.
pub(super) fn with_answers<'a>(recording: &'a Recording, names: &dyn Names) -> Cow<'a, Recording> {
    let mut stacks: HashMap<StackId, bool> = HashMap::new();
    let mut asks = |call: &TracedCall| {
        let is_lock = call.thread == call.process && matches!(&*names.call(call.number), "futex");
        call.stack.filter(|_| is_lock).is_some_and(|stack| {
            *stacks.entry(stack).or_insert_with(|| names.frames(recording, stack).asks)
        })
    };
    let waits = (0..recording.slow.len()).filter(|at| asks(&recording.slow[*at]));
    let waits: Vec<usize> = waits.collect();
    if waits.is_empty() {
        return Cow::Borrowed(recording);
    }
    let mut recording = recording.clone();
    for at in waits {
        let target = request_of(&recording.requests, &recording.slow[at])
            .unwrap_or_else(|| unknown(&mut recording.targets));
        let call = &mut recording.slow[at];
        if let Some(lock) = call.target.replace(target) {
            move_total(&mut recording.target_totals, lock, target, call);
        }
    }
    Cow::Owned(recording)
}

/// Returns the request that a wait is for: the one that was sent nearest to its beginning.
fn request_of(requests: &[SentRequest], call: &TracedCall) -> Option<TargetId> {
    let end_ns = call.start_ns.saturating_add(call.wall_ns);
    let own = requests.iter().filter(|sent| sent.process == call.process && sent.at_ns <= end_ns);
    let nearest = own.min_by_key(|sent| sent.at_ns.abs_diff(call.start_ns))?;
    let is_near = nearest.at_ns.saturating_add(NEAR_NS) >= call.start_ns;
    is_near.then_some(nearest.target)
}

fn unknown(targets: &mut Vec<Target>) -> TargetId {
    let unknown = Target::Socket { peer: UNKNOWN.to_owned(), request: None };
    let at = targets.iter().position(|target| *target == unknown).unwrap_or_else(|| {
        targets.push(unknown);
        targets.len() - 1
    });
    TargetId(super::symbolized::index(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CallEnd;

    #[test]
    fn a_wait_is_for_the_request_that_was_sent_nearest_to_its_beginning() {
        let call = TracedCall {
            process: 1,
            thread: 1,
            number: 0,
            arguments: [0; 6],
            outcome: CallEnd::Returned(0),
            start_ns: 5_000_000_000,
            wall_ns: 800_000_000,
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        };
        let sent = |process, at_ms: u64, target| SentRequest {
            process,
            at_ns: at_ms * 1_000_000,
            target: TargetId(target),
        };
        let of = |requests: &[SentRequest]| request_of(requests, &call).map(|target| target.0);
        let all = [sent(1, 4700, 1), sent(1, 4999, 2), sent(1, 5300, 3), sent(2, 5000, 4)];
        assert_eq!(of(&all), Some(2));
        assert_eq!(of(&all[2..]), Some(3), "the thread that sends may come later");
        assert_eq!(of(&[sent(1, 5801, 1)]), None, "the wait was over");
        assert_eq!(of(&[sent(1, 3000, 1)]), None, "that was long ago");
    }
}
