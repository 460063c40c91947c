//! Taking the values of proved names.

use crate::gvariant::{Variant, VariantView};

use super::super::check::is_value;
use super::super::layout::{Span, TableItem, VALUE};
use super::super::read::GvdbTable;
use super::super::stamp::{SUMS_AT, ValueSums, sums_at, value_sum};

/// A key that was taken out.
pub(super) struct SalvagedKey {
    pub(super) name: String,
    pub(super) value: Variant,
    /// Its sum proves the value.
    pub(super) is_proven: bool,
}

/// What was taken out.
pub(super) struct Values {
    pub(super) kept: Vec<SalvagedKey>,
    pub(super) n_suspect: usize,
}

/// Takes the values of all items that have a name.
pub(super) fn take(table: GvdbTable<'_>, names: Vec<Option<String>>) -> Values {
    let sums = sums(table);
    let around = Surroundings::of(table, &names);
    let mut n_suspect = names.iter().filter(|name| name.is_none()).count();
    let mut keys: Vec<(u32, TableItem, String)> = (0u32..)
        .zip(table.items)
        .zip(names)
        .filter_map(|((index, item), name)| {
            Some((index, TableItem::decode(item), name.filter(|name| is_key(name))?))
        })
        .collect();
    // Honest values lie apart, so all of them are not longer than the file. Short ones go first, so that a value whose
    // length is damaged does not take the place of others.
    keys.sort_by_key(|(_, item, _)| item.value.len());
    let mut left_bytes = table.bytes.len().saturating_mul(4);
    let mut kept = Vec::with_capacity(keys.len());
    for (index, item, name) in keys {
        let value = item.value.of(table.bytes, 8).filter(|value| {
            let left = left_bytes.checked_sub(value.len());
            left_bytes = left.unwrap_or(left_bytes);
            left.is_some() && is_value(value, table.order)
        });
        let judged = value.and_then(|value| {
            Some((value, judge(table, index, item, value, sums.as_ref(), &around)?))
        });
        match judged {
            Some((value, is_proven)) => {
                let value = VariantView::inside(value, table.order).to_variant();
                kept.push(SalvagedKey { name, value, is_proven });
            }
            None => n_suspect += 1,
        }
    }
    Values { kept, n_suspect }
}

/// Says whether the value is proved; `None` if it is known to be another than the one that was written.
fn judge(
    table: GvdbTable<'_>,
    index: u32,
    item: TableItem,
    value: &[u8],
    sums: Option<&ValueSums<'_>>,
    around: &Surroundings,
) -> Option<bool> {
    if let Some(sums) = sums {
        if sums.get(index) == Some(value_sum(item.hash, value)) {
            return Some(true);
        }
        if sums.are_intact {
            return None;
        }
    }
    (item.kind == VALUE && around.agree(table, item)).then_some(false)
}

/// Returns the sums of the stamp, if there may be any: where the stamp says, or where our writer puts them.
fn sums(table: GvdbTable<'_>) -> Option<ValueSums<'_>> {
    let n_items = table.items.len();
    let told = GvdbTable::open(table.bytes).ok().and_then(sums_at);
    let usual = (table.span.end as usize).next_multiple_of(8) + SUMS_AT;
    let at = |at| ValueSums::at(table.bytes, at, n_items, table.order);
    told.and_then(at).filter(|sums| sums.are_intact).or_else(|| at(usual))
}

/// Says whether `name` is the path of a key.
fn is_key(name: &str) -> bool {
    name.starts_with('/') && !name.ends_with('/') && !name.contains("//")
}

/// What is known of the places of other things, against which a value without a sum is held.
struct Surroundings {
    /// Where the parts of proved names are, ascending. Their places are proved as the names are.
    parts: Vec<Span>,
    /// Values follow the parts of their own names, as every writer known puts them.
    values_follow_parts: bool,
    /// All names are proved, so that what follows a value is known.
    is_whole: bool,
}

impl Surroundings {
    fn of(table: GvdbTable<'_>, names: &[Option<String>]) -> Surroundings {
        let items = || {
            table.items.iter().map(TableItem::decode).zip(names).filter(|(_, name)| name.is_some())
        };
        let mut parts: Vec<Span> = items().map(|(item, _)| item.part_span()).collect();
        parts.sort_unstable();
        let values = || items().filter(|(item, _)| item.kind == VALUE);
        let n_following = values().filter(|(item, _)| follows_part(*item)).count();
        Surroundings {
            parts,
            values_follow_parts: n_following * 4 >= values().count() * 3,
            is_whole: names.iter().all(Option::is_some),
        }
    }

    /// Says whether the value of `item` can be where the item says.
    fn agree(&self, table: GvdbTable<'_>, item: TableItem) -> bool {
        if self.values_follow_parts && !follows_part(item) {
            return false;
        }
        let value = item.value;
        let next = self.parts.partition_point(|part| part.start < value.start);
        let is_over_part = self.parts.get(next).is_some_and(|part| part.start < value.end)
            || next.checked_sub(1).is_some_and(|last| self.parts[last].end > value.start);
        let is_over_table = value.start < table.span.end;
        if is_over_part || is_over_table {
            return false;
        }
        // The next name follows the value at once; if it does not, the value is longer than the item says.
        let follower = self.parts.get(next).filter(|_| self.is_whole && self.values_follow_parts);
        follower.is_none_or(|next| is_padding(table.bytes, value.end, next.start))
    }
}

/// Says whether the value is at the first multiple of 8 behind the item's part of its name.
fn follows_part(item: TableItem) -> bool {
    u64::from(item.value.start) == u64::from(item.part_span().end).next_multiple_of(8)
}

/// Says whether nothing lies between `end` and `start`.
fn is_padding(bytes: &[u8], end: u32, start: u32) -> bool {
    let between = bytes.get(end as usize..start as usize).unwrap_or_default();
    between.len() < 8 && between.iter().all(|&byte| byte == 0)
}
