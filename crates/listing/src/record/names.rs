//! Names and types: a byte for the type, the end of the name, and the names one after another, each with a NUL.

use std::ffi::CStr;
use std::io;

use store::stream::StreamBuilder;

use super::bytes::{Parts, check_ends, pad, put_u32, string_of, u32_of};
use super::tag;
use crate::entry::{EntryId, EntryKind};
use crate::error::StreamFault;

const RECORD: &str = "names";

/// Names that are gathered to be one record.
#[derive(Clone, Debug, Default)]
pub struct NameRows {
    kinds: Vec<u8>,
    ends: Vec<u8>,
    arena: Vec<u8>,
}

impl NameRows {
    /// Adds a name.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` if the names together are over 4 GiB.
    pub fn push(&mut self, name: &CStr, kind: EntryKind) -> io::Result<()> {
        let bytes = name.to_bytes_with_nul();
        let end = u32::try_from(self.arena.len() + bytes.len());
        let end = end.map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.arena.extend_from_slice(bytes);
        put_u32(&mut self.ends, end);
        self.kinds.push(kind.number());
        Ok(())
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the name with this index and its type.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], EntryKind)> {
        let kind = EntryKind::from_number(*self.kinds.get(index)?);
        let name = string_of(&self.ends, &self.arena, index);
        Some((name.split_last().map_or(name, |(_, name)| name), kind))
    }

    /// Keeps those names from the index `start` on which `keep` says so, asked with their new index.
    pub(crate) fn retain_from(
        &mut self,
        start: usize,
        mut keep: impl FnMut(&[u8], EntryKind, usize) -> bool,
    ) {
        let end_of =
            |ends: &[u8], index: usize| index.checked_sub(1).map_or(0, |i| u32_of(ends, i));
        let Ok(first) = usize::try_from(end_of(&self.ends, start)) else { return };
        let tail = NameRows {
            kinds: self.kinds.split_off(start.min(self.kinds.len())),
            ends: self.ends.split_off((4 * start).min(self.ends.len())),
            arena: self.arena.split_off(first.min(self.arena.len())),
        };
        let mut begin = first;
        for (kind, end) in tail.kinds.iter().zip(tail.ends.chunks_exact(4)) {
            let end = usize::try_from(u32_of(end, 0)).unwrap_or(begin);
            let name = tail.arena.get(begin - first..end - first).unwrap_or_default();
            begin = end;
            let bare = name.split_last().map_or(name, |(_, name)| name);
            if keep(bare, EntryKind::from_number(*kind), self.len()) {
                self.arena.extend_from_slice(name);
                // It is no longer than it was.
                put_u32(&mut self.ends, u32::try_from(self.arena.len()).unwrap_or(u32::MAX));
                self.kinds.push(*kind);
            }
        }
    }

    /// Returns whether the type of some is not known.
    #[must_use]
    pub(crate) fn has_unknown(&self) -> bool {
        self.kinds.contains(&EntryKind::Unknown.number())
    }

    /// Adds the record of all names, the first of which gets the id `first`, and forgets them.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` if there are over 4 G of them, or of bytes.
    pub fn write(&mut self, first: EntryId, to: &mut StreamBuilder) -> io::Result<()> {
        let count = u32::try_from(self.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        to.record(tag::NAMES, |bytes| {
            put_u32(bytes, first);
            put_u32(bytes, count);
            bytes.extend_from_slice(&self.kinds);
            pad(bytes);
            bytes.extend_from_slice(&self.ends);
            pad(bytes);
            bytes.extend_from_slice(&self.arena);
        })?;
        self.kinds.clear();
        self.ends.clear();
        self.arena.clear();
        Ok(())
    }
}

/// A names record where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameView<'a> {
    pub(crate) first: EntryId,
    pub(crate) kinds: &'a [u8],
    ends: &'a [u8],
    arena: &'a [u8],
}

