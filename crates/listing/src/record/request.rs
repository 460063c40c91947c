//! What the one who asks sends: the request, and which attributes are wanted first.

use std::ffi::OsStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use store::stream::StreamBuilder;

use super::bytes::{Parts, check_ends, put_u32, string_of};
use super::strings::StringRows;
use super::tag;
use crate::entry::EntryId;
use crate::error::StreamFault;
use crate::fields::AttributeSet;
use crate::request::{Following, ListingLimits, ListingRequest, ThreadCount};

const RECORD: &str = "request";
/// More threads than this are not started.
const MOST_THREADS: usize = 64;
/// Set in the number of threads if changes are to be followed.
const FOLLOWED: u32 = 1 << 31;

/// Adds the record of a request.
pub(crate) fn request(request: &ListingRequest, to: &mut StreamBuilder) -> io::Result<()> {
    let mut strings = StringRows::default();
    let paths = std::iter::once(&request.path).chain(&request.mime_directories);
    for path in paths {
        strings.push(path.as_os_str().as_bytes())?;
    }
    let threads = match request.threads {
        ThreadCount::Adaptive => 0,
        ThreadCount::Exactly(count) => u32::try_from(count.get().min(MOST_THREADS)).unwrap_or(0),
    };
    let threads = match request.following {
        Following::Never => threads,
        Following::Changes => threads | FOLLOWED,
    };
    let (ends, arena) = strings.parts();
    to.record(tag::REQUEST, |bytes| {
        put_u32(bytes, request.fields.bits());
        put_u32(bytes, threads);
        put_u32(bytes, request.limits.entries);
        put_u32(bytes, u32::try_from(ends.len() / 4).unwrap_or(u32::MAX));
        super::put_u64(bytes, request.limits.bytes);
        bytes.extend_from_slice(ends);
        super::bytes::pad(bytes);
        bytes.extend_from_slice(arena);
    })
}

/// Reads the record of a request.
///
/// # Errors
///
/// [`StreamFault`]: it is not as it must be.
pub fn request_of(payload: &[u8]) -> Result<ListingRequest, StreamFault> {
    let mut parts = Parts::of(payload, RECORD);
    let fields = AttributeSet::from_bits(parts.number()?);
    let fields = fields.ok_or(StreamFault::Value { record: RECORD, what: "field" })?;
    let threads = parts.number()?;
    let following = if threads & FOLLOWED == 0 { Following::Never } else { Following::Changes };
    let threads = usize::try_from(threads & !FOLLOWED).unwrap_or(0).min(MOST_THREADS);
    let threads = NonZeroUsize::new(threads);
    let entries = parts.number()?;
    let count = parts.length()?;
    let bytes = u64::from(parts.number()?) | u64::from(parts.number()?) << 32;
    let (_, ends) = parts.column(count, 4)?;
    let (_, _) = parts.column(0, 1)?;
    let arena = parts.rest();
    check_ends(ends, arena, RECORD)?;
    let mut paths =
        (0..count).map(|index| PathBuf::from(OsStr::from_bytes(string_of(ends, arena, index))));
    let path =
        paths.next().ok_or(StreamFault::Value { record: RECORD, what: "number of paths" })?;
    Ok(ListingRequest {
        path,
        fields,
        mime_directories: paths.collect(),
        limits: ListingLimits { entries, bytes },
        threads: threads.map_or(ThreadCount::Adaptive, ThreadCount::Exactly),
        following,
    })
}

/// Reads the record of wanted entries.
pub(crate) fn wanted_of(payload: &[u8]) -> Result<Vec<EntryId>, StreamFault> {
    let (rows, []) = payload.as_chunks::<4>() else {
        return Err(StreamFault::Length { record: "want" });
    };
    Ok(rows.iter().map(|row| u32::from_le_bytes(*row)).collect())
}
