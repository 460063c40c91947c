//! `trace watch` with the bpf backend: exact lengths, and no work between stalls.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::clock::{Clock, SystemClock};

use super::analyzer::{StallAnalyzer, outcome};
use super::busy::{EventLook, StepTracker};
use super::find::ProcessFinder;
use super::{WatchEvent, WatchOptions, WatchSummary};
use crate::backend::bpf::kernel_session::KernelSession;
use crate::backend::bpf::programs::{KernelStacks, WakeupPolicy, WatchedThreads};
use crate::backend::bpf::record::{BpfRecord, CallRecord};
use crate::backend::bpf::served::RecorderConnection;
use crate::backend::bpf::served::protocol::AuthorizationPrompt;
use crate::backend::bpf::session::{BpfSession, BpfSettings, ThreadState, WatchStart};
use crate::backend::bpf::{self, recorded};
use crate::backend::peek::blocked_syscall;
use crate::backend::{TraceError, procfs};
use crate::call::{CallEnd, TracedCall};
use crate::place::SyscallContext;
use crate::recording::Backend;
use crate::stack::KnownRegisters;
use crate::syscall::{SyscallClass, call_name, runs_program};
use crate::syscall_set::Set;

/// The size of the ring in bytes: some sixty stalls with their stacks.
const RING: u32 = 1 << 20;

/// The longest time between two reads of the ring: a stall wakes the reader, the end of a thread does not.
const REST: Duration = Duration::from_millis(100);

/// How often the reader yields for records that are being written, which takes microseconds each.
const WRITERS: u32 = 1000;

/// Loads the programs into the kernel, or has the recorder service do it.
pub(super) fn load(options: &WatchOptions) -> Result<KernelSession, TraceError> {
    let settings = BpfSettings {
        calls: &Set::all(),
        threshold_ns: u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX),
        kept: &[],
        threads: WatchedThreads::First,
        stacks: KernelStacks::Copied,
        ring_bytes: RING,
        wakes: WakeupPolicy::Each,
        owner: None,
    };
    if !bpf::is_allowed()
        && let Some(path) = &options.recorder
    {
        let prompt = match options.backend {
            Some(_) => AuthorizationPrompt::Allowed,
            None => AuthorizationPrompt::Unwanted,
        };
        let served = RecorderConnection::connect(path, prompt)
            .and_then(|connection| connection.open(&settings));
        match served {
            Ok(session) => return Ok(KernelSession::Served(Box::new(session))),
            Err(error) if !error.is_absent() => return Err(bpf::unserved(&error)),
            // What our own rights are missing says more.
            Err(_) => {}
        }
    }
    let session = BpfSession::load(&settings).map_err(|error| bpf::refused(&error))?;
    Ok(KernelSession::Own(Box::new(session)))
}

/// Watches until `stop` is set or the chosen process has ended.
pub(super) fn watch(
    session: KernelSession,
    options: &WatchOptions,
    stop: &AtomicBool,
    each: &mut dyn FnMut(WatchEvent),
) -> Result<WatchSummary, TraceError> {
    let clock = SystemClock::start();
    let analyzer = StallAnalyzer::new(Backend::Bpf, &options.sources, clock.now());
    let threshold_ns = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let began_ns = sys::bpf::clock_ns();
    let mut watch =
        Watch { session, analyzer, threshold_ns, began_ns, known: BTreeMap::new(), each };
    let mut finder = ProcessFinder::new(options.subject.clone());
    let rest = Timespec { tv_sec: 0, tv_nsec: i64::from(REST.subsec_nanos()) };
    while !stop.load(Ordering::Relaxed) {
        let change = finder.search(clock.monotonic());
        for process in change.found {
            watch.found(process)?;
        }
        if !change.gone.is_empty() {
            // The last records of these processes are in the ring by now; their IDs may be reused later.
            watch.take_all()?;
        }
        for process in change.gone {
            watch.gone(process)?;
        }
        if finder.is_over() {
            break;
        }
        watch.take()?;
        watch.look_for_stops();
        if watch.analyzer.limit_memory() {
            watch.known.values_mut().for_each(StepTracker::forget_stacks);
        }
        let mut wanted = [PollFd::from_borrowed_fd(watch.session.as_fd(), PollFlags::IN)];
        match poll(&mut wanted, Some(&rest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(TraceError::Trace(e.into())),
        }
    }
    // From here on the kernel reports nothing, so that unfinished calls are not reported twice.
    watch.session.detach().map_err(TraceError::Trace)?;
    watch.take_all()?;
    watch.report_running()?;
    let Watch { mut session, mut analyzer, .. } = watch;
    analyzer.summary.lost = session.faults().map_err(TraceError::Trace)?.lost_calls;
    Ok(analyzer.summary)
}

/// The state of a watch.
struct Watch<'a> {
    session: KernelSession,
    analyzer: StallAnalyzer,
    threshold_ns: u64,
    /// The monotonic clock in nanoseconds at the beginning.
    began_ns: u64,
    /// The watched processes.
    known: BTreeMap<u32, StepTracker>,
    each: &'a mut dyn FnMut(WatchEvent),
}

