//! Names and attributes as columns, where they arrived: what a reader in another language takes without a call for each entry.

use std::borrow::Cow;

use store::stream::{Records, StreamBuilder};

use super::{AttributeBlock, Entries, Ids, NEWER, find, slot};
use crate::entry::EntryId;
use crate::fields::AttributeSet;
use crate::record::{AttributeRows, AttributeView, FORMAT, NameView};

/// Names and types that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct NameColumns<'a> {
    /// The id of the first.
    pub first: EntryId,
    /// The type of each, as [`EntryKind::number`](crate::EntryKind::number), as it arrived.
    pub kinds: &'a [u8],
    /// Where each name ends in `text`, behind its NUL: 4 bytes each, little-endian.
    pub ends: &'a [u8],
    /// The names one after another, each with a NUL.
    pub text: &'a [u8],
}

/// The attributes of some entries, a column for each field; `docs/listing.md` has their bytes.
#[derive(Clone, Debug)]
pub struct AttributeColumns<'a> {
    payload: Cow<'a, [u8]>,
    view: AttributeView,
}

impl AttributeColumns<'_> {
    /// Returns the bytes that [`AttributeColumns::column`] and the others speak of; what they return is where it begins there.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.payload
    }

    /// Returns whether the bytes are those that arrived, and stay as long as the entries do.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        matches!(self.payload, Cow::Borrowed(_))
    }

    /// Returns the id of the first entry, unless the ids are a list.
    #[must_use]
    pub fn first(&self) -> EntryId {
        self.view.first
    }

    /// Returns how many entries there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.view.count
    }

    /// Returns which attributes there are.
    #[must_use]
    pub fn fields(&self) -> AttributeSet {
        self.view.fields.without(AttributeSet::KIND)
    }

    /// Returns where the ids begin, 4 bytes each, if they do not follow one another.
    #[must_use]
    pub fn ids(&self) -> Option<usize> {
        self.view.ids_at()
    }

    /// Returns where the column of a field begins, if there is one.
    #[must_use]
    pub fn column(&self, field: AttributeSet) -> Option<usize> {
        self.view.column_at(field)
    }

    /// Returns where the failures begin, 8 bytes each, and how many there are.
    #[must_use]
    pub fn failures(&self) -> (usize, usize) {
        self.view.failures_at()
    }
}

impl Entries {
    /// Returns the names that arrived together with that of an entry. Names of entries that were renamed are as they arrived.
    #[must_use]
    pub fn name_columns(&self, id: EntryId) -> Option<NameColumns<'_>> {
        let (block, index) = find(&self.names, id)?;
        let view = NameView::of(block.bytes()).ok().filter(|view| index < view.len())?;
        let (ends, text) = view.parts();
        Some(NameColumns { first: view.first, kinds: view.kinds, ends, text })
    }

    /// Returns the attributes of these entries as they are now: where they arrived if they arrived together and none is replaced, else put together.
    ///
    /// What is asked for are the ids of an [`Update::Attributes`](crate::Update::Attributes); `None` where nothing but types arrived with it.
    #[must_use]
    pub fn attribute_columns(&self, ids: &Ids) -> Option<AttributeColumns<'_>> {
        if let Some(block) = self.block_of(ids) {
            let view = block.view.clone();
            return Some(AttributeColumns { payload: Cow::Borrowed(block.bytes()), view });
        }
        self.gathered(ids)
    }

    /// The record with exactly these entries, if every row of it is the newest.
    fn block_of(&self, ids: &Ids) -> Option<&AttributeBlock> {
        let first = ids.iter().next()?;
        if self.state(first) & NEWER != 0 {
            let (number, _) = self.newer.get(&first)?;
            let block = self.attributes.get(slot(*number))?.as_ref()?;
            let count = usize::try_from(block.view.count).ok()?;
            let is_whole = block.newest == block.view.count && ids.iter().count() == count;
            let mut rows = ids.iter().zip(0..block.view.count);
            return (is_whole && rows.all(|(id, row)| block.view.id(block.bytes(), row) == id))
                .then_some(block);
        }
        let Ids::Range(range) = ids else { return None };
        let block = self.ranged(first)?;
        let is_same = block.view.first == range.start
            && block.view.first.saturating_add(block.view.count) == range.end;
        let states = self.states.get(slot(range.start)..slot(range.end))?;
        (is_same && states.iter().all(|state| state & NEWER == 0)).then_some(block)
    }

    fn gathered(&self, ids: &Ids) -> Option<AttributeColumns<'_>> {
        let mut fields = AttributeSet::NONE;
        for known in ids.iter().filter_map(|id| self.attributes(id)) {
            fields |= known.fields;
        }
        let mut rows = AttributeRows::new(fields);
        for id in ids.iter() {
            match self.failures.get(&id) {
                Some(number) => rows.push_failure(id, self.kind(id), *number),
                None => rows.push(id, &self.attributes(id).unwrap_or_default()),
            }
        }
        let has_something =
            !fields.is_empty() || ids.iter().any(|id| self.failures.contains_key(&id));
        if rows.is_empty() || !has_something {
            return None;
        }
        let mut builder = StreamBuilder::new(FORMAT);
        rows.write(&mut builder).ok()?;
        let payload = Records::of(builder.bytes(), FORMAT).ok()?.next()?.payload.to_vec();
        let view = AttributeView::of(&payload).ok()?;
        Some(AttributeColumns { payload: Cow::Owned(payload), view })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as other programs do")]
