//! Looking things up in bytes that nobody has checked.

use crate::table::ByteOrder;

/// Why there is no table to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The bytes are not a gvdb file: too short, or another signature or version.
    #[error("not a gvdb file")]
    NotGvdb,
    /// The header is one of a gvdb file, but it leads to no table: the file is damaged.
    #[error("the header leads to no table")]
    NoTable,
}

/// What is wrong with a table, and with which item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// An item is not what its hash says.
    #[error("item {item} has the wrong hash")]
    Hash {
        /// The index of the item.
        item: u32,
    },
}

/// A table over bytes that nobody has checked.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
}

impl<'a> Table<'a> {
    /// Opens the root table.
    ///
    /// # Errors
    ///
    /// The header is not one of a gvdb file, or leads to no table.
    pub fn open(bytes: &'a [u8]) -> Result<Table<'a>, OpenError> {
        let _ = bytes;
        todo!()
    }

    /// Returns the byte order of the values.
    #[must_use]
    pub fn order(self) -> ByteOrder {
        todo!()
    }

    /// Returns the bytes of the `v` that belongs to `name`.
    #[must_use]
    pub fn value(self, name: &str) -> Option<&'a [u8]> {
        self.value_with_hash(super::hash(name.as_bytes()), name)
    }

    /// Returns the bytes of the `v` that belongs to `name`, whose hash the caller has.
    #[must_use]
    pub fn value_with_hash(self, hash: u32, name: &str) -> Option<&'a [u8]> {
        let _ = (hash, name, self.bytes);
        todo!()
    }

    /// Says whether `name` has a value.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the names in directory `dir`, in stored order.
    #[must_use]
    pub fn list(self, dir: &str) -> Option<Vec<&'a str>> {
        let _ = dir;
        todo!()
    }

    /// Returns the table nested under `name`, such as `.locks`.
    #[must_use]
    pub fn nested(self, name: &str) -> Option<Table<'a>> {
        let _ = name;
        todo!()
    }

    /// Returns every item that has a value, with its full name.
    pub fn entries(self) -> impl Iterator<Item = (String, &'a [u8])> + 'a {
        todo!();
        #[expect(unreachable_code, reason = "gives the type until the body is there")]
        std::iter::empty()
    }

    /// Checks the whole structure.
    ///
    /// # Errors
    ///
    /// The first damage found.
    pub fn check(self) -> Result<(), Damage> {
        todo!()
    }
}
