//! Measures the tracer's overhead in each call at the start, on calls that take no time themselves.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
use sys::clock::Clock;
use sys::ptrace::{self, Orphans, Patience, TraceStop, Waited};
use sys::seccomp::tracing::SeccompFilter;
use sys::spawn;

use crate::recording::Bias;
use crate::syscall::call_number;

/// Where the measured thread runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProcessorPlacement {
    /// On the tracer's CPU.
    Beside,
    /// Where the kernel puts it.
    Free,
}

/// The time limit of a measurement: on a busy machine, the calls made by then have to suffice.
const LIMIT: Duration = Duration::from_millis(12);

/// Measures the apparent time of a traced call that does nothing, with up to `calls` calls of a private child.
///
/// To be called by the tracing thread: the child belongs to it, and has ended afterwards.
///
/// # Errors
///
/// As `fork(2)` and `ptrace(2)`: tracing is not permitted.
pub(crate) fn measure(
    calls: u32,
    place: ProcessorPlacement,
    clock: &dyn Clock,
) -> io::Result<Bias> {
    let number = call_number("getppid").ok_or(io::ErrorKind::Unsupported)?;
    let held = spawn::hold_idle(calls, Some(&SeccompFilter::tracing(&[number])))?;
    let process = held.process();
    if let Err(e) = ptrace::seize(process, Orphans::Die) {
        drop(held);
        // It ends by itself, since nobody releases it.
        let _ = ptrace::wait_one(process, Patience::Blocks);
        return Err(e);
    }
    let before = sched_getaffinity(None).ok().filter(|_| place == ProcessorPlacement::Beside);
    if before.is_some() {
        let mut here = rustix::thread::CpuSet::new();
        here.set(sched_getcpu());
        let child = i32::try_from(process).ok().and_then(Pid::from_raw);
        let _ = sched_setaffinity(child, &here).and_then(|()| sched_setaffinity(None, &here));
    }
    let measured = held.release().and_then(|_| time_calls(process, clock));
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    Ok(quartiles(measured?))
}

fn nanoseconds(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// Runs the child to its end and returns the apparent time of each of its calls, in nanoseconds.
fn time_calls(process: u32, clock: &dyn Clock) -> io::Result<Vec<u64>> {
    let end = clock.monotonic() + LIMIT;
    let mut times = Vec::new();
    let mut entered = None;
    loop {
        let (tid, status) = match ptrace::wait_one(process, Patience::Blocks)? {
            Waited::Thread(tid, status) => (tid, status),
            Waited::Nothing => continue,
            Waited::Nobody => return Ok(times),
        };
        let now = nanoseconds(clock);
        // Each failure means that the child was killed, which the next wait tells.
        let _ = match status {
            TraceStop::Exited(_) | TraceStop::Killed(_) => return Ok(times),
            TraceStop::Seccomp => {
                let _ = ptrace::call_stop(tid);
                entered = Some(nanoseconds(clock));
                ptrace::cont_to_call(tid, 0)
            }
            TraceStop::Call => {
                times.extend(entered.take().map(|start| now.saturating_sub(start)));
                let _ = ptrace::call_stop(tid);
                if clock.monotonic() >= end
                    && let Some(child) = i32::try_from(process).ok().and_then(Pid::from_raw)
                {
                    let _ = kill_process(child, Signal::KILL);
                }
                ptrace::cont(tid, 0)
            }
            TraceStop::Signal(signal) => ptrace::cont(tid, signal),
            TraceStop::Group(_) => ptrace::listen(tid),
            _ => ptrace::cont(tid, 0),
        };
    }
}

/// The limit of the subtracted time, as a multiple of the smallest time: more is time in which other programs had the processor.
const SMALLEST: u64 = 2;
/// The limit of the subtracted time in nanoseconds: two stops with two wake-ups take tens of microseconds, in a virtual machine too.
const MOST_NS: u64 = 50_000;

fn quartiles(mut times: Vec<u64>) -> Bias {
    times.sort_unstable();
    let at = |quarter: usize| times.get(times.len() * quarter / 4).copied().unwrap_or(0);
    // Subtracted it would be missing from calls that nobody held up.
    let most = at(0).saturating_mul(SMALLEST).min(MOST_NS);
    Bias { subtracted_ns: at(2).min(most), spread_ns: at(3).saturating_sub(at(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::clock::SystemClock;

    #[test]
    fn a_call_that_does_nothing_seems_to_take_a_while() {
        let clock = SystemClock::start();
        let before = sched_getaffinity(None).unwrap();
        for place in [ProcessorPlacement::Beside, ProcessorPlacement::Free] {
            let bias = measure(50, place, &clock).unwrap();
            assert!(bias.subtracted_ns > 300, "{bias:?}");
        }
        assert!(sched_getaffinity(None).unwrap() == before);
    }

    #[test]
    fn the_middle_is_subtracted_and_the_quartiles_are_the_spread() {
        let bias = quartiles((100..=200).collect());
        assert_eq!(bias, Bias { subtracted_ns: 150, spread_ns: 50 });
        assert_eq!(quartiles(Vec::new()), Bias::default());
    }

    #[test]
    fn what_others_took_of_the_processor_is_not_subtracted() {
        // Most of the few calls that a busy machine let us make waited for a slice of another's.
        let bias = quartiles(vec![4_100_000, 6_000, 4_000_000, 4_200_000]);
        assert_eq!(bias.subtracted_ns, 12_000);
        // Or all of them did: a sleep of 50 ms would be told as one of 46 ms.
        assert_eq!(quartiles(vec![4_100_000, 4_000_000]).subtracted_ns, MOST_NS);
    }
}
