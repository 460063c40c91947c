//! Reading: one handle a thread, without a lock while nothing of our own is under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::table::gvariant::{Variant, View};
use store::table::gvdb;

use super::memo::{Memo, Place};
use super::{Client, Key, Shared, Which};
use crate::settings::source::{Refreshed, Source};

/// Reads settings. Each thread has its own, from [`Client::reader`].
///
/// A value borrows from the reader, so that it needs no copy; [`View::to_variant`] makes one that stays.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    sources: Vec<Source>,
    /// A value of our own that is on its way, kept while it is read.
    held: Option<Arc<Variant>>,
    memo: Memo,
    /// Changes whenever what a source says may have changed; never 0.
    state: u64,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Reader {
        let sources = shared.new_sources();
        Reader { shared, sources, held: None, memo: Memo::default(), state: 1 }
    }

    /// Returns the value of `key` that is in force: ours, or the administrator's where it is locked.
    #[inline]
    pub fn get(&mut self, key: &str) -> Option<View<'_>> {
        self.read(&Key::new(key), Which::InForce)
    }

    /// Returns a value of a key whose hash is known.
    ///
    /// While nothing changes this does no system call and takes no lock, and it allocates nothing for a key that was
    /// read twice before.
    #[inline]
    pub fn read(&mut self, key: &Key<'_>, which: Which) -> Option<View<'_>> {
        // The order matters: a change of ours leaves the overlay after its database was published, so the first
        // database is looked at for being stale after the overlay was.
        for index in 1..self.sources.len() {
            if self.sources[index].is_stale() {
                self.refresh_source(index);
            }
        }
        let is_overlaid = self.shared.has_overlay();
        if is_overlaid || which != Which::InForce {
            return self.search(key, which, is_overlaid);
        }
        if self.sources.first().is_some_and(Source::is_stale) {
            self.refresh_source(0);
        }
        let place = match self.memo.get(key.text, key.hash, self.state) {
            Some(place) => place,
            None => self.find(key),
        };
        let Place { source, start, end } = place?;
        self.sources.get(source as usize)?.value_at(start, end)
    }

    /// Finds out where the value in force is while no change of ours is under way, and remembers it.
    fn find(&mut self, key: &Key<'_>) -> Option<Place> {
        let hash = gvdb::hash(key.text.as_bytes());
        let first = lock_level(&self.sources, key.text, hash);
        let asked = self.sources.iter().zip(0..).skip(first);
        let place = asked.filter_map(|(source, index)| {
            let (start, end) = source.place_of(source.table()?.value_with_hash(hash, key.text)?)?;
            Some(Place { source: index, start, end })
        });
        let place = place.into_iter().next();
        self.memo.put(key.text, key.hash, self.state, place);
        place
    }

    /// Returns a value that is not simply the one in force.
    fn search(&mut self, key: &Key<'_>, which: Which, is_overlaid: bool) -> Option<View<'_>> {
        let hash = gvdb::hash(key.text.as_bytes());
        let lock = match which {
            Which::User => 0,
            Which::InForce | Which::Default => lock_level(&self.sources, key.text, hash),
        };
        let mut first = lock;
        if lock == 0 && self.shared.writable {
            let overlaid = match which {
                Which::Default => Some(None),
                Which::InForce | Which::User if is_overlaid => self.shared.overlaid(key.text),
                Which::InForce | Which::User => None,
            };
            match overlaid {
                Some(Some(value)) => return Some(self.held.insert(value).view()),
                Some(None) => first = 1,
                None => (),
            }
        }
        if first == 0 && self.sources.first().is_some_and(Source::is_stale) {
            self.refresh_source(0);
        }
        let last = match which {
            Which::User => usize::from(self.shared.writable),
            Which::InForce | Which::Default => self.sources.len(),
        };
        self.sources.get(first..last)?.iter().find_map(|source| {
            let table = source.table()?;
            Some(View::inside(table.value_with_hash(hash, key.text)?, table.order()))
        })
    }

    /// Returns the names in directory `dir`, sorted: `b` for the key `/a/b`, `c/` for the directory `/a/c/`.
    ///
    /// Changes that are under way are not seen here: whether a directory is left once a key is gone depends on what
    /// else is in it.
    pub fn list(&mut self, dir: &str) -> BTreeSet<String> {
        self.refresh();
        let mut names = BTreeSet::new();
        for table in self.sources.iter().filter_map(Source::table) {
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
        others.flat_map(Source::locked_keys).filter(|key| key.starts_with(dir)).collect()
    }

    /// Says whether a value of `key` could be set; resetting is always allowed.
    pub fn is_writable(&mut self, key: &str) -> bool {
        self.refresh();
        self.shared.writable && lock_level(&self.sources, key, gvdb::hash(key.as_bytes())) == 0
    }

    /// Opens what was replaced and returns a number that differs from the last one if anything was.
    pub fn refresh(&mut self) -> u64 {
        for index in 0..self.sources.len() {
            self.refresh_source(index);
        }
        self.state
    }

    /// Returns the client of this reader.
    #[must_use]
    pub fn client(&self) -> Client {
        Client(Arc::clone(&self.shared))
    }

    /// Returns the sources, in the order in which they are asked.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
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
pub(super) fn lock_level(sources: &[Source], key: &str, hash: u32) -> usize {
    let mut others = sources.iter().enumerate().skip(1).rev();
    others.find(|(_, source)| source.locks(key, hash)).map_or(0, |(index, _)| index)
}
