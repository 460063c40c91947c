//! Finding the items of the root table when what leads to them may be damaged.

use std::collections::HashMap;

use crate::ByteOrder;

use super::super::layout::{
    HEADER_LEN, ITEM_LEN, LIST, NO_PARENT, NOTHING, STAMP, Span, TABLE, TABLE_HEAD_LEN, TableItem,
    VALUE, hash, hash_extend, header_order, names_limit, u32_at,
};
use super::super::read::{GvdbTable, root_span};
use super::super::stamp;

/// The items of the root table.
pub(super) struct SalvagedItems<'a> {
    pub(super) table: GvdbTable<'a>,
    /// How many items there should be after the end of the file.
    pub(super) n_missing: usize,
}

/// Finds the items of which the most match the hashes of their parents; without any, returns how many the header tells of.
pub(super) fn find(bytes: &[u8], order: ByteOrder) -> Result<SalvagedItems<'_>, usize> {
    let best = |places: &[Span]| {
        let scored = places.iter().map(|span| {
            let span = Span { end: clip(bytes, *span), ..*span };
            let table = GvdbTable::of_items(bytes, order, span);
            (matching(table).count(), std::cmp::Reverse(table.items.len()), span)
        });
        scored.max().filter(|(score, ..)| *score > 0).map(|(_, _, span)| span)
    };
    let told = told_places(bytes);
    if let Some(span) = best(&told) {
        let table = GvdbTable::of_items(bytes, order, span);
        let is_cut = span.end as usize + ITEM_LEN > bytes.len();
        let whole = told.iter().filter(|place| is_cut && place.start == span.start);
        let n_whole = whole.map(|place| place.len() / ITEM_LEN).min().unwrap_or(0);
        // The number itself may be damaged.
        let n_missing = n_whole.saturating_sub(table.items.len()).min(bytes.len());
        return Ok(SalvagedItems { table, n_missing });
    }
    if let Some(span) = best(&searched_places(bytes)) {
        // Where a searched table ends is not known: it ends for us with the last item that proves to be one.
        let n_items = matching(GvdbTable::of_items(bytes, order, span))
            .last()
            .map_or(0, |last| last as usize + 1);
        let end = span.start as usize + n_items * ITEM_LEN;
        let span = Span { end: u32::try_from(end).unwrap_or(span.end), ..span };
        return Ok(SalvagedItems { table: GvdbTable::of_items(bytes, order, span), n_missing: 0 });
    }
    let root = header_order(bytes).and_then(|_| root_span(bytes)).unwrap_or_default();
    Err((root.len() / (ITEM_LEN + 4)).min(bytes.len()))
}

/// Returns the end of the last whole item of `span` that is in the file.
fn clip(bytes: &[u8], span: Span) -> u32 {
    let end = (span.end as usize).min(bytes.len());
    let n_items = end.saturating_sub(span.start as usize) / ITEM_LEN;
    u32::try_from(span.start as usize + n_items * ITEM_LEN).unwrap_or(span.start)
}

/// Returns the items whose hash is the one of their parent, or of nothing, continued with their part of the name.
fn matching(table: GvdbTable<'_>) -> impl Iterator<Item = u32> {
    let mut left_bytes = names_limit(table.bytes.len());
    let items = (0u32..).zip(table.items.iter().map(TableItem::decode));
    let matching = items.filter(move |(_, item)| {
        let parent_hash = match item.parent {
            NO_PARENT => Some(hash(b"")),
            parent => table.item(parent).map(|parent| parent.hash),
        };
        let (Some(parent_hash), Some(part)) = (parent_hash, item.part(table.bytes)) else {
            return false;
        };
        let Some(left) = left_bytes.checked_sub(part.len()) else { return false };
        left_bytes = left;
        !part.is_empty() && item.hash == hash_extend(parent_hash, part)
    });
    matching.map(|(index, _)| index)
}

