//! Checksums of parts of a file.
//!
//! A hostile file begins a frame at every eighth byte, each of which says that it takes the rest of the file. To read the rest
//! for each takes a time that grows with the square of the length, a minute for 4 MiB; what many long parts have in common
//! is read once here.

use std::cell::{Cell, OnceCell};

/// The checksum of what is before it is noted for each block of this length.
const BLOCK: usize = 4096;
/// How many times as many bytes as there are may be read for parts as they are; a file that writers left needs one.
const PLAIN_READS: usize = 4;
/// The bits of the length of a part.
const LENGTH_BITS: usize = 32;

/// For each power of two what so many zeros behind a text make of each bit of its checksum.
type Shifts = [[u32; 32]; LENGTH_BITS];

/// Checksums of parts of some bytes, which together take a time in proportion to the bytes and to the number of parts.
#[derive(Debug)]
pub(super) struct PartChecksums<'a> {
    bytes: &'a [u8],
    /// How many bytes may still be read as they are.
    left: Cell<usize>,
    /// The checksums of the first blocks: of none, of one, and so on.
    blocks: OnceCell<Vec<u32>>,
    shifts: OnceCell<Box<Shifts>>,
}

impl<'a> PartChecksums<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> PartChecksums<'a> {
        let left = Cell::new(bytes.len().saturating_mul(PLAIN_READS));
        PartChecksums { bytes, left, blocks: OnceCell::new(), shifts: OnceCell::new() }
    }

    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the checksum of a text with the checksum `crc` and, behind it, the `len` bytes at `at`; `None` if they are not there.
    pub(super) fn append(&self, crc: u32, at: usize, len: usize) -> Option<u32> {
        let part = self.bytes.get(at..at.checked_add(len)?)?;
        let left = self.left.get().checked_sub(len);
        if let Some(left) = left {
            self.left.set(left);
        }
        if left.is_some() || len <= BLOCK {
            return Some(crc32c::crc32c_append(crc, part));
        }
        // The checksum of what is before the part counts with so many zeros behind it, and falls out of the sum.
        Some(self.shifted(crc ^ self.before(at), len) ^ self.before(at + len))
    }

    /// Returns the checksum of everything before `at`.
    fn before(&self, at: usize) -> u32 {
        let blocks = self.blocks.get_or_init(|| {
            let each = self.bytes.chunks(BLOCK).scan(0, |crc, block| {
                *crc = crc32c::crc32c_append(*crc, block);
                Some(*crc)
            });
            std::iter::once(0).chain(each).collect()
        });
        let whole = at / BLOCK;
        let crc = blocks.get(whole).copied().unwrap_or_default();
        crc32c::crc32c_append(crc, self.bytes.get(whole * BLOCK..at).unwrap_or_default())
    }

    /// Returns what `len` zeros behind a text make of its checksum, apart from what they make of that of no text.
    fn shifted(&self, crc: u32, len: usize) -> u32 {
        let shifts = self.shifts.get_or_init(|| {
            let of_bit = |power: usize, bit: usize| crc32c::crc32c_combine(1 << bit, 0, 1 << power);
            let of_power = |power| std::array::from_fn(|bit| of_bit(power, bit));
            Box::new(std::array::from_fn(of_power))
        });
        let (mut crc, mut powers) = (crc, len);
        while powers != 0 {
            let of_bit = &shifts[powers.trailing_zeros() as usize % LENGTH_BITS];
            powers &= powers - 1;
            let (mut sum, mut bits) = (0, crc);
            while bits != 0 {
                sum ^= of_bit[bits.trailing_zeros() as usize % 32];
                bits &= bits - 1;
            }
            crc = sum;
        }
        crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_same_checksum_however_often_parts_are_asked_for() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at * at).to_le_bytes()[1]).collect();
        let sums = PartChecksums::of(&bytes);
        let mut random = 1_u64;
        for _ in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize % bytes.len();
            let len = (random >> 17) as usize % (bytes.len() - at + 1);
            let expected = crc32c::crc32c_append(7, &bytes[at..at + len]);
            assert_eq!(sums.append(7, at, len), Some(expected), "{len} bytes at {at}");
        }
        assert!(sums.left.get() < BLOCK, "most of them were not read as they are");
        assert_eq!(sums.append(0, bytes.len(), 1), None);
        assert_eq!(sums.append(0, usize::MAX, 2), None);
    }
}
