//! Reading: one handle for each thread, without a lock while no change is pending.

use std::collections::BTreeSet;
use std::sync::Arc;

use gvdb::gvariant::{Variant, VariantView};

use super::memo::{Memo, ValueLocation};
use super::{Key, SettingsClient, Shared, ValueChoice};
use crate::source::{ProfileDatabase, Refreshed};

/// Reads settings. Each thread has its own, from [`SettingsClient::reader`].
///
/// A value borrows from the reader, so that it needs no copy; [`VariantView::to_variant`] makes one that stays.
#[derive(Debug)]
pub struct SettingsReader {
    shared: Arc<Shared>,
    sources: Vec<ProfileDatabase>,
    /// A pending value, kept while it is read.
    held: Option<Arc<Variant>>,
    memo: Memo,
    /// A number that changes whenever a source may have changed; never 0.
    state: u64,
}

/// Where an effective value comes from.
#[derive(Clone, Debug)]
pub enum ValueOrigin {
    /// A change of this client that is not in the database yet; without a value it is a reset.
    Pending(Option<Arc<Variant>>),
    /// The databases in this state; while the number stays, the value stays.
    Databases(u64),
}

impl SettingsReader {
    pub(super) fn new(shared: Arc<Shared>) -> SettingsReader {
        let sources = shared.new_sources();
        SettingsReader { shared, sources, held: None, memo: Memo::default(), state: 1 }
    }

