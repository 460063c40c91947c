//! What the shared file shall hold next, and what will be known of it then.

use std::collections::{HashMap, HashSet};

use store::disk::Stat;

use super::base::{Base, Known, Publication, Version};
use super::merge::{Presence, Reading, Theirs, combined, is_unwanted};
use super::receipts::next_times;
use crate::recents::xbel::{Change, Document};
use crate::recents::{Entry, Floors, List, Mark, Record, Timestamp, Uri, VersionReceipts};

/// The shared file as it is now.
pub(super) struct Found {
    pub(super) stat: Option<Stat>,
    pub(super) document: Document,
    pub(super) presence: Presence,
    pub(super) written: Timestamp,
    pub(super) reading: Reading,
}

/// What comes next.
pub(super) struct Next {
    /// What will be known of the file if it stays as it is.
    pub(super) base: Base,
    /// The next version; `None` if the file is as it should be.
    pub(super) version: Option<NextVersion>,
}

/// A version of the file that shall replace the one in place.
pub(super) struct NextVersion {
    pub(super) text: String,
    /// What the journal must learn first, so that the times which are receipts are never used again.
    pub(super) receipts: Record,
    /// What will be known of the file when it is written.
    pub(super) base: Base,
}

/// What the next version is made of.
pub(super) struct Plans<'a> {
    pub(super) list: &'a List,
    pub(super) base: &'a Base,
    /// Entries that are no reason to write.
    pub(super) capped: &'a HashSet<Uri>,
    /// Entries that are not for the file as others have them.
    pub(super) refused: &'a HashSet<Uri>,
    /// What is beyond our limits.
    pub(super) floors: &'a Floors,
    pub(super) now: Timestamp,
}

