//! Patched images, compared place by place with images that are written anew.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{PatchableImage, patch};
use crate::layout::{HEADER_LEN, LIST, NO_PARENT, TABLE, TableItem, VALUE};
use crate::read::GvdbTable;
use crate::{Image, Stamp, stamp, write};

type Model = BTreeMap<String, Vec<u8>>;

fn image(model: &Model, generation: u64) -> Vec<u8> {
    let entries = model.iter().map(|(name, value)| (&**name, &**value));
    write(entries, &Image { generation: Some(generation), ..Image::default() }).unwrap()
}

fn names_len(model: &Model) -> usize {
    model.keys().map(String::len).sum()
}

/// One item, without what depends on the number of buckets: offsets count from the first name, and items are named by
/// their place in the order of the names.
#[derive(Debug, PartialEq)]
struct Placed {
    name_at: u32,
    part: String,
    hash: u32,
    kind: u8,
    parent: Option<usize>,
    value_at: u32,
    value: Vec<u8>,
    children: Vec<usize>,
}

/// Returns everything that an image holds in the order of the names, and its length from the first name on.
fn placed(image: &[u8]) -> (Vec<Placed>, usize) {
    let table = GvdbTable::open(image).unwrap();
    let items: Vec<TableItem> = table.items.iter().map(TableItem::decode).collect();
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| items[*index].key_start);
    let mut rank = vec![0; items.len()];
    for (place, index) in order.iter().enumerate() {
        rank[*index] = place;
    }
    let first = items[order[0]].key_start;
    let place = |index: &usize| {
        let item = items[*index];
        let bytes = item.value.of(image, 4).unwrap();
        let children = bytes.as_chunks().0.iter().map(|child| u32::from_le_bytes(*child) as usize);
        Placed {
            name_at: item.key_start - first,
            part: String::from_utf8(item.part(image).unwrap().to_vec()).unwrap(),
            hash: item.hash,
            kind: item.kind,
            parent: (item.parent != NO_PARENT).then(|| rank[item.parent as usize]),
            value_at: if item.kind == TABLE { 0 } else { item.value.start - first },
            value: if item.kind == VALUE { bytes.to_vec() } else { Vec::new() },
            children: if item.kind == LIST {
                children.map(|child| rank[child]).collect()
            } else {
                Vec::new()
            },
        }
    };
    (order.iter().map(place).collect(), image.len() - first as usize)
}

/// Checks that an image is one that `write` makes of `model` but for its number of buckets.
fn check(patched: &[u8], model: &Model, generation: u64) {
    let table = GvdbTable::open(patched).unwrap();
    assert_eq!(table.check(), Ok(()));
    assert_eq!(stamp(patched), Stamp::Good { generation });
    assert_eq!(table.span.start as usize, HEADER_LEN);
    let anew = image(model, generation);
    assert_eq!(placed(patched), placed(&anew));
    for bucket in 0..u32::try_from(table.buckets.len()).unwrap() {
        let (start, end) = table.bucket(bucket).unwrap();
        let names: Vec<u32> =
            (start..end).map(|index| table.item(index).unwrap().key_start).collect();
        assert!(names.is_sorted(), "the items of bucket {bucket} are in the order of their names");
    }
    for (name, value) in model {
        assert_eq!(table.value(name), Some(&**value), "{name}");
    }
}

/// Makes one change in model and image; says whether the image was patched.
fn step(
    patched: &mut PatchableImage,
    model: &mut Model,
    changes: &[(String, Option<Vec<u8>>)],
) -> bool {
    for (name, value) in changes {
        match value {
            Some(value) => model.insert(name.clone(), value.clone()),
            None => model.remove(name),
        };
    }
    let generation = u64::try_from(model.len()).unwrap() + 7;
    let touched = changes.iter().map(|(name, _)| (&**name, model.get(name).map(|value| &**value)));
    let new = patch(std::mem::take(patched), touched, names_len(model), generation);
    let is_patched = new.is_some();
    *patched = new.unwrap_or_else(|| image(model, generation).into());
    check(patched, model, generation);
    is_patched
}

