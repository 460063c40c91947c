//! What a listing is asked for, beside names and types.

use std::ops::{BitOr, BitOrAssign};

/// A set of attributes. Only what is asked for is read, kept and passed on; the type of an entry always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fields(u32);

impl Fields {
    /// Names and types alone.
    pub const NONE: Fields = Fields(0);
    /// Length in bytes.
    pub const SIZE: Fields = Fields(1);
    /// Permissions, and the type as the inode has it.
    pub const MODE: Fields = Fields(1 << 1);
    /// Numbers of user and group.
    pub const OWNER: Fields = Fields(1 << 2);
    /// When the contents changed last.
    pub const MODIFIED: Fields = Fields(1 << 3);
    /// When it was read last.
    pub const ACCESSED: Fields = Fields(1 << 4);
    /// When contents or attributes changed last.
    pub const CHANGED: Fields = Fields(1 << 5);
    /// When it was made, where the file system keeps that.
    pub const BORN: Fields = Fields(1 << 6);
    /// The number of the inode.
    pub const INODE: Fields = Fields(1 << 7);
    /// How many names the inode has.
    pub const LINKS: Fields = Fields(1 << 8);
    /// What it takes on the disk, in blocks of 512 bytes.
    pub const BLOCKS: Fields = Fields(1 << 9);
    /// Of a device node: which device.
    pub const DEVICE: Fields = Fields(1 << 10);
    /// The device of the file system that it is on; differs from the directory's at a mount point.
    pub const FILE_SYSTEM: Fields = Fields(1 << 11);
    /// Of a link: where it leads, and the mode of what is there.
    pub const TARGET: Fields = Fields(1 << 12);
    /// The MIME type by name and type.
    pub const MIME_TYPE: Fields = Fields(1 << 13);
    /// The names of users and groups, once for each; implies their numbers.
    pub const OWNER_NAMES: Fields = Fields(1 << 14);
    /// All four times.
    pub const TIMES: Fields =
        Fields::MODIFIED.union(Fields::ACCESSED).union(Fields::CHANGED).union(Fields::BORN);
    /// What a detailed view shows: size, mode, owner, times, inode.
    pub const DEFAULT: Fields = Fields::SIZE
        .union(Fields::MODE)
        .union(Fields::OWNER)
        .union(Fields::TIMES)
        .union(Fields::INODE);

    /// The type alone, for entries whose type the directory did not tell; of chunks, not asked for.
    pub(super) const KIND: Fields = Fields(1 << 15);
    /// Everything that is known here.
    const ALL: Fields = Fields((1 << 16) - 1);

    /// Returns both together.
    #[must_use]
    pub const fn union(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    /// Returns what is in both.
    #[must_use]
    pub const fn intersection(self, other: Fields) -> Fields {
        Fields(self.0 & other.0)
    }

    /// Returns what is here and not in `other`.
    #[must_use]
    pub const fn without(self, other: Fields) -> Fields {
        Fields(self.0 & !other.0)
    }

    /// Says whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }

    /// Says whether nothing is asked for beside names and types.
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
    pub const fn from_bits(bits: u32) -> Option<Fields> {
        if bits & !Fields::ALL.0 == 0 { Some(Fields(bits)) } else { None }
    }
}

impl BitOr for Fields {
    type Output = Fields;

    fn bitor(self, other: Fields) -> Fields {
        self.union(other)
    }
}

impl BitOrAssign for Fields {
    fn bitor_assign(&mut self, other: Fields) {
        *self = self.union(other);
    }
}
