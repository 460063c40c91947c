//! Looking things up in bytes that nobody has checked.

use super::layout::{
    HEADER_LEN, ITEM_LEN, LIST, NO_PARENT, Span, TABLE, TABLE_HEAD_LEN, TableItem, VALUE,
    header_order, u32_at,
};
use crate::ByteOrder;

/// Why there is no table to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The bytes are not a gvdb file: too short, or another signature or version.
    #[error("not a gvdb file")]
    NotGvdb,
    /// The header is one of a gvdb file, but it leads to no table: the file is damaged.
    #[error("the header leads to no table")]
    NoTable,
}

/// A table over bytes that nobody has checked.
///
/// Whatever the bytes are, nothing here panics, loops for ever or takes memory out of proportion; what cannot be right
/// is not there.
#[derive(Clone, Copy, Debug)]
pub struct GvdbTable<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) order: ByteOrder,
    /// Where the table's own chunk is.
    pub(super) span: Span,
    filter_shift: u32,
    filter: &'a [[u8; 4]],
    pub(super) buckets: &'a [[u8; 4]],
    /// See [`reciprocal`].
    per_bucket: u64,
    pub(super) items: &'a [[u8; ITEM_LEN]],
}

/// Where a table is in its file: what [`GvdbTable::open`] found, without the bytes.
///
/// For one who holds the bytes and looks things up again and again: attaching is quicker than opening.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    order: ByteOrder,
    span: Span,
    filter_shift: u32,
    buckets_at: u32,
    items_at: u32,
    per_bucket: u64,
}

impl Layout {
    /// Returns the table of `bytes`, the ones that were opened. Other bytes give other answers, or no table.
    #[must_use]
    #[inline]
    pub fn attach(self, bytes: &[u8]) -> Option<GvdbTable<'_>> {
        let Layout { order, span, filter_shift, per_bucket, .. } = self;
        let filter_at = span.start as usize + TABLE_HEAD_LEN;
        let (buckets_at, items_at) = (self.buckets_at as usize, self.items_at as usize);
        let filter = bytes.get(filter_at..buckets_at)?.as_chunks().0;
        let buckets = bytes.get(buckets_at..items_at)?.as_chunks().0;
        let items = bytes.get(items_at..span.end as usize)?.as_chunks().0;
        Some(GvdbTable { bytes, order, span, filter_shift, filter, buckets, per_bucket, items })
    }
}

impl<'a> GvdbTable<'a> {
    /// Opens the root table: looks at the header and at the table's size, at nothing else.
    ///
    /// # Errors
    ///
    /// The header is not one of a gvdb file, or leads to no table. dconf's own readers take the second for an empty
    /// database.
    pub fn open(bytes: &'a [u8]) -> Result<GvdbTable<'a>, OpenError> {
        let order = header_order(bytes).ok_or(OpenError::NotGvdb)?;
        let span = root_span(bytes).ok_or(OpenError::NotGvdb)?;
        GvdbTable::at(bytes, order, span).ok_or(OpenError::NoTable)
    }

    /// Reads the chunk at `span` as a table.
    pub(super) fn at(bytes: &'a [u8], order: ByteOrder, span: Span) -> Option<GvdbTable<'a>> {
        let chunk = span.of(bytes, 4)?;
        let filter_head = u32_at(chunk, 0)?;
        let n_buckets = u32_at(chunk, 4)?;
        let n_words = (filter_head & 0x07ff_ffff) as usize;
        let (words, rest) = chunk.get(TABLE_HEAD_LEN..)?.split_at_checked(n_words * 4)?;
        let (buckets, items) = rest.split_at_checked((n_buckets as usize).checked_mul(4)?)?;
        let (items, []) = items.as_chunks() else { return None };
        let (filter, buckets) = (words.as_chunks().0, buckets.as_chunks().0);
        let (filter_shift, per_bucket) = (filter_head >> 27, reciprocal(n_buckets));
        Some(GvdbTable { bytes, order, span, filter_shift, filter, buckets, per_bucket, items })
    }

    /// Makes a table of items alone, in which nothing can be looked up: what is left when its head is damaged.
    pub(super) fn of_items(bytes: &'a [u8], order: ByteOrder, span: Span) -> GvdbTable<'a> {
        let items = span.of(bytes, 1).unwrap_or_default().as_chunks().0;
        let (filter, buckets) = (&[], &[]);
        GvdbTable { bytes, order, span, filter_shift: 0, filter, buckets, per_bucket: 0, items }
    }

    /// Returns where the table is, to attach it later to the same bytes.
    #[must_use]
    pub fn layout(self) -> Layout {
        let GvdbTable { order, span, filter_shift, per_bucket, .. } = self;
        // The table is in a span whose ends are a u32 each, so nothing in it is further on.
        let after = |at: u32, len: usize| at.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
        let buckets_at = after(span.start, TABLE_HEAD_LEN + self.filter.as_flattened().len());
        let items_at = after(buckets_at, self.buckets.as_flattened().len());
        Layout { order, span, filter_shift, buckets_at, items_at, per_bucket }
    }

    /// Returns the byte order of the values.
    #[must_use]
    pub fn order(self) -> ByteOrder {
        self.order
    }

    /// Returns the bytes of the `v` that belongs to `name`.
    #[must_use]
    pub fn value(self, name: &str) -> Option<&'a [u8]> {
        self.value_with_hash(super::hash(name.as_bytes()), name)
    }

    /// Returns the bytes of the `v` that belongs to `name`, whose [`hash`](super::hash) the caller has.
    #[must_use]
    #[inline]
    pub fn value_with_hash(self, hash: u32, name: &str) -> Option<&'a [u8]> {
        self.find(hash, name, VALUE)?.1.value.of(self.bytes, 8)
    }

    /// Says whether `name` has a value.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the names in directory `dir`, in stored order: `b` for the key `/a/b`, `c/` for the directory `/a/c/`.
    #[must_use]
    pub fn list(self, dir: &str) -> Option<Vec<&'a str>> {
        let (index, item) = self.find(super::hash(dir.as_bytes()), dir, LIST)?;
        let (children, []) = item.value.of(self.bytes, 4)?.as_chunks() else { return None };
        let names = children.iter().filter_map(|child| {
            let child = self.item(u32::from_le_bytes(*child))?;
            if child.parent != index {
                return None;
            }
            str::from_utf8(child.part(self.bytes)?).ok()
        });
        // A list that names one child many times is damaged; there are no more names than items.
        Some(names.take(self.items.len()).collect())
    }

