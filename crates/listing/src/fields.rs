//! What a listing is asked for, beside names and types.

use std::ops::{BitOr, BitOrAssign};

/// A set of attributes. Only what is asked for is read, kept and passed on; the type of an entry always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttributeSet(u32);

impl AttributeSet {
    /// Names and types alone.
    pub const NONE: AttributeSet = AttributeSet(0);
    /// Length in bytes.
    pub const SIZE: AttributeSet = AttributeSet(1);
    /// Permissions, and the type as the inode has it.
    pub const MODE: AttributeSet = AttributeSet(1 << 1);
    /// Numbers of user and group.
    pub const OWNER: AttributeSet = AttributeSet(1 << 2);
    /// When the contents changed last.
    pub const MODIFIED: AttributeSet = AttributeSet(1 << 3);
    /// When it was read last.
    pub const ACCESSED: AttributeSet = AttributeSet(1 << 4);
    /// When contents or attributes changed last.
    pub const CHANGED: AttributeSet = AttributeSet(1 << 5);
    /// When it was made, where the file system keeps that.
    pub const BORN: AttributeSet = AttributeSet(1 << 6);
    /// The number of the inode.
    pub const INODE: AttributeSet = AttributeSet(1 << 7);
    /// How many names the inode has.
    pub const LINKS: AttributeSet = AttributeSet(1 << 8);
    /// What it takes on the disk, in blocks of 512 bytes.
    pub const BLOCKS: AttributeSet = AttributeSet(1 << 9);
    /// Of a device node: which device.
    pub const DEVICE: AttributeSet = AttributeSet(1 << 10);
    /// The device of the file system that it is on; differs from the directory's at a mount point.
    pub const FILE_SYSTEM: AttributeSet = AttributeSet(1 << 11);
    /// Of a link: where it leads, and the mode of what is there.
    pub const TARGET: AttributeSet = AttributeSet(1 << 12);
    /// The MIME type by name and type.
    pub const MIME_TYPE: AttributeSet = AttributeSet(1 << 13);
    /// The names of users and groups, once for each; implies their numbers.
    pub const OWNER_NAMES: AttributeSet = AttributeSet(1 << 14);
    /// All four times.
    pub const TIMES: AttributeSet = AttributeSet::MODIFIED
        .union(AttributeSet::ACCESSED)
        .union(AttributeSet::CHANGED)
        .union(AttributeSet::BORN);
    /// What a detailed view shows: size, mode, owner, times, inode.
    pub const DEFAULT: AttributeSet = AttributeSet::SIZE
        .union(AttributeSet::MODE)
        .union(AttributeSet::OWNER)
        .union(AttributeSet::TIMES)
        .union(AttributeSet::INODE);

    /// The type alone, for entries whose type the directory did not tell; of chunks, not asked for.
    pub(super) const KIND: AttributeSet = AttributeSet(1 << 15);
    /// Everything that is known here.
    const ALL: AttributeSet = AttributeSet((1 << 16) - 1);

    /// Returns both together.
    #[must_use]
    pub const fn union(self, other: AttributeSet) -> AttributeSet {
        AttributeSet(self.0 | other.0)
    }

    /// Returns what is here and not in `other`.
    #[must_use]
    pub const fn without(self, other: AttributeSet) -> AttributeSet {
        AttributeSet(self.0 & !other.0)
    }

    /// Returns whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: AttributeSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether nothing is asked for beside names and types.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set as a number, for chunks and messages.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set of this number, `None` if it holds what is not known here.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<AttributeSet> {
        if bits & !AttributeSet::ALL.0 == 0 { Some(AttributeSet(bits)) } else { None }
    }
}

impl BitOr for AttributeSet {
    type Output = AttributeSet;

    fn bitor(self, other: AttributeSet) -> AttributeSet {
        self.union(other)
    }
}

impl BitOrAssign for AttributeSet {
    fn bitor_assign(&mut self, other: AttributeSet) {
        *self = self.union(other);
    }
}
