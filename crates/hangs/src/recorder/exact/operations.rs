//! Which operations of `io_uring` the waits for them were for.
//!
//! The programs in the kernel are at work only while a thread that is away waits for such operations, which is rare.

use std::collections::{HashMap, VecDeque};
use std::thread::JoinHandle;

use kernelwork::kernel::{OperationRecord, WorkRecord, WorkTracer};
use kernelwork::{OperationSpan, RingOperation, RingWait, WorkFile, explain, name_of};
use sys::bpf::{LoadError, SharedMap};
use trace::syscall::call_name;

use crate::kernel::{ServedOperations, ThreadBlock};
use crate::model::CallObject;
use crate::recorder::read::ThreadReader;

/// Shorter operations are not told each, in nanoseconds.
const SHORTEST_NS: u64 = 10_000;
/// An operation is completed this long after the wait for it at most, in nanoseconds.
const COMPLETED_NS: u64 = 1_000_000;
/// The most operations that are kept, the latest.
const OPERATIONS: usize = 8192;

/// The operation that a wait was for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct AwaitedOperation {
    /// Its name, as `READ`; none for one that is not known.
    pub(super) name: Option<&'static str>,
    /// What it worked on.
    pub(super) object: Option<CallObject>,
}

/// The programs in the kernel.
#[derive(Debug)]
enum OperationTracer {
    /// Another thread loads them: that takes longer than a look may.
    Loading(JoinHandle<Result<WorkTracer, LoadError>>),
    /// They are loaded.
    Loaded(Box<WorkTracer>),
    /// The recorder service has loaded them.
    Served(ServedOperations),
    /// The kernel does not take them.
    Refused,
}

/// Follows waits to operations.
#[derive(Debug)]
pub(super) struct OperationFollower {
    tracer: OperationTracer,
    is_active: bool,
    operations: VecDeque<RingOperation>,
    files: HashMap<WorkFile, Option<CallObject>>,
}

/// Returns whether a wait is one for operations of a ring.
pub(super) fn is_ring_wait(wait: &ThreadBlock) -> bool {
    !wait.could_run && wait.call.and_then(call_name) == Some("io_uring_enter")
}

impl OperationFollower {
    /// Makes one for the processes in `filter`, which stays open as long as this, and begins to load its programs.
    pub(super) fn new(filter: SharedMap) -> OperationFollower {
        let load = move || WorkTracer::load_operations(filter, SHORTEST_NS);
        let loading = sys::thread::spawn("kernelwork", load);
        OperationFollower {
            tracer: loading.map_or(OperationTracer::Refused, OperationTracer::Loading),
            is_active: false,
            operations: VecDeque::new(),
            files: HashMap::new(),
        }
    }

    /// Makes one for the marked processes of a session in the recorder service, which loads its programs meanwhile.
    pub(super) fn of_service(served: ServedOperations) -> OperationFollower {
        let tracer = match served.follow(false) {
            Ok(()) => OperationTracer::Served(served),
            Err(_) => OperationTracer::Refused,
        };
        OperationFollower {
            tracer,
            is_active: false,
            operations: VecDeque::new(),
            files: HashMap::new(),
        }
    }

    /// Records while there are such waits; without it they are for operations that are not known.
    pub(super) fn set_active(&mut self, is_active: bool) {
        if is_active == self.is_active {
            return;
        }
        self.is_active = is_active;
        match &mut self.tracer {
            OperationTracer::Loaded(tracer) if is_active => {
                self.is_active = tracer.resume().is_ok();
            }
            OperationTracer::Loaded(tracer) => tracer.pause(),
            OperationTracer::Served(served) => {
                // Of a session that is over there is nothing to stop.
                self.is_active = served.follow(is_active).is_ok() && is_active;
            }
            OperationTracer::Loading(_) | OperationTracer::Refused => {}
        }
        if !is_active {
            self.operations = VecDeque::new();
            self.files = HashMap::new();
        }
    }

    /// Takes the programs once they are loaded.
    fn finish_loading(&mut self) {
        self.tracer = match std::mem::replace(&mut self.tracer, OperationTracer::Refused) {
            OperationTracer::Loading(loading) if loading.is_finished() => match loading.join() {
                Ok(Ok(mut tracer)) => {
                    if !self.is_active {
                        tracer.pause();
                    }
                    OperationTracer::Loaded(Box::new(tracer))
                }
                Ok(Err(_)) | Err(_) => OperationTracer::Refused,
            },
            other => other,
        };
    }

