//! What a client holds of a listing: names and attributes where they arrived, and what changed since.

mod columns;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use store::stream::Chunk;

use super::details::Details;
use super::entry::{Attributes, EntryFailure, EntryId, EntryKind, StringId};
use super::error::{Failure, StreamFault};
use super::fields::AttributeSet;
use super::record::{
    AttributeView, NameView, OwnerKind, RenamedView, StringView, details_of, done_of, failure_of,
    owners_of, removed_of, tag,
};
use super::request::ListingLimits;
pub use columns::{AttributeColumns, NameColumns};

/// The entries of a listing. Names and attributes stay in the memory in which they arrived.
#[derive(Debug, Default)]
pub struct Entries {
    limits: ListingLimits,
    bytes: u64,
    names: Vec<Block>,
    /// A byte for each entry: its type in the lower four bits, and what is special about it.
    states: Vec<u8>,
    removed: u32,
    attributes: Vec<Option<AttributeBlock>>,
    /// Places in `attributes` that are free: everything in them came anew.
    free: Vec<u32>,
    /// The blocks without a list of ids, by their first; they do not overlap.
    ranges: Vec<(EntryId, usize)>,
    /// Where the newest attributes are of entries that are not, or not any more, in the block with their range.
    newer: HashMap<EntryId, (u32, u32)>,
    failures: HashMap<EntryId, i32>,
    renamed: HashMap<EntryId, Box<[u8]>>,
    strings: Vec<Block>,
    string_count: u32,
    owners: HashMap<(OwnerKind, u32), StringId>,
}

/// The entry is gone.
const REMOVED: u8 = 1 << 7;
/// The entry has another name than it came with.
const RENAMED: u8 = 1 << 6;
/// The entry could not be looked at.
const FAILED: u8 = 1 << 5;
/// The entry's attributes are in `newer`.
const NEWER: u8 = 1 << 4;
const KIND: u8 = 0xf;
/// How many records, and rows of attributes beyond twice the entries, one chunk may have.
const MOST_WORK: u64 = 1 << 17;

/// A record in the chunk that it came in, with the first of its ids.
#[derive(Debug)]
struct Block {
    first: u32,
    chunk: Arc<Chunk>,
    payload: Range<usize>,
}

#[derive(Debug)]
struct AttributeBlock {
    view: AttributeView,
    chunk: Arc<Chunk>,
    payload: Range<usize>,
    /// How many of its rows are still the newest; counted where `newer` speaks of it.
    newest: u32,
    /// What was accounted for it.
    bytes: usize,
}

/// Some entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// One after another.
    Range(Range<EntryId>),
    /// In any order.
    List(Box<[EntryId]>),
}

impl Ids {
    /// Returns them one by one.
    pub fn iter(&self) -> impl Iterator<Item = EntryId> + '_ {
        let (range, list) = match self {
            Ids::Range(range) => (range.clone(), &[][..]),
            Ids::List(list) => (0..0, &list[..]),
        };
        range.chain(list.iter().copied())
    }
}

/// What is new in [`Entries`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// Names and types of these arrived.
    Names(Range<EntryId>),
    /// Attributes of these arrived, for the first time or anew; some may have failed instead.
    Attributes(Ids),
    /// These are gone.
    Removed(Box<[EntryId]>),
    /// These have another name.
    Renamed(Box<[EntryId]>),
    /// What was asked of a single entry.
    Details(Details),
    /// Something about the directory itself went wrong.
    Failed(Failure),
    /// Everything was read once, in this many names. More may come for a listing that is followed.
    Done(u32),
}

impl Entries {
    /// Starts without entries.
    #[must_use]
    pub fn new(limits: ListingLimits) -> Entries {
        Entries { limits, ..Entries::default() }
    }

