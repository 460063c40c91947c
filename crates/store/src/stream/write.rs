//! Writing a stream: into a buffer that becomes a chunk, or record by record into a file.

use std::fs::File;
use std::io::{self, Write};

use super::{ALIGN, CHECKED, Checks, HEADER, MAGIC, StreamFormat, checksum};

/// Returns the header of a stream.
fn header(format: StreamFormat, checks: Checks) -> [u8; HEADER] {
    let flags = if checks == Checks::Each { CHECKED } else { 0 };
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&format.kind);
    bytes[12..14].copy_from_slice(&format.version.to_le_bytes());
    bytes[14..].copy_from_slice(&flags.to_le_bytes());
    bytes
}

/// What stands before a record, without its checksum.
fn prefix(tag: u32, length: usize) -> io::Result<[u8; 8]> {
    let length = u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..].copy_from_slice(&tag.to_le_bytes());
    Ok(bytes)
}

/// A stream that is made in memory, to be passed to another process as a whole.
#[derive(Clone, Debug)]
pub struct StreamBuilder {
    bytes: Vec<u8>,
}

impl StreamBuilder {
    /// Starts a stream without checksums.
    #[must_use]
    pub fn new(format: StreamFormat) -> StreamBuilder {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&header(format, Checks::None));
        StreamBuilder { bytes }
    }

    /// Adds a record that holds what `fill` appends. `fill` may only append.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` if that is over 4 GiB; the builder is then of no more use.
    pub fn record(&mut self, tag: u32, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEADER]);
        fill(&mut self.bytes);
        let length = self.bytes.len().checked_sub(at + HEADER).ok_or(io::ErrorKind::InvalidData)?;
        self.bytes[at..at + 8].copy_from_slice(&prefix(tag, length)?);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        Ok(())
    }

    /// Returns the bytes so far, a whole stream.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes, a whole stream.
    #[must_use]
    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes.into_boxed_slice()
    }

    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER);
    }

    /// Copies the stream into sealed memory that can be passed on; `name` is for people who look into `/proc`.
    ///
    /// # Errors
    ///
    /// No memory or no descriptor is left.
    pub fn seal(&self, name: &str) -> io::Result<File> {
        let mut file = sys::memfd::create(name)?;
        file.write_all(&self.bytes)?;
        sys::memfd::seal(&file)?;
        Ok(file)
    }
}

/// A stream that grows in a file or another sink, each record with its checksum.
///
/// Buffering and syncing are the caller's: what reached the disk before a crash is read back, the rest is a torn tail.
#[derive(Debug)]
pub struct StreamWriter<W> {
    sink: W,
}

impl<W: Write> StreamWriter<W> {
    /// Starts a stream in an empty `sink`.
    ///
    /// # Errors
    ///
    /// What the sink reports.
    pub fn start(mut sink: W, format: StreamFormat) -> io::Result<StreamWriter<W>> {
        sink.write_all(&header(format, Checks::Each))?;
        Ok(StreamWriter { sink })
    }

    /// Goes on with a checked stream whose whole records end where `sink` stands: at [`Records::position`] after the
    /// last record, everything behind it cut off.
    ///
    /// [`Records::position`]: super::Records::position
    pub fn resume(sink: W) -> StreamWriter<W> {
        StreamWriter { sink }
    }

    /// Adds a record that holds `payload`.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` if it is over 4 GiB: nothing was written. What the sink reports: the tail may be torn.
    pub fn append(&mut self, tag: u32, payload: &[u8]) -> io::Result<()> {
        let head = prefix(tag, payload.len())?;
        let mut start = [0; HEADER];
        start[..8].copy_from_slice(&head);
        start[8..12].copy_from_slice(&checksum(&head, payload).to_le_bytes());
        let padding = payload.len().next_multiple_of(ALIGN) - payload.len();
        self.sink.write_all(&start)?;
        self.sink.write_all(payload)?;
        self.sink.write_all(&[0; ALIGN][..padding])
    }

    /// Gives what is buffered to the system.
    ///
    /// # Errors
    ///
    /// What the sink reports.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Returns the sink.
    pub fn into_inner(self) -> W {
        self.sink
    }
}
