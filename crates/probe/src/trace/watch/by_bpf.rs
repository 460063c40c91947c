//! The watch by programs in the kernel: exact lengths, and nothing to do between stays.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::clock::{Clock, SystemClock};

use super::find::Finder;
use super::teller::{Teller, outcome};
use super::{Event, Options, Summary};
use crate::trace::backend::bpf::programs::{Stacks, Threads, Wakes};
use crate::trace::backend::bpf::record::{CallRecord, Record};
use crate::trace::backend::bpf::session::{From, Session, Settings, Standing, descriptor};
use crate::trace::backend::bpf::{self, recorded};
use crate::trace::backend::peek::look;
use crate::trace::backend::{TraceError, procfs};
use crate::trace::call::{Call, Outcome};
use crate::trace::calls::Set;
use crate::trace::kernel::{Class, call_name, runs_program};
use crate::trace::place::Made;
use crate::trace::recording::Backend;
use crate::trace::stack::Registers;

/// Bytes of the ring: some sixty stays with their stacks.
const RING: u32 = 1 << 20;

/// The longest rest: each stay that a program in the kernel tells of wakes us, and ends of threads do not.
const REST: Duration = Duration::from_millis(100);

/// How often records that are being written are waited for: each takes microseconds.
const WRITERS: u32 = 1000;

/// Puts the programs into the kernel.
pub(super) fn load(options: &Options) -> Result<Session, TraceError> {
    let settings = Settings {
        calls: &Set::all(),
        threshold_ns: u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX),
        threads: Threads::First,
        stacks: Stacks::Copied,
        ring_bytes: RING,
        wakes: Wakes::Each,
    };
    Session::load(&settings).map_err(|error| bpf::refused(&error))
}

/// Watches until `stop` is set or what was given by its number has ended.
pub(super) fn watch(
    session: Session,
    options: &Options,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Event),
) -> Result<Summary, TraceError> {
    let clock = SystemClock::start();
    let teller = Teller::new(Backend::Bpf, &options.sources, clock.now());
    let threshold_ns = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let began_ns = sys::bpf::clock_ns();
    let mut watch = Watch { session, teller, threshold_ns, began_ns, known: BTreeSet::new(), each };
    let mut finder = Finder::new(options.subject.clone());
    let rest = Timespec { tv_sec: 0, tv_nsec: i64::from(REST.subsec_nanos()) };
    while !stop.load(Ordering::Relaxed) {
        let change = finder.search(clock.monotonic());
        for process in change.found {
            watch.found(process)?;
        }
        if !change.gone.is_empty() {
            // What they did last is in the ring by now, and is theirs.
            watch.take_all()?;
        }
        for process in change.gone {
            watch.gone(process)?;
        }
        if finder.is_over() {
            break;
        }
        watch.take()?;
        watch.teller.tidy();
        let mut wanted = [PollFd::from_borrowed_fd(watch.session.as_fd(), PollFlags::IN)];
        match poll(&mut wanted, Some(&rest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(TraceError::Trace(e.into())),
        }
    }
    // What ends from here on is told as going on, and not once more by the kernel.
    watch.session.detach();
    watch.take_all()?;
    watch.tell_running();
    let Watch { session, mut teller, .. } = watch;
    teller.summary.lost = session.faults().map_err(TraceError::Trace)?.lost_calls;
    Ok(teller.summary)
}

/// A watch at work.
struct Watch<'a> {
    session: Session,
    teller: Teller,
    threshold_ns: u64,
    /// The monotonic clock, in nanoseconds, when it began.
    began_ns: u64,
    /// The processes whose stays are told.
    known: BTreeSet<u32>,
    each: &'a mut dyn FnMut(Event),
}

