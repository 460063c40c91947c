//! Files in memory that are made before the next image: for whom, when, and what becomes of them.

use crate::engine_support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine_support::{World, id};
use unjank_settings::engine::EngineOptions;

/// Returns how many temporary files were made for a write, and how many before it.
fn made(world: &World) -> (u64, u64) {
    let disk = &world.disk;
    (disk.created.load(Ordering::Relaxed), disk.preallocated.load(Ordering::Relaxed))
}

#[test]
fn every_write_but_the_first_goes_into_a_file_that_was_made_before() {
    let Some(mut world) = World::in_memory() else { return };
    let user = id("Writer/user");
    for n in 1..=20 {
        world.change(&user, &format!("/a={n} /k{n}='x'"));
        assert_eq!(made(&world), (1, n), "write {n}");
    }
    // What changes nothing needs no file.
    world.change(&user, "/a=20");
    assert_eq!(made(&world), (1, 20));
    world.stop();
    let dir = std::fs::read_dir(&world.places.config).unwrap();
    assert_eq!(dir.count(), 1, "only the database is left");
}

#[test]
fn another_programs_file_is_merged_and_the_file_is_kept_for_the_write_after_it() {
    let Some(mut world) = World::in_memory() else { return };
    let user = id("Writer/user");
    world.change(&user, "/a=1");
    world.write_outside(&user, "/a=1 /theirs=1");
    world.change(&user, "/b=1");
    assert_eq!(world.keys(&user), "/a=1 /b=1 /theirs=1");
    assert_eq!(made(&world), (1, 2));
}

#[test]
fn a_service_that_waits_for_another_keeps_its_file() {
    let Some(mut one) = World::in_memory() else { return };
    let mut other = World::beside(&one);
    let user = id("Writer/user");
    one.change(&user, "/a=1");
    let path = one.places.config.join("user");
    let mut turns = store::turns::Turns::default();
    let turn = turns.ask(&*store::disk::real(), &path).unwrap();
    assert!(one.change(&user, "/b=1").is_empty(), "the turn is another's");
    drop(turn);
    drop(turns);
    // The time after which it is tried again.
    one.clock.advance(Duration::from_millis(1));
    assert!(!one.run().is_empty(), "it is written");
    assert_eq!(made(&one), (1, 2));
    other.change(&user, "/c=1");
    assert_eq!(other.keys(&user), "/a=1 /b=1 /c=1");
}

#[test]
fn nothing_is_made_on_a_disk_for_other_databases_or_while_somebody_waits() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut on_a_disk = World::in_dir(dir, EngineOptions::default());
    if !store::disk::Disk::hold(&*on_a_disk.disk, on_a_disk.dir.path()).is_in_memory() {
        on_a_disk.change(&id("Writer/user"), "/a=1");
        assert!(on_a_disk.engine.next_preparation().is_none(), "on a disk");
    }
    let Some(mut world) = World::in_memory() else { return };
    world.prepares = false;
    for other in ["Writer/other", "shm/user", "keyfile/user", "journal/user"] {
        world.change(&id(other), "/a=1");
        assert!(world.engine.next_preparation().is_none(), "{other}");
    }
    let user = id("Writer/user");
    world.ask(&user, ":1.9", 0, "/a=1");
    assert!(world.engine.next_preparation().is_none(), "it is not read yet");
    let reads = world.engine.next_job().unwrap();
    world.finish(reads);
    assert!(world.engine.next_preparation().is_none(), "nothing was written");
    let writes = world.engine.next_job().unwrap();
    assert!(world.engine.next_preparation().is_none(), "it is being written");
    world.ask(&user, ":1.9", 1, "/b=1");
    world.finish(writes);
    assert!(world.engine.next_preparation().is_none(), "another write is due");
    world.run();
    let large = format!("/large='{}'", "x".repeat(2 << 20));
    world.change(&user, &large);
    assert!(world.engine.next_preparation().is_none(), "it is large");
    world.change(&user, "/large");
    world.engine.begin_shutdown();
    assert!(world.engine.next_preparation().is_none(), "the service ends");
}
