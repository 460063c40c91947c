//! The list as the result of the journal's records: the entries in the order of their arrival, and the forgotten documents.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::record::{Addition, ForgetExtent, Forgetting, JournalRecord, VersionReceipts};
use super::sandbox::is_sandboxed;
use super::{OpeningApplication, Privacy, RecentEntry, RecentTime, Salt, Tombstone, Uri, UriHash};

/// An addition that is older than a forgetting by no more than this, and comes after it in the journal, was under way
/// when the document was forgotten. One that is older still has another clock.
const UNDER_WAY: Duration = Duration::from_secs(60);

/// The folded records.
#[derive(Clone, Debug, Default)]
pub struct RecentList {
    /// By the order in which they came.
    entries: BTreeMap<u64, RecentEntry>,
    places: HashMap<Uri, u64>,
    forgotten: HashMap<UriHash, Tombstone>,
    /// When everything was forgotten.
    cleared: Option<RecentTime>,
    salt: Salt,
    /// Those of the last version of the shared file.
    receipts: VersionReceipts,
    next: u64,
}

impl RecentList {
    /// Returns a list of nothing whose marks are made with `salt`.
    #[must_use]
    pub fn new(salt: Salt) -> RecentList {
        RecentList { salt, ..RecentList::default() }
    }

    /// Applies a record. Records count in the order of the journal, whatever their clocks said, except for an addition
    /// that was overtaken by a forgetting.
    pub fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Add(addition) => self.add(addition),
            JournalRecord::Put(entry) => self.put(entry),
            JournalRecord::Forget(forgetting) => self.forget(&forgetting),
            JournalRecord::Salt(salt) => self.salt = salt,
            JournalRecord::Receipts(receipts) => self.move_back(receipts),
        }
    }

    /// Returns the entry of a document.
    #[must_use]
    pub fn get(&self, uri: &Uri) -> Option<&RecentEntry> {
        self.entries.get(self.places.get(uri)?)
    }

    /// Returns the entries in the order in which they came.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &RecentEntry> {
        self.entries.values()
    }

    /// Returns how many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns when a document was forgotten, if it was and has not been added since.
    #[must_use]
    pub fn forgotten(&self, uri: &Uri) -> Option<Tombstone> {
        if self.places.contains_key(uri) {
            return None;
        }
        let alone = match self.forgotten.is_empty() {
            true => None,
            false => self.forgotten.get(&self.salt.mark(uri)).copied(),
        };
        let cleared = self.cleared.map(|at| Tombstone { at, later_use: None });
        match (alone, cleared) {
            (Some(alone), Some(cleared)) => Some(alone.and(cleared)),
            (alone, cleared) => alone.or(cleared),
        }
    }

    /// Returns whether a use of a document was forgotten with it.
    #[must_use]
    pub(crate) fn is_forgotten(&self, uri: &Uri, used: RecentTime) -> bool {
        self.forgotten(uri).is_some_and(|tombstone| tombstone.covers(used))
    }

    /// Returns whether something was forgotten by a clock that was so far ahead that what is opened now would stay hidden.
    pub(crate) fn has_wrong_tombstones(&self, now: RecentTime) -> bool {
        let cleared = self.cleared.map(|at| Tombstone { at, later_use: None });
        self.forgotten.values().chain(&cleared).any(|tombstone| tombstone.is_of_a_wrong_clock(now))
    }

    /// Returns the record by which these documents are forgotten.
    #[must_use]
    pub(crate) fn forgetting<'a>(
        &self,
        uris: impl IntoIterator<Item = &'a Uri>,
        at: RecentTime,
    ) -> Forgetting {
        let marks = uris.into_iter().map(|uri| self.salt.mark(uri)).collect();
        Forgetting { marks, everything: ForgetExtent::Stays, at, later_use: None }
    }

    /// Returns the records by which these documents are forgotten, each with all of its uses: those that are known here, and the one
    /// that is given. The clock may have been set back since then.
    #[must_use]
    pub(crate) fn forgetting_used(
        &self,
        used: &BTreeMap<Uri, RecentTime>,
        now: RecentTime,
    ) -> Vec<Forgetting> {
        let mut by_use = BTreeMap::<Option<RecentTime>, Vec<&Uri>>::new();
        for (uri, used) in used {
            let known = self.get(uri).map_or(*used, RecentEntry::last_used);
            let later_use = Some(known.max(*used)).filter(|used| *used > now);
            by_use.entry(later_use).or_default().push(uri);
        }
        let one = |(later_use, uris)| Forgetting { later_use, ..self.forgetting(uris, now) };
        by_use.into_iter().map(one).collect()
    }

    /// Returns the salt of the marks.
    #[must_use]
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// Returns the receipts of the last version of the shared file that was written, or was to be.
    #[must_use]
    pub(crate) fn receipts(&self) -> &VersionReceipts {
        &self.receipts
    }

    /// Returns the fewest records that lead to this list. What was forgotten more than [`REMEMBERED_AS_FORGOTTEN`](crate::REMEMBERED_AS_FORGOTTEN) before
    /// `now` is left out: no program remembers it any more.
    #[must_use]
    pub fn records(&self, now: RecentTime) -> Vec<JournalRecord> {
        let mut records = vec![JournalRecord::Salt(self.salt)];
        let cleared = self.cleared.map(|at| Tombstone { at, later_use: None });
        if let Some(Tombstone { at, .. }) = cleared.and_then(|cleared| cleared.kept(now)) {
            let (marks, everything, later_use) = (Vec::new(), ForgetExtent::Goes, None);
            records.push(JournalRecord::Forget(Forgetting { marks, everything, at, later_use }));
        }
        let mut by_time = BTreeMap::<Tombstone, Vec<UriHash>>::new();
        for (mark, tombstone) in &self.forgotten {
            if let Some(kept) = tombstone.kept(now) {
                by_time.entry(kept).or_default().push(*mark);
            }
        }
        for (Tombstone { at, later_use }, mut marks) in by_time {
            // In the order of the hashes, which says nothing of the order in which they were forgotten.
            marks.sort_unstable();
            let everything = ForgetExtent::Stays;
            records.push(JournalRecord::Forget(Forgetting { marks, everything, at, later_use }));
        }
        records.extend(self.iter().cloned().map(JournalRecord::Put));
        if self.receipts != VersionReceipts::default() {
            let mut receipts = self.receipts.clone();
            // What was forgotten is named nowhere.
            receipts.added.retain(|(uri, _)| self.places.contains_key(uri));
            records.push(JournalRecord::Receipts(receipts));
        }
        records
    }

    /// Keeps the entries that `stays` wants.
    pub(super) fn retain(&mut self, stays: impl Fn(&RecentEntry) -> bool) {
        let places = &mut self.places;
        self.entries.retain(|_, entry| {
            let stays = stays(entry);
            if !stays {
                places.remove(&entry.uri);
            }
            stays
        });
    }

    fn add(&mut self, addition: Addition) {
        let Some(addition) = addition.cleaned() else { return };
        let Addition { uri, mime, groups, privacy, application, exec, at } = addition;
        if let Some(forgotten) = self.forgotten(&uri)
            && (forgotten.at.before(UNDER_WAY)..forgotten.at).contains(&at)
        {
            return;
        }
        // Another program may have written the same file in its own way.
        let known = Some(&uri).filter(|uri| !self.places.contains_key(uri));
        let known = known.and_then(Uri::other_spelling).filter(|o| self.places.contains_key(o));
        let uri = known.unwrap_or(uri);
        let is_sandboxed = is_sandboxed(&application, &exec);
        let entry = self.entry(&uri, at);
        // What a sandbox says of a document counts in its own entries only.
        let is_own = entry.applications.is_empty() || entry.sandbox() == Some(&*application);
        if !is_sandboxed || is_own {
            entry.mime = mime.or(entry.mime.take());
            extend(&mut entry.groups, groups);
            entry.privacy = privacy;
        }
        entry.modified = entry.modified.max(at);
        entry.visited = entry.visited.max(at);
        match entry.applications.iter_mut().find(|known| known.name == application) {
            // A program of the host has the name of a sandbox.
            Some(known) if is_sandboxed && !known.is_sandboxed() => {}
            Some(known) => {
                known.count = known.count.saturating_add(1);
                known.modified = known.modified.max(at);
                known.exec = exec;
            }
            None => entry.applications.push(OpeningApplication {
                name: application,
                exec,
                count: 1,
                modified: at,
            }),
        }
        entry.bound();
    }

    fn put(&mut self, other: RecentEntry) {
        let Some(other) = other.cleaned() else { return };
        // It was forgotten after it was read in the file that it comes from.
        if !self.places.contains_key(&other.uri)
            && !self.forgotten.is_empty()
            && self
                .forgotten
                .get(&self.salt.mark(&other.uri))
                .is_some_and(|tombstone| tombstone.covers(other.last_used()))
        {
            return;
        }
        let entry = self.entry(&other.uri, other.added);
        let is_later = other.modified >= entry.modified;
        let later = |ours: Option<String>, theirs: Option<String>| {
            if is_later { theirs.or(ours) } else { ours.or(theirs) }
        };
        entry.mime = later(entry.mime.take(), other.mime);
        entry.title = later(entry.title.take(), other.title);
        entry.description = later(entry.description.take(), other.description);
        if is_later {
            entry.privacy = other.privacy;
        }
        extend(&mut entry.groups, other.groups);
        entry.added = entry.added.min(other.added);
        entry.modified = entry.modified.max(other.modified);
        entry.visited = entry.visited.max(other.visited);
        for application in other.applications {
            match entry.applications.iter_mut().find(|known| known.name == application.name) {
                Some(known) => {
                    known.count = known.count.max(application.count);
                    if application.modified >= known.modified {
                        known.modified = application.modified;
                        known.exec = application.exec;
                    }
                }
                None => entry.applications.push(application),
            }
        }
        entry.bound();
    }

    /// Takes down earlier times of when documents came; those that are not there any more stay away.
    fn move_back(&mut self, receipts: VersionReceipts) {
        for (uri, added) in &receipts.added {
            if let Some(place) = self.places.get(uri)
                && let Some(entry) = self.entries.get_mut(place)
            {
                entry.added = entry.added.min(*added);
            }
        }
        self.receipts = receipts;
    }

    fn forget(&mut self, forgetting: &Forgetting) {
        if forgetting.everything == ForgetExtent::Goes {
            self.entries.clear();
            self.places.clear();
            // A later one, or a later use, is of a clock that was ahead.
            self.forgotten.retain(|_, one| Some(one.at).max(one.later_use) > Some(forgetting.at));
            self.cleared = self.cleared.max(Some(forgetting.at));
            return;
        }
        for mark in &forgetting.marks {
            let new = Tombstone { at: forgetting.at, later_use: forgetting.later_use };
            let tombstone = self.forgotten.entry(*mark).or_insert(new);
            *tombstone = tombstone.and(new);
        }
        let marks: std::collections::HashSet<&UriHash> = forgetting.marks.iter().collect();
        if marks.is_empty() {
            return;
        }
        let (salt, places) = (self.salt, &mut self.places);
        self.entries.retain(|_, entry| {
            let stays = !marks.contains(&salt.mark(&entry.uri));
            if !stays {
                places.remove(&entry.uri);
            }
            stays
        });
    }

    /// Returns the entry of a document, a new one if there is none; what was forgotten of it is over.
    fn entry(&mut self, uri: &Uri, added: RecentTime) -> &mut RecentEntry {
        let place = match self.places.get(uri) {
            Some(place) => *place,
            None => {
                let place = self.next;
                self.next += 1;
                if !self.forgotten.is_empty() {
                    self.forgotten.remove(&self.salt.mark(uri));
                }
                self.places.insert(uri.clone(), place);
                place
            }
        };
        self.entries.entry(place).or_insert_with(|| RecentEntry {
            uri: uri.clone(),
            mime: None,
            groups: Vec::new(),
            title: None,
            description: None,
            privacy: Privacy::Public,
            added,
            modified: added,
            visited: added,
            applications: Vec::new(),
        })
    }
}

