//! What other programs did to the shared file since we last knew it, and which of it their users meant.
//!
//! `docs/decisions/0009-who-deleted-a-recent-document.md` says why; the rules here are its table.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::base::{Author, Base, Known, Version};
use crate::recents::{Entry, List, Mark, Record, Timestamp, Uri};

/// GTK drops what was not used for so long whenever it writes (`gtk-recent-files-max-age`).
const GTK_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// GTK drops the first entries of the file beyond so many whenever it writes.
const GTK_ENTRIES: usize = 1000;

/// KDE Frameworks 6 drop the oldest entries beyond so many (`MaxEntries`).
const KDE_ENTRIES: usize = 300;

/// A program of GTK's reads what others wrote half a second later, unless it is about to write itself; on a busy machine
/// it may take this long.
const UNREAD: Duration = Duration::from_secs(3);

/// The same for a program that had nothing to write but a removal: it was idle before.
const UNREAD_WHEN_IDLE: Duration = Duration::from_secs(1);

/// The file as it is now.
#[derive(Debug)]
pub(super) struct Theirs<'a> {
    /// What it says, each URI once.
    pub(super) entries: HashMap<&'a Uri, &'a Entry>,
    pub(super) presence: Presence,
    /// When it was written.
    pub(super) written: Timestamp,
}

/// Whether what is not in the file was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is all there.
    Whole,
    /// Something was lost by accident.
    Damaged,
    /// There is no file: somebody removed it.
    Removed,
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
    /// A program wrote the list that it had read before the entry was there.
    Lost,
    /// A program keeps fewer, or younger, entries.
    Capped,
}

