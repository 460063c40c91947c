//! What a settings engine does with the lock of a database: held by others, missing, or failing.

use crate::engine_support;

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use engine_support::{World, id, image, put};
use gvdb::{Stamp, stamp};
use store::disk::real;
use store::turns::{TurnRequest, Turns};
use sys::clock::Clock;
use unjank_settings::engine::EngineNotice;

#[test]
fn a_holder_that_does_not_go_on_is_an_error_that_names_it_within_five_seconds() {
    for name in ["Writer/user", "shm/live", "journal/app"] {
        let (mut world, database, other) = (World::new(), id(name), id("Writer/other"));
        let file = match database.kind().segment() {
            "journal" => world.places.config.join("app.journal-image"),
            _ => world.image(&database),
        };
        let TurnRequest::Granted(turn) = Turns::default().ask(&*real(), &file).unwrap() else {
            panic!("nobody else is here")
        };
        world.ask(&database, ":1.1", 1, "/a=1");
        world.ask(&other, ":1.1", 2, "/a=1");
        assert!(world.run().iter().any(|answer| answer.starts_with("2 ok")), "others go on");
        let before = world.clock.monotonic();
        assert_eq!(world.run_out(), ["1 failed Busy"], "{name}");
        let waited = world.clock.monotonic() - before;
        assert!(waited < Duration::from_millis(4500), "{waited:?}");
        let told = world.reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(
            told.contains(&format!("process {} holds its lock and is stopped", std::process::id())),
            "{told}"
        );
        drop(turn);
        assert_eq!(world.change(&database, "/a=1")[0].split(' ').nth(1), Some("ok"), "{name}");
    }
}

#[test]
fn a_holder_that_runs_is_waited_for_as_a_slow_disk_is() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    *world.disk.holder_goes_on.lock().unwrap() = true;
    let TurnRequest::Granted(turn) = Turns::default().ask(&*real(), &world.image(&user)).unwrap()
    else {
        panic!("nobody else is here")
    };
    let before = world.clock.monotonic();
    world.ask(&user, ":1.1", 1, "/a=2");
    assert_eq!(world.run_out(), ["1 failed Busy"]);
    let waited = world.clock.monotonic() - before;
    let limits = Duration::from_secs(10)..Duration::from_secs(25);
    assert!(limits.contains(&waited), "{waited:?}");
    drop(turn);
}

#[test]
fn a_short_wait_for_another_service_is_no_error() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    let TurnRequest::Granted(turn) = Turns::default().ask(&*real(), &world.image(&user)).unwrap()
    else {
        panic!("nobody else is here")
    };
    world.ask(&user, ":1.1", 1, "/a=2");
    assert_eq!(world.run(), Vec::<String>::new());
    // While it waits, another program's file comes, and more is asked for.
    put(&world.image(&user), &image("/theirs=1"));
    world.ask(&user, ":1.1", 2, "/b=1");
    drop(turn);
    assert_eq!(
        world.run_out(),
        [
            "notify / [a theirs] ",
            "1 ok :1.5:user:1",
            "notify /a [] :1.5:user:1",
            "2 ok :1.5:user:2",
            "notify /b [] :1.5:user:2",
        ]
    );
    assert_eq!(world.keys(&user), "/a=2 /b=1 /theirs=1");
}

#[test]
fn a_file_system_without_locks_is_told_once_and_used() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    *world.disk.lock_errno.lock().unwrap() = Some(37);
    for value in 1..4 {
        assert!(world.change(&user, &format!("/a={value}"))[0].starts_with("0 ok"));
    }
    let told = world.reports.iter().filter(|report| matches!(report, EngineNotice::NoLocks { .. }));
    assert_eq!(told.count(), 1, "{:?}", world.reports);
}

#[test]
fn a_lock_that_fails_changes_nothing_and_says_so() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    *world.disk.lock_errno.lock().unwrap() = Some(5);
    assert_eq!(world.change(&user, "/a=2"), ["0 failed Failed"]);
    assert_eq!(world.keys(&user), "/a=1");
    let told = world.reports.last().unwrap().to_string();
    assert!(told.contains("cannot lock") && told.contains("nothing was changed"), "{told}");
    *world.disk.lock_errno.lock().unwrap() = None;
    assert!(world.change(&user, "/a=2")[0].starts_with("0 ok"));
}

#[test]
fn a_network_file_system_is_told_when_a_database_is_read() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    *world.disk.foreign.lock().unwrap() = Some("nfs4".to_owned());
    world.change(&user, "/a=1");
    world.change(&user, "/a=2");
    let told: Vec<String> = world.reports.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("is on nfs4") && told[0].contains("locks"), "{told:?}");
}

#[test]
fn images_of_two_services_have_rising_generations() {
    let (mut first, user) = (World::new(), id("Writer/user"));
    let mut second = World::beside(&first);
    let mut before = 0;
    for round in 0..6 {
        let world = if round % 2 == 0 { &mut first } else { &mut second };
        world.change(&user, &format!("/k{round}=1"));
        let bytes = std::fs::read(world.image(&user)).unwrap();
        let Stamp::Good { generation } = stamp(&bytes) else { panic!("no stamp") };
        assert!(generation > before, "{generation} after {before}");
        before = generation;
    }
    assert_eq!(first.keys(&user), "/k0=1 /k1=1 /k2=1 /k3=1 /k4=1 /k5=1");
}

#[test]
fn a_service_that_is_always_second_neither_waits_for_ever_nor_overwrites() {
    let (mut first, user) = (World::new(), id("Writer/user"));
    let mut second = World::beside(&first);
    first.change(&user, "/start=1");
    second.change(&user, "/again=1");
    first.change(&user, "/start=2");
    // Longer than the patience that there is with programs that know of no lock.
    for round in 0..12 {
        first.ask(&user, ":1.1", 1, &format!("/first{round}=1"));
        let job = first.engine.next_job().unwrap();
        let answers = second.change(&user, &format!("/second{round}=1"));
        assert!(answers.iter().any(|answer| answer.starts_with("0 ok")), "{answers:?}");
        first.finish(job);
        // It has seen the other's change and keeps the lock until its own is written.
        second.ask(&user, ":1.2", 2, &format!("/third{round}=1"));
        assert_eq!(second.run(), Vec::<String>::new());
        let answers = first.run_out();
        assert!(answers.iter().any(|answer| answer.starts_with("1 ok")), "{answers:?}");
        let answers = second.run_out();
        assert!(answers.iter().any(|answer| answer.starts_with("2 ok")), "{answers:?}");
    }
    let keys = second.keys(&user);
    assert_eq!(keys.split(' ').count(), 2 + 3 * 12, "{keys}");
}

/// File systems give the number of a file that is gone to the next one; times are as coarse as the kernel's clock.
#[test]
fn the_number_of_the_file_that_was_last_seen_is_not_given_to_another_one() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let path = world.image(&user);
    let number = || std::fs::metadata(&path).unwrap().ino();
    for round in 0..50 {
        world.change(&user, &format!("/ours={round}"));
        let ours = number();
        for _ in 0..3 {
            world.write_outside(&user, &format!("/theirs={round}"));
            assert_ne!(number(), ours, "round {round}: another file looks like ours");
        }
    }
}
