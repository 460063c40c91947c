//! By what the versions of the shared file are told apart that we wrote.
//!
//! With each version that we write, the times at which a few documents came into the list (`added`) become earlier by a
//! microsecond. Other programs keep these times, so the list that a program writes later says which of our versions it
//! had read: such a time is a receipt.

use std::collections::HashMap;

use crate::recents::{List, Mark, Salt, Timestamp, Uri, VersionReceipts};

/// How many documents get a new time with each version, if there are so many.
const CARRIERS: usize = 8;

/// How many receipts are kept: of the last versions, more than are written in a minute.
const MOST: usize = 100 * CARRIERS;

/// Limits of other programs do not reach what is younger, and among the last so many entries.
const SAFE_AGE: std::time::Duration = std::time::Duration::from_secs(29 * 24 * 3600);
const SAFE_ENTRIES: usize = 290;

/// A time that a document has in one version, and in none before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) mark: Mark,
    /// When the document came into the list, as the version says.
    pub(super) added: Timestamp,
    /// When the version was written.
    pub(super) publication: Timestamp,
}

/// The receipts of the last versions, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receipts {
    all: Vec<Receipt>,
    publications: HashMap<(Mark, Timestamp), Timestamp>,
}

impl Receipts {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Receipt> {
        self.all.iter()
    }

    /// Returns which version is the first that has a document with this time, if we made the time up.
    pub(super) fn publication(&self, mark: Mark, added: Timestamp) -> Option<Timestamp> {
        self.publications.get(&(mark, added)).copied()
    }

    /// Returns these receipts with those of a version, unless they are there, and without the oldest.
    pub(super) fn with(&self, version: &VersionReceipts, salt: Salt) -> Receipts {
        let VersionReceipts { publication, added } = version;
        if self.all.last().is_some_and(|last| last.publication >= *publication) {
            return self.clone();
        }
        let new = added.iter().map(|(uri, added)| {
            let (mark, added, publication) = (salt.mark(uri), *added, *publication);
            Receipt { mark, added, publication }
        });
        let all: Vec<Receipt> = self.all.iter().copied().chain(new).collect();
        let first = all.len().saturating_sub(MOST);
        all[first..].iter().copied().collect()
    }

    /// Makes every list look as if its writer had read the last version.
    #[cfg(test)]
    pub(super) fn lie(&mut self) {
        let last = self.all.iter().map(|receipt| receipt.publication).max().unwrap_or_default();
        self.publications.values_mut().for_each(|publication| *publication = last);
    }
}

impl FromIterator<Receipt> for Receipts {
    fn from_iter<T: IntoIterator<Item = Receipt>>(receipts: T) -> Receipts {
        let all: Vec<Receipt> = receipts.into_iter().collect();
        // Of two of one time, which nobody writes, the earlier version proves less.
        let mut publications = HashMap::new();
        for receipt in all.iter().rev() {
            publications.insert((receipt.mark, receipt.added), receipt.publication);
        }
        Receipts { all, publications }
    }
}

/// Chooses the documents that get new times with the next version, and the times.
///
/// They are spread over the list: whoever deletes a document, or those of a day, leaves others that prove it.
pub(super) fn next_times(list: &List, now: Timestamp) -> Vec<(Uri, Timestamp)> {
    let mut all: Vec<_> = list.iter().collect();
    all.sort_by(|a, b| (b.last_used(), &b.uri).cmp(&(a.last_used(), &a.uri)));
    let young = all.iter().take_while(|entry| entry.last_used() >= now.before(SAFE_AGE)).count();
    all.truncate(young.clamp(CARRIERS, SAFE_ENTRIES));
    let count = all.len().min(CARRIERS);
    let chosen = (0..count).map(|number| &all[number * (all.len() - 1) / (count - 1).max(1)]);
    let earlier = |at: Timestamp| Timestamp(at.0.saturating_sub(1));
    chosen.map(|entry| (entry.uri.clone(), earlier(entry.added))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recents::{Addition, Privacy, Record};

    fn list(count: i64) -> List {
        let mut list = List::default();
        for number in 0..count {
            list.apply(Record::Add(Addition {
                uri: Uri::exact(format!("file:///{number}")).unwrap(),
                mime: None,
                groups: Vec::new(),
                privacy: Privacy::Public,
                application: "x".into(),
                exec: "x".into(),
                at: Timestamp(number),
            }));
        }
        list
    }

    #[test]
    fn the_documents_are_spread_and_each_once() {
        let now = Timestamp(1000);
        for count in [0, 1, 2, 7, 8, 9, 100, 5000] {
            let times = next_times(&list(count), now);
            let mut uris: Vec<_> = times.iter().map(|(uri, _)| uri.clone()).collect();
            uris.sort();
            uris.dedup();
            assert_eq!(uris.len(), usize::try_from(count).unwrap().min(CARRIERS), "{count}");
        }
        let times = next_times(&list(5000), now);
        assert_eq!(times[0], (Uri::exact("file:///4999").unwrap(), Timestamp(4998)));
        assert_eq!(times[7].1, Timestamp(5000 - 290 - 1));
    }

    #[test]
    fn old_documents_are_chosen_only_where_there_are_no_others() {
        let now = Timestamp(0).after(SAFE_AGE).after(std::time::Duration::from_micros(90));
        let times = next_times(&list(100), now);
        assert!(times.iter().all(|(_, added)| added.0 >= 89), "{times:?}");
        let times = next_times(&list(5), now);
        assert_eq!(times.len(), 5);
    }

    #[test]
    fn only_the_last_receipts_are_kept() {
        let (salt, uri) = (Salt([1; 16]), Uri::exact("file:///a").unwrap());
        let version = |number: i64| {
            let (publication, added) = (Timestamp(number), Timestamp(-number));
            VersionReceipts { publication, added: vec![(uri.clone(), added)] }
        };
        let all =
            (0..1000).fold(Receipts::default(), |all, number| all.with(&version(number), salt));
        assert_eq!(all.iter().len(), MOST);
        assert_eq!(all.publication(salt.mark(&uri), Timestamp(-999)), Some(Timestamp(999)));
        assert_eq!(all.publication(salt.mark(&uri), Timestamp(0)), None);
        assert_eq!(all.with(&version(999), salt), all);
    }
}
