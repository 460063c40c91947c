//! The full names of all items of a table: each is the name of its parent and a part of its own.

use super::layout::{MAX_NAME_LEN, NO_PARENT, TableItem, VALUE, hash, hash_extend, names_limit};
use super::read::GvdbTable;

/// The length and the hash of every full name, found in time linear in the file, whatever the parents say.
pub(super) struct Names<'a> {
    table: GvdbTable<'a>,
    found: Vec<Name>,
}

#[derive(Clone, Copy)]
enum Name {
    Unknown,
    /// Its parents are being followed.
    Open,
    /// A part outside of the file, a parent that is not there, a cycle, or more bytes than a name may have.
    Broken,
    Known {
        len_bytes: u32,
        hash: u32,
    },
}

impl<'a> Names<'a> {
    /// Finds the names of `table`. `left_bytes` goes down by the parts that were read: they may overlap in a hostile
    /// file, where hashing them would take the square of its size.
    pub(super) fn of(table: GvdbTable<'a>, left_bytes: &mut usize) -> Names<'a> {
        let mut names = Names { table, found: vec![Name::Unknown; table.items.len()] };
        let mut open: Vec<(u32, TableItem)> = Vec::new();
        for (index, _) in (0u32..).zip(table.items) {
            names.follow(index, &mut open, left_bytes);
        }
        names
    }

    /// Finds the name of item `index` and of all its parents.
    fn follow(&mut self, index: u32, open: &mut Vec<(u32, TableItem)>, left_bytes: &mut usize) {
        let mut at = index;
        let mut name = loop {
            match self.found.get(at as usize) {
                Some(&name @ (Name::Known { .. } | Name::Broken)) => break name,
                Some(Name::Unknown) => (),
                // A cycle, or a parent that is not there.
                Some(Name::Open) | None => break Name::Broken,
            }
            let Some(item) = self.table.item(at) else { break Name::Broken };
            self.found[at as usize] = Name::Open;
            open.push((at, item));
            if item.parent == NO_PARENT {
                break Name::Known { len_bytes: 0, hash: hash(b"") };
            }
            at = item.parent;
        };
        for (at, item) in open.drain(..).rev() {
            name = self.extend(name, item, left_bytes);
            self.found[at as usize] = name;
        }
    }

    fn extend(&self, parent: Name, item: TableItem, left_bytes: &mut usize) -> Name {
        let (Name::Known { len_bytes, hash }, Some(part)) = (parent, item.part(self.table.bytes))
        else {
            return Name::Broken;
        };
        let len_bytes = len_bytes + u32::from(item.key_len);
        let Some(left) = left_bytes.checked_sub(part.len()) else { return Name::Broken };
        let is_endless = part.is_empty() && item.parent != NO_PARENT;
        if is_endless || len_bytes as usize > MAX_NAME_LEN {
            return Name::Broken;
        }
        *left_bytes = left;
        Name::Known { len_bytes, hash: hash_extend(hash, part) }
    }

    /// Returns the length of the full name, if it has one.
    pub(super) fn name_len(&self, index: u32) -> Option<usize> {
        match self.found.get(index as usize)? {
            Name::Known { len_bytes, .. } => Some(*len_bytes as usize),
            _ => None,
        }
    }

    /// Returns the hash of the full name as its parts make it, if it has one.
    pub(super) fn hash(&self, index: u32) -> Option<u32> {
        match self.found.get(index as usize)? {
            Name::Known { hash, .. } => Some(*hash),
            _ => None,
        }
    }

    /// Returns the full name, if it has one that is text.
    pub(super) fn text(&self, index: u32) -> Option<String> {
        let mut name = vec![0; self.name_len(index)?];
        let mut end = name.len();
        let mut item = self.table.item(index)?;
        loop {
            let part = item.part(self.table.bytes)?;
            let start = end.checked_sub(part.len())?;
            name[start..end].copy_from_slice(part);
            end = start;
            if item.parent == NO_PARENT {
                break;
            }
            item = self.table.item(item.parent)?;
        }
        String::from_utf8(name).ok()
    }
}

impl<'a> GvdbTable<'a> {
    /// Returns every item that has a value, with its full name, in no useful order.
    ///
    /// An item whose name or value leads nowhere is left out, as dconf does.
    pub fn entries(self) -> impl Iterator<Item = (String, &'a [u8])> + 'a {
        let mut left_bytes = names_limit(self.bytes.len());
        let names = Names::of(self, &mut left_bytes.clone());
        (0u32..).zip(self.items).filter_map(move |(index, item)| {
            let item = TableItem::decode(item);
            if item.kind != VALUE {
                return None;
            }
            let value = item.value.of(self.bytes, 8)?;
            left_bytes = left_bytes.checked_sub(names.name_len(index)?)?;
            Some((names.text(index)?, value))
        })
    }
}
