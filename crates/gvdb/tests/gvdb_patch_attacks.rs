//! Patches where they are most likely to go wrong: images that are damaged or not ours, names that meet in one hash,
//! directories that come and go with one key, and long lives.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use unjank_gvdb::{GvdbTable, Image, PatchableImage, Stamp, patch, stamp, write};

type Model = BTreeMap<String, Vec<u8>>;
/// A name and its new value, or none for a key that goes.
type Change<'c> = (&'c str, Option<&'c [u8]>);

const VALUE: &[u8] = b"\x01\0b";

fn image(model: &Model, generation: u64) -> Vec<u8> {
    let entries = model.iter().map(|(name, value)| (&**name, &**value));
    write(entries, &Image { generation: Some(generation), ..Image::default() }).unwrap()
}

fn names_len(model: &Model) -> usize {
    model.keys().map(String::len).sum()
}

/// Patches a copy, writes anew what cannot be patched, and checks all of the result; says whether it was patched.
fn step(
    file: &mut PatchableImage,
    model: &mut Model,
    changes: &[Change<'_>],
    generation: u64,
) -> bool {
    for (name, value) in changes {
        match value {
            Some(value) => model.insert((*name).to_owned(), value.to_vec()),
            None => model.remove(*name),
        };
    }
    let patched = patch(file.clone(), changes.iter().copied(), names_len(model), generation);
    let is_patched = patched.is_some();
    *file = patched.unwrap_or_else(|| image(model, generation).into());
    let table = GvdbTable::open(file).unwrap();
    assert_eq!(table.check(), Ok(()), "{changes:?}");
    assert_eq!(stamp(file), Stamp::Good { generation });
    let entries: Model = table.entries().map(|(name, v)| (name, v.to_vec())).collect();
    assert!(entries == *model, "{changes:?}");
    for name in model.keys() {
        assert!(table.value(name).is_some(), "{name} is found by its hash");
    }
    for (name, value) in changes {
        assert_eq!(table.value(name), *value, "{name}");
    }
    is_patched
}

/// Every kind of change that a patch makes, near what [`small`] holds.
const CHANGES: [&[Change<'_>]; 8] = [
    &[("/a/b", Some(b"\x02\0y"))],
    &[("/a/b", Some(b"longer than it was\0\0s"))],
    &[("/a/new", Some(VALUE))],
    &[("/a/c/new/deep/k", Some(VALUE))],
    &[("/a/b", None)],
    &[("/e/f/g", None)],
    &[("/z", Some(VALUE)), ("/a/c/d", None)],
    &[],
];

fn small() -> Model {
    ["/a/b", "/a/c/d", "/a/c/e", "/e/f/g", "/h"]
        .map(|name| (name.to_owned(), b"\x01\0\0\0\0u".to_vec()))
        .into()
}

/// Patches what may be anything, and returns the longest result.
fn longest(damaged: &[u8]) -> usize {
    let patched = CHANGES.iter().map(|changes| {
        patch(damaged.to_vec(), changes.iter().copied(), 100, 2).map_or(0, |p| p.len())
    });
    patched.max().unwrap()
}

#[test]
fn no_damage_of_any_byte_makes_a_patch_fail_or_grow() {
    let whole = image(&small(), 1);
    let most = whole.len() * 4;
    for at in 0..whole.len() {
        for damage in [0, 0x01, 0x7f, 0x80, 0xff, whole[at] ^ 4, whole[at].wrapping_add(1)] {
            let mut damaged = whole.clone();
            damaged[at] = damage;
            assert!(longest(&damaged) < most, "byte {at} is {damage}");
        }
        assert!(longest(&whole[..at]) < most, "cut at {at}");
        let mut zeroed = whole.clone();
        zeroed[at..].fill(0);
        assert!(longest(&zeroed) < most, "zeros from {at}");
    }
    // Whole words, as an offset, an index or a length would be.
    for at in (0..whole.len() - 3).step_by(2) {
        let len = u32::try_from(whole.len()).unwrap();
        for word in
            [0, 1, 23, 24, len - 1, len, len + 1, 0x7fff_ffff, 0x8000_0000, u32::MAX - 7, u32::MAX]
        {
            let mut damaged = whole.clone();
            damaged[at..at + 4].copy_from_slice(&word.to_le_bytes());
            assert!(longest(&damaged) < most, "word {at} is {word:#x}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_in_several_places_makes_a_patch_fail_or_grow(
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 4]>(), 1..5_usize), 1..6)
    ) {
        let mut damaged = image(&small(), 1);
        let most = damaged.len() * 4;
        for (at, bytes, len) in &damages {
            let at = at.index(damaged.len() - 4);
            damaged[at..at + len.min(&4)].copy_from_slice(&bytes[..*len.min(&4)]);
        }
        prop_assert!(longest(&damaged) < most);
    }
}

#[test]
fn images_of_dconf_are_never_patched() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut found = 0;
    for entry in walk(golden.as_ref()) {
        let bytes = std::fs::read(&entry).unwrap();
        if GvdbTable::open(&bytes).is_err() || stamp(&bytes) != Stamp::None {
            continue;
        }
        found += 1;
        for changes in CHANGES {
            assert_eq!(patch(bytes.clone(), changes.iter().copied(), 100, 2), None, "{entry:?}");
        }
    }
    assert!(found > 0, "no file of dconf in {golden}");
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Names of one length whose hashes are all the same: `bA` and `ab` have the same.
fn collisions(pairs: u32) -> Vec<String> {
    (0..1_u32 << pairs)
        .map(|bits| {
            let pair = |n| if bits >> n & 1 == 0 { "ab" } else { "bA" };
            (0..pairs).map(pair).collect()
        })
        .collect()
}

#[test]
fn keys_and_directories_whose_hashes_are_all_the_same_come_and_go() {
    let names = collisions(5);
    let mut model: Model =
        names.iter().step_by(2).map(|name| (format!("/{name}"), VALUE.to_vec())).collect();
    let mut file = PatchableImage::from(image(&model, 1));
    let mut n_patched = 0;
    for (generation, name) in (2..).zip(&names) {
        let key = format!("/{name}");
        let below = format!("/d/{name}/k");
        let value = (!model.contains_key(&key)).then_some(VALUE);
        n_patched += u32::from(step(&mut file, &mut model, &[(&key, value)], generation));
        n_patched += u32::from(step(&mut file, &mut model, &[(&below, Some(VALUE))], generation));
    }
    for (generation, name) in (2..).zip(names.iter().rev()) {
        let below = format!("/d/{name}/k");
        n_patched += u32::from(step(&mut file, &mut model, &[(&below, None)], generation));
    }
    assert!(n_patched > 80, "{n_patched} patches");
    assert!(model.keys().all(|name| !name.starts_with("/d/")) && !model.is_empty());
}

#[test]
fn names_of_one_character_come_and_go_in_every_order() {
    let letters = ["a", "b", "-", "~", "ü", "!", "0", "\u{7f}"];
    let mut model: Model = [("/m".to_owned(), VALUE.to_vec())].into();
    let mut file = PatchableImage::from(image(&model, 1));
    let mut generation = 1;
    for depth in [1, 2, 3] {
        let mut paths = vec![String::new()];
        for _ in 0..depth {
            let longer = |path: &String| letters.map(|letter| format!("{path}/{letter}"));
            paths = paths.iter().step_by(3).flat_map(longer).collect();
        }
        for (from, is_set) in [(0, true), (1, false), (0, false), (1, true), (0, true)] {
            for path in paths.iter().skip(from).step_by(2) {
                generation += 1;
                // A key and a directory of one name stand beside each other.
                let value = is_set.then_some(VALUE);
                step(&mut file, &mut model, &[(path, value)], generation);
            }
        }
    }
    assert!(model.len() > 20);
}

#[test]
fn the_last_key_of_a_directory_takes_it_along_however_deep_it_is() {
    for depth in 1..20 {
        let dirs: String = (0..depth).map(|n| format!("/d{n}")).collect();
        let deep = format!("{dirs}/k");
        for beside in ["/a", "/d0/a", "/d0/z", "/d0/d1/a", "/z", "/d", "/d0a/x"] {
            let mut model: Model =
                [beside, &deep].map(|name| (name.to_owned(), VALUE.to_vec())).into();
            let mut file = PatchableImage::from(image(&model, 1));
            let before = file.clone();
            step(&mut file, &mut model, &[(&deep, None)], 2);
            step(&mut file, &mut model, &[(&deep, Some(VALUE))], 3);
            step(&mut file, &mut model, &[(beside, None)], 4);
            step(&mut file, &mut model, &[(beside, Some(VALUE))], 1);
            assert_eq!(names(&file), names(&before));
        }
    }
}

fn names(file: &[u8]) -> Vec<String> {
    GvdbTable::open(file).unwrap().entries().map(|(name, _)| name).collect()
}

#[test]
fn a_value_and_a_key_change_in_an_image_of_more_than_16_mib() {
    let big = |n: u8| {
        let mut value = vec![n; 3 << 20];
        value.extend_from_slice(b"\0ay");
        value
    };
    let mut model: Model = (0..6_u8).map(|n| (format!("/d{}/k{n}", n % 3), big(n))).collect();
    let mut file = PatchableImage::from(image(&model, 1));
    assert!(file.len() > 16 << 20);
    for changes in [
        &[("/d1/k1", Some(VALUE))][..],
        &[("/d1/new", Some(VALUE))],
        &[("/d1/k1", Some(&*big(9)))],
        &[("/d0/k0", None)],
        &[("/d0/k3", None)],
    ] {
        assert!(step(&mut file, &mut model, changes, 2), "it is patched");
    }
}

#[test]
fn what_a_patch_has_no_room_for_is_left_to_a_new_image() {
    let model = small();
    let file = image(&model, 1);
    let long = "x".repeat(65_535);
    for name in [format!("/{long}"), format!("/{}/k", &long[1..])] {
        let len = names_len(&model) + name.len();
        let patched = patch(file.clone(), [(&*name, Some(VALUE))], len, 2).unwrap();
        assert_eq!(GvdbTable::open(&patched).unwrap().value(&name), Some(VALUE));
        let longer = name.replacen('x', "xx", 1);
        assert_eq!(patch(file.clone(), [(&*longer, Some(VALUE))], len + 1, 2), None);
    }
}
