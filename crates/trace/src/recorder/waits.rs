//! Waits that are told by the kernel's wake-ups and not by the records of calls.

use std::collections::HashMap;

use super::TraceRecorder;
use crate::call::{CallEnd, TracedCall};
use crate::syscall::call_name;
use crate::syscall_set::waits_in_memory;
use crate::timeline::ShortCallSample;

/// A wait in a call to run a program that begins so long after the last one is what that had left to do, in nanoseconds.
const RETURN_NS: u64 = 50_000_000;

/// A wait that the record of no call holds, of which the kernel's wake-ups told when it began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnrecordedWait {
    /// The number of the call.
    pub(crate) number: u32,
    /// When it began, in nanoseconds since the recording did.
    pub(crate) from_ns: u64,
    /// When the thread was woken.
    pub(crate) to_ns: u64,
    /// Whether a call that was sampled is this wait.
    pub(crate) is_told: bool,
}

impl UnrecordedWait {
    /// Finds the wait that a sampled call was, and gives the call its beginning and its end.
    pub(super) fn fit(call: &mut TracedCall, waits: &mut [UnrecordedWait]) {
        if call.outcome != CallEnd::Unknown {
            return;
        }
        let end_ns = end_of(call);
        let first = waits.partition_point(|wait| wait.to_ns <= call.start_ns);
        let inside = waits[first..].iter_mut().take_while(|wait| wait.from_ns < end_ns);
        let could_be = |wait: &&mut UnrecordedWait| wait.number == call.number && !wait.is_told;
        let common = |wait: &&mut UnrecordedWait| {
            wait.to_ns.min(end_ns).saturating_sub(wait.from_ns.max(call.start_ns))
        };
        let Some(wait) = inside.filter(could_be).max_by_key(common) else { return };
        wait.is_told = true;
        (call.start_ns, call.wall_ns) = (wait.from_ns, wait.to_ns.saturating_sub(wait.from_ns));
    }

    /// Returns it as a call of a main thread.
    fn call(&self, thread: u32) -> TracedCall {
        TracedCall {
            process: thread,
            thread,
            number: self.number,
            arguments: [0; 6],
            outcome: CallEnd::Unknown,
            start_ns: self.from_ns,
            wall_ns: self.to_ns.saturating_sub(self.from_ns),
            cpu_ns: Some(0),
            queued_ns: None,
            stack: None,
            target: None,
        }
    }

    /// Marks the waits that were in a call which the kernel's programs reported as told.
    pub(super) fn tell(call: &TracedCall, waits: &mut [UnrecordedWait]) {
        let first = waits.partition_point(|wait| wait.to_ns <= call.start_ns);
        let inside = waits[first..].iter_mut().take_while(|wait| wait.from_ns < end_of(call));
        inside.filter(|wait| wait.number == call.number).for_each(|wait| wait.is_told = true);
    }
}

/// The waits for locks that the kernel's programs reported: by thread their places among the slow calls, in the order of time.
#[derive(Debug, Default)]
pub(super) struct ReportedLocks(pub(super) HashMap<u32, Vec<usize>>);

impl ReportedLocks {
    pub(super) fn of(slow: &[TracedCall]) -> ReportedLocks {
        let mut locks = ReportedLocks::default();
        let all = slow.iter().enumerate();
        for (at, call) in all.filter(|(_, call)| waits_in_memory(call.number)) {
            locks.0.entry(call.thread).or_default().push(at);
        }
        locks.0.values_mut().for_each(|places| {
            places.sort_by_key(|at| slow.get(*at).map(|call| call.start_ns));
        });
        locks
    }

