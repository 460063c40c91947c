//! How much of a measured call is the tracer's own: measured at the start, on calls that take no time themselves.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
use session::clock::Clock;
use sys::ptrace::{self, Orphans, Patience, Status, Waited};
use sys::seccomp::tracing::Filter;
use sys::spawn;

use crate::trace::kernel::call_number;
use crate::trace::recording::Bias;

/// Where the measured thread runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// On the tracer's CPU.
    Beside,
    /// Where the kernel puts it.
    Free,
}

/// Longer than this a measurement does not go on: on a busy machine the calls that were made by then have to do.
const LIMIT: Duration = Duration::from_millis(12);

/// Measures on up to `calls` calls of a private child what a traced call that does nothing seems to take.
///
/// For the thread that will trace: the child is its own, and has ended afterwards.
///
/// # Errors
///
/// As `fork(2)` and `ptrace(2)`: tracing is not allowed here.
pub fn measure(calls: u32, place: Place, clock: &dyn Clock) -> io::Result<Bias> {
    let number = call_number("getppid").ok_or(io::ErrorKind::Unsupported)?;
    let held = spawn::hold_idle(calls, Some(&Filter::tracing(&[number])))?;
    let process = held.process();
    if let Err(e) = ptrace::seize(process, Orphans::Die) {
        drop(held);
        // It ends by itself, since nobody releases it.
        let _ = ptrace::wait_one(process, Patience::Blocks);
        return Err(e);
    }
    let before = sched_getaffinity(None).ok().filter(|_| place == Place::Beside);
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

/// Runs the child to its end and returns how long each of its calls seemed to take, in nanoseconds.
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
            Status::Exited(_) | Status::Killed(_) => return Ok(times),
            Status::Seccomp => {
                let _ = ptrace::call_stop(tid);
                entered = Some(nanoseconds(clock));
                ptrace::cont_to_call(tid, 0)
            }
            Status::Call => {
                times.extend(entered.take().map(|start| now.saturating_sub(start)));
                let _ = ptrace::call_stop(tid);
                if clock.monotonic() >= end
                    && let Some(child) = i32::try_from(process).ok().and_then(Pid::from_raw)
                {
                    let _ = kill_process(child, Signal::KILL);
                }
                ptrace::cont(tid, 0)
            }
            Status::Signal(signal) => ptrace::cont(tid, signal),
            Status::Group(_) => ptrace::listen(tid),
            _ => ptrace::cont(tid, 0),
        };
    }
}

/// The most that is subtracted, in smallest times: what is beyond is time of others that had the processor.
const SMALLEST: u64 = 2;

fn quartiles(mut times: Vec<u64>) -> Bias {
    times.sort_unstable();
    let at = |quarter: usize| times.get(times.len() * quarter / 4).copied().unwrap_or(0);
    // Subtracted it would be missing from calls that nobody held up.
    let most = at(0).saturating_mul(SMALLEST);
    Bias { subtracted_ns: at(2).min(most), spread_ns: at(3).saturating_sub(at(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::clock::SystemClock;

    #[test]
    fn a_call_that_does_nothing_seems_to_take_a_while() {
        let clock = SystemClock::start();
        let before = sched_getaffinity(None).unwrap();
        for place in [Place::Beside, Place::Free] {
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
    }
}
