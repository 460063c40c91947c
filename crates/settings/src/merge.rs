//! What differs between two tables: the changes that another program made to a file.

use gvdb::gvariant::Variant;

use super::changeset::Changeset;
use super::database::KeyTable;

/// Returns the key changes that make `theirs` out of `base`. Costs one pass over both.
#[must_use]
pub fn difference(base: &KeyTable, theirs: &KeyTable) -> Changeset {
    let mut changes = Changeset::default();
    let mut left = base.iter().peekable();
    let mut right = theirs.iter().peekable();
    loop {
        match (left.peek(), right.peek()) {
            (None, None) => return changes,
            (Some(&(key, _)), None) => {
                changes.change(key, None);
                left.next();
            }
            (None, Some(&(key, value))) => {
                changes.change(key, Some(value.clone()));
                right.next();
            }
            (Some(&(ours, old)), Some(&(key, new))) => match ours.cmp(key) {
                std::cmp::Ordering::Less => {
                    changes.change(ours, None);
                    left.next();
                }
                std::cmp::Ordering::Greater => {
                    changes.change(key, Some(new.clone()));
                    right.next();
                }
                std::cmp::Ordering::Equal => {
                    differ(&mut changes, key, old, new);
                    left.next();
                    right.next();
                }
            },
        }
    }
}

fn differ(changes: &mut Changeset, key: &str, old: &Variant, new: &Variant) {
    if old != new {
        changes.change(key, Some(new.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effective::apply;
    use proptest::prelude::*;

    fn tables() -> impl Strategy<Value = KeyTable> {
        proptest::collection::btree_map("/[ab]/[cd]", 0..3_i32, 0..5).prop_map(|keys| {
            let value = |number: i32| Variant::parse(None, &number.to_string()).unwrap();
            keys.into_iter().map(|(key, number)| (key, value(number))).collect()
        })
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_one_table_to_the_other(base in tables(), theirs in tables()) {
            let changes = difference(&base, &theirs);
            let mut table = base;
            let effective = apply(&mut table, &changes);
            prop_assert_eq!(&table, &theirs);
            prop_assert_eq!(effective.paths.len(), changes.len());
        }
    }
}
