//! Where a key is in the order of all keys, or would be.

use crate::ByteOrder;

use super::super::layout::{
    ITEM_LEN, LIST, LOCKS, MAX_NAME_LEN, STAMP, Span, TABLE, TableItem, VALUE, hash,
};
use super::super::read::GvdbTable;

/// What is at the place of a name.
pub(super) enum Found<'n> {
    Key(Key),
    Gap(Gap<'n>),
}

/// A key that has a value.
pub(super) struct Key {
    /// Its directories, from the root down, each with the place of the next in its list; the last with the key's.
    pub(super) dirs: Vec<Dir>,
    pub(super) index: u32,
    pub(super) item: TableItem,
    pub(super) next: Next,
}

/// The place of a key that has no value.
pub(super) struct Gap<'n> {
    /// Its directories that are there, as in [`Key`]; the last with the place where it or its next directory would be.
    pub(super) dirs: Vec<Dir>,
    /// What is not there of its name: elements that end with a slash, and the last, which does not.
    pub(super) rest: &'n str,
    pub(super) next: Next,
}

/// A directory on the way to a key.
#[derive(Clone, Copy)]
pub(super) struct Dir {
    pub(super) index: u32,
    pub(super) item: TableItem,
    /// A place in its list.
    pub(super) position: usize,
}

/// What comes behind a key, or behind its place, among the names and values.
#[derive(Clone, Copy)]
pub(super) struct Next {
    /// The first name: of the next key, of a directory that begins with it, or of the stamp.
    pub(super) names_start: u32,
    /// The end of the names, which follow each other without a gap.
    pub(super) names_end: u32,
    /// The next key's value, or the first list.
    pub(super) at: u32,
    /// What `at` is a multiple of.
    pub(super) align: u32,
}

/// Finds the place of `name`; `None` if it is no key, or the image is not one that can be patched.
pub(super) fn find<'n>(image: &[u8], name: &'n str) -> Option<Found<'n>> {
    if name.len() > MAX_NAME_LEN || name.contains('\0') || name.ends_with('/') {
        return None;
    }
    let table = GvdbTable::open(image).ok().filter(|table| table.order == ByteOrder::NATIVE)?;
    if table.find(hash(LOCKS.as_bytes()), LOCKS, TABLE).is_some() {
        return None;
    }
    let (index, item) = table.find(hash(b"/"), "/", LIST)?;
    let mut rest = name.strip_prefix('/')?;
    let mut dirs = vec![Dir { index, item, position: 0 }];
    loop {
        let dir = dirs.last_mut()?;
        let element = first_element(rest)?;
        let children = children(table, dir.item)?;
        let found = children.binary_search_by(|child| {
            let part = table.item(u32::from_le_bytes(*child)).and_then(|item| item.part(image));
            part.unwrap_or_default().cmp(element.as_bytes())
        });
        dir.position = found.unwrap_or_else(|position| position);
        let Ok(position) = found else {
            if !rest.split_inclusive('/').all(|element| first_element(element).is_some()) {
                return None;
            }
            let next = next(table, &dirs, 0)?;
            return Some(Found::Gap(Gap { dirs, rest, next }));
        };
        let index = u32::from_le_bytes(*children.get(position)?);
        let item = table.item(index)?;
        rest = &rest[element.len()..];
        match item.kind {
            LIST if !rest.is_empty() => dirs.push(Dir { index, item, position: 0 }),
            VALUE if rest.is_empty() => {
                let next = next(table, &dirs, 1)?;
                return Key { dirs, index, item, next }.checked().map(Found::Key);
            }
            _ => return None,
        }
    }
}

/// Returns the first element of the rest of a name, with its slash, if it can be the part of an item.
fn first_element(rest: &str) -> Option<&str> {
    let element = rest.split_inclusive('/').next()?;
    (element != "/" && u16::try_from(element.len()).is_ok()).then_some(element)
}

/// Returns the indices in the list of a directory.
pub(super) fn children(table: GvdbTable<'_>, dir: TableItem) -> Option<&[[u8; 4]]> {
    match dir.value.of(table.bytes, 4)?.as_chunks() {
        (children, []) => Some(children),
        _ => None,
    }
}

/// Finds what comes behind the place to which `dirs` lead, or behind so many children there.
fn next(table: GvdbTable<'_>, dirs: &[Dir], mut passed: usize) -> Option<Next> {
    for dir in dirs.iter().rev() {
        let children = children(table, dir.item)?;
        if let Some(child) = children.get(dir.position + passed) {
            let first = table.item(u32::from_le_bytes(*child))?;
            let key = first_key(table, first)?;
            let (names_start, names_end) = (first.key_start, key.part_span().end);
            return Next { names_start, names_end, at: key.value.start, align: 8 }.checked();
        }
        // The place is in a child of the next directory, so that this child is passed.
        passed = 1;
    }
    let (_, stamp) = table.find(hash(STAMP.as_bytes()), STAMP, TABLE)?;
    let name = stamp.part_span();
    let lists_at = dirs.first()?.item.value.start;
    Next { names_start: name.start, names_end: name.end, at: lists_at, align: 4 }.checked()
}

impl Key {
    /// Returns this if its value is between its own name and the next one, where an image of ours has it.
    fn checked(self) -> Option<Key> {
        let Span { start, end } = self.item.value;
        let name_end = self.item.part_span().end;
        let follows = name_end.checked_next_multiple_of(8) == Some(start);
        (follows && start <= end && end == self.next.names_start).then_some(self)
    }
}

impl Next {
    /// Returns this if the names and what follows them are as close as an image of ours has them; a gap between them would
    /// grow with the image.
    fn checked(self) -> Option<Next> {
        let follows = self.names_end.checked_next_multiple_of(self.align) == Some(self.at);
        (self.names_start <= self.names_end && follows).then_some(self)
    }
}

/// Returns the first key that is `item` or is below it.
fn first_key(table: GvdbTable<'_>, mut item: TableItem) -> Option<TableItem> {
    // A path has no more elements than bytes; more would be a circle.
    for _ in 0..MAX_NAME_LEN.min(table.items.len()) {
        if item.kind != LIST {
            break;
        }
        let first = children(table, item)?.first()?;
        item = table.item(u32::from_le_bytes(*first))?;
    }
    (item.kind == VALUE).then_some(item)
}

/// Returns where the items of the root table are.
pub(super) fn items_at(table: GvdbTable<'_>) -> usize {
    table.span.end as usize - table.items.len() * ITEM_LEN
}
