//! Who changed what, written behind the replies, and taken back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine_support;

use std::time::Duration;

use engine_support::{World, id};
use store::table::gvariant::{Variant, View};
use store::table::gvdb;
use unjank_session::settings::engine::{DatabaseId, Options};
use unjank_session::settings::history::{
    self, Conflict, Filter, Forced, Keep, KeyChange, Process, Value, undo,
};

fn entries(world: &World) -> Vec<history::Entry> {
    history::read(&*world.disk, &world.places).unwrap()
}

fn shown(change: &KeyChange) -> String {
    let value = |value: &Value| match value {
        Value::Unset => "-".to_owned(),
        Value::Set(value) => value.print(),
        Value::Hidden => "?".to_owned(),
    };
    format!("{} {} {}", change.path, value(&change.old), value(&change.new))
}

/// Reads a key as a program does.
fn now(world: &World, database: &DatabaseId, key: &str) -> Option<Variant> {
    let bytes = std::fs::read(world.image(database)).unwrap();
    let table = gvdb::Table::open(&bytes).unwrap();
    table.value(key).map(|v| View::inside(v, table.order()).to_variant())
}

#[test]
fn every_change_is_recorded_with_who_made_it() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let process = Process { pid: 77, exe: Some("/usr/bin/gsettings".into()) };
    world.engine.identify(":1.9", process.clone());
    world.change(&user, "/a/b=1 /a/c='x'");
    world.ask(&user, ":1.10", 1, "/a/ /a/b=2 /app/password='hidden'");
    world.run();
    // The bus may tell later who it was.
    let other = Process { pid: 78, exe: None };
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
    let filter = Filter { path: Some("/c/".into()), ..Filter::default() };
    let below: Vec<_> = all.iter().filter_map(|entry| filter.select(entry)).collect();
    assert_eq!(below.iter().flat_map(|e| &e.keys).map(shown).collect::<Vec<_>>(), ["/c/d - 1"]);

    let read = |database: &DatabaseId, key: &str| now(&world, database, key);
    let result = undo(&all[1..3], read, Forced::No);
    let hidden = Conflict::Changed { database: user.clone(), path: "/api-key".into() };
    assert_eq!(result.conflicts, [hidden]);
    let changes = &result.changes[&user];
    assert_eq!(
        format!("{:?}", changes.iter().collect::<Vec<_>>()),
        "[(\"/a\", Some(1)), (\"/c/d\", None)]"
    );

    // What was changed again is left alone unless somebody insists.
    let result = undo(&all[..1], read, Forced::No);
    assert!(result.changes.is_empty());
    assert_eq!(result.conflicts.len(), 2);
    let result = undo(&all[..1], read, Forced::Yes);
    assert_eq!(result.changes[&user].len(), 2);
    assert!(result.conflicts.is_empty());
}

#[test]
fn the_history_stays_within_its_bounds() {
    let keep = Keep { bytes: 20_000, age: Duration::from_secs(3600), ..Keep::default() };
    let mut world =
        World::with(Options { history: Some(keep), pacing: None, ..Options::default() });
    let user = id("Writer/user");
    for value in 0..400 {
        world.change(&user, &format!("/key={value}"));
        world.clock.advance(Duration::from_millis(1100));
        world.run_out();
    }
    let found = entries(&world);
    let bytes = found.len() * 100;
    assert!((5_000..25_000).contains(&bytes), "{}", found.len());
    assert_eq!(found.last().unwrap().id, 399);
    assert!(found.windows(2).all(|pair| pair[0].id + 1 == pair[1].id));
}

#[test]
fn a_history_that_cannot_be_written_harms_nobody() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    std::fs::create_dir_all(&world.places.state).unwrap();
    engine_support::put(&history::file(&world.places), b"something else");
    world.change(&user, "/a=1");
    world.run_out();
    assert_eq!(world.change(&user, "/a=2")[0], "0 ok :1.5:user:1");
    world.run_out();
    assert_eq!(std::fs::read(history::file(&world.places)).unwrap(), b"something else");
    assert!(!world.reports.is_empty());
}
