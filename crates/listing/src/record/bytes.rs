//! Numbers in little-endian columns, read with their bounds checked.

use crate::error::StreamFault;

/// Every part of a record begins at a multiple of this.
const ALIGN: usize = 8;

pub(crate) fn put_u32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// Fills up to where the next part may begin; a payload begins aligned itself.
pub(super) fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
}

/// The number with this index in a column; 0 behind its end.
pub(super) fn u16_of(column: &[u8], index: usize) -> u16 {
    let bytes = index.checked_mul(2).and_then(|at| column.get(at..)?.first_chunk());
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// The number with this index in a column; 0 behind its end.
pub(super) fn u32_of(column: &[u8], index: usize) -> u32 {
    let bytes = index.checked_mul(4).and_then(|at| column.get(at..)?.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The number with this index in a column; 0 behind its end.
pub(super) fn u64_of(column: &[u8], index: usize) -> u64 {
    let bytes = index.checked_mul(8).and_then(|at| column.get(at..)?.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Takes a record apart from its begin.
#[derive(Clone, Debug)]
pub(super) struct Parts<'a> {
    payload: &'a [u8],
    at: usize,
    record: &'static str,
}

impl<'a> Parts<'a> {
    pub(super) fn of(payload: &'a [u8], record: &'static str) -> Parts<'a> {
        Parts { payload, at: 0, record }
    }

    pub(super) fn wrong_length(&self) -> StreamFault {
        StreamFault::Length { record: self.record }
    }

    /// The next number.
    pub(super) fn number(&mut self) -> Result<u32, StreamFault> {
        let bytes = self.payload.get(self.at..).and_then(<[u8]>::first_chunk);
        let bytes = bytes.ok_or_else(|| self.wrong_length())?;
        self.at += 4;
        Ok(u32::from_le_bytes(*bytes))
    }

    /// The next number, as a length.
    pub(super) fn length(&mut self) -> Result<usize, StreamFault> {
        usize::try_from(self.number()?).map_err(|_| self.wrong_length())
    }

    /// The next `rows` numbers of `width` bytes, after filling up; with the place where they begin.
    pub(super) fn column(
        &mut self,
        rows: usize,
        width: usize,
    ) -> Result<(usize, &'a [u8]), StreamFault> {
        let start = self.at.next_multiple_of(ALIGN);
        let end = rows.checked_mul(width).and_then(|length| start.checked_add(length));
        let column = end.and_then(|end| self.payload.get(start..end));
        let column = column.ok_or_else(|| self.wrong_length())?;
        self.at = start + column.len();
        Ok((start, column))
    }

    /// What is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.payload.get(self.at..).unwrap_or_default()
    }

    /// Nothing is left.
    pub(super) fn end(self) -> Result<(), StreamFault> {
        if self.at == self.payload.len() { Ok(()) } else { Err(self.wrong_length()) }
    }
}

/// The ends of byte strings in one arena: they rise, and the last is the arena's.
pub(super) fn check_ends(
    ends: &[u8],
    arena: &[u8],
    record: &'static str,
) -> Result<(), StreamFault> {
    let mut last = 0;
    for end in ends.chunks_exact(4) {
        let end = u32_of(end, 0);
        if end < last {
            return Err(StreamFault::Value { record, what: "offset" });
        }
        last = end;
    }
    if usize::try_from(last).ok() == Some(arena.len()) {
        Ok(())
    } else {
        Err(StreamFault::Value { record, what: "offset" })
    }
}

/// The byte string with this index; empty where the numbers are wrong.
pub(super) fn string_of<'a>(ends: &[u8], arena: &'a [u8], index: usize) -> &'a [u8] {
    let start = if index == 0 { 0 } else { u32_of(ends, index - 1) };
    let end = u32_of(ends, index);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    range.and_then(|(start, end)| arena.get(start..end)).unwrap_or_default()
}
