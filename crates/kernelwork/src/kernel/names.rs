//! What the file of an operation is, copied while the operation ends.

use sys::bpf::assembler::{Assembler, JumpCondition, Register, Size};
use sys::bpf::file_names::{FileNameRecord, FileNames, FileOffsets, WalkRoom};

use super::layout::{record, room};
use super::offsets::RingOffsets;
use super::programs::{WorkPlan, frame};

use Register::{R1, R3, R7, R10};

/// Returns the part that copies what a file is, for the room of these programs.
fn file_names(offsets: &FileOffsets) -> FileNames<'_> {
    FileNames {
        offsets,
        room: WalkRoom {
            entry: room::ENTRY,
            mount: room::MOUNT,
            names: room::FOUND,
            address: room::FILE,
            inode: room::INODE,
            entry_copy: room::ENTRY_COPY,
            mount_copy: room::MOUNT_COPY,
        },
        record: FileNameRecord {
            flags: record::FLAGS,
            deleted: record::DELETED,
            whole: record::WHOLE,
            mode: record::MODE,
            inode: record::INODE,
            device: record::DEVICE,
            mount: record::MOUNT,
            name_bytes: room::NAME,
            names_limit: room::NAMES_LIMIT,
        },
    }
}

impl WorkPlan {
    /// Notes which file the operation worked on. Spoils `R9`.
    pub(super) fn write_file(&self, p: &mut Assembler, offsets: &RingOffsets) {
        let Some(files) = &offsets.files else { return };
        let none = p.label();
        p.load(Size::Long, R3, R10, frame::REQUEST).add(R3, i32::from(offsets.request_file));
        self.copy(p, room::FILE, 8, none);
        p.load(Size::Long, R3, R7, room::FILE).jump_if(R3, JumpCondition::Equal, 0, none);
        p.add(R3, i32::from(files.file_path));
        let names = file_names(files);
        names.write_path(p, none);
        names.write_inode(p, none);
        self.flag(p, record::FILE);
        p.place(none);
    }

    /// Adds the names of the file that was noted. Spoils `R9`.
    pub(super) fn write_names(&self, p: &mut Assembler, files: &FileOffsets) {
        let none = p.label();
        let names = file_names(files);
        names.write_mount(p, none);
        names.write_walk(p, |p| {
            p.set(R1, R7).add(R1, i32::from(record::DATA));
        });
        p.load(Size::Long, R1, R7, room::FOUND).store(Size::Word, R7, record::LENGTH, R1);
        self.flag(p, record::NAMED);
        p.place(none);
    }
}
