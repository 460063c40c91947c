//! The names of a file, copied while its operation ends: when user space looks, its descriptor may be another file's.
//!
//! From the file's directory entry up to the root of its mount, on to where that is mounted, and so on to the root of all.

use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Register, Size};

use super::layout::{record, room};
use super::offsets::FileOffsets;
use super::programs::WorkPlan;

use Register::{R0, R1, R2, R3, R5, R7, R9};

/// The most steps up: names and mounts.
const STEPS: i32 = 40;

impl WorkPlan {
    /// Adds the names of the file whose first entry and mount are in the room. Spoils `R9`.
    pub(super) fn write_names(&self, p: &mut Assembler, files: &FileOffsets) {
        let none = p.label();
        let copied = i32::from(room::COPY_SIZE);
        p.store(Size::Long, R7, room::FOUND, 0);
        p.load(Size::Long, R3, R7, room::MOUNT).jump_if(R3, JumpCondition::Equal, 0, none);
        p.add(R3, -i32::from(files.mount_inner)).store(Size::Long, R7, room::MOUNT, R3);
        self.copy(p, room::MOUNT_COPY, copied, none);
        p.load(Size::Long, R3, R7, room::MOUNT).add(R3, i32::from(files.mount_number));
        self.copy(p, record::MOUNT, 4, none);
        let has_name = p.label();
        p.load(Size::Long, R1, R7, room::ENTRY_COPY + files.entry_hashed);
        p.jump_if(R1, JumpCondition::Differ, 0, has_name);
        p.load(Size::Long, R1, R7, room::ENTRY_COPY + files.entry_parent);
        p.load(Size::Long, R2, R7, room::ENTRY).jump_if(R1, JumpCondition::Equal, R2, has_name);
        self.flag(p, record::DELETED);
        p.place(has_name);
        self.write_walk(p, files);
        p.load(Size::Long, R1, R7, room::FOUND).store(Size::Word, R7, record::LENGTH, R1);
        self.flag(p, record::NAMED);
        p.place(none);
    }

    /// Goes up and adds names. Where it is is kept in memory, which the verifier does not follow: so each round looks the
    /// same to it, but for the count in `R9`.
    fn write_walk(&self, p: &mut Assembler, files: &FileOffsets) {
        let copied = i32::from(room::COPY_SIZE);
        let (next, done, at_mount, whole) = (p.label(), p.label(), p.label(), p.label());
        p.set(R9, 0).place(next);
        p.jump_if(R9, JumpCondition::AtLeast, STEPS, done).add(R9, 1);
        p.load(Size::Long, R1, R7, room::ENTRY);
        p.load(Size::Long, R2, R7, room::MOUNT_COPY + files.mount_root);
        p.jump_if(R1, JumpCondition::Equal, R2, at_mount).set(R3, R1);
        self.copy(p, room::ENTRY_COPY, copied, done);
        p.load(Size::Long, R5, R7, room::FOUND);
        p.jump_if(R5, JumpCondition::Above, room::NAMES_LIMIT, done);
        p.load(Size::Long, R3, R7, room::ENTRY_COPY + files.entry_name);
        p.set(R1, R7).add(R1, i32::from(record::DATA)).add(R1, R5).set(R2, room::NAME);
        p.call(Helper::ReadKernelText).jump_if(R0, JumpCondition::SignedAtMost, 0, done);
        p.load(Size::Long, R5, R7, room::FOUND).add(R5, R0).store(Size::Long, R7, room::FOUND, R5);
        p.load(Size::Long, R1, R7, room::ENTRY_COPY + files.entry_parent);
        p.load(Size::Long, R2, R7, room::ENTRY).jump_if(R1, JumpCondition::Equal, R2, done);
        p.store(Size::Long, R7, room::ENTRY, R1).jump(next);

        p.place(at_mount).load(Size::Long, R3, R7, room::MOUNT_COPY + files.mount_parent);
        p.load(Size::Long, R1, R7, room::MOUNT).jump_if(R1, JumpCondition::Equal, R3, whole);
        p.store(Size::Long, R7, room::MOUNT, R3);
        p.load(Size::Long, R1, R7, room::MOUNT_COPY + files.mount_point);
        p.store(Size::Long, R7, room::ENTRY, R1);
        self.copy(p, room::MOUNT_COPY, copied, done);
        p.jump(next).place(whole);
        self.flag(p, record::WHOLE);
        p.place(done);
    }
}
