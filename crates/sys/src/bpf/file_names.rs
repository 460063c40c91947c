//! A part of a program in the kernel that copies what a file is: its inode, and its names up to the root of all.
//!
//! When user space looks, a descriptor may be another file's: a program that waits for `fsync` closes the file next, and
//! opens another one with the same number. So both are copied while the call or the operation ends: from the file's
//! directory entry up to the root of its mount, on to where that is mounted, and so on.

use super::assembler::{Assembler, Helper, JumpCondition, Label, Operation, Register, Size};
use super::btf::Types;

use Register::{R0, R1, R2, R3, R5, R7, R9};

/// What was copied of a file.
#[derive(Clone, Copy, Debug)]
pub struct CopiedFile<'a> {
    /// The names from it up to the root, each with a final zero.
    pub names: &'a [u8],
    /// Whether they go up to the root.
    pub is_whole: bool,
    /// Whether it has no name in its directory any more.
    pub is_deleted: bool,
    /// Its mode; 0 of what has none.
    pub mode: u32,
    /// Its inode number.
    pub inode: u64,
}

impl CopiedFile<'_> {
    /// Returns what `readlink /proc/PID/fd/N` said of it then: a path, or `socket:[4711]` and the like.
    #[must_use]
    pub fn link(&self) -> Vec<u8> {
        const KIND: u32 = 0o170_000;
        const SOCKET: u32 = 0o140_000;
        const PIPE: u32 = 0o010_000;
        let names = self.names.strip_suffix(&[0]).unwrap_or(self.names);
        let names: Vec<&[u8]> =
            if names.is_empty() { Vec::new() } else { names.rsplit(|byte| *byte == 0).collect() };
        if !self.is_whole {
            let name = names.last().copied().unwrap_or_default();
            return match self.mode & KIND {
                SOCKET => format!("socket:[{}]", self.inode).into_bytes(),
                PIPE => format!("pipe:[{}]", self.inode).into_bytes(),
                0 => [b"anon_inode:", name].concat(),
                // Memory with a descriptor has a name and no place.
                _ if name.starts_with(b"memfd:") => [b"/", name, b" (deleted)"].concat(),
                _ => [&b".../"[..], &names.join(&b'/')].concat(),
            };
        }
        let mut path = [&b"/"[..], &names.join(&b'/')].concat();
        if self.is_deleted {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }
}

/// The most steps up: names and mounts.
const STEPS: i32 = 40;

/// Where files, directory entries and mounts have what is copied.
#[derive(Clone, Copy, Debug)]
pub struct FileOffsets {
    /// `file`: mount and entry.
    pub file_path: i16,
    entry_parent: i16,
    entry_name: i16,
    entry_inode: i16,
    /// The place of an entry among the names of its directory; 0 when it has none any more.
    entry_hashed: i16,
    /// `mount`: the part of it that a path points to.
    pub mount_inner: i16,
    /// `mount`: its root.
    pub mount_root: i16,
    mount_parent: i16,
    mount_point: i16,
    /// `mount`: its number.
    pub mount_number: i16,
    inode_mode: i16,
    inode_number: i16,
    inode_system: i16,
    system_device: i16,
}

impl FileOffsets {
    /// The structures that [`read`](FileOffsets::read) looks into.
    pub const STRUCTURES: [&str; 6] = ["file", "dentry", "mount", "inode", "super_block", "path"];

    /// Reads them; none if the kernel has other structures than the known ones.
    #[must_use]
    pub fn read(types: &Types<'_>) -> Option<FileOffsets> {
        // A path is copied as a whole: the mount, then the entry.
        let is_known = types.offset("path", "mnt")? == 0 && types.offset("path", "dentry")? == 8;
        let offsets = FileOffsets {
            file_path: types.offset("file", "f_path")?,
            entry_parent: types.offset("dentry", "d_parent")?,
            entry_name: types.offset("dentry", "d_name.name")?,
            entry_inode: types.offset("dentry", "d_inode")?,
            entry_hashed: types.offset("dentry", "d_hash.pprev")?,
            mount_inner: types.offset("mount", "mnt")?,
            mount_root: types.offset("mount", "mnt.mnt_root")?,
            mount_parent: types.offset("mount", "mnt_parent")?,
            mount_point: types.offset("mount", "mnt_mountpoint")?,
            mount_number: types.offset("mount", "mnt_id")?,
            inode_mode: types.offset("inode", "i_mode")?,
            inode_number: types.offset("inode", "i_ino")?,
            inode_system: types.offset("inode", "i_sb")?,
            system_device: types.offset("super_block", "s_dev")?,
        };
        let of_entry =
            [offsets.entry_parent, offsets.entry_name, offsets.entry_inode, offsets.entry_hashed];
        let of_mount = [offsets.mount_root, offsets.mount_parent, offsets.mount_point];
        let fit =
            of_entry.iter().chain(&of_mount).all(|at| (0..=WalkRoom::COPY_BYTES - 8).contains(at));
        (is_known && fit).then_some(offsets)
    }
}

