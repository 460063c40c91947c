//! The bytes of a journal; `docs/journal.md` draws them.
//!
//! ```text
//! 0      header slot 0      magic "unjankJL" | version u32 | crc u32 | salt u64 | epoch u64 | base u64 | zeros
//! 4096   header slot 1      the same; the valid slot with the higher epoch counts
//! 8192   frames             each at a multiple of 8, zeros between and behind them
//!
//! frame  magic "UJF1" | payload length u32 | salt u64 | epoch u64 | sequence u64 | records u32 | crc u32 | payload
//! payload                   for each record: length u32 | bytes
//! ```
//!
//! Integers are little-endian. A checksum is CRC-32C over everything of its header or frame but itself.

use super::checksum::PartChecksums;

/// Where each header slot starts: in different blocks of any device, so that a torn one leaves the other whole.
pub(super) const SLOT_AT: [u64; 2] = [0, 4096];
/// Where the frames start.
pub(super) const FRAMES_AT: u64 = 8192;
/// The zeros that a file is made with behind its frames, at least.
pub(super) const FIRST_ROOM: u64 = 1 << 16;
/// The longest payload: twice the largest message of D-Bus.
pub(super) const MAX_PAYLOAD: usize = 128 << 20;

const VERSION: u32 = 1;
const HEADER_MAGIC: [u8; 8] = *b"unjankJL";
/// The length of a header without the zeros behind it.
pub(super) const HEADER_LEN: usize = 40;
/// The bytes of a header.
pub(super) type Slot = [u8; HEADER_LEN];
/// A slot that was never written.
pub(super) const NO_SLOT: Slot = [0; HEADER_LEN];
const FRAME_MAGIC: [u8; 4] = *b"UJF1";
pub(super) const FRAME_HEADER_LEN: usize = 40;
const ALIGNMENT: usize = 8;
static ZEROS: [u8; 4096] = [0; 4096];

/// What a header slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// A random number of this file, so that bytes of an earlier file in the same blocks are no frames of it.
    pub(super) salt: u64,
    /// How often the file was emptied, so that frames from before are no frames of now.
    pub(super) epoch: u64,
    /// The caller's number: what the records come after.
    pub(super) base: u64,
}

impl Header {
    /// Returns the bytes of a slot, without the zeros behind.
    pub(super) fn encode(&self) -> Slot {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base.to_le_bytes());
        let crc = header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], at: u64) -> Decoded {
        let Some(slot) = slice(bytes, usize_of(at), HEADER_LEN) else { return Decoded::Broken };
        if slot[..8] != HEADER_MAGIC || u32_at(slot, 12) != header_crc(slot) {
            return Decoded::Broken;
        }
        match u32_at(slot, 8) {
            VERSION => Decoded::Valid(Header {
                salt: u64_at(slot, 16),
                epoch: u64_at(slot, 24),
                base: u64_at(slot, 32),
            }),
            other => Decoded::Foreign(other),
        }
    }
}

enum Decoded {
    Valid(Header),
    Foreign(u32),
    Broken,
}

