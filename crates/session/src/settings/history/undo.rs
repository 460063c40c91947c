//! Taking changes back.

use std::collections::BTreeMap;

use store::table::gvariant::Variant;

use super::{Entry, Value};
use crate::settings::changeset::Changeset;
use crate::settings::engine::DatabaseId;

/// What would take changes back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undo {
    /// What to change, by database.
    pub changes: BTreeMap<DatabaseId, Changeset>,
    /// What is left as it is, and why.
    pub conflicts: Vec<Conflict>,
}

/// A key that is not taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It was changed again since.
    Changed {
        /// The database.
        database: DatabaseId,
        /// The key.
        path: String,
    },
    /// The history does not hold what it was before.
    Hidden {
        /// The database.
        database: DatabaseId,
        /// The key.
        path: String,
    },
}

/// Works out what takes the entries back, newest first, given what the keys are `now`.
///
/// A key is taken back only if it still is what the entry made it, or if it is to be `forced`; one whose old value is
/// hidden never is.
pub fn undo(
    entries: &[Entry],
    now: impl Fn(&DatabaseId, &str) -> Option<Variant>,
    forced: Forced,
) -> Undo {
    let mut newest_first: Vec<&Entry> = entries.iter().collect();
    newest_first.sort_by_key(|entry| std::cmp::Reverse(entry.id));
    let mut result = Undo::default();
    for entry in newest_first {
        for key in &entry.keys {
            let database = entry.database.clone();
            let planned = result.changes.get(&database).and_then(|changes| changes.get(&key.path));
            let current = match planned {
                Some(value) => value.cloned(),
                None => now(&database, &key.path),
            };
            let unchanged = match &key.new {
                Value::Set(value) => current.as_ref() == Some(value),
                Value::Unset => current.is_none(),
                Value::Hidden => false,
            };
            let path = key.path.clone();
            match &key.old {
                Value::Hidden => result.conflicts.push(Conflict::Hidden { database, path }),
                _ if !unchanged && forced == Forced::No => {
                    result.conflicts.push(Conflict::Changed { database, path });
                }
                old => {
                    let old = match old {
                        Value::Set(value) => Some(value.clone()),
                        Value::Unset | Value::Hidden => None,
                    };
                    result.changes.entry(database).or_default().change(&path, old);
                }
            }
        }
    }
    result
}

/// Whether keys that were changed again are taken back too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// They are left as they are.
    No,
    /// They are taken back.
    Yes,
}
