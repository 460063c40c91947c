//! A model of GTK and KDE programs and of their users: their changes to the file, and the result of the merge.

use std::collections::{BTreeMap, BTreeSet};

use super::base::{Base, Publication};
use super::merge::{Presence, Reading, merge};
use super::plan::{NextStep, NextVersion, Plans, SharedFile, theirs};
use crate::xbel::{Condition, XbelDocument};
use crate::{
    Addition, JournalRecord, OpeningApplication, Privacy, RecentEntry, RecentList, RecentTime,
    Salt, Uri, VersionReceipts,
};

pub(super) const SECOND: i64 = 1_000_000;
pub(super) const DAY: i64 = 86_400 * SECOND;

pub(super) fn uri(name: &str) -> Uri {
    Uri::exact(format!("file:///{name}")).unwrap()
}

pub(super) fn entry(name: &str, application: &str, at: RecentTime) -> RecentEntry {
    RecentEntry {
        uri: uri(name),
        mime: Some("text/plain".into()),
        groups: Vec::new(),
        title: None,
        description: None,
        privacy: Privacy::Public,
        added: at,
        modified: at,
        visited: at,
        applications: vec![OpeningApplication {
            name: application.into(),
            exec: "x %u".into(),
            count: 1,
            modified: at,
        }],
    }
}

/// A session: the file, unjank's list, and GTK programs that hold the list in memory.
pub(super) struct Session {
    pub(super) now: RecentTime,
    pub(super) file: Option<XbelDocument>,
    pub(super) written: RecentTime,
    pub(super) list: RecentList,
    pub(super) base: Base,
    /// The list that a program has in memory; `None` before it has read.
    pub(super) gtk: Vec<BTreeMap<usize, RecentEntry>>,
    pub(super) writes: usize,
    /// The most entries of unjank's list.
    pub(super) most: usize,
    /// When the last known version was written.
    seen: RecentTime,
    /// Whether another program has read that version.
    pub(super) was_read: bool,
    /// A planted fault: the merge takes every missing entry for deleted.
    pub(super) every_gap_is_a_deletion: bool,
}

/// The point up to which a projection runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LookExtent {
    /// The changes of other programs are in the journal.
    TakenIn,
    /// The base is written.
    Known,
    /// The receipts of the next version are in the journal. Without the lock the projection ends here.
    Receipts,
    /// The next version is in place.
    Published,
    /// The base is written.
    Done,
}

impl Session {
    pub(super) fn new() -> Session {
        Session {
            now: RecentTime(1_795_282_391 * SECOND),
            file: None,
            written: RecentTime(0),
            list: RecentList::new(Salt([7; 16])),
            base: Base::default(),
            gtk: vec![BTreeMap::new(), BTreeMap::new()],
            writes: 0,
            most: 5000,
            seen: RecentTime(0),
            was_read: false,
            every_gap_is_a_deletion: false,
        }
    }

    pub(super) fn wait(&mut self, micros: i64) {
        self.now = RecentTime(self.now.0 + micros);
    }

    /// A program adds a document through unjank.
    pub(super) fn add(&mut self, name: &str) {
        self.wait(1000);
        self.list.apply(JournalRecord::Add(Addition {
            uri: uri(name),
            mime: Some("text/plain".into()),
            groups: Vec::new(),
            privacy: Privacy::Public,
            application: "ours".into(),
            exec: "x %u".into(),
            at: self.now,
        }));
    }

    /// Projects the list; returns how many entries were restored and how many deleted.
    pub(super) fn project(&mut self) -> (usize, usize) {
        self.look(LookExtent::Done)
    }

    /// The same up to a point.
    pub(super) fn look(&mut self, until: LookExtent) -> (usize, usize) {
        self.wait(1000);
        let presence = match &self.file {
            None => Presence::Removed,
            Some(file) if file.condition() == Condition::Damaged => Presence::Damaged,
            Some(_) => Presence::Whole,
        };
        let document = self.file.clone().unwrap_or_default();
        let written = if self.file.is_some() { self.written } else { self.now };
        let presence = match presence {
            Presence::Whole if self.every_gap_is_a_deletion => Presence::Removed,
            Presence::Whole if document.bookmarks().is_empty() => Presence::Empty,
            other => other,
        };
        let reading = if self.was_read { Reading::Read } else { Reading::Unread };
        let found = SharedFile { stat: None, document, presence, written, reading };
        let floors = self.list.floors(self.most, None);
        let merged = merge(&self.base, &self.list, &theirs(&found), &floors);
        let mut deleted = 0;
        for record in merged.records {
            if let JournalRecord::Forget(forgetting) = &record {
                deleted += forgetting.marks.len();
            }
            self.list.apply(record);
        }
        self.list.limit(self.most, None);
        let plans = Plans {
            list: &self.list,
            base: &self.base,
            capped: &merged.capped,
            refused: &std::collections::HashSet::new(),
            floors: &self.list.floors(self.most, None),
            now: self.now,
        };
        let NextStep { base, version } = plans.next(&found);
        if until >= LookExtent::Known {
            self.base = base;
        }
        if let Some(NextVersion { text, receipts, base }) = version {
            if until >= LookExtent::Receipts {
                self.list.apply(receipts);
            }
            if until >= LookExtent::Published {
                self.file = Some(XbelDocument::parse(text.into_bytes()).unwrap());
                self.written = self.now;
                self.writes += 1;
            }
            if until >= LookExtent::Done {
                self.base = base;
            }
        }
        if until < LookExtent::Done {
            return (merged.restored, deleted);
        }
        if self.written != self.seen {
            (self.seen, self.was_read) = (self.written, false);
        }
        (merged.restored, deleted)
    }

