//! The watch that only looks, as any user may at their own programs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use session::clock::{Clock, SystemClock};

use super::find::Finder;
use super::teller::Teller;
use super::{Event, Options, Subject, Summary};
use crate::trace::backend::peek::pace::Pace;
use crate::trace::backend::peek::sampler::{Block, Found, Sampler, Scope, Witness};
use crate::trace::backend::{TraceError, procfs};
use crate::trace::call::{Call, Outcome};
use crate::trace::place::Made;
use crate::trace::recording::Backend;
use crate::trace::stack::Registers;

/// The share of a CPU that it may take all day.
const BUDGET: f64 = 0.003;

/// How often it looks: five times in the length of a stay that is told.
fn period(threshold: Duration) -> Duration {
    (threshold / 5).clamp(Duration::from_millis(2), Duration::from_millis(50))
}

/// Watches until `stop` is set or what was given by its number has ended.
pub(super) fn watch(
    options: &Options,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Event),
) -> Result<Summary, TraceError> {
    if let Subject::Process(process) = options.subject {
        let cannot = |source| TraceError::Attach { process, source };
        // Whoever may read this may look at everything that we look at.
        std::fs::read(format!("/proc/{process}/syscall")).map_err(cannot)?;
    }
    let clock = SystemClock::start();
    let now = || u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
    let threshold = u64::try_from(options.threshold.as_nanos()).unwrap_or(u64::MAX);
    let teller = Teller::new(Backend::Peek, &options.sources, clock.now());
    let mut eye = Eye { teller, each };
    let mut finder = Finder::new(options.subject.clone());
    let mut samplers: BTreeMap<u32, Sampler> = BTreeMap::new();
    let mut pace = Pace::new(period(options.threshold), BUDGET);
    while !stop.load(Ordering::Relaxed) {
        let change = finder.search(clock.monotonic());
        for process in change.found {
            samplers.insert(process, Sampler::new(process, Scope::First, threshold));
            let executable = procfs::executable(process);
            (eye.each)(Event::Found { process, executable, backend: Backend::Peek });
        }
        for process in change.gone {
            samplers.remove(&process);
            eye.teller.forget(process);
            (eye.each)(Event::Ended { process });
        }
        if finder.is_over() {
            break;
        }
        samplers.retain(|process, sampler| {
            sampler.round(now, &mut eye);
            if !sampler.may_look() {
                (eye.each)(Event::Refused { process: *process });
            }
            sampler.may_look()
        });
        // Numbers of stacks are in use while a thread stays somewhere.
        if samplers.values().all(|sampler| sampler.staying().is_empty()) {
            eye.teller.tidy();
        }
        pace.rest().map_err(TraceError::Trace)?;
    }
    for block in samplers.values().flat_map(Sampler::staying) {
        eye.tell(&block, Outcome::Running);
    }
    Ok(eye.teller.summary)
}

/// Hears of stays, and tells of them.
struct Eye<'a> {
    teller: Teller,
    each: &'a mut dyn FnMut(Event),
}

impl Eye<'_> {
    fn tell(&mut self, block: &Block, outcome: Outcome) {
        let found = block.found.unwrap_or_default();
        let call = Call {
            process: block.process,
            thread: block.thread,
            number: block.glance.number,
            arguments: block.glance.arguments,
            outcome,
            start_ns: block.first_ns,
            wall_ns: block.wall_ns(),
            cpu_ns: Some(block.cpu_ns()),
            queued_ns: Some(block.queued_ns()),
            stack: found.stack,
            target: found.target,
        };
        if let Some(event) = self.teller.tell(call) {
            (self.each)(event);
        }
    }
}

impl Witness for Eye<'_> {
    fn wants(&self, _number: u32) -> bool {
        true
    }

    fn reached(&mut self, block: &Block) -> Found {
        let Block { process, thread, glance, .. } = *block;
        let made = Made {
            process,
            thread,
            number: glance.number,
            arguments: glance.arguments,
            returned: None,
        };
        let (stack, target) = self.teller.look(&made, &Registers::new(glance.ip, glance.sp));
        Found { stack: Some(stack), target }
    }

    fn left(&mut self, block: &Block) {
        self.tell(block, Outcome::Unknown);
    }

    fn met(&mut self, _process: u32, _thread: u32) {}

    fn again(&mut self, _process: u32) {}

    fn lost(&mut self, process: u32, _thread: u32) {
        self.teller.forget(process);
    }
}
