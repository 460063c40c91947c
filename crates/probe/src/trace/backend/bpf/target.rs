//! What a recorded call worked on.

use super::record::CallRecord;
use crate::trace::call::TargetId;
use crate::trace::kernel::runs_program;
use crate::trace::place::{Made, Places, Recorded};
use crate::trace::recorder::Recorder;
use crate::trace::recording::Target;

/// Returns what a call worked on or waited for, by what was copied in the kernel and by what can be asked now.
pub(in crate::trace) fn recorded(
    call: &CallRecord<'_>,
    places: &mut Places,
    recorder: &mut Recorder,
) -> Option<TargetId> {
    if call.result == 0 && runs_program(call.number) {
        // The memory that its path was in is gone; the record of the new program says what it is.
        let path = recorder.process(call.process).executable.clone();
        return recorder.target(Target::File { path, mount: None });
    }
    let link = call.file.map(|file| file.link());
    let recorded = Recorded {
        made: Made {
            process: call.process,
            thread: call.thread,
            number: call.number,
            arguments: call.arguments,
            returned: (call.result >= 0).then_some(call.result),
        },
        first_path: call.first_path,
        second_path: call.second_path,
        link: link.as_deref(),
        mount: call.file.map(|file| file.mount.into()),
    };
    let target = places.recorded(&recorded, recorder);
    owner(call, target, recorder)
}

/// Who let a thread out of a futex held it: better than nothing, where the lock itself does not say.
fn owner(
    call: &CallRecord<'_>,
    target: Option<TargetId>,
    recorder: &mut Recorder,
) -> Option<TargetId> {
    let at = target.and_then(|target| usize::try_from(target.0).ok());
    let found = at.and_then(|at| recorder.recording().targets.get(at));
    let is_unknown = matches!(found, Some(Target::Lock { owner: None, .. }));
    if is_unknown && call.waker != 0 && call.waker != call.thread && call.result == 0 {
        return recorder.target(Target::Lock { owner: Some(call.waker), owner_stack: None });
    }
    target
}
