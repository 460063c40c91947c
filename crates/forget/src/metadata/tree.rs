//! The tree: a header, names of keys, and for each directory its children and their values, all numbers big-endian.

use std::collections::BTreeMap;

/// Where the header says that another file has taken the place of this one.
pub(super) const ROTATED_AT: u64 = 8;
const MAGIC: &[u8; 8] = b"\xda\x1ameta\x01\x00";
const HEAD: u32 = 32;
/// Set in the number of a key whose value is a list.
const IS_LIST: u32 = 1 << 31;
/// The deepest path.
const DEPTH: usize = 256;

/// The values of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// What the name of the journal has in it.
    pub(super) tag: u32,
    /// What times count from, in seconds since 1970.
    base: i64,
    pub(super) root: Node,
}

/// A file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// When it changed: 0 never, else so many seconds after the base.
    changed: u32,
    pub(super) values: BTreeMap<Vec<u8>, Value>,
    pub(super) children: BTreeMap<Vec<u8>, Node>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
}

impl Node {
    /// Returns the node at a path without a slash in front, which is made if it is not there.
    pub(super) fn at(&mut self, path: &[u8]) -> &mut Node {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        parts.take(DEPTH).fold(self, |node, part| node.children.entry(part.to_vec()).or_default())
    }

    /// Returns how many nodes this and all below it are.
    pub(super) fn len(&self) -> usize {
        1 + self.children.values().map(Node::len).sum::<usize>()
    }

    /// Removes the node at a path.
    pub(super) fn remove_at(&mut self, path: &[u8]) {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&[][..], path),
        };
        self.at(above).children.remove(name);
    }
}

impl Tree {
    /// Reads a file; `None` if it is no tree.
    pub(super) fn decode(bytes: &[u8]) -> Option<Tree> {
        if !bytes.starts_with(MAGIC) {
            return None;
        }
        let reader = Reader { bytes };
        let tag = reader.number(12)?;
        let base = i64::from_be_bytes(bytes.get(24..HEAD as usize)?.try_into().ok()?);
        let keys_at = reader.number(20)?;
        let count = reader.number(keys_at as usize)?;
        let mut keys = Vec::new();
        for at in 0..count {
            keys.push(reader.text(reader.number(keys_at as usize + 4 + 4 * at as usize)?)?);
        }
        // No tree has more nodes than it has room for; one that goes in circles would.
        let mut budget = bytes.len() / 16;
        let (_, root) = reader.node(reader.number(16)? as usize, &keys, 0, &mut budget)?;
        Some(Tree { tag, base, root })
    }

    /// Returns the time of a change as nodes have it.
    pub(super) fn touch(&mut self, path: &[u8], seconds: u64) {
        let since = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_sub(self.base);
        self.root.at(path).changed = u32::try_from(since.max(1)).unwrap_or(u32::MAX);
    }

    /// Returns the paths of all that has values.
    pub(super) fn paths_with_data(&self) -> Vec<Vec<u8>> {
        let mut paths = Vec::new();
        collect(&self.root, &mut Vec::new(), &mut |path, node| {
            if !node.values.is_empty() {
                paths.push(path.to_vec());
            }
        });
        paths
    }

    /// Returns the paths of all that is in it.
    pub(super) fn all_paths(&self) -> Vec<Vec<u8>> {
        let mut paths = Vec::new();
        collect(&self.root, &mut Vec::new(), &mut |path, _| paths.push(path.to_vec()));
        paths
    }

    /// Removes what is chosen, with what is below it, and folders that are left with nothing; tells whether it was there.
    pub(super) fn remove(&mut self, is_chosen: &dyn Fn(&[u8]) -> bool) -> bool {
        prune(&mut self.root, &mut Vec::new(), is_chosen)
    }

    /// Writes the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut keys = BTreeMap::new();
        collect(&self.root, &mut Vec::new(), &mut |_, node| {
            keys.extend(node.values.keys().map(|key| (key.clone(), 0)));
        });
        let mut out = Writer::default();
        out.bytes.extend(MAGIC);
        for number in [0, self.tag, 0, HEAD] {
            out.number(number);
        }
        out.bytes.extend(self.base.to_be_bytes());
        out.number(u32::try_from(keys.len()).unwrap_or(u32::MAX));
        for (number, (key, at)) in (0..).zip(&mut keys) {
            *at = number;
            out.text(key);
        }
        out.place_texts();
        let root_at = out.here();
        out.set(16, root_at);
        out.text(b"/");
        let mut waiting = std::collections::VecDeque::from([(&self.root, out.head(&self.root))]);
        out.place_texts();
        while let Some((node, (children_at, values_at))) = waiting.pop_front() {
            if !node.values.is_empty() {
                let here = out.here();
                out.set(values_at, here);
                out.values(&node.values, &keys);
            }
            if !node.children.is_empty() {
                let here = out.here();
                out.set(children_at, here);
                out.number(u32::try_from(node.children.len()).unwrap_or(u32::MAX));
                for (name, child) in &node.children {
                    out.text(name);
                    let head = out.head(child);
                    waiting.push_back((child, head));
                }
                out.place_texts();
            }
        }
        out.bytes
    }
}

/// Calls `take` with each node below the root, and the root as an empty path.
fn collect(node: &Node, path: &mut Vec<u8>, take: &mut dyn FnMut(&[u8], &Node)) {
    take(path, node);
    for (name, child) in &node.children {
        let len = path.len();
        if len > 0 {
            path.push(b'/');
        }
        path.extend(name);
        collect(child, path, take);
        path.truncate(len);
    }
}

