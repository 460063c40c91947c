//! The target of a recorded call.

use super::record::CallRecord;
use crate::call::TargetId;
use crate::place::{ContextLookup, CopiedCall, SyscallContext};
use crate::recorder::TraceRecorder;
use crate::recording::Target;
use crate::syscall::runs_program;

/// The value of a mutex that somebody waits for, of the C library as of Rust's.
const CONTENDED: u64 = 2;

/// Returns the target of a call, from data that was copied in the kernel and from its present state.
pub(crate) fn recorded(
    call: &CallRecord<'_>,
    places: &mut ContextLookup,
    recorder: &mut TraceRecorder,
) -> Option<TargetId> {
    if call.result == 0 && runs_program(call.number) {
        // The memory that its path was in is gone; the record of the new program says what it is.
        let path = recorder.process(call.process).executable.clone();
        return recorder.target(Target::File { path, mount: None });
    }
    let link = call.file.map(|file| file.link());
    let recorded = CopiedCall {
        made: SyscallContext {
            process: call.process,
            thread: call.thread,
            number: call.number,
            arguments: call.arguments,
            returned: (call.result >= 0).then_some(call.result),
        },
        first_path: call.first_path,
        second_path: call.second_path,
        polled: call.polled,
        memory: call.memory,
        sets: call.sets,
        root_mount: call.root_mount.into(),
        link: link.as_deref(),
        is_opened: call.file.is_some_and(|file| file.is_opened),
        socket: call.file.and_then(|file| file.socket),
        mount: call.file.map(|file| file.mount.into()),
    };
    let target = places.recorded(&recorded, recorder);
    owner(call, target, recorder)
}

/// The thread that woke another one from a mutex is taken for its holder, if the lock itself does not contain it.
///
/// Of a condition, a semaphore or a pool of threads, who wakes another one holds nothing.
fn owner(
    call: &CallRecord<'_>,
    target: Option<TargetId>,
    recorder: &mut TraceRecorder,
) -> Option<TargetId> {
    let at = target.and_then(|target| usize::try_from(target.0).ok());
    let found = at.and_then(|at| recorder.recording().targets.get(at));
    let is_unknown = matches!(found, Some(Target::Lock { owner: None, .. }));
    let is_mutex = call.arguments[2] == CONTENDED;
    if is_unknown && is_mutex && call.waker != 0 && call.waker != call.thread && call.result == 0 {
        return recorder.target(Target::Lock { owner: Some(call.waker), owner_stack: None });
    }
    target
}
