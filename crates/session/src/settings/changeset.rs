//! A set of changes that is applied as one: keys set or reset, directories reset.

use std::collections::BTreeMap;

use store::table::gvariant::Variant;

/// Changes by path, in the order in which they are applied: a directory's reset before what is set below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changeset(BTreeMap<Box<str>, Option<Variant>>);

impl Changeset {
    /// Reads the body of a `Change` call, an `a{smv}` in native byte order that nobody has checked.
    ///
    /// Never fails: an entry that is no key or directory, or gives a directory a value, is left out.
    #[must_use]
    pub fn decode(blob: &[u8]) -> Changeset {
        let _ = blob;
        todo!()
    }

    /// Writes the body of a `Change` call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }

    /// Sets (`Some`) or resets (`None`) a key, or resets a directory; an earlier change of the same path is replaced.
    pub fn change(&mut self, path: &str, value: Option<Variant>) {
        self.0.insert(path.into(), value);
    }

    /// Returns the changes in the order in which they are applied.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&Variant>)> {
        self.0.iter().map(|(path, value)| (&**path, value.as_ref()))
    }

    /// Says whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