fn prune(node: &mut Node, path: &mut Vec<u8>, is_chosen: &dyn Fn(&[u8]) -> bool) -> bool {
    let mut is_changed = false;
    node.children.retain(|name, child| {
        let len = path.len();
        if len > 0 {
            path.push(b'/');
        }
        path.extend(name);
        let goes = is_chosen(path);
        let has_changed = !goes && prune(child, path, is_chosen);
        path.truncate(len);
        is_changed |= goes || has_changed;
        !goes && (!has_changed || !child.children.is_empty() || !child.values.is_empty())
    });
    is_changed
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn number(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    fn text(&self, at: u32) -> Option<Vec<u8>> {
        let rest = self.bytes.get(at as usize..)?;
        Some(rest[..rest.iter().position(|byte| *byte == 0)?].to_vec())
    }

    /// Reads what stands in a directory: the name and the node.
    fn node(
        &self,
        at: usize,
        keys: &[Vec<u8>],
        depth: usize,
        budget: &mut usize,
    ) -> Option<(Vec<u8>, Node)> {
        *budget = budget.checked_sub(1)?;
        let name = self.text(self.number(at)?)?;
        let (children, values) = (self.number(at + 4)?, self.number(at + 8)?);
        let mut node = Node { changed: self.number(at + 12)?, ..Node::default() };
        if values != 0 {
            for index in 0..self.number(values as usize)? {
                let entry = values as usize + 4 + 8 * index as usize;
                let (key, value) = (self.number(entry)?, self.number(entry + 4)?);
                let name = keys.get((key & !IS_LIST) as usize)?;
                let value = match key & IS_LIST {
                    0 => Value::Text(self.text(value)?),
                    _ => Value::List(self.texts(value as usize)?),
                };
                node.values.insert(name.clone(), value);
            }
        }
        if children != 0 && depth < DEPTH {
            for index in 0..self.number(children as usize)? {
                let entry = children as usize + 4 + 16 * index as usize;
                let (name, child) = self.node(entry, keys, depth + 1, budget)?;
                node.children.insert(name, child);
            }
        }
        Some((name, node))
    }

    fn texts(&self, at: usize) -> Option<Vec<Vec<u8>>> {
        let count = self.number(at)? as usize;
        // Each takes four bytes.
        self.bytes.get(at..at.checked_add(count.checked_mul(4)?)?)?;
        (0..count).map(|index| self.text(self.number(at + 4 + 4 * index)?)).collect()
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    /// Texts that come later, with the places that lead to them.
    texts: BTreeMap<Vec<u8>, Vec<usize>>,
}

impl Writer {
    fn here(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    fn number(&mut self, number: u32) {
        self.bytes.extend(number.to_be_bytes());
    }

    fn set(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.texts.entry(text.to_vec()).or_default().push(self.bytes.len());
        self.number(0);
    }

    /// Writes what follows the name of a node, and returns the places of its children and values.
    fn head(&mut self, node: &Node) -> (usize, usize) {
        let at = self.bytes.len();
        for number in [0, 0, node.changed] {
            self.number(number);
        }
        (at, at + 4)
    }

    fn values(&mut self, values: &BTreeMap<Vec<u8>, Value>, keys: &BTreeMap<Vec<u8>, u32>) {
        self.number(u32::try_from(values.len()).unwrap_or(u32::MAX));
        let mut lists = Vec::new();
        for (key, value) in values {
            let number = keys.get(key).copied().unwrap_or_default();
            match value {
                Value::Text(text) => {
                    self.number(number);
                    self.text(text);
                }
                Value::List(list) => {
                    self.number(number | IS_LIST);
                    lists.push((self.bytes.len(), list));
                    self.number(0);
                }
            }
        }
        for (at, list) in lists {
            let here = self.here();
            self.set(at, here);
            self.number(u32::try_from(list.len()).unwrap_or(u32::MAX));
            list.iter().for_each(|text| self.text(text));
        }
        self.place_texts();
    }

    fn place_texts(&mut self) {
        for (text, places) in std::mem::take(&mut self.texts) {
            let here = self.here();
            places.into_iter().for_each(|at| self.set(at, here));
            self.bytes.extend(text);
            self.bytes.push(0);
        }
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree { tag: 7, base: 1_000, root: Node::default() };
        tree.touch(b"docs/zebra.pdf", 1_005);
        let node = tree.root.at(b"docs/zebra.pdf");
        node.values.insert(b"evince::page".to_vec(), Value::Text(b"3".to_vec()));
        let list = Value::List(vec![b"a".to_vec(), b"b".to_vec()]);
        node.values.insert(b"metadata::emblems".to_vec(), list);
        tree.root.at(b"docs/other").values.insert(b"x".to_vec(), Value::Text(Vec::new()));
        tree.root.at(b"a/b/zebra.pdf").values.insert(b"x".to_vec(), Value::Text(b"1".to_vec()));
        tree
    }

    #[test]
    fn a_tree_is_read_as_it_was_written_and_any_bytes_are_none() {
        let image = tree().encode();
        assert_eq!(Tree::decode(&image), Some(tree()));
        for at in 0..image.len() {
            Tree::decode(&image[..at]);
            for bits in [1, 0x80, 0xff] {
                let mut damaged = image.clone();
                damaged[at] ^= bits;
                Tree::decode(&damaged);
            }
        }
    }

    #[test]
    fn what_is_chosen_goes_with_the_folders_that_held_nothing_else() {
        let mut tree = tree();
        assert!(tree.remove(&|path| path == b"a/b/zebra.pdf" || path == b"docs/zebra.pdf"));
        assert_eq!(tree.all_paths(), [&b""[..], b"docs", b"docs/other"]);
        let image = tree.encode();
        assert!(!image.windows(5).any(|part| part == b"zebra"));
        assert!(!tree.remove(&|path| path == b"docs/zebra.pdf"));
    }
}
