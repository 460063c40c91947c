//! The bytes of a shared journal; `docs/journal.md` draws them.
//!
//! ```text
//! 0     header   magic "unjankSJ" | version u32 | crc u32 | salt u64 | covered salt u64 | covered length u64 | zeros
//! 64    frames   one behind the other, at any place: what a killed writer left half is skipped
//!
//! frame magic "UJS1" | payload length u32 | salt u64 | id u64 | crc u32 | payload
//! ```
//!
//! Integers are little-endian. A checksum is CRC-32C over everything of its header or frame but itself.

use std::collections::{HashMap, HashSet};

use super::super::checksum::PartChecksums;
use super::super::format::{slice, u32_at, u64_at, usize_of};

/// Where the frames start.
pub(super) const FRAMES_AT: u64 = 64;
/// The longest record.
pub(super) const MAX_RECORD: usize = 16 << 20;
/// The id of records that nobody writes a second time.
pub(super) const WRITTEN_ONCE: u64 = 0;

/// The id of the frame that holds the ids of what was appended to the files that this one replaced.
pub(super) const KNOWN_IDS: u64 = u64::MAX;
/// How many of those are kept, the last: more than are appended in the time that one append takes.
const MOST_KNOWN: usize = 1024;

const VERSION: u32 = 1;
const HEADER_MAGIC: [u8; 8] = *b"unjankSJ";
const HEADER_LEN: usize = 40;
const FRAME_MAGIC: [u8; 4] = *b"UJS1";
const FRAME_HEADER_LEN: usize = 28;
const CRC_AT: usize = 24;

/// What the start of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// A random number of this file, so that no record of another file, nor bytes inside of a record, are one of it.
    pub(super) salt: u64,
    /// The salt of the file that this one replaced.
    pub(super) covered_salt: u64,
    /// How much of that file this one's first records stand for. What came behind was appended again.
    pub(super) covered_len: u64,
}

/// What the start of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Header(Header),
    /// A version that is not known here.
    Foreign(u32),
    Broken,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize_of(FRAMES_AT)];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.covered_salt.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.covered_len.to_le_bytes());
        let crc = header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Start {
        let Some(header) = slice(bytes, 0, usize_of(FRAMES_AT)) else { return Start::Broken };
        let is_padded = header[HEADER_LEN..].iter().all(|byte| *byte == 0);
        if !is_padded || header[..8] != HEADER_MAGIC || u32_at(header, 12) != header_crc(header) {
            return Start::Broken;
        }
        match u32_at(header, 8) {
            VERSION => Start::Header(Header {
                salt: u64_at(header, 16),
                covered_salt: u64_at(header, 24),
                covered_len: u64_at(header, 32),
            }),
            other => Start::Foreign(other),
        }
    }
}

fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..HEADER_LEN])
}

/// Appends one frame to `bytes`; says whether the record is short enough.
pub(super) fn push_frame(bytes: &mut Vec<u8>, salt: u64, id: u64, record: &[u8]) -> bool {
    let Some(len) = u32::try_from(record.len()).ok().filter(|_| record.len() <= MAX_RECORD) else {
        return false;
    };
    let start = bytes.len();
    bytes.extend_from_slice(&FRAME_MAGIC);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&salt.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[start..]), record);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(record);
    true
}

/// A frame whose checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) salt: u64,
    pub(super) id: u64,
    pub(super) record: &'a [u8],
    /// Where it ends in the bytes.
    pub(super) end: usize,
}

impl<'a> Frame<'a> {
    fn decode(sums: &PartChecksums<'a>, at: usize) -> Option<Frame<'a>> {
        let bytes = sums.bytes();
        let header = slice(bytes, at, FRAME_HEADER_LEN)?;
        if header[..4] != FRAME_MAGIC {
            return None;
        }
        let len = usize::try_from(u32_at(header, 4)).ok().filter(|len| *len <= MAX_RECORD)?;
        let record = slice(bytes, at + FRAME_HEADER_LEN, len)?;
        let crc = sums.append(crc32c::crc32c(&header[..CRC_AT]), at + FRAME_HEADER_LEN, len)?;
        (crc == u32_at(header, CRC_AT)).then(|| Frame {
            salt: u64_at(header, 8),
            id: u64_at(header, 16),
            record,
            end: at + FRAME_HEADER_LEN + len,
        })
    }
}

/// What lies between the frames of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gaps {
    /// Nothing, or what killed writers left half in front of a whole frame.
    #[default]
    None,
    /// Behind the last frame there is the beginning of one: it is being written, or was cut.
    HalfAtTheEnd,
    /// Bytes that no writer left.
    Damage,
}

