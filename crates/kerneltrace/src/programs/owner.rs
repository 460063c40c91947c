//! Whose processes a session may record: the rule of `ptrace(2)`, asked by each program before it reads or reports anything.
//!
//! A session that one user has through another one's rights (the recorder service) must not learn more than the user could
//! by tracing. A process that executes a set-user-ID program, gives itself other rights or forbids to be dumped leaves the
//! session with that very event.

use super::{Label, ProgramPlan, frame};
use crate::fields::OwnerFields;
use crate::layout::shared;
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};

use Register::{R1, R2, R3, R4, R5, R8, R10};

/// User namespaces above a process that are looked at; in deeper ones nothing is recorded.
const NAMESPACES: usize = 8;
/// The lowest bits of a memory's flags: whether others of the same user may look into it.
const DUMPABLE_BITS: i32 = 3;
/// They may: `SUID_DUMP_USER`.
const DUMPABLE: i32 = 1;

/// The user to whom a session belongs: nothing is recorded of a process that he could not trace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionOwner {
    /// The user, as the initial namespace numbers users.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// The capabilities that he has himself: a process with others is not recorded.
    pub capabilities: u64,
}

/// What the programs need for the rule.
#[derive(Clone, Copy, Debug)]
pub struct OwnerPlan {
    /// Who it is.
    pub owner: SessionOwner,
    /// Where the kernel keeps what is compared.
    pub fields: OwnerFields,
}

/// Whether a task that has no memory any more passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WithoutMemory {
    Passes,
    Fails,
}

impl ProgramPlan {
    /// Goes to `out` unless the owner of the session may look into the process of the task in `task`; with a session for
    /// all nothing is asked. Spoils `R1` to `R5`.
    pub(super) fn unless_owned(&self, p: &mut Assembler, task: Register, out: Label) {
        self.write_rule(p, task, out, WithoutMemory::Fails);
    }

    /// The same for a task that ends, whose memory may be gone.
    pub(super) fn unless_owned_at_end(&self, p: &mut Assembler, task: Register, out: Label) {
        self.write_rule(p, task, out, WithoutMemory::Passes);
    }

    fn write_rule(
        &self,
        p: &mut Assembler,
        task: Register,
        out: Label,
        without_memory: WithoutMemory,
    ) {
        let Some(OwnerPlan { owner, fields }) = &self.owner else { return };
        let (in_first, memory, passes) = (p.label(), p.label(), p.label());
        p.load(Size::Long, R1, task, fields.task_credentials);
        // All three must be the same: a program that can take other rights back has them.
        for (number, places) in [(owner.user, fields.users), (owner.group, fields.groups)] {
            p.set_long(R3, number.into());
            for place in places {
                p.load(Size::Word, R2, R1, place).jump_if(R2, JumpCondition::Differ, R3, out);
            }
        }
        // In a user namespace the capabilities are of that namespace, and who made it has all of them; the kernel's
        // `cap_capable` goes up in the same way.
        p.load(Size::Long, R2, R1, fields.user_namespace);
        p.load(Size::Long, R3, R2, fields.namespace_parent);
        p.jump_if(R3, JumpCondition::Equal, 0, in_first).set_long(R5, owner.user.into());
        for _ in 0..NAMESPACES {
            let up = p.label();
            p.load(Size::Long, R4, R3, fields.namespace_parent);
            p.jump_if(R4, JumpCondition::Differ, 0, up);
            p.load(Size::Word, R4, R2, fields.namespace_owner);
            p.jump_if(R4, JumpCondition::Differ, R5, out).jump(memory);
            p.place(up).set(R2, R3).set(R3, R4);
        }
        p.jump(out).place(in_first);
        let [low, high] = halves(!owner.capabilities);
        for (half, at) in [(low, 0), (high, 4)] {
            p.load(Size::Word, R2, R1, fields.permitted + at);
            p.calculate(Operation::And, R2, half).jump_if(R2, JumpCondition::Differ, 0, out);
        }
        p.place(memory).load(Size::Long, R1, task, self.fields.task_memory);
        let gone = if without_memory == WithoutMemory::Passes { passes } else { out };
        p.jump_if(R1, JumpCondition::Equal, 0, gone);
        p.load(Size::Long, R2, R1, fields.memory_flags);
        p.calculate(Operation::And, R2, DUMPABLE_BITS);
        p.jump_if(R2, JumpCondition::Differ, DUMPABLE, out).place(passes);
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

/// Returns the lower and the upper half of a number.
fn halves(number: u64) -> [i32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    [i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])]
}
