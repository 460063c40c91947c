//! Adding a key to an image and taking one out: the image is copied, and what is moved by it is told its new place.
//!
//! The number of buckets stays, so that every item but the new one stays in its bucket, and the copy is one pass over
//! bytes that follow each other. Sorting all items into other buckets would cost several times as much.

use super::super::layout::{
    HEADER_LEN, ITEM_LEN, LIST, NO_PARENT, STAMP, Span, TABLE, TABLE_HEAD_LEN, TableItem, VALUE,
    hash, hash_extend,
};
use super::super::read::GvdbTable;
use super::super::stamp::{self, SUMS_TYPE};
use super::data_sum::{DataSum, Replaced};
use super::place::{Dir, Gap, Key, Next, items_at};
use super::sections::{Places, Sections};

/// The most items that come or go with one key: the key, and directories that only it is in.
const MAX_ITEMS: usize = 8;
/// What the number of items may differ from the number of buckets beside a quarter of it.
const FREE_ITEMS: usize = 8;

/// Adds a key, and the directories that it is the first key of.
pub(super) fn insert(
    image: &[u8],
    gap: &Gap<'_>,
    value: &[u8],
    sum: DataSum,
) -> Option<(Vec<u8>, DataSum)> {
    let old = Sections::of(image)?;
    let parent = gap.dirs.last()?;
    let names_start = gap.next.names_start;
    let n_added = gap.rest.split_inclusive('/').count();
    if n_added > MAX_ITEMS {
        return None;
    }
    let value_at = gap.rest.len().next_multiple_of(8);
    let mut edit = Edit {
        cut: names_start..names_start,
        put: Vec::with_capacity(value_at + 8 + value.len()),
        next: gap.next,
        added: Vec::with_capacity(n_added),
        removed: Vec::new(),
        list: parent.item.value,
        entry: parent.position,
        lists: lists_behind(old.table, names_start, n_added > 1),
    };
    edit.put.extend_from_slice(gap.rest.as_bytes());
    let data_at = old.places(old.table.items.len() + n_added).data_at;
    let start = names_start.checked_add(offset(data_at - old.data_at)?)?;
    let value_start = start.checked_add(u32::try_from(gap.rest.len()).ok()?)?;
    let value_start = value_start.checked_next_multiple_of(8)?;
    edit.put.resize((value_start - start) as usize, 0);
    edit.put.extend_from_slice(value);

    let (mut key_start, mut name_hash) = (start, parent.item.hash);
    for element in gap.rest.split_inclusive('/') {
        name_hash = hash_extend(name_hash, element.as_bytes());
        let (first, end) = old.table.bucket(name_hash)?;
        let behind = (first..end)
            .find(|index| old.table.item(*index).is_some_and(|item| item.key_start >= names_start));
        let item = TableItem {
            hash: name_hash,
            parent: NO_PARENT,
            key_start,
            key_len: u16::try_from(element.len()).ok()?,
            kind: if element.ends_with('/') { LIST } else { VALUE },
            value: Span::default(),
        };
        let bucket = name_hash.checked_rem(u32::try_from(old.table.buckets.len()).ok()?)?;
        edit.added.push(Added { bucket, before: behind.unwrap_or(end), item });
        key_start = key_start.checked_add(u32::from(item.key_len))?;
    }
    let value_end = value_start.checked_add(u32::try_from(value.len()).ok()?)?;
    edit.added.last_mut()?.item.value = Span { start: value_start, end: value_end };
    edit.copy(&old, parent, sum)
}

/// Takes a key out, and the directories that held nothing else.
pub(super) fn remove(image: &[u8], key: &Key, sum: DataSum) -> Option<(Vec<u8>, DataSum)> {
    let old = Sections::of(image)?;
    let mut removed = vec![key.index];
    let mut first_name = key.item.key_start;
    let mut dirs = key.dirs.as_slice();
    let mut lists = Span::default();
    // Directories that become empty, from the key up; they were made one after the other.
    while let Some((dir, above)) = dirs.split_last()
        && dir.item.value.len() == 4
    {
        removed.push(dir.index);
        first_name = dir.item.key_start;
        let end = if lists == Span::default() { dir.item.value.end } else { lists.end };
        lists = Span { start: dir.item.value.start, end };
        dirs = above;
    }
    // Without any key there are no directories at all.
    let parent = dirs.last()?;
    if removed.len() > MAX_ITEMS {
        return None;
    }
    removed.sort_unstable();
    let edit = Edit {
        cut: first_name..key.item.value.end,
        put: Vec::new(),
        next: key.next,
        added: Vec::new(),
        removed,
        list: parent.item.value,
        entry: parent.position,
        lists,
    };
    edit.copy(&old, parent, sum)
}

