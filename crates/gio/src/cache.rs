//! The values that the program read, as GLib's objects, so that reading one again makes none.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use gvdb::gvariant::Variant;

use crate::value::GlibValue;

/// So many keys are kept; a program that reads more reads them as from a new cache.
const MOST_KEYS: usize = 4096;

/// Values by their keys. An entry counts as long as the origin of the key's value is the one that it was made for.
#[derive(Debug, Default)]
pub(crate) struct ValueCache(HashMap<Box<str>, Entry, RandomState>);

#[derive(Debug)]
struct Entry {
    origin: Origin,
    value: Option<GlibValue>,
}

#[derive(Debug)]
enum Origin {
    Databases(u64),
    Pending(Arc<Variant>),
}

impl ValueCache {
    /// Returns the value that `key` has in this state of the databases, if it was read: `Some(None)` if it has none.
    #[inline]
    pub(crate) fn in_databases(&self, key: &str, state: u64) -> Option<Option<&GlibValue>> {
        let entry = self.0.get(key)?;
        matches!(entry.origin, Origin::Databases(made) if made == state)
            .then_some(entry.value.as_ref())
    }

    /// Keeps the value that `key` has in a state of the databases.
    pub(crate) fn keep(
        &mut self,
        key: &str,
        state: u64,
        value: Option<GlibValue>,
    ) -> Option<&GlibValue> {
        self.put(key, Entry { origin: Origin::Databases(state), value })
    }

    /// Returns the object of a pending value, which is made once.
    pub(crate) fn pending(&mut self, key: &str, pending: &Arc<Variant>) -> Option<&GlibValue> {
        let is_known = self.0.get(key).is_some_and(
            |entry| matches!(&entry.origin, Origin::Pending(known) if Arc::ptr_eq(known, pending)),
        );
        if !is_known {
            let value = GlibValue::copy_of(pending.view());
            self.put(key, Entry { origin: Origin::Pending(Arc::clone(pending)), value });
        }
        self.0.get(key)?.value.as_ref()
    }

    fn put(&mut self, key: &str, entry: Entry) -> Option<&GlibValue> {
        if let Some(known) = self.0.get_mut(key) {
            *known = entry;
        } else {
            if self.0.len() >= MOST_KEYS {
                self.0.clear();
            }
            self.0.insert(key.into(), entry);
        }
        self.0.get(key)?.value.as_ref()
    }
}
