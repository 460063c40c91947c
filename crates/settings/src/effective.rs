//! What a changeset really changes in a table, how to take it back, and how it is told to readers.

use gvdb::gvariant::Variant;

use super::changeset::Changeset;
use super::database::KeyTable;

/// The part of a changeset that made a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// The keys and directories that changed, sorted, as `Notify` tells them.
    pub paths: Vec<Box<str>>,
    /// The keys that were touched, in the order of touching, with what they were before.
    pub before: Vec<(Box<str>, Option<Variant>)>,
}

/// Applies a changeset to a table. Costs O(m log n) for m keys changed of n.
///
/// A path counts as changed if it differs from the table before the changeset: a set key by its value, a reset key by
/// being set, a reset directory by having keys below. A key set below a directory that the same changeset resets
/// always counts, because the reset takes its value away.
pub fn apply(table: &mut KeyTable, changes: &Changeset) -> Effective {
    let mut paths: Vec<Box<str>> = Vec::new();
    let mut emptied: Option<&str> = None;
    for (path, value) in changes.iter() {
        let changed = match value {
            _ if path.ends_with('/') => table.has_below(path),
            Some(value) => {
                emptied.is_some_and(|dir| path.starts_with(dir)) || table.get(path) != Some(value)
            }
            None => table.get(path).is_some(),
        };
        if changed {
            paths.push(path.into());
            if path.ends_with('/') && !emptied.is_some_and(|dir| path.starts_with(dir)) {
                emptied = Some(path);
            }
        }
    }

    let mut before = Vec::new();
    let mut chosen = paths.iter().peekable();
    for (path, value) in changes.iter() {
        if chosen.next_if(|chosen| ***chosen == *path).is_none() {
            continue;
        }
        if path.ends_with('/') {
            let doomed: Vec<Box<str>> = table.below(path).map(|(key, _)| key.into()).collect();
            before.extend(doomed.into_iter().map(|key| {
                let old = table.put(&key, None);
                (key, old)
            }));
        } else {
            let old = table.put(path, value.cloned());
            before.push((path.into(), old));
        }
    }
    Effective { paths, before }
}

impl Effective {
    /// Returns whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Takes the change back, if nothing was applied to the table since or all of that was taken back before.
    pub fn undo(self, table: &mut KeyTable) {
        for (key, old) in self.before.into_iter().rev() {
            table.put(&key, old);
        }
    }
}

/// Returns the prefix and the changes of a `Notify` for these sorted paths; `None` if there are none.
#[must_use]
pub(crate) fn notification<P: AsRef<str>>(paths: &[P]) -> Option<(String, Vec<String>)> {
    let (first, last) = (paths.first()?.as_ref(), paths.last()?.as_ref());
    if paths.len() == 1 {
        return Some((first.to_owned(), vec![String::new()]));
    }
    // Sorted: what the first and the last have in common, all have.
    let common = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    let cut =
        first.as_bytes()[..common].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let changes = paths.iter().map(|path| path.as_ref()[cut..].to_owned()).collect();
    Some((first[..cut].to_owned(), changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: i32) -> Variant {
        Variant::parse(None, &number.to_string()).unwrap()
    }

    fn table(keys: &[(&str, i32)]) -> KeyTable {
        keys.iter().map(|(key, number)| (*key, value(*number))).collect()
    }

    fn changes(entries: &[(&str, Option<i32>)]) -> Changeset {
        let mut changes = Changeset::default();
        for (path, number) in entries {
            changes.change(path, number.map(value));
        }
        changes
    }

    /// Applies to a table, checks that undo restores it, and returns the paths and the table after.
    fn tried(keys: &[(&str, i32)], entries: &[(&str, Option<i32>)]) -> (Vec<String>, KeyTable) {
        let before = table(keys);
        let mut after = before.clone();
        let effective = apply(&mut after, &changes(entries));
        let mut undone = after.clone();
        effective.clone().undo(&mut undone);
        assert_eq!(undone, before);
        (effective.paths.iter().map(|path| path.to_string()).collect(), after)
    }

    #[test]
    fn what_changes_nothing_is_not_effective() {
        let keys = [("/a/b", 1), ("/d", 3)];
        let (paths, after) =
            tried(&keys, &[("/a/b", Some(1)), ("/a/x", None), ("/zz/", None), ("/d/", None)]);
        assert_eq!((paths, after), (Vec::<String>::new(), table(&keys)));
    }

    #[test]
    fn a_directory_reset_and_what_is_set_below_it_are_both_told() {
        let keys = [("/a/b", 1), ("/a/c", 2), ("/d", 3)];
        let (paths, after) = tried(&keys, &[("/a/", None), ("/a/b", Some(5))]);
        assert_eq!(paths, ["/a/", "/a/b"]);
        assert_eq!(after, table(&[("/a/b", 5), ("/d", 3)]));
        // dconf-service 0.40 drops the equal value here, and with it the key.
        let (paths, after) = tried(&keys, &[("/a/", None), ("/a/b", Some(1))]);
        assert_eq!(paths, ["/a/", "/a/b"]);
        assert_eq!(after, table(&[("/a/b", 1), ("/d", 3)]));
        let (paths, after) = tried(&keys, &[("/a/", None), ("/a/b", None), ("/a/q", None)]);
        assert_eq!(paths, ["/a/", "/a/b"]);
        assert_eq!(after, table(&[("/d", 3)]));
        let (paths, after) = tried(&keys, &[("/", None), ("/d/", None), ("/n", Some(1))]);
        assert_eq!(paths, ["/", "/n"]);
        assert_eq!(after, table(&[("/n", 1)]));
    }

    #[test]
    fn the_prefix_ends_at_the_last_common_slash() {
        let told = |paths: &[&str]| {
            let (prefix, changes) = notification(paths).unwrap();
            format!("{prefix} {}", changes.join(","))
        };
        assert_eq!(told(&["/q/p/y", "/q/p/z", "/q/x"]), "/q/ p/y,p/z,x");
        assert_eq!(told(&["/a/b"]), "/a/b ");
        assert_eq!(told(&["/a/"]), "/a/ ");
        assert_eq!(told(&["/a/", "/a/b"]), "/a/ ,b");
        assert_eq!(told(&["/a", "/b"]), "/ a,b");
        assert_eq!(told(&["/aä", "/aö"]), "/ aä,aö");
        assert_eq!(notification::<&str>(&[]), None);
    }
}
