//! The rows in their order: blocks of entry numbers, so that a change touches a block and not the list.

use std::cmp::Ordering;

use super::bits::Bits;
use super::changes::{Changes, RowChange};
use crate::EntryId;

/// Entries in a block at most.
const BLOCK: usize = 1024;
/// Entries in a block that is made in one go, so that it can take some more.
const FILLED: usize = 832;
/// So many entries and fewer are inserted one by one.
const FEW: usize = 16;

/// The visible entries in order.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// None is empty.
    blocks: Vec<Vec<EntryId>>,
    /// The row with which each block begins, and the number of rows.
    starts: Vec<usize>,
}

/// Where a row is.
#[derive(Clone, Copy)]
struct RowPosition {
    block: usize,
    index: usize,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { blocks: Vec::new(), starts: vec![0] }
    }
}

impl Rows {
    /// Takes entries that are in order.
    pub(super) fn of(sorted: &[EntryId]) -> Rows {
        let blocks = sorted.chunks(FILLED).map(<[EntryId]>::to_vec).collect();
        let mut rows = Rows { blocks, ..Rows::default() };
        rows.count();
        rows
    }

    pub(super) fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The entry in a row.
    pub(super) fn get(&self, row: usize) -> Option<EntryId> {
        let place = self.place(row)?;
        Some(self.blocks[place.block][place.index])
    }

    /// The entries from a row on.
    pub(super) fn from(&self, row: usize) -> impl Iterator<Item = EntryId> {
        let place = self.place(row).unwrap_or(RowPosition { block: self.blocks.len(), index: 0 });
        let first = self.blocks.get(place.block).map_or(&[][..], |block| &block[place.index..]);
        let rest = self.blocks.iter().skip(place.block + 1).flatten();
        first.iter().chain(rest).copied()
    }

    fn place(&self, row: usize) -> Option<RowPosition> {
        if row >= self.len() {
            return None;
        }
        let block = self.starts.partition_point(|start| *start <= row) - 1;
        Some(RowPosition { block, index: row - self.starts[block] })
    }

    /// The row of an entry that `order` compares with; `None` if it is not there.
    pub(super) fn find(&self, order: impl Fn(EntryId) -> Ordering) -> Option<usize> {
        let (place, found) = self.search(order)?;
        found.then(|| self.starts[place.block] + place.index)
    }

    /// Where an entry is or belongs; `order` compares an entry with it.
    fn search(&self, order: impl Fn(EntryId) -> Ordering) -> Option<(RowPosition, bool)> {
        let after = self.blocks.partition_point(|block| order(block[0]).is_le());
        let block = after.saturating_sub(1);
        let result = self.blocks.get(block)?.binary_search_by(|id| order(*id));
        Some(match result {
            Ok(index) => (RowPosition { block, index }, true),
            Err(index) => (RowPosition { block, index }, false),
        })
    }

    /// Takes an entry out and returns the row it had.
    pub(super) fn remove(&mut self, order: impl Fn(EntryId) -> Ordering) -> Option<usize> {
        let (place, true) = self.search(order)? else { return None };
        let row = self.starts[place.block] + place.index;
        self.blocks[place.block].remove(place.index);
        if self.blocks[place.block].is_empty() {
            self.blocks.remove(place.block);
        }
        self.count();
        Some(row)
    }

    /// Takes out an entry of which only the key is known and returns the row it had; `order` compares keys with its key.
    pub(super) fn remove_by_key(
        &mut self,
        id: EntryId,
        order: impl Fn(EntryId) -> Ordering,
    ) -> Option<usize> {
        let first = self.blocks.partition_point(|block| order(block[block.len() - 1]).is_lt());
        for block in first..self.blocks.len() {
            let ids = &mut self.blocks[block];
            if order(ids[0]).is_gt() {
                return None;
            }
            let Some(index) = ids.iter().position(|other| *other == id) else { continue };
            ids.remove(index);
            let row = self.starts[block] + index;
            if ids.is_empty() {
                self.blocks.remove(block);
            }
            self.count();
            return Some(row);
        }
        None
    }

    /// Bytes of memory on the heap.
    pub(super) fn bytes(&self) -> usize {
        let ids: usize = self.blocks.iter().map(Vec::capacity).sum();
        ids * size_of::<EntryId>()
            + self.blocks.capacity() * size_of::<Vec<EntryId>>()
            + self.starts.capacity() * size_of::<usize>()
    }

    /// Puts an entry in its place and returns the row.
    pub(super) fn insert(&mut self, id: EntryId, order: impl Fn(EntryId) -> Ordering) -> usize {
        let Some((place, _)) = self.search(order) else {
            *self = Rows::of(&[id]);
            return 0;
        };
        let row = self.starts[place.block] + place.index;
        let block = &mut self.blocks[place.block];
        block.insert(place.index, id);
        if block.len() > BLOCK {
            let upper = block.split_off(block.len() / 2);
            self.blocks.insert(place.block + 1, upper);
        }
        self.count();
        row
    }