/// Appends one frame with these records to `bytes`; `None` if they are too many or too long.
pub(super) fn encode_frame(header: &Header, sequence: u64, records: &[&[u8]]) -> Option<Vec<u8>> {
    let payload: usize = records
        .iter()
        .try_fold(0_usize, |sum, record| sum.checked_add(4)?.checked_add(record.len()))
        .filter(|payload| *payload <= MAX_PAYLOAD)?;
    let mut bytes = Vec::with_capacity((FRAME_HEADER_LEN + payload).next_multiple_of(4096));
    bytes.extend_from_slice(&FRAME_MAGIC);
    bytes.extend_from_slice(&u32::try_from(payload).ok()?.to_le_bytes());
    bytes.extend_from_slice(&header.salt.to_le_bytes());
    bytes.extend_from_slice(&header.epoch.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(records.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for record in records {
        bytes.extend_from_slice(&u32::try_from(record.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(record);
    }
    let crc = frame_crc(&bytes);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    Some(bytes)
}

/// What a journal's bytes hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) header: Header,
    /// Which slot holds that header.
    pub(super) slot: usize,
    /// The records in order, up to the first that is missing.
    pub(super) records: Vec<Vec<u8>>,
    /// The sequence number of the next frame.
    pub(super) next: u64,
    /// Where the last frame of `records` ends.
    pub(super) end: u64,
    pub(super) damage: Option<DamagedRange>,
    /// Whether bytes that are not zero belong to no whole frame, or the file is shorter than it was made.
    pub(super) is_torn: bool,
    /// How much of the file cannot be read, about.
    pub(super) damaged_bytes: u64,
}

/// A part of a journal that cannot be read although what was written after it can.
///
/// After a power cut this also happens to records that were appended and never synced: a later page was written
/// back before an earlier one. It never happens to records that were acknowledged on a medium that keeps its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Where the part that cannot be read begins, in bytes from the start of the file.
    pub offset: u64,
    /// The records behind it that can be read, in order. They were appended after the missing ones.
    pub salvaged: Vec<Vec<u8>>,
}

/// Why bytes are no journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Neither a header nor a frame is in them.
    NotAJournal,
    /// A header of a version that is not known here.
    Version(u32),
}

/// Returns the bytes of the slot at `at`.
pub(super) fn slot_at(bytes: &[u8], at: u64) -> Slot {
    let slot = slice(bytes, usize_of(at), HEADER_LEN).and_then(|slot| slot.try_into().ok());
    slot.unwrap_or(NO_SLOT)
}

/// Returns the header that counts of a journal, or of the beginning of one, with its slot; `None` if both are lost.
pub(super) fn newest_header(bytes: &[u8]) -> Result<Option<(Header, usize)>, Unreadable> {
    let mut newest: Option<(Header, usize)> = None;
    for (slot, at) in SLOT_AT.into_iter().enumerate() {
        match Header::decode(bytes, at) {
            Decoded::Valid(header)
                if newest.is_none_or(|(known, _)| known.epoch < header.epoch) =>
            {
                newest = Some((header, slot));
            }
            Decoded::Foreign(version) => return Err(Unreadable::Version(version)),
            Decoded::Valid(_) | Decoded::Broken => {}
        }
    }
    Ok(newest)
}

/// Reads a whole journal.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, Unreadable> {
    let newest = newest_header(bytes)?;
    let frames: Vec<Frame<'_>> = frames(bytes, FRAMES_AT).collect();
    let Unread { is_torn, bytes: damaged_bytes } = unread(bytes, &frames);
    let Some((header, slot)) = newest else {
        // Both headers are lost: the file's last epoch is what is left.
        let last = frames.iter().max_by_key(|frame| frame.epoch).ok_or(Unreadable::NotAJournal)?;
        let header = Header { salt: last.salt, epoch: last.epoch, base: 0 };
        return Ok(Contents { is_torn, ..headless(&frames, header, 0, damaged_bytes) });
    };
    let of_this_file = frames.iter().filter(|frame| frame.salt == header.salt);
    if let Some(epoch) = of_this_file.map(|frame| frame.epoch).max()
        && epoch > header.epoch
    {
        // The slot of the newer epoch was lost after frames were written under it: what the old slot stands for
        // was given up long ago.
        let header = Header { epoch, ..header };
        let headless = headless(&frames, header, 1 - slot, damaged_bytes);
        return Ok(Contents { is_torn, ..headless });
    }
    let mut contents = Contents {
        header,
        slot,
        records: Vec::new(),
        next: 0,
        end: FRAMES_AT,
        damage: None,
        is_torn,
        damaged_bytes,
    };
    let mut salvaged = Vec::new();
    for frame in frames.iter().filter(|frame| frame.is_of(&header)) {
        if salvaged.is_empty() && frame.sequence == contents.next {
            contents.records.extend(frame.records().map(<[u8]>::to_vec));
            contents.next += 1;
            contents.end = frame.end;
        } else if frame.sequence > contents.next {
            salvaged.extend(frame.records().map(<[u8]>::to_vec));
        }
    }
    if !salvaged.is_empty() {
        contents.damage = Some(DamagedRange { offset: contents.end, salvaged });
    }
    Ok(contents)
}

