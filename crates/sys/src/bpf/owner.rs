//! Whose processes a set of programs may record: the rule of `ptrace(2)`, asked by each program before it reads or reports anything.
//!
//! A session that one user has through another one's rights (the recorder service) must not learn more than the user could
//! by tracing. A process that executes a set-user-ID program, gives itself other rights or forbids to be dumped leaves the
//! session with that very event.

use super::assembler::{
    AssembleError, Assembler, Helper, JumpCondition, Label, Operation, Register, Size,
};
use super::btf::{self, BtfKind, KernelTypesError, Types};
use super::{AttachError, BpfProgram, Instruction, LoadError, ProgramKind, Refused};

use Register::{R0, R1, R2, R3, R4, R5, R8};

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

impl OwnerPlan {
    /// Goes to `out` unless the owner may look into the process of the task in `task`, as `ptrace(2)` would let him. A
    /// program asks it before it reads or reports anything of the task. Spoils `R1` to `R5`.
    pub fn unless_owned(&self, p: &mut Assembler, task: Register, out: Label) {
        self.write_rule(p, task, out, WithoutMemory::Fails);
    }

    /// The same for a task that may be about to end, whose memory may be gone.
    pub fn unless_owned_at_end(&self, p: &mut Assembler, task: Register, out: Label) {
        self.write_rule(p, task, out, WithoutMemory::Passes);
    }

    /// Loads the program that lets samples of the owner's processes through and drops all others.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing is left in the kernel.
    pub fn load_sample_filter(&self) -> Result<BpfProgram, LoadError> {
        let name = "unjank_sample";
        let program = BpfProgram::load(ProgramKind::Sample, name, &self.sample_filter()?);
        let refused = |Refused { error: source, log }| AttachError::Refused {
            name: name.to_owned(),
            log,
            source,
        };
        program.map_err(|error| refused(error).into())
    }

    fn sample_filter(&self) -> Result<Vec<Instruction>, AssembleError> {
        let mut program = Assembler::default();
        let p = &mut program;
        let foreign = p.label();
        p.call(Helper::CurrentTask).set(R8, R0);
        self.unless_owned(p, R8, foreign);
        p.leave_with(1).place(foreign).leave();
        program.finish()
    }

    fn write_rule(
        &self,
        p: &mut Assembler,
        task: Register,
        out: Label,
        without_memory: WithoutMemory,
    ) {
        let OwnerPlan { owner, fields } = self;
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
        p.place(memory).load(Size::Long, R1, task, fields.task_memory);
        let gone = if without_memory == WithoutMemory::Passes { passes } else { out };
        p.jump_if(R1, JumpCondition::Equal, 0, gone);
        p.load(Size::Long, R2, R1, fields.memory_flags);
        p.calculate(Operation::And, R2, DUMPABLE_BITS);
        p.jump_if(R2, JumpCondition::Differ, DUMPABLE, out).place(passes);
    }
}

/// Where a process's rights are.
#[derive(Clone, Copy, Debug)]
pub struct OwnerFields {
    /// `task_struct`: its rights as others see them.
    pub task_credentials: i16,
    /// `task_struct`: its memory.
    pub task_memory: i16,
    /// `cred`: the real, effective and saved user.
    pub users: [i16; 3],
    /// `cred`: the real, effective and saved group.
    pub groups: [i16; 3],
    /// `cred`: the capabilities that it can have, of 64 bits.
    pub permitted: i16,
    /// `cred`: its user namespace.
    pub user_namespace: i16,
    /// `user_namespace`: the one that it is in.
    pub namespace_parent: i16,
    /// `user_namespace`: the user who made it.
    pub namespace_owner: i16,
    /// `mm_struct`: its flags, with those on who may dump it lowest.
    pub memory_flags: i16,
}

/// The structures in which [`OwnerFields`] are.
const OWNER_STRUCTURES: [&str; 4] = ["task_struct", "mm_struct", "cred", "user_namespace"];

impl OwnerFields {
    /// Reads them from the running kernel.
    ///
    /// # Errors
    ///
    /// [`KernelTypesError`]: programs cannot ask whose a process is.
    pub fn of_this_kernel() -> Result<OwnerFields, KernelTypesError> {
        btf::of_this_kernel(OwnerFields::read)
    }

    /// Reads them from a kernel's types.
    ///
    /// # Errors
    ///
    /// [`KernelTypesError`]: programs cannot ask whose a process is.
    pub fn read(bytes: &[u8]) -> Result<OwnerFields, KernelTypesError> {
        let wanted = OWNER_STRUCTURES.map(|name| (BtfKind::Structure, name));
        let types = Types::read(bytes, &wanted).ok_or(KernelTypesError::NotUnderstood)?;
        OwnerFields::find(&types).ok_or(KernelTypesError::Missing("cred"))
    }

    /// Finds them among a kernel's types; `None` if it has other structures than the known ones.
    pub fn find(types: &Types<'_>) -> Option<OwnerFields> {
        let field = |structure, path| types.offset(structure, path);
        Some(OwnerFields {
            task_credentials: field("task_struct", "real_cred")?,
            task_memory: field("task_struct", "mm")?,
            users: [field("cred", "uid")?, field("cred", "euid")?, field("cred", "suid")?],
            groups: [field("cred", "gid")?, field("cred", "egid")?, field("cred", "sgid")?],
            permitted: field("cred", "cap_permitted")?,
            user_namespace: field("cred", "user_ns")?,
            namespace_parent: field("user_namespace", "parent")?,
            namespace_owner: field("user_namespace", "owner")?,
            memory_flags: field("mm_struct", "flags")?,
        })
    }
}

/// Returns the lower and the upper half of a number.
fn halves(number: u64) -> [i32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    [i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])]
}
