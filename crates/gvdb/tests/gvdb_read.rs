//! Tables that other programs wrote.

use std::collections::BTreeMap;

use unjank_gvdb::ByteOrder;
use unjank_gvdb::{GvdbTable, OpenError, Stamp, stamp};

const REFERENCE: &[u8] = include_bytes!("golden/gvdb-0/reference.gvdb");
const BIG_ENDIAN: &[u8] = include_bytes!("golden/gvdb-0/big-endian-values.gvdb");
const COMPILED: &[u8] = include_bytes!("golden/gvdb-0/compiled-with-locks.gvdb");
const COMPILED_EMPTY: &[u8] = include_bytes!("golden/gvdb-0/compiled-empty.gvdb");
const SERVICE: &[u8] = include_bytes!("golden/gvdb-0/dconf-service-0.40.gvdb");

fn names(table: GvdbTable<'_>) -> Vec<String> {
    table
        .entries()
        .map(|(name, _)| name)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[test]
fn the_reference_file_is_read() {
    let table = GvdbTable::open(REFERENCE).unwrap();
    assert_eq!(table.order(), ByteOrder::Little);
    assert_eq!(table.value("/a/b"), Some(&[1, 0, 0, 0, 0, b'i'][..]));
    assert_eq!(table.list("/").unwrap(), ["a/"]);
    assert_eq!(table.list("/a/").unwrap(), ["b"]);
    assert_eq!(
        table.entries().collect::<Vec<_>>(),
        [("/a/b".to_owned(), &[1, 0, 0, 0, 0, b'i'][..])]
    );
    assert_eq!(table.check(), Ok(()));
    assert_eq!(stamp(REFERENCE), Stamp::None);
    for absent in ["", "/", "/a", "/a/", "a/b", "b", "/a/bb", "/a/a", "/b/a/b"] {
        assert_eq!(table.value(absent), None, "{absent}");
        assert!(!table.has(absent));
    }
    assert_eq!(table.list("/a"), None);
    assert_eq!(table.list("/a/b"), None);
    assert!(table.nested("/a/b").is_none());
    assert!(table.nested(".locks").is_none());
}

#[test]
fn values_of_the_other_byte_order_are_read() {
    let table = GvdbTable::open(BIG_ENDIAN).unwrap();
    assert_eq!(table.order(), ByteOrder::Big);
    assert_eq!(table.value("/a/b"), Some(&[0, 0, 0, 1, 0, b'i'][..]));
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn what_dconf_compile_wrote_is_read_with_its_locks() {
    let table = GvdbTable::open(COMPILED).unwrap();
    assert_eq!(table.check(), Ok(()));
    assert_eq!(names(table), ["/a/b/x", "/a/b/y", "/org/gnome/desktop/z", "/root"]);
    assert_eq!(table.list("/").unwrap(), ["a/", "org/", "root"]);
    assert_eq!(table.value("/a/b/y"), Some(&b"hi\0\0s"[..]));
    let locks = table.nested(".locks").unwrap();
    assert_eq!(names(locks), ["/a/b/x", "/a/b/y"]);
    assert!(locks.has("/a/b/x"));
    assert!(!locks.has("/root"));
}

#[test]
fn what_dconf_compile_wrote_of_nothing_is_read() {
    let table = GvdbTable::open(COMPILED_EMPTY).unwrap();
    assert_eq!(table.check(), Ok(()));
    assert_eq!(table.entries().count(), 0);
    assert_eq!(table.list("/"), None);
}

#[test]
fn what_dconf_service_wrote_is_read() {
    let table = GvdbTable::open(SERVICE).unwrap();
    assert_eq!(table.check(), Ok(()));
    let entries: BTreeMap<_, _> = table.entries().collect();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries["/org/gnome/desktop/interface/font-name"], b"Cantarell 11\0\0s");
    assert_eq!(entries["/ü/日本/k"], b"\x01\0b");
    assert_eq!(table.list("/ü/").unwrap(), ["日本/"]);
    for (name, value) in &entries {
        assert_eq!(table.value(name), Some(*value));
    }
}

#[test]
fn an_empty_table_is_32_bytes() {
    let empty =
        [&b"GVariant\0\0\0\0\0\0\0\0\x18\0\0\0\x20\0\0\0"[..], b"\0\0\0\x28\0\0\0\0"].concat();
    let table = GvdbTable::open(&empty).unwrap();
    assert_eq!(table.check(), Ok(()));
    assert_eq!(table.value("/a"), None);
    assert_eq!(table.entries().count(), 0);
}

#[test]
fn what_is_no_table_is_told_from_a_damaged_one() {
    assert_eq!(GvdbTable::open(b"").unwrap_err(), OpenError::NotGvdb);
    assert_eq!(GvdbTable::open(&REFERENCE[..23]).unwrap_err(), OpenError::NotGvdb);
    assert_eq!(GvdbTable::open(&[0; 140]).unwrap_err(), OpenError::NotGvdb);
    let mut other_version = REFERENCE.to_vec();
    other_version[8] = 1;
    assert_eq!(GvdbTable::open(&other_version).unwrap_err(), OpenError::NotGvdb);
    assert_eq!(GvdbTable::open(&REFERENCE[..100]).unwrap_err(), OpenError::NoTable);
    // dconf takes a database out of use by writing eight zero bytes over its beginning.
    let mut out_of_use = REFERENCE.to_vec();
    out_of_use[..8].fill(0);
    assert_eq!(GvdbTable::open(&out_of_use).unwrap_err(), OpenError::NotGvdb);
}
