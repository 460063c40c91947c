//! Whose processes a session may record: the rule of [`sys::bpf::owner`], and what happens to a process that leaves a session by it.

use super::{ProgramPlan, frame};
use crate::layout::shared;
use sys::bpf::assembler::{Assembler, Helper, Label, Register, Size};

use Register::{R1, R2, R3, R8, R10};

impl ProgramPlan {
    /// As [`OwnerPlan::unless_owned`](sys::bpf::owner::OwnerPlan::unless_owned); with a session for all nothing is asked.
    pub(super) fn unless_owned(&self, p: &mut Assembler, task: Register, out: Label) {
        if let Some(owner) = &self.owner {
            owner.unless_owned(p, task, out);
        }
    }

    /// As [`OwnerPlan::unless_owned_at_end`](sys::bpf::owner::OwnerPlan::unless_owned_at_end); with a session for all nothing is asked.
    pub(super) fn unless_owned_at_end(&self, p: &mut Assembler, task: Register, out: Label) {
        if let Some(owner) = &self.owner {
            owner.unless_owned_at_end(p, task, out);
        }
    }

    /// The process of the thread in `R8` has just executed a program that its owner may not look into: it is not watched
    /// any more, and its thread is forgotten, so that it is not recorded either if it has the owner's rights again.
    pub(super) fn write_leave_session(&self, p: &mut Assembler) {
        self.forget_process(p, R8);
        self.count(p, shared::LEFT_WITH_OTHER_RIGHTS);
        p.set(R2, R8).set_map(R1, self.maps.threads).call(Helper::TaskStorageDelete);
    }

    /// Takes the process of the task in `task` out of the filter.
    pub(super) fn forget_process(&self, p: &mut Assembler, task: Register) {
        p.load(Size::Word, R3, task, self.fields.task_process);
        p.store(Size::Word, R10, frame::SMALL_KEY, R3);
        p.set_map(R1, self.maps.filter).set(R2, R10).add(R2, i32::from(frame::SMALL_KEY));
        p.call(Helper::MapDelete);
    }
}
