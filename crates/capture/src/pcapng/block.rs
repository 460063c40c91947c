//! Blocks of pcapng and the options in them, checked before they are used.

use super::{ORDER, SECTION};
use wire::Endian;

/// The framing of a block: type, length, and the length again.
const FRAME: usize = 12;

/// A block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'c> {
    pub(super) kind: u32,
    pub(super) body: &'c [u8],
    pub(super) endian: Endian,
    /// How many bytes it has in all.
    pub(super) length: usize,
}

/// Returns the order of bytes of the section that begins here.
pub(super) fn section_order(bytes: &[u8]) -> Option<Endian> {
    let order: &[u8; 4] = bytes.get(8..)?.first_chunk()?;
    [Endian::Little, Endian::Big].into_iter().find(|endian| endian.u32(*order) == ORDER)
}

impl<'c> Block<'c> {
    /// Reads the block that `bytes` begin with, in a section of this order; none if there can be none.
    pub(super) fn of(bytes: &'c [u8], endian: Endian) -> Option<Block<'c>> {
        let head: &[u8; 8] = bytes.first_chunk()?;
        let [a, b, c, d, e, f, g, h] = *head;
        let kind = endian.u32([a, b, c, d]);
        let endian = if kind == SECTION { section_order(bytes)? } else { endian };
        let length = usize::try_from(endian.u32([e, f, g, h])).ok()?;
        if length < FRAME || !length.is_multiple_of(4) {
            return None;
        }
        let whole = bytes.get(..length)?;
        let (body, again) = whole.get(8..)?.split_last_chunk::<4>()?;
        (*again == [e, f, g, h]).then_some(Block { kind, body, endian, length })
    }

    /// Reads a number of four bytes of the body.
    pub(super) fn u32(&self, at: usize) -> Option<u32> {
        Some(self.endian.u32(*self.body.get(at..)?.first_chunk()?))
    }

    /// Reads a number of two bytes of the body.
    pub(super) fn u16(&self, at: usize) -> Option<u16> {
        Some(self.endian.u16(*self.body.get(at..)?.first_chunk()?))
    }

    /// Reads a time: its upper half, then its lower half.
    pub(super) fn time(&self, at: usize) -> Option<u64> {
        Some(u64::from(self.u32(at)?) << 32 | u64::from(self.u32(at + 4)?))
    }

    /// Returns `stored` bytes from `at`, and where the options behind them and their padding begin.
    pub(super) fn data(&self, at: usize, stored: u32) -> Option<(&'c [u8], usize)> {
        let stored = usize::try_from(stored).ok()?;
        let end = at.checked_add(stored)?;
        Some((self.body.get(at..end)?, end.checked_next_multiple_of(4)?))
    }

    /// Reads the options from `at` on, up to the first that is not whole.
    pub(super) fn options(&self, at: usize) -> Options<'c> {
        Options { rest: self.body.get(at..).unwrap_or_default(), endian: self.endian }
    }
}

/// The options of a block: a code and a value each.
#[derive(Debug)]
pub(super) struct Options<'c> {
    rest: &'c [u8],
    endian: Endian,
}

impl<'c> Iterator for Options<'c> {
    type Item = (u16, &'c [u8]);

    fn next(&mut self) -> Option<(u16, &'c [u8])> {
        let ([a, b, c, d], rest) = self.rest.split_first_chunk::<4>()?;
        let code = self.endian.u16([*a, *b]);
        let length = usize::from(self.endian.u16([*c, *d]));
        if code == 0 {
            return None;
        }
        let value = rest.get(..length)?;
        self.rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    }
}
