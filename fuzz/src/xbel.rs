//! Recent documents: what any bytes must keep to that another program left as its list, or as a link.

use std::path::Path;

use recents::links::read;
use recents::xbel::{BookmarkChange, Condition, XbelDocument};
use recents::{RecentEntry, RecentTime};

fn entries(document: &XbelDocument) -> Vec<RecentEntry> {
    document.bookmarks().iter().filter_map(|bookmark| bookmark.entry().cloned()).collect()
}

fn parse(text: String) -> XbelDocument {
    XbelDocument::parse(text.into_bytes()).expect("no edit makes a list too long")
}

/// A list: what can be read of it is the same after it was written, whatever else is in it.
pub fn document(data: &[u8]) {
    let Ok(document) = XbelDocument::parse(data.to_vec()) else { return };
    let before = entries(&document);
    if let Some(text) = document.edit(|_| BookmarkChange::Keep, []) {
        assert_eq!(document.condition(), Condition::Damaged, "a whole list is written as it is");
        let again = parse(text);
        assert_eq!(entries(&again), before, "a salvaged list says the same");
    }
    // Each entry changed: the others, and what is in none, are as they were.
    for at in 0..before.len().min(4) {
        let mut changed = before[at].clone();
        changed.modified = RecentTime(1_700_000_000_000_000);
        changed.groups.push("new".into());
        let mut number = 0;
        let edited = document.edit(
            |bookmark| {
                number += usize::from(bookmark.entry().is_some());
                if bookmark.entry().is_some() && number == at + 1 {
                    BookmarkChange::Set(&changed)
                } else {
                    BookmarkChange::Keep
                }
            },
            [],
        );
        let after = entries(&parse(edited.expect("it changed")));
        assert_eq!(after.len(), before.len());
        for (other, (before, after)) in before.iter().zip(&after).enumerate() {
            if other == at {
                assert_eq!((&after.uri, after.modified), (&changed.uri, changed.modified));
            } else {
                assert_eq!(before, after);
            }
        }
    }
    let none = document.edit(|_| BookmarkChange::Remove, before.first());
    let left = none.map(parse).map(|document| entries(&document).len());
    assert!(left.is_none_or(|left| left <= 1), "what is removed is gone");
}

/// A link of KDE's.
pub fn link(data: &[u8]) {
    let home = Path::new("/home/u");
    if let Some(link) = read(data, home) {
        let again = read(link.text().as_bytes(), home).expect("what we write is a link");
        assert_eq!(again.application(), link.application());
        assert_eq!(again.target(), link.target());
    }
}
