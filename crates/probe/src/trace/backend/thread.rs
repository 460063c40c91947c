//! One traced thread: which call it is in, and which calls of it a signal broke off.

use super::procfs::{Counters, Used};
use crate::trace::call::{Outcome, StackId};
use crate::trace::kernel::call_number;

/// Calls that a signal broke off and that may go on; handlers nest, but not deeper.
const INTERRUPTED: usize = 16;

/// What the kernel puts in the place of a result when a call is to be made again: `ERESTARTSYS`, `ERESTARTNOINTR`,
/// `ERESTARTNOHAND` and `ERESTART_RESTARTBLOCK`. Programs never see them.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

const EINTR: i32 = 4;

/// The numbers of calls that mean something to a tracer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    /// Goes on with a call that a signal broke off.
    pub(super) restart: Option<u32>,
    /// Ends a signal handler.
    pub(super) handled: Option<u32>,
    /// Asks on which CPUs a thread may run.
    pub(super) ask_cpus: Option<u32>,
    /// Says on which CPUs a thread may run.
    pub(super) set_cpus: Option<u32>,
}

impl Special {
    pub(super) fn of_this_kernel() -> Special {
        Special {
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
pub(super) struct Entered {
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// When the thread was let go into it.
    pub(super) start_ns: u64,
    /// What the thread had used by then.
    pub(super) used: Option<Used>,
    /// Its callers, of a call that runs another program: afterwards they are gone.
    pub(super) stack: Option<StackId>,
}

/// A call that ended, or was broken off for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    pub(super) call: Entered,
    pub(super) outcome: Outcome,
    pub(super) end_ns: u64,
}

/// A traced thread.
#[derive(Debug)]
pub(super) struct Traced {
    /// Its process.
    pub(super) process: u32,
    /// The call that it is in.
    pub(super) call: Option<Entered>,
    interrupted: Vec<(Entered, u64)>,
    /// Its counters, once they were needed.
    pub(super) counters: Option<Counters>,
}

impl Traced {
    pub(super) fn new(process: u32) -> Traced {
        Traced { process, call: None, interrupted: Vec::new(), counters: None }
    }

    /// Says whether a signal broke a call off that is not known to have ended.
    pub(super) fn has_interrupted(&self) -> bool {
        !self.interrupted.is_empty()
    }

    /// Notes that `call` was entered. If it goes on with one that a signal broke off, that one has not ended.
    pub(super) fn entered(&mut self, call: Entered, special: &Special) {
        let goes_on = self.interrupted.last().is_some_and(|(earlier, _)| {
            let is_same = (earlier.number, earlier.arguments) == (call.number, call.arguments)
                && (earlier.ip, earlier.sp) == (call.ip, call.sp);
            is_same || Some(call.number) == special.restart
        });
        let earlier = if goes_on { self.interrupted.pop() } else { None };
        self.call = Some(earlier.map_or(call, |(earlier, _)| earlier));
    }

    /// Notes that the call it is in ended at `end_ns` with `value`, and returns what has ended by that.
    pub(super) fn left(
        &mut self,
        value: i64,
        failed: bool,
        end_ns: u64,
        special: &Special,
    ) -> [Option<Left>; 2] {
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
            let outcome = Outcome::Unknown;
            return [broken, Some(Left { call, outcome, end_ns })];
        }
        let outcome = match i32::try_from(value.unsigned_abs()) {
            Ok(errno) if failed => Outcome::Failed(errno),
            _ => Outcome::Returned(value),
        };
        [Some(Left { call, outcome, end_ns }), None]
    }

    /// Returns the calls that were broken off and will not go on, when the thread has ended or runs another program.
    pub(super) fn ended(&mut self) -> Vec<Left> {
        self.interrupted.drain(..).map(broken_off).collect()
    }
}

fn broken_off((call, end_ns): (Entered, u64)) -> Left {
    Left { call, outcome: Outcome::Failed(EINTR), end_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 0;
    const POLL: u32 = 7;

    fn call(number: u32, sp: u64, start_ns: u64) -> Entered {
        Entered { number, arguments: [1; 6], ip: 100, sp, start_ns, used: None, stack: None }
    }

    fn ended(left: [Option<Left>; 2]) -> Vec<(u32, Outcome, u64, u64)> {
        let brief = |l: Left| (l.call.number, l.outcome, l.call.start_ns, l.end_ns);
        left.into_iter().flatten().map(brief).collect()
    }

    #[test]
    fn a_call_that_is_made_again_after_a_signal_is_one_call() {
        let special = Special::of_this_kernel();
        let mut thread = Traced::new(1);
        thread.entered(call(READ, 50, 10), &special);
        assert_eq!(ended(thread.left(-512, true, 20, &special)), []);
        thread.entered(call(READ, 50, 30), &special);
        let all = ended(thread.left(5, false, 40, &special));
        assert_eq!(all, [(READ, Outcome::Returned(5), 10, 40)]);
    }

    #[test]
    fn a_sleep_that_goes_on_by_restart_is_one_call() {
        let special = Special::of_this_kernel();
        let mut thread = Traced::new(1);
        thread.entered(call(POLL, 50, 10), &special);
        assert_eq!(ended(thread.left(-516, true, 20, &special)), []);
        thread.entered(call(special.restart.unwrap(), 50, 30), &special);
        assert_eq!(
            ended(thread.left(0, false, 40, &special)),
            [(POLL, Outcome::Returned(0), 10, 40)]
        );
    }

    #[test]
    fn a_handler_ends_the_call_with_eintr_or_lets_it_go_on() {
        let special = Special::of_this_kernel();
        let handled = special.handled.unwrap();
        for (register, again) in [(-4, false), (i64::from(READ), true)] {
            let mut thread = Traced::new(1);
            thread.entered(call(READ, 50, 10), &special);
            assert_eq!(ended(thread.left(-512, true, 20, &special)), []);
            // The handler reads too, from elsewhere on the stack.
            thread.entered(call(READ, 40, 22), &special);
            let inner = ended(thread.left(1, false, 23, &special));
            assert_eq!(inner, [(READ, Outcome::Returned(1), 22, 23)]);
            thread.entered(call(handled, 40, 25), &special);
            let mut all = ended(thread.left(register, register < 0, 26, &special));
            assert_eq!(all.pop(), Some((handled, Outcome::Unknown, 25, 26)));
            if again {
                assert_eq!(all, []);
                thread.entered(call(READ, 50, 30), &special);
                all = ended(thread.left(0, false, 31, &special));
                assert_eq!(all, [(READ, Outcome::Returned(0), 10, 31)]);
            } else {
                assert_eq!(all, [(READ, Outcome::Failed(EINTR), 10, 20)]);
                thread.entered(call(READ, 50, 30), &special);
                all = ended(thread.left(0, false, 31, &special));
                assert_eq!(all, [(READ, Outcome::Returned(0), 30, 31)]);
            }
        }
    }

    #[test]
    fn a_thread_that_ends_leaves_what_was_broken_off() {
        let special = Special::of_this_kernel();
        let mut thread = Traced::new(1);
        for number in 0..20 {
            thread.entered(call(1000 + number, 50, 10), &special);
            let all = ended(thread.left(-514, true, 20, &special));
            assert_eq!(all.len(), usize::from(number >= 16));
        }
        assert_eq!(thread.ended().len(), INTERRUPTED);
        assert!(!thread.has_interrupted());
    }
}
