//! A set of entries, a bit each.

use crate::EntryId;

/// A set of entry numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn place(id: EntryId) -> (usize, u64) {
        (id as usize / 64, 1 << (id % 64))
    }

    pub(super) fn has(&self, id: EntryId) -> bool {
        let (word, bit) = Bits::place(id);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Bytes of memory on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Adds an entry and says whether it is new.
    pub(super) fn insert(&mut self, id: EntryId) -> bool {
        let (word, bit) = Bits::place(id);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Takes an entry out and says whether it was there.
    pub(super) fn remove(&mut self, id: EntryId) -> bool {
        let (word, bit) = Bits::place(id);
        let Some(word) = self.words.get_mut(word) else { return false };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

impl FromIterator<EntryId> for Bits {
    fn from_iter<I: IntoIterator<Item = EntryId>>(ids: I) -> Bits {
        let mut bits = Bits::default();
        for id in ids {
            bits.insert(id);
        }
        bits
    }
}
