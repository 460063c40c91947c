//! What one caller may make the engine do at a time, for which everybody else would have to wait.

use std::path::Path;
use std::time::Duration;

use crate::engine_support;

use engine_support::{World, changeset, id};
use gvdb::gvariant::Variant;
use unjank_settings::changeset::{Changeset, ChangesetError, LONGEST_BODY, MOST_CHANGES};
use unjank_settings::engine::{DatabaseId, Job, MOST_DATABASES, MOST_KEYS, MOST_OF_TEXT};
use unjank_settings::history;

/// A change that sets so many keys below a directory.
fn many(dir: &str, count: usize) -> Changeset {
    let mut changes = Changeset::default();
    for number in 0..count {
        changes.change(&format!("{dir}k{number}"), Some(Variant::from(1)));
    }
    changes
}

/// A change that sets one key to a text of this length.
fn large(path: &str, length: usize) -> Changeset {
    let mut changes = Changeset::default();
    changes.change(path, Some(Variant::from(&*"x".repeat(length))));
    changes
}

#[test]
fn a_change_of_too_many_paths_is_refused_as_a_whole() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let most = many("/a/", MOST_CHANGES);
    assert_eq!(Changeset::read(&most.encode()), Ok(most));
    let mut resets = Changeset::default();
    (0..=MOST_CHANGES).for_each(|number| resets.change(&format!("/a{number}/"), None));
    for too_many in [many("/a/", MOST_CHANGES + 1), resets] {
        let refused = Changeset::read(&too_many.encode()).unwrap_err();
        assert_eq!(refused, ChangesetError::TooMany);
        world.engine.refuse_change(&user, &refused, 3);
        assert_eq!(world.run(), ["3 failed Quota"]);
    }
    assert_eq!(world.keys(&user), "no file");
    let long = large("/a", LONGEST_BODY).encode();
    assert_eq!(Changeset::read(&long), Err(ChangesetError::TooLong(long.len())));
}

#[test]
fn a_database_holds_so_many_keys_and_no_more() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let ask = |world: &mut World, changes: Changeset| {
        world.engine.change(&user, changes, ":1.9", 0);
        world.run().remove(0)
    };
    assert!(ask(&mut world, many("/a/", MOST_KEYS - 1)).starts_with("0 ok"));
    assert_eq!(ask(&mut world, changeset("/b=1 /c=1")), "0 failed Quota");
    assert!(ask(&mut world, changeset("/b=1")).starts_with("0 ok"));
    assert_eq!(ask(&mut world, changeset("/c=1")), "0 failed Quota");
    // Keys that are there may change, and make room for others.
    assert!(ask(&mut world, changeset("/b=2 /a/k0=7")).starts_with("0 ok"));
    assert!(ask(&mut world, changeset("/a/")).starts_with("0 ok"));
    assert!(ask(&mut world, changeset("/c=1")).starts_with("0 ok"));
}

#[test]
fn what_is_stored_as_text_or_as_records_is_smaller() {
    for object in ["keyfile/a", "journal/a"] {
        let mut world = World::new();
        world.engine.change(&id(object), large("/a/b", MOST_OF_TEXT), ":1.9", 0);
        assert_eq!(world.run_out(), ["0 failed Quota"], "{object}");
    }
}

/// The object paths of the databases that a job stores.
fn stored(job: &Job) -> Vec<String> {
    let text = format!("{job:?}");
    let names = ["user", "small", "one", "two", "three"];
    names
        .into_iter()
        .filter(|name| text.contains(&format!("name: \"{name}\"")))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_users_own_database_waits_for_one_large_database_of_others_at_most() {
    let mut world = World::new();
    let ids: Vec<DatabaseId> =
        ["user", "small", "one", "two", "three"].map(|name| id(&format!("Writer/{name}"))).into();
    for database in &ids {
        world.change(database, "/a=1");
    }
    world.run_out();
    for database in &ids[2..] {
        world.engine.change(database, large("/b", 2 << 20), ":1.9", 0);
    }
    for database in &ids[..2] {
        world.engine.change(database, changeset("/a=2"), ":1.9", 0);
    }
    let mut large_ones = Vec::new();
    for number in 0..3 {
        let job = world.engine.next_job().unwrap();
        let stores = stored(&job);
        let own: Vec<&str> = stores
            .iter()
            .map(String::as_str)
            .filter(|name| ids[..2].contains(&id(&format!("Writer/{name}"))))
            .collect();
        // What is small goes with the first.
        assert_eq!(own.len(), if number == 0 { 2 } else { 0 }, "{stores:?}");
        let others: Vec<String> =
            stores.into_iter().filter(|name| !["user", "small"].contains(&&**name)).collect();
        assert_eq!(others.len(), 1, "{others:?}");
        large_ones.extend(others);
        world.finish(job);
    }
    large_ones.sort();
    assert_eq!(large_ones, ["one", "three", "two"], "one of them was not stored");
}

#[test]
fn nobody_whose_change_is_to_be_stored_waits_for_the_history() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    // With the snapshot.
    world.run_out();
    world.change(&user, "/a=2");
    world.clock.advance(Duration::from_secs(2));
    world.engine.tick();
    let writes_history = world.engine.next_job().unwrap();
    assert!(writes_history.is_for_history(), "{writes_history:?}");
    let answers = world.change(&user, "/a=3");
    assert!(answers[0].starts_with("0 ok"), "{answers:?}");
    assert!(!world.engine.is_idle(), "the history is being written");
    world.finish(writes_history);
    world.stop();
    let history = history::read(&*store::disk::real(), &world.places).unwrap();
    assert_eq!(history.entries.len(), 3);
}

#[test]
fn a_large_change_is_in_the_history_with_as_much_as_one_entry_may_take() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let mut changes = Changeset::default();
    let value = Variant::from(&*"y".repeat(15 << 10));
    for number in 0..1000 {
        changes.change(&format!("/large/{number}"), Some(value.clone()));
    }
    world.engine.change(&user, changes, ":1.9", 0);
    world.run_out();
    let history = history::read(&*store::disk::real(), &world.places).unwrap();
    let [entry] = &history.entries[..] else { panic!("{} entries", history.entries.len()) };
    assert!(entry.left_out > 0 && !entry.keys.is_empty());
    assert_eq!(entry.keys.len() as u64 + entry.left_out, 1000);
}

#[test]
fn a_database_of_others_keeps_one_descriptor_open() {
    let mut world = World::new();
    let open = |dir: &Path| {
        let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = numbers.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.starts_with(dir)).count()
    };
    for kind in ["Writer", "shm", "journal", "keyfile"] {
        for number in 0..MOST_DATABASES / 4 {
            let object = id(&format!("{kind}/n{number}"));
            let answers = world.change(&object, "/a/b=1");
            assert!(answers[0].starts_with("0 ok"), "{object}: {answers:?}");
        }
    }
    world.run_out();
    let dir = world.dir.path().to_owned();
    // Beside them the journal of the history and what is kept to write to it in turns.
    assert!(open(&dir) <= MOST_DATABASES + 3, "{} descriptors are open", open(&dir));
}
