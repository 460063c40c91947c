//! Who changed what, written behind the replies, and taken back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::engine_support;

use std::time::Duration;

use engine_support::{World, id};
use gvdb::gvariant::{Variant, VariantView};
use unjank_settings::engine::{DatabaseId, EngineOptions};
use unjank_settings::history::{
    self, Conflict, Forced, HistoryFilter, HistoryProcess, HistoryValue, Keep, KeyChange, Present,
    Reason, undo,
};

fn entries(world: &World) -> Vec<history::HistoryEntry> {
    history::read(&*world.disk, &world.places).unwrap().entries
}

/// The keys as they are in the image, and some that are locked.
struct Now<'a>(&'a World, &'a [&'a str]);

impl Present for Now<'_> {
    fn value(&self, database: &DatabaseId, key: &str) -> Option<Variant> {
        now(self.0, database, key)
    }
    fn is_locked(&self, _database: &DatabaseId, key: &str) -> bool {
        self.1.contains(&key)
    }
}

fn shown(change: &KeyChange) -> String {
    let value = |value: &HistoryValue| match value {
        HistoryValue::Unset => "-".to_owned(),
        HistoryValue::Set(value) => value.print(),
        HistoryValue::Hidden => "?".to_owned(),
        HistoryValue::TooLong(bytes) => format!("({bytes})"),
    };
    format!("{} {} {}", change.path, value(&change.old), value(&change.new))
}

/// Reads a key as a program does.
fn now(world: &World, database: &DatabaseId, key: &str) -> Option<Variant> {
    let bytes = std::fs::read(world.image(database)).unwrap();
    let table = gvdb::GvdbTable::open(&bytes).unwrap();
    table.value(key).map(|v| VariantView::inside(v, table.order()).to_variant())
}

#[test]
fn every_change_is_recorded_with_who_made_it() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let process = HistoryProcess { pid: 77, exe: Some("/usr/bin/gsettings".into()) };
    world.engine.identify(":1.9", process.clone());
    world.change(&user, "/a/b=1 /a/c='x'");
    world.ask(&user, ":1.10", 1, "/a/ /a/b=2 /app/password='hidden'");
    world.run();
    // The bus may tell later who it was.
    let other = HistoryProcess { pid: 78, exe: None };
    world.engine.identify(":1.10", other.clone());
    assert_eq!(entries(&world), []);
    world.clock.advance(Duration::from_secs(1));
    world.run_out();
    let found = entries(&world);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].id, found[0].process.clone(), found[0].sender.as_str()),
        (0, Some(process), ":1.9")
    );
    assert_eq!(
        (found[1].id, found[1].process.clone(), found[1].tag.as_str()),
        (1, Some(other), ":1.5:user:1")
    );
    assert_eq!(found[0].keys.iter().map(shown).collect::<Vec<_>>(), ["/a/b - 1", "/a/c - 'x'"]);
    assert_eq!(
        found[1].keys.iter().map(shown).collect::<Vec<_>>(),
        ["/a/b 1 2", "/a/c 'x' -", "/app/password - ?"]
    );
    let file = std::fs::read(history::file(&world.places)).unwrap();
    assert!(!file.windows(6).any(|bytes| bytes == b"hidden"));
    let mode = std::fs::metadata(history::file(&world.places)).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
    // Numbers go on after a restart, and what fails is not recorded.
    world.stop();
    world.disk.fail(0, 1);
    world.change(&user, "/z=1");
    world.change(&user, "/z=2");
    world.stop();
    let found = entries(&world);
    assert_eq!(found.iter().map(|entry| entry.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(found[2].keys.iter().map(shown).collect::<Vec<_>>(), ["/z - 2"]);
}

#[test]
fn changes_are_selected_and_taken_back() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1 /b=1");
    world.change(&user, "/a=2 /c/d=1");
    world.change(&user, "/a=3 /api-key='s'");
    world.change(&user, "/b=9");
    world.run_out();
    let all = entries(&world);
    let filter = HistoryFilter { path: Some("/c/".into()), ..HistoryFilter::default() };
    let below: Vec<_> = all.iter().filter_map(|entry| filter.select(entry)).collect();
    assert_eq!(below.iter().flat_map(|e| &e.keys).map(shown).collect::<Vec<_>>(), ["/c/d - 1"]);

    let here = Now(&world, &[]);
    let conflict =
        |path: &str, reason| Conflict { database: user.clone(), path: path.into(), reason };
    let result = undo(&all[1..3], &here, Forced::No);
    assert_eq!(result.conflicts, [conflict("/api-key", Reason::NotStored)]);
    let changes = |result: &history::Undo| {
        format!("{:?}", result.changes.values().flat_map(|c| c.iter()).collect::<Vec<_>>())
    };
    assert_eq!(changes(&result), "[(\"/a\", Some(1)), (\"/c/d\", None)]");

    // What was changed again is left alone unless somebody insists.
    let result = undo(&all[..1], &here, Forced::No);
    assert!(result.changes.is_empty());
    assert_eq!(result.conflicts.len(), 2);
    let result = undo(&all[..1], &here, Forced::Yes);
    assert_eq!(result.changes[&user].len(), 2);
    assert!(result.conflicts.is_empty());

    // A lock is obeyed, also by who insists.
    for forced in [Forced::No, Forced::Yes] {
        let result = undo(&all[1..2], &Now(&world, &["/c/d"]), forced);
        assert!(result.conflicts.contains(&conflict("/c/d", Reason::Locked)), "{result:?}");
        assert!(!changes(&result).contains("/c/d"));
    }
}

