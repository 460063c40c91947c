//! What an index was made of: directories and files with what each was then, so that a change is noticed.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::identity::{Identity, NUMBERS};

/// A part of an index, which is made of files of its own: who asks one part needs not look at the others'.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum IndexPart {
    /// Plugins of Qt.
    Plugins,
    /// Applications.
    Applications,
    /// Which MIME type is a kind of which.
    Types,
    /// Which application opens what.
    Openers,
    /// GIO modules.
    Gio,
}

impl IndexPart {
    /// All parts.
    pub const ALL: [IndexPart; 5] = [
        IndexPart::Plugins,
        IndexPart::Applications,
        IndexPart::Types,
        IndexPart::Openers,
        IndexPart::Gio,
    ];
    /// What decides which plugins there are for a MIME type.
    pub const OF_PLUGINS: [IndexPart; 2] = [IndexPart::Plugins, IndexPart::Types];
    /// What decides which application opens a MIME type.
    pub const OF_OPENERS: [IndexPart; 3] =
        [IndexPart::Applications, IndexPart::Types, IndexPart::Openers];

    fn letter(self) -> u8 {
        match self {
            IndexPart::Plugins => b'p',
            IndexPart::Applications => b'a',
            IndexPart::Types => b't',
            IndexPart::Openers => b'o',
            IndexPart::Gio => b'g',
        }
    }

    fn of_letter(letter: u8) -> Option<IndexPart> {
        IndexPart::ALL.into_iter().find(|part| part.letter() == letter)
    }
}

/// A directory or file, and what it was when the index was made.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) part: IndexPart,
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// How many of those that follow are below it.
    pub(super) below: u32,
}

impl Input {
    pub(super) fn new(part: IndexPart, path: PathBuf, identity: Identity) -> Input {
        Input { part, path, identity, below: 0 }
    }

    /// Puts it behind others, as the index keeps it.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.part.letter());
        bytes.extend(self.below.to_le_bytes());
        bytes.extend(self.identity.to_bytes());
        // With its zero, as a system call wants it; no path from a directory has one inside.
        let path = self.path.as_os_str().as_bytes();
        bytes.extend(u32::try_from(path.len() + 1).unwrap_or(0).to_le_bytes());
        bytes.extend(path);
        bytes.push(0);
    }
}

/// An input, borrowed from the index.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedInput<'a> {
    /// What was read from it.
    pub part: IndexPart,
    /// Its path.
    pub path: &'a CStr,
    /// What it was.
    pub identity: Identity,
    below: u32,
}

impl<'a> BorrowedInput<'a> {
    /// Returns how many of the inputs that follow are below it.
    pub(super) fn below(&self) -> u32 {
        self.below
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &'a Path {
        super::path_of(self.path.to_bytes())
    }
}

/// All inputs of an index, in their order; they end where the bytes stop making sense.
#[derive(Clone, Debug)]
pub(super) struct Inputs<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Inputs<'a> {
    type Item = BorrowedInput<'a>;

    fn next(&mut self) -> Option<BorrowedInput<'a>> {
        let (letter, rest) = self.0.split_first()?;
        let (below, rest) = rest.split_first_chunk()?;
        let (identity, mut rest) = rest.split_first_chunk::<{ NUMBERS * 8 }>()?;
        let path = CStr::from_bytes_with_nul(super::take(&mut rest)?).ok()?;
        self.0 = rest;
        Some(BorrowedInput {
            part: IndexPart::of_letter(*letter)?,
            path,
            identity: Identity::from_bytes(identity),
            below: u32::from_le_bytes(*below),
        })
    }
}

/// From how many directories below it on opening a directory pays: the way to each is shorter then.
const OPENED_FROM: u32 = 8;

/// A directory that is open while what is below it is looked at.
struct Anchor<'a> {
    directory: OwnedFd,
    path: &'a CStr,
    left: u32,
}

/// Returns the inputs that decide which plugins there are in `namespace`: the roots, and the directories on the way to it.
pub(super) fn of_namespace<'a>(
    inputs: Inputs<'a>,
    namespace: &str,
) -> impl Iterator<Item = BorrowedInput<'a>> {
    let mut root: Option<(&CStr, u32)> = None;
    let wanted = inputs.filter(move |input| {
        if input.part != IndexPart::Plugins {
            return false;
        }
        match &mut root {
            Some((root, left)) if *left > 0 => {
                *left -= 1;
                let rest = below(root, input.path).map(CStr::to_bytes);
                let rest = rest.and_then(|rest| namespace.as_bytes().strip_prefix(rest));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            }
            _ => {
                root = Some((input.path, input.below));
                true
            }
        }
    });
    // One or two below a root: to open it would take longer.
    wanted.map(|input| BorrowedInput { below: 0, ..input })
}

/// Returns the directories of plugins that count more than `last`, and it; all of them where there is none.
pub(super) fn up_to<'a>(
    inputs: Inputs<'a>,
    last: Option<&Path>,
) -> impl Iterator<Item = BorrowedInput<'a>> {
    let mut is_passed = false;
    let plugins = inputs.filter(|input| input.part == IndexPart::Plugins);
    plugins.take_while(move |input| {
        // What is below a directory comes behind it, and counts less than the files beside it.
        let is_wanted = !is_passed;
        is_passed |= last == Some(input.path());
        is_wanted
    })
}

/// Returns the first of these inputs that is no longer what it was.
pub(super) fn changed<'a>(inputs: impl Iterator<Item = BorrowedInput<'a>>) -> Option<&'a Path> {
    let mut anchor: Option<Anchor<'a>> = None;
    for input in inputs {
        anchor = anchor.filter(|anchor| anchor.left > 0);
        let now = match &mut anchor {
            Some(anchor) => {
                anchor.left -= 1;
                match below(anchor.path, input.path) {
                    Some(rest) => Identity::at(&anchor.directory, rest),
                    None => Identity::at(CWD, input.path),
                }
            }
            None if input.below >= OPENED_FROM => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                match rustix::fs::open(input.path, flags, Mode::empty()) {
                    Ok(directory) => {
                        let now = Identity::of_open(&directory);
                        anchor = Some(Anchor { directory, path: input.path, left: input.below });
                        now
                    }
                    Err(_) => Identity::at(CWD, input.path),
                }
            }
            None => Identity::at(CWD, input.path),
        };
        if !input.identity.is_still(now, CWD, input.path) {
            return Some(input.path());
        }
    }
    None
}

/// Returns the part of a path that is below a directory.
fn below<'a>(directory: &CStr, path: &'a CStr) -> Option<&'a CStr> {
    let rest = path.to_bytes_with_nul().strip_prefix(directory.to_bytes())?;
    CStr::from_bytes_with_nul(rest.strip_prefix(b"/")?).ok()
}

impl Identity {
    /// Looks at a path below a directory, links followed.
    fn at(directory: impl std::os::fd::AsFd, path: &CStr) -> Identity {
        rustix::fs::statat(directory, path, AtFlags::empty())
            .map_or(Identity::ABSENT, |found| Identity::of_stat(&found))
    }

    fn of_open(file: &OwnedFd) -> Identity {
        rustix::fs::fstat(file).map_or(Identity::ABSENT, |found| Identity::of_stat(&found))
    }
}