impl Plans<'_> {
    /// Decides what the file shall hold, when what others did is in the list.
    pub(super) fn next(&self, found: &Found) -> Next {
        let Plans { list, base, capped, .. } = self;
        let theirs = theirs(found);
        let known = self.known_as_it_is(found, &theirs);
        let plan = self.plan(found, list);
        let missing = || list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri));
        let reasons = missing().filter(|entry| !capped.contains(&entry.uri));
        let receipts = match found.reading {
            Reading::Read => self.last_publication(),
            Reading::Unread | Reading::Unknown => base.read_through,
        };
        let as_it_is = Base {
            salt: list.salt(),
            linked: base.linked,
            read_through: base.read_through.max(receipts),
            receipts: base.receipts_with(list),
            entries: known,
        };
        let version = plan.text(&found.document, reasons).map(|_| self.version(found, &as_it_is));
        Next { base: as_it_is, version }
    }

    /// Makes the version of the file that has everything.
    fn version(&self, found: &Found, as_it_is: &Base) -> NextVersion {
        // Later than anything that was published, whatever the clock says: the order is what counts.
        let last = self.last_publication().max(as_it_is.read_through);
        let now = self.now.max(Timestamp(last.0.saturating_add(1)));
        let added = next_times(self.list, now);
        let mut list = self.list.clone();
        let receipts = Record::Receipts(VersionReceipts { publication: now, added });
        list.apply(receipts.clone());
        let theirs = theirs(found);
        let plan = self.plan(found, &list);
        let missing: Vec<&Entry> =
            list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri)).collect();
        let text = plan.text(&found.document, missing.iter().copied()).unwrap_or_default();
        let mut entries = HashMap::with_capacity(plan.order.len() + missing.len());
        let salt = list.salt();
        for (order, (entry, change)) in plan.order.iter().enumerate() {
            let mark = salt.mark(&entry.uri);
            let written = match change {
                Change::Set(ours) => *ours,
                Change::Keep | Change::Remove => *entry,
            };
            let before = as_it_is.entries.get(&mark);
            let publication = match before.filter(|before| before.compare(written) == Version::Same)
            {
                // A new time makes it no other version: whoever had it had read it.
                Some(Known { publication: publication @ Publication::Ours(_), .. }) => *publication,
                _ => Publication::Ours(now),
            };
            entries.insert(mark, Known::of(written, order, publication));
        }
        for entry in missing {
            let known = Known::of(entry, entries.len(), Publication::Ours(now));
            entries.insert(salt.mark(&entry.uri), known);
        }
        let receipts_of_all = as_it_is.receipts.with(list.receipts(), salt);
        let base = Base { entries, receipts: receipts_of_all, ..as_it_is.clone() };
        NextVersion { text, receipts, base }
    }

    /// Returns what is known of the file's entries when nothing is written.
    fn known_as_it_is(&self, found: &Found, theirs: &Theirs<'_>) -> HashMap<Mark, Known> {
        let Plans { list, base, .. } = self;
        let salt = list.salt();
        let before = |mark: &Mark| base.entries.get(mark).filter(|_| base.salt == salt);
        let mut known = HashMap::with_capacity(theirs.entries.len());
        let bookmarks = found.document.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
        for entry in bookmarks {
            let mark = salt.mark(&entry.uri);
            let order = known.len();
            let same = before(&mark).filter(|before| before.compare(entry) == Version::Same);
            let same = same.filter(|before| before.is_in_file());
            let others = Publication::Others(found.written);
            let publication = same.map_or(others, |before| before.publication);
            known.entry(mark).or_insert_with(|| Known::of(entry, order, publication));
        }
        // In no file, and no reason to write either.
        for uri in self.capped {
            let mark = salt.mark(uri);
            if let (Some(before), Some(entry)) = (before(&mark), list.get(uri)) {
                let publication = Publication::Dropped(before.publication.since());
                known.insert(mark, Known::of(entry, before.order, publication));
            }
        }
        known
    }

    /// Returns the time of the last version that we know of.
    fn last_publication(&self) -> Timestamp {
        let entries = self.base.entries.values().map(|known| known.publication.since());
        let receipts = self.base.receipts.iter().map(|receipt| receipt.publication);
        entries.chain(receipts).chain([self.list.receipts().publication]).max().unwrap_or_default()
    }

    fn plan<'a>(&self, found: &'a Found, list: &'a List) -> Plan<'a> {
        let mut plan = Plan { changes: Vec::new(), order: Vec::new() };
        let mut seen = HashSet::new();
        for bookmark in found.document.bookmarks() {
            let Some(entry) = bookmark.entry() else {
                plan.changes.push(Change::Keep);
                continue;
            };
            let change = if !seen.insert(&entry.uri) {
                // The second of one document.
                Change::Remove
            } else if self.refused.contains(&entry.uri) {
                list.get(&entry.uri).map_or(Change::Remove, Change::Set)
            } else {
                self.change(entry, list)
            };
            plan.changes.push(change);
            if change != Change::Remove {
                plan.order.push((entry, change));
            }
        }
        plan
    }

    /// Returns what shall become of a bookmark that says `entry`.
    fn change<'a>(&self, entry: &Entry, list: &'a List) -> Change<'a> {
        match list.get(&entry.uri) {
            // What lays nothing new over it changes nothing.
            Some(ours) if ours == entry || combined(entry, ours) == combined(entry, entry) => {
                Change::Keep
            }
            Some(ours) => Change::Set(ours),
            None if is_unwanted(entry, list, self.floors) => Change::Remove,
            None => Change::Keep,
        }
    }
}

/// Returns what the file says, of a document that it has twice what is later.
pub(super) fn theirs(found: &Found) -> Theirs<'_> {
    let mut entries: HashMap<&Uri, &Entry> = HashMap::new();
    for entry in found.document.bookmarks().iter().filter_map(|bookmark| bookmark.entry()) {
        entries
            .entry(&entry.uri)
            .and_modify(|other| {
                if entry.last_used() >= other.last_used() {
                    *other = entry;
                }
            })
            .or_insert(entry);
    }
    Theirs { entries, presence: found.presence, written: found.written, reading: found.reading }
}

/// What shall become of each bookmark of the file, in its order.
struct Plan<'a> {
    changes: Vec<Change<'a>>,
    /// The entries that stay or change, in the file's order.
    order: Vec<(&'a Entry, Change<'a>)>,
}

impl<'a> Plan<'a> {
    fn text<'b>(
        &self,
        document: &Document,
        added: impl IntoIterator<Item = &'b Entry>,
    ) -> Option<String>
    where
        'a: 'b,
    {
        let mut changes = self.changes.iter();
        document.edit(|_| changes.next().copied().unwrap_or(Change::Keep), added)
    }
}
