//! What other programs did to the shared file since we last knew it, and which of it their users meant.
//!
//! `docs/decisions/0010-receipts-show-what-a-program-had-read.md` says why; the rules here are its table.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::base::{Base, Known, Publication, Version};
use crate::recents::{Entry, Floors, List, Mark, Record, Timestamp, Uri};

/// GTK drops what was not used for so long whenever it writes (`gtk-recent-files-max-age`).
const GTK_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// GTK drops the first entries of the file beyond so many whenever it writes.
const GTK_ENTRIES: usize = 1000;

/// KDE Frameworks 6 drop the oldest entries beyond so many (`MaxEntries`).
const KDE_ENTRIES: usize = 300;

/// Of a list that somebody emptied: what was published so long before had been read, whoever it was.
const READ_BY_NOW: Duration = Duration::from_secs(3600);

/// The same where the file system does not keep when a file was read.
const READ_UNKNOWN: Duration = Duration::from_secs(3);

/// The file as it is now.
#[derive(Debug)]
pub(super) struct Theirs<'a> {
    /// What it says, each URI once.
    pub(super) entries: HashMap<&'a Uri, &'a Entry>,
    pub(super) presence: Presence,
    /// When it was written.
    pub(super) written: Timestamp,
    /// Whether another program has read the version before, which the base describes.
    pub(super) reading: Reading,
}

/// Whether what is not in the file was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is all there.
    Whole,
    /// It is all there: there is no bookmark.
    Empty,
    /// Something was lost by accident.
    Damaged,
    /// There is no file: somebody removed it.
    Removed,
}

/// Whether another program has read a version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Read,
    Unread,
    /// The file system does not say.
    Unknown,
}

/// What follows from what others did.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// What the journal must learn.
    pub(super) records: Vec<Record>,
    /// Entries that a program dropped by a limit of its own. They come back with the next write, which they are no reason
    /// for: it would drop them again.
    pub(super) capped: HashSet<Uri>,
    /// How many entries come back that a program lost without knowing it.
    pub(super) restored: usize,
}

/// Why an entry is not in the file any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Somebody deleted it.
    Deleted,
    /// Nothing shows that a program had read it which wrote the list without it.
    Lost,
    /// A program keeps fewer, or younger, entries.
    Capped,
}

/// Merges. What `floors` exclude is beyond our own limits.
pub(super) fn merge(base: &Base, list: &List, theirs: &Theirs<'_>, floors: &Floors) -> Merge {
    let mut merge = Merge::default();
    let salt = list.salt();
    let is_ours = base.salt == salt;
    let known = |mark: &Mark| if is_ours { base.entries.get(mark) } else { None };
    let mut signs = Signs { written: theirs.written, ..Signs::default() };
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
    // In the order of time; that of a hash table would differ each time.
    puts.sort_by(|a, b| (a.added, &a.uri).cmp(&(b.added, &b.uri)));
    merge.records.extend(puts.into_iter().map(Record::Put));
    let judge = Judge { signs: &signs, theirs, read_through: base.read_through };
    let mut deleted = Vec::new();
    for entry in list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri)) {
        let known = known(&salt.mark(&entry.uri));
        // What was used since is new to the file, whatever became of the old.
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
        merge.records.push(Record::Forget(list.forgetting(deleted, theirs.written)));
    }
    merge
}

/// Returns what the journal must learn of an entry of the file.
fn taken_in(entry: &Entry, known: Option<&Known>, list: &List, floors: &Floors) -> Option<Entry> {
    let Some(ours) = list.get(&entry.uri) else {
        return (!is_unwanted(entry, list, floors)).then(|| entry.clone());
    };
    if ours == entry {
        return None;
    }
    let mut put = entry.clone();
    // What both counted since they agreed adds up.
    for application in &mut put.applications {
        let ours = ours.applications.iter().find(|other| other.name == application.name);
        if let (Some(ours), Some(before)) = (ours, known.and_then(|k| k.count(&application.name))) {
            let more = application.count.saturating_sub(before);
            application.count = ours.count.saturating_add(more);
        }
    }
    (combined(ours, &put) != *ours).then_some(put)
}