/// Salvages everything of an epoch whose header is lost, with so many other bytes.
fn headless(frames: &[Frame<'_>], header: Header, slot: usize, damaged_bytes: u64) -> Contents {
    let salvaged = frames
        .iter()
        .filter(|frame| frame.is_of(&header))
        .flat_map(|frame| frame.records().map(<[u8]>::to_vec))
        .collect();
    let damage = Some(DamagedRange { offset: SLOT_AT[slot], salvaged });
    let (records, is_torn) = (Vec::new(), false);
    let damaged_bytes = damaged_bytes + HEADER_LEN as u64;
    Contents { header, slot, records, next: 0, end: FRAMES_AT, damage, is_torn, damaged_bytes }
}

/// What of a journal belongs to no whole frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unread {
    /// Whether bytes between the frames, or behind them, are not zero, or a part of the file is missing.
    is_torn: bool,
    /// How many bytes those are, with what lies where frames are missing.
    bytes: u64,
}

/// Looks at what lies between the frames and behind them.
fn unread(bytes: &[u8], frames: &[Frame<'_>]) -> Unread {
    let least = usize_of(FRAMES_AT + FIRST_ROOM);
    let missing = least.saturating_sub(bytes.len());
    let mut unread = Unread { is_torn: missing > 0, bytes: missing as u64 };
    let mut look = |from: usize, to: usize, are_missing: bool| {
        let between = bytes.get(from..to.max(from)).unwrap_or_default();
        let written = span_that_is_not_zero(between);
        unread.is_torn |= written > 0;
        unread.bytes += if are_missing { between.len() as u64 } else { written as u64 };
    };
    let (mut at, mut last) = (usize_of(FRAMES_AT), None::<&Frame<'_>>);
    for frame in frames {
        let end = usize_of(frame.end);
        let len = (FRAME_HEADER_LEN + frame.payload.len()).next_multiple_of(ALIGNMENT);
        let follows = |last: &Frame<'_>| (last.salt, last.epoch) == (frame.salt, frame.epoch);
        let expected = last.filter(|last| follows(last)).map_or(0, |last| last.sequence + 1);
        look(at, end.saturating_sub(len), frame.sequence > expected);
        (at, last) = (end, Some(frame));
    }
    look(at, bytes.len(), false);
    unread
}

/// Returns how many bytes lie between the first and the last that are not zero, with these.
fn span_that_is_not_zero(bytes: &[u8]) -> usize {
    let is_zero = |part: &[u8]| *part == ZEROS[..part.len()];
    // Most of a journal is zeros that wait for records.
    let Some(first) = bytes.chunks(ZEROS.len()).position(|part| !is_zero(part)) else { return 0 };
    let rest = bytes.get(first * ZEROS.len()..).unwrap_or_default();
    let from = rest.iter().position(|byte| *byte != 0).unwrap_or(0);
    let to = rest.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    to + 1 - from
}

/// A frame whose checksum holds.
#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    salt: u64,
    epoch: u64,
    sequence: u64,
    count: u32,
    payload: &'a [u8],
    end: u64,
}

impl<'a> Frame<'a> {
    fn decode(sums: &PartChecksums<'a>, at: usize) -> Option<Frame<'a>> {
        let bytes = sums.bytes();
        let header = slice(bytes, at, FRAME_HEADER_LEN)?;
        if header[..4] != FRAME_MAGIC {
            return None;
        }
        let len = usize::try_from(u32_at(header, 4)).ok()?;
        if len > MAX_PAYLOAD {
            return None;
        }
        let frame = slice(bytes, at, FRAME_HEADER_LEN + len)?;
        let crc = sums.append(crc32c::crc32c(&header[..36]), at + FRAME_HEADER_LEN, len)?;
        (crc == u32_at(header, 36)).then(|| Frame {
            salt: u64_at(header, 8),
            epoch: u64_at(header, 16),
            sequence: u64_at(header, 24),
            count: u32_at(header, 32),
            payload: &frame[FRAME_HEADER_LEN..],
            end: (at + frame.len().next_multiple_of(ALIGNMENT)) as u64,
        })
    }

    fn is_of(&self, header: &Header) -> bool {
        self.salt == header.salt && self.epoch == header.epoch
    }

    fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut at, mut left, payload) = (0, self.count, self.payload);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let len = usize::try_from(u32_at(slice(payload, at, 4)?, 0)).ok()?;
            let record = slice(payload, at + 4, len)?;
            at += 4 + len;
            Some(record)
        })
    }
}

