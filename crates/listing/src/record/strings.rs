//! Strings that attributes speak of by number, each sent once in a listing.

use std::io;

use store::stream::StreamBuilder;

use super::bytes::{Parts, check_ends, pad, put_u32, string_of};
use super::tag;
use crate::entry::StringId;
use crate::error::StreamFault;

/// Strings that are gathered to be one record.
#[derive(Clone, Debug, Default)]
pub(crate) struct StringRows {
    ends: Vec<u8>,
    arena: Vec<u8>,
}

impl StringRows {
    pub(crate) fn push(&mut self, string: &[u8]) -> io::Result<()> {
        self.arena.extend_from_slice(string);
        let end = u32::try_from(self.arena.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        put_u32(&mut self.ends, end);
        Ok(())
    }

    /// The ends of the strings, and the strings one after another.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        (&self.ends, &self.arena)
    }

    /// Adds the record of all strings, the first of which has the number `first`, and forgets them.
    pub(crate) fn write(&mut self, first: StringId, to: &mut StreamBuilder) -> io::Result<()> {
        let count = u32::try_from(self.ends.len() / 4).map_err(|_| io::ErrorKind::FileTooLarge)?;
        to.record(tag::STRINGS, |bytes| {
            put_u32(bytes, first);
            put_u32(bytes, count);
            bytes.extend_from_slice(&self.ends);
            pad(bytes);
            bytes.extend_from_slice(&self.arena);
        })?;
        self.ends.clear();
        self.arena.clear();
        Ok(())
    }
}

/// A strings record where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StringView<'a> {
    pub(crate) first: StringId,
    ends: &'a [u8],
    arena: &'a [u8],
}

impl<'a> StringView<'a> {
    pub(crate) fn of(payload: &'a [u8]) -> Result<StringView<'a>, StreamFault> {
        let mut parts = Parts::of(payload, "strings");
        let first = parts.number()?;
        let count = parts.length()?;
        let (_, ends) = parts.column(count, 4)?;
        let (_, _) = parts.column(0, 1)?;
        Ok(StringView { first, ends, arena: parts.rest() })
    }

    pub(crate) fn check(&self) -> Result<(), StreamFault> {
        check_ends(self.ends, self.arena, "strings")
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len() / 4
    }

    pub(crate) fn string(&self, index: usize) -> &'a [u8] {
        string_of(self.ends, self.arena, index)
    }
}
