//! What is known of one entry.

use super::fields::AttributeSet;

/// The order in which a name arrived within one listing. It never changes and is never given twice.
pub type EntryId = u32;

/// The type of an entry; a link is a link, wherever it leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Not known: the directory does not tell and the entry could not be looked at.
    #[default]
    Unknown = 0,
    /// A named pipe.
    Pipe = 1,
    /// A character device.
    CharacterDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    File = 8,
    /// A symbolic link.
    Link = 10,
    /// A socket.
    Socket = 12,
}

impl EntryKind {
    /// Returns the type with this number of `d_type`; numbers that mean nothing are unknown.
    #[must_use]
    pub const fn from_number(number: u8) -> EntryKind {
        match number {
            1 => EntryKind::Pipe,
            2 => EntryKind::CharacterDevice,
            4 => EntryKind::Directory,
            6 => EntryKind::BlockDevice,
            8 => EntryKind::File,
            10 => EntryKind::Link,
            12 => EntryKind::Socket,
            _ => EntryKind::Unknown,
        }
    }

    /// Returns the type in the upper bits of an `st_mode`.
    #[must_use]
    pub const fn from_mode(mode: u16) -> EntryKind {
        EntryKind::from_number(mode.to_be_bytes()[0] >> 4)
    }

    /// Returns the number of `d_type`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// A moment, as file systems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970-01-01 00:00 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The attributes of one entry. What was not asked for, or is not kept by the file system, is not in `fields` and 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Which of the following are known.
    pub fields: AttributeSet,
    /// The type.
    pub kind: EntryKind,
    /// The kind and permissions, as `st_mode`.
    pub mode: u16,
    /// Length in bytes.
    pub size: u64,
    /// Number of the user.
    pub user: u32,
    /// Number of the group.
    pub group: u32,
    /// When the contents changed last.
    pub modified: FileTime,
    /// When it was read last.
    pub accessed: FileTime,
    /// When contents or attributes changed last.
    pub changed: FileTime,
    /// When it was made; not in `fields` where the file system does not keep it.
    pub born: FileTime,
    /// Number of the inode.
    pub inode: u64,
    /// How many names the inode has.
    pub links: u32,
    /// Blocks of 512 bytes on the disk.
    pub blocks: u64,
    /// Of a device node: major and minor number.
    pub device: (u32, u32),
    /// The file system's device: major and minor number.
    pub file_system: (u32, u32),
    /// Of a link: the mode of what it leads to, 0 if it leads nowhere.
    pub target_mode: u16,
    /// Of a link: the number of the string with its target; see [`Entries::string`](super::Entries::string).
    pub target: StringId,
    /// The number of the string with the MIME type.
    pub mime_type: StringId,
}

/// The number of a string that is kept once in a listing; 0 is none.
pub type StringId = u32;

/// Why nothing is known of an entry beside its name and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFailure {
    /// It was gone when it was looked at.
    Vanished,
    /// We may not look at it.
    Denied,
    /// Any other error, by its number.
    Other(i32),
}

impl EntryFailure {
    /// Returns the failure with this error number.
    #[must_use]
    pub fn from_number(number: i32) -> EntryFailure {
        match std::io::Error::from_raw_os_error(number).kind() {
            std::io::ErrorKind::NotFound => EntryFailure::Vanished,
            std::io::ErrorKind::PermissionDenied => EntryFailure::Denied,
            _ => EntryFailure::Other(number),
        }
    }
}