/// Returns where the lists of new directories belong whose names come at `names_start`, with nothing in them yet: in the
/// order of the directories.
fn lists_behind(table: GvdbTable<'_>, names_start: u32, is_wanted: bool) -> Span {
    let end = u32::try_from(table.bytes.len()).unwrap_or(u32::MAX);
    let items = if is_wanted { table.items } else { &[] };
    let dirs = items.iter().map(TableItem::decode);
    let behind = dirs.filter(|item| item.kind == LIST && item.key_start >= names_start);
    let at = behind.map(|item| item.value.start).min().unwrap_or(end);
    Span { start: at, end: at }
}

/// One item that comes.
struct Added {
    bucket: u32,
    /// The item of the old table that it comes before.
    before: u32,
    /// Its own places are those in the new image; its parent and its list are not known yet.
    item: TableItem,
}

/// What comes and goes with one key. Offsets and indices are those of the old image.
struct Edit {
    /// The names and the value that go.
    cut: std::ops::Range<u32>,
    /// The names and the value that come.
    put: Vec<u8>,
    /// What is behind them.
    next: Next,
    /// The items that come: directories from the top down, then the key.
    added: Vec<Added>,
    /// The items that go, ascending.
    removed: Vec<u32>,
    /// The list in which an entry comes or goes, and which.
    list: Span,
    entry: usize,
    /// The lists of the directories that go, or where those of the directories that come belong.
    lists: Span,
}

