//! The bytes of a gvdb file: header, items, alignment and hash. All integers are little-endian.

use crate::ByteOrder;

/// The length of the header.
pub(super) const HEADER_LEN: usize = 24;
/// The length of one item of a hash table.
pub(super) const ITEM_LEN: usize = 24;
/// The length of what is before the bloom words of a hash table.
pub(super) const TABLE_HEAD_LEN: usize = 8;
/// The parent of an item that has none.
pub(super) const NO_PARENT: u32 = u32::MAX;
/// The type of an item with a value.
pub(super) const VALUE: u8 = b'v';
/// The type of a directory.
pub(super) const LIST: u8 = b'L';
/// The type of a nested table.
pub(super) const TABLE: u8 = b'H';
/// The type of a directory without children, which only `dconf compile` makes.
pub(super) const NOTHING: u8 = 0;
/// The root item that holds the stamp.
pub(super) const STAMP: &str = ".unjank";
/// The root item that holds the locks.
pub(super) const LOCKS: &str = ".locks";

/// The longest full name: far above any real one, so that it bounds only hostile files.
pub(super) const MAX_NAME_LEN: usize = 1 << 20;

/// Returns how many bytes the full names of a file of `len_bytes` may have together.
///
/// Parents are shared, so a hostile file of some KiB could otherwise hold GiB of names.
pub(super) fn names_limit(len_bytes: usize) -> usize {
    len_bytes.saturating_mul(64).max(64 << 20)
}

/// Returns the hash of an item's full name.
#[must_use]
#[inline]
pub fn hash(name: &[u8]) -> u32 {
    hash_extend(5381, name)
}

/// The length of the blocks in which names are hashed.
const BLOCK_LEN: usize = 16;

/// Returns the hash of a name that begins with one whose hash is `hash` and goes on with `more`.
#[must_use]
#[inline]
pub(crate) fn hash_extend(hash: u32, more: &[u8]) -> u32 {
    // The format multiplies by 33 and adds, byte by byte. A block at once is one multiplication on the path from one
    // result to the next; the rest of the sum does not wait for it.
    let Some(last) = more.last_chunk::<BLOCK_LEN>() else { return hash_extend_short(hash, more) };
    let (blocks, rest) = more.as_chunks::<BLOCK_LEN>();
    let hash = blocks.iter().fold(hash, |hash, block| {
        hash_raised(hash, u128::from_le_bytes(*block) ^ RAISE, BLOCK_LEN)
    });
    // The rest is the last block with zeros for what was hashed before. How long it is cannot be predicted, so that
    // a branch for its length would cost more than all of this.
    let is_rest = !(u128::MAX >> (8 * rest.len()));
    hash_raised(hash, (u128::from_le_bytes(*last) ^ RAISE) & is_rest, rest.len())
}

/// Does the same for less than a block, four bytes at once.
fn hash_extend_short(hash: u32, more: &[u8]) -> u32 {
    let (fours, rest) = more.as_chunks::<4>();
    let hash = fours.iter().fold(hash, |hash, &[a, b, c, d]| {
        let four = signed(a)
            .wrapping_mul(POWERS[3])
            .wrapping_add(signed(b).wrapping_mul(POWERS[2]))
            .wrapping_add(signed(c).wrapping_mul(POWERS[1]))
            .wrapping_add(signed(d));
        hash.wrapping_mul(POWERS[4]).wrapping_add(four)
    });
    rest.iter().fold(hash, |hash, &byte| hash.wrapping_mul(33).wrapping_add(signed(byte)))
}

/// Turns each byte, taken as signed, into itself and 128, taken as unsigned.
const RAISE: u128 = u128::from_le_bytes([0x80; BLOCK_LEN]);

/// Goes on with the last `len` bytes of a block, which are raised by 128; the others are 0.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a block is its first and its last eight bytes"
)]
fn hash_raised(hash: u32, block: u128, len: usize) -> u32 {
    let (first, last) = (block as u64, (block >> 64) as u64);
    let raised = eight(first).wrapping_mul(POWERS[8]).wrapping_add(eight(last));
    hash.wrapping_mul(POWERS[len]).wrapping_add(raised).wrapping_sub(RAISED[len])
}

/// Returns the sum of eight unsigned bytes, the first times 33^7 … the last times 1: in pairs, in fours, in all.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the sum is modulo 2^32")]
fn eight(bytes: u64) -> u32 {
    const OF_PAIRS: u64 = 0x00ff_00ff_00ff_00ff;
    const OF_FOURS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = (bytes & OF_PAIRS) * 33 + ((bytes >> 8) & OF_PAIRS);
    let fours = (pairs & OF_FOURS) * (33 * 33) + ((pairs >> 16) & OF_FOURS);
    (fours as u32).wrapping_mul(POWERS[4]).wrapping_add((fours >> 32) as u32)
}

/// 33 to the 0th, the 1st … modulo 2^32.
static POWERS: [u32; BLOCK_LEN + 1] = {
    let mut powers = [1u32; BLOCK_LEN + 1];
    let mut at = 1;
    while at <= BLOCK_LEN {
        powers[at] = powers[at - 1].wrapping_mul(33);
        at += 1;
    }
    powers
};

