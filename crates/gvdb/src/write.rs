//! Making the bytes of a table: one pass over sorted entries, then every item to its place.
//!
//! Order in the file: header, root table, stamp, names and values in the order of the entries, lists, locks. What a
//! cut at the end takes is thus the fewest keys: the table is whole, and names of directories come before their keys.

use super::layout::{
    HEADER_LEN, ITEM_LEN, LIST, LOCKS, MAX_NAME_LEN, NO_PARENT, STAMP, Span, TABLE, TABLE_HEAD_LEN,
    TableItem, VALUE, hash, hash_extend, names_limit, signature,
};
use super::stamp;
use crate::ByteOrder;

/// What an image holds besides its entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image<'a> {
    /// The keys in the nested table `.locks`, in any order; without any there is no such table.
    pub locks: &'a [&'a str],
    /// The generation in the stamp; `None` makes an image without a stamp, as dconf's own are.
    pub generation: Option<u64>,
}

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableWriteError {
    /// An entry's name is not a key path, as `/a/b` is.
    #[error("cannot store {name:?}: not a key")]
    NotAKey {
        /// The name.
        name: String,
    },
    /// An entry does not come after the one before it in byte order.
    #[error("cannot store {name:?}: out of order or stored twice")]
    OutOfOrder {
        /// The name.
        name: String,
    },
    /// One element of a path is longer than 65,535 bytes, or a path is longer than 1 MiB.
    #[error("cannot store a name of {len_bytes} bytes")]
    NameTooLong {
        /// The length of the whole name.
        len_bytes: usize,
    },
    /// The image would be larger than a file of this format can be (4 GiB), or so full of repeated long names that
    /// readers refuse it.
    #[error("cannot store so much in one file")]
    TooLarge,
}

/// Writes entries, dconf key paths in byte order with the bytes of a `v` in native byte order, as one image.
///
/// Directories are made from the paths. Without entries, locks and stamp the image is 32 bytes long.
///
/// # Errors
///
/// An entry that the format cannot hold, or that is not in its place.
pub fn write<'a>(
    entries: impl Iterator<Item = (&'a str, &'a [u8])>,
    image: &Image<'_>,
) -> Result<Vec<u8>, TableWriteError> {
    write_in(entries.map(|(name, value)| (name, [value])), image, 0)
}

/// Writes as [`write()`] does, for one who has values in pieces, and knows how large the file will be about: nothing is
/// copied but into it.
///
/// # Errors
///
/// As [`write()`].
pub fn write_in<'a>(
    entries: impl Iterator<Item = (&'a str, impl IntoIterator<Item = &'a [u8]>)>,
    image: &Image<'_>,
    expected_bytes: usize,
) -> Result<Vec<u8>, TableWriteError> {
    let mut root = tree(entries, expected_bytes)?;
    let lists_len = root.count_children()?;
    let locks = lock_table(image.locks)?;
    if locks.is_some() {
        root.add(hash(LOCKS.as_bytes()), NO_PARENT, LOCKS, TABLE)?;
    }
    if image.generation.is_some() {
        root.add(hash(STAMP.as_bytes()), NO_PARENT, STAMP, TABLE)?;
    }
    root.align(4);
    let lists_at = root.data.len();
    root.data.resize(lists_at + lists_len, 0);
    if locks.is_some() {
        root.align(8);
    }

    let places = root.places();
    let stamp = match image.generation {
        Some(generation) => Some(stamp_table(generation, &root.value_sums(&places))?),
        None => None,
    };

    // Where everything begins is known now; each beginning is a multiple of 8.
    let root_at = HEADER_LEN;
    let stamp_at = root_at + root.table_len();
    let data_at = stamp_at + stamp.as_ref().map_or(0, TableDraft::len);
    let locks_at = data_at + root.data.len();
    let len_bytes = locks_at + locks.as_ref().map_or(0, TableDraft::len);
    if u32::try_from(len_bytes).is_err() || root.names_len > names_limit(len_bytes) {
        return Err(TableWriteError::TooLarge);
    }

    for (name, part, at) in [(LOCKS, &locks, locks_at), (STAMP, &stamp, stamp_at)] {
        if let Some(part) = part {
            root.point(name, Span { start: offset(at), end: offset(at + part.chunk_len()) });
        }
    }
    root.fill_lists(&places, lists_at);
    // Names and values move behind the table in the memory that they are in: fresh memory costs more than the copy.
    let mut out = std::mem::take(&mut root.data);
    let data_len = out.len();
    out.resize(len_bytes, 0);
    out.copy_within(..data_len, data_at);
    out[..data_at.min(data_len)].fill(0);
    out[..8].copy_from_slice(signature(ByteOrder::NATIVE));
    out[16..20].copy_from_slice(&offset(root_at).to_le_bytes());
    out[20..24].copy_from_slice(&offset(root_at + root.chunk_len()).to_le_bytes());
    root.put_table(&mut out[root_at..], &places, data_at);
    for (part, at) in [(&locks, locks_at), (&stamp, stamp_at)] {
        if let Some(part) = part {
            let data_at = at + part.table_len();
            part.put_table(&mut out[at..], &part.places(), data_at);
            out[data_at..data_at + part.data.len()].copy_from_slice(&part.data);
        }
    }
    if stamp.is_some() {
        stamp::seal(&mut out);
    }
    Ok(out)
}

