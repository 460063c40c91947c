//! Entries as bytes: each a JSON object with short names, values as GVariant text; a record holds a packed batch of them.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use store::table::gvariant::Variant;

use super::{Entry, KeyChange, Process, Value};
use crate::settings::engine::DatabaseId;

/// The version of the entries that this program writes.
const VERSION: u32 = 1;
/// A record takes no further entry once its text has this many bytes.
const ENOUGH_BYTES: usize = 64 << 10;
/// No packed text is longer than this many times its bytes: what LZ4 can do, so that a damaged length costs no memory.
const MOST_PACKED: usize = 255;

/// An entry as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// Version.
    v: u32,
    id: u64,
    /// Milliseconds since 1970.
    t: u64,
    /// Object path of the database.
    db: String,
    /// Sender.
    by: String,
    tag: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exe: Option<String>,
    /// Keys: path, old, new.
    k: Vec<(String, StoredValue, StoredValue)>,
}

/// A value as it is stored: text, `null` for none, `false` for one that is hidden.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredValue {
    Text(String),
    Unset(()),
    Hidden(bool),
}

impl From<&Value> for StoredValue {
    fn from(value: &Value) -> StoredValue {
        match value {
            Value::Unset => StoredValue::Unset(()),
            Value::Set(value) => StoredValue::Text(value.print()),
            Value::Hidden => StoredValue::Hidden(false),
        }
    }
}

impl StoredValue {
    fn read(self) -> Value {
        match self {
            StoredValue::Unset(()) => Value::Unset,
            StoredValue::Text(text) => {
                Variant::parse(None, &text).map_or(Value::Hidden, Value::Set)
            }
            StoredValue::Hidden(_) => Value::Hidden,
        }
    }
}

/// Writes entries, as few records as may be.
///
/// The entries of a second say nearly the same of their senders and paths, so that packing leaves a third or less.
pub(super) fn pack<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut text = Vec::new();
    let mut entries = entries.into_iter().peekable();
    while let Some(entry) = entries.next() {
        text.append(&mut encode(entry));
        text.push(b'\n');
        if text.len() >= ENOUGH_BYTES || entries.peek().is_none() {
            records.push(lz4_flex::block::compress_prepend_size(&text));
            text.clear();
        }
    }
    records
}

/// Reads the entries of a record; those that are none of ours are left out.
pub(super) fn unpack(record: &[u8]) -> Vec<Entry> {
    let len = record.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
    if len > record.len().saturating_mul(MOST_PACKED) {
        return Vec::new();
    }
    let text = lz4_flex::block::decompress_size_prepended(record).unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(decode).collect()
}

/// Writes an entry.
fn encode(entry: &Entry) -> Vec<u8> {
    let since = entry.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let stored = Stored {
        v: VERSION,
        id: entry.id,
        t: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        db: entry.database.object_path(),
        by: entry.sender.clone(),
        tag: entry.tag.clone(),
        pid: entry.process.as_ref().map(|process| process.pid),
        exe: entry
            .process
            .as_ref()
            .and_then(|process| process.exe.as_ref())
            .map(|exe| exe.to_string_lossy().into_owned()),
        k: entry
            .keys
            .iter()
            .map(|key| (key.path.clone(), (&key.old).into(), (&key.new).into()))
            .collect(),
    };
    serde_json::to_vec(&stored).unwrap_or_default()
}

/// Reads an entry; `None` if it is none of ours.
fn decode(bytes: &[u8]) -> Option<Entry> {
    let stored: Stored = serde_json::from_slice(bytes).ok().filter(|s: &Stored| s.v == VERSION)?;
    let key = |(path, old, new): (String, StoredValue, StoredValue)| KeyChange {
        path,
        old: old.read(),
        new: new.read(),
    };
    Some(Entry {
        id: stored.id,
        time: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(stored.t))?,
        database: DatabaseId::from_object_path(&stored.db)?,
        sender: stored.by,
        process: stored.pid.map(|pid| Process { pid, exe: stored.exe.map(Into::into) }),
        tag: stored.tag,
        keys: stored.k.into_iter().map(key).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let value = |text| Value::Set(Variant::parse(None, text).unwrap());
        let key = |path: &str, old, new| KeyChange { path: path.into(), old, new };
        let entry = Entry {
            id: 7,
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            database: DatabaseId::from_object_path("/ca/desrt/dconf/Writer/user").unwrap(),
            sender: ":1.9".into(),
            process: Some(Process { pid: 12, exe: Some("/usr/bin/gsettings".into()) }),
            tag: ":1.5:user:3".into(),
            keys: vec![
                key("/a", Value::Unset, value("[byte 1, 2]")),
                key("/b", value("@as []"), Value::Unset),
                key("/c", Value::Hidden, value("<('a', uint64 5)>")),
            ],
        };
        assert_eq!(decode(b"{\"v\":2}"), None);
        assert_eq!(decode(&encode(&entry)), Some(entry.clone()));
        let many = vec![entry; 1000];
        let records = pack(&many);
        assert!(records.len() > 1, "all in one record");
        assert_eq!(records.iter().flat_map(|record| unpack(record)).collect::<Vec<_>>(), many);
        let bytes: usize = records.iter().map(Vec::len).sum();
        assert!(bytes * 3 < many.iter().map(|entry| encode(entry).len()).sum());
        assert!(pack(&[]).is_empty());
    }

    #[test]
    fn damaged_records_hold_nothing_and_cost_nothing() {
        assert_eq!(unpack(b""), []);
        assert_eq!(unpack(&[0xff; 64]), []);
        assert_eq!(unpack(b"{\"v\":1}"), []);
        for cut in 0..20 {
            unpack(&lz4_flex::block::compress_prepend_size(&[b'['; 4000])[..cut]);
        }
    }
}
