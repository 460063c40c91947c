//! Plans the next version of the shared file, and the next base.

use std::collections::{HashMap, HashSet};

use store::disk::FileStat;

use super::base::{Base, BaseEntry, Publication, Version};
use super::merge::{ForeignList, Presence, Reading, combined, is_unwanted};
use super::receipts::next_times;
use crate::xbel::{BookmarkChange, XbelDocument};
use crate::{
    Floors, JournalRecord, RecentEntry, RecentList, RecentTime, Uri, UriHash, VersionReceipts,
};

/// The present shared file.
pub(super) struct SharedFile {
    pub(super) stat: Option<FileStat>,
    pub(super) document: XbelDocument,
    pub(super) presence: Presence,
    pub(super) written: RecentTime,
    pub(super) reading: Reading,
}

/// The next version and the next base.
pub(super) struct NextStep {
    /// The next base if the file is not written.
    pub(super) base: Base,
    /// The next version; `None` if the file needs no change.
    pub(super) version: Option<NextVersion>,
}

/// A version that replaces the present file.
pub(super) struct NextVersion {
    pub(super) text: String,
    /// Records that must be in the journal first, so that the times that are receipts are never used again.
    pub(super) receipts: JournalRecord,
    /// The next base when this version is written.
    pub(super) base: Base,
}

/// The inputs of the next version.
pub(super) struct Plans<'a> {
    pub(super) list: &'a RecentList,
    pub(super) base: &'a Base,
    /// Entries that do not cause a write.
    pub(super) capped: &'a HashSet<Uri>,
    /// Entries whose versions in the file are not accepted.
    pub(super) refused: &'a HashSet<Uri>,
    /// The limits of the list.
    pub(super) floors: &'a Floors,
    pub(super) now: RecentTime,
}

