//! The contents of a database, computed from its newest good snapshot and the history since.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use gvdb::gvariant::Variant;

use super::{HistoryEntry, HistoryValue};
use crate::database::KeyTable;
use crate::earlier::EarlierState;
use crate::names::DatabaseId;

/// The computed contents of a database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rebuilt {
    /// The keys.
    pub(crate) table: KeyTable,
    /// The newest known generation.
    pub(crate) generation: u64,
    /// Keys whose last value is not in the history; the table has an earlier one, or none.
    pub(crate) unknown: BTreeSet<Box<str>>,
    /// Keys that occur in the history.
    pub(crate) recorded: BTreeSet<Box<str>>,
    /// Whether there was a snapshot, so that a key in neither of them was not set.
    has_snapshot: bool,
}

/// Applies the history to a snapshot, or to nothing.
pub(crate) fn rebuild(
    snapshot: Option<EarlierState>,
    id: &DatabaseId,
    entries: &[HistoryEntry],
) -> Rebuilt {
    let base = snapshot.as_ref().map(|snapshot| (snapshot.generation, snapshot.made_s));
    let is_later = |entry: &&HistoryEntry| {
        base.is_none_or(|(generation, made_s)| match entry.generation {
            0 => entry.time >= SystemTime::UNIX_EPOCH + Duration::from_secs(made_s),
            // An image that another program restored has an earlier generation than the snapshots since.
            _ if entry.is_from_outside() => {
                entry.time >= SystemTime::UNIX_EPOCH + Duration::from_secs(made_s)
            }
            number => number > generation,
        })
    };
    let mut rebuilt = Rebuilt {
        generation: base.map_or(0, |(generation, _)| generation),
        has_snapshot: base.is_some(),
        table: snapshot.and_then(|snapshot| snapshot.table).unwrap_or_default(),
        ..Rebuilt::default()
    };
    for entry in entries.iter().filter(|entry| entry.database == *id).filter(is_later) {
        rebuilt.generation = rebuilt.generation.max(entry.generation);
        for key in &entry.keys {
            let path: Box<str> = key.path.as_str().into();
            match &key.new {
                HistoryValue::Unset => drop(rebuilt.table.put(&path, None)),
                HistoryValue::Set(value) => drop(rebuilt.table.put(&path, Some(value.clone()))),
                HistoryValue::Hidden | HistoryValue::TooLong(_) => {
                    rebuilt.unknown.insert(path.clone());
                    rebuilt.recorded.insert(path);
                    continue;
                }
            }
            rebuilt.unknown.remove(&path);
            rebuilt.recorded.insert(path);
        }
    }
    rebuilt
}

impl Rebuilt {
    /// Returns the keys that are known to differ in `found`, with their old and new values.
    pub(crate) fn changed_to(
        &self,
        found: &KeyTable,
    ) -> Vec<(String, Option<Variant>, Option<Variant>)> {
        let mut keys: BTreeMap<&str, (Option<&Variant>, Option<&Variant>)> = BTreeMap::new();
        for (key, value) in self.table.iter() {
            keys.insert(key, (Some(value), None));
        }
        for (key, value) in found.iter() {
            keys.entry(key).or_default().1 = Some(value);
        }
        // Without a snapshot only the keys in the history are known.
        let is_known = |key: &str| {
            !self.unknown.contains(key) && (self.has_snapshot || self.recorded.contains(key))
        };
        let differs = keys.into_iter().filter(|(key, (old, new))| old != new && is_known(key));
        differs.map(|(key, (old, new))| (key.to_owned(), old.cloned(), new.cloned())).collect()
    }
}
