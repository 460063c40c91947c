//! A model of GTK's and KDE's programs and of their users: what they do to the file, and what we make of it.

use std::collections::{BTreeMap, BTreeSet};

use super::base::{Base, Publication};
use super::merge::{Presence, Reading, merge};
use super::plan::{Found, Next, NextVersion, Plans, theirs};
use crate::recents::xbel::{Condition, Document};
use crate::recents::{
    Addition, Application, Entry, List, Privacy, Record, Salt, Timestamp, Uri, VersionReceipts,
};

pub(super) const SECOND: i64 = 1_000_000;
pub(super) const DAY: i64 = 86_400 * SECOND;

pub(super) fn uri(name: &str) -> Uri {
    Uri::exact(format!("file:///{name}")).unwrap()
}

pub(super) fn entry(name: &str, application: &str, at: Timestamp) -> Entry {
    Entry {
        uri: uri(name),
        mime: Some("text/plain".into()),
        groups: Vec::new(),
        title: None,
        description: None,
        privacy: Privacy::Public,
        added: at,
        modified: at,
        visited: at,
        applications: vec![Application {
            name: application.into(),
            exec: "x %u".into(),
            count: 1,
            modified: at,
        }],
    }
}

/// A session: the file, our list, and programs of GTK's that hold the list in memory.
pub(super) struct Session {
    pub(super) now: Timestamp,
    pub(super) file: Option<Document>,
    pub(super) written: Timestamp,
    pub(super) list: List,
    pub(super) base: Base,
    /// What a program has in memory; `None` before it has read.
    pub(super) gtk: Vec<BTreeMap<usize, Entry>>,
    pub(super) writes: usize,
    /// How many entries our list keeps.
    pub(super) most: usize,
    /// When the version was written that we last knew.
    seen: Timestamp,
    /// Whether another program has read that one.
    pub(super) was_read: bool,
    /// The fault of a merge that takes every entry which is gone for deleted.
    pub(super) every_gap_is_a_deletion: bool,
}

/// How far a look goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Until {
    /// What others did is in the journal.
    TakenIn,
    /// The base says so.
    Known,
    /// The receipts of the next version are in the journal. No further without the lock.
    Receipts,
    /// The next version is in place.
    Published,
    /// The base says so.
    Done,
}

impl Session {
    pub(super) fn new() -> Session {
        Session {
            now: Timestamp(1_795_282_391 * SECOND),
            file: None,
            written: Timestamp(0),
            list: List::new(Salt([7; 16])),
            base: Base::default(),
            gtk: vec![BTreeMap::new(), BTreeMap::new()],
            writes: 0,
            most: 5000,
            seen: Timestamp(0),
            was_read: false,
            every_gap_is_a_deletion: false,
        }
    }

    pub(super) fn wait(&mut self, micros: i64) {
        self.now = Timestamp(self.now.0 + micros);
    }

    /// A program of ours adds a document.
    pub(super) fn add(&mut self, name: &str) {
        self.wait(1000);
        self.list.apply(Record::Add(Addition {
            uri: uri(name),
            mime: Some("text/plain".into()),
            groups: Vec::new(),
            privacy: Privacy::Public,
            application: "ours".into(),
            exec: "x %u".into(),
            at: self.now,
        }));
    }

    /// We look at the file, take in, and write; says how many came back and were deleted.
    pub(super) fn project(&mut self) -> (usize, usize) {
        self.look(Until::Done)
    }

    /// The same up to some point.
    pub(super) fn look(&mut self, until: Until) -> (usize, usize) {
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
        let found = Found { stat: None, document, presence, written, reading };
        let floors = self.list.floors(self.most, None);
        let merged = merge(&self.base, &self.list, &theirs(&found), &floors);
        let mut deleted = 0;
        for record in merged.records {
            if let Record::Forget(forgetting) = &record {
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
        let Next { base, version } = plans.next(&found);
        if until >= Until::Known {
            self.base = base;
        }
        if let Some(NextVersion { text, receipts, base }) = version {
            if until >= Until::Receipts {
                self.list.apply(receipts);
            }
            if until >= Until::Published {
                self.file = Some(Document::parse(text.into_bytes()).unwrap());
                self.written = self.now;
                self.writes += 1;
            }
            if until >= Until::Done {
                self.base = base;
            }
        }
        if until < Until::Done {
            return (merged.restored, deleted);
        }
        if self.written != self.seen {
            (self.seen, self.was_read) = (self.written, false);
        }
        (merged.restored, deleted)
    }

    /// Makes every list look as if its writer had read the last version.
    pub(super) fn lie(&mut self) {
        self.base.receipts = self.base.receipts_with(&self.list);
        self.base.receipts.lie();
    }

    /// Forgets by what versions are told apart.
    pub(super) fn lose_receipts(&mut self) {
        self.list.apply(Record::Receipts(VersionReceipts::default()));
        self.base.receipts = Default::default();
    }

    /// Returns the entries of the last version that we knew which some program has read in that or an earlier version.
    pub(super) fn read_by_somebody(&self) -> BTreeSet<String> {
        let entries = self.list.iter().filter(|entry| {
            let known = self.base.entries.get(&self.list.salt().mark(&entry.uri));
            known.is_some_and(|known| {
                self.was_read || known.publication.since() <= self.base.read_through
            })
        });
        entries.map(|entry| entry.uri.as_str()[8..].to_owned()).collect()
    }

    /// Returns the entries of the file that are as we wrote them.
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

    /// A program of GTK's reads the file into memory, in its order.
    pub(super) fn gtk_reads(&mut self, program: usize) {
        self.was_read |= self.file.is_some() && self.written == self.seen;
        let bookmarks = self.file.iter().flat_map(|file| file.bookmarks());
        self.gtk[program] = bookmarks.filter_map(|one| one.entry().cloned()).enumerate().collect();
    }

    /// It adds to what is in memory.
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

    /// It writes what is in memory, but what is too old for it, and not more than it holds.
    pub(super) fn gtk_writes(&mut self, program: usize) {
        self.wait(1000);
        let oldest = Timestamp(self.now.0 - 30 * DAY);
        let memory = &mut self.gtk[program];
        memory.retain(|_, known| known.modified >= oldest);
        while memory.len() > 1000 {
            memory.pop_first();
        }
        let text = Document::new().edit(|_| crate::recents::xbel::Change::Keep, memory.values());
        let text = text.unwrap_or_else(|| "<xbel></xbel>".into());
        self.file = Some(Document::parse(text.into_bytes()).unwrap());
        self.written = self.now;
    }

    /// A program of KDE's reads, adds and writes under the lock.
    pub(super) fn kde_adds(&mut self, name: &str) {
        self.wait(1000);
        let new = entry(name, "kde", self.now);
        let document = self.file.clone().unwrap_or_default();
        let change = |bookmark: &crate::recents::xbel::Bookmark| match bookmark.entry() {
            Some(known) if known.uri == new.uri => crate::recents::xbel::Change::Set(&new),
            _ => crate::recents::xbel::Change::Keep,
        };
        let is_new =
            !document.bookmarks().iter().any(|b| b.entry().is_some_and(|e| e.uri == new.uri));
        let text = document.edit(change, is_new.then_some(&new)).unwrap();
        self.file = Some(Document::parse(text.into_bytes()).unwrap());
        self.written = self.now;
    }
}