impl Plans<'_> {
    /// Decides the contents of the file when the changes of other programs are in the list.
    pub(super) fn next(&self, found: &SharedFile) -> NextStep {
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
        NextStep { base: as_it_is, version }
    }

    /// Makes a version of the file with all entries.
    fn version(&self, found: &SharedFile, as_it_is: &Base) -> NextVersion {
        // It is later than anything that was published, whatever the clock says, because the order decides.
        let last = self.last_publication().max(as_it_is.read_through);
        let now = self.now.max(RecentTime(last.0.saturating_add(1)));
        let added = next_times(self.list, now);
        let mut list = self.list.clone();
        let receipts = JournalRecord::Receipts(VersionReceipts { publication: now, added });
        list.apply(receipts.clone());
        let theirs = theirs(found);
        let plan = self.plan(found, &list);
        let missing: Vec<&RecentEntry> =
            list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri)).collect();
        let text = plan.text(&found.document, missing.iter().copied()).unwrap_or_default();
        let mut entries = HashMap::with_capacity(plan.order.len() + missing.len());
        let salt = list.salt();
        for (order, (entry, change)) in plan.order.iter().enumerate() {
            let mark = salt.mark(&entry.uri);
            let written = match change {
                BookmarkChange::Set(ours) => *ours,
                BookmarkChange::Keep | BookmarkChange::Remove => *entry,
            };
            let before = as_it_is.entries.get(&mark);
            let publication = match before.filter(|before| before.compare(written) == Version::Same)
            {
                // A new receipt does not make the entry another version: a program that has it had read it.
                Some(BaseEntry { publication: publication @ Publication::Ours(_), .. }) => {
                    *publication
                }
                _ => Publication::Ours(now),
            };
            entries.insert(mark, BaseEntry::of(written, order, publication));
        }
        for entry in missing {
            let known = BaseEntry::of(entry, entries.len(), Publication::Ours(now));
            entries.insert(salt.mark(&entry.uri), known);
        }
        let receipts_of_all = as_it_is.receipts.with(list.receipts(), salt);
        let base = Base { entries, receipts: receipts_of_all, ..as_it_is.clone() };
        NextVersion { text, receipts, base }
    }

    /// Returns the next base when nothing is written.
    fn known_as_it_is(
        &self,
        found: &SharedFile,
        theirs: &ForeignList<'_>,
    ) -> HashMap<UriHash, BaseEntry> {
        let Plans { list, base, .. } = self;
        let salt = list.salt();
        let before = |mark: &UriHash| base.entries.get(mark).filter(|_| base.salt == salt);
        let mut known = HashMap::with_capacity(theirs.entries.len());
        let bookmarks = found.document.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
        for entry in bookmarks {
            let mark = salt.mark(&entry.uri);
            let order = known.len();
            let same = before(&mark).filter(|before| before.compare(entry) == Version::Same);
            let same = same.filter(|before| before.is_in_file());
            let others = Publication::Others(found.written);
            let publication = same.map_or(others, |before| before.publication);
            known.entry(mark).or_insert_with(|| BaseEntry::of(entry, order, publication));
        }
        // It is not in the file, and does not cause a write.
        for uri in self.capped {
            let mark = salt.mark(uri);
            if let (Some(before), Some(entry)) = (before(&mark), list.get(uri)) {
                let publication = Publication::Dropped(before.publication.since());
                known.insert(mark, BaseEntry::of(entry, before.order, publication));
            }
        }
        known
    }

    /// Returns the time of the last known version.
    fn last_publication(&self) -> RecentTime {
        let entries = self.base.entries.values().map(|known| known.publication.since());
        let receipts = self.base.receipts.iter().map(|receipt| receipt.publication);
        entries.chain(receipts).chain([self.list.receipts().publication]).max().unwrap_or_default()
    }

    fn plan<'a>(&self, found: &'a SharedFile, list: &'a RecentList) -> Plan<'a> {
        let mut plan = Plan { changes: Vec::new(), order: Vec::new() };
        let mut seen = HashSet::new();
        for bookmark in found.document.bookmarks() {
            let Some(entry) = bookmark.entry() else {
                plan.changes.push(BookmarkChange::Keep);
                continue;
            };
            let change = if !seen.insert(&entry.uri) {
                // The second entry of a document.
                BookmarkChange::Remove
            } else if self.refused.contains(&entry.uri) {
                list.get(&entry.uri).map_or(BookmarkChange::Remove, BookmarkChange::Set)
            } else {
                self.change(entry, list)
            };
            plan.changes.push(change);
            if change != BookmarkChange::Remove {
                plan.order.push((entry, change));
            }
        }
        plan
    }

    /// Returns the action for a bookmark with `entry`.
    fn change<'a>(&self, entry: &RecentEntry, list: &'a RecentList) -> BookmarkChange<'a> {
        match list.get(&entry.uri) {
            // An entry without anything new changes nothing.
            Some(ours) if ours == entry || combined(entry, ours) == combined(entry, entry) => {
                BookmarkChange::Keep
            }
            Some(ours) => BookmarkChange::Set(ours),
            None if is_unwanted(entry, list, self.floors) => BookmarkChange::Remove,
            None => BookmarkChange::Keep,
        }
    }
}

/// Returns the entries of the file; of a document that it has twice, the later one.
pub(super) fn theirs(found: &SharedFile) -> ForeignList<'_> {
    let mut entries: HashMap<&Uri, &RecentEntry> = HashMap::new();
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
    ForeignList {
        entries,
        presence: found.presence,
        written: found.written,
        reading: found.reading,
    }
}

/// The actions for the bookmarks of the file, in its order.
struct Plan<'a> {
    changes: Vec<BookmarkChange<'a>>,
    /// The entries that stay or change, in the file's order.
    order: Vec<(&'a RecentEntry, BookmarkChange<'a>)>,
}

impl<'a> Plan<'a> {
    fn text<'b>(
        &self,
        document: &XbelDocument,
        added: impl IntoIterator<Item = &'b RecentEntry>,
    ) -> Option<String>
    where
        'a: 'b,
    {
        let mut changes = self.changes.iter();
        document.edit(|_| changes.next().copied().unwrap_or(BookmarkChange::Keep), added)
    }
}