    /// Returns the place of the reported wait that a sampled one was.
    pub(super) fn find(&self, call: &TracedCall, slow: &[TracedCall]) -> Option<usize> {
        let places = self.0.get(&call.thread).filter(|_| waits_in_memory(call.number))?;
        let ended = |at: &usize| slow.get(*at).is_some_and(|lock| end_of(lock) <= call.start_ns);
        let first = places.partition_point(ended);
        let locks = places[first..].iter().filter_map(|at| Some((*at, slow.get(*at)?)));
        let inside = locks.take_while(|(_, lock)| lock.start_ns < end_of(call));
        let common = |lock: &TracedCall| {
            end_of(lock).min(end_of(call)).saturating_sub(lock.start_ns.max(call.start_ns))
        };
        let same = inside.filter(|(_, lock)| lock.number == call.number);
        same.max_by_key(|(_, lock)| common(lock)).map(|(at, _)| at)
    }
}

/// Says whether a wait is in what a call to run a program had left to do: between two of them there is a program.
fn has_run_program(call: &TracedCall, wait: &UnrecordedWait) -> bool {
    let runs = call_name(call.number).is_some_and(|name| name.starts_with("execve"));
    runs && wait.from_ns.saturating_sub(end_of(call)) < RETURN_NS
}

pub(super) fn end_of(call: &TracedCall) -> u64 {
    call.start_ns.saturating_add(call.wall_ns)
}

impl TraceRecorder {
    /// Records a wait of a main thread that is sampled, too, if it is long. Those of a thread come in the order of time.
    pub(crate) fn waited_unrecorded(&mut self, thread: u32, wait: UnrecordedWait) {
        self.unrecorded.entry(thread).or_default().push(wait);
    }