/// Finds the frames from `at` on. What lies between two of them, padding or damage, is skipped.
fn frames(bytes: &[u8], at: u64) -> impl Iterator<Item = Frame<'_>> {
    let mut at = usize_of(at);
    let sums = PartChecksums::of(bytes);
    std::iter::from_fn(move || {
        while at < bytes.len() {
            if let Some(frame) = Frame::decode(&sums, at) {
                at = usize_of(frame.end);
                return Some(frame);
            }
            // Most of a journal is zeros that wait for records. Where bytes are missing or too many, what follows is
            // anywhere.
            let zeros = slice(bytes, at, ZEROS.len()).is_some_and(|block| block == ZEROS);
            at += if zeros { ZEROS.len() } else { 1 };
        }
        None
    })
}

/// What the beginning of a frame says, which may be written in part, or be no frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHeader {
    /// The length of its payload, in bytes.
    pub(super) payload: u32,
    pub(super) sequence: u64,
    /// How many records it has.
    pub(super) records: u32,
    /// The checksum of the frame.
    pub(super) crc: u32,
    /// The checksum of the beginning itself, without that of the frame.
    pub(super) own_crc: u32,
}

impl FrameHeader {
    /// Returns how much of the file the frame takes.
    pub(super) fn len(&self) -> u64 {
        (FRAME_HEADER_LEN as u64 + u64::from(self.payload)).next_multiple_of(ALIGNMENT as u64)
    }
}

/// Finds the first frame of this header, from a sequence number on, that begins in a part of a journal, with its place there. The part
/// begins where a frame may begin.
pub(super) fn find_frame(
    bytes: &[u8],
    header: &Header,
    least: u64,
) -> Option<(usize, FrameHeader)> {
    (0..bytes.len()).step_by(ALIGNMENT).find_map(|at| {
        let frame = slice(bytes, at, FRAME_HEADER_LEN)?;
        let is_of_header = frame[..4] == FRAME_MAGIC
            && (u64_at(frame, 8), u64_at(frame, 16)) == (header.salt, header.epoch);
        let (payload, sequence) = (u32_at(frame, 4), u64_at(frame, 24));
        let is_it = is_of_header && sequence >= least && usize_of(payload.into()) <= MAX_PAYLOAD;
        is_it.then(|| {
            let (records, crc) = (u32_at(frame, 32), u32_at(frame, 36));
            let own_crc = crc32c::crc32c(&frame[..36]);
            (at, FrameHeader { payload, sequence, records, crc, own_crc })
        })
    })
}

/// Tells whether a frame of this header, whole or not, begins in a part of a journal.
pub(super) fn begins_frame(bytes: &[u8], header: &Header) -> bool {
    let of_header = |at: usize| {
        let frame = slice(bytes, at, FRAME_HEADER_LEN)?;
        let ids = (u64_at(frame, 8), u64_at(frame, 16));
        Some(frame[..4] == FRAME_MAGIC && ids == (header.salt, header.epoch))
    };
    (0..bytes.len()).step_by(ALIGNMENT).any(|at| of_header(at) == Some(true))
}

/// Returns a checksum of the frames of this header in a part of a journal, which begins where a frame may begin; one that
/// `left_out` begins with does not count. 0 if there are none.
pub(super) fn sum_of_frames(bytes: &[u8], header: &Header, left_out: &[u8]) -> u32 {
    let raw = |frame: Frame<'_>| {
        let end = usize_of(frame.end).min(bytes.len());
        let len = (FRAME_HEADER_LEN + frame.payload.len()).next_multiple_of(ALIGNMENT);
        bytes.get(end.checked_sub(len)?..end)
    };
    let of_header = frames(bytes, 0).filter(|frame| frame.is_of(header)).filter_map(raw);
    of_header.filter(|frame| !left_out.starts_with(frame)).fold(0, crc32c::crc32c_append)
}

fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..HEADER_LEN])
}

fn frame_crc(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..36]), &frame[FRAME_HEADER_LEN..])
}

pub(super) fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

/// Reads an integer of a slice whose length its caller has checked.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    slice(bytes, at, 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Reads an integer of a slice whose length its caller has checked.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    slice(bytes, at, 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Returns a place in a file that is in memory as an index; one beyond memory is beyond every slice.
pub(super) fn usize_of(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
