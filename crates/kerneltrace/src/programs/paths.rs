//! Resolves the path of a descriptor in the kernel, because the file may be closed when user space handles a slow call.
//!
//! A program that waits for `fsync` closes the file next, and opens another one with the same number. So the names are
//! copied while the call ends: from the file's directory entry up to the root of its mount, on to where that is mounted,
//! and so on to the root of all.

use super::{Label, ProgramPlan};
use crate::fields::{PathFields, SocketFields};
use crate::layout::{record, scratch, table};
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};

use Register::{R0, R1, R2, R3, R5, R7, R8, R9};

/// `AT_FDCWD`.
const WORKING_DIRECTORY: i32 = -100;

/// The most steps up: names and mounts.
const STEPS: i32 = 40;

impl ProgramPlan {
    /// Adds the names of the descriptor's file, or of the directory that a path is relative to, to the `R8` bytes of data.
    ///
    /// Of a socket, its other end is added to the record.
    pub(super) fn write_names(
        &self,
        p: &mut Assembler,
        fields: &PathFields,
        sockets: Option<&SocketFields>,
    ) {
        let (none, known) = (p.label(), p.label());
        self.write_root(p, fields);
        // Whatever was copied before looks the same to the verifier, which else follows each case through the walk.
        p.store(Size::Long, R7, scratch::LENGTH, R8).load(Size::Long, R8, R7, scratch::LENGTH);
        p.calculate(Operation::And, R8, 2 * record::PATH - 1);
        self.write_starting_place(p, fields, known, none);
        p.place(known);
        p.store(Size::Long, R7, scratch::NAMES, 0);
        self.write_first_entry(p, fields, none);
        if let Some(sockets) = sockets {
            self.write_socket(p, sockets);
        }
        self.write_walk(p, fields);
        p.load(Size::Long, R1, R7, scratch::NAMES).calculate(Operation::And, R1, record::PATH - 1);
        p.store(Size::Word, R7, record::NAMES, R1).add(R8, R1);
        p.place(none);
    }

    /// Notes what the root of the program is, if the call has a path: when user space looks, the program may be gone.
    fn write_root(&self, p: &mut Assembler, fields: &PathFields) {
        let done = p.label();
        p.load(Size::Word, R1, R7, record::FIRST_PATH).jump_if(R1, JumpCondition::Equal, 0, done);
        p.call(Helper::CurrentTask).load(Size::Long, R3, R0, fields.task_directories);
        p.jump_if(R3, JumpCondition::Equal, 0, done).add(R3, i32::from(fields.directories_root));
        // `struct path`: the mount and behind it the entry, in these two places of the scratch.
        let (mount, entry) = (scratch::ENTRY, scratch::MOUNT);
        self.copy(p, mount, 16, done);
        let of_mount = |p: &mut Assembler, field: i16| {
            p.load(Size::Long, R3, R7, mount).add(R3, i32::from(field - fields.mount_inner));
        };
        of_mount(p, fields.mount_root);
        self.copy(p, scratch::FILE, 8, done);
        p.load(Size::Long, R1, R7, scratch::FILE).load(Size::Long, R2, R7, entry);
        p.jump_if(R1, JumpCondition::Differ, R2, done);
        of_mount(p, fields.mount_number);
        self.copy(p, record::ROOT_MOUNT, 4, done);
        p.place(done);
    }