    /// Takes many entries out in one pass.
    pub(super) fn sweep(&mut self, gone: &Bits) -> Changes {
        let mut changes = Vec::new();
        let mut row = 0;
        for block in &mut self.blocks {
            block.retain(|id| {
                let is_gone = gone.has(*id);
                if is_gone {
                    match changes.last_mut() {
                        Some((first, count)) if *first + *count == row => *count += 1,
                        _ => changes.push((row, 1)),
                    }
                }
                row += 1;
                !is_gone
            });
        }
        self.blocks.retain(|block| !block.is_empty());
        self.join();
        // From below, so that the rows of the steps to come are still what they were.
        steps(changes.into_iter().rev().map(|(row, count)| RowChange::Removed { row, count }))
    }

    /// Joins blocks of which many entries were taken.
    fn join(&mut self) {
        let mut joined: Vec<Vec<EntryId>> = Vec::with_capacity(self.blocks.len());
        for mut block in self.blocks.drain(..) {
            match joined.last_mut() {
                Some(last) if last.len() + block.len() <= BLOCK / 2 => last.append(&mut block),
                _ => joined.push(block),
            }
        }
        self.blocks = joined;
        self.count();
    }

    /// Puts entries that are in order in their places: blocks between which nothing comes are not looked at.
    pub(super) fn merge(
        &mut self,
        new: &[EntryId],
        order: impl Fn(EntryId, EntryId) -> Ordering,
    ) -> Changes {
        if new.len() <= FEW {
            let insert = |id: &EntryId| self.insert(*id, |other| order(other, *id));
            let rows: Vec<usize> = new.iter().map(insert).collect();
            return steps(ranges(rows).map(|(row, count)| RowChange::Inserted { row, count }));
        }
        if self.blocks.is_empty() {
            *self = Rows::of(new);
            return steps([RowChange::Inserted { row: 0, count: new.len() }]);
        }
        let mut merged = Vec::with_capacity(self.blocks.len() + new.len() / FILLED + 1);
        let mut rows = Vec::with_capacity(new.len());
        let (mut row, mut rest) = (0, new);
        let mut blocks = std::mem::take(&mut self.blocks).into_iter().peekable();
        while let Some(block) = blocks.next() {
            let here = match blocks.peek() {
                Some(next) => gallop(rest, |id| order(*id, next[0]).is_lt()),
                None => rest.len(),
            };
            if here == 0 {
                row += block.len();
                merged.push(block);
                continue;
            }
            let (coming, later) = rest.split_at(here);
            rest = later;
            let whole = merge_block(&block, coming, &order, |index| rows.push(row + index));
            row += whole.len();
            if whole.len() <= BLOCK {
                merged.push(whole);
            } else {
                let even = whole.len().div_ceil(whole.len().div_ceil(FILLED));
                merged.extend(whole.chunks(even).map(<[EntryId]>::to_vec));
            }
        }
        self.blocks = merged;
        self.count();
        steps(ranges(rows).map(|(row, count)| RowChange::Inserted { row, count }))
    }

    fn count(&mut self) {
        self.starts.clear();
        let mut row = 0;
        self.starts.push(0);
        for block in &self.blocks {
            row += block.len();
            self.starts.push(row);
        }
    }
}

/// Merges two ordered lists and tells the place of each of `new`.
fn merge_block(
    old: &[EntryId],
    new: &[EntryId],
    order: impl Fn(EntryId, EntryId) -> Ordering,
    mut place: impl FnMut(usize),
) -> Vec<EntryId> {
    let mut merged = Vec::with_capacity(old.len() + new.len());
    let mut rest = old;
    for id in new {
        let (before, after) = rest.split_at(gallop(rest, |old| order(*old, *id).is_lt()));
        merged.extend_from_slice(before);
        rest = after;
        place(merged.len());
        merged.push(*id);
    }
    merged.extend_from_slice(rest);
    merged
}

/// How many at the start fulfil a condition that holds for a start only; near ones are found with few questions.
fn gallop(ids: &[EntryId], is_before: impl Fn(&EntryId) -> bool) -> usize {
    let mut reach = 1;
    let mut known = 0;
    while reach <= ids.len() && is_before(&ids[reach - 1]) {
        known = reach;
        reach *= 2;
    }
    let end = reach.saturating_sub(1).min(ids.len());
    known + ids[known..end.max(known)].partition_point(is_before)
}

/// Joins ascending numbers that follow one another.
fn ranges(rows: Vec<usize>) -> impl Iterator<Item = (usize, usize)> {
    let mut rows = rows.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = rows.next()?;
        let mut count = 1;
        while rows.next_if_eq(&(first + count)).is_some() {
            count += 1;
        }
        Some((first, count))
    })
}

fn steps(all: impl IntoIterator<Item = RowChange>) -> Changes {
    let mut changes = Changes::none();
    for step in all {
        changes.push(step);
        if changes == Changes::Reset {
            break;
        }
    }
    changes
}
