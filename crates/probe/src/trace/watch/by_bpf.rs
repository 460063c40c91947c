//! The watch by programs in the kernel: exact lengths, and nothing to do between stays.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::clock::{Clock, SystemClock};

use super::find::Finder;
use super::teller::{Teller, outcome};
use super::{Event, Options, Summary};
use crate::trace::backend::bpf::programs::{Stacks, Threads};
use crate::trace::backend::bpf::record::{CallRecord, Record};
use crate::trace::backend::bpf::session::{From, Session, Settings};
use crate::trace::backend::bpf::{self, recorded};
use crate::trace::backend::{TraceError, procfs};
use crate::trace::call::Call;
use crate::trace::calls::Set;
use crate::trace::recording::Backend;
use crate::trace::stack::Registers;

/// Bytes of the ring: some sixty stays with their stacks.
const RING: u32 = 1 << 20;

/// The longest rest: stays are told when a program in the kernel wakes us, and processes are looked for each second.
const REST: Duration = Duration::from_millis(500);

/// Puts the programs into the kernel.
pub(super) fn load(options: &Options) -> Result<Session, TraceError> {
    let settings = Settings {
        calls: &Set::all(),
        threshold_ns: u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX),
        threads: Threads::First,
        stacks: Stacks::Copied,
        ring_bytes: RING,
    };
    Session::load(&settings).map_err(|error| bpf::refused(&error))
}

/// Watches until `stop` is set or what was given by its number has ended.
pub(super) fn watch(
    mut session: Session,
    options: &Options,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Event),
) -> Result<Summary, TraceError> {
    let clock = SystemClock::start();
    let mut teller = Teller::new(Backend::Bpf, &options.sources, clock.now());
    let began_ns = sys::bpf::clock_ns();
    let mut finder = Finder::new(options.subject.clone());
    let mut ended = Vec::new();
    let rest = Timespec { tv_sec: 0, tv_nsec: i64::from(REST.subsec_nanos()) };
    while !stop.load(Ordering::Relaxed) {
        let change = finder.search(clock.monotonic());
        for process in change.found {
            session.watch(process, From::Now).map_err(TraceError::Trace)?;
            let executable = procfs::executable(process);
            each(Event::Found { process, executable, backend: Backend::Bpf });
        }
        for process in change.gone {
            session.unwatch(process).map_err(TraceError::Trace)?;
            teller.forget(process);
            each(Event::Ended { process });
        }
        if finder.is_over() {
            break;
        }
        session.take(usize::MAX, |record| match record {
            Record::Call(call) if finder.knows(call.process) => {
                if let Some(event) = teller.tell_record(&call, began_ns) {
                    each(event);
                }
            }
            Record::Exec { process, .. } => teller.forget(process),
            Record::Exit { thread, seen, .. } => ended.push((thread, seen)),
            _ => {}
        });
        for (thread, seen) in ended.drain(..) {
            // Nobody asks for totals here, but they must not fill the kernel's memory.
            session.take_totals(thread, &seen).map_err(TraceError::Trace)?;
        }
        teller.tidy();
        let mut wanted = [PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN)];
        match poll(&mut wanted, Some(&rest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(TraceError::Trace(e.into())),
        }
    }
    teller.summary.lost = session.faults().map_err(TraceError::Trace)?.lost_calls;
    Ok(teller.summary)
}

impl Teller {
    /// Returns what is to be told of a call that ended.
    fn tell_record(&mut self, call: &CallRecord<'_>, began_ns: u64) -> Option<Event> {
        let stack = call.registers.map(|[ip, sp, bp, kept @ ..]| {
            let registers = Registers::new(ip, sp).bp(bp).kept(kept);
            self.unwinder.offline(call.process, &registers, call.stack, &mut self.recorder)
        });
        let target = recorded(call, &mut self.places, &mut self.recorder);
        self.tell(Call {
            process: call.process,
            thread: call.thread,
            number: call.number,
            arguments: call.arguments,
            outcome: outcome(call.result),
            start_ns: call.start_ns.saturating_sub(began_ns),
            wall_ns: call.wall_ns,
            cpu_ns: Some(call.cpu_ns),
            queued_ns: Some(call.queued_ns),
            stack,
            target,
        })
    }
}