impl Edit {
    /// Makes the new image, and the sum of its names and values; the stamp is not renewed.
    fn copy(
        mut self,
        old: &Sections<'_>,
        parent: &Dir,
        sum: DataSum,
    ) -> Option<(Vec<u8>, DataSum)> {
        let image = old.table.bytes;
        let n_old = old.table.items.len();
        let n_items = (n_old + self.added.len()).checked_sub(self.removed.len())?;
        let n_buckets = old.table.buckets.len();
        if n_items.abs_diff(n_buckets) > n_buckets / 4 + FREE_ITEMS {
            return None;
        }
        let places = old.places(n_items);
        let data_by = offset(places.data_at)?.wrapping_sub(offset(old.data_at)?);
        let new_cut_end = self.cut.start.wrapping_add(data_by) + offset(self.put.len())?;
        let names_by = new_cut_end.wrapping_sub(self.cut.end);
        let new_names_end = self.next.names_end.wrapping_add(names_by);
        let next = new_names_end.checked_next_multiple_of(self.next.align)?;
        let next_by = next.wrapping_sub(self.next.at);
        let moves = Moves {
            cut: self.cut.clone(),
            next: self.next.at,
            data_by,
            names_by,
            next_by,
            list: self.list,
            list_by: if self.removed.is_empty() { 4 } else { 4u32.wrapping_neg() },
            lists_at: self.lists.end,
            lists_by: if self.removed.is_empty() {
                offset(self.added.len().saturating_sub(1) * 4)?
            } else {
                offset(self.lists.len())?.wrapping_neg()
            },
        };
        let len_bytes = (image.len() as u64)
            .checked_add_signed(i64::from(next_by.cast_signed()))?
            .checked_add_signed(moves.list_by.cast_signed().into())?
            .checked_add_signed(moves.lists_by.cast_signed().into())?;
        let mut new = Vec::with_capacity(u32::try_from(len_bytes).ok()? as usize);

        let indices = Indices::new(&self.added, &self.removed);
        self.finish_added(&moves, &indices, parent)?;
        new.extend_from_slice(&image[..old.items_at]);
        new.get_mut(20..24)?.copy_from_slice(&offset(places.items_end)?.to_le_bytes());
        self.move_buckets(old, new.get_mut(HEADER_LEN + TABLE_HEAD_LEN..)?)?;

        // They are changed in their copy: to put each together elsewhere and append it is slower (docs/benchmarks.md).
        let move_items = |new: &mut Vec<u8>, items: &[[u8; ITEM_LEN]]| {
            let at = new.len();
            new.extend_from_slice(items.as_flattened());
            for bytes in new.get_mut(at..).unwrap_or_default().as_chunks_mut().0 {
                let mut item = TableItem::decode(bytes);
                moves.of_item(&mut item);
                item.parent = indices.of(item.parent);
                *bytes = item.encode();
            }
        };
        let added = self.added.iter().map(|added| added.item.encode());
        indices.copy(&mut new, old.table.items, move_items, added)?;
        new.resize(places.stamp_at, 0);

        new.extend_from_slice(image.get(old.stamp_at..old.sums_at)?);
        let sums = image.get(old.sums_at..)?.get(..n_old * 4)?.as_chunks().0;
        let added = self.added.iter().map(|added| {
            let value = self.put.get(self.put.len() - added.item.value.len()..);
            let sum = value.filter(|_| added.item.kind == VALUE);
            sum.map_or([0; 4], |value| stamp::value_sum(added.item.hash, value).to_ne_bytes())
        });
        let copy_sums =
            |new: &mut Vec<u8>, sums: &[[u8; 4]]| new.extend_from_slice(sums.as_flattened());
        indices.copy(&mut new, sums, copy_sums, added)?;
        new.extend_from_slice(&[0; 4]);
        new.extend_from_slice(SUMS_TYPE);
        new.resize(places.data_at, 0);

        let range = |from: u32, to: u32| image.get(from as usize..to as usize);
        let before = range(offset(old.data_at)?, self.cut.start)?;
        let after = range(self.next.at, offset(old.lists_at)?)?;
        new.extend_from_slice(before);
        let put_at = new.len();
        new.extend_from_slice(&self.put);
        new.extend_from_slice(range(self.cut.end, self.next.names_end)?);
        new.resize(next as usize, 0);
        let replaced = Replaced::new(range(self.cut.start, self.next.at)?);
        let sum = sum.replace(before, replaced, new.get(put_at..)?, after);
        new.extend_from_slice(after);
        self.copy_lists(&mut new, old, &indices)?;
        move_stamp(&mut new, old, &places, n_items)?;
        (new.len() as u64 == len_bytes).then_some((new, sum))
    }

    /// Gives the new items their parents and the new directories their lists.
    fn finish_added(&mut self, moves: &Moves, indices: &Indices, parent: &Dir) -> Option<()> {
        let mut above = indices.of(parent.index);
        let mut list_start = moves.of_new_lists(self.lists.start);
        for number in 0..self.added.len() {
            let index = *indices.added.get(number)?;
            let item = &mut self.added.get_mut(number)?.item;
            item.parent = above;
            if item.kind == LIST {
                item.value = Span { start: list_start, end: list_start.checked_add(4)? };
                list_start = item.value.end;
            }
            above = index;
        }
        Some(())
    }

    /// Tells the buckets where their items begin.
    fn move_buckets(&self, old: &Sections<'_>, buckets: &mut [u8]) -> Option<()> {
        let n_buckets = u32::try_from(old.table.buckets.len()).ok()?;
        let (buckets, _) = buckets.as_chunks_mut::<4>();
        let mut shift_behind = |bucket: u32, by: u32| {
            for behind in buckets.get_mut(bucket as usize + 1..)? {
                *behind = u32::from_le_bytes(*behind).wrapping_add(by).to_le_bytes();
            }
            Some(())
        };
        for added in &self.added {
            shift_behind(added.bucket, 1)?;
        }
        for removed in &self.removed {
            let bucket = old.table.item(*removed)?.hash.checked_rem(n_buckets)?;
            shift_behind(bucket, 1u32.wrapping_neg())?;
        }
        Some(())
    }