impl Gaps {
    /// Judges the bytes behind `salt`'s frames: of which kind the gap before `next` is, or the rest if nothing follows.
    fn of(gap: &[u8], salt: u64, next: Option<usize>) -> Gaps {
        // Several writers may have been killed, one behind the other.
        let mut starts: Vec<usize> =
            (0..gap.len()).filter(|at| gap[*at..].starts_with(&FRAME_MAGIC)).collect();
        if starts.first() != Some(&0) {
            starts.insert(0, 0);
        }
        let ends = starts.iter().skip(1).copied().chain([gap.len()]);
        let is_half = |(from, to): (&usize, usize)| is_half_frame(&gap[*from..to], salt);
        match (gap.is_empty(), starts.iter().zip(ends).all(is_half), next) {
            (true, _, _) | (_, true, Some(_)) => Gaps::None,
            (_, true, None) => Gaps::HalfAtTheEnd,
            (_, false, _) => Gaps::Damage,
        }
    }
}

/// Tells whether bytes are the beginning of a frame and not all of it.
fn is_half_frame(bytes: &[u8], salt: u64) -> bool {
    let mut start = FRAME_MAGIC.to_vec();
    start.extend([0; 4]);
    start.extend(salt.to_le_bytes());
    let is_known = |at: &usize| !(4..8).contains(at);
    let known = start.iter().enumerate().filter(|(at, _)| is_known(at));
    if !known
        .zip(bytes.iter().enumerate().filter(|(at, _)| is_known(at)))
        .all(|((_, a), (_, b))| a == b)
    {
        return false;
    }
    let Some(header) = slice(bytes, 0, FRAME_HEADER_LEN) else { return true };
    let is_shorter = usize::try_from(u32_at(header, 4))
        .is_ok_and(|len| len <= MAX_RECORD && FRAME_HEADER_LEN + len > bytes.len());
    // A whole frame whose length was damaged looks like the beginning of a longer one.
    let record = &bytes[FRAME_HEADER_LEN..];
    let mut mended = header.to_vec();
    mended[4..8].copy_from_slice(&u32::try_from(record.len()).unwrap_or_default().to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&mended[..CRC_AT]), record);
    is_shorter && crc != u32_at(header, CRC_AT)
}

/// Finds the frames of a file: those with `salt` if there is one. What lies between two of them is skipped.
pub(super) fn frames(bytes: &[u8], salt: Option<u64>) -> impl Iterator<Item = Frame<'_>> {
    let mut at = 0;
    let sums = PartChecksums::of(bytes);
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match Frame::decode(&sums, at).filter(|frame| salt.is_none_or(|s| s == frame.salt)) {
                Some(frame) => {
                    at = frame.end;
                    return Some(frame);
                }
                None => {
                    let rest = bytes.get(at + 1..)?;
                    at += 1 + rest.windows(FRAME_MAGIC.len()).position(|w| w == FRAME_MAGIC)?;
                }
            }
        }
        None
    })
}

/// Returns the salt that most frames have: that of a file whose header is lost.
pub(super) fn likely_salt(bytes: &[u8]) -> Option<u64> {
    let mut counts = HashMap::<u64, usize>::new();
    for frame in frames(bytes, None) {
        *counts.entry(frame.salt).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(salt, count)| (*count, *salt)).map(|(salt, _)| salt)
}

/// Where the frames of a file end, and what is between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where the last frame ends.
    pub(super) end: usize,
    pub(super) gaps: Gaps,
}

/// Takes the records of the frames whose ids are not in `known` yet. The bytes begin with a frame.
pub(super) fn take(
    bytes: &[u8],
    salt: u64,
    known: &mut HashSet<u64>,
    records: &mut Vec<Vec<u8>>,
) -> Extent {
    let (mut end, mut gaps) = (0, Gaps::None);
    for frame in frames(bytes, Some(salt)) {
        let start = frame.end - FRAME_HEADER_LEN - frame.record.len();
        gaps = gaps.max(Gaps::of(&bytes[end..start], salt, Some(start)));
        match frame.id {
            KNOWN_IDS => known.extend(ids_in(frame.record)),
            id if id == WRITTEN_ONCE || known.insert(id) => records.push(frame.record.to_vec()),
            _ => {}
        }
        end = frame.end;
    }
    Extent { end, gaps: gaps.max(Gaps::of(&bytes[end..], salt, None)) }
}

/// Returns the record of the last ids that were appended to a file or to those that it replaced: who appended may not
/// have looked since, however often it was replaced.
pub(super) fn known_ids(bytes: &[u8], salt: u64) -> Vec<u8> {
    let mut ids = Vec::new();
    for frame in frames(bytes, Some(salt)) {
        match frame.id {
            KNOWN_IDS => ids.extend(ids_in(frame.record)),
            WRITTEN_ONCE => {}
            id => ids.push(id),
        }
    }
    let last = &ids[ids.len().saturating_sub(MOST_KNOWN)..];
    last.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// Reads the ids that [`known_ids`] wrote.
pub(super) fn ids_in(record: &[u8]) -> impl Iterator<Item = u64> {
    record.as_chunks().0.iter().copied().map(u64::from_le_bytes)
}