/// An offset in a file whose length has been checked.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// One hash table in the making: its items in the order in which they came, and their names and values.
#[derive(Default)]
struct TableDraft {
    /// Parents are indices in this order, and spans are in `data`, until `put_table`.
    items: Vec<TableItem>,
    /// The number of children of each item; only directories have any.
    children: Vec<u32>,
    data: Vec<u8>,
    /// The length of all full names of keys.
    names_len: usize,
}

impl TableDraft {
    /// Adds an item and its part of a name, without a value.
    fn add(
        &mut self,
        hash: u32,
        parent: u32,
        part: &str,
        kind: u8,
    ) -> Result<u32, TableWriteError> {
        let too_long = |_| TableWriteError::NameTooLong { len_bytes: part.len() };
        let key_len = u16::try_from(part.len()).map_err(too_long)?;
        let index = u32::try_from(self.items.len()).map_err(|_| TableWriteError::TooLarge)?;
        let key_start = self.end()?;
        self.data.extend_from_slice(part.as_bytes());
        self.items.push(TableItem {
            hash,
            parent,
            key_start,
            key_len,
            kind,
            value: Span::default(),
        });
        Ok(index)
    }

    /// Adds an item with a value.
    #[inline]
    fn add_value<'a>(
        &mut self,
        hash: u32,
        parent: u32,
        part: &str,
        value: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), TableWriteError> {
        let index = self.add(hash, parent, part, VALUE)?;
        self.align(8);
        let start = self.end()?;
        for piece in value {
            self.data.extend_from_slice(piece);
        }
        let end = self.end()?;
        self.items[index as usize].value = Span { start, end };
        Ok(())
    }

    fn end(&self) -> Result<u32, TableWriteError> {
        u32::try_from(self.data.len()).map_err(|_| TableWriteError::TooLarge)
    }

    #[inline]
    fn align(&mut self, align: usize) {
        let len = self.data.len().next_multiple_of(align);
        self.data.resize(len, 0);
    }

    /// The length of the table without the names and values.
    fn chunk_len(&self) -> usize {
        TABLE_HEAD_LEN + self.items.len() * (4 + ITEM_LEN)
    }

    /// The same with what makes the next beginning a multiple of 8.
    fn table_len(&self) -> usize {
        self.chunk_len().next_multiple_of(8)
    }

    /// The length with names and values; the same holds for the next beginning.
    fn len(&self) -> usize {
        self.table_len() + self.data.len()
    }

    /// Sets where the table nested under `name` is: the last items of the root are the nested tables.
    fn point(&mut self, name: &str, span: Span) {
        let hash = hash(name.as_bytes());
        if let Some(item) =
            self.items.iter_mut().rev().find(|item| item.kind == TABLE && item.hash == hash)
        {
            item.value = span;
        }
    }

    /// Counts the children of every directory, and returns the length of all lists in bytes.
    fn count_children(&mut self) -> Result<usize, TableWriteError> {
        self.children = vec![0; self.items.len()];
        let mut all: usize = 0;
        for item in &self.items {
            if let Some(count) = self.children.get_mut(item.parent as usize) {
                *count += 1;
                all += 1;
            }
        }
        Ok(all * 4)
    }

    /// Returns for each item its place in the table, and where each bucket begins: a counting sort over the hashes.
    fn places(&self) -> Places {
        // `add` holds the number of items below 2^32.
        let n_buckets = offset(self.items.len());
        let mut buckets = vec![0u32; self.items.len()];
        let mut of_item: Vec<u32> = self.items.iter().map(|item| item.hash % n_buckets).collect();
        for &bucket in &of_item {
            buckets[bucket as usize] += 1;
        }
        let mut start = 0;
        for bucket in &mut buckets {
            start += std::mem::replace(bucket, start);
        }
        let mut next = buckets.clone();
        for place in &mut of_item {
            let next = &mut next[*place as usize];
            *place = *next;
            *next += 1;
        }
        Places { of_item, buckets }
    }

    /// Writes the lists of children at `lists_at` of the data, one directory after the other.
    fn fill_lists(&mut self, places: &Places, lists_at: usize) {
        let mut end = offset(lists_at);
        let mut next = Vec::with_capacity(self.children.len());
        for (item, count) in self.items.iter_mut().zip(&self.children) {
            next.push(end);
            if item.kind == LIST {
                item.value = Span { start: end, end: end + count * 4 };
                end = item.value.end;
            }
        }
        for (item, place) in self.items.iter().zip(&places.of_item) {
            if let Some(at) = next.get_mut(item.parent as usize) {
                self.data[*at as usize..][..4].copy_from_slice(&place.to_le_bytes());
                *at += 4;
            }
        }
    }

    /// Returns a checksum of the value of every item, in the order of the table: see [`stamp::value_sum`].
    fn value_sums(&self, places: &Places) -> Vec<u32> {
        let mut sums = vec![0; self.items.len()];
        for (item, place) in self.items.iter().zip(&places.of_item) {
            if item.kind == VALUE {
                let value = &self.data[item.value.start as usize..item.value.end as usize];
                sums[*place as usize] = stamp::value_sum(item.hash, value);
            }
        }
        sums
    }

    /// Writes the table at the beginning of `out`; its names and values begin at `data_at` of the file.
    fn put_table(&self, out: &mut [u8], places: &Places, data_at: usize) {
        // No bloom words: a miss costs one look at a bucket already, and dconf writes none.
        out[..4].copy_from_slice(&(5u32 << 27).to_le_bytes());
        out[4..8].copy_from_slice(&offset(places.buckets.len()).to_le_bytes());
        let (buckets, items) =
            out[TABLE_HEAD_LEN..self.chunk_len()].split_at_mut(places.buckets.len() * 4);
        for (to, bucket) in buckets.as_chunks_mut().0.iter_mut().zip(&places.buckets) {
            *to = bucket.to_le_bytes();
        }
        let (items, _) = items.as_chunks_mut::<ITEM_LEN>();
        let data_at = offset(data_at);
        for (item, place) in self.items.iter().zip(&places.of_item) {
            let mut item = *item;
            item.key_start += data_at;
            if item.kind != TABLE {
                item.value.start += data_at;
                item.value.end += data_at;
            }
            if item.parent != NO_PARENT {
                item.parent = places.of_item[item.parent as usize];
            }
            items[*place as usize] = item.encode();
        }
    }
}

