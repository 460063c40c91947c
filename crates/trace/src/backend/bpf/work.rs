//! Records what the kernel does for the program outside of its calls, and says which waits were for it.

use std::collections::{HashMap, HashSet};
use std::thread::JoinHandle;

use kernelwork::kernel::{MemoryRecord, NewRing, OperationRecord, WorkRecord, WorkTracer};
use kernelwork::{Explanation, OperationSpan, RingOperation, RingWait, WorkFile, explain};
use report::error::chain as causes;
use sys::bpf::{LoadError, SharedMap};

use crate::backend::KERNEL_WORK_UNSEEN;
use crate::call::{CallEnd, TargetId, TracedCall};
use crate::kernel_work::{ExplainedWait, RecordedOperation, RecordedOperations, RingWaitKind};
use crate::place::ContextLookup;
use crate::recorder::TraceRecorder;
use crate::recording::{Target, move_total};
use crate::stack::{KnownRegisters, Unwinder};
use crate::syscall::call_name;

/// The most slow operations that are kept.
const OPERATIONS: usize = 50_000;
/// In the flags of `io_uring_enter`: it waits, and its descriptor is an index.
const WAITS: u64 = 1;
const RING_BY_INDEX: u64 = 1 << 4;

/// Puts the programs into the kernel, on a thread of its own: others are put there meanwhile.
#[derive(Debug)]
pub(super) struct WorkLoader(Option<JoinHandle<Result<WorkTracer, LoadError>>>);

impl WorkLoader {
    /// Begins to record the processes in `filter`, which outlives this. The recorder service has none for us.
    pub(super) fn start(filter: Option<SharedMap>, threshold_ns: u64) -> WorkLoader {
        let Some(filter) = filter else { return WorkLoader(None) };
        WorkLoader(
            sys::thread::spawn("kernelwork", move || WorkTracer::load(filter, threshold_ns)).ok(),
        )
    }

    fn join(&mut self) -> Option<Result<WorkTracer, LoadError>> {
        self.0.take().and_then(|loader| loader.join().ok())
    }
}

impl Drop for WorkLoader {
    fn drop(&mut self) {
        // It uses the filter.
        let _ = self.join();
    }
}

/// What else of the recording is filled or asked.
pub(super) struct WorkContext<'a> {
    pub(super) recorder: &'a mut TraceRecorder,
    pub(super) places: &'a mut ContextLookup,
    pub(super) unwinder: &'a mut Unwinder,
    pub(super) began_ns: u64,
}

/// Records operations of rings and work for memory.
#[derive(Debug)]
pub(super) struct WorkRecorder {
    /// None where the kernel does not take the programs.
    tracer: Option<WorkTracer>,
    notes: Vec<String>,
    operations: Vec<RingOperation>,
    targets: Vec<Option<TargetId>>,
    dropped: u64,
    files: HashMap<WorkFile, TargetId>,
    rings: Vec<NewRing>,
    /// Rings that tell of completions by an event counter.
    counters: HashSet<(u32, u64)>,
}

impl WorkRecorder {
    /// Makes one whose programs are in the kernel.
    pub(super) fn new(mut loader: WorkLoader) -> WorkRecorder {
        let (tracer, notes) = match loader.join() {
            Some(Ok(tracer)) => {
                let notes = tracer.unseen().iter().map(|what| format!("Not seen: {what}."));
                let notes = notes.collect();
                (Some(tracer), notes)
            }
            Some(Err(error)) => (None, vec![refused(&causes(&error))]),
            None => (None, vec![KERNEL_WORK_UNSEEN.to_owned()]),
        };
        WorkRecorder {
            tracer,
            notes,
            operations: Vec::new(),
            targets: Vec::new(),
            dropped: 0,
            files: HashMap::new(),
            rings: Vec::new(),
            counters: HashSet::new(),
        }
    }

    /// Takes what was recorded.
    pub(super) fn take(&mut self, context: &mut WorkContext<'_>) {
        let Some(mut tracer) = self.tracer.take() else { return };
        tracer.take(|record| match record {
            WorkRecord::Operation(record) => self.ended(record, context),
            WorkRecord::Created(ring) => self.rings.push(ring),
            WorkRecord::Counter { process, ring } => {
                self.counters.insert((process, ring));
            }
            WorkRecord::Memory(record) => memory(&record, context),
        });
        self.tracer = Some(tracer);
    }

    fn ended(&mut self, record: OperationRecord, context: &mut WorkContext<'_>) {
        let OperationRecord { operation, is_slow, link, mount } = record;
        if let Some((link, file)) = link.zip(operation.file)
            && let Some(target) =
                context.places.of_operation(&operation, Some((&link, mount)), context.recorder)
        {
            self.files.insert(file, target);
        }
        if !is_slow {
            return;
        }
        if self.operations.len() >= OPERATIONS {
            self.dropped += 1;
            return;
        }
        let asked = operation
            .path
            .as_ref()
            .and_then(|_| context.places.of_operation(&operation, None, context.recorder));
        self.targets.push(asked);
        self.operations.push(operation);
    }

