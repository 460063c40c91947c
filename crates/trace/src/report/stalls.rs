//! Classifies waits: distinguishes stalls, which the user feels, from idle event loops.

use std::collections::HashSet;

use super::schema::{ThreadStalls, TraceMethod};
use crate::call::TracedCall;
use crate::kernel_work::RingWaitKind;
use crate::recording::{Recording, Target};
use crate::syscall::{EVENT_WAITS, sleeps};

/// Calls that follow one another within this time are one stall, in nanoseconds.
const GAP_NS: u64 = 1_000_000;
/// From here on a person feels it, in nanoseconds.
const FELT_NS: u64 = 100_000_000;
/// From here on it hangs, in nanoseconds.
const HUNG_NS: u64 = 1_000_000_000;

/// Classifies calls.
#[derive(Debug)]
pub(super) struct StallClassifier<'a> {
    recording: &'a Recording,
    /// Threads in which an event loop was seen waiting.
    loops: HashSet<u32>,
    /// Threads that were seen to rest in calls for locks, as the main thread of Tk does.
    rest_in_locks: HashSet<u32>,
    /// Processes that started others which were watched too.
    parents: HashSet<u32>,
}

/// Whether a call is one in which event loops wait, or goes on with one after a stop.
pub(super) fn waits_for_events(name: &str) -> bool {
    EVENT_WAITS.contains(&name) || name == "restart_syscall"
}

impl<'a> StallClassifier<'a> {
    /// Looks for event loops and parents; `is_idle` says what is known of a call's stack, if it has one.
    pub(super) fn new<'n>(
        recording: &'a Recording,
        name: &dyn Fn(u32) -> &'n str,
        is_idle: &dyn Fn(&TracedCall) -> Option<bool>,
    ) -> StallClassifier<'a> {
        let mut judge = StallClassifier {
            recording,
            loops: HashSet::new(),
            rest_in_locks: HashSet::new(),
            parents: recording.processes.values().filter_map(|process| process.parent).collect(),
        };
        judge.loops = recording
            .slow
            .iter()
            .filter(|call| waits_for_events(name(call.number)))
            .filter(|call| judge.how(call, name(call.number), is_idle(call)) == TraceMethod::Idle)
            .map(|call| call.thread)
            .collect();
        let in_lock = recording.slow.iter().filter(|call| name(call.number).starts_with("futex"));
        judge.rest_in_locks =
            in_lock.filter(|call| is_idle(call) == Some(true)).map(|call| call.thread).collect();
        judge
    }

    /// Returns whether a wait may have been for a lock or rest, and nobody knows which: without a stack, of a thread that rests in
    /// such waits.
    pub(super) fn may_be_rest(&self, call: &TracedCall, name: &str) -> bool {
        name.starts_with("futex")
            && call.stack.is_none()
            && self.rest_in_locks.contains(&call.thread)
    }

    /// Classifies a slow call.
    pub(super) fn how(&self, call: &TracedCall, name: &str, is_idle: Option<bool>) -> TraceMethod {
        let target = call
            .target
            .and_then(|target| self.recording.targets.get(usize::try_from(target.0).ok()?));
        let is_main = call.thread == call.process;
        let ring = self.recording.kernel.waits.get(&(call.thread, call.start_ns));
        let ring = ring.map(|wait| wait.kind);
        let sleeps = sleeps(call.number, &call.arguments);
        match (name, target) {
            _ if is_idle == Some(true) => TraceMethod::Idle,
            _ if sleeps && is_main => TraceMethod::Stall,
            _ if ring == Some(RingWaitKind::Loop) => TraceMethod::Idle,
            _ if ring == Some(RingWaitKind::ForOperation) && is_main => TraceMethod::Stall,
            // Without a stack there is no telling a stall from a loop; by far the most are loops.
            _ if waits_for_events(name) && (is_idle.is_none() || !is_main) => TraceMethod::Idle,
            // A worker that waits for work.
            ("futex" | "futex_wait" | "nanosleep" | "clock_nanosleep", None) if !is_main => {
                TraceMethod::Idle
            }
            ("futex" | "futex_wait", Some(Target::Lock { owner: None, .. })) if !is_main => {
                TraceMethod::Idle
            }
            // Somebody has to type.
            ("read" | "readv", Some(target)) if is_terminal(target) => TraceMethod::Idle,
            (name, Some(target)) if waits_for_events(name) && is_terminal(target) => {
                TraceMethod::Idle
            }
            ("wait4" | "waitid" | "rt_sigsuspend", _)
                if self.parents.contains(&call.process) && !self.loops.contains(&call.thread) =>
            {
                TraceMethod::Child
            }
            // `$(command)`: what the child writes is waited for.
            ("read", Some(Target::Other(what)))
                if what.contains("pipe")
                    && self.parents.contains(&call.process)
                    && !self.loops.contains(&call.thread) =>
            {
                TraceMethod::Child
            }
            _ => TraceMethod::Stall,
        }
    }
}