/// Adds the texts that are not there yet.
fn extend(texts: &mut Vec<String>, more: Vec<String>) {
    for text in more {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
}

/// Returns what the list on the disk has and the one in memory lacks: additions of a program that has no runtime directory.
pub(super) fn additions_missing(memory: &RecentList, disk: &RecentList) -> Vec<JournalRecord> {
    let is_missing = |entry: &&RecentEntry| match memory.get(&entry.uri) {
        Some(known) => known.last_used() < entry.last_used(),
        None => !memory.is_forgotten(&entry.uri, entry.last_used()),
    };
    disk.iter().filter(is_missing).cloned().map(JournalRecord::Put).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition(name: &str, application: &str, at: i64) -> JournalRecord {
        JournalRecord::Add(Addition {
            uri: Uri::exact(name).unwrap(),
            mime: None,
            groups: vec!["g".into()],
            privacy: Privacy::Public,
            application: application.into(),
            exec: "x %u".into(),
            at: RecentTime(at),
        })
    }

    fn everything(at: i64) -> JournalRecord {
        let (everything, at) = (ForgetExtent::Goes, RecentTime(at));
        JournalRecord::Forget(Forgetting { everything, at, ..Forgetting::default() })
    }

    fn uris(list: &RecentList) -> Vec<&str> {
        list.iter().map(|entry| entry.uri.as_str()).collect()
    }

    #[test]
    fn a_document_that_is_opened_again_keeps_its_place_and_is_counted() {
        let mut list = RecentList::default();
        for (name, program, at) in
            [("a", "kate", 1), ("b", "kate", 2), ("a", "kate", 3), ("a", "vi", 4)]
        {
            list.apply(addition(name, program, at));
        }
        assert_eq!(uris(&list), ["a", "b"]);
        let entry = list.get(&Uri::exact("a").unwrap()).unwrap();
        assert_eq!((entry.added, entry.last_used()), (RecentTime(1), RecentTime(4)));
        assert_eq!(entry.groups, ["g"]);
        let counts: Vec<_> = entry.applications.iter().map(|a| (&*a.name, a.count)).collect();
        assert_eq!(counts, [("kate", 2), ("vi", 1)]);
    }

    #[test]
    fn a_file_that_qt_wrote_in_its_own_way_is_the_same() {
        let mut list = RecentList::default();
        list.apply(addition("file:///a;b", "kate", 1));
        list.apply(addition("file:///a%3Bb", "gedit", 2));
        assert_eq!(uris(&list), ["file:///a;b"]);
    }

    #[test]
    fn what_is_forgotten_stays_so_until_it_is_added_again() {
        let mut list = RecentList::new(Salt([1; 16]));
        list.apply(addition("a", "x", 1));
        list.apply(addition("b", "x", 2));
        let a = Uri::exact("a").unwrap();
        let forgetting = list.forgetting([&a], RecentTime(3));
        list.apply(JournalRecord::Forget(forgetting));
        assert_eq!(uris(&list), ["b"]);
        let at = |at| Some(Tombstone { at: RecentTime(at), later_use: None });
        assert_eq!(list.forgotten(&a), at(3));
        list.apply(addition("a", "x", 2));
        assert_eq!(uris(&list), ["b"], "it was overtaken");
        list.apply(addition("a", "x", 4));
        assert_eq!(uris(&list), ["b", "a"]);
        assert_eq!(list.forgotten(&a), None);
        list.apply(everything(5));
        assert!(list.is_empty());
        assert_eq!(list.forgotten(&a), at(5));
        assert_eq!(list.forgotten(&Uri::exact("never there").unwrap()), at(5));
    }

    #[test]
    fn a_clock_that_was_set_back_hides_nothing() {
        let mut list = RecentList::new(Salt([1; 16]));
        list.apply(everything(3_600_000_000));
        list.apply(addition("a", "x", 1));
        assert_eq!(uris(&list), ["a"]);
    }

    #[test]
    fn the_fewest_records_lead_to_the_same_list() {
        let mut list = RecentList::new(Salt([1; 16]));
        for number in 0..20 {
            list.apply(addition(&format!("u{}", number % 7), "x", number));
        }
        let gone = Uri::exact("u3").unwrap();
        let later = Uri::exact("u4").unwrap();
        let used = BTreeMap::from([(gone.clone(), RecentTime(9)), (later.clone(), RecentTime(99))]);
        for forgetting in list.forgetting_used(&used, RecentTime(30)) {
            list.apply(JournalRecord::Forget(forgetting));
        }
        let mut again = RecentList::default();
        for record in list.records(RecentTime(0)) {
            // Twice is as good as once.
            again.apply(record.clone());
            again.apply(record);
        }
        assert!(again.iter().eq(list.iter()));
        assert_eq!(again.forgotten(&gone), Some(Tombstone { at: RecentTime(30), later_use: None }));
        let later_use = Some(RecentTime(99));
        let at = RecentTime(30);
        assert_eq!(again.forgotten(&later), Some(Tombstone { at, later_use }));
        assert_eq!(again.records(RecentTime(0)), list.records(RecentTime(0)));
        let week_later = at.after(crate::REMEMBERED_AS_FORGOTTEN);
        assert_eq!(list.records(week_later).len(), 1 + 2 + 5);
        assert_eq!(
            list.records(RecentTime(week_later.0 + 1)).len(),
            1 + 5,
            "old marks are dropped"
        );
    }
}
