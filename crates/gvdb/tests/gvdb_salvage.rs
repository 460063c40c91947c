//! Forty keys, and damage at every offset: what an intact part still proves is never lost, and nothing else comes out.

#![expect(clippy::unwrap_used, clippy::single_range_in_vec_init, reason = "tests; lists of ranges")]

use std::collections::BTreeMap;
use std::ops::Range;

use unjank_gvdb::{
    GvdbTable, Image, PatchableImage, Salvaged, Stamp, patch, salvage, stamp, write,
};

const FOREIGN: &[u8] = include_bytes!("golden/gvdb-0/forty-keys-dconf-compile.gvdb");

type Model = BTreeMap<String, Vec<u8>>;

/// The same keys and values as in `forty-keys-dconf-compile.gvdb`.
fn forty_keys() -> Model {
    GvdbTable::open(FOREIGN)
        .unwrap()
        .entries()
        .map(|(name, value)| (name, value.to_vec()))
        .collect()
}

fn ours() -> Vec<u8> {
    let model = forty_keys();
    assert_eq!(model.len(), 40);
    let entries = model.iter().map(|(name, value)| (&**name, &**value));
    write(entries, &Image { locks: &[], generation: Some(9) }).unwrap()
}

/// The same keys and values in images that keys were added to and taken out of: with more items than buckets, and with
/// fewer.
fn patched() -> [Vec<u8>; 2] {
    let (mut model, mut many) = (forty_keys(), forty_keys());
    let names_len = |model: &Model| model.keys().map(String::len).sum();
    let few: Vec<String> = model.keys().step_by(5).cloned().collect();
    model.retain(|name, _| !few.contains(name));
    let more: Vec<String> = (0..8).map(|n| format!("/more/k{n}")).collect();
    many.extend(more.iter().map(|name| (name.clone(), vec![1, 0, b'y'])));
    let image = |model: &Model| {
        let entries = model.iter().map(|(name, value)| (&**name, &**value));
        write(entries, &Image { locks: &[], generation: Some(9) }).unwrap()
    };
    let (mut grown, mut shrunk) =
        (PatchableImage::from(image(&model)), PatchableImage::from(image(&many)));
    let all = forty_keys();
    for name in &few {
        let value = all.get(name).map(|value| &**value);
        grown = patch(grown, [(&**name, value)], names_len(&all), 9).unwrap();
    }
    for name in &more {
        shrunk = patch(shrunk, [(&**name, None)], names_len(&many), 9).unwrap();
    }
    assert!(n_items(&grown) > word(&grown, 28) && n_items(&shrunk) < word(&shrunk, 28));
    [grown.into(), shrunk.into()]
}

fn word(file: &[u8], at: usize) -> usize {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize
}

fn n_items(file: &[u8]) -> usize {
    (word(file, 20) - 32 - 4 * word(file, 28)) / 24
}

/// The bytes that one key is proved by.
struct Holds {
    /// Its own item without the parent, its part of the name, its value, and the parts of its directories.
    least: Vec<Range<usize>>,
    /// Also its parent field and the items of its directories.
    all: Vec<Range<usize>>,
    value: Range<usize>,
}

/// Finds with plain arithmetic where everything of every key is.
fn holds(file: &[u8]) -> BTreeMap<String, Holds> {
    let (n_buckets, n_items) = (word(file, 28), n_items(file));
    let word = |at: usize| word(file, at);
    let item_at = |index: usize| 32 + 4 * n_buckets + 24 * index;
    let part = |at: usize| word(at + 8)..word(at + 8) + usize::from(file[at + 12]);
    let mut found = BTreeMap::new();
    for at in (0..n_items).map(item_at).filter(|at| file[at + 14] == b'v') {
        let value = word(at + 16)..word(at + 20);
        let mut name = file[part(at)].to_vec();
        let mut least =
            vec![at..at + 4, at + 8..at + 15, at + 16..at + 24, part(at), value.clone()];
        let mut all = vec![at..at + 24];
        let mut parent = word(at + 4);
        while parent != u32::MAX as usize {
            let at = item_at(parent);
            name = [&file[part(at)], &name].concat();
            least.push(part(at));
            all.push(at..at + 24);
            parent = word(at + 4);
        }
        all.extend(least.iter().cloned());
        found.insert(String::from_utf8(name).unwrap(), Holds { least, all, value });
    }
    found
}

fn touches(ranges: &[Range<usize>], damage: &Range<usize>) -> bool {
    ranges.iter().any(|range| range.start < damage.end && damage.start < range.end)
}

fn entries(salvaged: &Salvaged) -> Model {
    salvaged.entries.iter().map(|(name, value)| (name.clone(), value.as_bytes().to_vec())).collect()
}