mod tests {
    use super::*;
    use crate::{Listing, ListingRequest, Update};

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn columns_say_what_entries_say() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..3000_usize {
            std::fs::write(directory.path().join(format!("file {number}")), vec![0; number % 9])
                .unwrap();
        }
        let mut listing = Listing::in_process(&ListingRequest::of(directory.path())).unwrap();
        let (mut named, mut sized) = (0, 0);
        let mut asked = false;
        while sized < 3200 {
            let Some(update) = listing.next(None).unwrap() else { continue };
            let entries = listing.entries();
            match update {
                Update::Names(range) => {
                    let columns = entries.name_columns(range.start).unwrap();
                    let mut begin = 0;
                    for (row, id) in range.clone().enumerate() {
                        let end = u32_at(columns.ends, 4 * row) as usize;
                        assert_eq!(&columns.text[begin..end - 1], entries.name(id));
                        begin = end;
                    }
                    assert_eq!((columns.first, columns.kinds.len()), (range.start, range.len()));
                    named += columns.kinds.len();
                }
                Update::Attributes(ids) => {
                    let columns = entries.attribute_columns(&ids).unwrap();
                    let size = columns.column(AttributeSet::SIZE).unwrap();
                    for (row, id) in ids.iter().enumerate() {
                        let said = u64_at(columns.bytes(), size + 8 * row);
                        assert_eq!(said, entries.attributes(id).unwrap().size);
                        let listed = columns.ids().map(|at| u32_at(columns.bytes(), at + 4 * row));
                        let followed = columns.first() + u32::try_from(row).unwrap();
                        assert_eq!(listed.unwrap_or(followed), id);
                        sized += 1;
                    }
                }
                _ => {}
            }
            // Some again, out of order and in order: their first record is not whole any more.
            if listing.is_done() && !asked {
                asked = true;
                let some: Vec<u32> = (0..100).rev().chain(1000..1100).collect();
                listing.want(&some).unwrap();
            }
        }
        assert_eq!((named, sized), (3000, 3200));
        let again = listing.entries().attribute_columns(&Ids::Range(0..64)).unwrap();
        let size = again.column(AttributeSet::SIZE).unwrap();
        for id in 0..64 {
            let said = u64_at(again.bytes(), size + 8 * id as usize);
            assert_eq!(said, listing.attributes(id).unwrap().size);
        }
        assert!(listing.entries().name_columns(3000).is_none());
    }

    #[test]
    fn columns_of_failures_have_their_numbers() {
        let mut entries = Entries::new(crate::ListingLimits::default());
        let mut builder = StreamBuilder::new(FORMAT);
        let mut names = crate::record::NameRows::default();
        names.push(c"a", crate::EntryKind::File).unwrap();
        names.write(0, &mut builder).unwrap();
        let mut rows = AttributeRows::new(AttributeSet::SIZE);
        rows.push_failure(0, crate::EntryKind::File, 13);
        rows.write(&mut builder).unwrap();
        let message = crate::ListingMessage::of(&builder).unwrap();
        entries.take(message.chunk()).unwrap();
        let columns = entries.attribute_columns(&Ids::Range(0..1)).unwrap();
        let (at, count) = columns.failures();
        assert_eq!(
            (count, u32_at(columns.bytes(), at), u32_at(columns.bytes(), at + 4)),
            (1, 0, 13)
        );
        assert!(entries.attribute_columns(&Ids::Range(0..0)).is_none());
    }
}
