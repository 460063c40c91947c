//! What is looked up for single entries only: access lists, hidden on NTFS, and the type by contents.

use std::ffi::CStr;
use std::path::Path;
use std::sync::OnceLock;

use sys::dir::OpenDirectory;

use super::entry::{EntryId, EntryKind};
use super::request::ListingRequest;
use xdg::mime::{Globs, Magic};

/// File systems that may keep the attribute "hidden": ntfs3, and programs that serve NTFS.
const WITH_HIDDEN: [u64; 2] = [0x7366_746e, 0x6573_5546];
/// The bit of "hidden" in a file's attributes on NTFS.
const HIDDEN: u8 = 2;

/// What is known of a single entry that was asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The entry.
    pub id: EntryId,
    /// Whether others than owner and group have permissions of their own (a POSIX access list).
    pub has_access_list: bool,
    /// Of a directory: whether new files get such permissions.
    pub has_default_list: bool,
    /// Whether it is marked as hidden; `None` where the file system has no such mark.
    pub is_hidden: Option<bool>,
    /// The MIME type by name and contents; empty if it could not be told.
    pub mime_type: Box<str>,
}

/// The MIME database, read when it is needed.
#[derive(Debug)]
pub(super) struct Types<'a> {
    request: &'a ListingRequest,
    globs: OnceLock<Globs>,
    magic: OnceLock<Magic>,
}

impl Types<'_> {
    pub(super) fn of(request: &ListingRequest) -> Types<'_> {
        Types { request, globs: OnceLock::new(), magic: OnceLock::new() }
    }

    fn directories(&self) -> impl DoubleEndedIterator<Item = &Path> {
        self.request.mime_directories.iter().map(AsRef::as_ref)
    }

    fn globs(&self) -> &Globs {
        self.globs.get_or_init(|| Globs::read(self.directories()))
    }

    /// The type by name alone.
    pub(super) fn by_name(&self, name: &[u8], kind: EntryKind) -> Option<&str> {
        special(kind).or_else(|| self.globs().type_of(name))
    }

    /// The type by name, and by contents where the name does not tell.
    fn by_contents(&self, directory: &OpenDirectory, name: &CStr, kind: EntryKind) -> Option<&str> {
        if let Some(special) = special(kind) {
            return Some(special);
        }
        let by_name = self.globs().types_of(name.to_bytes());
        if let [only] = by_name[..] {
            return Some(only);
        }
        let magic = self.magic.get_or_init(|| Magic::read(self.directories()));
        let begin = directory.begin_of(name, magic.furthest()).ok()?;
        let by_contents = magic.types_of(&begin);
        let both = by_name.iter().find(|name| by_contents.contains(name));
        let found = both.or(by_name.first()).or(by_contents.first()).copied();
        Some(found.unwrap_or(match &*begin {
            [] => "application/x-zerosize",
            text if is_text(text) => "text/plain",
            _ => "application/octet-stream",
        }))
    }
}

/// Looks an entry up.
pub(super) fn details(
    directory: &OpenDirectory,
    types: &Types<'_>,
    id: EntryId,
    name: &CStr,
    kind: EntryKind,
) -> Details {
    let has =
        |attribute: &CStr| kind != EntryKind::Link && directory.extended(name, attribute).is_some();
    let may_hide = directory.file_system().is_ok_and(|magic| WITH_HIDDEN.contains(&magic));
    let marks = || directory.extended(name, c"system.ntfs_attrib");
    Details {
        id,
        has_access_list: has(c"system.posix_acl_access"),
        has_default_list: kind == EntryKind::Directory && has(c"system.posix_acl_default"),
        is_hidden: may_hide
            .then(marks)
            .flatten()
            .and_then(|marks| marks.first().map(|low| low & HIDDEN != 0)),
        mime_type: types.by_contents(directory, name, kind).unwrap_or_default().into(),
    }
}

/// The types of what is no regular file.
fn special(kind: EntryKind) -> Option<&'static str> {
    match kind {
        EntryKind::Directory => Some("inode/directory"),
        EntryKind::Link => Some("inode/symlink"),
        EntryKind::Pipe => Some("inode/fifo"),
        EntryKind::Socket => Some("inode/socket"),
        EntryKind::CharacterDevice => Some("inode/chardevice"),
        EntryKind::BlockDevice => Some("inode/blockdevice"),
        EntryKind::File | EntryKind::Unknown => None,
    }
}

/// Whether the first bytes are those of a text: no control characters but white space and escape.
fn is_text(begin: &[u8]) -> bool {
    let control = |byte: &u8| *byte < 32 && !matches!(byte, 8..=13 | 27) || *byte == 127;
    !begin.iter().take(128).any(control)
}
