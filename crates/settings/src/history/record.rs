//! Entries as bytes: each a JSON object with short names, values as GVariant text, packed. A record holds one entry, so
//! that a damaged one costs no other.

use std::time::{Duration, SystemTime};

use gvdb::gvariant::Variant;
use serde::{Deserialize, Serialize};

use super::{HistoryEntry, HistoryProcess, HistoryValue, KeyChange};
use crate::names::DatabaseId;

/// The version of the entries that this program writes.
const VERSION: u32 = 1;
/// The highest ratio that LZ4 reaches, so that a damaged length costs no memory.
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
    /// Generation of the image.
    #[serde(default, skip_serializing_if = "is_zero")]
    g: u64,
    /// Keys: path, old, new.
    k: Vec<(String, StoredValue, StoredValue)>,
    /// How many keys are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    more: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A value as it is stored: text, `null` for none, `false` for one that is hidden, a number of bytes for one that is too
/// long.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredValue {
    Text(String),
    Unset(()),
    Hidden(bool),
    TooLong(u64),
}

impl From<&HistoryValue> for StoredValue {
    fn from(value: &HistoryValue) -> StoredValue {
        match value {
            HistoryValue::Unset => StoredValue::Unset(()),
            HistoryValue::Set(value) => StoredValue::Text(value.print()),
            HistoryValue::Hidden => StoredValue::Hidden(false),
            HistoryValue::TooLong(bytes) => StoredValue::TooLong(*bytes),
        }
    }
}

impl StoredValue {
    fn read(self) -> HistoryValue {
        match self {
            StoredValue::Unset(()) => HistoryValue::Unset,
            StoredValue::Text(text) => {
                Variant::parse(None, &text).map_or(HistoryValue::Hidden, HistoryValue::Set)
            }
            StoredValue::Hidden(_) => HistoryValue::Hidden,
            StoredValue::TooLong(bytes) => HistoryValue::TooLong(bytes),
        }
    }
}

/// Encodes an entry as a record of at most `most` bytes. Parts that are left out for that are marked in `entry`: first
/// values, then keys.
pub(super) fn pack(entry: &mut HistoryEntry, most: usize) -> Vec<u8> {
    let mut record = lz4_flex::block::compress_prepend_size(&encode(entry));
    if record.len() > most {
        for value in entry.keys.iter_mut().flat_map(|key| [&mut key.old, &mut key.new]) {
            if let HistoryValue::Set(set) = value {
                *value = HistoryValue::TooLong(set.as_bytes().len() as u64);
            }
        }
        record = lz4_flex::block::compress_prepend_size(&encode(entry));
    }
    while record.len() > most && !entry.keys.is_empty() {
        let stay = entry.keys.len() / 2;
        entry.left_out += (entry.keys.len() - stay) as u64;
        entry.keys.truncate(stay);
        record = lz4_flex::block::compress_prepend_size(&encode(entry));
    }
    record
}

/// Decodes the entries of a record, of which earlier versions wrote several; unknown entries are left out.
pub(super) fn unpack(record: &[u8]) -> Vec<HistoryEntry> {
    let len = record.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
    if len > record.len().saturating_mul(MOST_PACKED) {
        return Vec::new();
    }
    let text = lz4_flex::block::decompress_size_prepended(record).unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(decode).collect()
}

/// Writes an entry.
fn encode(entry: &HistoryEntry) -> Vec<u8> {
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
        g: entry.generation,
        more: entry.left_out,
        k: entry
            .keys
            .iter()
            .map(|key| (key.path.clone(), (&key.old).into(), (&key.new).into()))
            .collect(),
    };
    serde_json::to_vec(&stored).unwrap_or_default()
}

/// Decodes an entry; `None` if it is unknown.
fn decode(bytes: &[u8]) -> Option<HistoryEntry> {
    let stored: Stored = serde_json::from_slice(bytes).ok().filter(|s: &Stored| s.v == VERSION)?;
    let key = |(path, old, new): (String, StoredValue, StoredValue)| KeyChange {
        path,
        old: old.read(),
        new: new.read(),
    };
    Some(HistoryEntry {
        id: stored.id,
        time: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(stored.t))?,
        database: DatabaseId::from_object_path(&stored.db)?,
        sender: stored.by,
        process: stored.pid.map(|pid| HistoryProcess { pid, exe: stored.exe.map(Into::into) }),
        tag: stored.tag,
        generation: stored.g,
        left_out: stored.more,
        keys: stored.k.into_iter().map(key).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let value = |text| HistoryValue::Set(Variant::parse(None, text).unwrap());
        let key = |path: &str, old, new| KeyChange { path: path.into(), old, new };
        let entry = HistoryEntry {
            id: 7,
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            database: DatabaseId::from_object_path("/ca/desrt/dconf/Writer/user").unwrap(),
            sender: ":1.9".into(),
            process: Some(HistoryProcess { pid: 12, exe: Some("/usr/bin/gsettings".into()) }),
            tag: ":1.5:user:3".into(),
            generation: 9,
            left_out: 0,
            keys: vec![
                key("/a", HistoryValue::Unset, value("[byte 1, 2]")),
                key("/b", value("@as []"), HistoryValue::Unset),
                key("/c", HistoryValue::Hidden, value("<('a', uint64 5)>")),
                key("/d", HistoryValue::TooLong(70_000), HistoryValue::Unset),
            ],
        };
        assert_eq!(decode(b"{\"v\":2}"), None);
        assert_eq!(decode(&encode(&entry)), Some(entry.clone()));
        let record = pack(&mut entry.clone(), usize::MAX);
        assert_eq!(unpack(&record), std::slice::from_ref(&entry));
        // Earlier versions put several into a record.
        let two = [encode(&entry), encode(&entry)].join(&b'\n');
        let two = lz4_flex::block::compress_prepend_size(&two);
        assert_eq!(unpack(&two), [entry.clone(), entry]);
    }

    #[test]
    fn what_is_too_much_for_a_record_is_left_out_and_counted() {
        let value = |number: u64| {
            // An odd multiple gives text that packing does not shorten.
            let odd = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            HistoryValue::Set(
                Variant::parse(None, &format!("'{odd:x}{:x}'", odd.rotate_left(7))).unwrap(),
            )
        };
        let keys = (1..=1000).map(|number| KeyChange {
            path: format!("/k{number}"),
            old: HistoryValue::Unset,
            new: value(number),
        });
        let entry = HistoryEntry {
            id: 1,
            time: SystemTime::UNIX_EPOCH,
            database: DatabaseId::from_object_path("/ca/desrt/dconf/Writer/user").unwrap(),
            sender: ":1.9".into(),
            process: None,
            tag: String::new(),
            generation: 1,
            keys: keys.collect(),
            left_out: 0,
        };
        let packed = |most| {
            let mut stored = entry.clone();
            let record = pack(&mut stored, most);
            assert!(record.len() <= most, "{} of {most}", record.len());
            assert_eq!(unpack(&record), [stored.clone()]);
            stored
        };
        assert_eq!(packed(100_000), entry);
        let without_values = packed(20_000);
        assert_eq!(without_values.keys.len(), 1000);
        assert!(matches!(without_values.keys[0].new, HistoryValue::TooLong(bytes) if bytes > 16));
        let part = packed(1000);
        assert!(!part.keys.is_empty() && part.keys.len() as u64 + part.left_out == 1000);
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
