//! Lists in an index: elements by number, and by key where they are sorted by it.
//!
//! A list is the number of its elements (u32), where each ends (u32, counted from the first byte behind these numbers), and the elements.
//! An element with a key begins with the key's length (u32) and the key. Whatever the bytes are, nothing panics; what cannot be right is not there.

use std::cmp::Ordering;
use std::ops::Range;

/// A list, borrowed from the index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Array<'a> {
    ends: &'a [[u8; 4]],
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Array<'a> {
        let parts = || {
            let (count, rest) = bytes.split_first_chunk()?;
            let len = (u32::from_le_bytes(*count) as usize).checked_mul(4)?;
            let (ends, bytes) = rest.split_at_checked(len)?;
            Some(Array { ends: ends.as_chunks().0, bytes })
        };
        parts().unwrap_or_default()
    }

    fn end(self, at: usize) -> Option<usize> {
        self.ends.get(at).map(|end| u32::from_le_bytes(*end) as usize)
    }

    fn at(self, at: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.range_at(at)?)
    }

    fn range_at(self, at: usize) -> Option<Range<usize>> {
        let start = match at.checked_sub(1) {
            Some(before) => self.end(before)?,
            None => 0,
        };
        Some(start..self.end(at)?)
    }

    /// Returns where the element of this number is, for a list whose elements are kept elsewhere.
    pub(super) fn range(self, number: u32) -> Option<Range<usize>> {
        self.range_at(number as usize)
    }

    /// Returns how many elements there are.
    pub(super) fn count(self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// Returns all elements that make sense, in their order.
    pub(super) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.ends.len()).map_while(move |at| self.at(at))
    }

    /// Returns what is kept under a key, in a list that is sorted by keys.
    pub(super) fn find(self, key: &str) -> Option<&'a [u8]> {
        let (mut from, mut to) = (0, self.ends.len());
        while from < to {
            let middle = from.midpoint(to);
            let mut rest = self.at(middle)?;
            match super::take(&mut rest)?.cmp(key.as_bytes()) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return Some(rest),
                Ordering::Greater => to = middle,
            }
        }
        None
    }
}

/// A list in the making.
#[derive(Debug, Default)]
pub(super) struct ArrayBuilder {
    ends: Vec<u8>,
    bytes: Vec<u8>,
}

impl ArrayBuilder {
    /// Adds the bytes behind it as one element; more than 4 GiB end the list where it stands.
    fn close(&mut self) {
        if let Ok(end) = u32::try_from(self.bytes.len()) {
            self.ends.extend(end.to_le_bytes());
        }
    }

    /// Adds an element with a key; it must come after all before it.
    pub(super) fn push_key(&mut self, key: &str, value: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes, key.as_bytes());
        value(&mut self.bytes);
        self.close();
    }

    /// Returns the bytes of the list.
    pub(super) fn build(self) -> Vec<u8> {
        let count = u32::try_from(self.ends.len() / 4).unwrap_or(0);
        let mut list = Vec::with_capacity(4 + self.ends.len() + self.bytes.len());
        list.extend(count.to_le_bytes());
        list.extend(&self.ends);
        list.extend(&self.bytes);
        list
    }
}

/// Returns what stands before the elements of a list: their number and where each ends.
pub(super) fn ends(elements: &[&[u8]]) -> Vec<u8> {
    let mut end = 0_u32;
    let count = u32::try_from(elements.len()).unwrap_or(0);
    let mut list = Vec::with_capacity(4 + elements.len() * 4);
    list.extend(count.to_le_bytes());
    for element in elements {
        // The file has an error of its own for what is larger than 4 GiB.
        end = u32::try_from(element.len()).map_or(end, |len| end.saturating_add(len));
        list.extend(end.to_le_bytes());
    }
    list
}