impl<'a> NameView<'a> {
    /// Takes the record apart, without looking at the names.
    pub(crate) fn of(payload: &'a [u8]) -> Result<NameView<'a>, StreamFault> {
        let mut parts = Parts::of(payload, RECORD);
        let first = parts.number()?;
        let count = parts.length()?;
        let (_, kinds) = parts.column(count, 1)?;
        let (_, ends) = parts.column(count, 4)?;
        let (_, _) = parts.column(0, 1)?;
        Ok(NameView { first, kinds, ends, arena: parts.rest() })
    }

    /// Looks at every name: not empty, no `/`, no NUL but the one at its end, not `.` and not `..`.
    pub(crate) fn check(&self) -> Result<(), StreamFault> {
        check_ends(self.ends, self.arena, RECORD)?;
        (0..self.len()).try_for_each(|index| check_name(string_of(self.ends, self.arena, index)))
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The ends of the names, and the names one after another.
    pub(crate) fn parts(&self) -> (&'a [u8], &'a [u8]) {
        (self.ends, self.arena)
    }

    /// The name with this index, without its NUL.
    pub(crate) fn name(&self, index: usize) -> &'a [u8] {
        let name = string_of(self.ends, self.arena, index);
        name.split_last().map_or(name, |(_, name)| name)
    }

    /// The name with this index, for a system call.
    pub(crate) fn c_name(&self, index: usize) -> &'a CStr {
        CStr::from_bytes_with_nul(string_of(self.ends, self.arena, index)).unwrap_or(c"")
    }
}

/// Entries that have another name now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenamedView<'a> {
    ids: &'a [u8],
    ends: &'a [u8],
    arena: &'a [u8],
}

impl<'a> RenamedView<'a> {
    pub(crate) fn of(payload: &'a [u8]) -> Result<RenamedView<'a>, StreamFault> {
        let mut parts = Parts::of(payload, "renamed");
        let count = parts.length()?;
        let (_, ids) = parts.column(count, 4)?;
        let (_, ends) = parts.column(count, 4)?;
        let (_, _) = parts.column(0, 1)?;
        let arena = parts.rest();
        check_ends(ends, arena, "renamed")?;
        (0..count).try_for_each(|index| check_name(string_of(ends, arena, index)))?;
        Ok(RenamedView { ids, ends, arena })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = (EntryId, &'a [u8])> {
        (0..self.ids.len() / 4).map(move |index| {
            let name = string_of(self.ends, self.arena, index);
            (u32_of(self.ids, index), name.split_last().map_or(name, |(_, name)| name))
        })
    }
}

/// Adds the record that says that these entries have these names now.
///
/// # Errors
///
/// `FileTooLarge` if it would be over 4 GiB.
pub fn renamed(changes: &[(EntryId, &CStr)], to: &mut StreamBuilder) -> io::Result<()> {
    let mut rows = NameRows::default();
    for (_, name) in changes {
        rows.push(name, EntryKind::Unknown)?;
    }
    let count = u32::try_from(changes.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    to.record(tag::RENAMED, |bytes| {
        put_u32(bytes, count);
        pad(bytes);
        changes.iter().for_each(|(id, _)| put_u32(bytes, *id));
        pad(bytes);
        bytes.extend_from_slice(&rows.ends);
        pad(bytes);
        bytes.extend_from_slice(&rows.arena);
    })
}

fn check_name(name: &[u8]) -> Result<(), StreamFault> {
    let wrong = Err(StreamFault::Value { record: RECORD, what: "name" });
    match name.split_last() {
        Some((0, b"" | b"." | b"..")) | None => wrong,
        Some((0, name)) if name.iter().any(|byte| matches!(byte, 0 | b'/')) => wrong,
        Some((0, _)) => Ok(()),
        Some(_) => wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_of_the_tail() {
        let mut rows = NameRows::default();
        for name in [c"a", c"bb", c"ccc", c"", c"dddd", c"e"] {
            rows.push(name, EntryKind::File).unwrap();
        }
        let mut asked = Vec::new();
        rows.retain_from(2, |name, _, index| {
            asked.push((name.len(), index));
            name != b"ccc" && name != b"dddd"
        });
        assert_eq!(asked, [(3, 2), (0, 2), (4, 3), (1, 3)]);
        let names: Vec<_> = (0..rows.len()).map(|index| rows.get(index).unwrap().0).collect();
        assert_eq!(names, [&b"a"[..], b"bb", b"", b"e"]);
        rows.retain_from(0, |_, _, _| false);
        assert!(rows.is_empty() && rows.get(0).is_none());
    }
}
