//! Bytes that no writer made, and files that were damaged: nothing panics, nothing takes long, and a check sees it.

#[path = "../../../fuzz/src/gvdb.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod fuzz;

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use unjank_gvdb::{GvdbTable, Image, Stamp, TableDamage, hash, salvage, stamp, write};

const GOLDEN: [&[u8]; 6] = [
    include_bytes!("golden/gvdb-0/reference.gvdb"),
    include_bytes!("golden/gvdb-0/big-endian-values.gvdb"),
    include_bytes!("golden/gvdb-0/compiled-with-locks.gvdb"),
    include_bytes!("golden/gvdb-0/compiled-empty.gvdb"),
    include_bytes!("golden/gvdb-0/dconf-service-0.40.gvdb"),
    include_bytes!("golden/gvdb-0/forty-keys-dconf-compile.gvdb"),
];

type Model = BTreeMap<String, Vec<u8>>;

fn entries(bytes: &[u8]) -> Model {
    let table = GvdbTable::open(bytes);
    table
        .into_iter()
        .flat_map(GvdbTable::entries)
        .map(|(name, value)| (name, value.to_vec()))
        .collect()
}

fn ours() -> Vec<u8> {
    let model = entries(GOLDEN[4]);
    let image = Image { locks: &["/org/gnome/desktop/interface/scale"], generation: Some(3) };
    write(model.iter().map(|(name, value)| (&**name, &**value)), &image).expect("keys")
}

#[test]
fn no_cut_flip_or_zero_at_any_offset_makes_a_reader_fail() {
    for file in GOLDEN.into_iter().chain([&*ours()]) {
        for at in 0..file.len() {
            fuzz::read(&file[..at]);
            let mut damaged = file.to_vec();
            damaged[at] = if damaged[at] == 0 { 0xff } else { 0 };
            fuzz::read(&damaged);
        }
    }
}

#[test]
fn the_corpus_of_the_fuzz_targets_passes() {
    replay("gvdb_read", fuzz::read);
    replay("gvdb_written", fuzz::written);
}

fn replay(target: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs: Vec<_> = std::fs::read_dir(&dir).expect("a corpus").flatten().collect();
    assert!(inputs.len() >= 4, "{target}");
    for input in inputs {
        body(&std::fs::read(input.path()).expect("an input"));
    }
}

#[test]
fn a_change_of_any_byte_of_our_file_is_noticed() {
    let file = ours();
    assert_eq!(stamp(&file), Stamp::Good { generation: 3 });
    assert_eq!(GvdbTable::open(&file).map(GvdbTable::check), Ok(Ok(())));
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let is_stamp_bad = stamp(&damaged) == Stamp::Bad;
            let is_structure_bad =
                !matches!(GvdbTable::open(&damaged).map(GvdbTable::check), Ok(Ok(())));
            assert!(is_stamp_bad || is_structure_bad, "bit {bit} of byte {at}");
            assert!(!matches!(stamp(&damaged), Stamp::Good { .. }), "bit {bit} of byte {at}");
        }
        let cut = &file[..at];
        assert!(
            stamp(cut) == Stamp::Bad
                || GvdbTable::open(cut).is_err()
                || GvdbTable::open(cut).is_ok_and(|t| t.check().is_err())
        );
    }
}

#[test]
fn a_change_of_any_byte_of_a_foreign_file_is_noticed_or_changes_one_value_at_most() {
    for file in [GOLDEN[4], GOLDEN[5]] {
        let good = entries(file);
        for at in 0..file.len() {
            let mut damaged = file.to_vec();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(Ok(())) = GvdbTable::open(&damaged).map(GvdbTable::check) {
                let seen = entries(&damaged);
                assert!(seen.keys().eq(good.keys()), "byte {at}");
                let n_changed = seen.iter().filter(|(name, value)| good[*name] != **value).count();
                assert!(n_changed <= 1, "byte {at}");
            }
        }
    }
}