/// Merges.
pub(super) fn merge(base: &Base, list: &List, theirs: &Theirs<'_>) -> Merge {
    let mut merge = Merge::default();
    let salt = list.salt();
    let is_ours = base.salt == salt;
    let known = |mark: &Mark| if is_ours { base.entries.get(mark) } else { None };
    let mut signs = Signs { written: theirs.written, ..Signs::default() };
    let mut puts = Vec::new();
    for (uri, entry) in &theirs.entries {
        let known = known(&salt.mark(uri));
        signs.see(entry, known);
        puts.extend(taken_in(entry, known, list));
    }
    // In the order of time; that of a hash table would differ each time.
    puts.sort_by(|a, b| (a.added, &a.uri).cmp(&(b.added, &b.uri)));
    merge.records.extend(puts.into_iter().map(Record::Put));
    let mut missing: Vec<(&Entry, &Known)> = Vec::new();
    for entry in list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri)) {
        // What was used since is new to the file, whatever became of the old.
        if let Some(known) = known(&salt.mark(&entry.uri)).filter(|k| k.used() >= entry.last_used())
        {
            missing.push((entry, known));
        }
    }
    let judge = Judge::new(&signs, theirs, &missing);
    let mut deleted = Vec::new();
    for (entry, known) in &missing {
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
fn taken_in(entry: &Entry, known: Option<&Known>, list: &List) -> Option<Entry> {
    let Some(ours) = list.get(&entry.uri) else {
        let is_old = match (list.forgotten(&entry.uri), known) {
            (Some(at), _) => entry.last_used() <= at,
            // We had it and have it no more, by a limit of ours.
            (None, Some(known)) => !known.compare(entry).is_news(),
            (None, None) => false,
        };
        return (!is_old).then(|| entry.clone());
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

/// Returns what the list would say of a document after `put`.
pub(super) fn combined(ours: &Entry, put: &Entry) -> Entry {
    let mut list = List::default();
    list.apply(Record::Put(ours.clone()));
    list.apply(Record::Put(put.clone()));
    list.get(&ours.uri).cloned().unwrap_or_else(|| ours.clone())
}

/// What the file shows of what its writer had read.
#[derive(Debug, Default)]
struct Signs {
    written: Timestamp,
    /// It had read what we wrote at this time.
    read_after: Option<Timestamp>,
    /// It had not read what was there since this time.
    read_before: Option<Timestamp>,
    /// When others used documents that are not as we knew them, which made them write.
    news: Vec<Timestamp>,
    /// How many entries are in the file still, and the first place of one.
    survivors: usize,
    first: Option<usize>,
    oldest: Option<Timestamp>,
}

impl Signs {
    fn see(&mut self, entry: &Entry, known: Option<&Known>) {
        let Some(known) = known else {
            self.tell(entry);
            return;
        };
        self.survivors += 1;
        self.first = Some(self.first.map_or(known.order, |first| first.min(known.order)));
        self.oldest = Some(self.oldest.map_or(known.used(), |oldest| oldest.min(known.used())));
        let version = known.compare(entry);
        // An earlier version may have been made by a use of its own, by a writer who knew of no other.
        if version != Version::Same {
            self.tell(entry);
        }
        match (version, known.author) {
            (Version::Earlier | Version::Apart, _) => {
                let before = self.read_before.unwrap_or(known.published);
                self.read_before = Some(before.min(known.published));
            }
            (_, Author::We(since)) => self.read_after = self.read_after.max(Some(since)),
            (_, Author::Another) => {}
        }
    }
}

impl Signs {
    /// Takes down when a document was used; each time may have made a program write.
    fn tell(&mut self, entry: &Entry) {
        self.news.extend([entry.added, entry.modified, entry.visited]);
        self.news.extend(entry.applications.iter().map(|application| application.modified));
    }
}

/// Tells why entries are missing.
struct Judge<'a> {
    signs: &'a Signs,
    presence: Presence,
    entries: usize,
    missing: usize,
    /// Nothing of what the file had is left, and it was no limit that took it.
    is_cleared: bool,
    /// Nothing of what the file had is left, and its writer was busy since before some of that was there.
    is_begun_anew: bool,
}

impl<'a> Judge<'a> {
    fn new(signs: &'a Signs, theirs: &Theirs<'_>, missing: &[(&Entry, &Known)]) -> Judge<'a> {
        let mut judge = Judge {
            signs,
            presence: theirs.presence,
            entries: theirs.entries.len(),
            missing: missing.len(),
            is_cleared: false,
            is_begun_anew: false,
        };
        let by_limit = missing.iter().all(|(_, known)| judge.is_beyond_a_limit(known));
        judge.is_begun_anew = signs.survivors == 0
            && !signs.news.is_empty()
            && missing.iter().any(|(_, known)| judge.may_be_unread(known.published));
        judge.is_cleared = signs.survivors == 0 && (signs.news.is_empty() || !by_limit);
        judge
    }

    fn fate(&self, known: &Known) -> Fate {
        match self.presence {
            Presence::Damaged => return Fate::Lost,
            Presence::Removed => return Fate::Deleted,
            Presence::Whole => {}
        }
        let Signs { written, read_after, read_before, .. } = self.signs;
        if self.is_begun_anew
            || known.published > *written
            || read_before.is_some_and(|at| known.published >= at)
        {
            return Fate::Lost;
        }
        let was_read = read_after.is_some_and(|at| known.published <= at);
        if !was_read && self.may_be_unread(known.published) {
            return Fate::Lost;
        }
        let is_only_one = self.signs.news.is_empty() && self.missing == 1;
        if !self.is_cleared && !is_only_one && self.is_beyond_a_limit(known) {
            return Fate::Capped;
        }
        Fate::Deleted
    }

    /// Tells whether a program may have written without having read what was published at `since`. It reads when it
    /// was quiet for a moment: so somebody must have used a document about that time, which made it write instead.
    fn may_be_unread(&self, since: Timestamp) -> bool {
        let written = self.signs.written;
        if self.signs.news.is_empty() {
            return self.missing > 1 && written <= since.after(UNREAD_WHEN_IDLE);
        }
        let about = since.before(UNREAD)..=since.after(UNREAD);
        written <= since.after(UNREAD) || self.signs.news.iter().any(|news| about.contains(news))
    }

    fn is_beyond_a_limit(&self, known: &Known) -> bool {
        let Signs { written, first, oldest, .. } = self.signs;
        let is_old = known.used() < written.before(GTK_AGE);
        let is_first = self.entries >= GTK_ENTRIES && first.is_none_or(|first| known.order < first);
        let is_oldest =
            self.entries == KDE_ENTRIES && oldest.is_none_or(|oldest| known.used() < oldest);
        is_old || is_first || is_oldest
    }
}
