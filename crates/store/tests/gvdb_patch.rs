//! Patched images, compared with images that are written anew.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use unjank_store::table::gvdb::{Image, Stamp, Table, patch, stamp, write};

type Model = BTreeMap<String, Vec<u8>>;

fn image(model: &Model, generation: u64) -> Vec<u8> {
    let entries = model.iter().map(|(name, value)| (&**name, &**value));
    write(entries, &Image { generation: Some(generation), ..Image::default() }).unwrap()
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab.ü-]{1,3}", 1..5).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

/// The planted fault: a file that is as long as before, although a value is longer.
fn patch_in_place(mut image: Vec<u8>, name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let old = Table::open(&image).unwrap().value(name)?;
    let start = old.as_ptr().addr() - image.as_ptr().addr();
    image.get_mut(start..start + value.len())?.copy_from_slice(value);
    patch(image, [], 2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_patched_image_is_the_one_that_is_written_anew(
        mut model in prop::collection::btree_map(path(), value(), 1..30),
        changes in prop::collection::vec((any::<Index>(), value()), 0..5),
        generation: u64,
    ) {
        let before = image(&model, 1);
        let names: Vec<String> = model.keys().cloned().collect();
        let changes: Vec<(&str, Vec<u8>)> =
            changes.iter().map(|(index, value)| (&**index.get(&names), value.clone())).collect();
        for (name, value) in &changes {
            model.insert((*name).to_owned(), value.clone());
        }
        let changes = changes.iter().map(|(name, value)| (*name, &**value));
        let patched = patch(before, changes, generation).unwrap();
        prop_assert_eq!(stamp(&patched), Stamp::Good { generation });
        prop_assert_eq!(patched, image(&model, generation));
    }
}

#[test]
fn the_comparison_catches_a_patch_that_moves_nothing() {
    let mut model: Model =
        ["/a/b", "/a/c/d", "/e"].map(|name| (name.to_owned(), b"\x01\0\0\0\0u".to_vec())).into();
    let before = image(&model, 1);
    for longer in [7, 8, 9, 30] {
        let value = vec![7; longer];
        model.insert("/a/b".to_owned(), value.clone());
        let right = patch(before.clone(), [("/a/b", &*value)], 2).unwrap();
        assert_eq!(right, image(&model, 2));
        assert_ne!(patch_in_place(before.clone(), "/a/b", &value).unwrap(), right);
    }
}

#[test]
fn what_changes_the_layout_of_the_table_is_left_to_a_new_image() {
    let model: Model = (0..20).map(|n| (format!("/k{n:02}"), vec![n])).collect();
    let before = image(&model, 1);
    assert_eq!(patch(before.clone(), [("/new", &b"x"[..])], 2), None);
    let all = model.keys().map(|name| (&**name, &b"x"[..]));
    assert_eq!(patch(before, all, 2), None, "many changes");
    let unstamped = write(model.iter().map(|(name, value)| (&**name, &**value)), &Image::default());
    assert_eq!(patch(unstamped.unwrap(), [], 2), None);
    let locks = &["/k00"][..];
    let locked = write(
        model.iter().map(|(name, value)| (&**name, &**value)),
        &Image { locks, generation: Some(1) },
    );
    assert_eq!(patch(locked.unwrap(), [("/k00", &b"longer"[..])], 2), None);
}