fn is_terminal(target: &Target) -> bool {
    let path = match target {
        Target::File { path, .. } => path,
        Target::Other(name) => name.as_bytes(),
        _ => return false,
    };
    path.starts_with(b"/dev/pts/") || path.starts_with(b"/dev/tty")
}

/// Sums the slow calls of one thread, in the order of time.
pub(super) fn stalls(calls: &[(&TracedCall, TraceMethod)], frame_ns: u64) -> ThreadStalls {
    let mut sums = ThreadStalls::default();
    let mut open: Option<(u64, u64)> = None;
    for (call, how) in calls {
        match how {
            TraceMethod::Idle => {
                sums.idle += 1;
                sums.idle_ns = sums.idle_ns.saturating_add(call.wall_ns);
            }
            TraceMethod::Child => sums.child_ns = sums.child_ns.saturating_add(call.wall_ns),
            TraceMethod::Stall => sums.wall_ns = sums.wall_ns.saturating_add(call.wall_ns),
        }
        let (start, end) = (call.start_ns, call.start_ns.saturating_add(call.wall_ns));
        open = match (open, how) {
            (Some((from, to)), TraceMethod::Stall) if start <= to.saturating_add(GAP_NS) => {
                Some((from, to.max(end)))
            }
            (before, _) => {
                close(&mut sums, before, frame_ns);
                (*how == TraceMethod::Stall).then_some((start, end))
            }
        };
    }
    close(&mut sums, open, frame_ns);
    sums
}

fn close(sums: &mut ThreadStalls, stall: Option<(u64, u64)>, frame_ns: u64) {
    let Some((from, to)) = stall else { return };
    let length = to.saturating_sub(from);
    if length > sums.longest_ns {
        (sums.longest_ns, sums.longest_at_ns) = (length, from);
    }
    if length > frame_ns {
        sums.missed += 1;
        sums.frames = sums.frames.saturating_add(length / frame_ns.max(1));
    }
    sums.felt += u64::from(length > FELT_NS);
    sums.hung += u64::from(length > HUNG_NS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallEnd, StackId};
    use crate::recording::Backend;

    fn call(start_ms: u64, wall_ms: u64) -> TracedCall {
        TracedCall {
            process: 1,
            thread: 1,
            number: 0,
            arguments: [0; 6],
            outcome: CallEnd::Returned(0),
            start_ns: start_ms * 1_000_000,
            wall_ns: wall_ms * 1_000_000,
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        }
    }

    #[test]
    fn a_wait_for_a_lock_is_not_known_only_beside_rest_in_such_waits_and_a_slow_one_is_a_stall() {
        let words = vec![b"wish".to_vec()];
        let began = std::time::SystemTime::UNIX_EPOCH;
        let mut recorder = crate::recorder::TraceRecorder::new(Backend::Bpf, words, began);
        let rest = TracedCall { stack: Some(StackId(0)), ..call(0, 20) };
        let other = TracedCall { thread: 2, process: 2, ..call(40, 6) };
        recorder.call(rest.clone());
        recorder.call(other.clone());
        let recording = recorder.finish(50_000_000);
        let idle = |call: &TracedCall| call.stack.map(|_| true);
        let judge = StallClassifier::new(&recording, &|_| "futex", &idle);
        let without = TracedCall { stack: None, ..rest.clone() };
        assert!(judge.may_be_rest(&without, "futex"));
        assert!(!judge.may_be_rest(&rest, "futex"), "its callers say what it was");
        assert!(!judge.may_be_rest(&other, "futex"), "this thread was never seen to rest");
        assert!(!judge.may_be_rest(&without, "read"));
        // Nor does it end the time in which the thread is held up.
        assert_eq!(judge.how(&without, "futex", None), TraceMethod::Stall);
    }

    #[test]
    fn calls_in_a_row_are_one_stall_and_idle_time_is_none() {
        let calls = [
            (call(0, 12), TraceMethod::Stall),
            (call(12, 12), TraceMethod::Stall),
            (call(30, 5000), TraceMethod::Idle),
            (call(5030, 120), TraceMethod::Stall),
            (call(6000, 1500), TraceMethod::Stall),
            (call(8000, 10), TraceMethod::Stall),
        ];
        let calls: Vec<(&TracedCall, TraceMethod)> =
            calls.iter().map(|(call, how)| (call, *how)).collect();
        let sums = stalls(&calls, 16_667_000);
        assert_eq!((sums.missed, sums.felt, sums.hung), (3, 2, 1));
        assert_eq!(sums.frames, 1 + 7 + 89);
        assert_eq!((sums.idle, sums.idle_ns), (1, 5_000_000_000));
        assert_eq!(sums.wall_ns, 1_654_000_000);
        assert_eq!((sums.longest_ns, sums.longest_at_ns), (1_500_000_000, 6_000_000_000));
        assert_eq!(stalls(&[], 1), ThreadStalls::default());
    }
}
