//! Looking things up in bytes that nobody has checked.

use super::layout::{
    HEADER_LEN, ITEM_LEN, Item, LIST, NO_PARENT, Span, TABLE, TABLE_HEAD_LEN, VALUE, header_order,
    names_limit, u32_at,
};
use super::names::Names;
use crate::table::ByteOrder;

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
pub struct Table<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) order: ByteOrder,
    /// Where the table's own chunk is.
    pub(super) span: Span,
    filter_shift: u32,
    filter: &'a [[u8; 4]],
    pub(super) buckets: &'a [[u8; 4]],
    pub(super) items: &'a [[u8; ITEM_LEN]],
}

impl<'a> Table<'a> {
    /// Opens the root table: looks at the header and at the table's size, at nothing else.
    ///
    /// # Errors
    ///
    /// The header is not one of a gvdb file, or leads to no table. dconf's own readers take the second for an empty
    /// database.
    pub fn open(bytes: &'a [u8]) -> Result<Table<'a>, OpenError> {
        let order = header_order(bytes).ok_or(OpenError::NotGvdb)?;
        let span = root_span(bytes).ok_or(OpenError::NotGvdb)?;
        Table::at(bytes, order, span).ok_or(OpenError::NoTable)
    }

    /// Reads the chunk at `span` as a table.
    pub(super) fn at(bytes: &'a [u8], order: ByteOrder, span: Span) -> Option<Table<'a>> {
        let chunk = span.of(bytes, 4)?;
        let filter_head = u32_at(chunk, 0)?;
        let n_buckets = u32_at(chunk, 4)? as usize;
        let n_words = (filter_head & 0x07ff_ffff) as usize;
        let (words, rest) = chunk.get(TABLE_HEAD_LEN..)?.split_at_checked(n_words * 4)?;
        let (buckets, items) = rest.split_at_checked(n_buckets.checked_mul(4)?)?;
        let (items, []) = items.as_chunks() else { return None };
        let (filter, buckets) = (words.as_chunks().0, buckets.as_chunks().0);
        Some(Table { bytes, order, span, filter_shift: filter_head >> 27, filter, buckets, items })
    }

    /// Makes a table of items alone, in which nothing can be looked up: what is left when its head is damaged.
    pub(super) fn of_items(bytes: &'a [u8], order: ByteOrder, span: Span) -> Table<'a> {
        let items = span.of(bytes, 1).unwrap_or_default().as_chunks().0;
        Table { bytes, order, span, filter_shift: 0, filter: &[], buckets: &[], items }
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
    pub fn nested(self, name: &str) -> Option<Table<'a>> {
        let (_, item) = self.find(super::hash(name.as_bytes()), name, TABLE)?;
        Table::at(self.bytes, self.order, item.value)
    }

    /// Returns every item that has a value, with its full name, in no useful order.
    ///
    /// An item whose name or value leads nowhere is left out, as dconf does.
    pub fn entries(self) -> impl Iterator<Item = (String, &'a [u8])> + 'a {
        let mut left_bytes = names_limit(self.bytes.len());
        let names = Names::of(self, &mut left_bytes.clone());
        (0u32..).zip(self.items).filter_map(move |(index, item)| {
            let item = Item::decode(item);
            if item.kind != VALUE {
                return None;
            }
            let value = item.value.of(self.bytes, 8)?;
            left_bytes = left_bytes.checked_sub(names.name_len(index)?)?;
            Some((names.text(index)?, value))
        })
    }

    /// Returns item `index`.
    #[inline]
    pub(super) fn item(self, index: u32) -> Option<Item> {
        self.items.get(index as usize).map(Item::decode)
    }

    /// Returns the index and the item of `name` with type `kind`.
    #[inline]
    pub(super) fn find(self, hash: u32, name: &str, kind: u8) -> Option<(u32, Item)> {
        if !self.may_have(hash) {
            return None;
        }
        let (start, end) = self.bucket(hash)?;
        (start..).zip(self.items.get(start as usize..end as usize)?).find_map(|(index, item)| {
            let item = Item::decode(item);
            (item.hash == hash && item.kind == kind && self.is_named(item, name.as_bytes()))
                .then_some((index, item))
        })
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
        let bucket = hash.checked_rem(n_buckets)? as usize;
        let start = u32::from_le_bytes(*self.buckets.get(bucket)?);
        let end = self
            .buckets
            .get(bucket + 1)
            .map_or(n_items, |next| u32::from_le_bytes(*next).min(n_items));
        Some((start, end))
    }

    /// Says whether the parts of `item` and of its parents make `name`, read from the end.
    #[inline]
    fn is_named(self, mut item: Item, mut name: &[u8]) -> bool {
        loop {
            let Some(rest) = item.part(self.bytes).and_then(|part| name.strip_suffix(part)) else {
                return false;
            };
            name = rest;
            if item.parent == NO_PARENT {
                return name.is_empty();
            }
            // A part without bytes would let a cycle of parents go on for ever.
            match self.item(item.parent) {
                Some(parent) if item.key_len > 0 => item = parent,
                _ => return false,
            }
        }
    }
}

/// Returns where the header says that the root table is.
pub(super) fn root_span(bytes: &[u8]) -> Option<Span> {
    Some(Span { start: u32_at(bytes, HEADER_LEN - 8)?, end: u32_at(bytes, HEADER_LEN - 4)? })
}
