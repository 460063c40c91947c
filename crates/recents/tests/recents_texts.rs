//! Texts that XML cannot hold are never acknowledged; those that are acknowledged come back from the shared list, as we
//! read it and as GLib does.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::peers;

use std::fs;
use std::path::Path;

use peers::{Home, addition, peers, printed};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use unjank_recents::projection::project;
use unjank_recents::xbel::{Condition, XbelDocument};
use unjank_recents::{Addition, RecentEntry, RecentsError, Uri};

/// How many additions are made of generated texts.
const CASES: usize = 400;

/// Tells whether XML 1.0 has a character, as its grammar says (production 2).
fn is_of_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Puts a text into one field of an addition.
fn put(addition: &mut Addition, field: usize, text: &str) {
    match field {
        0 => text.clone_into(&mut addition.application),
        1 => addition.groups.push(text.to_owned()),
        2 => addition.mime = Some(text.to_owned()),
        3 => addition.exec = format!("{text} %u"),
        _ => addition.uri = Uri::exact(format!("file:///{text}")).unwrap(),
    }
}

/// Texts of what is special to XML, to readers of it, or to nobody.
fn texts() -> impl Strategy<Value = String> {
    let special = proptest::sample::select(
        "\0\u{1}\u{2}\u{8}\t\n\u{b}\u{c}\r\u{1f} \u{7f}\u{80}\u{85}\u{a0}\u{2028}\u{202e}\u{d7ff}\u{e000}\u{fdd0}\
         \u{feff}\u{fffd}\u{fffe}\u{ffff}\u{1fffe}\u{10ffff}&<>\"']]>;#%/\\\u{e9}\u{1f600}"
            .chars()
            .collect::<Vec<char>>(),
    );
    let any = proptest::prop_oneof![4 => special, 1 => proptest::char::range('a', 'h'), 1 => proptest::char::any()];
    proptest::collection::vec(any, 1..6).prop_map(|letters| letters.into_iter().collect())
}

fn in_file(home: &Home) -> Vec<RecentEntry> {
    let document = XbelDocument::parse(fs::read(&home.places.xbel).unwrap()).unwrap();
    assert_eq!(document.condition(), Condition::Whole);
    document.bookmarks().iter().map(|bookmark| bookmark.entry().unwrap().clone()).collect()
}

#[test]
fn no_character_that_xml_cannot_hold_is_acknowledged_in_any_field() {
    let home = Home::new();
    let mut recents = home.recents();
    let characters = ('\0'..='\u{20}').chain('\u{fff0}'..='\u{10010}').chain(['\u{1fffe}']);
    let mut refused = 0;
    for (number, c) in characters.enumerate() {
        for field in 0..5 {
            let path = format!("/srv/{number}-{field}");
            let mut addition = addition(&recents, Path::new(&path));
            put(&mut addition, field, &format!("a{c}b"));
            let added = recents.add(&addition);
            match (is_of_xml(c), added) {
                (true, Ok(_)) => {}
                (false, Err(RecentsError::Field(_))) => refused += 1,
                (_, added) => panic!("U+{:04X} in field {field}: {added:?}", u32::from(c)),
            }
        }
    }
    assert_eq!(refused, (32 - 3 + 2) * 5);
    project(&mut recents).unwrap();
    let count = recents.list().unwrap().len();
    assert_eq!(in_file(&home).len(), count);
}

#[test]
fn what_is_acknowledged_comes_back_from_the_list_as_we_and_as_glib_read_it() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    let mut recents = home.recents();
    let mut runner = TestRunner::deterministic();
    let (mut acknowledged, mut refused) = (0, 0);
    for number in 0..CASES {
        let text = texts().new_tree(&mut runner).unwrap().current();
        let mut addition = addition(&recents, Path::new(&format!("/srv/{number}")));
        // What a shell makes of a command line is not the list's.
        put(&mut addition, [0, 1, 2, 4][number % 4], &text);
        match recents.add(&addition) {
            Ok(_) => {
                assert!(text.chars().all(is_of_xml), "{text:?} was acknowledged");
                acknowledged += 1;
            }
            Err(RecentsError::Field(_)) => refused += 1,
            Err(error) => panic!("{text:?}: {error}"),
        }
    }
    assert!(acknowledged > CASES / 8 && refused > CASES / 8, "{acknowledged}, {refused}");
    project(&mut recents).unwrap();
    let mut remembered: Vec<RecentEntry> = recents.list().unwrap().iter().cloned().collect();
    let mut written = in_file(&home);
    for entries in [&mut remembered, &mut written] {
        entries.sort_by(|one, other| one.uri.as_str().cmp(other.uri.as_str()));
    }
    assert_eq!(written, remembered);
    let read = home.run(&peers.gtk, &["read", home.places.xbel.to_str().unwrap()]);
    let mut read: Vec<String> =
        read.split("uri ").skip(1).map(|one| format!("uri {one}")).collect();
    read.sort();
    assert_eq!(read, printed(&mut recents));
}
