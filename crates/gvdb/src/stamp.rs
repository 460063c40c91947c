//! The stamp: a generation and checksums inside the image, in a nested table that other readers do not see.

use std::ops::Range;

use super::layout::{ITEM_LEN, STAMP, Span, TABLE, TABLE_HEAD_LEN, hash};
use super::linear_crc::joined;
use super::read::GvdbTable;
use crate::ByteOrder;

/// The version of the stamp that this code writes. Later versions may add fields; `crc32c` stays what it is.
const VERSION: u32 = 1;

/// What the stamp of an image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// There is none: another program wrote the file, or what led to the stamp is damaged, which
    /// [`GvdbTable::check`] notices.
    None,
    /// The file is, byte for byte, as it was written.
    Good {
        /// The generation that the writer gave it.
        generation: u64,
    },
    /// The file is not as it was written.
    Bad,
}

/// Verifies the stamp of an image: one pass over all bytes.
#[must_use]
pub fn stamp(bytes: &[u8]) -> Stamp {
    let Ok(root) = GvdbTable::open(bytes) else { return Stamp::None };
    if root.find(hash(STAMP.as_bytes()), STAMP, TABLE).is_none() {
        return Stamp::None;
    }
    verify(root).map_or(Stamp::Bad, |generation| Stamp::Good { generation })
}

/// Returns the generation, if everything is as it was written.
fn verify(root: GvdbTable<'_>) -> Option<u64> {
    let fields = root.nested(STAMP)?;
    let crc_at = crc_at(root)?;
    let (before, crc, after) = around(root.bytes, crc_at)?;
    if number(fields, "version", b"\0u").map(u32::from_le_bytes)? < VERSION
        || file_sum(before, after) != crc
    {
        return None;
    }
    number(fields, "generation", b"\0t").map(u64::from_le_bytes)
}

/// Sets the checksum of an image that has a stamp.
pub(super) fn seal(image: &mut [u8]) {
    let Some(at) = GvdbTable::open(image).ok().and_then(crc_at) else { return };
    let Some((before, _, after)) = around(image, at) else { return };
    set_crc(image, at, file_sum(before, after));
}

/// Sets the checksum of an image of ours, of whose part `known` behind the stamp it is known.
fn seal_with(image: &mut [u8], known: Range<usize>, sum: u32) -> Option<()> {
    let at = crc_at(GvdbTable::open(image).ok()?)?;
    let (before, _, after) = around(image, at)?;
    let behind = image.get(known.end..)?;
    let between = after.get(..known.start.checked_sub(at + 4)?)?;
    let until_known = file_sum(before, between);
    let sum = crc32c::crc32c_append(joined(until_known, sum, known.len()), behind);
    set_crc(image, at, sum);
    Some(())
}

fn set_crc(image: &mut [u8], at: usize, sum: u32) {
    image[at..at + 4].copy_from_slice(&in_order(sum.to_le_bytes(), ByteOrder::NATIVE));
}

/// Gives an image of ours another generation and seals it, after the sums of values were changed. The names and values are
/// in `data`, with this checksum.
pub(super) fn renew(
    image: &mut [u8],
    generation: u64,
    data: Range<usize>,
    data_sum: u32,
) -> Option<()> {
    let root = GvdbTable::open(image).ok()?;
    let fields = root.nested(STAMP)?;
    let (_, item) = fields.find(hash(b"generation"), "generation", super::layout::VALUE)?;
    let sums_at = sums_at(root)?;
    let sums_len = root.items.len() * 4;
    *image.get_mut(item.value.start as usize..)?.first_chunk_mut()? = generation.to_ne_bytes();
    let (sums, behind) = image.get_mut(sums_at..)?.split_at_mut_checked(sums_len)?;
    *behind.first_chunk_mut()? = crc32c::crc32c(sums).to_ne_bytes();
    seal_with(image, data, data_sum)
}

