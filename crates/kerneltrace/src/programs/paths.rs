//! Resolves the path of a descriptor in the kernel, because the file may be closed when user space handles a slow call.

use super::{Label, ProgramPlan};
use crate::fields::{PathFields, SocketFields};
use crate::layout::{record, scratch, table};
use sys::bpf::assembler::{Assembler, Helper, JumpCondition, Operation, Register, Size};
use sys::bpf::file_names::{self, FileNameRecord, FileNames, WalkRoom};

use Register::{R0, R1, R2, R3, R7, R8, R9};

/// `AT_FDCWD`.
const WORKING_DIRECTORY: i32 = -100;

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
        let names = file_names(fields);
        let (copied, still) = (p.label(), p.label());
        names.write_inode(p, copied);
        names.write_mount(p, copied);
        if let Some(sockets) = sockets {
            self.write_socket(p, sockets);
        }
        names.write_walk(p, |p| self.data_address(p));
        p.place(copied);
        self.write_check(p, still);
        p.place(still);
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
            p.load(Size::Long, R3, R7, mount).add(R3, i32::from(field - fields.files.mount_inner));
        };
        of_mount(p, fields.files.mount_root);
        self.copy(p, scratch::FILE, 8, done);
        p.load(Size::Long, R1, R7, scratch::FILE).load(Size::Long, R2, R7, entry);
        p.jump_if(R1, JumpCondition::Differ, R2, done);
        of_mount(p, fields.files.mount_number);
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
        p.store(Size::Long, R7, scratch::NAMES, 0).store(Size::Long, R7, scratch::OPEN_FILE, 0);
        p.load(Size::Word, R1, R7, record::NUMBER);
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
        p.store(Size::Long, R7, scratch::TABLE_PLACE, R3);
        self.copy(p, scratch::FILE, 8, none);
        p.load(Size::Long, R3, R7, scratch::FILE).jump_if(R3, JumpCondition::Equal, 0, none);
        p.store(Size::Long, R7, scratch::OPEN_FILE, R3).add(R3, i32::from(fields.files.file_path));

        p.place(copy_path);
        file_names(fields).write_path(p, none);
        p.jump(known);
    }

    /// Zeroes all that was copied of the file, if its descriptor is another one's or closed since: what was read may have
    /// been the memory of anything else, also of another user.
    fn write_check(&self, p: &mut Assembler, still: Label) {
        let other = p.label();
        p.load(Size::Long, R3, R7, scratch::OPEN_FILE).jump_if(R3, JumpCondition::Equal, 0, still);
        p.load(Size::Long, R3, R7, scratch::TABLE_PLACE);
        self.copy(p, scratch::FILE, 8, other);
        p.load(Size::Long, R1, R7, scratch::FILE).load(Size::Long, R2, R7, scratch::OPEN_FILE);
        p.jump_if(R1, JumpCondition::Equal, R2, still).place(other);
        for word in [record::NAMES_OF, record::MODE, record::MOUNT, record::DEVICE] {
            p.store(Size::Word, R7, word, 0);
        }
        for word in [record::PEER, record::ADDRESS_LENGTH, record::SOCKET_TYPE] {
            p.store(Size::Word, R7, word, 0);
        }
        p.store(Size::Long, R7, record::INODE, 0).store(Size::Long, R7, scratch::NAMES, 0);
        self.write_no_address(p);
        p.load(Size::Word, R1, R7, record::FLAGS);
        p.calculate(Operation::And, R1, !(record::DELETED | record::WHOLE_PATH).cast_signed());
        p.store(Size::Word, R7, record::FLAGS, R1);
    }

    /// Copies `bytes` of the kernel from the address in `R3` into the record's room, or goes to `otherwise`.
    pub(super) fn copy(&self, p: &mut Assembler, to: i16, bytes: i32, otherwise: Label) {
        file_names::copy(p, to, bytes, otherwise);
    }
}

/// Returns the part that copies what a file is, for the rooms of these programs.
fn file_names(fields: &PathFields) -> FileNames<'_> {
    FileNames {
        offsets: &fields.files,
        room: WalkRoom {
            entry: scratch::ENTRY,
            mount: scratch::MOUNT,
            names: scratch::NAMES,
            address: scratch::FILE,
            inode: scratch::INODE,
            entry_copy: scratch::ENTRY_COPY,
            mount_copy: scratch::MOUNT_COPY,
        },
        record: FileNameRecord {
            flags: record::FLAGS,
            deleted: record::DELETED,
            whole: record::WHOLE_PATH,
            mode: record::MODE,
            inode: record::INODE,
            device: record::DEVICE,
            mount: record::MOUNT,
            name_bytes: record::NAME,
            names_limit: record::NAMES_LIMIT,
        },
    }
}