    /// Ends, and puts what was recorded into the recording.
    pub(super) fn finish(mut self, context: &mut WorkContext<'_>) {
        let running = self.tracer.as_ref().and_then(|tracer| tracer.running().ok());
        if let Some(tracer) = &mut self.tracer {
            tracer.detach();
        }
        self.take(context);
        for operation in running.unwrap_or_default() {
            let is_known = context.recorder.recording().processes.contains_key(&operation.process);
            if is_known && self.operations.len() < OPERATIONS {
                let target = context.places.of_operation(&operation, None, context.recorder);
                self.targets.push(target);
                self.operations.push(operation);
            }
        }
        for (operation, target) in self.operations.iter().zip(&mut self.targets) {
            *target = target.or_else(|| self.files.get(&operation.file?).copied());
        }
        self.explain(context);
        let totals = self.tracer.as_ref().and_then(|tracer| tracer.totals().ok());
        let losses = self.tracer.as_ref().and_then(|tracer| tracer.losses().ok());
        let recording = context.recorder.recording();
        let work = &mut recording.kernel;
        let since = |at_ns: u64| at_ns.saturating_sub(context.began_ns);
        let kept = |(operation, target): (&RingOperation, &Option<TargetId>)| RecordedOperation {
            process: operation.process,
            thread: operation.thread,
            opcode: operation.opcode,
            descriptor: operation.descriptor,
            is_registered: operation.is_registered,
            start_ns: since(operation.start_ns),
            wall_ns: operation.wall_ns,
            result: operation.result,
            bytes: operation.bytes(),
            target: *target,
            by_worker: operation.by_worker,
            awaited_readiness: operation.awaited_readiness,
        };
        work.operations = self.operations.iter().zip(&self.targets).map(kept).collect();
        work.dropped = self.dropped;
        for total in totals.unwrap_or_default() {
            let target = total.file.and_then(|file| self.files.get(&file).copied());
            let moves = kernelwork::moves_data(total.opcode).then_some(total.results);
            let found = work.totals.iter_mut();
            let known = found
                .into_iter()
                .find(|known| known.opcode == total.opcode && known.target == target);
            match known {
                Some(known) => {
                    known.count += total.count;
                    known.errors += total.errors;
                    known.wall_ns = known.wall_ns.saturating_add(total.wall_ns);
                    known.longest_ns = known.longest_ns.max(total.longest_ns);
                    known.bytes = known.bytes.zip(moves).map(|(a, b)| a.saturating_add(b));
                }
                None => work.totals.push(RecordedOperations {
                    opcode: total.opcode,
                    target,
                    count: total.count,
                    errors: total.errors,
                    wall_ns: total.wall_ns,
                    longest_ns: total.longest_ns,
                    bytes: moves,
                }),
            }
        }
        let losses = losses.unwrap_or_default();
        for (count, what) in [
            (
                losses.records,
                "operations of io_uring or works for memory were told too fast to be read",
            ),
            (
                losses.not_followed,
                "operations of io_uring or works for memory were not followed, because there were too many at a time",
            ),
            (
                losses.not_summed,
                "operations of io_uring are in no sum, because there were too many files",
            ),
        ] {
            if count > 0 {
                self.notes.push(format!("{count} {what}."));
            }
        }
        recording.notes.append(&mut self.notes);
    }

    /// Finds the waits that operations ended.
    fn explain(&self, context: &mut WorkContext<'_>) {
        if self.operations.is_empty() {
            return;
        }
        let span = OperationSpan::new(&self.operations);
        let recording = context.recorder.recording();
        for call in &mut recording.slow {
            let target = call.target.and_then(|at| recording.targets.get(at.0 as usize));
            let Some((kind, rings)) = self.wait(call, target, context.began_ns) else { continue };
            let from_ns = call.start_ns.saturating_add(context.began_ns);
            let is_over = call.outcome != CallEnd::Running;
            let settled = call.cpu_ns.zip(call.queued_ns).map_or(call.wall_ns, |(a, b)| a + b);
            let found = rings.iter().filter_map(|ring| {
                explain(
                    &RingWait {
                        process: call.process,
                        ring: *ring,
                        from_ns,
                        to_ns: is_over.then(|| from_ns.saturating_add(call.wall_ns)),
                        settled_ns: settled,
                    },
                    &span,
                )
            });
            let Some(found) = found.max_by_key(|found| found.common_ns) else { continue };
            let kind = match kind {
                RingWaitKind::ForOperation
                    if found.is_loop && !self.is_like_a_call(&found, &recording.targets) =>
                {
                    RingWaitKind::Loop
                }
                kind => kind,
            };
            let operation = u32::try_from(found.operation).unwrap_or(u32::MAX);
            let wait = ExplainedWait { operation, common_ns: found.common_ns, kind };
            recording.kernel.waits.insert((call.thread, call.start_ns), wait);
            let file = self.targets.get(found.operation).copied().flatten();
            if let Some(file) = file.filter(|_| kind == RingWaitKind::ForOperation) {
                // What was waited for is the file, not the ring.
                if let Some(ring) = call.target.replace(file) {
                    move_total(&mut recording.target_totals, ring, file, call);
                }
            }
        }
    }