    /// Records waits of main threads in calls that are recorded, which the calls themselves do not hold: what a call has left to do
    /// as it returns, as the last close of a file, waits when it is said to have ended. In the order of time.
    pub(crate) fn waited_returning(&mut self, waits: &[(u32, UnrecordedWait)]) {
        let mut calls: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, call) in self.recording.slow.iter().enumerate() {
            calls.entry(call.thread).or_default().push(at);
        }
        let slow = &self.recording.slow;
        calls.values_mut().for_each(|places| places.sort_by_cached_key(|at| slow[*at].start_ns));
        for (thread, wait) in waits {
            if self.recording.slow_dropped > 0 {
                // What is not kept may be a call that this one is in.
                return;
            }
            let wall_ns = wait.to_ns.saturating_sub(wait.from_ns);
            if !self.is_slow(wall_ns) {
                continue;
            }
            let places = calls.entry(*thread).or_default();
            let slow = &mut self.recording.slow;
            let behind = places.partition_point(|at| slow[*at].start_ns < wait.to_ns);
            let last = behind.checked_sub(1).and_then(|at| slow.get_mut(places[at]));
            let (more_ns, longest_ns) = match last {
                Some(last) if end_of(last) > wait.from_ns => continue,
                // Of other calls there may have been another one meanwhile, of which nobody knows because it was short.
                Some(last) if last.number == wait.number && has_run_program(last, wait) => {
                    let more_ns = wait.to_ns - end_of(last);
                    last.wall_ns += more_ns;
                    (more_ns, last.wall_ns)
                }
                _ => {
                    places.insert(behind, slow.len());
                    self.keep(wait.call(*thread));
                    (wall_ns, wall_ns)
                }
            };
            let total = self.recording.totals.entry((*thread, wait.number)).or_default();
            total.wall_ns = total.wall_ns.saturating_add(more_ns);
            total.longest_ns = total.longest_ns.max(longest_ns);
        }
    }

    /// Records the waits that no look from outside fell into. One for a lock may have been rest, which is judged together with those
    /// that were looked at: it is recorded as a short call is, however long it was.
    pub(super) fn add_unrecorded(&mut self, thread: u32, waits: Vec<UnrecordedWait>) {
        for wait in waits {
            if wait.is_told {
                continue;
            }
            let call = wait.call(thread);
            let wall_ns = call.wall_ns;
            match call_name(wait.number).is_some_and(|name| name.starts_with("futex")) {
                true => {
                    self.waited_shortly(ShortCallSample { call, blocked_ns: wall_ns, count: 1 });
                }
                false => self.call(call),
            }
        }
        if let Some(timeline) = self.recording.timelines.get_mut(&thread) {
            let end_of = |sample: &ShortCallSample| sample.call.start_ns + sample.call.wall_ns;
            timeline.short_calls.sort_by_key(end_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::recording::Backend;

    const MS: u64 = 1_000_000;

    /// The slow calls, by name with begin and length in milliseconds, after a wait `from` to `to` in a call of this name.
    fn with_wait(
        threshold_ms: u64,
        calls: &[(&str, u64, u64)],
        waits: &[(&'static str, u64, u64)],
    ) -> Vec<(String, u64, u64)> {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        recorder.recording().threshold_ns = threshold_ms * MS;
        let number = |name: &str| crate::syscall::call_number(name).unwrap();
        let wait = |name: &str, from: u64, to: u64| UnrecordedWait {
            number: number(name),
            from_ns: from * MS,
            to_ns: to * MS,
            is_told: false,
        };
        for (name, at, length) in calls {
            recorder.keep(wait(name, *at, at + length).call(7));
        }
        let waits: Vec<(u32, UnrecordedWait)> =
            waits.iter().map(|(name, from, to)| (7, wait(name, *from, *to))).collect();
        recorder.waited_returning(&waits);
        let slow = &recorder.recording().slow;
        let told = |call: &TracedCall| {
            let name = call_name(call.number).unwrap().to_owned();
            (name, call.start_ns / MS, call.wall_ns / MS)
        };
        slow.iter().map(told).collect()
    }

    fn told(calls: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        calls.iter().map(|(name, at, length)| ((*name).to_owned(), *at, *length)).collect()
    }

    #[test]
    fn a_wait_behind_a_call_is_a_call_and_that_in_one_is_in_it() {
        let read = [("read", 10, 200)];
        assert_eq!(with_wait(1, &read, &[("read", 20, 190)]), told(&read));
        // A short call of the same name may have been between them, and is the one that waits.
        let both = told(&[("read", 10, 200), ("read", 240, 1000)]);
        assert_eq!(with_wait(1, &read, &[("read", 240, 1240)]), both);
        // The one that waits need not be slow before that, and no other has to be.
        assert_eq!(with_wait(200, &[], &[("close", 5, 1005)]), told(&[("close", 5, 1000)]));
        assert_eq!(with_wait(200, &[], &[("close", 5, 105)]), []);
        let closes = [("close", 0, 500), ("close", 501, 1001), ("close", 1100, 1601)];
        let each = told(&[("close", 0, 500), ("close", 501, 500), ("close", 1100, 501)]);
        assert_eq!(with_wait(200, &[], &closes), each);
    }

    #[test]
    fn where_no_more_calls_have_room_no_wait_is_told_as_one() {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        let wait = |at: u64| UnrecordedWait {
            number: crate::syscall::call_number("close").unwrap(),
            from_ns: 2 * at * MS,
            to_ns: (2 * at + 1) * MS,
            is_told: false,
        };
        let full = super::super::SLOW_CALLS as u64;
        (0..full - 1).for_each(|at| recorder.keep(wait(at).call(7)));
        let waits: Vec<(u32, UnrecordedWait)> = (full..full + 4).map(|at| (7, wait(at))).collect();
        recorder.waited_returning(&waits);
        let recording = recorder.recording();
        assert_eq!((recording.slow.len() as u64, recording.slow_dropped), (full, 1));
    }

    #[test]
    fn a_program_begins_when_all_that_its_call_had_left_to_do_is_done() {
        let pieces = [("execve", 12, 27), ("execve", 28, 43), ("execve", 500, 515)];
        let told = told(&[("execve", 10, 33), ("execve", 500, 15)]);
        assert_eq!(with_wait(1, &[("execve", 10, 1)], &pieces), told);
    }
}
