//! Where the sections of an image are that [`write`](super::super::write()) or a patch made.

use std::ops::Range;

use super::super::layout::{HEADER_LEN, ITEM_LEN, LIST, STAMP, TABLE, TABLE_HEAD_LEN, hash};
use super::super::read::GvdbTable;
use super::super::stamp::{self, SUMS_AT, SUMS_TYPE};
use super::place::items_at;

/// What is where in an image.
pub(super) struct Sections<'a> {
    pub(super) table: GvdbTable<'a>,
    pub(super) items_at: usize,
    /// Where the table of the stamp is.
    pub(super) stamp_at: usize,
    pub(super) sums_at: usize,
    /// Where the names and values begin.
    pub(super) data_at: usize,
    /// Where the lists begin, which go to the end of the file.
    pub(super) lists_at: usize,
}

impl<'a> Sections<'a> {
    /// Finds the sections of an image that `write` or a patch made.
    pub(super) fn of(image: &'a [u8]) -> Option<Sections<'a>> {
        let table = GvdbTable::open(image).ok()?;
        let items_at = items_at(table);
        let stamp_at = (table.span.end as usize).next_multiple_of(8);
        let sums_at = stamp_at + SUMS_AT;
        let (_, stamp) = table.find(hash(STAMP.as_bytes()), STAMP, TABLE)?;
        let (_, root) = table.find(hash(b"/"), "/", LIST)?;
        let is_ours = table.span.start as usize == HEADER_LEN
            && items_at == HEADER_LEN + TABLE_HEAD_LEN + table.buckets.len() * 4
            && stamp.value.start as usize == stamp_at
            && stamp::sums_at(table)? == sums_at;
        let data_at = data_at(sums_at, table.items.len());
        is_ours.then_some(Sections {
            table,
            items_at,
            stamp_at,
            sums_at,
            data_at,
            lists_at: root.value.start as usize,
        })
    }

    /// Returns where the names and values are.
    pub(super) fn data(&self) -> Range<usize> {
        self.data_at..self.lists_at
    }

    /// Returns where the sections are when there are so many items.
    pub(super) fn places(&self, n_items: usize) -> Places {
        let items_end = self.items_at + n_items * ITEM_LEN;
        let stamp_at = items_end.next_multiple_of(8);
        Places { items_end, stamp_at, data_at: data_at(stamp_at + SUMS_AT, n_items) }
    }
}

/// Where the sections of the new image are.
pub(super) struct Places {
    pub(super) items_end: usize,
    pub(super) stamp_at: usize,
    pub(super) data_at: usize,
}

/// Returns where the names and values begin behind the sums of so many items.
fn data_at(sums_at: usize, n_items: usize) -> usize {
    (sums_at + n_items * 4 + 4 + SUMS_TYPE.len()).next_multiple_of(8)
}