/// Returns where the items are by what the header and the table say, each time without one of the numbers.
fn told_places(bytes: &[u8]) -> Vec<Span> {
    let header = root_span(bytes).unwrap_or_default();
    let mut places = Vec::new();
    // Every writer known puts the root table behind the header.
    for start in [header.start as usize, HEADER_LEN] {
        let n_words = u32_at(bytes, start).map_or(0, |head| head & 0x07ff_ffff) as usize;
        let n_buckets = u32_at(bytes, start.saturating_add(4)).unwrap_or(0) as usize;
        let end = header.end as usize;
        for n_words in [n_words, 0] {
            let items = start + TABLE_HEAD_LEN + n_words * 4 + n_buckets * 4;
            // dconf makes as many buckets as items, and so does an image of ours that was not patched.
            places.push((items, items + n_buckets * ITEM_LEN));
            places.push((items, end));
            places.push((items, end_by_stamp(bytes, items)));
        }
        let n_items = end.saturating_sub(start + TABLE_HEAD_LEN) / (ITEM_LEN + 4);
        places.push((end.saturating_sub(n_items * ITEM_LEN), end));
        let n_items = stamp::n_sums(bytes, end).unwrap_or(0);
        places.push((end.saturating_sub(n_items * ITEM_LEN), end));
    }
    let span = |(start, end)| {
        Some(Span { start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? })
    };
    places.into_iter().filter_map(span).filter(|span| span.start < span.end).collect()
}

/// Returns the end of the items that begin at `items_at`, as the item of the stamp has it, which is behind them; without
/// one, where they begin.
fn end_by_stamp(bytes: &[u8], items_at: usize) -> usize {
    let items =
        bytes.get(items_at..).unwrap_or_default().as_chunks().0.iter().map(TableItem::decode);
    let stamp_hash = hash(STAMP.as_bytes());
    let mut stamps = items.filter(|item| {
        item.hash == stamp_hash && item.kind == TABLE && item.part(bytes) == Some(STAMP.as_bytes())
    });
    let stamp_at = stamps.next().map_or(0, |item| item.value.start as usize);
    // At most 7 bytes make the stamp begin at a multiple of 8.
    let n_items = stamp_at.saturating_sub(items_at) / ITEM_LEN;
    items_at + n_items * ITEM_LEN
}

/// The longest part of a name that is looked at in a search.
const MAX_SEARCHED_LEN: u16 = 4096;
/// How many directories a search begins at.
const MAX_ROOTS: usize = 64;

/// Looks at every place where an item could be. An item and its parent, both proved by their hashes, tell where the
/// table begins, since the parent is given by its index.
fn searched_places(bytes: &[u8]) -> Vec<Span> {
    let mut left_bytes = names_limit(bytes.len());
    let mut roots: Vec<(usize, u32)> = Vec::new();
    for (at, item, part) in candidates(bytes) {
        let Some(left) = left_bytes.checked_sub(part.len()) else { break };
        left_bytes = left;
        let is_root = item.parent == NO_PARENT && part == b"/" && item.hash == hash(b"/");
        let is_below = item.parent != NO_PARENT
            && part.ends_with(b"/")
            && item.hash == hash_extend(hash(b"/"), part);
        if (is_root || is_below) && roots.len() < MAX_ROOTS {
            roots.push((at, item.hash));
        }
    }
    let mut votes: HashMap<usize, usize> = HashMap::new();
    let mut first_part = bytes.len();
    for (at, item, part) in candidates(bytes).filter(|(_, item, _)| item.parent != NO_PARENT) {
        for &(root_at, root_hash) in &roots {
            let Some(left) = left_bytes.checked_sub(part.len()) else { break };
            left_bytes = left;
            if item.hash != hash_extend(root_hash, part) {
                continue;
            }
            let start = (item.parent as usize)
                .checked_mul(ITEM_LEN)
                .and_then(|len| root_at.checked_sub(len));
            if let Some(start) =
                start.filter(|start| at >= *start && (at - start).is_multiple_of(ITEM_LEN))
            {
                *votes.entry(start).or_default() += 1;
                first_part = first_part.min(item.key_start as usize).max(at + ITEM_LEN);
            }
        }
    }
    let elected = votes.into_iter().max_by_key(|&(start, n)| (n, std::cmp::Reverse(start)));
    let span = elected.and_then(|(start, _)| {
        // What is named lies behind the table.
        Some(Span { start: u32::try_from(start).ok()?, end: u32::try_from(first_part).ok()? })
    });
    span.into_iter().collect()
}

/// Returns everything that could be an item with a parent or be one of a root, by its own bytes.
fn candidates(bytes: &[u8]) -> impl Iterator<Item = (usize, TableItem, &[u8])> {
    (0..bytes.len()).step_by(4).filter_map(|at| {
        let raw = bytes.get(at..)?.first_chunk::<ITEM_LEN>()?;
        let item = TableItem::decode(raw);
        let is_item = matches!(item.kind, VALUE | LIST | TABLE | NOTHING) && raw[15] == 0;
        if !is_item || item.key_len == 0 || item.key_len > MAX_SEARCHED_LEN {
            return None;
        }
        Some((at, item, item.part(bytes)?))
    })
}
