//! Length-prefixed records in a file or in memory that is passed between processes.
//!
//! A stream is a header and records after it; [docs/stream.md] has the bytes. A reader works on the bytes where they
//! are: a record is a slice of them. Everything that it reads is checked before it is used, and it stops cleanly where
//! the stream was torn off.
//!
//! [docs/stream.md]: https://github.com/unjank/unjank/blob/main/docs/stream.md

mod memory;
mod write;

pub use memory::{Chunk, ChunkError};
pub use write::{StreamBuilder, StreamWriter};

/// The first bytes of every stream.
const MAGIC: [u8; 8] = *b"unjankst";
/// Bytes of the header, and of what stands before each record.
const HEADER: usize = 16;
/// Records begin at multiples of this, so that columns of numbers inside are aligned.
const ALIGN: usize = 8;
/// The header's flag for [`Checks::Each`].
const CHECKED: u16 = 1;

/// What kind of records a stream holds, and in which version of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFormat {
    /// Four letters for who writes it: `list`, `trac`, …
    pub kind: [u8; 4],
    /// The version of what is in the records; readers refuse others.
    pub version: u16,
}

/// Whether records carry a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// CRC-32C of each record: for files, where a crash leaves anything behind.
    Each,
    /// None: for memory, which is whole or was never passed on.
    None,
}

/// Why bytes are not a stream that can be read here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// They are something else.
    #[error("it is no stream")]
    NotAStream,
    /// They are a stream of other records.
    #[error("it is a stream of {found:?}, not of {wanted:?}")]
    OtherKind {
        /// The four letters that were found, printable ones.
        found: String,
        /// The four letters that were asked for.
        wanted: String,
    },
    /// They were written by a later version, or carry flags of one.
    #[error("it has the unknown version {version}")]
    UnknownVersion {
        /// What the header says.
        version: u16,
    },
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRecord<'a> {
    /// What it is, in the words of the stream's kind.
    pub tag: u32,
    /// What it holds; begins at a multiple of 8 bytes from the stream's begin.
    pub payload: &'a [u8],
}

/// The records of a stream, in order, up to the first that is not whole.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    checks: Checks,
    torn: bool,
}

impl<'a> Records<'a> {
    /// Reads the header of `bytes`.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if they are no stream of this format.
    pub fn of(bytes: &'a [u8], format: StreamFormat) -> Result<Records<'a>, StreamError> {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(StreamError::NotAStream)?;
        if header[..8] != MAGIC {
            return Err(StreamError::NotAStream);
        }
        if header[8..12] != format.kind {
            let letters = |kind: &[u8]| kind.escape_ascii().to_string();
            let (found, wanted) = (letters(&header[8..12]), letters(&format.kind));
            return Err(StreamError::OtherKind { found, wanted });
        }
        let version = u16::from_le_bytes([header[12], header[13]]);
        let flags = u16::from_le_bytes([header[14], header[15]]);
        if version != format.version || flags & !CHECKED != 0 {
            return Err(StreamError::UnknownVersion { version });
        }
        let checks = if flags & CHECKED == 0 { Checks::None } else { Checks::Each };
        Ok(Records { bytes, at: HEADER, checks, torn: false })
    }

    /// Returns where the next record begins. After the last: how many bytes of the stream are whole.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Says whether something follows the last record that is none. Known after the last was taken.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// Reads the record at `self.at`, and returns it with the place behind it.
    fn read(&self) -> Option<(StreamRecord<'a>, usize)> {
        let rest = self.bytes.get(self.at..)?;
        let header: &[u8; HEADER] = rest.first_chunk()?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = usize::try_from(word(0)).ok()?;
        let payload = rest[HEADER..].get(..length)?;
        let sum = if self.checks == Checks::Each { checksum(&header[..8], payload) } else { 0 };
        if word(8) != sum || word(12) != 0 {
            return None;
        }
        // The padding of the last record may be missing.
        let end = self.at.checked_add(HEADER + length)?.checked_next_multiple_of(ALIGN)?;
        Some((StreamRecord { tag: word(4), payload }, end.min(self.bytes.len())))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = StreamRecord<'a>;

    fn next(&mut self) -> Option<StreamRecord<'a>> {
        if self.torn || self.at >= self.bytes.len() {
            return None;
        }
        let Some((record, end)) = self.read() else {
            self.torn = true;
            return None;
        };
        self.at = end;
        Some(record)
    }
}

/// Returns the checksum of a record: of its length and tag, and of what it holds.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), payload)
}

#[cfg(test)]
mod tests;