/// Where in the room in `R7` a walk up the directories has what it works with; each place of eight bytes.
#[derive(Clone, Copy, Debug)]
pub struct WalkRoom {
    /// The entry that is looked at. The caller sets it and `mount`.
    pub entry: i16,
    /// Its mount.
    pub mount: i16,
    /// Bytes of names so far.
    pub names: i16,
    /// An address.
    pub address: i16,
    /// The address of the inode.
    pub inode: i16,
    /// A copy of the beginning of a `struct dentry`, of [`COPY_BYTES`](WalkRoom::COPY_BYTES).
    pub entry_copy: i16,
    /// The same of a `struct mount`.
    pub mount_copy: i16,
}

impl WalkRoom {
    /// Bytes of each copy.
    pub const COPY_BYTES: i16 = 128;
}

/// Where in the room in `R7` the record has what is copied.
#[derive(Clone, Copy, Debug)]
pub struct FileNameRecord {
    /// Bits, of four bytes.
    pub flags: i16,
    /// The bit for a file that has no name in its directory any more.
    pub deleted: u32,
    /// The bit for names that go up to the root.
    pub whole: u32,
    /// Kind and rights, of four bytes.
    pub mode: i16,
    /// The inode's number, of eight bytes.
    pub inode: i16,
    /// Its device, of four bytes.
    pub device: i16,
    /// The number of its mount, of four bytes.
    pub mount: i16,
    /// The most bytes of one name, with its final zero.
    pub name_bytes: i32,
    /// Where names stop being added, so that one more fits.
    pub names_limit: i32,
}

/// Writes the part. Each method spoils `R0` to `R5`, and goes to `none` where something cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct FileNames<'a> {
    /// The kernel's structures.
    pub offsets: &'a FileOffsets,
    /// What is worked with.
    pub room: WalkRoom,
    /// What is written.
    pub record: FileNameRecord,
}

