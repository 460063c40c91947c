//! Determines the changes of other programs to the shared file since the base, and which of them users intended.
//!
//! The reasons and the table of rules are in `docs/decisions/0010-receipts-show-what-a-program-had-read.md`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::base::{Base, BaseEntry, Publication, Version};
use crate::{Floors, JournalRecord, RecentEntry, RecentList, RecentTime, Uri, UriHash};

/// When it writes, GTK drops entries that were not used for this long (`gtk-recent-files-max-age`).
const GTK_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// When it writes, GTK drops the first entries of the file beyond this number.
const GTK_ENTRIES: usize = 1000;

/// KDE Frameworks 6 drop the oldest entries beyond this number (`MaxEntries`).
const KDE_ENTRIES: usize = 300;

/// For a list that was emptied: entries that were published this long before are taken to be read by any program.
const READ_BY_NOW: Duration = Duration::from_secs(3600);

/// The same where the file system does not record when a file was read.
const READ_UNKNOWN: Duration = Duration::from_secs(3);

/// The present contents of the file.
#[derive(Debug)]
pub(super) struct ForeignList<'a> {
    /// Its entries, each URI once.
    pub(super) entries: HashMap<&'a Uri, &'a RecentEntry>,
    pub(super) presence: Presence,
    /// When it was written.
    pub(super) written: RecentTime,
    /// Whether another program has read the previous version, which the base describes.
    pub(super) reading: Reading,
}

/// Whether entries that are not in the file were removed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The file is complete.
    Whole,
    /// The file is complete and has no bookmark.
    Empty,
    /// A part of the file is damaged.
    Damaged,
    /// There is no file: it was removed.
    Removed,
}

/// Whether another program has read a version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Read,
    Unread,
    /// The file system does not record it.
    Unknown,
}

/// The result of a merge.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// Records to append to the journal.
    pub(super) records: Vec<JournalRecord>,
    /// Entries that a program dropped by a limit of its own. The next write restores them, but they are no reason for a
    /// write, because the program would drop them again.
    pub(super) capped: HashSet<Uri>,
    /// How many entries are restored that a program had not read when it wrote.
    pub(super) restored: usize,
}

/// Why an entry is no longer in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A user deleted it.
    Deleted,
    /// There is no evidence that the program that wrote the list had read the entry.
    Lost,
    /// A program keeps fewer or only younger entries.
    Capped,
}

/// Merges. Entries that `floors` exclude exceed unjank's own limits.
pub(super) fn merge(
    base: &Base,
    list: &RecentList,
    theirs: &ForeignList<'_>,
    floors: &Floors,
) -> Merge {
    let mut merge = Merge::default();
    let salt = list.salt();
    let is_ours = base.salt == salt;
    let known = |mark: &UriHash| if is_ours { base.entries.get(mark) } else { None };
    let mut signs = ReadEvidence { written: theirs.written, ..ReadEvidence::default() };
    let receipts = base.receipts_with(list);
    let mut puts = Vec::new();
    for (uri, entry) in &theirs.entries {
        let mark = salt.mark(uri);
        let known = known(&mark);
        let put = taken_in(entry, known, list, floors);
        signs.see(entry, known, put.is_some());
        signs.read = signs.read.max(receipts.publication(mark, entry.added));
        puts.extend(put);
    }
    signs.gone = base.entries.values().filter(|known| known.is_in_file()).count() - signs.survivors;
    // In the order of time, because the order of a hash table differs each time.
    puts.sort_by(|a, b| (a.added, &a.uri).cmp(&(b.added, &b.uri)));
    merge.records.extend(puts.into_iter().map(JournalRecord::Put));
    let judge = Judge { signs: &signs, theirs, read_through: base.read_through };
    let mut deleted = Vec::new();
    for entry in list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri)) {
        let known = known(&salt.mark(&entry.uri));
        // A document that was used since is new, whatever happened to its old entry.
        let Some(known) = known.filter(|known| known.used() >= entry.last_used()) else { continue };
        match judge.fate(known) {
            Fate::Deleted => deleted.push(&entry.uri),
            Fate::Lost => merge.restored += 1,
            Fate::Capped => {
                merge.capped.insert(entry.uri.clone());
            }
        }
    }
    if !deleted.is_empty() {
        merge.records.push(JournalRecord::Forget(list.forgetting(deleted, theirs.written)));
    }
    merge
}