    /// Returns the table nested under `name`, such as `.locks`.
    #[must_use]
    pub fn nested(self, name: &str) -> Option<GvdbTable<'a>> {
        let (_, item) = self.find(super::hash(name.as_bytes()), name, TABLE)?;
        GvdbTable::at(self.bytes, self.order, item.value)
    }

    /// Returns item `index`.
    #[inline]
    pub(super) fn item(self, index: u32) -> Option<TableItem> {
        self.items.get(index as usize).map(TableItem::decode)
    }

    /// Returns the index and the item of `name` with type `kind`.
    #[inline]
    pub(super) fn find(self, hash: u32, name: &str, kind: u8) -> Option<(u32, TableItem)> {
        if !self.may_have(hash) {
            return None;
        }
        let (start, end) = self.bucket(hash)?;
        let found = self.items.get(start as usize..end as usize)?;
        let skip = passed_over(found, hash);
        for (index, item) in (start + skip..).zip(found.get(skip as usize..)?) {
            let item = TableItem::decode(item);
            if item.hash == hash
                && item.kind == kind
                && is_named(self.bytes, self.items, item, name.as_bytes())
            {
                return Some((index, item));
            }
        }
        None
    }

    /// Says whether the bloom filter lets `hash` pass; without words it lets everything pass.
    #[inline]
    pub(super) fn may_have(self, hash: u32) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let word = u32::from_le_bytes(self.filter[(hash / 32) as usize % self.filter.len()]);
        let mask = (1 << (hash % 32)) | (1 << ((hash >> self.filter_shift) % 32));
        word & mask == mask
    }

    /// Returns the range of items that may have `hash`.
    #[inline]
    pub(super) fn bucket(self, hash: u32) -> Option<(u32, u32)> {
        // The number of buckets comes from a u32, and so does the number of items.
        let n_buckets = u32::try_from(self.buckets.len()).ok()?;
        let n_items = u32::try_from(self.items.len()).ok()?;
        let bucket = remainder(hash, n_buckets, self.per_bucket) as usize;
        let start = u32::from_le_bytes(*self.buckets.get(bucket)?);
        let end = self
            .buckets
            .get(bucket + 1)
            .map_or(n_items, |next| u32::from_le_bytes(*next).min(n_items));
        Some((start, end))
    }
}

/// Returns 1 if the first of several items has another hash, without a branch: whether it has cannot be predicted.
#[inline]
fn passed_over(items: &[[u8; ITEM_LEN]], hash: u32) -> u32 {
    let is_first = items.first().is_none_or(|item| TableItem::decode(item).hash == hash);
    u32::from((items.len() > 1) & !is_first)
}