    /// Returns how many names arrived; every smaller number is the id of one.
    #[must_use]
    pub fn len(&self) -> EntryId {
        u32::try_from(self.states.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether no name arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Returns how many entries there are that were not removed.
    #[must_use]
    pub fn present(&self) -> EntryId {
        self.len().saturating_sub(self.removed)
    }

    /// Returns the name of an entry; empty if there is none with this id.
    #[must_use]
    pub fn name(&self, id: EntryId) -> &[u8] {
        let renamed = self.state(id) & RENAMED != 0;
        if let Some(name) = renamed.then(|| self.renamed.get(&id)).flatten() {
            return name;
        }
        let Some((block, index)) = find(&self.names, id) else { return b"" };
        NameView::of(block.bytes()).map_or(b"", |view| view.name(index))
    }

    /// Returns the type of an entry.
    #[must_use]
    pub fn kind(&self, id: EntryId) -> EntryKind {
        EntryKind::from_number(self.state(id) & KIND)
    }

    /// Returns whether an entry is gone, or never was.
    #[must_use]
    pub fn is_removed(&self, id: EntryId) -> bool {
        id >= self.len() || self.state(id) & REMOVED != 0
    }

    /// Returns the attributes of an entry, if they arrived.
    #[must_use]
    pub fn attributes(&self, id: EntryId) -> Option<Attributes> {
        let state = self.state(id);
        if state & FAILED != 0 {
            return None;
        }
        let (block, row) = if state & NEWER != 0 {
            let (block, row) = self.newer.get(&id)?;
            (self.attributes.get(usize::try_from(*block).ok()?)?.as_ref()?, *row)
        } else {
            // Only records without a list of ids are found by range; the others are in `newer`.
            let block = self.ranged(id)?;
            (block, id - block.view.first)
        };
        let mut known = block.view.row(block.bytes(), row);
        known.kind = self.kind(id);
        Some(known)
    }

    /// Returns why nothing is known of an entry, if it could not be looked at.
    #[must_use]
    pub fn failure(&self, id: EntryId) -> Option<EntryFailure> {
        self.failures.get(&id).map(|number| EntryFailure::from_number(*number))
    }

    /// Returns a string that attributes speak of: a link's target, a MIME type.
    #[must_use]
    pub fn string(&self, id: StringId) -> Option<&[u8]> {
        // 0 is none; the first string has the number 1.
        let (block, index) =
            find(&self.strings, id).filter(|_| id != 0 && id <= self.string_count)?;
        Some(StringView::of(block.bytes()).ok()?.string(index))
    }

    /// Returns the name of the user with this number, if it was asked for and has one.
    #[must_use]
    pub fn user_name(&self, number: u32) -> Option<&[u8]> {
        self.string(*self.owners.get(&(OwnerKind::User, number))?)
    }

    /// Returns the name of the group with this number, if it was asked for and has one.
    #[must_use]
    pub fn group_name(&self, number: u32) -> Option<&[u8]> {
        self.string(*self.owners.get(&(OwnerKind::Group, number))?)
    }

    /// Takes in what whoever lists has sent, and returns what is new, in order.
    ///
    /// # Errors
    ///
    /// [`StreamFault`]: it is not as it must be. Records before the wrong one were taken in.
    pub fn take(&mut self, chunk: &Arc<Chunk>) -> Result<Vec<Update>, StreamFault> {
        let mut updates = Vec::new();
        let mut work = 2 * u64::from(self.len()) + MOST_WORK;
        let records = chunk.records().map_err(store::stream::ChunkError::from)?;
        let start = chunk.bytes().as_ptr() as usize;
        for record in records {
            let at = record.payload.as_ptr() as usize - start;
            let place = at..at + record.payload.len();
            // A short record may speak of many entries: what one chunk may ask for is bounded.
            let rows = match record.tag {
                tag::ATTRIBUTES => u64::from(AttributeView::of(record.payload)?.count),
                _ => 0,
            };
            let rest = work.checked_sub(rows + 1);
            work = rest.ok_or(StreamFault::TooMany { what: "records in a chunk" })?;
            let update = match record.tag {
                tag::NAMES => Some(self.take_names(record.payload, chunk, place)?),
                tag::ATTRIBUTES => Some(self.take_attributes(record.payload, chunk, place)?),
                tag::STRINGS => {
                    self.take_strings(record.payload, chunk, place)?;
                    None
                }
                tag::OWNERS => {
                    self.take_owners(record.payload)?;
                    None
                }
                tag::REMOVED => Some(self.take_removed(record.payload)?),
                tag::RENAMED => Some(self.take_renamed(record.payload)?),
                tag::FAILURE => Some(Update::Failed(failure_of(record.payload)?)),
                tag::DETAILS => Some(self.take_details(record.payload)?),
                tag::DONE => Some(self.take_done(record.payload)?),
                tag => return Err(StreamFault::Unexpected { tag }),
            };
            updates.extend(update);
        }
        Ok(updates)
    }

    fn take_names(
        &mut self,
        payload: &[u8],
        chunk: &Arc<Chunk>,
        place: Range<usize>,
    ) -> Result<Update, StreamFault> {
        let view = NameView::of(payload)?;
        let first = self.len();
        if view.first != first {
            return Err(StreamFault::Value { record: "names", what: "id" });
        }
        let end = u32::try_from(view.len()).ok().and_then(|count| first.checked_add(count));
        let end = end.filter(|end| *end <= self.limits.entries);
        let end = end.ok_or(StreamFault::TooMany { what: "names" })?;
        view.check()?;
        self.account(payload.len())?;
        self.states.extend(view.kinds.iter().map(|kind| EntryKind::from_number(*kind).number()));
        if end > first {
            self.names.push(Block { first, chunk: Arc::clone(chunk), payload: place });
        }
        Ok(Update::Names(first..end))
    }

    fn take_attributes(
        &mut self,
        payload: &[u8],
        chunk: &Arc<Chunk>,
        place: Range<usize>,
    ) -> Result<Update, StreamFault> {
        let view = AttributeView::of(payload)?;
        let rows = 0..view.count;
        let known = self.len();
        let wrong = rows.clone().map(|row| view.id(payload, row)).find(|id| *id >= known);
        if let Some(id) = wrong {
            return Err(StreamFault::NoEntry { id });
        }
        // Types go where types are; there is nothing else to find in such a record.
        let kinds_only = view.fields == AttributeSet::KIND;
        let in_ranges =
            if view.is_listed() || kinds_only { None } else { self.place(view.first, view.count) };
        let number = if kinds_only { 0 } else { self.free_place()? };
        let mut replaced = Vec::new();
        for row in rows.clone() {
            let id = view.id(payload, row);
            let kind = view.kind(payload, row);
            let Some(state) = state_of(&mut self.states, id) else { continue };
            if let Some(kind) = kind {
                *state = *state & !KIND | kind.number();
            }
            if *state & FAILED != 0 {
                self.failures.remove(&id);
            }
            *state &= !FAILED;
            // Later attributes of a few entries stand before those of their range.
            if in_ranges.is_none() && !kinds_only {
                *state |= NEWER;
                replaced.extend(self.newer.insert(id, (number, row)));
            }
        }
        for (row, error) in view.failures(payload) {
            let id = view.id(payload, row);
            let Some(state) = state_of(&mut self.states, id) else { continue };
            *state |= FAILED;
            self.failures.insert(id, error);
        }
        let ids = if view.is_listed() {
            Ids::List(rows.map(|row| view.id(payload, row)).collect())
        } else {
            Ids::Range(view.first..view.first.saturating_add(view.count))
        };
        if kinds_only || view.count == 0 {
            self.free.extend((!kinds_only).then_some(number));
            return Ok(Update::Attributes(ids));
        }
        if let Some(at) = in_ranges {
            self.ranges.insert(at, (view.first, slot(number)));
        }
        let (newest, bytes) = (view.count, payload.len() + 16 * slot(view.count));
        self.account(bytes)?;
        let chunk = Arc::clone(chunk);
        let block = AttributeBlock { view, chunk, payload: place, newest, bytes };
        if let Some(free) = self.attributes.get_mut(slot(number)) {
            *free = Some(block);
        }
        replaced.into_iter().for_each(|(number, _)| self.forget_row(number));
        Ok(Update::Attributes(ids))
    }

    /// A place for attributes.
    fn free_place(&mut self) -> Result<u32, StreamFault> {
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        let number = u32::try_from(self.attributes.len());
        self.attributes.push(None);
        number.map_err(|_| StreamFault::TooMany { what: "records" })
    }

    /// One row of a block came anew; without any, the block goes, and with the last of them its memory.
    fn forget_row(&mut self, number: u32) {
        let Some(place) = self.attributes.get_mut(slot(number)) else { return };
        let Some(block) = place else { return };
        block.newest = block.newest.saturating_sub(1);
        if block.newest == 0 {
            self.bytes = self.bytes.saturating_sub(u64::try_from(block.bytes).unwrap_or(0));
            *place = None;
            self.free.push(number);
        }
    }

    fn take_strings(
        &mut self,
        payload: &[u8],
        chunk: &Arc<Chunk>,
        place: Range<usize>,
    ) -> Result<(), StreamFault> {
        let view = StringView::of(payload)?;
        view.check()?;
        if view.first != self.string_count + 1 {
            return Err(StreamFault::Value { record: "strings", what: "number" });
        }
        let count = u32::try_from(view.len()).ok();
        let count = count.and_then(|count| self.string_count.checked_add(count));
        let count = count.filter(|count| *count < u32::MAX);
        self.string_count = count.ok_or(StreamFault::TooMany { what: "strings" })?;
        self.account(payload.len())?;
        let block = Block { first: view.first, chunk: Arc::clone(chunk), payload: place };
        self.strings.push(block);
        Ok(())
    }

    fn take_owners(&mut self, payload: &[u8]) -> Result<(), StreamFault> {
        self.account(payload.len())?;
        for owner in owners_of(payload)? {
            self.owners.insert((owner.kind, owner.number), owner.name);
        }
        Ok(())
    }

    fn take_removed(&mut self, payload: &[u8]) -> Result<Update, StreamFault> {
        let ids = removed_of(payload)?;
        for id in &ids {
            let state = state_of(&mut self.states, *id).ok_or(StreamFault::NoEntry { id: *id })?;
            if *state & REMOVED == 0 {
                *state |= REMOVED;
                self.removed += 1;
            }
        }
        Ok(Update::Removed(ids.into_boxed_slice()))
    }

    fn take_renamed(&mut self, payload: &[u8]) -> Result<Update, StreamFault> {
        self.account(payload.len())?;
        let mut ids = Vec::new();
        for (id, name) in RenamedView::of(payload)?.iter() {
            let state = state_of(&mut self.states, id).ok_or(StreamFault::NoEntry { id })?;
            *state |= RENAMED;
            self.renamed.insert(id, name.into());
            ids.push(id);
        }
        Ok(Update::Renamed(ids.into_boxed_slice()))
    }

    fn take_details(&self, payload: &[u8]) -> Result<Update, StreamFault> {
        let details = details_of(payload)?;
        if details.id >= self.len() {
            return Err(StreamFault::NoEntry { id: details.id });
        }
        Ok(Update::Details(details))
    }

    fn take_done(&self, payload: &[u8]) -> Result<Update, StreamFault> {
        let entries = done_of(payload)?.entries;
        if entries != self.present() {
            return Err(StreamFault::Value { record: "the end", what: "number of entries" });
        }
        Ok(Update::Done(entries))
    }

    /// Counts memory that is kept.
    fn account(&mut self, length: usize) -> Result<(), StreamFault> {
        let bytes = u64::try_from(length).ok().and_then(|length| self.bytes.checked_add(length));
        let bytes = bytes.filter(|bytes| *bytes <= self.limits.bytes);
        self.bytes = bytes.ok_or(StreamFault::TooMany { what: "bytes" })?;
        Ok(())
    }

    fn state(&self, id: EntryId) -> u8 {
        usize::try_from(id).ok().and_then(|id| self.states.get(id)).copied().unwrap_or(REMOVED)
    }

    /// The block without a list of ids that holds `id`.
    fn ranged(&self, id: EntryId) -> Option<&AttributeBlock> {
        let after = self.ranges.partition_point(|(first, _)| *first <= id);
        let (first, block) = self.ranges.get(after.checked_sub(1)?)?;
        let block = self.attributes.get(*block)?.as_ref();
        block.filter(|block| id - first < block.view.count)
    }

    /// Where a block for these ids belongs in `ranges`, `None` if one holds some of them already.
    fn place(&self, first: EntryId, count: u32) -> Option<usize> {
        let after = self.ranges.partition_point(|(other, _)| *other <= first);
        let free_before = after == 0 || self.ranged(first).is_none();
        let end = first.saturating_add(count);
        let free_after = self.ranges.get(after).is_none_or(|(other, _)| *other >= end);
        (count > 0 && free_before && free_after).then_some(after)
    }
}

impl Block {
    fn bytes(&self) -> &[u8] {
        self.chunk.bytes().get(self.payload.clone()).unwrap_or_default()
    }
}

impl AttributeBlock {
    fn bytes(&self) -> &[u8] {
        self.chunk.bytes().get(self.payload.clone()).unwrap_or_default()
    }
}

/// A number as an index.
fn slot(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The block that holds a number, and which of its rows.
fn find(blocks: &[Block], id: u32) -> Option<(&Block, usize)> {
    let after = blocks.partition_point(|block| block.first <= id);
    let block = blocks.get(after.checked_sub(1)?)?;
    Some((block, usize::try_from(id - block.first).ok()?))
}

fn state_of(states: &mut [u8], id: EntryId) -> Option<&mut u8> {
    states.get_mut(usize::try_from(id).ok()?)
}