/// Returns the records by which the journal follows an entry of the file.
fn taken_in(
    entry: &RecentEntry,
    known: Option<&BaseEntry>,
    list: &RecentList,
    floors: &Floors,
) -> Option<RecentEntry> {
    let Some(ours) = list.get(&entry.uri) else {
        return (!is_unwanted(entry, list, floors)).then(|| entry.clone());
    };
    if ours == entry {
        return None;
    }
    let mut put = entry.clone();
    // The counts of both since the base are added.
    for application in &mut put.applications {
        let ours = ours.applications.iter().find(|other| other.name == application.name);
        if let (Some(ours), Some(before)) = (ours, known.and_then(|k| k.count(&application.name))) {
            let more = application.count.saturating_sub(before);
            application.count = ours.count.saturating_add(more);
        }
    }
    (combined(ours, &put) != *ours).then_some(put)
}

/// Returns whether an entry that only the file has is to be removed: it was forgotten, or exceeds the limits. It is not
/// removed because the list lacks it: the file restores the entries of a damaged journal.
pub(super) fn is_unwanted(entry: &RecentEntry, list: &RecentList, floors: &Floors) -> bool {
    let used = entry.last_used();
    floors.exclude(entry) || list.is_forgotten(&entry.uri, used)
}

/// Returns the entry of a document after `put`.
pub(super) fn combined(ours: &RecentEntry, put: &RecentEntry) -> RecentEntry {
    let mut list = RecentList::default();
    list.apply(JournalRecord::Put(ours.clone()));
    list.apply(JournalRecord::Put(put.clone()));
    list.get(&ours.uri).cloned().unwrap_or_else(|| ours.clone())
}

/// Evidence in the file about the version that its writer had read, and its changes.
#[derive(Debug, Default)]
struct ReadEvidence {
    written: RecentTime,
    /// The last version of unjank that its writer had read, as the receipts show.
    read: Option<RecentTime>,
    /// Whether something in it differs from the base.
    has_news: bool,
    /// How many entries of the base are still in the file, and the first position of one.
    survivors: usize,
    first: Option<usize>,
    oldest: Option<RecentTime>,
    /// How many entries of the base are not in the file.
    gone: usize,
}

impl ReadEvidence {
    fn see(&mut self, entry: &RecentEntry, known: Option<&BaseEntry>, is_taken_in: bool) {
        self.has_news |= is_taken_in;
        let Some(known) = known.filter(|known| known.is_in_file()) else {
            self.has_news = true;
            return;
        };
        self.has_news |= known.compare(entry) != Version::Same || known.added != entry.added;
        self.survivors += 1;
        self.first = Some(self.first.map_or(known.order, |first| first.min(known.order)));
        self.oldest = Some(self.oldest.map_or(known.used(), |oldest| oldest.min(known.used())));
    }
}

/// Determines why entries are missing.
struct Judge<'a> {
    signs: &'a ReadEvidence,
    theirs: &'a ForeignList<'a>,
    read_through: RecentTime,
}

impl Judge<'_> {
    fn fate(&self, known: &BaseEntry) -> Fate {
        match (self.theirs.presence, known.publication) {
            (Presence::Damaged, Publication::Ours(_) | Publication::Others(_)) => Fate::Lost,
            (Presence::Removed, _) => Fate::Deleted,
            (Presence::Empty, _) if self.was_read_by_somebody(known) => Fate::Deleted,
            (Presence::Empty, _) => Fate::Lost,
            // It has not been in the file since it was dropped.
            (_, Publication::Dropped(_)) => Fate::Capped,
            (Presence::Whole, _) if self.is_the_only_change() => Fate::Deleted,
            (Presence::Whole, Publication::Ours(at)) if self.signs.read >= Some(at) => {
                if self.is_beyond_a_limit(known) { Fate::Capped } else { Fate::Deleted }
            }
            (Presence::Whole, _) => Fate::Lost,
        }
    }

    /// Returns whether the file equals the base apart from one entry. Programs write when they changed something, and
    /// nothing else was changed.
    fn is_the_only_change(&self) -> bool {
        !self.signs.has_news && self.signs.gone == 1
    }

    /// Returns whether some program had read an entry before the list was emptied; an empty list has no receipt.
    fn was_read_by_somebody(&self, known: &BaseEntry) -> bool {
        let since = known.publication.since();
        let before = |time| since <= self.signs.written.before(time);
        match self.theirs.reading {
            Reading::Read => true,
            Reading::Unread => since <= self.read_through || before(READ_BY_NOW),
            Reading::Unknown => since <= self.read_through || before(READ_UNKNOWN),
        }
    }

    fn is_beyond_a_limit(&self, known: &BaseEntry) -> bool {
        let ReadEvidence { written, first, oldest, .. } = self.signs;
        let entries = self.theirs.entries.len();
        let is_old = known.used() < written.before(GTK_AGE);
        let is_first = entries >= GTK_ENTRIES && first.is_none_or(|first| known.order < first);
        let is_oldest = entries == KDE_ENTRIES && oldest.is_none_or(|oldest| known.used() < oldest);
        is_old || is_first || is_oldest
    }
}
