//! Receipts, by which versions of the shared file that unjank wrote are distinguished.
//!
//! With each version that unjank writes, the times at which a few documents were added (`added`) become earlier by a
//! microsecond. Other programs keep these times, so a list that a program writes later tells which version it
//! had read: such a time is a receipt.

use std::collections::HashMap;

use crate::{RecentList, RecentTime, Salt, Uri, UriHash, VersionReceipts};

/// The most documents that receive a new time with each version.
const CARRIERS: usize = 8;

/// The most receipts that are kept: those of more versions than are written in a minute.
const MOST: usize = 100 * CARRIERS;

/// Younger entries among the last of this number are not dropped by limits of other programs.
const SAFE_AGE: std::time::Duration = std::time::Duration::from_secs(29 * 24 * 3600);
const SAFE_ENTRIES: usize = 290;

/// A time that a document has in one version, and in no earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) mark: UriHash,
    /// When the document was added, as the version says.
    pub(super) added: RecentTime,
    /// When the version was written.
    pub(super) publication: RecentTime,
}

/// The receipts of the last versions, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receipts {
    all: Vec<Receipt>,
    publications: HashMap<(UriHash, RecentTime), RecentTime>,
}

impl Receipts {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Receipt> {
        self.all.iter()
    }

    /// Returns the first version in which the document has this time, if the time is a receipt.
    pub(super) fn publication(&self, mark: UriHash, added: RecentTime) -> Option<RecentTime> {
        self.publications.get(&(mark, added)).copied()
    }

    /// Returns these receipts together with those of a version, without the oldest ones.
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

    /// Changes the receipts so that every list seems to be written by a program that had read the last version.
    #[cfg(test)]
    pub(super) fn lie(&mut self) {
        let last = self.all.iter().map(|receipt| receipt.publication).max().unwrap_or_default();
        self.publications.values_mut().for_each(|publication| *publication = last);
    }
}

impl FromIterator<Receipt> for Receipts {
    fn from_iter<T: IntoIterator<Item = Receipt>>(receipts: T) -> Receipts {
        let all: Vec<Receipt> = receipts.into_iter().collect();
        // If two receipts have one time, which no program writes, the earlier version counts.
        let mut publications = HashMap::new();
        for receipt in all.iter().rev() {
            publications.insert((receipt.mark, receipt.added), receipt.publication);
        }
        Receipts { all, publications }
    }
}

/// Chooses the documents that receive new times with the next version, and the times.
///
/// They are spread over the list, so that some remain when a user deletes a document or those of a day.
pub(super) fn next_times(list: &RecentList, now: RecentTime) -> Vec<(Uri, RecentTime)> {
    let mut all: Vec<_> = list.iter().collect();
    all.sort_by(|a, b| (b.last_used(), &b.uri).cmp(&(a.last_used(), &a.uri)));
    let young = all.iter().take_while(|entry| entry.last_used() >= now.before(SAFE_AGE)).count();
    all.truncate(young.clamp(CARRIERS, SAFE_ENTRIES));
    let count = all.len().min(CARRIERS);
    let chosen = (0..count).map(|number| &all[number * (all.len() - 1) / (count - 1).max(1)]);
    let earlier = |at: RecentTime| RecentTime(at.0.saturating_sub(1));
    chosen.map(|entry| (entry.uri.clone(), earlier(entry.added))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Addition, JournalRecord, Privacy};

    fn list(count: i64) -> RecentList {
        let mut list = RecentList::default();
        for number in 0..count {
            list.apply(JournalRecord::Add(Addition {
                uri: Uri::exact(format!("file:///{number}")).unwrap(),
                mime: None,
                groups: Vec::new(),
                privacy: Privacy::Public,
                application: "x".into(),
                exec: "x".into(),
                at: RecentTime(number),
            }));
        }
        list
    }

    #[test]
    fn the_documents_are_spread_and_each_once() {
        let now = RecentTime(1000);
        for count in [0, 1, 2, 7, 8, 9, 100, 5000] {
            let times = next_times(&list(count), now);
            let mut uris: Vec<_> = times.iter().map(|(uri, _)| uri.clone()).collect();
            uris.sort();
            uris.dedup();
            assert_eq!(uris.len(), usize::try_from(count).unwrap().min(CARRIERS), "{count}");
        }
        let times = next_times(&list(5000), now);
        assert_eq!(times[0], (Uri::exact("file:///4999").unwrap(), RecentTime(4998)));
        assert_eq!(times[7].1, RecentTime(5000 - 290 - 1));
    }

    #[test]
    fn old_documents_are_chosen_only_where_there_are_no_others() {
        let now = RecentTime(0).after(SAFE_AGE).after(std::time::Duration::from_micros(90));
        let times = next_times(&list(100), now);
        assert!(times.iter().all(|(_, added)| added.0 >= 89), "{times:?}");
        let times = next_times(&list(5), now);
        assert_eq!(times.len(), 5);
    }

    #[test]
    fn only_the_last_receipts_are_kept() {
        let (salt, uri) = (Salt([1; 16]), Uri::exact("file:///a").unwrap());
        let version = |number: i64| {
            let (publication, added) = (RecentTime(number), RecentTime(-number));
            VersionReceipts { publication, added: vec![(uri.clone(), added)] }
        };
        let all =
            (0..1000).fold(Receipts::default(), |all, number| all.with(&version(number), salt));
        assert_eq!(all.iter().len(), MOST);
        assert_eq!(all.publication(salt.mark(&uri), RecentTime(-999)), Some(RecentTime(999)));
        assert_eq!(all.publication(salt.mark(&uri), RecentTime(0)), None);
        assert_eq!(all.with(&version(999), salt), all);
    }
}
