//! What a part puts in place.

use std::path::PathBuf;

use crate::part::SetupPart;

/// What a file is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedContents {
    /// A text.
    Text(Vec<u8>),
    /// The contents of another file.
    CopyOf(PathBuf),
    /// A symlink.
    Link(PathBuf),
}

/// A file that a part puts in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// The part.
    pub part: SetupPart,
    /// Where it will be, without the root of a package.
    pub path: PathBuf,
    /// What it is.
    pub contents: PlannedContents,
    /// Its permission bits.
    pub mode: u32,
}
