//! Sorting by name: by codes of eight bytes at a time, so that most pairs of names are never compared.

use std::cmp::Ordering;

use super::ModelSource;
use crate::EntryId;
use crate::collation::Collation;

/// Which end comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortDirection {
    /// The least, earliest or first in the alphabet.
    #[default]
    Ascending,
    /// The other way round, equal entries and their names too; but neither directories that come first nor what is not known.
    Descending,
}

/// Bytes of a code that names may have in common before their keys begin.
const PREFIX: usize = 256;
/// Bytes of codes that are looked at; what is equal in them is compared by name.
const DEEPEST: usize = 1024;
/// So many names and fewer are compared with each other.
const FEW: usize = 8;
/// Bytes of an extension that are looked at.
const LONGEST: usize = 64;
/// Names that the common start is taken from.
const SAMPLE: usize = 128;

/// How names become keys: what most of them begin with is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameKeys {
    prefix: Vec<u8>,
}

impl NameKeys {
    /// Chooses what is left out by looking at some of the names.
    pub(super) fn choose<'a>(
        collation: &Collation,
        count: usize,
        name: impl Fn(usize) -> &'a [u8],
    ) -> NameKeys {
        let sampled = count.min(SAMPLE);
        let mut codes: Vec<Vec<u8>> = (0..sampled)
            .map(|index| {
                let mut code = vec![0; PREFIX];
                let len = collation.code(name(index * count / sampled), &mut code);
                code.truncate(len);
                code
            })
            .collect();
        codes.sort_unstable();
        let Some(middle) = codes.get(sampled / 2) else { return NameKeys::default() };
        let mut shared: Vec<usize> = codes.iter().map(|code| common(code, middle)).collect();
        shared.sort_unstable();
        // Three quarters have this much in common; the others keep their order by keys of a class of their own.
        NameKeys { prefix: middle[..shared[sampled / 4]].to_vec() }
    }

    /// The key of a name, less than 3 << 61: keys are in the order of the names, and equal for names that have to be compared.
    pub(super) fn key(&self, collation: &Collation, name: &[u8]) -> u64 {
        let mut code = [0; PREFIX + 8];
        let start = self.prefix.len();
        collation.code(name, &mut code[..start + 8]);
        match code[..start].cmp(&self.prefix) {
            Ordering::Less => eight(&code) >> 3,
            Ordering::Equal => 1 << 61 | eight(&code[start..]) >> 3,
            Ordering::Greater => 2 << 61 | eight(&code) >> 3,
        }
    }

    /// What the code of a name has behind its key: names with equal keys are in the order of these.
    pub(super) fn rest(&self, collation: &Collation, name: &[u8]) -> u64 {
        // The key has the first seven bytes and some bits of the eighth.
        let mut code = [0; PREFIX + 15];
        let start = self.prefix.len();
        let len = collation.code(name, &mut code[..start + 15]);
        code[len..start + 15].fill(0);
        match code[..start].cmp(&self.prefix) {
            Ordering::Equal => eight(&code[start + 7..]),
            _ => eight(&code[7..]),
        }
    }

    /// Bytes of memory on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.prefix.capacity()
    }
}

/// The first eight bytes as a number.
fn eight(code: &[u8]) -> u64 {
    code.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// How many bytes two codes begin with in common.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// What follows the last dot of a name that is not its first character.
pub(super) fn extension(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 => &name[dot + 1..],
        _ => b"",
    }
}

/// Writes the start of the code of a name's extension in small letters, and returns its length.
pub(super) fn extension_code(collation: &Collation, name: &[u8], code: &mut [u8]) -> usize {
    let mut small = [0; LONGEST];
    let extension = extension(name);
    let small = &mut small[..extension.len().min(LONGEST)];
    small.copy_from_slice(&extension[..small.len()]);
    small.make_ascii_lowercase();
    collation.code(small, code)
}

/// Compares two extensions by their letters.
pub(super) fn compare_extensions(collation: &Collation, a: &[u8], b: &[u8]) -> Ordering {
    let code = |name| {
        let mut code = [0; LONGEST];
        extension_code(collation, name, &mut code);
        code
    };
    code(a).cmp(&code(b))
}

/// Whether the keys of names with this extension hold all of it.
pub(super) fn is_short_extension(collation: &Collation, name: &[u8]) -> bool {
    extension_code(collation, name, &mut [0; 8]) < 7
}

/// Sorts entries by name.
pub(super) struct NameSort<'a, S: ?Sized> {
    pub(super) source: &'a S,
    pub(super) collation: &'a Collation,
    pub(super) direction: SortDirection,
}

impl<S: ModelSource + ?Sized> NameSort<'_, S> {
    /// Compares two entries by name, and by number if a source gave a name twice.
    pub(super) fn compare(&self, a: EntryId, b: EntryId) -> Ordering {
        let order = self.collation.compare(self.source.name(a), self.source.name(b));
        match self.direction {
            SortDirection::Ascending => order,
            SortDirection::Descending => order.reverse(),
        }
        .then(a.cmp(&b))
    }

    /// Sorts entries whose codes agree in the first `start` bytes.
    pub(super) fn sort(&self, ids: &mut [EntryId], start: usize) {
        if ids.len() <= FEW || start >= DEEPEST {
            ids.sort_unstable_by(|a, b| self.compare(*a, *b));
            return;
        }
        let mut code = [0; DEEPEST + 8];
        let mut keyed: Vec<(u64, EntryId)> =
            ids.iter().map(|id| (self.key(*id, start, &mut code), *id)).collect();
        let first = keyed[0].0;
        if keyed.iter().all(|(key, _)| *key == first) {
            let deeper = self.shared(ids, &mut code);
            if deeper <= start {
                // Their letters are the same; case and accents are what is left.
                ids.sort_unstable_by(|a, b| self.compare(*a, *b));
            } else {
                self.sort(ids, deeper);
            }
            return;
        }
        keyed.sort_unstable();
        for (place, (_, id)) in ids.iter_mut().zip(&keyed) {
            *place = *id;
        }
        let mut rest = ids;
        for equal in keyed.chunk_by(|a, b| a.0 == b.0) {
            let (group, after) = rest.split_at_mut(equal.len());
            rest = after;
            if group.len() > 1 {
                self.sort(group, start + 8);
            }
        }
    }

    fn key(&self, id: EntryId, start: usize, code: &mut [u8]) -> u64 {
        let len = self.collation.code(self.source.name(id), &mut code[..start + 8]);
        code[len..start + 8].fill(0);
        match self.direction {
            SortDirection::Ascending => eight(&code[start..]),
            SortDirection::Descending => !eight(&code[start..]),
        }
    }

    /// How many bytes the codes of all have in common.
    fn shared(&self, ids: &[EntryId], code: &mut [u8; DEEPEST + 8]) -> usize {
        let len = self.collation.code(self.source.name(ids[0]), code);
        let first = *code;
        let mut shared = len;
        for id in &ids[1..] {
            let len = self.collation.code(self.source.name(*id), &mut code[..shared]);
            shared = common(&first[..shared], &code[..len]);
        }
        shared
    }
}
