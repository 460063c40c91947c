//! Checking the whole structure of a file: what is true of every table that a writer made.

use super::layout::{
    HEADER_LEN, LIST, NO_PARENT, NOTHING, Span, TABLE, TableItem, VALUE, names_limit,
};
use super::names::Names;
use super::read::GvdbTable;
use crate::ByteOrder;
use crate::gvariant::{Type, VariantView};

/// What is wrong with a table, and with which of its items. The table cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableDamage {
    /// The buckets are not an ascending division of all items.
    #[error("the buckets do not divide the items")]
    Buckets,
    /// A name is cut off, is no text, or its parents are no directories or lead in a circle.
    #[error("item {item} has no name")]
    Name {
        /// The index of the item.
        item: u32,
    },
    /// An item is not what its hash says.
    #[error("item {item} has the wrong hash")]
    Hash {
        /// The index of the item.
        item: u32,
    },
    /// A look-up would not come to the item.
    #[error("item {item} cannot be found")]
    Lost {
        /// The index of the item.
        item: u32,
    },
    /// Another item has the same name.
    #[error("item {item} has the name of another")]
    Twice {
        /// The index of the item.
        item: u32,
    },
    /// An item is of no known type.
    #[error("item {item} is of no known type")]
    Type {
        /// The index of the item.
        item: u32,
    },
    /// A value is outside of the file or not in normal form.
    #[error("item {item} has a damaged value")]
    Value {
        /// The index of the item.
        item: u32,
    },
    /// The list of a directory is not the list of its children.
    #[error("item {item} does not list its children")]
    List {
        /// The index of the item.
        item: u32,
    },
    /// A nested table cannot be opened.
    #[error("item {item} leads to no table")]
    Table {
        /// The index of the item.
        item: u32,
    },
    /// Two things lie over each other.
    #[error("two things lie over each other at offset {at}")]
    Overlap {
        /// The offset in the file, in bytes.
        at: u32,
    },
    /// A nested table is damaged.
    #[error("nested table {item} is damaged")]
    Nested {
        /// The index of the item that holds the table.
        item: u32,
        /// What is wrong with it.
        source: Box<TableDamage>,
    },
}

impl GvdbTable<'_> {
    /// Checks the whole structure: every name, hash, bucket, list and nested table, every value for normal form, that
    /// nothing is outside of the file and that nothing lies over anything else. Takes time linear in the file, but for
    /// sorting.
    ///
    /// What it cannot notice is a value that was changed into another well-formed value: see [`stamp`](super::stamp()).
    ///
    /// # Errors
    ///
    /// The first damage found.
    pub fn check(self) -> Result<(), TableDamage> {
        let mut work = Work {
            left_bytes: self.bytes.len(),
            left_names: names_limit(self.bytes.len()),
            spans: vec![],
        };
        work.spans.push(Span { start: 0, end: HEADER_LEN_U32 });
        let mut tables = vec![(self, Vec::new())];
        let mut done = 0;
        while let Some((table, path)) = tables.get(done).cloned() {
            work.check_table(table).map_err(|damage| nested(damage, &path))?;
            for (item, inner) in items(table).filter(|(_, inner)| inner.kind == TABLE) {
                let inner = GvdbTable::at(self.bytes, self.order, inner.value)
                    .filter(|_| path.len() < MAX_DEPTH);
                let inner = inner.ok_or_else(|| nested(TableDamage::Table { item }, &path))?;
                tables.push((inner, [path.as_slice(), &[item]].concat()));
            }
            done += 1;
        }
        check_apart(&mut work.spans)?;
        // Values lie apart, so this is linear.
        tables.into_iter().try_for_each(|(table, path)| {
            check_values(table).map_err(|damage| nested(damage, &path))
        })
    }
}

/// How deep tables may be nested; dconf's are nested once.
const MAX_DEPTH: usize = 8;

/// Says in which nested table the damage is.
fn nested(damage: TableDamage, path: &[u32]) -> TableDamage {
    path.iter()
        .rev()
        .fold(damage, |source, &item| TableDamage::Nested { item, source: Box::new(source) })
}

#[expect(clippy::cast_possible_truncation, reason = "24")]
const HEADER_LEN_U32: u32 = HEADER_LEN as u32;

fn items(table: GvdbTable<'_>) -> impl Iterator<Item = (u32, TableItem)> {
    (0u32..).zip(table.items).map(|(index, item)| (index, TableItem::decode(item)))
}

/// What has been seen of the file, and what may still be done: a hostile file must not make more work than an honest
/// one of its length.
struct Work {
    /// Tables lie apart, so all of them together are not longer than the file.
    left_bytes: usize,
    /// See [`names_limit`].
    left_names: usize,
    /// Where everything is.
    spans: Vec<Span>,
}

impl Work {
    /// Checks one table, but for its values.
    fn check_table(&mut self, table: GvdbTable<'_>) -> Result<(), TableDamage> {
        let overlap = TableDamage::Overlap { at: table.span.start };
        self.left_bytes = self.left_bytes.checked_sub(table.span.len()).ok_or(overlap)?;
        self.spans.push(table.span);
        check_buckets(table)?;
        check_names(table, &mut self.left_names)?;
        check_lists(table)?;
        for (_, item) in items(table) {
            self.spans.push(item.part_span());
            if item.kind != TABLE {
                self.spans.push(item.value);
            }
        }
        Ok(())
    }
}

