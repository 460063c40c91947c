//! Taking changes back.

use std::collections::BTreeMap;

use gvdb::gvariant::Variant;

use super::{HistoryEntry, HistoryValue, KeyChange};
use crate::changeset::Changeset;
use crate::names::DatabaseId;

/// The changes that would undo others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undo {
    /// The changes, by database.
    pub changes: BTreeMap<DatabaseId, Changeset>,
    /// The keys that are not changed, with reasons. No key is in both.
    pub conflicts: Vec<Conflict>,
    /// How many keys the entries changed that the history does not name.
    pub left_out: u64,
}

/// A key that is not taken back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The database.
    pub database: DatabaseId,
    /// The key.
    pub path: String,
    /// Why not.
    pub reason: Reason,
}

/// Why a key is not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It was changed again since, or between two of the changes.
    Changed,
    /// The history does not hold what it was before, or what it was changed to.
    NotStored,
    /// The administrator locked it.
    Locked,
}

/// The state that decides whether a key can be undone.
pub trait Present {
    /// Returns what a key is now.
    fn value(&self, database: &DatabaseId, key: &str) -> Option<Variant>;
    /// Returns whether the administrator locked a key.
    fn is_locked(&self, database: &DatabaseId, key: &str) -> bool;
}

/// Computes the changes that undo the entries, which are in the order in which they were made.
///
/// A key goes back to what it was before the oldest of the entries. It is taken back only if it still is what the newest
/// of them made it and nothing else changed it in between, or if it is to be `forced`; one that is locked, or whose old
/// value is not stored, never is.
pub fn undo(entries: &[HistoryEntry], present: &impl Present, forced: Forced) -> Undo {
    let mut chains: BTreeMap<(&DatabaseId, &str), Vec<&KeyChange>> = BTreeMap::new();
    let mut result = Undo::default();
    for entry in entries.iter().rev() {
        result.left_out += entry.left_out;
        for key in &entry.keys {
            chains.entry((&entry.database, &key.path)).or_default().push(key);
        }
    }
    for ((database, path), chain) in chains {
        let current = present.value(database, path);
        let target = if present.is_locked(database, path) {
            Err(Reason::Locked)
        } else {
            before(&chain, current.as_ref(), forced)
        };
        match target {
            Err(reason) => {
                let (database, path) = (database.clone(), path.to_owned());
                result.conflicts.push(Conflict { database, path, reason });
            }
            Ok(target) if target == current => {}
            Ok(target) => {
                result.changes.entry(database.clone()).or_default().change(path, target);
            }
        }
    }
    result
}

/// Returns what a key was before a chain of changes, the newest first, if it can be taken back.
fn before(
    chain: &[&KeyChange],
    current: Option<&Variant>,
    forced: Forced,
) -> Result<Option<Variant>, Reason> {
    let (Some(newest), Some(oldest)) = (chain.first(), chain.last()) else {
        return Err(Reason::NotStored);
    };
    let target = match &oldest.old {
        HistoryValue::Set(value) => Some(value.clone()),
        HistoryValue::Unset => None,
        HistoryValue::Hidden | HistoryValue::TooLong(_) => return Err(Reason::NotStored),
    };
    if forced == Forced::Yes {
        return Ok(target);
    }
    match &newest.new {
        HistoryValue::Set(value) if current != Some(value) => return Err(Reason::Changed),
        HistoryValue::Unset if current.is_some() => return Err(Reason::Changed),
        HistoryValue::Hidden | HistoryValue::TooLong(_) => return Err(Reason::NotStored),
        HistoryValue::Set(_) | HistoryValue::Unset => {}
    }
    let is_gapless = chain.windows(2).all(|pair| pair[0].old == pair[1].new);
    if is_gapless { Ok(target) } else { Err(Reason::Changed) }
}

/// Whether keys that were changed again are taken back too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// They are left as they are.
    No,
    /// They are taken back.
    Yes,
}