#[test]
fn no_key_is_both_taken_back_and_left() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    for value in 1..=4 {
        world.change(&user, &format!("/a={value} /b={value} /sim-pin={value}"));
    }
    world.change(&user, "/b=1");
    world.run_out();
    let all = entries(&world);
    // Any choice of entries, as a person may give their numbers.
    for choice in 1..1_u32 << all.len() {
        let chosen: Vec<_> =
            all.iter().filter(|entry| choice >> entry.id & 1 == 1).cloned().collect();
        for forced in [Forced::No, Forced::Yes] {
            let result = undo(&chosen, &Now(&world, &[]), forced);
            let left: Vec<_> = result.conflicts.iter().map(|conflict| &conflict.path).collect();
            let changed: Vec<_> =
                result.changes.values().flat_map(|c| c.iter().map(|(key, _)| key)).collect();
            let both = left.iter().filter(|key| changed.contains(&key.as_str())).count();
            assert_eq!(both, 0, "{choice:b} {forced:?}: {result:?}");
            assert!(left.windows(2).all(|pair| pair[0] < pair[1]), "a key is told once: {left:?}");
            assert!(forced == Forced::Yes || !changed.contains(&"/sim-pin"));
        }
    }
    // With a change left out in between, a key stays what it is.
    let gap: Vec<_> = all.iter().filter(|entry| entry.id != 2).cloned().collect();
    let result = undo(&gap, &Now(&world, &[]), Forced::No);
    assert!(result.changes.is_empty(), "{result:?}");
}

/// What is left of 400 changes, each ten minutes after the last one.
fn left_of_many(keep: Keep) -> Vec<history::HistoryEntry> {
    let mut world = World::with(EngineOptions {
        history: Some(keep),
        pacing: None,
        ..EngineOptions::default()
    });
    let user = id("Writer/user");
    for value in 0..400 {
        world.change(&user, &format!("/key={value}"));
        world.clock.advance(Duration::from_millis(1100));
        world.run_out();
    }
    let found = entries(&world);
    assert_eq!(found.last().unwrap().id, 399);
    assert!(found.windows(2).all(|pair| pair[0].id + 1 == pair[1].id));
    found
}

#[test]
fn the_history_stays_within_its_bounds() {
    let by_bytes = left_of_many(Keep { bytes: 20_000, ..Keep::default() });
    let bytes = by_bytes.len() * 200;
    assert!((8_000..24_000).contains(&bytes), "{}", by_bytes.len());
    let hour = Duration::from_secs(3600);
    let by_age = left_of_many(Keep { bytes: 20_000, age: hour, ..Keep::default() });
    assert!((6..110).contains(&by_age.len()), "{}", by_age.len());
}

#[test]
fn a_history_that_cannot_be_written_harms_nobody() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    // A directory in its place is no file that could be set aside as a damaged one.
    std::fs::create_dir_all(history::file(&world.places)).unwrap();
    world.change(&user, "/a=1");
    world.run_out();
    assert_eq!(world.change(&user, "/a=2")[0], "0 ok :1.5:user:1");
    world.run_out();
    let told = format!("{:?}", world.reports);
    assert!(told.contains("cannot write the history"), "{told}");
    assert!(told.contains("1 changes of settings are not in the history"), "{told}");
}

