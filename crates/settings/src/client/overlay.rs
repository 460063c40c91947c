//! Pending changes of a program, which hide the values in the databases.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use gvdb::gvariant::Variant;

use crate::changeset::Changeset;

/// Merged changes: for each key the last one.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// `None` is a reset.
    keys: HashMap<Box<str>, Option<Arc<Variant>>, RandomState>,
    /// Directories that were reset before anything in `keys`.
    dirs: HashSet<Box<str>, RandomState>,
}

impl Overlay {
    /// Applies `changes` on top.
    pub(super) fn apply(&mut self, changes: &Changeset) {
        // A changeset gives the reset of a directory before what is set below it.
        for (path, value) in changes.iter() {
            if path.ends_with('/') {
                self.keys.retain(|key, _| !key.starts_with(path));
                self.dirs.retain(|dir| !dir.starts_with(path));
                self.dirs.insert(path.into());
            } else {
                self.keys.insert(path.into(), value.cloned().map(Arc::new));
            }
        }
    }

    /// Returns the pending change of `key`: `None` without one, `Some(None)` if the key is reset.
    pub(super) fn get(&self, key: &str) -> Option<Option<&Arc<Variant>>> {
        if let Some(value) = self.keys.get(key) {
            return Some(value.as_ref());
        }
        if self.dirs.is_empty() {
            return None;
        }
        let mut slashes = key.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
        slashes.any(|(at, _)| self.dirs.contains(&key[..=at])).then_some(None)
    }

    /// Returns the changes as one changeset.
    pub(super) fn to_changeset(&self) -> Changeset {
        let mut changes = Changeset::default();
        for dir in &self.dirs {
            changes.change(dir, None);
        }
        for (key, value) in &self.keys {
            changes.change(key, value.as_deref().cloned());
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn changes(list: &[(&str, Option<i32>)]) -> Changeset {
        let mut changes = Changeset::default();
        for (path, value) in list {
            changes.change(path, value.map(Variant::from));
        }
        changes
    }

    #[test]
    fn a_reset_of_a_directory_hides_what_is_below_until_it_is_set_again() {
        let mut overlay = Overlay::default();
        overlay.apply(&changes(&[("/a/b", Some(1)), ("/c", Some(2))]));
        overlay.apply(&changes(&[("/a/", None), ("/a/d", Some(3))]));
        assert_eq!(overlay.get("/a/b"), Some(None));
        assert_eq!(overlay.get("/a/x/y"), Some(None));
        assert_eq!(overlay.get("/a/d"), Some(Some(&Arc::new(Variant::from(3)))));
        assert_eq!(overlay.get("/c"), Some(Some(&Arc::new(Variant::from(2)))));
        assert_eq!(overlay.get("/ab"), None);
    }

    /// The contents of a database after changes, computed in a simple and slow way.
    type Model = BTreeMap<String, i32>;

    fn model_apply(model: &mut Model, list: &[(String, Option<i32>)]) {
        let sorted: BTreeMap<_, _> = list.iter().cloned().collect();
        for (path, value) in sorted {
            match value {
                _ if path.ends_with('/') => model.retain(|key, _| !key.starts_with(&path)),
                Some(value) => drop(model.insert(path, value)),
                None => drop(model.remove(&path)),
            }
        }
    }

    fn path() -> impl Strategy<Value = (String, Option<i32>)> {
        let key = "(/[ab]){1,3}";
        prop_oneof![
            3 => (key, any::<i32>().prop_map(Some)),
            1 => (key, Just(None)),
            1 => ("(/[ab]){0,2}/", Just(None)),
        ]
    }

    proptest! {
        #[test]
        fn an_overlay_over_a_database_reads_as_the_changed_database(
            base in proptest::collection::btree_map("(/[ab]){1,3}", any::<i32>(), 0..12),
            sets in proptest::collection::vec(proptest::collection::vec(path(), 1..6), 0..8),
        ) {
            let mut model: Model = base.clone();
            let mut overlay = Overlay::default();
            for set in &sets {
                model_apply(&mut model, set);
                let list: Vec<_> = set.iter().map(|(path, value)| (&**path, *value)).collect();
                overlay.apply(&changes(&list));
            }
            let mut merged: Model = base.clone();
            let sent: Vec<_> = overlay
                .to_changeset()
                .iter()
                .map(|(path, value)| (path.to_owned(), value.and_then(|v| v.view().as_i32())))
                .collect();
            model_apply(&mut merged, &sent);
            prop_assert_eq!(&merged, &model, "what is sent does what was asked");
            let all = ["a", "b"];
            for key in all.iter().flat_map(|x| {
                all.iter().flat_map(move |y| [format!("/{x}"), format!("/{x}/{y}"), format!("/{x}/{y}/{x}")])
            }) {
                let seen = match overlay.get(&key) {
                    Some(value) => value.and_then(|value| value.view().as_i32()),
                    None => base.get(&key).copied(),
                };
                prop_assert_eq!(seen, model.get(&key).copied(), "{}", key);
            }
        }
    }
}