    /// Puts the mount and the entry to start from into the scratch and goes to `known`, or goes to `none`.
    fn write_starting_place(
        &self,
        p: &mut Assembler,
        fields: &PathFields,
        known: Label,
        none: Label,
    ) {
        let (open_file, no_path, given) = (p.label(), p.label(), p.label());
        let (copy_path, opened, in_table) = (p.label(), p.label(), p.label());
        p.store(Size::Long, R7, scratch::OPEN_FILE, 0).load(Size::Word, R1, R7, record::NUMBER);
        for open in self.opens {
            p.jump_if(R1, JumpCondition::Equal, open, opened);
        }
        p.jump(given).place(opened).load(Size::Long, R9, R7, record::RESULT);
        p.jump_if(R9, JumpCondition::SignedBelow, 0, given);
        p.store(Size::Word, R7, record::NAMES_OF, record::OF_RESULT).jump(in_table);
        p.place(given);
        // A path from the root on needs no directory.
        p.load(Size::Word, R1, R7, record::FIRST_PATH).jump_if(
            R1,
            JumpCondition::Equal,
            0,
            no_path,
        );
        p.load(Size::Byte, R1, R7, record::DATA);
        p.jump_if(R1, JumpCondition::Equal, i32::from(b'/'), none);
        p.place(no_path);
        self.load_column(p, table::DESCRIPTOR);
        let working = p.label();
        p.jump_if(R1, JumpCondition::Equal, 0, working);
        self.load_argument(p);
        // Descriptors are 32-bit numbers; the upper half of the register may hold anything.
        p.calculate(Operation::Left, R3, 32).calculate(Operation::SignedRight, R3, 32);
        p.jump_if(R3, JumpCondition::Equal, WORKING_DIRECTORY, working);
        p.jump_if(R3, JumpCondition::SignedBelow, 0, none).jump(open_file);

        p.place(working);
        p.load(Size::Word, R1, R7, record::FIRST_PATH).jump_if(R1, JumpCondition::Equal, 0, none);
        p.store(Size::Word, R7, record::NAMES_OF, record::OF_WORKING_DIRECTORY);
        p.call(Helper::CurrentTask).load(Size::Long, R3, R0, fields.task_directories);
        p.jump_if(R3, JumpCondition::Equal, 0, none).add(R3, i32::from(fields.directories_working));
        p.jump(copy_path);

        p.place(open_file).set(R9, R3);
        p.store(Size::Word, R7, record::NAMES_OF, record::OF_DESCRIPTOR).place(in_table);
        p.call(Helper::CurrentTask).load(Size::Long, R1, R0, fields.task_files);
        p.jump_if(R1, JumpCondition::Equal, 0, none).load(Size::Long, R1, R1, fields.files_table);
        p.jump_if(R1, JumpCondition::Equal, 0, none).load(Size::Word, R2, R1, fields.table_length);
        p.jump_if(R9, JumpCondition::AtLeast, R2, none).load(
            Size::Long,
            R3,
            R1,
            fields.table_files,
        );
        p.calculate(Operation::Left, R9, 3).add(R3, R9);
        self.copy(p, scratch::FILE, 8, none);
        p.load(Size::Long, R3, R7, scratch::FILE).jump_if(R3, JumpCondition::Equal, 0, none);
        p.store(Size::Long, R7, scratch::OPEN_FILE, R3).add(R3, i32::from(fields.file_path));

        // `struct path`: the mount, then the entry; the scratch has them the other way round.
        p.place(copy_path).set(R9, R3);
        self.copy(p, scratch::MOUNT, 8, none);
        p.set(R3, R9).add(R3, 8);
        self.copy(p, scratch::ENTRY, 8, none);
        p.jump(known);
    }

    /// Copies `bytes` of the kernel from the address in `R3` into the record's room, or goes to `otherwise`.
    pub(super) fn copy(&self, p: &mut Assembler, to: i16, bytes: i32, otherwise: Label) {
        p.set(R1, R7).add(R1, i32::from(to)).set(R2, bytes).call(Helper::ReadKernel);
        p.jump_if(R0, JumpCondition::Differ, 0, otherwise);
    }

