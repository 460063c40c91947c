//! What the newest good snapshot of a database and the history since say that it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use store::table::gvariant::Variant;

use super::{Entry, Value};
use crate::settings::database::Table;
use crate::settings::earlier::EarlierState;
use crate::settings::engine::DatabaseId;

/// What a database should hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rebuilt {
    /// The keys.
    pub(crate) table: Table,
    /// The newest generation that is known of.
    pub(crate) generation: u64,
    /// Keys whose last value is not in the history; the table has an earlier one, or none.
    pub(crate) unknown: BTreeSet<Box<str>>,
    /// Keys that the history says something of.
    pub(crate) recorded: BTreeSet<Box<str>>,
    /// There was a snapshot, so that a key that is in neither was not set.
    has_snapshot: bool,
}

/// Applies the history to a snapshot, or to nothing.
pub(crate) fn rebuild(
    snapshot: Option<EarlierState>,
    id: &DatabaseId,
    entries: &[Entry],
) -> Rebuilt {
    let base = snapshot.as_ref().map(|snapshot| (snapshot.generation, snapshot.made_s));
    let is_later = |entry: &&Entry| {
        base.is_none_or(|(generation, made_s)| match entry.generation {
            0 => entry.time >= SystemTime::UNIX_EPOCH + Duration::from_secs(made_s),
            // An image that was put back from outside has an earlier generation than the snapshots since.
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
                Value::Unset => drop(rebuilt.table.put(&path, None)),
                Value::Set(value) => drop(rebuilt.table.put(&path, Some(value.clone()))),
                Value::Hidden | Value::TooLong(_) => {
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
    /// Returns the keys of which `found` is known to be different, with what they were and what they are.
    pub(crate) fn changed_to(
        &self,
        found: &Table,
    ) -> Vec<(String, Option<Variant>, Option<Variant>)> {
        let mut keys: BTreeMap<&str, (Option<&Variant>, Option<&Variant>)> = BTreeMap::new();
        for (key, value) in self.table.iter() {
            keys.insert(key, (Some(value), None));
        }
        for (key, value) in found.iter() {
            keys.entry(key).or_default().1 = Some(value);
        }
        // Without a snapshot only those keys are known that the history has.
        let is_known = |key: &str| {
            !self.unknown.contains(key) && (self.has_snapshot || self.recorded.contains(key))
        };
        let differs = keys.into_iter().filter(|(key, (old, new))| old != new && is_known(key));
        differs.map(|(key, (old, new))| (key.to_owned(), old.cloned(), new.cloned())).collect()
    }
}