/// One planted fault: what is written where in the reference file, and what a check must say.
#[test]
fn a_check_names_each_planted_fault() {
    let items = |index: usize| 44 + 24 * index;
    let faults: [(&str, usize, &[u8], TableDamage); 13] = [
        ("a bucket that does not ascend", 36, &[9], TableDamage::Buckets),
        ("a first bucket that leaves an item out", 32, &[1], TableDamage::Buckets),
        ("a wrong hash", items(0), &[0x67], TableDamage::Hash { item: 0 }),
        ("a part outside of the file", items(0) + 8, &[0xff], TableDamage::Name { item: 0 }),
        ("another part of the name", 116, b"c", TableDamage::Hash { item: 0 }),
        ("a parent that is not there", items(1) + 4, &[9], TableDamage::Name { item: 0 }),
        ("a circle of parents", items(1) + 4, &[1], TableDamage::Name { item: 0 }),
        ("an item that no bucket leads to", 40, &[2], TableDamage::Lost { item: 1 }),
        ("an unknown type", items(0) + 14, b"x", TableDamage::Type { item: 0 }),
        ("a value that is not in normal form", 125, b"z", TableDamage::Value { item: 0 }),
        ("a value outside of the file", items(0) + 19, &[0x10], TableDamage::Value { item: 0 }),
        ("a list with another item in it", 128, &[2], TableDamage::List { item: 1 }),
        ("a nested table that is none", items(0) + 14, b"H", TableDamage::Table { item: 0 }),
    ];
    for (what, at, bytes, damage) in faults {
        let mut file = GOLDEN[0].to_vec();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(GvdbTable::open(&file).map(GvdbTable::check), Ok(Err(damage)), "{what}");
    }
}

#[test]
fn a_check_notices_an_item_over_another_and_a_name_that_is_there_twice() {
    let mut over = GOLDEN[0].to_vec();
    // The list of "/" is put over the list of "/a/", with the same child in both.
    over[44 + 48 + 16..44 + 48 + 24].copy_from_slice(&[128, 0, 0, 0, 132, 0, 0, 0]);
    assert!(GvdbTable::open(&over).is_ok_and(|table| table.check().is_err()));
    // The locks of the compiled file are two items; the second becomes the first once more.
    let mut twice = GOLDEN[2].to_vec();
    let (first, second) = (0x178, 0x190);
    twice.copy_within(first..first + 24, second);
    // Both are where the bucket of the first says.
    twice[0x174] = 2;
    let nested = GvdbTable::open(&twice).map(GvdbTable::check);
    let Ok(Err(TableDamage::Nested { source, .. })) = nested else { panic!("{nested:?}") };
    assert_eq!(*source, TableDamage::Twice { item: 1 });
}

#[test]
fn a_bloom_filter_is_used_and_checked() {
    let good = with_filter(GOLDEN[5], 4);
    assert_eq!(GvdbTable::open(&good).map(GvdbTable::check), Ok(Ok(())));
    let table = GvdbTable::open(&good).expect("a table");
    for (name, value) in entries(GOLDEN[5]) {
        assert_eq!(table.value(&name), Some(&*value));
    }
    // A filter that lets nothing pass hides every key from readers.
    let mut hiding = good;
    hiding[32..48].fill(0);
    let table = GvdbTable::open(&hiding).expect("a table");
    assert!(entries(GOLDEN[5]).keys().all(|name| !table.has(name)));
    assert!(matches!(table.check(), Err(TableDamage::Lost { .. })));
}