/// Checks what comes out of `damaged`, which differs from a good file in `damage` only.
fn check(
    model: &Model,
    holds: &BTreeMap<String, Holds>,
    damaged: &[u8],
    damage: Range<usize>,
    what: &str,
) {
    let salvaged = salvage(damaged);
    let found = entries(&salvaged);
    let is_one_byte = damage.len() == 1;
    for (name, holds) in holds {
        let held_by = if is_one_byte { &holds.least } else { &holds.all };
        if !touches(held_by, &damage) {
            assert_eq!(found.get(name), model.get(name), "{what} at {damage:?} loses {name}");
        }
    }
    for (name, value) in &found {
        let real =
            model.get(name).unwrap_or_else(|| panic!("{what} at {damage:?} makes up {name}"));
        let is_true = value == real;
        assert!(is_true || !salvaged.is_proven(name), "{what} at {damage:?} proves a wrong {name}");
        // One byte changed in the value itself is the one thing that a file without sums cannot show.
        let may_be_wrong = !is_one_byte || touches(&[holds[name].value.clone()], &damage);
        assert!(is_true || may_be_wrong, "{what} at {damage:?} gives {name} another value");
    }
    if found.len() < model.len() && damage.start >= 32 {
        assert!(salvaged.suspect > 0, "{what} at {damage:?} hides a loss");
    }
}

fn damage_everywhere(file: &[u8]) {
    damage_in(file, 0..file.len());
}

fn damage_in(file: &[u8], places: Range<usize>) {
    let (model, holds) = (forty_keys(), holds(file));
    assert_eq!(holds.len(), 40);
    for at in places {
        let mut flipped = file.to_vec();
        flipped[at] ^= 1 << (at % 8);
        check(&model, &holds, &flipped, at..at + 1, "a flip");
        // A byte, what a disk writes at once, and all that comes after.
        for len in [1, 512, file.len()] {
            let damage = at..file.len().min(at + len);
            let mut zeroed = file.to_vec();
            zeroed[damage.clone()].fill(0);
            check(&model, &holds, &zeroed, damage, "zeroes");
        }
        check(&model, &holds, &file[..at], at..file.len(), "a cut");
    }
}

#[test]
fn damage_to_our_file_loses_no_key_that_is_held_by_an_intact_part() {
    damage_everywhere(&ours());
}

#[test]
fn damage_to_a_patched_file_loses_no_key_that_is_held_by_an_intact_part() {
    for file in patched() {
        // Header, table and stamp; what is behind them is as in an image that was not patched.
        let names_start = holds(&file).values().map(|holds| holds.value.start).min().unwrap();
        damage_in(&file, 0..names_start);
    }
}

#[test]
fn damage_to_a_file_of_dconf_loses_no_key_that_is_held_by_an_intact_part() {
    damage_everywhere(FOREIGN);
}

#[test]
fn a_flip_in_our_file_never_gives_a_key_another_value() {
    let (file, model) = (ours(), forty_keys());
    for at in 0..file.len() {
        for bit in [at % 8, (at + 3) % 8] {
            let mut flipped = file.clone();
            flipped[at] ^= 1 << bit;
            for (name, value) in entries(&salvage(&flipped)) {
                assert_eq!(
                    Some(&value),
                    model.get(&name),
                    "{name} after a flip of bit {bit} at {at}"
                );
            }
        }
    }
}

#[test]
fn an_intact_file_gives_everything_and_says_what_is_proven() {
    let ours = salvage(&ours());
    assert_eq!((entries(&ours), ours.suspect), (forty_keys(), 0));
    assert_eq!(ours.unproven, Vec::<String>::new());
    assert!(ours.is_proven(&ours.entries[0].0));
    assert!(!ours.is_proven("/no/such/key"));
    let foreign = salvage(FOREIGN);
    assert_eq!((entries(&foreign), foreign.suspect), (forty_keys(), 0));
    assert_eq!(foreign.unproven.len(), 40);
}

#[test]
fn a_value_that_was_changed_is_left_out_where_sums_show_it() {
    let mut file = ours();
    let holds = holds(&file);
    let (name, value) =
        holds.iter().map(|(name, holds)| (name, holds.value.clone())).next().unwrap();
    file[value.start] ^= 2;
    assert_eq!(stamp(&file), Stamp::Bad);
    let salvaged = salvage(&file);
    assert_eq!(salvaged.entries.len(), 39);
    assert_eq!(salvaged.suspect, 1);
    assert!(!entries(&salvaged).contains_key(name));
}

#[test]
fn a_lost_header_and_lost_buckets_lose_nothing() {
    for mut file in [ours(), FOREIGN.to_vec()].into_iter().chain(patched()) {
        let items = 32 + 4 * usize::from(file[28]);
        file[..items].fill(0xee);
        assert_eq!(entries(&salvage(&file)), forty_keys());
    }
}

#[test]
fn a_table_that_was_moved_is_found() {
    // What undelete tools give back: the file somewhere in a larger one; offsets lead nowhere, so nothing is made up.
    let file = [vec![0; 4096], ours(), vec![0; 4096]].concat();
    assert_eq!(salvage(&file).entries.len(), 0);
}

#[test]
fn nothing_comes_out_of_nothing() {
    for bytes in [&b""[..], b"GVariant", &[0; 4096], &[0xff; 4096], "/".repeat(4096).as_bytes()] {
        assert_eq!(salvage(bytes).entries.len(), 0);
    }
}

#[test]
fn values_of_the_other_byte_order_come_out_in_ours() {
    let big = include_bytes!("golden/gvdb-0/big-endian-values.gvdb");
    for damaged_at in [12, 0, 1, 7] {
        let mut file = big.to_vec();
        file[damaged_at] ^= 0x10;
        let salvaged = salvage(&file);
        assert_eq!(salvaged.entries.len(), 1);
        assert_eq!(salvaged.entries[0].1.as_bytes(), [&1i32.to_ne_bytes()[..], b"\0i"].concat());
    }
}
