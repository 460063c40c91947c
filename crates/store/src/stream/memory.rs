//! A stream in memory: sealed memory of another process, or bytes of our own.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use sys::memfd::{Pages, Sealed};

use super::{Records, StreamError, StreamFormat};

/// A whole stream in memory that nobody changes any more.
#[derive(Debug)]
pub struct Chunk {
    memory: Memory,
    format: StreamFormat,
}

#[derive(Debug)]
enum Memory {
    Sealed(Sealed),
    Own(Box<[u8]>),
}

/// Why memory that was passed to us is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// It is not sealed, too long, has holes, or could not be mapped.
    #[error("cannot map the memory that was passed")]
    NotMapped(#[source] io::Error),
    /// It holds something else.
    #[error("cannot read the memory that was passed")]
    NotAStream(#[from] StreamError),
    /// What it holds is not whole.
    #[error("the memory that was passed is torn off at byte {at}")]
    Torn {
        /// Where the record begins that is not whole.
        at: usize,
    },
}

impl Chunk {
    /// Takes memory that another process sealed, of at most `most` bytes. The descriptor may be closed afterwards.
    ///
    /// # Errors
    ///
    /// [`ChunkError`]: it is not what it should be.
    pub fn sealed(file: &File, format: StreamFormat, most: u64) -> Result<Chunk, ChunkError> {
        let sealed = Sealed::of(file, most, Pages::Now).map_err(ChunkError::NotMapped)?;
        Chunk { memory: Memory::Sealed(sealed), format }.checked()
    }

    /// As [`Chunk::sealed`], of a descriptor that came over a socket.
    ///
    /// # Errors
    ///
    /// As [`Chunk::sealed`].
    pub fn passed(
        descriptor: OwnedFd,
        format: StreamFormat,
        most: u64,
    ) -> Result<Chunk, ChunkError> {
        Chunk::sealed(&File::from(descriptor), format, most)
    }

    /// Takes bytes that are ours already.
    ///
    /// # Errors
    ///
    /// [`ChunkError`]: they are not what they should be.
    pub fn own(bytes: Box<[u8]>, format: StreamFormat) -> Result<Chunk, ChunkError> {
        Chunk { memory: Memory::Own(bytes), format }.checked()
    }

    /// Returns all bytes, the header included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Sealed(sealed) => sealed.bytes(),
            Memory::Own(bytes) => bytes,
        }
    }

    /// Returns the records.
    ///
    /// # Errors
    ///
    /// None for a chunk that was taken: it was looked through then.
    pub fn records(&self) -> Result<Records<'_>, StreamError> {
        Records::of(self.bytes(), self.format)
    }

    /// Looks through all records: none of them is torn.
    fn checked(self) -> Result<Chunk, ChunkError> {
        let mut records = self.records()?;
        while records.next().is_some() {}
        if records.is_torn() {
            return Err(ChunkError::Torn { at: records.position() });
        }
        Ok(self)
    }
}
