//! The state of one traced thread: its present call, and the calls that signals interrupted.

use super::procfs::{CpuUsage, SchedstatFile};
use crate::call::{CallEnd, StackId};
use crate::syscall::call_number;

/// The most interrupted calls that may continue; signal handlers rarely nest deeper.
const INTERRUPTED: usize = 16;

/// The values that replace a result when the kernel restarts a call: `ERESTARTSYS`, `ERESTARTNOINTR`,
/// `ERESTARTNOHAND` and `ERESTART_RESTARTBLOCK`. Programs never see them.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

const EINTR: i32 = 4;

/// The numbers of the calls that the tracer needs itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpecialSyscalls {
    /// Continues a call that a signal interrupted.
    pub(super) restart: Option<u32>,
    /// Ends a signal handler.
    pub(super) handled: Option<u32>,
    /// Queries on which CPUs a thread may run.
    pub(super) ask_cpus: Option<u32>,
    /// Sets on which CPUs a thread may run.
    pub(super) set_cpus: Option<u32>,
}

impl SpecialSyscalls {
    pub(super) fn of_this_kernel() -> SpecialSyscalls {
        SpecialSyscalls {
            restart: call_number("restart_syscall"),
            handled: call_number("rt_sigreturn"),
            ask_cpus: call_number("sched_getaffinity"),
            set_cpus: call_number("sched_setaffinity"),
        }
    }

    /// Returns all of them, which a filter must let us see.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        [self.restart, self.handled, self.ask_cpus, self.set_cpus].into_iter().flatten()
    }
}

/// A call that was entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EnteredCall {
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// The time when the thread was resumed into it.
    pub(super) start_ns: u64,
    /// The thread's counters at that time.
    pub(super) used: Option<CpuUsage>,
    /// Its callers, for `execve`, after which they are gone.
    pub(super) stack: Option<StackId>,
}

/// A call that ended, or was interrupted for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CompletedCall {
    pub(super) call: EnteredCall,
    pub(super) outcome: CallEnd,
    pub(super) end_ns: u64,
}

/// A traced thread.
#[derive(Debug)]
pub(super) struct TracedThread {
    /// Its process.
    pub(super) process: u32,
    /// The call that it is in.
    pub(super) call: Option<EnteredCall>,
    interrupted: Vec<(EnteredCall, u64)>,
    /// Its counters, once they were needed.
    pub(super) counters: Option<SchedstatFile>,
    /// When a signal stopped it, until it goes on.
    pub(super) stopped_ns: Option<u64>,
    /// Whether it was in a call when the tracer came, and has not stopped since.
    is_adopted: bool,
}

impl TracedThread {
    pub(super) fn new(process: u32) -> TracedThread {
        TracedThread {
            process,
            call: None,
            interrupted: Vec::new(),
            counters: None,
            stopped_ns: None,
            is_adopted: false,
        }
    }

    /// Records a call that the thread is in already. The tracer is about to interrupt it: it is restarted, or has ended.
    pub(super) fn adopt(&mut self, call: EnteredCall) {
        self.interrupted.push((call, call.start_ns));
        self.is_adopted = true;
    }

    /// Returns whether the thread stops for the first time since its call was adopted.
    pub(super) fn is_first_stop(&mut self) -> bool {
        std::mem::take(&mut self.is_adopted)
    }

    /// Returns the adopted call if it ended before the thread stopped, which left the call `number` last, with `value`.
    ///
    /// A call that will be restarted goes on. One after which another was made has ended at an unknown time, and is forgotten.
    pub(super) fn adopted_ended(
        &mut self,
        left: Option<(i64, i64)>,
        end_ns: u64,
    ) -> Option<CompletedCall> {
        let (call, start_ns) = self.interrupted.pop()?;
        let (_, value) = left.filter(|(number, _)| i64::from(call.number) == *number)?;
        if RESTARTS.contains(&value) {
            self.interrupted.push((call, start_ns));
            return None;
        }
        let outcome = match i32::try_from(value) {
            Ok(error @ -4095..=-1) => CallEnd::Failed(-error),
            _ => CallEnd::Returned(value),
        };
        Some(CompletedCall { call, outcome, end_ns })
    }

