//! A cache of the places of keys, valid until a database changes: a program reads the same few keys again and again.

/// The most keys that are cached; far more than a program reads.
const MOST_SLOTS: usize = 1 << 14;
/// The length of the longest key that is cached.
const MOST_TEXT: usize = 256;
/// The greatest distance of a key from its own slot.
const REACH: usize = 8;

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueLocation {
    /// The index of the source.
    pub(super) source: u32,
    /// The bytes of the value in its file.
    pub(super) start: u32,
    /// The end of these bytes.
    pub(super) end: u32,
}

/// Caches the places of keys. It grows with the keys that are read, up to a limit.
///
/// A key is copied when it is read for the second time, because most programs read most keys once.
#[derive(Debug, Default)]
pub(super) struct Memo {
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    hash: u64,
    /// The state of the reader for which the place is valid; 0 marks an empty slot.
    state: u64,
    /// Empty after the first read, of which only the hash is kept. No key is empty.
    key: Box<str>,
    /// `None` if the key has no value.
    place: Option<ValueLocation>,
}

/// Returns a fast hash to find a slot: keys are compared as a whole in any case.
#[inline]
pub(super) fn hash(key: &str) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let bytes = key.as_bytes();
    let (eights, _) = bytes.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let hash =
        eights.iter().fold(bytes.len() as u64, |hash, eight| mix(hash, u64::from_le_bytes(*eight)));
    // The last eight bytes are hashed once more for lengths that are no multiple of eight; shorter keys collide.
    let last =
        bytes.last_chunk::<8>().map_or_else(|| short(bytes), |eight| u64::from_le_bytes(*eight));
    let hash = mix(hash, last);
    hash ^ hash >> 32
}

fn short(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

impl Memo {
    /// Returns the cached place of `key` in this state of the reader; `Some(None)` if the key has no value.
    #[inline]
    pub(super) fn get(&self, key: &str, hash: u64, state: u64) -> Option<Option<ValueLocation>> {
        let mask = self.slots.len().wrapping_sub(1);
        for step in 0..REACH {
            let slot = self.slots.get(index(hash, step) & mask)?;
            if slot.hash == hash && slot.state == state && *slot.key == *key {
                return Some(slot.place);
            }
        }
        None
    }

    /// Caches a place, if the key was read before.
    pub(super) fn put(&mut self, key: &str, hash: u64, state: u64, place: Option<ValueLocation>) {
        if key.len() > MOST_TEXT {
            return;
        }
        if self.used * 3 >= self.slots.len() && self.slots.len() < MOST_SLOTS {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = index(hash, 0) & mask;
        for step in 0..REACH {
            let candidate = index(hash, step) & mask;
            let slot = &mut self.slots[candidate];
            if slot.state != 0 && slot.hash == hash && slot.key.is_empty() {
                slot.key = key.into();
            }
            if slot.hash == hash && *slot.key == *key {
                // The slot is from another state: nothing is allocated.
                (slot.state, slot.place) = (state, place);
                return;
            }
            if slot.state == 0 {
                at = candidate;
                break;
            }
            if slot.state != state {
                at = candidate;
            }
        }
        self.used += usize::from(self.slots[at].state == 0);
        self.slots[at] = Slot { hash, state, key: Box::default(), place: None };
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
        self.used = 0;
        for slot in old.into_iter().filter(|slot| slot.state != 0) {
            let free = (0..REACH).map(|step| index(slot.hash, step) & (len - 1));
            if let Some(at) = free.into_iter().find(|at| self.slots[*at].state == 0) {
                self.slots[at] = slot;
                self.used += 1;
            }
        }
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
fn index(hash: u64, step: usize) -> usize {
    (hash as usize).wrapping_add(step)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn place(n: u32) -> Option<ValueLocation> {
        (!n.is_multiple_of(3)).then_some(ValueLocation { source: n % 5, start: n, end: n + 1 })
    }

    #[test]
    fn it_stays_below_its_limit_and_never_says_what_is_wrong() {
        let mut memo = Memo::default();
        for n in 0..40_000 {
            let key = format!("/some/directory/key{n}");
            memo.put(&key, hash(&key), 1, place(n));
            memo.put(&key, hash(&key), 1, place(n));
        }
        assert_eq!(memo.slots.len(), MOST_SLOTS);
        let known = (0..40_000).filter(|&n| {
            let key = format!("/some/directory/key{n}");
            let said = memo.get(&key, hash(&key), 1);
            assert!(said.is_none_or(|said| said == place(n)), "{key}");
            said.is_some()
        });
        assert!(known.count() > MOST_SLOTS / 2);
    }

    #[test]
    fn keys_that_are_read_again_and_again_stay() {
        let mut memo = Memo::default();
        let keys: Vec<String> = (0..2000).map(|n| format!("/org/example/a{n}/b")).collect();
        for (state, shift) in [(1, 10), (2, 20), (3, 30)] {
            for (n, key) in (0..).zip(&keys).chain((0..).zip(&keys)) {
                memo.put(key, hash(key), state, place(n + shift));
            }
            let known = (0..)
                .zip(&keys)
                .filter(|(n, key)| memo.get(key, hash(key), state) == Some(place(n + shift)));
            assert!(known.count() > keys.len() * 98 / 100);
        }
    }

    #[test]
    fn a_key_is_copied_when_it_is_read_again() {
        let mut memo = Memo::default();
        memo.put("/a", hash("/a"), 1, place(1));
        assert_eq!(memo.get("/a", hash("/a"), 1), None);
        assert!(memo.slots.iter().all(|slot| slot.key.is_empty()));
        memo.put("/a", hash("/a"), 1, place(1));
        assert_eq!(memo.get("/a", hash("/a"), 1), Some(place(1)));
    }

    #[test]
    fn a_very_long_key_is_not_remembered() {
        let mut memo = Memo::default();
        let key = format!("/{}", "k".repeat(MOST_TEXT));
        memo.put(&key, hash(&key), 1, None);
        assert!(memo.slots.is_empty() && memo.get(&key, hash(&key), 1).is_none());
    }

    proptest! {
        #[test]
        fn it_says_nothing_or_what_was_put_last_in_this_state(
            ops in proptest::collection::vec(("(/[a-c]{1,9}){1,3}", 1_u64..4, 0_u32..50), 0..60),
        ) {
            let mut memo = Memo::default();
            let mut model = HashMap::new();
            for (key, state, n) in ops {
                // All keys belong to one slot and its neighbours, so that a new key displaces another.
                let hash = hash(&key) & 0xf;
                memo.put(&key, hash, state, place(n));
                model.insert(key.clone(), (state, place(n)));
                let said = memo.get(&key, hash, state);
                prop_assert!(said.is_none_or(|said| said == place(n)));
                memo.put(&key, hash, state, place(n));
                let said = memo.get(&key, hash, state);
                prop_assert!(said.is_none_or(|said| said == place(n)));
                for (key, (state, place)) in &model {
                    let hash = super::hash(key) & 0xf;
                    let said = memo.get(key, hash, *state);
                    prop_assert!(said.is_none_or(|said| said == *place));
                    prop_assert_eq!(memo.get(key, hash, 9), None);
                }
            }
        }
    }
}