/// Returns the names and values of the nested table.
pub(super) fn fields(generation: u64, value_sums: &[u32]) -> [(&'static str, Vec<u8>); N_FIELDS] {
    let mut sums: Vec<u8> = Vec::with_capacity(value_sums.len() * 4 + 8);
    sums.extend(value_sums.iter().flat_map(|sum| sum.to_ne_bytes()));
    let own = crc32c::crc32c(&sums);
    sums.extend_from_slice(&own.to_ne_bytes());
    sums.extend_from_slice(SUMS_TYPE);
    [
        ("version", [&VERSION.to_ne_bytes()[..], b"\0u"].concat()),
        ("generation", [&generation.to_ne_bytes()[..], b"\0t"].concat()),
        ("crc32c", [&[0; 4][..], b"\0u"].concat()),
        ("sums", sums),
    ]
}

/// What follows the sums: the type of their list.
pub(super) const SUMS_TYPE: &[u8] = b"\0au";

/// Where the sums are from the beginning of the stamp in the images that this code writes: a fixed place, so that they
/// are found when what leads to them is damaged.
pub(super) const SUMS_AT: usize = 176;

/// Returns the checksum of one value: CRC-32C of its bytes, continued from the hash of its name, so that a value under
/// another name has another sum.
#[inline]
pub(super) fn value_sum(name_hash: u32, value: &[u8]) -> u32 {
    crc32c::crc32c_append(name_hash, value)
}

/// The checksums of the values of a damaged file, by index of item.
pub(super) struct ValueSums<'a> {
    sums: &'a [[u8; 4]],
    order: ByteOrder,
    /// The sums are as they were written: where one does not match, the value is damaged.
    pub(super) are_intact: bool,
}

impl<'a> ValueSums<'a> {
    /// Reads the sums of a table of `n_items` from the bytes at `at`, if there are so many.
    pub(super) fn at(
        bytes: &'a [u8],
        at: usize,
        n_items: usize,
        order: ByteOrder,
    ) -> Option<ValueSums<'a>> {
        let len = n_items.checked_mul(4)?;
        let sums = bytes.get(at..)?.get(..len)?;
        let own = bytes.get(at..)?.get(len..)?.first_chunk::<4>()?;
        let are_intact = u32::from_le_bytes(in_order(*own, order)) == crc32c::crc32c(sums);
        Some(ValueSums { sums: sums.as_chunks().0, order, are_intact })
    }

    /// Returns the sum of the value of item `index`.
    pub(super) fn get(&self, index: u32) -> Option<u32> {
        self.sums.get(index as usize).map(|sum| u32::from_le_bytes(in_order(*sum, self.order)))
    }
}

/// Returns where the sums are if the way to them is intact.
pub(super) fn sums_at(root: GvdbTable<'_>) -> Option<usize> {
    let (_, item) = root.nested(STAMP)?.find(hash(b"sums"), "sums", super::layout::VALUE)?;
    Some(item.value.start as usize)
}

/// Returns how many sums the stamp has that is behind a root table with this end.
pub(super) fn n_sums(bytes: &[u8], table_end: usize) -> Option<usize> {
    let start = u32::try_from(table_end.checked_next_multiple_of(8)?).ok()?;
    let end = start.checked_add(u32::try_from(OWN_LEN).ok()?)?;
    let fields = GvdbTable::at(bytes, ByteOrder::NATIVE, Span { start, end })?;
    let (_, item) = fields.find(hash(b"sums"), "sums", super::layout::VALUE)?;
    Some(item.value.len().checked_sub(4 + SUMS_TYPE.len())? / 4)
}

/// The length of the stamp's table without its names and values.
const OWN_LEN: usize = TABLE_HEAD_LEN + N_FIELDS * (4 + ITEM_LEN);
/// The number of its names.
const N_FIELDS: usize = 4;

/// Returns where the checksum of the file is.
fn crc_at(root: GvdbTable<'_>) -> Option<usize> {
    let (_, item) = root.nested(STAMP)?.find(hash(b"crc32c"), "crc32c", super::layout::VALUE)?;
    (item.value.of(root.bytes, 8)?.get(4..)? == b"\0u").then_some(item.value.start as usize)
}

/// Returns the bytes before and after the checksum at `at`, and the checksum.
fn around(bytes: &[u8], at: usize) -> Option<(&[u8], u32, &[u8])> {
    let (before, rest) = bytes.split_at_checked(at)?;
    let (crc, after) = rest.split_first_chunk::<4>()?;
    let order = super::layout::header_order(bytes)?;
    Some((before, u32::from_le_bytes(in_order(*crc, order)), after))
}

/// Returns CRC-32C of a file whose own checksum is taken as zero.
fn file_sum(before: &[u8], after: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]), after)
}

/// Returns the bytes of the number under `name`, least significant first, if its type is `ty`.
fn number<const N: usize>(fields: GvdbTable<'_>, name: &str, ty: &[u8; 2]) -> Option<[u8; N]> {
    let (bytes, rest) = fields.value(name)?.split_first_chunk::<N>()?;
    (rest == ty).then_some(in_order(*bytes, fields.order()))
}

/// Turns bytes in `order` into bytes with the least significant first, and back.
fn in_order<const N: usize>(mut bytes: [u8; N], order: ByteOrder) -> [u8; N] {
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}
