//! The keys of one database in memory, sorted, so that a directory is a range.

use std::collections::BTreeMap;
use std::ops::Bound;

use store::table::gvariant::Variant;

/// Keys and their values in the order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(BTreeMap<Box<str>, Variant>);

impl Table {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Variant> {
        self.0.get(key)
    }

    /// Sets (`Some`) or resets (`None`) a key and returns what it was. Costs O(log n).
    pub fn put(&mut self, key: &str, value: Option<Variant>) -> Option<Variant> {
        match value {
            None => self.0.remove(key),
            Some(value) => match self.0.get_mut(key) {
                Some(slot) => Some(std::mem::replace(slot, value)),
                None => self.0.insert(key.into(), value),
            },
        }
    }

    /// Returns what is below a directory. Costs O(log n) and then O(1) for each key.
    pub fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = (&'a str, &'a Variant)> {
        let from = (Bound::Excluded(dir), Bound::Unbounded);
        let range = self.0.range::<str, _>(from);
        range.map(|(key, value)| (&**key, value)).take_while(move |(key, _)| key.starts_with(dir))
    }

    /// Says whether any key is below a directory. Costs O(log n).
    #[must_use]
    pub fn has_below(&self, dir: &str) -> bool {
        self.below(dir).next().is_some()
    }

    /// Returns all keys in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Variant)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Says whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<Box<str>>> FromIterator<(K, Variant)> for Table {
    fn from_iter<I: IntoIterator<Item = (K, Variant)>>(entries: I) -> Table {
        Table(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_range_of_what_starts_with_it() {
        let value = Variant::parse(None, "1").unwrap();
        let keys = ["/a", "/a-b/k", "/a/", "/a/b", "/a/c/d", "/a0/x", "/b"];
        let table: Table = keys.iter().map(|key| (*key, value.clone())).collect();
        let below = |dir| table.below(dir).map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(below("/a/"), ["/a/b", "/a/c/d"]);
        assert_eq!(below("/").len(), keys.len());
        assert!(!table.has_below("/a/b/"));
    }
}