impl Watch<'_> {
    fn found(&mut self, process: u32) -> Result<(), TraceError> {
        self.session.watch(process, From::Now).map_err(TraceError::Trace)?;
        self.known.insert(process);
        let executable = procfs::executable(process);
        (self.each)(Event::Found { process, executable, backend: Backend::Bpf });
        self.adopt(process);
        Ok(())
    }

    /// Sees to it that the end of a call is told that the first thread is in already, and gets ready to name its callers.
    fn adopt(&mut self, process: u32) {
        let Some(glance) = look(process, process) else { return };
        if procfs::is_foreign(process) {
            // The numbers of 32-bit code mean other calls.
            return;
        }
        let used = procfs::Counters::open(process, process).and_then(|counters| counters.read());
        let queued_ns = used.map_or(0, |used| used.queued_ns);
        if let Some(thread) = descriptor(process) {
            let times = [sys::bpf::clock_ns(), queued_ns];
            // An error means that it has made another call since, which is seen, or has ended.
            let _seen = self.session.adopt(thread.as_fd(), [process; 2], glance.number, times);
        }
        if !runs_program(glance.number) {
            let registers = Registers::new(glance.ip, glance.sp);
            let Teller { unwinder, recorder, .. } = &mut self.teller;
            let stack = unwinder.capture(process, &registers, recorder);
            self.teller.prepare(process, stack);
        }
    }

    fn gone(&mut self, process: u32) -> Result<(), TraceError> {
        self.session.unwatch(process).map_err(TraceError::Trace)?;
        self.known.remove(&process);
        self.teller.forget(process);
        (self.each)(Event::Ended { process });
        Ok(())
    }

    /// Tells what is in the ring.
    fn take(&mut self) -> Result<(), TraceError> {
        let Watch { session, teller, threshold_ns, began_ns, known, each } = self;
        let mut ended = Vec::new();
        session.take(usize::MAX, |record| match record {
            Record::Call(call) if known.contains(&call.process) => {
                if let Some(event) = teller.tell_record(&call, *began_ns) {
                    each(event);
                }
            }
            Record::Exec { process, .. } => teller.forget(process),
            Record::Exit { thread, process, at_ns, inside, seen, .. } => {
                ended.push((thread, seen));
                let stay = inside
                    .filter(|_| thread == process && known.contains(&process))
                    .filter(|(_, start_ns)| at_ns.saturating_sub(*start_ns) >= *threshold_ns);
                if let Some((number, start_ns)) = stay
                    && let Some(event) =
                        teller.tell_ended(process, number, [start_ns, at_ns], *began_ns)
                {
                    each(event);
                }
            }
            _ => {}
        });
        for (thread, seen) in ended {
            // Nobody asks for totals here, but they must not fill the kernel's memory.
            session.take_totals(thread, &seen).map_err(TraceError::Trace)?;
        }
        Ok(())
    }

    /// As `take`, and waits for records that are being written.
    fn take_all(&mut self) -> Result<(), TraceError> {
        self.take()?;
        for _ in 0..WRITERS {
            if self.session.is_drained() {
                break;
            }
            std::thread::yield_now();
            self.take()?;
        }
        Ok(())
    }

    /// Tells of what first threads stay in when the watch ends.
    fn tell_running(&mut self) {
        let now_ns = sys::bpf::clock_ns();
        for process in self.known.clone() {
            let seen = look(process, process);
            let Some(thread) = descriptor(process) else { continue };
            let Standing::Inside { number, start_ns } = self.session.standing(thread.as_fd())
            else {
                continue;
            };
            let wall_ns = now_ns.saturating_sub(start_ns);
            let Some(seen) = seen.filter(|seen| seen.number == number) else { continue };
            if wall_ns < self.threshold_ns {
                continue;
            }
            let Teller { unwinder, recorder, places, .. } = &mut self.teller;
            let registers = Registers::new(seen.ip, seen.sp);
            let stack =
                (!runs_program(number)).then(|| unwinder.capture(process, &registers, recorder));
            let arguments = seen.arguments;
            let made = Made { process, thread: process, number, arguments, returned: None };
            let target = places.target(&made, recorder);
            let event = self.teller.tell(Call {
                process,
                thread: process,
                number,
                arguments,
                outcome: Outcome::Running,
                start_ns: start_ns.saturating_sub(self.began_ns),
                wall_ns,
                cpu_ns: None,
                queued_ns: None,
                stack,
                target,
            });
            if let Some(event) = event {
                (self.each)(event);
            }
        }
    }
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
    /// Returns what is to be told of a call that the first thread of a process ended in, which comes without its callers.
    fn tell_ended(
        &mut self,
        process: u32,
        number: u32,
        [start_ns, end_ns]: [u64; 2],
        began_ns: u64,
    ) -> Option<Event> {
        let name = call_name(number)?;
        // Without callers a wait cannot be told from an event loop that had nothing to do.
        if matches!(name, "exit" | "exit_group") || Class::of(name) == Class::Wait {
            return None;
        }
        self.tell(Call {
            process,
            thread: process,
            number,
            arguments: [0; 6],
            outcome: Outcome::Unknown,
            start_ns: start_ns.saturating_sub(began_ns),
            wall_ns: end_ns.saturating_sub(start_ns),
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        })
    }
}