    /// Says whether a wait is what the system call of the same name would be: nothing but this operation could end it.
    fn is_like_a_call(&self, found: &Explanation, targets: &[Target]) -> bool {
        let Some(operation) = self.operations.get(found.operation) else { return false };
        let target = self.targets.get(found.operation).copied().flatten();
        let target = target.and_then(|at| targets.get(at.0 as usize));
        // What wakes event loops up is read by them, too; what is not known may be that.
        let is_of_loop = operation.is_of_data() && target.is_none_or(wakes_event_loops);
        found.is_alone && self.dropped == 0 && operation.is_like_a_call() && !is_of_loop
    }

    /// Returns how a call waits for operations, and for those of which rings; none for a call that does not.
    fn wait(
        &self,
        call: &TracedCall,
        target: Option<&Target>,
        began_ns: u64,
    ) -> Option<(RingWaitKind, Vec<Option<u64>>)> {
        let of = match target {
            Some(Target::Other(name)) => name.as_str(),
            _ => "",
        };
        let with_counter = || {
            let own = self.counters.iter().filter(|(process, _)| *process == call.process);
            own.map(|(_, ring)| Some(*ring)).collect::<Vec<Option<u64>>>()
        };
        match call_name(call.number)? {
            "io_uring_enter" if call.arguments[3] & WAITS != 0 => {
                let by_index = call.arguments[3] & RING_BY_INDEX != 0;
                let descriptor = call.arguments[0] & 0xffff_ffff;
                let made = self.rings.iter().rev().find(|ring| {
                    ring.process == call.process
                        && u64::from(ring.descriptor.cast_unsigned()) == descriptor
                        && ring.at_ns <= call.start_ns.saturating_add(began_ns)
                });
                let ring = made.filter(|_| !by_index).map(|ring| ring.ring);
                Some((RingWaitKind::ForOperation, vec![ring]))
            }
            "read" | "readv" | "poll" | "ppoll" | "select" | "pselect6" if of == "[eventfd]" => {
                Some((RingWaitKind::ForOperation, with_counter()))
            }
            "poll" | "ppoll" if of == "[io_uring]" => {
                Some((RingWaitKind::ForOperation, vec![None]))
            }
            // They wait for whatever is registered, and the ring or its counter may be.
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
            | "epoll_pwait2" => Some((RingWaitKind::ForSeveral, vec![None])),
            _ => None,
        }
    }
}

fn refused(why: &str) -> String {
    format!("Not seen: operations of io_uring, the reclaim of memory and reads from swap: {why}.")
}

/// Names the swap of the machine; of several all, because the kernel's number of one is not that in `/proc/swaps`.
fn swap_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/swaps").ok()?;
    let names = text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    let names = names.collect::<Vec<&str>>().join(" or ");
    Some(names).filter(|names| !names.is_empty())
}

/// Records a work for memory.
fn memory(record: &MemoryRecord<'_>, context: &mut WorkContext<'_>) {
    let (unwinder, recorder) = (&mut context.unwinder, &mut context.recorder);
    // A page of a file is the file's, and the account tells it as that.
    let is_own = |address| unwinder.is_own_memory(record.process, address) == Some(true);
    if !record.address.is_none_or(is_own) {
        return;
    }
    let stack = record.registers.map(|[ip, sp, bp, kept @ ..]| {
        let registers = KnownRegisters::new(ip, sp).bp(bp).kept(kept);
        unwinder.offline(record.process, &registers, record.stack, recorder)
    });
    let mut wait = record.wait;
    wait.start_ns = wait.start_ns.saturating_sub(context.began_ns);
    let known = recorder.recording().kernel.memory.entry(record.thread).or_default();
    let share = known.add(&wait, record.pages, stack.map(|stack| (stack, record.stands_for)));
    if record.address.is_some() && share.swap.is_none() {
        share.swap = swap_name();
    }
}

/// Says whether a file is made to be waited for by event loops.
fn wakes_event_loops(target: &Target) -> bool {
    let Target::Other(name) = target else { return false };
    ["eventfd", "timerfd", "signalfd", "inotify", "fanotify", "eventpoll", "io_uring"]
        .iter()
        .any(|what| name.contains(what))
}
