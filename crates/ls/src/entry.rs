//! What is shown of a file: its name, its attributes, where it leads if it is a link.

use listing::{Attributes, EntryKind};
use rustix::fs::Statx;

use super::moment::Moment;

/// Permission bits beside `rwx`.
pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
pub(super) const STICKY: u16 = 0o1000;

/// Which time is shown and sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeField {
    Modified,
    Accessed,
    Changed,
    Born,
}

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Where its name begins in the group's names.
    pub(super) start: u32,
    /// The length of its name in bytes.
    pub(super) length: u32,
    /// Its number in the group before it was sorted.
    pub(super) id: u32,
    /// The number of its link in the group, plus one; 0 if there is none.
    pub(super) link: u32,
    /// Its type.
    pub(super) kind: EntryKind,
    /// What else is known.
    pub(super) known: Known,
    /// What marks are shown behind its permissions.
    pub(super) mark: Mark,
    /// Type and permissions.
    pub(super) mode: u16,
    /// Number of the owner.
    pub(super) user: u32,
    /// Number of the group.
    pub(super) group: u32,
    /// How many names it has.
    pub(super) links: u32,
    /// Length in bytes; of a device its major and minor number instead.
    pub(super) size: u64,
    /// Number of the inode.
    pub(super) inode: u64,
    /// Blocks of 512 bytes on the disk.
    pub(super) blocks: u64,
    /// The time that is shown.
    pub(super) time: Moment,
}

/// How much is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Name and type, for nothing else was asked.
    Type,
    /// Everything.
    All,
    /// It could not be looked at.
    Failed,
}

/// What is shown behind permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    None,
    /// A plus: an access control list.
    Acl,
    /// For colours: it may do what its user may not.
    Capability,
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The text of the link.
    pub(super) target: Vec<u8>,
    /// Type and permissions of what is there, if something is.
    pub(super) mode: Option<u16>,
}

/// Files that are shown together: what is in a directory, or what was named.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// The names, one after another.
    pub(super) names: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    /// Entries that are shown elsewhere, but make columns wide here, as GNU ls does with directories that are named.
    pub(super) elsewhere: Vec<Entry>,
    pub(super) links: Vec<Link>,
    /// Everything that is known, by the entries' `id`; only for those who print it all.
    pub(super) details: Vec<Attributes>,
}

impl Group {
    /// Returns the name of an entry.
    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize;
        &self.names[start..start + entry.length as usize]
    }

    /// Returns the entries that columns must be wide enough for.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().chain(&self.elsewhere)
    }

    /// Returns where an entry leads.
    pub(super) fn link(&self, entry: &Entry) -> Option<&Link> {
        self.links.get((entry.link as usize).checked_sub(1)?)
    }

    /// Returns everything that is known of an entry.
    pub(super) fn detail(&self, entry: &Entry) -> Option<&Attributes> {
        self.details.get(entry.id as usize)
    }

    /// Adds a file of which only name and type are known.
    pub(super) fn add(&mut self, name: &[u8], kind: EntryKind) -> &mut Entry {
        // Names are counted in 32 bits by those who read them too; what is more has no name.
        let start = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(name.len()).unwrap_or(0);
        self.names.extend_from_slice(name);
        self.entries.push(Entry::new(start, length, kind));
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    /// Says where entry number `at` leads.
    pub(super) fn lead(&mut self, at: usize, link: Link) {
        self.links.push(link);
        self.entries[at].link = u32::try_from(self.links.len()).unwrap_or(0);
    }
}

impl Entry {
    fn new(start: u32, length: u32, kind: EntryKind) -> Entry {
        Entry {
            start,
            length,
            id: 0,
            link: 0,
            kind,
            known: Known::Type,
            mark: Mark::None,
            mode: 0,
            user: 0,
            group: 0,
            links: 0,
            size: 0,
            inode: 0,
            blocks: 0,
            time: Moment::default(),
        }
    }

    /// Takes what a listing knows.
    pub(super) fn take(&mut self, attributes: &Attributes, time: TimeField) {
        let stamp = match time {
            TimeField::Modified => attributes.modified,
            TimeField::Accessed => attributes.accessed,
            TimeField::Changed => attributes.changed,
            TimeField::Born => attributes.born,
        };
        self.known = Known::All;
        self.kind = attributes.kind;
        self.mode = attributes.mode;
        self.user = attributes.user;
        self.group = attributes.group;
        self.links = attributes.links;
        self.inode = attributes.inode;
        self.blocks = attributes.blocks;
        self.time = Moment { seconds: stamp.seconds, nanos: stamp.nanoseconds };
        let (major, minor) = attributes.device;
        self.size = if self.is_device() {
            u64::from(major) << 32 | u64::from(minor)
        } else {
            attributes.size
        };
    }

    /// Takes what `statx` said.
    pub(super) fn take_status(&mut self, status: &Statx, time: TimeField) {
        self.take(&attributes(status), time);
    }

    /// Says whether it is a device node.
    pub(super) fn is_device(&self) -> bool {
        matches!(self.kind, EntryKind::BlockDevice | EntryKind::CharacterDevice)
    }

    /// Returns the major and minor number of a device.
    pub(super) fn device(&self) -> (u64, u64) {
        (self.size >> 32, self.size & 0xffff_ffff)
    }

    /// Returns the length in bytes; a device has none.
    pub(super) fn bytes(&self) -> u64 {
        if self.is_device() { 0 } else { self.size }
    }
}

/// Turns what `statx` said into attributes.
pub(super) fn attributes(status: &Statx) -> Attributes {
    let stamp = |stamp: rustix::fs::StatxTimestamp| listing::FileTime {
        seconds: stamp.tv_sec,
        nanoseconds: stamp.tv_nsec,
    };
    Attributes {
        kind: EntryKind::from_mode(status.stx_mode),
        mode: status.stx_mode,
        size: status.stx_size,
        user: status.stx_uid,
        group: status.stx_gid,
        modified: stamp(status.stx_mtime),
        accessed: stamp(status.stx_atime),
        changed: stamp(status.stx_ctime),
        born: stamp(status.stx_btime),
        inode: status.stx_ino,
        links: status.stx_nlink,
        blocks: status.stx_blocks,
        device: (status.stx_rdev_major, status.stx_rdev_minor),
        ..Attributes::default()
    }
}

/// Returns type and permissions as letters: `drwxr-sr-t`.
pub(super) fn letters(kind: u8, mode: u16) -> [u8; 10] {
    let mut text = *b"-rwxrwxrwx";
    text[0] = kind;
    for (at, letter) in text.iter_mut().enumerate().skip(1) {
        if mode & (0o1000 >> at) == 0 {
            *letter = b'-';
        }
    }
    for (bit, at, letter) in [(SET_UID, 3, b's'), (SET_GID, 6, b's'), (STICKY, 9, b't')] {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_have_their_letters() {
        let shown = |mode| String::from_utf8(letters(b'-', mode).to_vec()).unwrap();
        assert_eq!(shown(0o644), "-rw-r--r--");
        assert_eq!(shown(0o7777), "-rwsrwsrwt");
        assert_eq!(shown(0o7000), "---S--S--T");
    }
}
