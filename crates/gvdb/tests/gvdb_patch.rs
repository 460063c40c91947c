//! Patched images, compared with images that are written anew.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use unjank_gvdb::{GvdbTable, Image, PatchableImage, Stamp, patch, stamp, write};

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

fn names_len(model: &Model) -> usize {
    model.keys().map(String::len).sum()
}

/// The planted fault: a file that is as long as before, although a value is longer.
fn patch_in_place(mut image: Vec<u8>, name: &str, value: &[u8]) -> Option<PatchableImage> {
    let old = GvdbTable::open(&image).unwrap().value(name)?;
    let start = old.as_ptr().addr() - image.as_ptr().addr();
    image.get_mut(start..start + value.len())?.copy_from_slice(value);
    patch(image, [], 0, 2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, ..ProptestConfig::default() })]

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
        let changes = changes.iter().map(|(name, value)| (*name, Some(&**value)));
        let patched = patch(before, changes, names_len(&model), generation).unwrap();
        prop_assert_eq!(stamp(&patched), Stamp::Good { generation });
        prop_assert_eq!(patched, image(&model, generation).into());
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
        let changes = [("/a/b", Some(&*value))];
        let right = patch(before.clone(), changes, names_len(&model), 2).unwrap();
        assert_eq!(right, image(&model, 2).into());
        assert_ne!(patch_in_place(before.clone(), "/a/b", &value).unwrap(), right);
    }
}

#[test]
fn what_cannot_be_patched_is_left_to_a_new_image() {
    let model: Model = (0..20).map(|n| (format!("/k{n:02}"), vec![n])).collect();
    let entries = || model.iter().map(|(name, value)| (&**name, &**value));
    let (before, len) = (image(&model, 1), names_len(&model));
    let value = Some(&b"x"[..]);
    let patched =
        |changes: &[(&str, Option<&[u8]>)]| patch(before.clone(), changes.iter().copied(), len, 2);
    assert!(patched(&[("/k00", value), ("/new", value), ("/k01", None)]).is_some());
    let all: Vec<_> = model.keys().map(|name| (&**name, value)).collect();
    assert_eq!(patched(&all), None, "many changes");
    let names = ["/n1", "/n2", "/n3", "/n4", "/n5", "/n6", "/n7"];
    assert_eq!(patched(&names.map(|name| (name, value))), None, "many new keys");
    let deep = "/d".repeat(50) + "/k";
    assert_eq!(patched(&[(&deep, value)]), None, "many new directories");
    for name in
        ["", "k00", "/", "//", "/a//b", "/a/", "/\0", "/k00/", &format!("/{}", "x".repeat(70_000))]
    {
        assert_eq!(patched(&[(name, value)]), None, "{name:?} is no key");
    }
    assert_eq!(patch(before.clone(), [], 65 << 20, 2), None, "more names than readers take");
    let unstamped = write(entries(), &Image::default()).unwrap();
    assert_eq!(patch(unstamped.clone(), [], len, 2), None);
    assert_eq!(patch(unstamped, [("/new", value)], len, 2), None);
    let locked = write(entries(), &Image { locks: &["/k00"], generation: Some(1) }).unwrap();
    assert_eq!(patch(locked, [("/k00", value)], len, 2), None);
    let one: Model = [("/a/b".to_owned(), vec![1])].into();
    assert_eq!(patch(image(&one, 1), [("/a/b", None)], 0, 2), None, "the last key");
    assert_eq!(patch(image(&Model::new(), 1), [("/a/b", value)], 4, 2), None, "the first key");
}

#[test]
fn a_reset_of_a_key_that_is_not_there_changes_the_generation_alone() {
    let model: Model = [("/a/b".to_owned(), vec![1])].into();
    let patched = patch(image(&model, 1), [("/a/c/d", None)], names_len(&model), 2);
    assert_eq!(patched, Some(image(&model, 2).into()));
}