/// Puts `n_words` of bloom filter into a file whose root table is behind the header.
fn with_filter(file: &[u8], n_words: u32) -> Vec<u8> {
    let added = n_words * 4;
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let mut words = vec![0u32; n_words as usize];
    for name in entries(file).keys() {
        for end in name.match_indices('/').map(|(at, _)| at + 1).chain([name.len()]) {
            let hash = hash(&name.as_bytes()[..end]);
            words[(hash / 32 % n_words) as usize] |= (1 << (hash % 32)) | (1 << ((hash >> 5) % 32));
        }
    }
    let filter: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut out =
        [&file[..24], &((5 << 27) | n_words).to_le_bytes(), &file[28..32], &filter, &file[32..]]
            .concat();
    let mut put = |at: usize, value: u32| out[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(20, word(20) + added);
    let n_items = word(28) as usize;
    for at in (0..n_items).map(|index| 32 + 4 * n_items + 24 * index) {
        for field in [8, 16, 20] {
            put(at + field + added as usize, word(at + field) + added);
        }
    }
    out
}

/// A file in which `items` follow the header, each made of ten words' worth of fields.
fn table_of(items: &[[u32; 6]], data: &[u8]) -> Vec<u8> {
    let n_items = u32::try_from(items.len()).expect("few");
    let mut file = b"GVariant\0\0\0\0\0\0\0\0\x18\0\0\0".to_vec();
    file.extend((32 + 28 * n_items).to_le_bytes());
    file.extend((5u32 << 27).to_le_bytes());
    file.extend(n_items.to_le_bytes());
    file.extend(vec![0; items.len() * 4]);
    file.extend(items.iter().flatten().flat_map(|word| word.to_le_bytes()));
    file.extend(data);
    file
}

type Shape<'a> = Box<dyn Fn(u32) -> [u32; 6] + 'a>;

#[test]
fn hostile_tables_take_neither_long_nor_much() {
    const N: u32 = 4_000;
    let data_at = 32 + 28 * N;
    let end = data_at + 70_000;
    let all = vec![b'x'; 70_000];
    let part = |len: u32, kind: u8| len | u32::from(kind) << 16;
    let value = (data_at.next_multiple_of(8), end);
    let shapes: [(&str, Shape<'_>); 6] = [
        (
            "a chain of long parts",
            Box::new(|n| [n, n.wrapping_sub(1), data_at, part(65_535, b'v'), value.0, value.1]),
        ),
        (
            "a chain of short parts",
            Box::new(|n| [n, n.wrapping_sub(1), data_at, part(1, b'v'), value.0, value.1]),
        ),
        (
            "a circle through all",
            Box::new(|n| [n, (n + 1) % N, data_at, part(1, b'v'), value.0, value.1]),
        ),
        (
            "long names side by side",
            Box::new(|n| [n, u32::MAX, data_at, part(65_535, b'v'), value.0, value.1]),
        ),
        ("tables in tables", Box::new(|n| [n, u32::MAX, data_at, part(1, b'H'), 24, data_at])),
        ("lists of everything", Box::new(|n| [n, 0, data_at, part(1, b'L'), 32, data_at])),
    ];
    for (what, shape) in shapes {
        let items: Vec<[u32; 6]> = (0..N).map(shape).collect();
        let file = table_of(&items, &all);
        let table = GvdbTable::open(&file).expect(what);
        assert!(table.check().is_err(), "{what}");
        let named: usize = table.entries().map(|(name, _)| name.len()).sum();
        assert!(named <= (64 << 20).max(file.len() * 64), "{what}: {named} bytes of names");
        assert!(salvage(&file).entries.is_empty(), "{what}");
        assert!(!table.has("/x") && table.list("/").is_none());
    }
}

#[test]
fn huge_counts_make_no_table() {
    for count in [u32::MAX, u32::MAX / 4, 1 << 27, 1 << 30] {
        for at in [16, 20, 24, 28] {
            let mut file = GOLDEN[0].to_vec();
            file[at..at + 4].copy_from_slice(&count.to_le_bytes());
            fuzz::read(&file);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_behind_a_header_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..400), start in 0u32..80, end in 0u32..500) {
        let mut file = b"GVariant\0\0\0\0\0\0\0\0".to_vec();
        file.extend(start.to_le_bytes());
        file.extend(end.to_le_bytes());
        file.extend(&bytes);
        fuzz::read(&file);
    }

    #[test]
    fn any_bytes_can_be_entries_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz::written(&bytes);
    }
}
