//! The journal beside a tree: what was changed since the tree was written, an entry each.

use super::tree::{Tree, Value};

const MAGIC: &[u8; 8] = b"\xda\x1ajour\x01\x00";
const HEAD: usize = 20;
/// How large a journal is made; its service writes the tree anew when it is full.
const SIZE: u32 = 32 * 1024;
/// More nodes than these are not copied: a folder that is copied into itself again and again would take all memory.
const MOST_COPIED: usize = 100_000;
/// An entry has its length at both ends, a checksum, a time and its kind.
const LEAST: usize = 4 + 4 + 8 + 1 + 4;

/// The entries.
#[derive(Debug, Default)]
pub(super) struct Journal(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    seconds: u64,
    path: Vec<u8>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Set(Vec<u8>, Value),
    Unset(Vec<u8>),
    CopyFrom(Vec<u8>),
    Remove,
}

impl Journal {
    /// Reads the journal of the tree with this tag; `None` if it is none.
    pub(super) fn decode(bytes: &[u8], tag: u32) -> Option<Journal> {
        (number(bytes, 8)? == tag).then(|| Journal::decode_any(bytes)).flatten()
    }

    /// Reads a journal. Entries behind one that is damaged are left out, as the service of the trees does.
    pub(super) fn decode_any(bytes: &[u8]) -> Option<Journal> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let count = number(bytes, 16)?;
        let mut entries = Vec::new();
        let mut at = HEAD;
        for _ in 0..count {
            let Some(len) = number(bytes, at).map(|len| len as usize) else { break };
            let Some(body) = at.checked_add(len).and_then(|end| bytes.get(at..end)) else { break };
            let Some(entry) = Some(body).filter(|_| len >= LEAST).and_then(entry) else { break };
            entries.push(entry);
            at += len;
        }
        Some(Journal(entries))
    }

    /// Makes the changes.
    pub(super) fn apply_to(&self, tree: &mut Tree) {
        let mut copied = 0;
        for Entry { seconds, path, change } in &self.0 {
            match change {
                Change::Set(key, value) => {
                    tree.root.at(path).values.insert(key.clone(), value.clone());
                }
                Change::Unset(key) => {
                    tree.root.at(path).values.remove(key);
                }
                Change::CopyFrom(from) => {
                    let copy = tree.root.at(from).clone();
                    copied += copy.len();
                    if copied > MOST_COPIED {
                        continue;
                    }
                    *tree.root.at(path) = copy;
                }
                Change::Remove => {
                    tree.root.remove_at(path);
                    continue;
                }
            }
            tree.touch(path, *seconds);
        }
    }

    /// Returns the paths that the entries name.
    pub(super) fn paths(&self) -> Vec<Vec<u8>> {
        let relative = |path: &Vec<u8>| path.strip_prefix(b"/").unwrap_or(path).to_vec();
        let both = self.0.iter().flat_map(|entry| match &entry.change {
            Change::CopyFrom(from) => vec![relative(&entry.path), relative(from)],
            _ => vec![relative(&entry.path)],
        });
        both.collect()
    }

    /// Writes a journal without entries.
    pub(super) fn empty(tag: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(tag.to_be_bytes());
        bytes.extend(SIZE.to_be_bytes());
        bytes.resize(SIZE as usize, 0);
        bytes
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn entry(body: &[u8]) -> Option<Entry> {
    let seconds = u64::from_be_bytes(body.get(8..16)?.try_into().ok()?);
    let kind = *body.get(16)?;
    let (path, rest) = text(body.get(17..)?)?;
    let change = match kind {
        0 => {
            let (key, rest) = text(rest)?;
            Change::Set(key, Value::Text(text(rest)?.0))
        }
        1 => {
            let (key, rest) = text(rest)?;
            // The count stands at the next multiple of four.
            let at = (body.len() - rest.len()).next_multiple_of(4);
            let count = number(body, at)? as usize;
            let mut rest = body.get(at + 4..)?;
            let mut list = Vec::new();
            for _ in 0..count {
                let (element, behind) = text(rest)?;
                list.push(element);
                rest = behind;
            }
            Change::Set(key, Value::List(list))
        }
        2 => Change::Unset(text(rest)?.0),
        3 => Change::CopyFrom(text(rest)?.0),
        4 => Change::Remove,
        _ => return None,
    };
    Some(Entry { seconds, path, change })
}

/// Splits off a text that ends in a zero.
fn text(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes[..end].to_vec(), &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(entries: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Journal::empty(7);
        bytes[16..20].copy_from_slice(&u32::try_from(entries.len()).unwrap().to_be_bytes());
        let mut at = HEAD;
        for (kind, body) in entries {
            let len = (LEAST + body.len()).next_multiple_of(4);
            let mut entry = u32::try_from(len).unwrap().to_be_bytes().to_vec();
            entry.extend([0; 4]);
            entry.extend(2_000u64.to_be_bytes());
            entry.push(*kind);
            entry.extend(*body);
            entry.resize(len - 4, 0);
            entry.extend(u32::try_from(len).unwrap().to_be_bytes());
            bytes[at..at + len].copy_from_slice(&entry);
            at += len;
        }
        bytes
    }

    fn empty_tree() -> Tree {
        let image = b"\xda\x1ameta\x01\0\0\0\0\0\0\0\0\x07\0\0\0\x28\0\0\0\x20\0\0\0\0\0\0\x03\xe8\0\0\0\0/\0\0\0\0\0\0\x24\0\0\0\0\0\0\0\0\0\0\0\0";
        Tree::decode(image).unwrap()
    }

    #[test]
    fn changes_are_made_in_their_order() {
        let bytes = journal(&[
            (0, b"/docs/a\0key\0value\0"),
            (0, b"/docs/b\0key\0value\0"),
            (3, b"/docs/c\0/docs/a\0"),
            (2, b"/docs/b\0key\0"),
            (4, b"/docs/a\0"),
        ]);
        let journal = Journal::decode(&bytes, 7).unwrap();
        let mut tree = empty_tree();
        journal.apply_to(&mut tree);
        assert_eq!(tree.paths_with_data(), [b"docs/c"]);
        assert!(journal.paths().contains(&b"docs/a".to_vec()));
        assert!(Journal::decode(&bytes, 8).is_none());
    }

    #[test]
    fn any_bytes_are_a_journal_or_none() {
        let whole = journal(&[(1, b"/a\0key\0\0\0\0\x02x\0y\0"), (3, b"/b\0/a\0")]);
        for at in 0..200 {
            Journal::decode_any(&whole[..at]);
            for bits in [1, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= bits;
                if let Some(journal) = Journal::decode_any(&damaged) {
                    journal.apply_to(&mut empty_tree());
                }
            }
        }
    }
}
