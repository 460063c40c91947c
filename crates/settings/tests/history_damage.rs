//! A history that is damaged in any way beside healthy databases: no setting is lost or changed, the damage is told, the
//! damaged file is kept, and the history goes on.
//!
//! `HISTORY_DAMAGES` says how many ways.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "the test stands for bad disks")]

use crate::engine_support;

use std::collections::BTreeSet;
use std::path::Path;

use engine_support::{World, id, put};
use fastrand::Rng;
use unjank_settings::history;

/// Damages a file; says how. The zeros behind its records are hit as often as one in five times.
fn damage(bytes: &mut Vec<u8>, lot: &mut Rng) -> String {
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let reach = (used + used / 4).min(bytes.len());
    let (from, to) = (lot.usize(..reach), lot.usize(..reach));
    let (from, to) = (from.min(to), from.max(to) + 1);
    match lot.usize(..10) {
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
        3 | 4 => {
            let bit = lot.usize(..8);
            bytes[from] ^= 1 << bit;
            format!("bit {bit} of {from}")
        }
        5 => {
            bytes.drain(from..to);
            format!("{from} to {to} missing")
        }
        6 => {
            let junk = (0..=lot.usize(..300)).map(|_| lot.u8(..));
            let junk: Vec<u8> = junk.collect();
            bytes.splice(from..from, junk);
            format!("junk at {from}")
        }
        7 => {
            bytes.iter_mut().for_each(|byte| *byte = lot.u8(..));
            "noise".to_owned()
        }
        8 => {
            *bytes = b"a note of mine\n".to_vec();
            "text".to_owned()
        }
        _ => {
            let len = (to - from).min(512);
            bytes[from..from + len].fill(b'x');
            format!("{len} bytes of another file at {from}")
        }
    }
}

/// The changes of a key in the history.
fn changes(world: &World) -> BTreeSet<String> {
    let recorded = history::read(&*world.disk, &world.places).unwrap();
    assert!(!recorded.is_damaged);
    let keys = recorded.entries.iter().filter(|entry| !entry.is_from_outside());
    keys.flat_map(|entry| &entry.keys).map(|key| key.path.clone()).collect()
}

fn set_aside(world: &World) -> Vec<Vec<u8>> {
    let dir = std::fs::read_dir(&world.places.state).unwrap();
    let names = dir.map(|file| file.unwrap().path());
    let is_aside = |path: &Path| path.to_string_lossy().contains("history.journal~");
    names.filter(|path| is_aside(path)).map(|path| std::fs::read(path).unwrap()).collect()
}

/// A home with some changes in the history.
fn home() -> World {
    let mut world = World::new();
    let user = id("Writer/user");
    for number in 0..30 {
        world.change(&user, &format!("/before/k{number:02}={number}"));
    }
    world.change(&id("keyfile/notes"), "/text=1");
    world.run_out();
    world.stop();
    world
}

#[test]
fn however_a_history_is_damaged_no_setting_is_lost_and_it_goes_on() {
    let damages: usize =
        std::env::var("HISTORY_DAMAGES").map_or(60, |number| number.parse().unwrap());
    let mut world = home();
    let user = id("Writer/user");
    let path = history::file(&world.places);
    let image = std::fs::read(world.image(&user)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let all = changes(&world);
    assert_eq!(all.len(), 31);
    let mut lot = Rng::with_seed(0x5eed);
    let mut told_and_kept = 0;
    for number in 0..damages {
        let mut bytes = whole.clone();
        let how = damage(&mut bytes, &mut lot);
        for file in std::fs::read_dir(&world.places.state).unwrap() {
            let file = file.unwrap().path();
            if file.is_file() {
                std::fs::remove_file(file).unwrap();
            }
        }
        put(&path, &bytes);
        put(&world.image(&user), &image);
        world.reports.clear();
        world.restart();
        // Whoever reads it meanwhile gets an answer, not a crash.
        let readable = history::read(&*world.disk, &world.places);
        assert_eq!(world.change(&user, "/after=1").first().unwrap(), "0 ok :1.5:user:0", "{how}");
        world.run_out();
        world.stop();
        let keys = world.keys(&user);
        assert_eq!(keys.matches('=').count(), 31, "{number}: {how}: {keys}");
        assert!(keys.starts_with("/after=1 /before/k00=0 "), "{how}: {keys}");
        let after = changes(&world);
        assert!(after.contains("/after"), "{number}: {how}: {after:?}");
        if readable.is_ok_and(|recorded| !recorded.is_damaged) {
            // What was cut behind a record, or between two blocks of zeros, looks like the end.
            continue;
        }
        told_and_kept += 1;
        let told = world.reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(told.contains("history"), "{number}: {how}: {told}");
        assert_eq!(set_aside(&world), [bytes], "{number}: {how}: {told}");
    }
    assert!(told_and_kept * 3 > damages, "{told_and_kept} of {damages}");
    println!("{damages} damages, {told_and_kept} of them visible; no setting lost");
}

#[test]
fn any_flipped_bit_costs_one_record_at_most() {
    let mut world = home();
    let path = history::file(&world.places);
    let whole = std::fs::read(&path).unwrap();
    let all = changes(&world);
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // Every part of the file: the header, the frames' headers, their payloads.
    let places = (0..used).step_by(37).chain(0..48).chain(8192..8232);
    for (number, at) in places.enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        put(&path, &bytes);
        world.restart();
        world.change(&id("shm/x"), &format!("/after={number}"));
        world.stop();
        let after = changes(&world);
        let lost: Vec<_> = all.difference(&after).collect();
        assert!(lost.len() <= 1, "bit of {at}: {lost:?}");
    }
}

#[test]
fn a_text_or_an_empty_file_is_set_aside_and_told() {
    for bytes in [&b""[..], b"something else", &[0; 20_000], b"unjankJL and no more"] {
        let (mut world, user) = (World::new(), id("Writer/user"));
        put(&history::file(&world.places), bytes);
        world.change(&user, "/a=1");
        world.run_out();
        assert_eq!(changes(&world), BTreeSet::from(["/a".to_owned()]));
        assert_eq!(set_aside(&world), [bytes]);
        let told = world.reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(told.contains("history.journal~0 and a new one is begun"), "{told}");
    }
}