    /// Takes what was recorded since the last time.
    pub(super) fn take(&mut self, reader: &mut ThreadReader) {
        self.finish_loading();
        let OperationFollower { tracer, operations, files, is_active } = self;
        let add = |record: WorkRecord<'_>| {
            let WorkRecord::Operation(record) = record else { return };
            let OperationRecord { operation, is_slow, link, mount } = record;
            if let Some((link, file)) = link.zip(operation.file) {
                files.insert(file, reader.object_of_operation(&operation, (&link, mount)));
            }
            if !is_slow {
                return;
            }
            if operations.len() >= OPERATIONS {
                operations.pop_front();
            }
            operations.push_back(operation);
        };
        match tracer {
            OperationTracer::Loaded(tracer) => {
                tracer.take(add);
            }
            OperationTracer::Served(served) if *is_active => served.take(add),
            OperationTracer::Served(_) | OperationTracer::Loading(_) | OperationTracer::Refused => {
            }
        }
    }

    /// Returns for each of the waits of a process the operation that it was for, as far as that is known.
    pub(super) fn of_waits(
        &self,
        process: u32,
        waits: &[ThreadBlock],
    ) -> Vec<Option<AwaitedOperation>> {
        if !waits.iter().any(is_ring_wait) {
            return Vec::new();
        }
        let own = self.operations.iter().filter(|operation| operation.process == process);
        let mut own: Vec<&RingOperation> = own.collect();
        own.sort_by_key(|operation| operation.end_ns());
        let of = |wait: &ThreadBlock| {
            let operation = awaited(process, wait, &own)?;
            let object = operation.file.and_then(|file| self.files.get(&file).cloned().flatten());
            Some(AwaitedOperation { name: name_of(operation.opcode), object })
        };
        waits.iter().map(|wait| if is_ring_wait(wait) { of(wait) } else { None }).collect()
    }
}

impl Drop for OperationFollower {
    fn drop(&mut self) {
        // It uses the filter.
        if let OperationTracer::Loading(loading) =
            std::mem::replace(&mut self.tracer, OperationTracer::Refused)
        {
            let _ = loading.join();
        }
    }
}

/// Returns the operation that ended a wait; none if it may be that of another ring, or an event.
fn awaited(process: u32, wait: &ThreadBlock, own: &[&RingOperation]) -> Option<RingOperation> {
    // The thread itself completes its operations once it has a processor again.
    let to_ns = wait.to_ns.saturating_add(COMPLETED_NS);
    let is_in_flight = |operation: &&&RingOperation| {
        let end_ns = operation.end_ns().unwrap_or(u64::MAX);
        operation.start_ns <= wait.from_ns && (wait.from_ns..=to_ns).contains(&end_ns)
    };
    // They are in the order of their ends.
    let first = own.partition_point(|operation| operation.end_ns() < Some(wait.from_ns));
    let near = own[first..].iter().take_while(|operation| operation.end_ns() <= Some(to_ns));
    let mut near: Vec<RingOperation> =
        near.filter(is_in_flight).map(|one| (*one).clone()).collect();
    let known = RingWait {
        process,
        ring: None,
        from_ns: wait.from_ns,
        to_ns: Some(to_ns),
        settled_ns: COMPLETED_NS,
    };
    let found = explain(&known, &OperationSpan::new(&near)).filter(|found| !found.is_loop)?;
    let is_of_one = near.iter().all(|operation| operation.ring == near[found.operation].ring);
    is_of_one.then(|| near.swap_remove(found.operation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::syscall::call_number;

    const MS: u64 = 1_000_000;

    fn wait(from_ms: u64, to_ms: u64) -> ThreadBlock {
        ThreadBlock {
            from_ns: from_ms * MS,
            to_ns: to_ms * MS,
            ready_ns: 0,
            blocked_ns: (to_ms - from_ms) * MS,
            off_before_ns: 0,
            could_run: false,
            is_stopped: false,
            call: call_number("io_uring_enter"),
            arguments: [5, 1, 1, 1, 0, 0],
            place: (1, 1),
        }
    }

    fn operation(ring: u64, opcode: u8, start_ms: u64, end_us: u64) -> RingOperation {
        RingOperation {
            process: 7,
            thread: 7,
            opcode,
            descriptor: 3,
            is_registered: false,
            ring,
            start_ns: start_ms * MS,
            wall_ns: end_us * 1000 - start_ms * MS,
            result: Some(0),
            file: Some(WorkFile { inode: start_ms, device: 1 }),
            path: None,
            by_worker: false,
            awaited_readiness: false,
        }
    }

    fn found(wait: &ThreadBlock, own: &[RingOperation]) -> Option<u64> {
        let own: Vec<&RingOperation> = own.iter().collect();
        awaited(7, wait, &own).and_then(|operation| Some(operation.file?.inode))
    }

    #[test]
    fn a_wait_was_for_the_operation_that_was_in_flight_and_ended_with_it() {
        const READ: u8 = 22;
        const RECV: u8 = 27;
        // It is completed by the thread itself, some microseconds later; another one follows.
        let own = [operation(1, READ, 10, 12_000), operation(1, READ, 20, 30_050)];
        let all = [own.as_slice(), &[operation(1, READ, 31, 31_800)]].concat();
        assert_eq!(found(&wait(21, 30), &all), Some(20));
        assert_eq!(found(&wait(11, 12), &all), Some(10));
        assert_eq!(found(&wait(13, 19), &all), None, "nothing was in flight");
        let other_ring = [own[1].clone(), operation(2, READ, 19, 30_060)];
        assert_eq!(
            found(&wait(21, 30), &other_ring),
            None,
            "which ring it waited for is not known"
        );
        let event = [operation(1, RECV, 20, 30_050)];
        assert_eq!(found(&wait(21, 30), &event), None, "a loop waits for events");
    }
}