impl FileNames<'_> {
    /// Copies mount and entry of the `struct path` whose address is in `R3`. Spoils `R9`.
    pub fn write_path(&self, p: &mut Assembler, none: Label) {
        p.set(R9, R3);
        copy(p, self.room.mount, 8, none);
        p.set(R3, R9).add(R3, 8);
        copy(p, self.room.entry, 8, none);
    }

    /// Copies the entry, and of its inode what the record has.
    pub fn write_inode(&self, p: &mut Assembler, none: Label) {
        let FileNames { offsets, room, record } = self;
        p.load(Size::Long, R3, R7, room.entry).jump_if(R3, JumpCondition::Equal, 0, none);
        copy(p, room.entry_copy, i32::from(WalkRoom::COPY_BYTES), none);
        p.load(Size::Long, R3, R7, room.entry_copy + offsets.entry_inode);
        p.jump_if(R3, JumpCondition::Equal, 0, none).store(Size::Long, R7, room.inode, R3);
        p.store(Size::Word, R7, record.mode, 0).add(R3, i32::from(offsets.inode_mode));
        copy(p, record.mode, 2, none);
        p.load(Size::Long, R3, R7, room.inode).add(R3, i32::from(offsets.inode_number));
        copy(p, record.inode, 8, none);
        p.load(Size::Long, R3, R7, room.inode).add(R3, i32::from(offsets.inode_system));
        copy(p, room.address, 8, none);
        p.load(Size::Long, R3, R7, room.address).add(R3, i32::from(offsets.system_device));
        copy(p, record.device, 4, none);
    }

    /// Copies the mount, and notes a file without a name in its directory; the entry was copied.
    pub fn write_mount(&self, p: &mut Assembler, none: Label) {
        let FileNames { offsets, room, record } = self;
        p.store(Size::Long, R7, room.names, 0);
        p.load(Size::Long, R3, R7, room.mount).jump_if(R3, JumpCondition::Equal, 0, none);
        p.add(R3, -i32::from(offsets.mount_inner)).store(Size::Long, R7, room.mount, R3);
        copy(p, room.mount_copy, i32::from(WalkRoom::COPY_BYTES), none);
        p.load(Size::Long, R3, R7, room.mount).add(R3, i32::from(offsets.mount_number));
        copy(p, record.mount, 4, none);
        let has_name = p.label();
        p.load(Size::Long, R1, R7, room.entry_copy + offsets.entry_hashed);
        p.jump_if(R1, JumpCondition::Differ, 0, has_name);
        // The root of a file system has none either.
        p.load(Size::Long, R1, R7, room.entry_copy + offsets.entry_parent);
        p.load(Size::Long, R2, R7, room.entry).jump_if(R1, JumpCondition::Equal, R2, has_name);
        self.flag(p, record.deleted);
        p.place(has_name);
    }

    /// Goes up and adds names to where `data` leaves the address in `R1`; their bytes are in the room then. Spoils `R9`.
    ///
    /// Where it is is kept in memory, which the verifier does not follow: so each round looks the same to it, but for the
    /// count in `R9`.
    pub fn write_walk(&self, p: &mut Assembler, data: impl FnOnce(&mut Assembler)) {
        let FileNames { offsets, room, record } = self;
        let copied = i32::from(WalkRoom::COPY_BYTES);
        let (next, done, at_mount, whole) = (p.label(), p.label(), p.label(), p.label());
        p.set(R9, 0).place(next);
        p.jump_if(R9, JumpCondition::AtLeast, STEPS, done).add(R9, 1);
        p.load(Size::Long, R1, R7, room.entry);
        p.load(Size::Long, R2, R7, room.mount_copy + offsets.mount_root);
        p.jump_if(R1, JumpCondition::Equal, R2, at_mount).set(R3, R1);
        copy(p, room.entry_copy, copied, done);
        p.load(Size::Long, R5, R7, room.names);
        p.jump_if(R5, JumpCondition::Above, record.names_limit, done);
        p.load(Size::Long, R3, R7, room.entry_copy + offsets.entry_name);
        data(p);
        p.add(R1, R5).set(R2, record.name_bytes).call(Helper::ReadKernelText);
        p.jump_if(R0, JumpCondition::SignedAtMost, 0, done);
        p.load(Size::Long, R5, R7, room.names).add(R5, R0).store(Size::Long, R7, room.names, R5);
        p.load(Size::Long, R1, R7, room.entry_copy + offsets.entry_parent);
        p.load(Size::Long, R2, R7, room.entry).jump_if(R1, JumpCondition::Equal, R2, done);
        p.store(Size::Long, R7, room.entry, R1).jump(next);

        p.place(at_mount).load(Size::Long, R3, R7, room.mount_copy + offsets.mount_parent);
        p.load(Size::Long, R1, R7, room.mount).jump_if(R1, JumpCondition::Equal, R3, whole);
        p.store(Size::Long, R7, room.mount, R3);
        p.load(Size::Long, R1, R7, room.mount_copy + offsets.mount_point);
        p.store(Size::Long, R7, room.entry, R1);
        copy(p, room.mount_copy, copied, done);
        p.jump(next).place(whole);
        self.flag(p, record.whole);
        p.place(done);
    }

    fn flag(&self, p: &mut Assembler, flag: u32) {
        p.load(Size::Word, R1, R7, self.record.flags);
        p.calculate(Operation::Or, R1, flag.cast_signed());
        p.store(Size::Word, R7, self.record.flags, R1);
    }
}

/// Copies `bytes` of the kernel from the address in `R3` to `to` of the room in `R7`, or goes to `otherwise`. Spoils `R0` to `R5`.
pub fn copy(p: &mut Assembler, to: i16, bytes: i32, otherwise: Label) {
    p.set(R1, R7).add(R1, i32::from(to)).set(R2, bytes).call(Helper::ReadKernel);
    p.jump_if(R0, JumpCondition::Differ, 0, otherwise);
}