/// Where the items of a table go.
struct Places {
    of_item: Vec<u32>,
    buckets: Vec<u32>,
}

/// A directory that the next entry may be in.
struct Open {
    index: u32,
    hash: u32,
    /// The length of its path, with the slash at the end.
    len: usize,
}

/// For how many entries room is made in advance.
const MAX_EXPECTED: usize = 1 << 16;

/// Makes the items of all entries and of their directories.
fn tree<'a>(
    entries: impl Iterator<Item = (&'a str, impl IntoIterator<Item = &'a [u8]>)>,
    expected_bytes: usize,
) -> Result<TableDraft, TableWriteError> {
    let mut part = TableDraft::default();
    // Too much is only addresses, not memory; growing would copy.
    let expected = entries.size_hint().0.min(MAX_EXPECTED);
    part.items.reserve(expected * 2);
    part.data.reserve(expected_bytes.max(expected * 128));
    let mut open: Vec<Open> = Vec::new();
    let mut last = "";
    for (name, value) in entries {
        let same = common_len(last.as_bytes(), name.as_bytes());
        // Byte order, seen from the first byte that differs.
        if name.as_bytes().get(same) <= last.as_bytes().get(same) {
            return Err(if name.starts_with('/') {
                TableWriteError::OutOfOrder { name: name.to_owned() }
            } else {
                TableWriteError::NotAKey { name: name.to_owned() }
            });
        }
        if name.len() > MAX_NAME_LEN {
            return Err(TableWriteError::NameTooLong { len_bytes: name.len() });
        }
        // In byte order what a directory holds comes in one piece, so a directory once closed never comes again.
        while open.last().is_some_and(|top| top.len > same) {
            open.pop();
        }
        last = name;
        let (parent, rest) = open_directories(&mut part, &mut open, name)?;
        part.names_len += name.len();
        part.add_value(hash_extend(parent.hash, rest.as_bytes()), parent.index, rest, value)
            .map_err(|error| of_name(error, name))?;
    }
    Ok(part)
}

