//! The small records: who owns, what failed, what is gone, and that it is done.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use store::stream::StreamBuilder;

use super::bytes::{Parts, put_u32, u32_of};
use super::tag;
use crate::details::Details;
use crate::entry::{EntryId, StringId};
use crate::error::{Failure, ListingStep, StreamFault};

/// Whether a number is a user's or a group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerKind {
    User,
    Group,
}

/// The name of a user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) kind: OwnerKind,
    pub(crate) number: u32,
    pub(crate) name: StringId,
}

pub(crate) fn owners_of(payload: &[u8]) -> Result<Vec<Owner>, StreamFault> {
    let (rows, []) = payload.as_chunks::<12>() else {
        return Err(StreamFault::Length { record: "owners" });
    };
    let owner = |row: &[u8; 12]| {
        let kind = match u32_of(row, 0) {
            0 => OwnerKind::User,
            1 => OwnerKind::Group,
            _ => return Err(StreamFault::Value { record: "owners", what: "kind" }),
        };
        Ok(Owner { kind, number: u32_of(row, 1), name: u32_of(row, 2) })
    };
    rows.iter().map(owner).collect()
}

/// Adds the record of these names.
pub(crate) fn owners(owners: &[Owner], to: &mut StreamBuilder) -> io::Result<()> {
    to.record(tag::OWNERS, |bytes| {
        for owner in owners {
            put_u32(bytes, u32::from(owner.kind == OwnerKind::Group));
            put_u32(bytes, owner.number);
            put_u32(bytes, owner.name);
        }
    })
}

/// Adds the record that the directory itself failed.
///
/// # Errors
///
/// `FileTooLarge`, which no path is long enough for.
pub fn failure(failure: &Failure, to: &mut StreamBuilder) -> io::Result<()> {
    to.record(tag::FAILURE, |bytes| {
        put_u32(bytes, failure.step as u32);
        bytes.extend_from_slice(&failure.number.to_le_bytes());
        bytes.extend_from_slice(failure.path.as_os_str().as_bytes());
    })
}

pub(crate) fn failure_of(payload: &[u8]) -> Result<Failure, StreamFault> {
    let mut parts = Parts::of(payload, "failure");
    let step = ListingStep::from_number(parts.number()?);
    let step = step.ok_or(StreamFault::Value { record: "failure", what: "step" })?;
    let number = parts.number()?.cast_signed();
    Ok(Failure { path: PathBuf::from(OsStr::from_bytes(parts.rest())), step, number })
}

/// Adds the record that these entries are gone.
///
/// # Errors
///
/// `FileTooLarge` if there are over a billion.
pub fn removed(ids: &[EntryId], to: &mut StreamBuilder) -> io::Result<()> {
    to.record(tag::REMOVED, |bytes| ids.iter().for_each(|id| put_u32(bytes, *id)))
}

pub(crate) fn removed_of(payload: &[u8]) -> Result<Vec<EntryId>, StreamFault> {
    let (rows, []) = payload.as_chunks::<4>() else {
        return Err(StreamFault::Length { record: "removed" });
    };
    Ok(rows.iter().map(|row| u32::from_le_bytes(*row)).collect())
}

/// What is said at the end of the first reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstReadingEnd {
    /// How many names there are.
    pub(crate) entries: u32,
}

/// Adds the record that everything was read once, `entries` names in all.
///
/// # Errors
///
/// None that can happen.
pub fn done(entries: u32, to: &mut StreamBuilder) -> io::Result<()> {
    to.record(tag::DONE, |bytes| put_u32(bytes, entries))
}

pub(crate) fn done_of(payload: &[u8]) -> Result<FirstReadingEnd, StreamFault> {
    let mut parts = Parts::of(payload, "done");
    let entries = parts.number()?;
    parts.end()?;
    Ok(FirstReadingEnd { entries })
}

/// Adds the record that everything was told that had changed when the question of this number was received.
///
/// # Errors
///
/// None that can happen.
pub fn checked(question: u32, to: &mut StreamBuilder) -> io::Result<()> {
    to.record(tag::CHECKED, |bytes| put_u32(bytes, question))
}

/// Reads the number of a question, or of its answer.
pub(crate) fn question_of(payload: &[u8]) -> Result<u32, StreamFault> {
    let mut parts = Parts::of(payload, "check");
    let question = parts.number()?;
    parts.end()?;
    Ok(question)
}

/// Adds the record of what is known of a single entry.
pub(crate) fn details(details: &Details, to: &mut StreamBuilder) -> io::Result<()> {
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    let flags = bit(details.has_access_list, 1)
        | bit(details.has_default_list, 2)
        | bit(details.is_hidden.is_some(), 4)
        | bit(details.is_hidden == Some(true), 8);
    to.record(tag::DETAILS, |bytes| {
        put_u32(bytes, details.id);
        put_u32(bytes, flags);
        bytes.extend_from_slice(details.mime_type.as_bytes());
    })
}

pub(crate) fn details_of(payload: &[u8]) -> Result<Details, StreamFault> {
    let mut parts = Parts::of(payload, "details");
    let id = parts.number()?;
    let flags = parts.number()?;
    if flags >= 16 {
        return Err(StreamFault::Value { record: "details", what: "flag" });
    }
    let mime_type = std::str::from_utf8(parts.rest());
    let mime_type =
        mime_type.map_err(|_| StreamFault::Value { record: "details", what: "type" })?;
    Ok(Details {
        id,
        has_access_list: flags & 1 != 0,
        has_default_list: flags & 2 != 0,
        is_hidden: (flags & 4 != 0).then_some(flags & 8 != 0),
        mime_type: mime_type.into(),
    })
}
