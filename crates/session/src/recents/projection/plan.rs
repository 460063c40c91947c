//! What the shared file shall hold next, and what will be known of it then.

use std::collections::{HashMap, HashSet};

use store::disk::Stat;

use super::base::{Author, Base, Known, Version};
use super::merge::{Presence, Theirs, combined};
use crate::recents::xbel::{Change, Document};
use crate::recents::{Entry, List, Mark, Timestamp, Uri};

/// The shared file as it is now.
pub(super) struct Found {
    pub(super) stat: Option<Stat>,
    pub(super) document: Document,
    pub(super) presence: Presence,
    pub(super) written: Timestamp,
}

/// What comes next.
pub(super) struct Next {
    /// The text of the file; `None` if it is as it should be.
    pub(super) text: Option<String>,
    /// What will be known of it when it is written.
    pub(super) base: Base,
}

/// Decides what the file shall hold, when what others did is in the list.
///
/// The entries of `capped` are no reason to write; those of `refused` are not for the file as others have them; those of `overtaken` were in the file when
/// it was read before, and whoever wrote them may have them in memory still.
pub(super) fn next(
    found: &Found,
    list: &List,
    base: &Base,
    capped: &HashSet<Uri>,
    refused: &HashSet<Uri>,
    overtaken: &HashMap<Uri, Entry>,
    now: Timestamp,
) -> Next {
    let theirs = theirs(found);
    // Later than anything that was published, whatever the clock says: the order is what counts.
    let last = base.entries.values().map(|known| known.published).max().unwrap_or_default();
    let now = now.max(Timestamp(last.0.saturating_add(1)));
    let plan = Plan::of(found, list, base, refused);
    let missing = || list.iter().filter(|entry| !theirs.entries.contains_key(&entry.uri));
    let reasons = missing().filter(|entry| !capped.contains(&entry.uri));
    let text = match plan.text(&found.document, reasons) {
        Some(_) if !capped.is_empty() => plan.text(&found.document, missing()),
        other => other,
    };
    let mut entries = plan.known(base, list, found.written, now);
    if text.is_some() {
        for entry in missing() {
            let mark = list.salt().mark(&entry.uri);
            let author = author(base, list, entry, overtaken.get(&entry.uri), now);
            let known = Known::of(entry, entries.len(), now, author);
            entries.insert(mark, known);
        }
    }
    Next { text, base: Base { salt: list.salt(), linked: base.linked, entries } }
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
    Theirs { entries, presence: found.presence, written: found.written }
}

/// What shall become of each bookmark of the file, in its order.
struct Plan<'a> {
    changes: Vec<Change<'a>>,
    /// The entries that stay or change, in the file's order.
    order: Vec<(&'a Entry, Change<'a>)>,
}

impl<'a> Plan<'a> {
    fn of(found: &'a Found, list: &'a List, base: &Base, refused: &HashSet<Uri>) -> Plan<'a> {
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
            } else if refused.contains(&entry.uri) {
                list.get(&entry.uri).map_or(Change::Remove, Change::Set)
            } else {
                plan_for(entry, list, base)
            };
            plan.changes.push(change);
            if change != Change::Remove {
                plan.order.push((entry, change));
            }
        }
        plan
    }

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

    /// Returns what will be known of the file's entries when the plan is carried out.
    fn known(
        &self,
        base: &Base,
        list: &List,
        written: Timestamp,
        now: Timestamp,
    ) -> HashMap<Mark, Known> {
        let salt = list.salt();
        let mut known = HashMap::with_capacity(self.order.len());
        for (order, (entry, change)) in self.order.iter().enumerate() {
            let mark = salt.mark(&entry.uri);
            let before = base.entries.get(&mark).filter(|_| base.salt == salt);
            let after = match change {
                Change::Set(ours) => {
                    Known::of(ours, order, now, author(base, list, ours, Some(entry), now))
                }
                _ => match before.filter(|before| before.compare(entry) == Version::Same) {
                    Some(before) => before.moved_to(order),
                    None => Known::of(entry, order, written, Author::Another),
                },
            };
            known.insert(mark, after);
        }
        known
    }
}

/// Returns what shall become of a bookmark that says `entry`.
fn plan_for<'a>(entry: &Entry, list: &'a List, base: &Base) -> Change<'a> {
    match list.get(&entry.uri) {
        // What lays nothing new over it changes nothing.
        Some(ours) if ours == entry || combined(entry, ours) == combined(entry, entry) => {
            Change::Keep
        }
        Some(ours) => Change::Set(ours),
        None => {
            let known = base.entries.get(&list.salt().mark(&entry.uri));
            let is_forgotten = list.forgotten(&entry.uri).is_some_and(|at| entry.last_used() <= at);
            let is_limited = known
                .is_some_and(|known| base.salt == list.salt() && !known.compare(entry).is_news());
            if is_forgotten || is_limited { Change::Remove } else { Change::Keep }
        }
    }
}

/// Returns who wrote an entry like this that we write now: whoever did when it was lost since, and another where the
/// difference to what is in the file is none that a writer's reading could be known by.
fn author(
    base: &Base,
    list: &List,
    entry: &Entry,
    theirs: Option<&Entry>,
    now: Timestamp,
) -> Author {
    let known =
        base.entries.get(&list.salt().mark(&entry.uri)).filter(|_| base.salt == list.salt());
    let new = Known::of(entry, 0, now, Author::We(now));
    match known.filter(|known| known.compare(entry) == Version::Same) {
        Some(known) => known.author,
        None if theirs.is_some_and(|theirs| new.compare(theirs) == Version::Same) => {
            Author::Another
        }
        None => new.author,
    }
}
