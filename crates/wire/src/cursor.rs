//! Reads numbers and texts in the order of bytes of a message, at their alignment.

use super::{DecodeFault, WireError};

/// The order of bytes in a message's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// The least byte first: `l`.
    Little,
    /// The greatest byte first: `B`.
    Big,
}

macro_rules! number {
    ($name:ident, $bytes:literal) => {
        /// Reads a number in this byte order.
        #[must_use]
        pub fn $name(self, bytes: [u8; $bytes]) -> $name {
            match self {
                Endian::Little => $name::from_le_bytes(bytes),
                Endian::Big => $name::from_be_bytes(bytes),
            }
        }
    };
}

impl Endian {
    pub(crate) fn of(mark: u8) -> Option<Endian> {
        match mark {
            b'l' => Some(Endian::Little),
            b'B' => Some(Endian::Big),
            _ => None,
        }
    }

    number!(u16, 2);
    number!(u32, 4);
    number!(u64, 8);
}

/// A place in a message, and the end that must not be passed.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'m> {
    bytes: &'m [u8],
    at: usize,
    endian: Endian,
}

impl<'m> Cursor<'m> {
    /// Begins at `at`; what is aligned is aligned from the begin of `bytes`.
    pub(super) fn new(bytes: &'m [u8], at: usize, endian: Endian) -> Cursor<'m> {
        Cursor { bytes, at, endian }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn fault(&self, fault: DecodeFault) -> WireError {
        WireError { fault, at: self.at }
    }

    /// Returns all that is left.
    pub(super) fn rest(&self) -> &'m [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns a cursor over the next `length` bytes, which keeps their alignment, and does not move.
    pub(super) fn within(&self, length: usize) -> Result<Cursor<'m>, WireError> {
        let end = self.at.checked_add(length).ok_or(self.fault(DecodeFault::Cut))?;
        let bytes = self.bytes.get(..end).ok_or(self.fault(DecodeFault::Cut))?;
        Ok(Cursor { bytes, at: self.at, endian: self.endian })
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'m [u8], WireError> {
        let end = self.at.checked_add(length).ok_or(self.fault(DecodeFault::Cut))?;
        let taken = self.bytes.get(self.at..end).ok_or(self.fault(DecodeFault::Cut))?;
        self.at = end;
        Ok(taken)
    }

    /// Passes over padding, which must be zero.
    pub(super) fn pad(&mut self, alignment: usize) -> Result<(), WireError> {
        let length = self.at.next_multiple_of(alignment) - self.at;
        let at = self.at;
        let padding = self.take(length)?;
        if padding.iter().all(|byte| *byte == 0) {
            Ok(())
        } else {
            Err(WireError { fault: DecodeFault::Padding, at })
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let cut = self.fault(DecodeFault::Cut);
        self.take(N)?.try_into().map_err(|_| cut)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.pad(2)?;
        self.array().map(|bytes| self.endian.u16(bytes))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.pad(4)?;
        self.array().map(|bytes| self.endian.u32(bytes))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.pad(8)?;
        self.array().map(|bytes| self.endian.u64(bytes))
    }

    /// Reads a text with its length in four bytes.
    pub(super) fn text(&mut self) -> Result<&'m str, WireError> {
        let length = self.u32()?;
        let length = usize::try_from(length).map_err(|_| self.fault(DecodeFault::Cut))?;
        self.terminated(length)
    }

    /// Reads a signature with its length in one byte; its grammar is not looked at.
    pub(super) fn signature(&mut self) -> Result<&'m str, WireError> {
        let length = self.u8()?;
        self.terminated(length.into())
    }

    fn terminated(&mut self, length: usize) -> Result<&'m str, WireError> {
        let at = self.at;
        let fault = WireError { fault: DecodeFault::Text, at };
        let text = self.take(length)?;
        if self.u8()? != 0 || text.contains(&0) {
            return Err(fault);
        }
        std::str::from_utf8(text).map_err(|_| fault)
    }
}
