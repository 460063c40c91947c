//! The keys of one database in memory, sorted, so that a directory is a range.

use std::collections::BTreeMap;
use std::ops::Bound;

use gvdb::gvariant::Variant;

/// Keys and their values in the order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTable {
    keys: BTreeMap<Box<str>, Variant>,
    /// The length of all their paths together, in bytes.
    paths_len: usize,
    /// The length of all values together, in bytes.
    values_len: usize,
}

/// What a key takes in memory beside the bytes of its path and its value: its place in the tree and two allocations.
const KEY_OVERHEAD: usize = 128;

/// Returns about how much memory a key and its value take, in bytes.
pub(crate) fn key_weight(path: &str, value: &Variant) -> usize {
    KEY_OVERHEAD + path.len() + value.as_bytes().len()
}

impl KeyTable {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Variant> {
        self.keys.get(key)
    }

    /// Sets (`Some`) or resets (`None`) a key and returns what it was. Costs O(log n).
    pub fn put(&mut self, key: &str, value: Option<Variant>) -> Option<Variant> {
        let Some(value) = value else {
            let old = self.keys.remove(key);
            if let Some(old) = &old {
                self.paths_len -= key.len();
                self.values_len -= old.as_bytes().len();
            }
            return old;
        };
        self.values_len += value.as_bytes().len();
        if let Some(slot) = self.keys.get_mut(key) {
            let old = std::mem::replace(slot, value);
            self.values_len -= old.as_bytes().len();
            return Some(old);
        }
        self.paths_len += key.len();
        self.keys.insert(key.into(), value)
    }

    /// Returns the length of the paths of all keys together, in bytes. Costs O(1).
    #[must_use]
    pub(crate) fn paths_len(&self) -> usize {
        self.paths_len
    }

    /// Returns about how much memory the table takes, in bytes. Costs O(1).
    #[must_use]
    pub(crate) fn weight(&self) -> usize {
        self.paths_len + self.values_len + self.keys.len() * KEY_OVERHEAD
    }

    /// Returns what is below a directory. Costs O(log n) and then O(1) for each key.
    pub fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = (&'a str, &'a Variant)> {
        let from = (Bound::Excluded(dir), Bound::Unbounded);
        let range = self.keys.range::<str, _>(from);
        range.map(|(key, value)| (&**key, value)).take_while(move |(key, _)| key.starts_with(dir))
    }

    /// Returns whether any key is below a directory. Costs O(log n).
    #[must_use]
    pub fn has_below(&self, dir: &str) -> bool {
        self.below(dir).next().is_some()
    }

    /// Returns all keys in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Variant)> {
        self.keys.iter().map(|(key, value)| (&**key, value))
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl<K: Into<Box<str>>> FromIterator<(K, Variant)> for KeyTable {
    fn from_iter<I: IntoIterator<Item = (K, Variant)>>(entries: I) -> KeyTable {
        let keys: BTreeMap<Box<str>, Variant> =
            entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        let paths_len = keys.keys().map(|key| key.len()).sum();
        let values_len = keys.values().map(|value| value.as_bytes().len()).sum();
        KeyTable { keys, paths_len, values_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_all_paths_is_kept() {
        let value = |number: i32| Some(Variant::from(number));
        let mut table: KeyTable =
            [("/a", Variant::from(1)), ("/b/c", Variant::from(2)), ("/a", Variant::from(3))]
                .into_iter()
                .collect();
        let steps = [("/a", value(4)), ("/new", value(5)), ("/b/c", None), ("/b/c", None)];
        for (key, value) in steps.into_iter().chain([("/new", None), ("/ü", value(6))]) {
            table.put(key, value);
            let counted: usize = table.iter().map(|(key, _)| key.len()).sum();
            assert_eq!(table.paths_len(), counted);
            let weight: usize = table.iter().map(|(key, value)| key_weight(key, value)).sum();
            assert_eq!(table.weight(), weight);
        }
        assert_eq!(table.paths_len(), 5);
    }

    #[test]
    fn a_directory_is_the_range_of_what_starts_with_it() {
        let value = Variant::parse(None, "1").unwrap();
        let keys = ["/a", "/a-b/k", "/a/", "/a/b", "/a/c/d", "/a0/x", "/b"];
        let table: KeyTable = keys.iter().map(|key| (*key, value.clone())).collect();
        let below = |dir| table.below(dir).map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(below("/a/"), ["/a/b", "/a/c/d"]);
        assert_eq!(below("/").len(), keys.len());
        assert!(!table.has_below("/a/b/"));
    }
}
