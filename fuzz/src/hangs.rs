//! Records of hangs: what bytes of any kind must keep to.

use hangs::codec::{decode, encode};
use hangs::history::{HangHistory, TimeSpan};
use hangs::store::StoredHistory;

/// A record: what is read is written again as it was, and what is made of it does not fail.
pub fn record(data: &[u8]) {
    let Ok(record) = decode(data) else { return };
    let bytes = encode(&record);
    assert_eq!(decode(&bytes).as_ref(), Ok(&record), "written and read again");
    let mut stored = StoredHistory::default();
    stored.add(data);
    stored.add(&bytes);
    let history = HangHistory::select(&stored, TimeSpan::ALL, None, 0);
    assert!(history.hangs.len() <= 1, "one number is one hang");
}