/// What so many bytes that are raised by 128 have too much in their sum.
static RAISED: [u32; BLOCK_LEN + 1] = {
    let mut sums = [0u32; BLOCK_LEN + 1];
    let mut at = 1;
    while at <= BLOCK_LEN {
        sums[at] = sums[at - 1].wrapping_mul(33).wrapping_add(128);
        at += 1;
    }
    sums
};

/// Returns the hash of the name that gives `hash` when `more` is added to it: [`hash_extend`] backwards.
pub(super) fn hash_before(hash: u32, more: &[u8]) -> u32 {
    // 33 is odd, so it has an inverse modulo 2^32.
    const INVERSE: u32 = 0x3e0f_83e1;
    const { assert!(INVERSE.wrapping_mul(33) == 1) };
    more.iter()
        .rev()
        .fold(hash, |hash, &byte| hash.wrapping_sub(signed(byte)).wrapping_mul(INVERSE))
}

/// The format hashes bytes as signed.
fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

/// Reads the little-endian integer at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

/// Returns the header's byte order of values, if it is a header that readers accept.
pub(super) fn header_order(bytes: &[u8]) -> Option<ByteOrder> {
    if bytes.len() < HEADER_LEN || u32_at(bytes, 8) != Some(0) {
        return None;
    }
    match bytes.first_chunk::<8>()? {
        b"GVariant" => Some(ByteOrder::Little),
        b"raVGtnai" => Some(ByteOrder::Big),
        _ => None,
    }
}

/// Returns the first eight bytes of a file whose values are in `order`.
pub(super) const fn signature(order: ByteOrder) -> &'static [u8; 8] {
    match order {
        ByteOrder::Little => b"GVariant",
        ByteOrder::Big => b"raVGtnai",
    }
}

/// Where something is in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    /// Returns the bytes, if they are in the file and begin at a multiple of `align`.
    #[inline]
    pub(super) fn of(self, bytes: &[u8], align: u32) -> Option<&[u8]> {
        if !self.start.is_multiple_of(align) {
            return None;
        }
        bytes.get(self.start as usize..self.end as usize)
    }

    pub(super) fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }
}

/// One item of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableItem {
    pub(super) hash: u32,
    pub(super) parent: u32,
    pub(super) key_start: u32,
    pub(super) key_len: u16,
    pub(super) kind: u8,
    pub(super) value: Span,
}

impl TableItem {
    #[inline]
    pub(super) fn decode(bytes: &[u8; ITEM_LEN]) -> TableItem {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        TableItem {
            hash: word(0),
            parent: word(4),
            key_start: word(8),
            key_len: u16::from_le_bytes([bytes[12], bytes[13]]),
            kind: bytes[14],
            value: Span { start: word(16), end: word(20) },
        }
    }

    pub(super) fn encode(&self) -> [u8; ITEM_LEN] {
        let mut bytes = [0; ITEM_LEN];
        bytes[0..4].copy_from_slice(&self.hash.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.parent.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key_start.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.key_len.to_le_bytes());
        bytes[14] = self.kind;
        bytes[16..20].copy_from_slice(&self.value.start.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.value.end.to_le_bytes());
        bytes
    }

    /// Returns where the item's part of its name is.
    pub(super) fn part_span(&self) -> Span {
        Span { start: self.key_start, end: self.key_start.saturating_add(self.key_len.into()) }
    }

    /// Returns the item's part of its name.
    #[inline]
    pub(super) fn part<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.key_start as usize..)?.get(..usize::from(self.key_len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_bytes(name: &[u8]) -> u32 {
        name.iter().fold(5381u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add((byte as i8 as i32) as u32)
        })
    }

    #[test]
    fn the_hash_is_the_one_of_the_reference_and_takes_bytes_as_signed() {
        assert_eq!(hash(b"/"), 0x0002_b5d4);
        assert_eq!(hash(b"/a/"), 0x0b87_8784);
        assert_eq!(hash(b"/a/b"), 0x7c78_7866);
        let extremes: Vec<u8> =
            (0..70u8).map(|at| [0, 0x7f, 0x80, 0xff][at as usize % 4]).collect();
        let names =
            ["", "x", "/org/gnome/desktop/interface/font-name", "/ü/ß/日本/ü/ß/日本/ü/ß/日本"];
        for name in
            names.map(str::as_bytes).into_iter().chain([&extremes[..], &[0xff; 64], &[0x80; 64]])
        {
            for len in 0..=name.len() {
                let name = &name[..len];
                assert_eq!(hash(name), by_bytes(name));
            }
        }
    }

    #[test]
    fn a_hash_goes_on_from_a_prefix_and_back_to_it() {
        let name = "/org/gnöme/a-b".as_bytes();
        for cut in 0..=name.len() {
            let (first, more) = name.split_at(cut);
            assert_eq!(hash_extend(hash(first), more), hash(name));
            assert_eq!(hash_before(hash(name), more), hash(first));
        }
    }

    #[test]
    fn an_item_is_24_bytes_there_and_back() {
        let item = TableItem {
            hash: 1,
            parent: 2,
            key_start: 3,
            key_len: 4,
            kind: LIST,
            value: Span { start: 5, end: 6 },
        };
        assert_eq!(TableItem::decode(&item.encode()), item);
    }
}