/// Checks that every item has one name of its own and is found by it.
fn check_names(table: GvdbTable<'_>, left_names: &mut usize) -> Result<(), TableDamage> {
    let names = Names::of(table, left_names);
    let mut by_hash: Vec<(u32, u32)> = Vec::with_capacity(table.items.len());
    for (index, item) in items(table) {
        let part = item.part(table.bytes).unwrap_or_default();
        let parent = table.item(item.parent);
        let has_directory =
            item.parent == NO_PARENT || parent.is_some_and(|parent| parent.kind == LIST);
        let hash = names.hash(index).ok_or(TableDamage::Name { item: index })?;
        if hash != item.hash {
            return Err(TableDamage::Hash { item: index });
        }
        if !has_directory || part.contains(&0) || str::from_utf8(part).is_err() {
            return Err(TableDamage::Name { item: index });
        }
        let is_in_bucket =
            table.bucket(hash).is_some_and(|(start, end)| (start..end).contains(&index));
        if !is_in_bucket || !table.may_have(hash) {
            return Err(TableDamage::Lost { item: index });
        }
        by_hash.push((hash, index));
    }
    by_hash.sort_unstable();
    for equal in by_hash.chunk_by(|a, b| a.0 == b.0).filter(|equal| equal.len() > 1) {
        check_apart_in_name(&names, equal, left_names)?;
    }
    Ok(())
}

/// Checks that items with the same hash have different names.
fn check_apart_in_name(
    names: &Names<'_>,
    equal: &[(u32, u32)],
    left_names: &mut usize,
) -> Result<(), TableDamage> {
    let mut texts = Vec::with_capacity(equal.len());
    for &(_, item) in equal {
        let left = names.name_len(item).and_then(|len| left_names.checked_sub(len));
        *left_names = left.ok_or(TableDamage::Name { item })?;
        texts.push((names.text(item).ok_or(TableDamage::Name { item })?, item));
    }
    texts.sort_unstable();
    let twice = texts.windows(2).find(|pair| pair[0].0 == pair[1].0);
    twice.map_or(Ok(()), |pair| Err(TableDamage::Twice { item: pair[1].1 }))
}

/// Checks that the buckets begin with item 0, ascend and end with the last item.
fn check_buckets(table: GvdbTable<'_>) -> Result<(), TableDamage> {
    let starts: Vec<u32> = table.buckets.iter().map(|start| u32::from_le_bytes(*start)).collect();
    let is_whole = match (starts.first(), starts.last()) {
        (Some(&first), Some(&last)) => first == 0 && last as usize <= table.items.len(),
        _ => table.items.is_empty(),
    };
    if is_whole && starts.is_sorted() { Ok(()) } else { Err(TableDamage::Buckets) }
}

/// Checks that every directory lists its children, each once, and nothing else.
fn check_lists(table: GvdbTable<'_>) -> Result<(), TableDamage> {
    let mut is_listed = vec![false; table.items.len()];
    for (index, item) in items(table) {
        match item.kind {
            LIST => (),
            VALUE | TABLE => continue,
            NOTHING if item.value == Span::default() => continue,
            _ => return Err(TableDamage::Type { item: index }),
        }
        let damage = TableDamage::List { item: index };
        let Some((children, [])) = item.value.of(table.bytes, 4).map(<[u8]>::as_chunks::<4>) else {
            return Err(damage);
        };
        for child in children {
            let child = u32::from_le_bytes(*child);
            let is_ours = table.item(child).is_some_and(|child| child.parent == index);
            if !is_ours || std::mem::replace(&mut is_listed[child as usize], true) {
                return Err(damage);
            }
        }
    }
    let unlisted =
        items(table).find(|(index, item)| item.parent != NO_PARENT && !is_listed[*index as usize]);
    unlisted.map_or(Ok(()), |(_, item)| Err(TableDamage::List { item: item.parent }))
}

/// Checks that every value is in the file and in normal form.
fn check_values(table: GvdbTable<'_>) -> Result<(), TableDamage> {
    let mut values = items(table).filter(|(_, item)| item.kind == VALUE);
    let is_damaged = |item: &TableItem| {
        !item.value.of(table.bytes, 8).is_some_and(|value| is_value(value, table.order))
    };
    values
        .find(|(_, item)| is_damaged(item))
        .map_or(Ok(()), |(item, _)| Err(TableDamage::Value { item }))
}

/// Says whether `value` is a `v` in normal form.
pub(super) fn is_value(value: &[u8], order: ByteOrder) -> bool {
    VariantView::new(Type::VARIANT, value, order).is_normal()
}

/// Checks that nothing lies over anything else.
fn check_apart(spans: &mut [Span]) -> Result<(), TableDamage> {
    spans.sort_unstable();
    let mut end = 0;
    for span in spans.iter().filter(|span| span.len() > 0) {
        if span.start < end {
            return Err(TableDamage::Overlap { at: span.start });
        }
        end = span.end;
    }
    Ok(())
}