impl Watch<'_> {
    fn found(&mut self, process: u32) -> Result<(), TraceError> {
        match self.session.watch(process, WatchStart::Now) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (self.each)(WatchEvent::Refused { process });
                return Ok(());
            }
            other => other.map_err(TraceError::Trace)?,
        }
        let tracker = StepTracker::new(process, sys::bpf::clock_ns(), self.threshold_ns);
        self.known.insert(process, tracker);
        let executable = procfs::executable(process);
        (self.each)(WatchEvent::Found { process, executable, backend: Backend::Bpf });
        self.adopt(process);
        Ok(())
    }

    /// Reports the stops that have ended since the last look.
    fn look_for_stops(&mut self) {
        let now_ns = sys::bpf::clock_ns();
        for (process, tracker) in &mut self.known {
            if let Some(stop) = tracker.stops.look(*process, now_ns) {
                let at = self.analyzer.time(stop.from_ns.saturating_sub(self.began_ns));
                let summary = &mut self.analyzer.summary;
                let event = stop.event(*process, self.threshold_ns, at, summary);
                event.into_iter().for_each(&mut *self.each);
            }
        }
    }

    /// Reports the stop in which a process is.
    fn report_stop(&mut self, process: u32) {
        let stops = self.known.get(&process).map(|tracker| &tracker.stops);
        if let Some(stop) = stops.and_then(|stops| stops.open(sys::bpf::clock_ns())) {
            let at = self.analyzer.time(stop.from_ns.saturating_sub(self.began_ns));
            let event = stop.event(process, self.threshold_ns, at, &mut self.analyzer.summary);
            event.into_iter().for_each(&mut *self.each);
        }
    }

    /// Registers the call in which the main thread already is, so that its end is reported, and resolves its callers in advance.
    fn adopt(&mut self, process: u32) {
        let Some(syscall) = blocked_syscall(process, process) else { return };
        let used =
            procfs::SchedstatFile::open(process, process).and_then(|counters| counters.read());
        let queued_ns = used.map_or(0, |used| used.queued_ns);
        let times = [sys::bpf::clock_ns(), queued_ns];
        self.analyzer.places.selects(&SyscallContext {
            process,
            thread: process,
            number: syscall.number,
            arguments: syscall.arguments,
            returned: None,
        });
        // On an error the thread has ended, or has made another call since, which the kernel programs see.
        let _seen = self.session.adopt([process; 2], syscall.number, times);
        if !runs_program(syscall.number) {
            let registers = KnownRegisters::new(syscall.ip, syscall.sp);
            let StallAnalyzer { unwinder, recorder, .. } = &mut self.analyzer;
            let stack = unwinder.capture(process, &registers, recorder);
            self.analyzer.resolve_symbols(process, stack);
        }
    }

    fn gone(&mut self, process: u32) -> Result<(), TraceError> {
        self.session.unwatch(process).map_err(TraceError::Trace)?;
        self.report_stop(process);
        self.known.remove(&process);
        self.analyzer.forget(process);
        (self.each)(WatchEvent::Ended { process });
        Ok(())
    }

    /// Reports the records in the ring.
    fn take(&mut self) -> Result<(), TraceError> {
        let Watch { session, analyzer, threshold_ns, began_ns, known, each } = self;
        let mut ended = Vec::new();
        let times = [*threshold_ns, *began_ns];
        for (process, tracker) in known.iter_mut() {
            tracker.sample(*process, analyzer);
        }
        let taken = session.take(usize::MAX, |record| match record {
            BpfRecord::Call(call) if known.contains_key(&call.process) => {
                if let Some(event) = analyzer.analyze_record(&call, *began_ns) {
                    if let Some(tracker) = known.get_mut(&call.process) {
                        tracker.reported(call.wall_ns);
                    }
                    each(event);
                }
            }
            BpfRecord::Turn { thread, at_ns, wall_ns, processor_ns, ready_ns, .. } => {
                let look = EventLook { at_ns, wall_ns, processor_ns, ready_ns };
                let tracker = known.get_mut(&thread);
                if let Some(event) =
                    tracker.and_then(|tracker| tracker.looked(thread, look, times, analyzer))
                {
                    each(event);
                }
            }
            BpfRecord::Exec { process, .. } => analyzer.forget(process),
            BpfRecord::Sent { process, at_ns, descriptor, message } => {
                let (places, recorder) = (&mut analyzer.places, &mut analyzer.recorder);
                let at_ns = at_ns.saturating_sub(*began_ns);
                places.sent_message(process, descriptor, message, at_ns, recorder);
            }
            BpfRecord::Exit { thread, process, at_ns, inside, seen, .. } => {
                ended.push((thread, seen));
                if let Some(tracker) = known.get_mut(&thread)
                    && inside.is_none()
                    && let Some(event) = tracker.step(thread, at_ns, None, false, times, analyzer)
                {
                    each(event);
                }
                let unfinished = inside
                    .filter(|_| thread == process && known.contains_key(&process))
                    .filter(|(_, start_ns)| at_ns.saturating_sub(*start_ns) >= *threshold_ns);
                if let Some((number, start_ns)) = unfinished
                    && let Some(event) =
                        analyzer.analyze_unfinished(process, number, [start_ns, at_ns], *began_ns)
                {
                    each(event);
                }
            }
            _ => {}
        });
        taken.map_err(TraceError::Trace)?;
        for (thread, seen) in ended {
            // The totals are not used here, but they must not fill the kernel's memory.
            session.take_totals(thread, &seen).map_err(TraceError::Trace)?;
        }
        Ok(())
    }

    /// Does the same as `take`, and waits for records that are being written.
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

    /// Reports the unfinished calls of the main threads at the end of the watch.
    fn report_running(&mut self) -> Result<(), TraceError> {
        let now_ns = sys::bpf::clock_ns();
        let processes: Vec<u32> = self.known.keys().copied().collect();
        for process in processes {
            self.report_stop(process);
            let times = [self.threshold_ns, self.began_ns];
            let seen = blocked_syscall(process, process);
            let state = self.session.thread_state(process).map_err(TraceError::Trace)?;
            let ThreadState::Inside { number, start_ns } = state else {
                let analyzer = &mut self.analyzer;
                let step = self
                    .known
                    .get_mut(&process)
                    .and_then(|tracker| tracker.step(process, now_ns, None, true, times, analyzer));
                if let Some(event) = step {
                    (self.each)(event);
                }
                continue;
            };
            let wall_ns = now_ns.saturating_sub(start_ns);
            let Some(seen) = seen.filter(|seen| seen.number == number) else { continue };
            if wall_ns < self.threshold_ns {
                continue;
            }
            let StallAnalyzer { unwinder, recorder, places, .. } = &mut self.analyzer;
            let registers = KnownRegisters::new(seen.ip, seen.sp);
            let stack =
                (!runs_program(number)).then(|| unwinder.capture(process, &registers, recorder));
            let arguments = seen.arguments;
            let context =
                SyscallContext { process, thread: process, number, arguments, returned: None };
            let target = places.target(&context, recorder);
            let event = self.analyzer.analyze(TracedCall {
                process,
                thread: process,
                number,
                arguments,
                outcome: CallEnd::Running,
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
        Ok(())
    }
}

impl StallAnalyzer {
    /// Returns the stall of a call that ended.
    fn analyze_record(&mut self, call: &CallRecord<'_>, began_ns: u64) -> Option<WatchEvent> {
        let stack = call.registers.map(|[ip, sp, bp, kept @ ..]| {
            let registers = KnownRegisters::new(ip, sp).bp(bp).kept(kept);
            self.unwinder.offline(call.process, &registers, call.stack, &mut self.recorder)
        });
        let target = recorded(call, &mut self.places, &mut self.recorder);
        self.analyze(TracedCall {
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

    /// Returns the stall of a call in which the main thread ended, which is recorded without its callers.
    fn analyze_unfinished(
        &mut self,
        process: u32,
        number: u32,
        [start_ns, end_ns]: [u64; 2],
        began_ns: u64,
    ) -> Option<WatchEvent> {
        let name = call_name(number)?;
        // Without callers, an idle event loop cannot be distinguished from a stall.
        if matches!(name, "exit" | "exit_group") || SyscallClass::of(name) == SyscallClass::Wait {
            return None;
        }
        self.analyze(TracedCall {
            process,
            thread: process,
            number,
            arguments: [0; 6],
            outcome: CallEnd::Unknown,
            start_ns: start_ns.saturating_sub(began_ns),
            wall_ns: end_ns.saturating_sub(start_ns),
            cpu_ns: None,
            queued_ns: None,
            stack: None,
            target: None,
        })
    }
}