    /// Returns the effective value of `key`: the user's, or the administrator's where it is locked.
    #[inline]
    pub fn get(&mut self, key: &str) -> Option<VariantView<'_>> {
        self.read(&Key::new(key), ValueChoice::InForce)
    }

    /// Returns a value of a key whose hash is known.
    ///
    /// While nothing changes this does no system call and takes no lock, and it allocates nothing for a key that was
    /// read twice before.
    #[inline]
    pub fn read(&mut self, key: &Key<'_>, which: ValueChoice) -> Option<VariantView<'_>> {
        // The order matters: a change leaves the overlay after its database was published, so the first
        // database is checked for being stale after the overlay.
        for index in 1..self.sources.len() {
            if self.sources[index].is_stale() {
                self.refresh_source(index);
            }
        }
        // A pending change of another key leaves the fast path to this one.
        let is_overlaid = self.shared.has_overlay() && self.shared.overlaid(key.text).is_some();
        if is_overlaid || which != ValueChoice::InForce {
            let is_overlaid = is_overlaid || self.shared.has_overlay();
            return self.search(key, which, is_overlaid);
        }
        self.read_databases(key)
    }

    /// Returns where the effective value of `key` comes from, after replaced databases were opened again.
    ///
    /// A program that keeps what it made of a value reads again when the origin differs from the one before.
    #[inline]
    pub fn origin(&mut self, key: &str) -> ValueOrigin {
        for index in 1..self.sources.len() {
            if self.sources[index].is_stale() {
                self.refresh_source(index);
            }
        }
        if self.shared.has_overlay()
            && let Some(value) = self.shared.overlaid(key)
            && self.shared.writable
            && (self.sources.len() == 1
                || lock_level(&self.sources, key, gvdb::hash(key.as_bytes())) == 0)
        {
            return ValueOrigin::Pending(value);
        }
        if self.sources.first().is_some_and(ProfileDatabase::is_stale) {
            self.refresh_source(0);
        }
        ValueOrigin::Databases(self.state)
    }

    /// Returns the value that `key` has in the databases, whatever changes of this client are pending.
    #[inline]
    pub fn read_databases(&mut self, key: &Key<'_>) -> Option<VariantView<'_>> {
        for index in 1..self.sources.len() {
            if self.sources[index].is_stale() {
                self.refresh_source(index);
            }
        }
        if self.sources.first().is_some_and(ProfileDatabase::is_stale) {
            self.refresh_source(0);
        }
        let place = match self.memo.get(key.text, key.hash, self.state) {
            Some(place) => place,
            None => self.find(key),
        };
        let ValueLocation { source, start, end } = place?;
        self.sources.get(source as usize)?.value_at(start, end)
    }

    /// Finds and caches the place of the effective value while no change is pending.
    fn find(&mut self, key: &Key<'_>) -> Option<ValueLocation> {
        let hash = gvdb::hash(key.text.as_bytes());
        let first = lock_level(&self.sources, key.text, hash);
        let asked = self.sources.iter().zip(0..).skip(first);
        let place = asked.filter_map(|(source, index)| {
            let (start, end) = source.place_of(source.table()?.value_with_hash(hash, key.text)?)?;
            Some(ValueLocation { source: index, start, end })
        });
        let place = place.into_iter().next();
        self.memo.put(key.text, key.hash, self.state, place);
        place
    }

    /// Returns a value that is not the effective one.
    fn search(
        &mut self,
        key: &Key<'_>,
        which: ValueChoice,
        is_overlaid: bool,
    ) -> Option<VariantView<'_>> {
        let hash = gvdb::hash(key.text.as_bytes());
        let lock = match which {
            ValueChoice::User => 0,
            ValueChoice::InForce | ValueChoice::Default => {
                lock_level(&self.sources, key.text, hash)
            }
        };
        let mut first = lock;
        if lock == 0 && self.shared.writable {
            let overlaid = match which {
                ValueChoice::Default => Some(None),
                ValueChoice::InForce | ValueChoice::User if is_overlaid => {
                    self.shared.overlaid(key.text)
                }
                ValueChoice::InForce | ValueChoice::User => None,
            };
            match overlaid {
                Some(Some(value)) => return Some(self.held.insert(value).view()),
                Some(None) => first = 1,
                None => (),
            }
        }
        if first == 0 && self.sources.first().is_some_and(ProfileDatabase::is_stale) {
            self.refresh_source(0);
        }
        let last = match which {
            ValueChoice::User => usize::from(self.shared.writable),
            ValueChoice::InForce | ValueChoice::Default => self.sources.len(),
        };
        self.sources.get(first..last)?.iter().find_map(|source| {
            let table = source.table()?;
            Some(VariantView::inside(table.value_with_hash(hash, key.text)?, table.order()))
        })
    }

    /// Returns the names in directory `dir`, sorted: `b` for the key `/a/b`, `c/` for the directory `/a/c/`.
    ///
    /// Pending changes are not included: whether a directory remains after a reset depends on its
    /// other keys.
    pub fn list(&mut self, dir: &str) -> BTreeSet<String> {
        self.refresh();
        let mut names = BTreeSet::new();
        for table in self.sources.iter().filter_map(ProfileDatabase::table) {
            names.extend(table.list(dir).unwrap_or_default().into_iter().map(str::to_owned));
        }
        names
    }

    /// Returns the locked keys below directory `dir`, sorted; `dir` itself if nothing can be written at all.
    pub fn list_locks(&mut self, dir: &str) -> BTreeSet<String> {
        self.refresh();
        if !self.shared.writable {
            return BTreeSet::from([dir.to_owned()]);
        }
        let others = self.sources.iter().skip(1);
        others.flat_map(ProfileDatabase::locked_keys).filter(|key| key.starts_with(dir)).collect()
    }

    /// Returns whether a value of `key` could be set; resetting is always allowed.
    pub fn is_writable(&mut self, key: &str) -> bool {
        self.refresh();
        self.shared.writable && lock_level(&self.sources, key, gvdb::hash(key.as_bytes())) == 0
    }

    /// Opens replaced databases, and returns a number that differs from the last one if there were any.
    pub fn refresh(&mut self) -> u64 {
        for index in 0..self.sources.len() {
            self.refresh_source(index);
        }
        self.state
    }

    /// Returns the client of this reader.
    #[must_use]
    pub fn client(&self) -> SettingsClient {
        SettingsClient(Arc::clone(&self.shared))
    }

    /// Returns the sources in their order of precedence.
    pub fn sources(&self) -> impl Iterator<Item = &ProfileDatabase> {
        self.sources.iter()
    }

    #[cold]
    fn refresh_source(&mut self, index: usize) {
        if self.shared.refresh(&mut self.sources[index]) == Refreshed::Changed {
            self.state += 1;
        }
    }
}

/// Returns the last source that locks `key`, 0 if none does; the first source's own locks do not count.
#[inline]
pub(super) fn lock_level(sources: &[ProfileDatabase], key: &str, hash: u32) -> usize {
    let mut others = sources.iter().enumerate().skip(1).rev();
    others.find(|(_, source)| source.locks(key, hash)).map_or(0, |(index, _)| index)
}