    /// Copies the lists, with the entry and the lists that come, without those that go.
    fn copy_lists(&self, new: &mut Vec<u8>, old: &Sections<'_>, indices: &Indices) -> Option<()> {
        let entry = (self.list.start as usize).checked_add(self.entry * 4)?;
        let copy = |new: &mut Vec<u8>, from: usize, to: usize| {
            let at = new.len();
            let entries = old.table.bytes.get(from..to)?.as_chunks::<4>().0;
            new.resize(at + entries.len() * 4, 0);
            let copies = new.get_mut(at..)?.as_chunks_mut::<4>().0;
            for (copy, entry) in copies.iter_mut().zip(entries) {
                *copy = indices.of(u32::from_le_bytes(*entry)).to_le_bytes();
            }
            Some(())
        };
        copy(new, old.lists_at, entry)?;
        let mut added = indices.added.iter();
        let behind = match added.next() {
            Some(first) => {
                new.extend_from_slice(&first.to_le_bytes());
                entry
            }
            None => entry + 4,
        };
        // Without directories that go there are no lists that go, wherever that is.
        let lists = if self.lists == Span::default() { behind } else { self.lists.start as usize };
        copy(new, behind, lists)?;
        for child in added {
            new.extend_from_slice(&child.to_le_bytes());
        }
        copy(new, lists + self.lists.len(), old.table.bytes.len())
    }
}

/// Returns an offset in a file as the format has it.
fn offset(at: usize) -> Option<u32> {
    u32::try_from(at).ok()
}

/// Moves the nested table of the stamp, and gives its sums their new length.
fn move_stamp(new: &mut [u8], old: &Sections<'_>, places: &Places, n_items: usize) -> Option<()> {
    let by = offset(places.stamp_at)?.wrapping_sub(offset(old.stamp_at)?);
    let (index, _) = GvdbTable::open(new).ok()?.find(hash(STAMP.as_bytes()), STAMP, TABLE)?;
    let at = old.items_at + index as usize * ITEM_LEN;
    let item = new.get_mut(at..)?.first_chunk_mut()?;
    let mut stamp = TableItem::decode(item);
    stamp.value.start = stamp.value.start.wrapping_add(by);
    stamp.value.end = stamp.value.end.wrapping_add(by);
    *item = stamp.encode();
    let table = GvdbTable::open(new).ok()?.nested(STAMP)?;
    let items = items_at(table)..table.span.end as usize;
    for bytes in new.get_mut(items)?.as_chunks_mut().0 {
        let mut item = TableItem::decode(bytes);
        let is_sums = item.value.start as usize == old.sums_at;
        item.key_start = item.key_start.wrapping_add(by);
        item.value.start = item.value.start.wrapping_add(by);
        item.value.end = if is_sums {
            item.value.start.checked_add(offset(n_items * 4 + 4 + SUMS_TYPE.len())?)?
        } else {
            item.value.end.wrapping_add(by)
        };
        *bytes = item.encode();
    }
    Some(())
}

/// By how much everything behind the table moves. Distances are modulo 2^32, so that adding one also moves back.
struct Moves {
    cut: std::ops::Range<u32>,
    next: u32,
    /// Names and values before the cut.
    data_by: u32,
    /// Names between the cut and what is next.
    names_by: u32,
    /// All from what is next on; lists also by what comes and goes among them.
    next_by: u32,
    /// The list in which an entry comes or goes.
    list: Span,
    list_by: u32,
    /// Lists from here on are behind those that come or go.
    lists_at: u32,
    lists_by: u32,
}

impl Moves {
    /// Gives an item its new places.
    ///
    /// In the order of the table names and kinds come at random, so that a branch for them would be guessed wrong every
    /// other time: all of it is counted, and what does not hold is counted as nothing.
    #[inline]
    fn of_item(&self, item: &mut TableItem) {
        let if_so = |holds: bool, by: u32| u32::from(holds).wrapping_mul(by);
        let is_behind = item.key_start >= self.cut.end;
        let is_next = item.key_start >= self.next;
        let Span { start, end } = item.value;
        let is_value = item.kind == VALUE;
        let is_list = item.kind == LIST;

        let key_by = self
            .data_by
            .wrapping_add(if_so(is_behind, self.names_by.wrapping_sub(self.data_by)))
            .wrapping_add(if_so(is_next, self.next_by.wrapping_sub(self.names_by)));
        item.key_start = item.key_start.wrapping_add(key_by);
        // A value belongs to its name; one without bytes may lie where the cut does.
        let value_by =
            self.data_by.wrapping_add(if_so(is_behind, self.next_by.wrapping_sub(self.data_by)));
        let list_by = self.next_by.wrapping_add(self.of_list(start));
        let by = if_so(is_value, value_by).wrapping_add(if_so(is_list, list_by));
        let is_longer = is_list & (start == self.list.start);
        let end_by = by.wrapping_add(if_so(is_longer, self.list_by));
        item.value = Span { start: start.wrapping_add(by), end: end.wrapping_add(end_by) };
    }