/// Puts a value's length (u32) and its bytes behind others.
pub(super) fn put(bytes: &mut Vec<u8>, value: &[u8]) {
    // Paths and names are never 4 GiB long.
    bytes.extend(u32::try_from(value.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(value);
}

/// Returns a list of numbers by key.
pub(super) fn numbers<K: AsRef<str>>(pairs: &[(K, u32)]) -> Vec<u8> {
    // Neighbours often have the same key, and are sorted as one; of the others the first bytes decide most.
    let runs = pairs.chunk_by(|one, other| one.0.as_ref() == other.0.as_ref());
    let runs = runs.filter_map(|run| {
        let (key, number) = run.first()?;
        let key = key.as_ref();
        Some((first_bytes(key), key, *number, run))
    });
    let mut runs: Vec<_> = runs.collect();
    runs.sort_unstable_by_key(|(first, key, number, _)| (*first, *key, *number));
    let mut list = ArrayBuilder::default();
    for same in runs.chunk_by(|one, other| one.1 == other.1) {
        let Some((_, key, ..)) = same.first() else { continue };
        list.push_key(key, |bytes| {
            let mut last = None;
            for (_, number) in same.iter().flat_map(|(.., run)| *run) {
                if last.replace(*number) != Some(*number) {
                    bytes.extend(number.to_le_bytes());
                }
            }
        });
    }
    list.build()
}

/// Returns the first eight bytes of a text as a number, which has the order of the texts where it differs.
fn first_bytes(text: &str) -> u64 {
    let mut first = [0; 8];
    let len = text.len().min(8);
    first[..len].copy_from_slice(&text.as_bytes()[..len]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_keys() {
        let bytes = numbers(&[("b", 7), ("a", 2), ("b", 3), ("", 9), ("a", 2), ("bb", 1)]);
        let found = |key: &str| {
            let numbers = Array::of(&bytes).find(key)?.as_chunks().0;
            Some(numbers.iter().map(|four| u32::from_le_bytes(*four)).collect::<Vec<_>>())
        };
        assert_eq!(found("a"), Some(vec![2]));
        assert_eq!(found("b"), Some(vec![3, 7]));
        assert_eq!(found("bb"), Some(vec![1]));
        assert_eq!(found(""), Some(vec![9]));
        assert_eq!((found("c"), found("aa")), (None, None));
        assert_eq!(Array::of(&bytes).iter().count(), 4);
        assert_eq!(Array::of(&[]).find("a"), None);
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes_however_they_begin() {
        let keys =
            ["application/b", "application/a", "", "a", "applicati", "applicatio", "é", "a\0"];
        let bytes = numbers(&keys.map(|key| (key, 0)));
        let found: Vec<_> = Array::of(&bytes)
            .iter()
            .map(|mut element| str::from_utf8(super::super::take(&mut element).unwrap()).unwrap())
            .collect();
        let mut sorted = keys;
        sorted.sort_unstable();
        assert_eq!(found, sorted);
        assert!(keys.iter().all(|key| Array::of(&bytes).find(key).is_some()));
    }

    #[test]
    fn elements_are_found_by_their_numbers() {
        let elements = [&b"one"[..], b"", b"three"];
        let bytes = [ends(&elements), elements.concat()].concat();
        let found: Vec<_> = Array::of(&bytes).iter().collect();
        assert_eq!(found, elements);
        let ends_alone = ends(&elements);
        let places = Array::of(&ends_alone);
        assert_eq!((places.count(), places.range(2), places.range(3)), (3, Some(3..8), None));
        assert_eq!(Array::of(&ends(&[])).count(), 0);
    }

    #[test]
    fn damaged_lists_end_where_they_stop_making_sense() {
        let whole = numbers(&[("one", 1), ("two", 2), ("three", 3)]);
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                for bytes in [&bytes[..], &whole[..at]] {
                    let list = Array::of(bytes);
                    assert!(list.iter().count() <= 3);
                    let _ =
                        (list.find("one"), list.find("two"), list.range(2), list.range(u32::MAX));
                }
            }
        }
    }
}
