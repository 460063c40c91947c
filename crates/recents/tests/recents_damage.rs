//! A journal that is damaged in any way beside healthy lists of other programs: nothing of theirs is deleted, the damage
//! is told, and the damaged journal is kept.
//!
//! `DAMAGES` says how many ways.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "the test stands for other programs and bad disks")]

use crate::peers;

use std::collections::BTreeSet;
use std::fs;

use fastrand::Rng;
use peers::{Home, add};
use unjank_recents::writer;
use unjank_recents::xbel::{BookmarkChange, XbelDocument};

/// Documents that only other programs have opened.
const THEIRS: usize = 6;
/// Documents of ours.
const OURS: usize = 6;

/// Damages a file; says how.
fn damage(bytes: &mut Vec<u8>, lot: &mut Rng) -> String {
    let (from, to) = (lot.usize(..bytes.len()), lot.usize(..bytes.len()));
    let (from, to) = (from.min(to), from.max(to) + 1);
    match lot.usize(..9) {
        0 => {
            bytes.truncate(from);
            format!("cut at {from}")
        }
        1 => {
            bytes.clear();
            "empty".to_owned()
        }
        2 => {
            bytes[from..to].fill(0);
            format!("zeros from {from} to {to}")
        }
        3 => {
            let bit = lot.usize(..8);
            bytes[from] ^= 1 << bit;
            format!("bit {bit} of {from}")
        }
        4 => {
            bytes.drain(from..to);
            format!("{from} to {to} missing")
        }
        5 => {
            let junk: Vec<u8> = (0..lot.usize(..300) + 1).map(|_| lot.u8(..)).collect();
            bytes.splice(from..from, junk);
            format!("junk at {from}")
        }
        6 => {
            bytes.iter_mut().for_each(|byte| *byte = lot.u8(..));
            "noise".to_owned()
        }
        7 => {
            bytes.truncate(from);
            bytes.extend([0; 4096]);
            format!("zeros behind {from}")
        }
        _ => {
            // A block of somebody else's file.
            let len = (to - from).min(512);
            bytes[from..from + len]
                .copy_from_slice(&b"<bookmark href=\"file:///x\">".repeat(20)[..len]);
            format!("{len} bytes of another file at {from}")
        }
    }
}

fn in_file(home: &Home) -> BTreeSet<String> {
    let document = XbelDocument::parse(fs::read(&home.places.xbel).unwrap()).unwrap();
    document.bookmarks().iter().map(|one| one.entry().unwrap().uri.to_string()).collect()
}

/// A home in which ours and other programs' documents are in both lists.
fn settled() -> (Home, BTreeSet<String>) {
    let home = Home::new();
    let docs = home.dir.path().join("docs");
    let mut text = String::from("<xbel version=\"1.0\">");
    for number in 0..THEIRS {
        let path = docs.join(format!("theirs-{number}"));
        text.push_str(&format!(
            "<bookmark href=\"file://{}\" added=\"2026-01-01T00:00:00Z\"/>",
            path.display()
        ));
    }
    text.push_str("</xbel>");
    fs::write(&home.places.xbel, text).unwrap();
    let mut recents = home.recents();
    for number in 0..OURS {
        add(&mut recents, &docs.join(format!("ours-{number}")));
        // In more than one round, so that records come behind a replaced journal.
        if number % 2 == 0 {
            writer::write(&mut recents).unwrap();
        }
    }
    writer::write(&mut recents).unwrap();
    let all = in_file(&home);
    assert_eq!(all.len(), THEIRS + OURS);
    (home, all)
}

#[test]
fn no_damage_of_the_journal_deletes_what_the_shared_list_has() {
    let (home, all) = settled();
    let state = home.places.state.clone();
    let files: Vec<_> = fs::read_dir(&state).unwrap().map(|file| file.unwrap().path()).collect();
    let whole: Vec<(_, Vec<u8>)> =
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let shared = fs::read(&home.places.xbel).unwrap();
    let journal = state.join("journal");
    let damages = std::env::var("DAMAGES").map_or(60, |count| count.parse().unwrap());
    let mut lot = Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for number in 0..damages {
        fs::remove_dir_all(&state).unwrap();
        fs::create_dir(&state).unwrap();
        whole.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        fs::write(&home.places.xbel, &shared).unwrap();
        let before = fs::read(&journal).unwrap();
        let mut bytes = before.clone();
        let mut how = damage(&mut bytes, &mut lot);
        while lot.usize(..3) == 0 && !bytes.is_empty() {
            how = format!("{how}, {}", damage(&mut bytes, &mut lot));
        }
        if bytes == before {
            continue;
        }
        fs::write(&journal, &bytes).unwrap();
        let mut recents = home.recents();
        let what = format!("damage {number}: {how}");
        // Whoever looks only says so and changes nothing; whoever writes keeps it.
        recents.list().expect(&what);
        assert_eq!(fs::read(&journal).unwrap(), bytes, "{what}");
        writer::write(&mut recents).expect(&what);
        let left = in_file(&home);
        assert_eq!(all.difference(&left).collect::<Vec<_>>(), Vec::<&String>::new(), "{what}");
        let listed: BTreeSet<_> =
            recents.list().unwrap().iter().map(|entry| entry.uri.to_string()).collect();
        assert_eq!(listed, all, "{what}");
        let told = recents.damage().unwrap_or_else(|| panic!("{what} is not told"));
        let kept = told.kept.as_ref().unwrap_or_else(|| panic!("{what} is not kept"));
        assert_eq!(fs::read(kept).unwrap(), bytes, "{what}");
        // The next one finds nothing wrong.
        let mut next = home.recents();
        writer::write(&mut next).expect(&what);
        assert_eq!((next.damage(), in_file(&home)), (None, all.clone()), "{what}");
    }
}

#[test]
fn a_journal_that_is_gone_or_older_deletes_nothing() {
    let (home, all) = settled();
    let journal = home.places.state.join("journal");
    let first = fs::read(&journal).unwrap();
    let docs = home.dir.path().join("docs");
    let mut recents = home.recents();
    add(&mut recents, &docs.join("later"));
    writer::write(&mut recents).unwrap();
    let all: BTreeSet<_> = all.into_iter().chain(in_file(&home)).collect();
    // As after a crash with a journal in memory, whose copy on the disk is from before.
    for older in [None, Some(first)] {
        match older {
            None => fs::remove_file(&journal).unwrap(),
            Some(bytes) => fs::write(&journal, bytes).unwrap(),
        }
        let mut recents = home.recents();
        writer::write(&mut recents).unwrap();
        assert_eq!(in_file(&home), all);
        assert_eq!(recents.list().unwrap().len(), all.len());
    }
}

#[test]
fn an_entry_that_is_gone_is_noticed() {
    let (home, all) = settled();
    let document = XbelDocument::parse(fs::read(&home.places.xbel).unwrap()).unwrap();
    let mut number = 0;
    let mut without_the_first = |_: &_| {
        number += 1;
        if number == 1 { BookmarkChange::Remove } else { BookmarkChange::Keep }
    };
    let wrong = document.edit(&mut without_the_first, []).unwrap();
    fs::write(&home.places.xbel, wrong).unwrap();
    assert_eq!(all.difference(&in_file(&home)).count(), 1);
}