fn path() -> impl Strategy<Value = String> {
    // Few letters, so that paths meet; `-` and `.` sort before `/`, and `ü` is signed in the hash.
    prop::collection::vec("[ab.ü-]{1,2}", 1..5).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| [&bytes[..], b"\0ay"].concat())
}

/// A new value for any path, or for a key that is there; or a reset of a key that is there.
fn change() -> impl Strategy<Value = (Option<String>, Index, Option<Vec<u8>>)> {
    prop_oneof![
        (path(), any::<Index>(), value()).prop_map(|(path, index, value)| (
            Some(path),
            index,
            Some(value)
        )),
        (any::<Index>(), prop::option::of(value())).prop_map(|(index, value)| (None, index, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn an_image_that_is_patched_again_and_again_is_the_one_that_is_written_anew(
        mut model in prop::collection::btree_map(path(), value(), 1..40),
        steps in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..30),
    ) {
        let mut patched = PatchableImage::from(image(&model, 1));
        for changes in &steps {
            let names: Vec<String> = model.keys().cloned().collect();
            let changes: Vec<(String, Option<Vec<u8>>)> = changes
                .iter()
                .filter_map(|(path, index, value)| {
                    let known = (!names.is_empty()).then(|| index.get(&names).clone());
                    Some((path.clone().or(known)?, value.clone()))
                })
                .collect();
            step(&mut patched, &mut model, &changes);
        }
    }
}

#[test]
fn keys_come_and_go_in_images_of_every_size() {
    for n_keys in [1_u32, 2, 3, 10, 100, 1000, 10_000] {
        let name = |n: u32| format!("/d{}/e{}/k{n}", n % 7, n % 61);
        let number = |n: u32| [&n.to_ne_bytes()[..], b"\0u"].concat();
        let mut model: Model = (0..n_keys).map(|n| (name(n), number(n))).collect();
        let mut patched = PatchableImage::from(image(&model, 1));
        let all: Vec<u32> = (0..n_keys).step_by(1 + n_keys as usize / 5).collect();
        let mut n_patched = 0;
        for &n in &all {
            let new = format!("{}/new/and/deeper", name(n).rsplit_once('/').unwrap().0);
            let changes = [
                vec![(new.clone(), Some(number(n)))],
                vec![(name(n), None)],
                vec![(name(n), Some(b"\0\0s".to_vec())), (new, None)],
                vec![(name(n), Some(number(n)))],
            ];
            for changes in &changes {
                n_patched += usize::from(step(&mut patched, &mut model, changes));
            }
        }
        assert!(n_patched + 1 >= all.len() * 4, "{n_patched} patches of {n_keys} keys");
    }
}

#[test]
fn a_key_that_comes_and_goes_leaves_every_byte_as_it_was() {
    let model: Model = (0..50).map(|n| (format!("/d{}/k{n}", n % 5), vec![n, 0, b'y'])).collect();
    let before = image(&model, 1);
    for new in ["/a", "/d2/k17x", "/d2/new/dir/k", "/z/y/x", "/d4/zzz"] {
        let len = names_len(&model);
        let value = &b"\x01\0b"[..];
        let with = patch(before.clone(), [(new, Some(value))], len + new.len(), 2).unwrap();
        assert_eq!(GvdbTable::open(&with).unwrap().value(new), Some(value));
        let without = patch(with, [(new, None)], len, 1).unwrap();
        assert_eq!(*without, *before, "{new}");
    }
}

#[test]
fn keys_that_come_without_end_are_written_anew_now_and_then() {
    let mut model: Model = [("/a/b".to_owned(), b"\x01\0b".to_vec())].into();
    let mut patched = PatchableImage::from(image(&model, 1));
    let mut anew = 0;
    for n in 0..600 {
        let changes = [(format!("/a/key{n}"), Some(b"\x01\0b".to_vec()))];
        anew += usize::from(!step(&mut patched, &mut model, &changes));
    }
    assert!((2..25).contains(&anew), "written anew {anew} times for 600 keys");
}
