//! `trace watch` with the peek backend, which any user may use on their own programs: unwinds, resolves symbols and reports.
//!
//! A thread of its own samples (`stall_sampler.rs`). Resolving the symbols of a stack for the first time reads large files;
//! sampling must not wait for this, or stalls meanwhile would be missed.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use sys::clock::{Clock, SystemClock};

use super::analyzer::StallAnalyzer;
use super::stall_sampler::{self, FinishedPeriod, StackSnapshot, StallEvent};
use super::{WatchEvent, WatchOptions, WatchSummary, WatchTarget};
use crate::backend::TraceError;
use crate::call::{StackId, TracedCall};
use crate::recording::Backend;

/// Watches until `stop` is set or the chosen process has ended.
pub(super) fn watch(
    options: &WatchOptions,
    stop: &AtomicBool,
    each: &mut dyn FnMut(WatchEvent),
) -> Result<WatchSummary, TraceError> {
    if let WatchTarget::Process(process) = options.subject {
        let cannot = |source| TraceError::Attach { process, source };
        // Reading this file needs the same permission as all other files that the sampler reads.
        std::fs::read(format!("/proc/{process}/syscall")).map_err(cannot)?;
    }
    let clock = SystemClock::start();
    let analyzer = StallAnalyzer::new(Backend::Peek, &options.sources, clock.now());
    let threshold_ns = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let mut reporter = StallReporter { analyzer, threshold_ns, stacks: HashMap::new(), each };
    let (sender, events) = mpsc::sync_channel(stall_sampler::EVENT_CAPACITY);
    let lost = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sampler".to_owned());
        let thread =
            thread.spawn_scoped(scope, || stall_sampler::watch(options, stop, &clock, sender));
        let thread = thread.map_err(TraceError::Trace)?;
        for event in events {
            reporter.handle(event);
        }
        let panicked = || TraceError::Trace(std::io::Error::other("the sampling thread panicked"));
        thread.join().map_err(|_| panicked())?.map_err(TraceError::Trace)
    })?;
    reporter.analyzer.summary.lost = lost;
    Ok(reporter.analyzer.summary)
}

/// Handles the events of the sampling thread.
struct StallReporter<'a> {
    analyzer: StallAnalyzer,
    threshold_ns: u64,
    /// By blocked thread: the number of the copy of its stack, and the stack that was unwound from it.
    stacks: HashMap<u32, (u32, StackId)>,
    each: &'a mut dyn FnMut(WatchEvent),
}

impl StallReporter<'_> {
    fn handle(&mut self, event: StallEvent) {
        match event {
            StallEvent::Found { process, executable } => {
                (self.each)(WatchEvent::Found { process, executable, backend: Backend::Peek });
            }
            StallEvent::Reached(snapshot) => self.unwind(&snapshot),
            StallEvent::Unblocked(finished) => self.report(*finished),
            StallEvent::Changed { process } => {
                self.stacks.remove(&process);
                self.analyzer.forget(process);
            }
            StallEvent::Stopped { process, stop } => {
                let at = self.analyzer.time(stop.from_ns);
                let summary = &mut self.analyzer.summary;
                let event = stop.event(process, self.threshold_ns, at, summary);
                event.into_iter().for_each(&mut *self.each);
            }
            StallEvent::Refused { process } => (self.each)(WatchEvent::Refused { process }),
            StallEvent::Ended { process } => {
                self.stacks.remove(&process);
                self.analyzer.forget(process);
                (self.each)(WatchEvent::Ended { process });
            }
        }
    }

    /// Unwinds and symbolizes a stack while its thread is still blocked.
    fn unwind(&mut self, snapshot: &StackSnapshot) {
        // Ids of stacks are in use while a thread is blocked.
        if self.stacks.is_empty() {
            self.analyzer.limit_memory();
        }
        let StallAnalyzer { unwinder, recorder, .. } = &mut self.analyzer;
        let StackSnapshot { number, process, thread, registers, bytes } = snapshot;
        let stack = unwinder.offline(*process, registers, bytes, recorder);
        self.analyzer.resolve_symbols(*process, stack);
        self.stacks.insert(*thread, (*number, stack));
    }

    fn report(&mut self, finished: FinishedPeriod) {
        let FinishedPeriod { period, outcome, copy, target } = finished;
        let stack = self.stacks.remove(&period.thread);
        let call = TracedCall {
            process: period.process,
            thread: period.thread,
            number: period.syscall.number,
            arguments: period.syscall.arguments,
            outcome,
            start_ns: period.first_ns,
            wall_ns: period.wall_ns(),
            cpu_ns: Some(period.cpu_ns()),
            queued_ns: Some(period.queued_ns()),
            // A copy with another number belongs to an earlier period.
            stack: stack.filter(|(number, _)| Some(*number) == copy).map(|(_, stack)| stack),
            target: None,
        };
        if let Some(event) = self.analyzer.analyze_with_target(call, target) {
            (self.each)(event);
        }
    }
}