/// Says whether the parts of `item` and of its parents make `name`, read from the end.
#[inline]
fn is_named(bytes: &[u8], items: &[[u8; ITEM_LEN]], mut item: TableItem, mut name: &[u8]) -> bool {
    loop {
        let Some(rest) = item.part(bytes).and_then(|part| name.strip_suffix(part)) else {
            return false;
        };
        name = rest;
        if item.parent == NO_PARENT {
            return name.is_empty();
        }
        // A part without bytes would let a cycle of parents go on for ever.
        match items.get(item.parent as usize) {
            Some(parent) if item.key_len > 0 => item = TableItem::decode(parent),
            _ => return false,
        }
    }
}

/// Returns 2^64 / `divisor`, rounded up, modulo 2^64: with it [`remainder`] needs no division. 0 for 0.
fn reciprocal(divisor: u32) -> u64 {
    u64::MAX.checked_div(divisor.into()).map_or(0, |quotient| quotient.wrapping_add(1))
}

/// Returns `number` modulo `divisor`, whose [`reciprocal`] is given; 0 if `divisor` is 0.
///
/// The low 64 bits of `number` times the reciprocal are the fraction of the quotient, exact enough for 32 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a remainder is less than the divisor")]
fn remainder(number: u32, divisor: u32, reciprocal: u64) -> u32 {
    let fraction = reciprocal.wrapping_mul(number.into());
    ((u128::from(fraction) * u128::from(divisor)) >> 64) as u32
}

/// Returns where the header says that the root table is.
pub(super) fn root_span(bytes: &[u8]) -> Option<Span> {
    Some(Span { start: u32_at(bytes, HEADER_LEN - 8)?, end: u32_at(bytes, HEADER_LEN - 4)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, hash, write};

    #[test]
    fn a_remainder_without_division_is_the_one_of_division() {
        let near = |n: u32| [n.wrapping_sub(1), n, n.wrapping_add(1)];
        let numbers: Vec<u32> =
            (0..32).flat_map(|bit| near(1 << bit)).chain([7, 4576, 5381, 0xdead_beef]).collect();
        for &divisor in &numbers {
            for number in numbers.iter().flat_map(|&n| [n, n.wrapping_mul(divisor), n ^ divisor]) {
                let expected = number.checked_rem(divisor).unwrap_or(0);
                assert_eq!(remainder(number, divisor, reciprocal(divisor)), expected);
            }
        }
    }

    #[test]
    fn names_of_all_lengths_are_told_from_names_that_differ_in_one_byte() {
        let value: &[u8] = b"\x01\0b";
        let mut names: Vec<String> = Vec::new();
        for dir in
            ["/", "/a/", "/org/gnome/", "/a-directory-with-a-long-name/b/", "/123456789abcdef/"]
        {
            names.extend((1..40).map(|len| format!("{dir}{}", "k".repeat(len))));
        }
        names.sort_unstable();
        let image = write(names.iter().map(|name| (&**name, value)), &Image::default()).unwrap();
        let table = GvdbTable::open(&image).unwrap();
        for name in &names {
            assert_eq!(table.value(name), Some(value), "{name}");
            let hash = hash(name.as_bytes());
            assert_eq!(table.value_with_hash(hash, &name[1..]), None);
            assert_eq!(table.value_with_hash(hash, &format!("/{name}")), None);
            for at in 0..name.len() {
                let mut other = name.clone().into_bytes();
                other[at] ^= 1;
                let other = String::from_utf8(other).unwrap();
                assert_eq!(table.value_with_hash(hash, &other), None, "{name} is not {other}");
            }
        }
    }

    #[test]
    fn a_table_is_attached_to_its_bytes_and_to_no_shorter_ones() {
        let value: &[u8] = b"\x01\0b";
        let image = write([("/a/b", value), ("/c", value)].into_iter(), &Image::default()).unwrap();
        let layout = GvdbTable::open(&image).unwrap().layout();
        let table = layout.attach(&image).unwrap();
        assert_eq!((table.value("/a/b"), table.value("/c")), (Some(value), Some(value)));
        table.check().unwrap();
        let end = table.span.end as usize;
        for len in 0..image.len() {
            let attached = layout.attach(&image[..len]);
            assert_eq!(attached.is_some(), len >= end);
            attached.map(|table| (table.value("/a/b"), table.value("/c")));
        }
        let zeros = vec![0; image.len()];
        assert_eq!(layout.attach(&zeros).unwrap().value("/a/b"), None);
    }
}