/// Tells whether an entry of the file that our list lacks shall go: it was forgotten, or is beyond our limits. That the list
/// lacks it is no reason: what was in a damaged journal comes back from the file.
pub(super) fn is_unwanted(entry: &Entry, list: &List, floors: &Floors) -> bool {
    let used = entry.last_used();
    floors.exclude(entry) || list.forgotten(&entry.uri).is_some_and(|at| used <= at)
}

/// Returns what the list would say of a document after `put`.
pub(super) fn combined(ours: &Entry, put: &Entry) -> Entry {
    let mut list = List::default();
    list.apply(Record::Put(ours.clone()));
    list.apply(Record::Put(put.clone()));
    list.get(&ours.uri).cloned().unwrap_or_else(|| ours.clone())
}

/// What the file shows of what its writer had read, and did.
#[derive(Debug, Default)]
struct Signs {
    written: Timestamp,
    /// The last version of ours that it shows to have been read.
    read: Option<Timestamp>,
    /// Whether something in it is not as we knew it.
    has_news: bool,
    /// How many entries of the base are in the file still, and the first place of one.
    survivors: usize,
    first: Option<usize>,
    oldest: Option<Timestamp>,
    /// How many are not.
    gone: usize,
}

impl Signs {
    fn see(&mut self, entry: &Entry, known: Option<&Known>, is_taken_in: bool) {
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

/// Tells why entries are missing.
struct Judge<'a> {
    signs: &'a Signs,
    theirs: &'a Theirs<'a>,
    read_through: Timestamp,
}

impl Judge<'_> {
    fn fate(&self, known: &Known) -> Fate {
        match (self.theirs.presence, known.publication) {
            (Presence::Damaged, Publication::Ours(_) | Publication::Others(_)) => Fate::Lost,
            (Presence::Removed, _) => Fate::Deleted,
            (Presence::Empty, _) if self.was_read_by_somebody(known) => Fate::Deleted,
            (Presence::Empty, _) => Fate::Lost,
            // It is not in the file since it was dropped.
            (_, Publication::Dropped(_)) => Fate::Capped,
            (Presence::Whole, _) if self.is_the_only_change() => Fate::Deleted,
            (Presence::Whole, Publication::Ours(at)) if self.signs.read >= Some(at) => {
                if self.is_beyond_a_limit(known) { Fate::Capped } else { Fate::Deleted }
            }
            (Presence::Whole, _) => Fate::Lost,
        }
    }

    /// Tells whether the file is what the base says but for one entry. Programs write when they changed something, and
    /// nothing else was changed.
    fn is_the_only_change(&self) -> bool {
        !self.signs.has_news && self.signs.gone == 1
    }

    /// Tells whether some program had read an entry before the list was emptied, which leaves no receipt.
    fn was_read_by_somebody(&self, known: &Known) -> bool {
        let since = known.publication.since();
        let before = |time| since <= self.signs.written.before(time);
        match self.theirs.reading {
            Reading::Read => true,
            Reading::Unread => since <= self.read_through || before(READ_BY_NOW),
            Reading::Unknown => since <= self.read_through || before(READ_UNKNOWN),
        }
    }

    fn is_beyond_a_limit(&self, known: &Known) -> bool {
        let Signs { written, first, oldest, .. } = self.signs;
        let entries = self.theirs.entries.len();
        let is_old = known.used() < written.before(GTK_AGE);
        let is_first = entries >= GTK_ENTRIES && first.is_none_or(|first| known.order < first);
        let is_oldest = entries == KDE_ENTRIES && oldest.is_none_or(|oldest| known.used() < oldest);
        is_old || is_first || is_oldest
    }
}
