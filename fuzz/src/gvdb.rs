//! Tables: any bytes are read in every way there is, and any names and values are written and read back.

use std::collections::BTreeMap;

use gvdb::gvariant::VariantView;
use gvdb::{GvdbTable, Image, Stamp, hash, salvage, stamp, write};

/// Reads `bytes` in every way there is, and checks that the ways agree.
pub fn read(bytes: &[u8]) {
    let stamp = stamp(bytes);
    let salvaged = salvage(bytes);
    assert!(salvaged.entries.is_sorted_by(|a, b| a.0 < b.0));
    let Ok(table) = GvdbTable::open(bytes) else {
        assert_eq!(stamp, Stamp::None);
        return;
    };
    let is_whole = table.check().is_ok();
    let entries: Vec<(String, &[u8])> = table.entries().take(1000).collect();
    for (name, value) in &entries {
        let found = table.value(name);
        assert_eq!(found, table.value_with_hash(hash(name.as_bytes()), name));
        if is_whole {
            assert_eq!(found, Some(*value));
        }
        let dir = name.rfind('/').map_or("", |slash| &name[..=slash]);
        let listed = table.list(dir).unwrap_or_default();
        assert!(listed.len() <= bytes.len() / 24);
    }
    if let Some(locks) = table.nested(".locks") {
        locks.entries().take(1000).for_each(drop);
    }
    if is_whole && entries.len() < 1000 {
        // What a check passes, salvage gives back: every key with the value that a reader sees.
        for (name, value) in &salvaged.entries {
            let view = VariantView::inside(table.value(name).unwrap_or_default(), table.order());
            assert!(!salvaged.is_proven(name) || view.to_variant() == *value);
        }
    }
}

/// Takes `bytes` as names and values, writes them and reads them back.
pub fn written(bytes: &[u8]) {
    let texts = bytes.split(|&byte| byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let model: BTreeMap<String, Vec<u8>> =
        texts.map(|text| (text.to_owned(), [text.as_bytes(), b"\0ay"].concat())).collect();
    let image = Image { locks: &[], generation: Some(bytes.len() as u64) };
    let keys = model
        .iter()
        .filter(|(name, _)| write([(&***name, &b"\0\0s"[..])].into_iter(), &image).is_ok());
    let keys: Vec<(&str, &[u8])> = keys.map(|(name, value)| (&**name, &**value)).collect();
    // Each key alone can be written, and so can all of them in byte order.
    let written = write(keys.iter().copied(), &image).unwrap_or_default();
    assert_eq!(stamp(&written), Stamp::Good { generation: bytes.len() as u64 });
    let table = GvdbTable::open(&written);
    assert!(table.is_ok_and(|table| table.check().is_ok()));
    let read: BTreeMap<String, &[u8]> = table.into_iter().flat_map(GvdbTable::entries).collect();
    assert!(read.iter().map(|(name, value)| (&**name, *value)).eq(keys));
}