    /// Returns by how much the list at `start` moves because of what comes and goes before it.
    #[inline]
    fn of_list(&self, start: u32) -> u32 {
        let by_entry = u32::from(start >= self.list.end).wrapping_mul(self.list_by);
        let by_lists = u32::from(start >= self.lists_at).wrapping_mul(self.lists_by);
        by_entry.wrapping_add(by_lists)
    }

    /// Returns where the lists of new directories begin that come to `at`.
    fn of_new_lists(&self, at: u32) -> u32 {
        at.wrapping_add(self.next_by).wrapping_add(self.list_by)
    }
}

/// Where items come and go, and with it the new index of each.
struct Indices {
    /// The new indices of the items that come, in the order of the edit.
    added: Vec<u32>,
    /// Before which items of the old table one comes, ascending.
    before: Vec<u32>,
    removed: Vec<u32>,
    /// From which items of the old table on the indices are one more, or one less: the first, and the others, of which
    /// there are mostly none.
    first: u32,
    others: Vec<u32>,
    /// One more or one less.
    step: u32,
}

impl Indices {
    fn new(added: &[Added], removed: &[u32]) -> Indices {
        let mut order: Vec<usize> = (0..added.len()).collect();
        // Between two items of the old table there may be several buckets without any.
        order.sort_by_key(|number| (added[*number].before, added[*number].bucket));
        let before: Vec<u32> = order.iter().map(|number| added[*number].before).collect();
        let mut indices = vec![0; added.len()];
        for ((number, before), earlier) in order.iter().zip(&before).zip(0u32..) {
            indices[*number] = before + earlier;
        }
        let mut from: Vec<u32> = removed.iter().map(|removed| removed + 1).collect();
        from.extend(&before);
        let (first, others) = from.split_first().map_or((NO_PARENT, &[][..]), |(a, b)| (*a, b));
        Indices {
            added: indices,
            first,
            others: others.to_vec(),
            step: if removed.is_empty() { 1 } else { 1u32.wrapping_neg() },
            before,
            removed: removed.to_vec(),
        }
    }

    /// Returns the new index of an item that stays; that of no item is none.
    #[inline]
    fn of(&self, index: u32) -> u32 {
        if index == NO_PARENT {
            return index;
        }
        let mut steps = u32::from(index >= self.first);
        for from in &self.others {
            steps += u32::from(index >= *from);
        }
        index.wrapping_add(steps.wrapping_mul(self.step))
    }

    /// Copies what there is for each item, in their order, with what comes and without what goes.
    fn copy<const N: usize>(
        &self,
        new: &mut Vec<u8>,
        old: &[[u8; N]],
        copy: impl Fn(&mut Vec<u8>, &[[u8; N]]),
        added: impl Iterator<Item = [u8; N]>,
    ) -> Option<()> {
        let at = new.len();
        let stops = self.before.iter().map(|before| (*before, 0));
        let stops = stops.chain(self.removed.iter().map(|removed| (*removed, 1)));
        let mut from = 0;
        for (stop, passed) in stops {
            copy(new, old.get(from..stop as usize)?);
            // Where no item goes one comes.
            if passed == 0 {
                new.extend_from_slice(&[0; N]);
            }
            from = stop as usize + passed;
        }
        copy(new, old.get(from..)?);
        let (copies, _) = new.get_mut(at..)?.as_chunks_mut::<N>();
        for (index, item) in self.added.iter().zip(added) {
            *copies.get_mut(*index as usize)? = item;
        }
        Some(())
    }
}
