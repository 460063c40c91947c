//! Images that we write, read back and compared with a model.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use unjank_gvdb::{GvdbTable, Image, Stamp, TableWriteError, stamp, write};

type Model = BTreeMap<String, Vec<u8>>;

fn image(model: &Model, options: &Image<'_>) -> Vec<u8> {
    write(model.iter().map(|(name, value)| (&**name, &**value)), options).unwrap()
}

fn number(n: u32) -> Vec<u8> {
    [&n.to_ne_bytes()[..], b"\0u"].concat()
}

/// The children of every directory, as a walk over all keys finds them.
fn directories(model: &Model) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in model.keys() {
        let slashes: Vec<usize> = name.match_indices('/').map(|(at, _)| at + 1).collect();
        for (index, &start) in slashes.iter().enumerate() {
            let end = slashes.get(index + 1).copied().unwrap_or(name.len());
            found.entry(name[..start].to_owned()).or_default().insert(name[start..end].to_owned());
        }
    }
    found
}

fn check_against(model: &Model, image: &[u8]) {
    let table = GvdbTable::open(image).unwrap();
    assert_eq!(table.check(), Ok(()));
    let read: Model = table.entries().map(|(name, value)| (name, value.to_vec())).collect();
    assert_eq!(&read, model);
    for (name, value) in model {
        assert_eq!(table.value(name), Some(&**value), "{name}");
        assert_eq!(
            table.value(&format!("{name}x")).is_some(),
            model.contains_key(&format!("{name}x"))
        );
    }
    for (dir, children) in directories(model) {
        let listed = table.list(&dir).unwrap();
        assert!(listed.is_sorted(), "{dir}: {listed:?}");
        assert_eq!(listed.iter().map(|&child| child.to_owned()).collect::<BTreeSet<_>>(), children);
        assert_eq!(listed.len(), children.len());
    }
}

fn path() -> impl Strategy<Value = String> {
    // Few letters, so that paths meet; `-` sorts before `/`, `.` too, `ü` is signed in the hash.
    prop::collection::vec("[ab.ü-]{1,3}", 1..5).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u32>().prop_map(number),
        "[a-z]{0,20}".prop_map(|text| [text.as_bytes(), b"\0\0s"].concat()),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| [&bytes[..], b"\0ay"].concat()),
    ]
}

proptest! {
    #[test]
    fn any_set_of_keys_is_read_back(
        model in prop::collection::btree_map(path(), value(), 0..60),
        locks in prop::collection::vec(path(), 0..5),
        generation in prop::option::of(any::<u64>()),
    ) {
        let lock_names: Vec<&str> = locks.iter().map(|lock| &**lock).collect();
        let bytes = image(&model, &Image { locks: &lock_names, generation });
        check_against(&model, &bytes);
        let expected = generation.map_or(Stamp::None, |generation| Stamp::Good { generation });
        prop_assert_eq!(stamp(&bytes), expected);
        let read = GvdbTable::open(&bytes).unwrap().nested(".locks");
        prop_assert_eq!(read.is_some(), !locks.is_empty());
        for lock in &locks {
            prop_assert!(read.unwrap().has(lock));
        }
    }
}

#[test]
fn an_image_of_nothing_is_the_32_bytes_of_the_reference() {
    let bytes = image(&Model::new(), &Image::default());
    assert_eq!(
        bytes,
        [&b"GVariant\0\0\0\0\0\0\0\0\x18\0\0\0\x20\0\0\0"[..], b"\0\0\0\x28\0\0\0\0"].concat()
    );
}

#[test]
fn an_image_of_nothing_may_have_a_stamp() {
    let bytes = image(&Model::new(), &Image { generation: Some(7), ..Image::default() });
    assert_eq!(stamp(&bytes), Stamp::Good { generation: 7 });
    check_against(&Model::new(), &bytes);
}

