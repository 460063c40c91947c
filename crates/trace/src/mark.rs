//! Marks: moments that a program names itself, by looking up a file that does not exist.
//!
//! `access("/unjank-mark/first-frame", F_OK)` says that the phase `first-frame` begins. Any call that looks up a name does, in
//! any language, without a library and without a tracer; it fails with `ENOENT` and costs a microsecond.

use std::io;

use rustix::fs::{Access, access};

/// The directory of marks, which does not exist.
pub const DIRECTORY: &str = "/unjank-mark/";

/// The first eight bytes of each mark's path, as a number in memory: what programs in the kernel compare.
pub(crate) const BEGINNING: u64 = kerneltrace::programs::MARK_BEGINNING;

/// How the look-up of a mark fails: `ENOENT`.
pub const NOT_FOUND: i32 = 2;

/// The longest name of a mark.
const LONGEST: usize = 64;

/// A moment that a program named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedMark {
    /// The name.
    pub name: String,
    /// The process that named it.
    pub process: u32,
    /// When, in nanoseconds since the recording began.
    pub at_ns: u64,
}

/// Returns whether a text is the name of a mark: up to 64 letters, digits, `.`, `_` and `-` of ASCII.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns the name of the mark whose path was looked up; none of any other path.
#[must_use]
pub fn name_of(path: &[u8]) -> Option<&str> {
    let name = str::from_utf8(path.strip_prefix(DIRECTORY.as_bytes())?).ok()?;
    is_name(name).then_some(name)
}

/// Sets a mark in the recording of whoever traces this process; nothing happens without a tracer.
///
/// # Errors
///
/// The name is not one of a mark, or there is a file of that name, so that looking it up says nothing.
pub fn set(name: &str) -> io::Result<()> {
    if !is_name(name) {
        let why = "a mark has up to 64 letters, digits, '.', '_' and '-'";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    match access(format!("{DIRECTORY}{name}"), Access::EXISTS) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of that name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_mark_has_its_name_and_no_other_path_has_one() {
        assert_eq!(name_of(b"/unjank-mark/first-frame"), Some("first-frame"));
        for other in [&b"/unjank-mark/"[..], b"/unjank-mark/a/b", b"/unjank-mark/a\nb", b"/tmp/a"] {
            assert_eq!(name_of(other), None);
        }
        assert_eq!(name_of(format!("{DIRECTORY}{}", "x".repeat(65)).as_bytes()), None);
        assert!(set("quit").is_ok() && set("../etc").is_err());
        assert!(DIRECTORY.as_bytes().starts_with(&BEGINNING.to_le_bytes()));
    }
}