    /// Changes the receipts so that every list seems to be written by a program that had read the last version.
    pub(super) fn lie(&mut self) {
        self.base.receipts = self.base.receipts_with(&self.list);
        self.base.receipts.lie();
    }

    /// Removes all receipts.
    pub(super) fn lose_receipts(&mut self) {
        self.list.apply(JournalRecord::Receipts(VersionReceipts::default()));
        self.base.receipts = Default::default();
    }

    /// Returns the entries of the last known version that some program has read in that or an earlier version.
    pub(super) fn read_by_somebody(&self) -> BTreeSet<String> {
        let entries = self.list.iter().filter(|entry| {
            let known = self.base.entries.get(&self.list.salt().mark(&entry.uri));
            known.is_some_and(|known| {
                self.was_read || known.publication.since() <= self.base.read_through
            })
        });
        entries.map(|entry| entry.uri.as_str()[8..].to_owned()).collect()
    }

    /// Returns the entries of the file that are as unjank wrote them.
    pub(super) fn published_by_us(&self) -> BTreeSet<String> {
        let entries = self.list.iter().filter(|entry| {
            let known = self.base.entries.get(&self.list.salt().mark(&entry.uri));
            known.is_some_and(|known| matches!(known.publication, Publication::Ours(_)))
        });
        entries.map(|entry| entry.uri.as_str()[8..].to_owned()).collect()
    }

    pub(super) fn in_file(&self) -> BTreeSet<String> {
        let bookmarks = self.file.iter().flat_map(|file| file.bookmarks());
        bookmarks.filter_map(|one| one.entry()).map(|e| e.uri.as_str()[8..].to_owned()).collect()
    }

    pub(super) fn in_list(&self) -> BTreeSet<String> {
        self.list.iter().map(|entry| entry.uri.as_str()[8..].to_owned()).collect()
    }

    /// A GTK program reads the file into memory, in its order.
    pub(super) fn gtk_reads(&mut self, program: usize) {
        self.was_read |= self.file.is_some() && self.written == self.seen;
        let bookmarks = self.file.iter().flat_map(|file| file.bookmarks());
        self.gtk[program] = bookmarks.filter_map(|one| one.entry().cloned()).enumerate().collect();
    }

    /// The program adds a document to its list in memory.
    pub(super) fn gtk_adds(&mut self, program: usize, name: &str) {
        self.wait(1000);
        let at = self.now;
        let memory = &mut self.gtk[program];
        if let Some(known) = memory.values_mut().find(|known| known.uri == uri(name)) {
            (known.modified, known.visited) = (at, at);
            match known.applications.iter_mut().find(|application| application.name == "gtk") {
                Some(application) => {
                    application.count += 1;
                    application.modified = at;
                }
                None => known.applications.extend(entry(name, "gtk", at).applications),
            }
            return;
        }
        let place = memory.keys().last().map_or(0, |last| last + 1);
        memory.insert(place, entry(name, "gtk", at));
    }

    pub(super) fn gtk_removes(&mut self, program: usize, name: &str) {
        self.gtk[program].retain(|_, known| known.uri != uri(name));
    }

    /// The program writes its list, without entries that are too old, and within its limit.
    pub(super) fn gtk_writes(&mut self, program: usize) {
        self.wait(1000);
        let oldest = RecentTime(self.now.0 - 30 * DAY);
        let memory = &mut self.gtk[program];
        memory.retain(|_, known| known.modified >= oldest);
        while memory.len() > 1000 {
            memory.pop_first();
        }
        let text = XbelDocument::new().edit(|_| crate::xbel::BookmarkChange::Keep, memory.values());
        let text = text.unwrap_or_else(|| "<xbel></xbel>".into());
        self.file = Some(XbelDocument::parse(text.into_bytes()).unwrap());
        self.written = self.now;
    }

    /// A KDE program reads, adds and writes under the lock.
    pub(super) fn kde_adds(&mut self, name: &str) {
        self.wait(1000);
        let new = entry(name, "kde", self.now);
        let document = self.file.clone().unwrap_or_default();
        let change = |bookmark: &crate::xbel::Bookmark| match bookmark.entry() {
            Some(known) if known.uri == new.uri => crate::xbel::BookmarkChange::Set(&new),
            _ => crate::xbel::BookmarkChange::Keep,
        };
        let is_new =
            !document.bookmarks().iter().any(|b| b.entry().is_some_and(|e| e.uri == new.uri));
        let text = document.edit(change, is_new.then_some(&new)).unwrap();
        self.file = Some(XbelDocument::parse(text.into_bytes()).unwrap());
        self.written = self.now;
    }
}