#[test]
fn many_keys_in_one_directory_and_many_directories_are_read_back() {
    let flat: Model = (0..20_000).map(|n| (format!("/flat/k{n}"), number(n))).collect();
    check_against(&flat, &image(&flat, &Image { generation: Some(1), ..Image::default() }));
    let deep: Model =
        (0..300).map(|n| (format!("{}/k", "/d".repeat(n as usize)), number(n))).collect();
    check_against(&deep, &image(&deep, &Image::default()));
}

#[test]
fn the_golden_file_of_stamp_1_is_good_and_is_still_what_we_write() {
    let golden = include_bytes!("golden/gvdb-0/stamped-1.gvdb");
    assert_eq!(stamp(golden), Stamp::Good { generation: 3 });
    let table = GvdbTable::open(golden).unwrap();
    assert_eq!(table.check(), Ok(()));
    assert_eq!(table.value("/a/b"), Some(&b"\x01\0\0\0\0u"[..]));
    assert_eq!(table.value("/a/c/d"), Some(&b"hi\0\0s"[..]));
    assert!(table.nested(".locks").unwrap().has("/a/b"));
    if cfg!(target_endian = "little") {
        let entries = [("/a/b", &b"\x01\0\0\0\0u"[..]), ("/a/c/d", b"hi\0\0s")];
        let image = Image { locks: &["/a/b"], generation: Some(3) };
        assert_eq!(write(entries.into_iter(), &image).unwrap(), golden);
    }
}

#[test]
fn what_is_no_key_is_refused() {
    for name in ["", "a", "a/b", "/", "/a/", "//", "//a", "/a//b", "/a//", "/a\0b", "/\0/b"] {
        let refused = write([(name, &b"\0\0s"[..])].into_iter(), &Image::default());
        assert_eq!(refused, Err(TableWriteError::NotAKey { name: name.to_owned() }), "{name:?}");
    }
    let second = write([("/a/b", &b"\0\0s"[..]), ("x/b", b"\0\0s")].into_iter(), &Image::default());
    assert_eq!(second, Err(TableWriteError::NotAKey { name: "x/b".to_owned() }));
}

#[test]
fn what_is_out_of_order_is_refused() {
    for (first, second) in [("/b", "/a"), ("/a", "/a"), ("/a/b/c", "/a/b"), ("/a/b", "/a-b")] {
        let refused =
            write([(first, &b"\0\0s"[..]), (second, b"\0\0s")].into_iter(), &Image::default());
        assert_eq!(refused, Err(TableWriteError::OutOfOrder { name: second.to_owned() }));
    }
}

#[test]
fn a_part_of_a_name_has_at_most_65535_bytes() {
    let longest: Model = [
        (format!("/{}", "x".repeat(65_535)), number(1)),
        (format!("/{}/k", "y".repeat(65_534)), number(2)),
    ]
    .into();
    check_against(&longest, &image(&longest, &Image::default()));
    for name in [format!("/{}", "x".repeat(65_536)), format!("/{}/k", "y".repeat(65_535))] {
        let refused = write([(&*name, &b"\0\0s"[..])].into_iter(), &Image::default());
        assert_eq!(refused, Err(TableWriteError::NameTooLong { len_bytes: name.len() }));
    }
    let long = "/0123456789".repeat(100_000);
    let refused = write([(&*long, &b"\0\0s"[..])].into_iter(), &Image::default());
    assert_eq!(refused, Err(TableWriteError::NameTooLong { len_bytes: long.len() }));
    let lock = format!("/{}", "x".repeat(65_535));
    let refused = write(std::iter::empty(), &Image { locks: &[&lock], generation: None });
    assert_eq!(refused, Err(TableWriteError::NameTooLong { len_bytes: lock.len() }));
}

#[test]
fn more_names_than_readers_take_are_refused() {
    // Every key repeats 15 elements of 64 KiB: 1 MiB of file would make 980 MiB of names.
    let dir = format!("/{}", "x".repeat(65_000)).repeat(15);
    let names: Vec<String> = (0..1000).map(|n| format!("{dir}/{n:04}")).collect();
    let refused = write(names.iter().map(|name| (&**name, &b"\0\0s"[..])), &Image::default());
    assert_eq!(refused, Err(TableWriteError::TooLarge));
}