    /// Copies the current mount and the first entry, and notes what the file is.
    fn write_first_entry(&self, p: &mut Assembler, fields: &PathFields, none: Label) {
        let copied = i32::from(scratch::COPY_SIZE);
        p.load(Size::Long, R3, R7, scratch::MOUNT).jump_if(R3, JumpCondition::Equal, 0, none);
        p.add(R3, -i32::from(fields.mount_inner)).store(Size::Long, R7, scratch::MOUNT, R3);
        self.copy(p, scratch::MOUNT_COPY, copied, none);
        p.load(Size::Long, R3, R7, scratch::MOUNT).add(R3, i32::from(fields.mount_number));
        self.copy(p, record::MOUNT, 4, none);
        p.load(Size::Long, R3, R7, scratch::ENTRY).jump_if(R3, JumpCondition::Equal, 0, none);
        self.copy(p, scratch::ENTRY_COPY, copied, none);
        p.load(Size::Long, R3, R7, scratch::ENTRY_COPY + fields.entry_inode);
        p.jump_if(R3, JumpCondition::Equal, 0, none).store(Size::Long, R7, scratch::INODE, R3);
        p.store(Size::Word, R7, record::MODE, 0).add(R3, i32::from(fields.inode_mode));
        self.copy(p, record::MODE, 2, none);
        p.load(Size::Long, R3, R7, scratch::INODE).add(R3, i32::from(fields.inode_number));
        self.copy(p, record::INODE, 8, none);
        p.load(Size::Long, R3, R7, scratch::INODE).add(R3, i32::from(fields.inode_system));
        self.copy(p, scratch::FILE, 8, none);
        p.load(Size::Long, R3, R7, scratch::FILE).add(R3, i32::from(fields.system_device));
        self.copy(p, record::DEVICE, 4, none);
        let (has_name, is_root) = (p.label(), p.label());
        p.load(Size::Long, R1, R7, scratch::ENTRY_COPY + fields.entry_hashed);
        p.jump_if(R1, JumpCondition::Differ, 0, has_name);
        p.load(Size::Long, R1, R7, scratch::ENTRY_COPY + fields.entry_parent);
        p.load(Size::Long, R2, R7, scratch::ENTRY).jump_if(R1, JumpCondition::Equal, R2, is_root);
        p.load(Size::Word, R1, R7, record::FLAGS);
        p.calculate(Operation::Or, R1, record::DELETED.cast_signed());
        p.store(Size::Word, R7, record::FLAGS, R1).place(is_root).place(has_name);
    }

    /// Goes up and adds names. Where it is is kept in memory, which the verifier does not follow: so each round looks the
    /// same to it, but for the count in `R9`.
    fn write_walk(&self, p: &mut Assembler, fields: &PathFields) {
        let copied = i32::from(scratch::COPY_SIZE);
        let (next, done, at_mount, whole) = (p.label(), p.label(), p.label(), p.label());
        p.set(R9, 0).place(next);
        p.jump_if(R9, JumpCondition::AtLeast, STEPS, done).add(R9, 1);
        p.load(Size::Long, R1, R7, scratch::ENTRY);
        p.load(Size::Long, R2, R7, scratch::MOUNT_COPY + fields.mount_root);
        p.jump_if(R1, JumpCondition::Equal, R2, at_mount);
        p.set(R3, R1);
        self.copy(p, scratch::ENTRY_COPY, copied, done);
        p.load(Size::Long, R5, R7, scratch::NAMES);
        p.jump_if(R5, JumpCondition::Above, record::NAMES_LIMIT, done);
        p.load(Size::Long, R3, R7, scratch::ENTRY_COPY + fields.entry_name);
        self.data_address(p);
        p.add(R1, R5).set(R2, record::NAME).call(Helper::ReadKernelText);
        p.jump_if(R0, JumpCondition::SignedAtMost, 0, done);
        p.load(Size::Long, R5, R7, scratch::NAMES).add(R5, R0);
        p.store(Size::Long, R7, scratch::NAMES, R5);
        p.load(Size::Long, R1, R7, scratch::ENTRY_COPY + fields.entry_parent);
        p.load(Size::Long, R2, R7, scratch::ENTRY).jump_if(R1, JumpCondition::Equal, R2, done);
        p.store(Size::Long, R7, scratch::ENTRY, R1).jump(next);

        p.place(at_mount);
        p.load(Size::Long, R3, R7, scratch::MOUNT_COPY + fields.mount_parent);
        p.load(Size::Long, R1, R7, scratch::MOUNT).jump_if(R1, JumpCondition::Equal, R3, whole);
        p.store(Size::Long, R7, scratch::MOUNT, R3);
        p.load(Size::Long, R1, R7, scratch::MOUNT_COPY + fields.mount_point);
        p.store(Size::Long, R7, scratch::ENTRY, R1);
        self.copy(p, scratch::MOUNT_COPY, copied, done);
        p.jump(next);

        p.place(whole).load(Size::Word, R1, R7, record::FLAGS);
        p.calculate(Operation::Or, R1, record::WHOLE_PATH.cast_signed());
        p.store(Size::Word, R7, record::FLAGS, R1).place(done);
    }
}