    /// Returns whether an interrupted call may still continue.
    pub(super) fn has_interrupted(&self) -> bool {
        !self.interrupted.is_empty()
    }

    /// Records the entry of `call`. If it continues an interrupted call, that one has not ended.
    pub(super) fn entered(&mut self, call: EnteredCall, special: &SpecialSyscalls) {
        let goes_on = self.interrupted.last().is_some_and(|(earlier, _)| {
            let is_same = (earlier.number, earlier.arguments) == (call.number, call.arguments)
                && (earlier.ip, earlier.sp) == (call.ip, call.sp);
            is_same || Some(call.number) == special.restart
        });
        let earlier = if goes_on { self.interrupted.pop() } else { None };
        self.call = Some(earlier.map_or(call, |(earlier, _)| earlier));
    }

    /// Records that the present call ended at `end_ns` with `value`, and returns the call that is complete.
    pub(super) fn left(
        &mut self,
        value: i64,
        failed: bool,
        end_ns: u64,
        special: &SpecialSyscalls,
    ) -> [Option<CompletedCall>; 2] {
        let Some(call) = self.call.take() else { return [None, None] };
        if failed && RESTARTS.contains(&value) {
            let oldest = self.interrupted.len() >= INTERRUPTED;
            let oldest = oldest.then(|| broken_off(self.interrupted.remove(0)));
            self.interrupted.push((call, end_ns));
            return [oldest, None];
        }
        if Some(call.number) == special.handled {
            // The "result" is the register as it was before the handler: the interrupted call's.
            let ended = failed && value == -i64::from(EINTR);
            let broken = if ended { self.interrupted.pop().map(broken_off) } else { None };
            let outcome = CallEnd::Unknown;
            return [broken, Some(CompletedCall { call, outcome, end_ns })];
        }
        let outcome = match i32::try_from(value.unsigned_abs()) {
            Ok(errno) if failed => CallEnd::Failed(errno),
            _ => CallEnd::Returned(value),
        };
        [Some(CompletedCall { call, outcome, end_ns }), None]
    }

    /// Returns the interrupted calls that will not continue, when the thread has ended or executes another program.
    pub(super) fn ended(&mut self) -> Vec<CompletedCall> {
        self.interrupted.drain(..).map(broken_off).collect()
    }
}