#[test]
fn large_values_do_not_push_out_the_rest() {
    let keep = Keep { bytes: 200_000, ..Keep::default() };
    let mut world = World::with(EngineOptions {
        history: Some(keep),
        pacing: None,
        ..EngineOptions::default()
    });
    let user = id("Writer/user");
    for value in 0..50 {
        world.change(&user, &format!("/key={value}"));
    }
    let mut noise = fastrand::Rng::with_seed(1);
    let mut long = |len: usize| {
        let letters = (0..len).map(|_| noise.char('a'..='p'));
        format!("'{}'", letters.collect::<String>())
    };
    for _ in 0..20 {
        world.change(&user, &format!("/large={}", long(300_000)));
    }
    // Many values that are not long each.
    let many: Vec<String> = (0..40).map(|key| format!("/many/k{key}={}", long(15_000))).collect();
    world.change(&user, &many.join(" "));
    world.run_out();
    let all = entries(&world);
    let of = |key: &str| all.iter().flat_map(|e| &e.keys).filter(|k| k.path == key).count();
    assert_eq!(of("/key"), 50, "all of the small ones are there");
    assert_eq!(of("/large"), 20, "that there were large ones is known");
    let last = shown(all.iter().flat_map(|e| &e.keys).rfind(|k| k.path == "/large").unwrap());
    assert_eq!(last, "/large (300003) (300003)");
    assert_eq!(all.last().unwrap().keys.len(), 40);
    let told = world.reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(told.contains("too large for the history: 2 values and 0 keys"), "{told}");
    assert!(told.contains("too large for the history: 40 values and 0 keys"), "{told}");
}

#[test]
fn a_database_that_was_replaced_from_outside_is_in_the_history() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1 /b=1 /pass='s'");
    world.run_out();
    let backup = std::fs::read(world.image(&user)).unwrap();
    world.change(&user, "/a=2 /c=1 /pass='t'");
    world.run_out();
    let outside = |world: &World| {
        let all = entries(world).into_iter().filter(history::HistoryEntry::is_from_outside);
        all.map(|e| e.keys.iter().map(shown).collect::<Vec<_>>().join("; ")).collect::<Vec<_>>()
    };
    assert_eq!(outside(&world), [""; 0]);

    // A backup that is restored while the service runs, by a program that replaces the file.
    let put_back = |world: &World, bytes: &[u8]| {
        let path = world.image(&user);
        engine_support::put(&path.with_extension("temp"), bytes);
        store::disk::real().rename(&path.with_extension("temp"), &path).unwrap();
    };
    put_back(&world, &backup);
    world.stir(&user);
    world.run_out();
    assert_eq!(outside(&world), ["/a 2 1; /c 1 -; /pass ? ?"]);
    // Its values may be those that we set ourselves a moment ago.
    world.change(&user, "/a=2");
    world.change(&user, "/a=1");
    world.change(&user, "/a=2");
    put_back(&world, &backup);
    world.stir(&user);
    world.run_out();
    assert_eq!(outside(&world).last().unwrap(), "/a 2 1");

    // And while none runs: what snapshot and history say is compared with what is found.
    world.change(&user, "/a=3");
    world.stop();
    let all = entries(&world).len();
    world.change(&user, "/a=4");
    world.stop();
    assert_eq!(entries(&world).len(), all + 1, "nothing happened in between");
    put_back(&world, &backup);
    world.change(&user, "/d=1");
    world.stop();
    assert_eq!(outside(&world).last().unwrap(), "/a 4 1");
    // By dconf-service, which leaves no stamp.
    world.write_outside(&user, "/a=1 /b=5");
    world.change(&user, "/e=1");
    world.stop();
    assert_eq!(outside(&world).last().unwrap(), "/b 1 5; /d 1 -");
    assert_eq!(outside(&world).len(), 4);
    let numbers: Vec<u64> = entries(&world).iter().map(|entry| entry.id).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    // It can be taken back like any other change.
    let all = entries(&world);
    let last = all.iter().rfind(|entry| entry.is_from_outside()).unwrap();
    let result = undo(std::slice::from_ref(last), &Now(&world, &[]), Forced::No);
    assert_eq!(result.changes[&user].len(), 2, "{result:?}");
}

#[test]
fn two_services_share_one_history_and_take_each_others_changes_for_no_strangers() {
    let mut first = World::new();
    let mut second = World::beside(&first);
    let user = id("Writer/user");
    for round in 0..20 {
        first.change(&user, &format!("/first/k{round}={round}"));
        second.change(&user, &format!("/second/k{round}={round}"));
        // Both write their history in the same moment, and each sees what the other one did.
        for world in [&mut first, &mut second] {
            world.stir(&user);
            world.run();
            world.clock.advance(Duration::from_millis(700));
            world.run();
        }
    }
    first.run_out();
    second.run_out();
    let all = entries(&first);
    let keys: Vec<&str> = all.iter().flat_map(|e| &e.keys).map(|k| k.path.as_str()).collect();
    assert!(all.iter().all(|entry| !entry.is_from_outside()), "{keys:?}");
    assert_eq!(keys.len(), 40, "{keys:?}");
    let mut numbers: Vec<u64> = all.iter().map(|entry| entry.id).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 40);
    for world in [&first, &second] {
        assert!(!format!("{:?}", world.reports).contains("history"), "{:?}", world.reports);
    }
}