/// Opens the directories of `name` that are not open, and returns the last of them and the rest of the name.
fn open_directories<'a, 'o>(
    part: &mut TableDraft,
    open: &'o mut Vec<Open>,
    name: &'a str,
) -> Result<(&'o Open, &'a str), TableWriteError> {
    let not_a_key = || TableWriteError::NotAKey { name: name.to_owned() };
    let mut start = open.last().map_or(0, |top| top.len);
    while let Some(len) = find_slash_or_zero(&name.as_bytes()[start..]) {
        let at = start + len;
        if name.as_bytes()[at] == 0 {
            return Err(not_a_key());
        }
        let element = &name[start..=at];
        // Only the root directory is a slash alone.
        if open.is_empty() != (element == "/") {
            return Err(not_a_key());
        }
        let (parent, parent_hash) =
            open.last().map_or((NO_PARENT, hash(b"")), |top| (top.index, top.hash));
        let hash = hash_extend(parent_hash, element.as_bytes());
        let index = part.add(hash, parent, element, LIST).map_err(|error| of_name(error, name))?;
        start = at + 1;
        open.push(Open { index, hash, len: start });
    }
    let rest = &name[start..];
    match open.last() {
        Some(parent) if !rest.is_empty() => Ok((parent, rest)),
        _ => Err(not_a_key()),
    }
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

/// Returns where the first slash or zero byte is, looking at eight bytes at once: names are most of the work.
#[inline]
fn find_slash_or_zero(bytes: &[u8]) -> Option<usize> {
    let is_end = |byte: &u8| matches!(byte, 0 | b'/');
    let (eights, rest) = bytes.as_chunks::<8>();
    for (index, eight) in eights.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        let slashes = word ^ (LOW_BITS * b'/' as u64);
        // The lowest high bit of each is that of the first zero byte; what is above it may be wrong.
        let zeros = |word: u64| word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
        let found = zeros(word) | zeros(slashes);
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(is_end).map(|at| bytes.len() - rest.len() + at)
}

/// Returns how many bytes at the beginning are the same.
#[inline]
fn common_len(a: &[u8], b: &[u8]) -> usize {
    let (a_eights, b_eights) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let mut same = 0;
    for (a, b) in a_eights.iter().zip(b_eights) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return same + different.trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// Says how long the whole name is, where only a part of it was known.
fn of_name(error: TableWriteError, name: &str) -> TableWriteError {
    match error {
        TableWriteError::NameTooLong { .. } => {
            TableWriteError::NameTooLong { len_bytes: name.len() }
        }
        error => error,
    }
}

/// Makes the nested table of locks: full names without parents, each with the empty string, as `dconf compile` does.
fn lock_table(locks: &[&str]) -> Result<Option<TableDraft>, TableWriteError> {
    if locks.is_empty() {
        return Ok(None);
    }
    let mut names = locks.to_vec();
    names.sort_unstable();
    names.dedup();
    let mut part = TableDraft::default();
    for name in names {
        part.add_value(hash(name.as_bytes()), NO_PARENT, name, [&b"\0\0s"[..]])?;
    }
    part.align(8);
    Ok(Some(part))
}

/// Makes the nested table of the stamp.
fn stamp_table(generation: u64, value_sums: &[u32]) -> Result<TableDraft, TableWriteError> {
    let mut part = TableDraft::default();
    for (name, value) in stamp::fields(generation, value_sums) {
        part.add_value(hash(name.as_bytes()), NO_PARENT, name, [&value[..]])?;
    }
    part.align(8);
    Ok(part)
}
