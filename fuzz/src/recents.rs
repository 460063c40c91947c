//! Recent documents: what records and journals of any bytes must keep to.

use recents::policy::RetentionRules;
use recents::{JournalRecord, RecentList, RecentTime, Uri};
use store::journal::shared::salvage;

/// A record of the journal: what is read is written again as it was, and leads to a list that can be written.
pub fn record(data: &[u8]) {
    let Some(record) = JournalRecord::decode(data) else { return };
    let bytes = record.encode();
    assert_eq!(JournalRecord::decode(&bytes).as_ref(), Some(&record), "written and read again");
    let mut list = RecentList::default();
    // Twice: what it adds meets what is there already.
    list.apply(record.clone());
    list.apply(record);
    let mut again = RecentList::default();
    list.records(RecentTime(i64::MIN)).into_iter().for_each(|record| again.apply(record));
    assert!(again.iter().eq(list.iter()), "the fewest records lead to the same list");
    list.limit(0, None);
    assert!(list.is_empty());
}

/// The bytes of a whole journal: what is found in it is no more than what it holds.
pub fn journal(data: &[u8]) {
    let records = salvage(data);
    let length: usize = records.iter().map(Vec::len).sum();
    assert!(length <= data.len(), "{length} bytes of {}", data.len());
    records.iter().for_each(|bytes| record(bytes));
}

/// What somebody names a document: a URI that is read again means the same.
pub fn uri(data: &[u8]) {
    let Ok(uri) = Uri::parse(data) else { return };
    let again = Uri::parse(uri.as_str().as_bytes());
    assert_eq!(again.as_ref(), Ok(&uri), "read again");
    if let Some(path) = uri.to_path() {
        assert_eq!(Uri::of_path(&path).as_ref(), Ok(&uri), "{path:?}");
    }
    if let Some(other) = uri.other_spelling() {
        assert_eq!(other.to_path(), uri.to_path());
    }
    let rules = RetentionRules::parse(data);
    assert_eq!(RetentionRules::parse(&rules.to_bytes()).iter().count(), rules.iter().count());
}