fn broken_off((call, end_ns): (EnteredCall, u64)) -> CompletedCall {
    CompletedCall { call, outcome: CallEnd::Failed(EINTR), end_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 0;
    const POLL: u32 = 7;

    fn call(number: u32, sp: u64, start_ns: u64) -> EnteredCall {
        EnteredCall { number, arguments: [1; 6], ip: 100, sp, start_ns, used: None, stack: None }
    }

    fn ended(left: [Option<CompletedCall>; 2]) -> Vec<(u32, CallEnd, u64, u64)> {
        let brief = |l: CompletedCall| (l.call.number, l.outcome, l.call.start_ns, l.end_ns);
        left.into_iter().flatten().map(brief).collect()
    }

    #[test]
    fn a_call_that_is_made_again_after_a_signal_is_one_call() {
        let special = SpecialSyscalls::of_this_kernel();
        let mut thread = TracedThread::new(1);
        thread.entered(call(READ, 50, 10), &special);
        assert_eq!(ended(thread.left(-512, true, 20, &special)), []);
        thread.entered(call(READ, 50, 30), &special);
        let all = ended(thread.left(5, false, 40, &special));
        assert_eq!(all, [(READ, CallEnd::Returned(5), 10, 40)]);
    }

    #[test]
    fn a_sleep_that_goes_on_by_restart_is_one_call() {
        let special = SpecialSyscalls::of_this_kernel();
        let mut thread = TracedThread::new(1);
        thread.entered(call(POLL, 50, 10), &special);
        assert_eq!(ended(thread.left(-516, true, 20, &special)), []);
        thread.entered(call(special.restart.unwrap(), 50, 30), &special);
        assert_eq!(
            ended(thread.left(0, false, 40, &special)),
            [(POLL, CallEnd::Returned(0), 10, 40)]
        );
    }

    #[test]
    fn a_handler_ends_the_call_with_eintr_or_lets_it_go_on() {
        let special = SpecialSyscalls::of_this_kernel();
        let handled = special.handled.unwrap();
        for (register, again) in [(-4, false), (i64::from(READ), true)] {
            let mut thread = TracedThread::new(1);
            thread.entered(call(READ, 50, 10), &special);
            assert_eq!(ended(thread.left(-512, true, 20, &special)), []);
            // The handler reads too, from elsewhere on the stack.
            thread.entered(call(READ, 40, 22), &special);
            let inner = ended(thread.left(1, false, 23, &special));
            assert_eq!(inner, [(READ, CallEnd::Returned(1), 22, 23)]);
            thread.entered(call(handled, 40, 25), &special);
            let mut all = ended(thread.left(register, register < 0, 26, &special));
            assert_eq!(all.pop(), Some((handled, CallEnd::Unknown, 25, 26)));
            if again {
                assert_eq!(all, []);
                thread.entered(call(READ, 50, 30), &special);
                all = ended(thread.left(0, false, 31, &special));
                assert_eq!(all, [(READ, CallEnd::Returned(0), 10, 31)]);
            } else {
                assert_eq!(all, [(READ, CallEnd::Failed(EINTR), 10, 20)]);
                thread.entered(call(READ, 50, 30), &special);
                all = ended(thread.left(0, false, 31, &special));
                assert_eq!(all, [(READ, CallEnd::Returned(0), 30, 31)]);
            }
        }
    }

    #[test]
    fn a_call_that_the_tracer_found_has_ended_at_the_first_stop_or_goes_on() {
        let special = SpecialSyscalls::of_this_kernel();
        let mut thread = TracedThread::new(1);
        thread.adopt(call(READ, 50, 10));
        assert!(thread.is_first_stop() && !thread.is_first_stop());
        assert_eq!(thread.adopted_ended(Some((i64::from(READ), -512)), 20), None);
        thread.entered(call(READ, 50, 21), &special);
        let all = ended(thread.left(7, false, 90, &special));
        assert_eq!(all, [(READ, CallEnd::Returned(7), 10, 90)]);
        for (value, outcome) in [(3, CallEnd::Returned(3)), (-5, CallEnd::Failed(5))] {
            thread.adopt(call(READ, 50, 10));
            assert!(thread.is_first_stop());
            let left = thread.adopted_ended(Some((i64::from(READ), value)), 20).unwrap();
            assert_eq!((left.outcome, left.end_ns), (outcome, 20));
            assert!(!thread.has_interrupted());
        }
        for other in [None, Some((i64::from(POLL), -512))] {
            thread.adopt(call(READ, 50, 10));
            assert_eq!(thread.adopted_ended(other, 20), None);
            assert!(!thread.has_interrupted(), "it ended before");
        }
    }

    #[test]
    fn a_thread_that_ends_leaves_what_was_broken_off() {
        let special = SpecialSyscalls::of_this_kernel();
        let mut thread = TracedThread::new(1);
        for number in 0..20 {
            thread.entered(call(1000 + number, 50, 10), &special);
            let all = ended(thread.left(-514, true, 20, &special));
            assert_eq!(all.len(), usize::from(number >= 16));
        }
        assert_eq!(thread.ended().len(), INTERRUPTED);
        assert!(!thread.has_interrupted());
    }
}
