//! What the settings engine does when the disk fails, a file is damaged, or another program was there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::engine_support;

use std::path::Path;
use std::time::Duration;

use engine_support::{World, id, image, keys_in, put};
use store::disk::Disk;
use sys::clock::Clock;
use unjank_settings::engine::EngineNotice;

fn read(path: &Path) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_failed_commit_fails_its_batch_and_nothing_else() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1 /b=1");
    world.run_out();
    world.ask(&user, ":1.1", 1, "/a=2");
    world.ask(&user, ":1.2", 2, "/b");
    let job = world.engine.next_job().unwrap();
    // Gathered meanwhile, on top of what is about to be taken back.
    world.ask(&user, ":1.3", 3, "/a=2 /c=1");
    world.ask(&user, ":1.4", 4, "/a=1");
    world.disk.fail(0, 1);
    world.finish(job);
    assert_eq!(
        world.run(),
        [
            "1 failed NoSpace",
            "2 failed NoSpace",
            "3 ok :1.5:user:3",
            "notify / [a c] :1.5:user:3",
            "4 ok :1.5:user:4",
            "notify /a [] :1.5:user:4",
        ]
    );
    assert_eq!(world.keys(&user), "/a=1 /b=1 /c=1");
}

#[test]
fn after_a_failure_even_an_equal_value_is_written() {
    for errno in [28, 30, 13, 122, 5] {
        let (mut world, user) = (World::new(), id("Writer/user"));
        world.change(&user, "/a=1");
        world.run_out();
        world.disk.errno.store(errno, std::sync::atomic::Ordering::Relaxed);
        world.disk.fail(0, 1000);
        let answers = world.change(&user, "/a=2");
        let kind = match errno {
            28 => "NoSpace",
            30 => "ReadOnly",
            13 => "Access",
            122 => "Quota",
            _ => "Io",
        };
        assert_eq!(answers, [format!("0 failed {kind}")]);
        assert_eq!(world.change(&user, "/a=1"), [format!("0 failed {kind}")]);
        assert_eq!(world.keys(&user), "/a=1");
        world.disk.fail(i64::MAX, 0);
        let jobs = world.jobs;
        assert_eq!(world.change(&user, "/a=1"), ["0 ok :1.5:user:3"]);
        assert_eq!(world.jobs, jobs + 1);
    }
}

#[test]
fn readers_see_what_may_not_survive_and_the_reply_says_so() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    world.run_out();
    // create, write, sync, rename, then the sync of the directory.
    world.disk.fail(4, 1);
    assert_eq!(world.change(&user, "/a=2"), ["0 failed NotDurable", "notify /a [] :1.5:user:1"]);
    assert_eq!(world.keys(&user), "/a=2");
    assert_eq!(world.change(&user, "/a=2"), ["0 ok :1.5:user:2"]);
}

#[test]
fn a_database_that_cannot_be_read_is_tried_again() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let path = world.image(&user);
    std::fs::create_dir_all(&path).unwrap();
    world.ask(&user, ":1.1", 1, "/a=1");
    world.ask(&user, ":1.1", 2, "/b=1");
    assert_eq!(world.run(), ["1 failed Failed", "2 failed Failed"]);
    std::fs::remove_dir(&path).unwrap();
    assert_eq!(world.change(&user, "/a=1")[0], "0 ok :1.5:user:2");
}

#[test]
fn a_file_that_is_no_database_is_renamed() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let path = world.image(&user);
    put(&path, b"");
    put(&path.with_file_name("user~0"), b"kept from before");
    assert_eq!(world.change(&user, "/nothing"), ["0 ok :1.5:user:0"]);
    assert!(!path.exists());
    assert_eq!(read(&path.with_file_name("user~1")), "");
    assert_eq!(read(&path.with_file_name("user~0")), "kept from before");
    assert_eq!(world.reports.len(), 1);
    world.change(&user, "/a=1");
    assert_eq!(world.keys(&user), "/a=1");
}

#[test]
fn a_snapshot_fills_what_damage_took() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a/one='first' /a/two='second' /b/three='third'");
    world.run_out();
    world.change(&user, "/a/one='newer'");
    world.stop();
    let path = world.image(&user);
    let good = std::fs::read(&path).unwrap();
    for cut in 0..good.len() {
        put(&path, &good[..cut]);
        world.restart();
        world.reports.clear();
        world.change(&user, "/nothing");
        world.run_out();
        let keys = world.keys(&user);
        assert!(
            keys.contains("/a/one='first'") || keys.contains("/a/one='newer'"),
            "{cut}: {keys}"
        );
        assert!(keys.contains("/a/two='second' /b/three='third'"), "{cut}: {keys}");
        assert!(
            world.reports.iter().all(|r| matches!(
                r,
                EngineNotice::Salvaged { .. } | EngineNotice::NotADatabase { .. }
            )),
            "{:?}",
            world.reports
        );
        assert_eq!(world.reports.len(), 1);
        let kept = std::fs::read(path.with_file_name("user~0")).unwrap();
        assert_eq!(kept, good[..cut]);
        std::fs::remove_file(path.with_file_name("user~0")).unwrap();
    }
}

#[test]
fn what_was_acknowledged_before_the_damage_is_replayed_over_the_snapshot() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a/one='first' /a/two='second' /gone=1 /b/x=1 /b/y=1");
    world.run_out();
    // No snapshot holds what comes now: they are made once a day where blocks are not shared.
    let dir = world.places.state.join("snapshots");
    let snapshots = || std::fs::read_dir(&dir).unwrap().count();
    let made = snapshots();
    for value in 0..20 {
        world.change(&user, &format!("/a/one='newer{value}'"));
    }
    world.change(&user, "/gone");
    world.change(&user, "/b/ /b/z=1");
    // A backup that was put back belongs to what is replayed, and so does what came after it.
    world.write_outside(&user, "/a/one='backup' /a/two='second' /b/z=1 /c=1");
    world.stir(&user);
    world.run();
    world.change(&user, "/d=1");
    world.clock.advance(Duration::from_secs(5));
    world.run();
    world.change(&user, "/e='last'");
    world.clock.advance(Duration::from_secs(1));
    world.run();
    let made_since = snapshots() - made;
    assert_eq!(made_since, 0, "a snapshot was made, which this test is not about");
    let expected = world.keys(&user);
    assert_eq!(expected, "/a/one='backup' /a/two='second' /b/z=1 /c=1 /d=1 /e='last'");
    let path = world.image(&user);
    let good = std::fs::read(&path).unwrap();
    let zeros = |from: usize| {
        let mut bad = good.clone();
        bad[from..].fill(0);
        bad
    };
    let cut = (0..good.len()).step_by(11).map(|at| good[..at].to_vec());
    let wiped = (1..good.len()).step_by(7).map(zeros);
    for (number, bad) in cut.chain(wiped).enumerate() {
        put(&path, &bad);
        world.restart();
        world.change(&user, "/nothing");
        world.run();
        assert_eq!(world.keys(&user), expected, "damage {number}");
        let _ = std::fs::remove_file(path.with_file_name("user~0"));
    }
}

#[test]
fn a_history_alone_brings_a_database_back_before_its_first_snapshot() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1 /b=1");
    world.change(&user, "/a=2");
    // A second later the history is written; the first snapshot is not made yet.
    while let Some(deadline) = world.engine.deadline() {
        world.clock.advance(deadline.saturating_sub(world.clock.monotonic()));
        world.run();
        if unjank_settings::history::file(&world.places).exists() {
            break;
        }
    }
    let _ = std::fs::remove_dir_all(world.places.state.join("snapshots"));
    put(&world.image(&user), b"");
    world.restart();
    world.change(&user, "/c=1");
    world.run();
    assert_eq!(world.keys(&user), "/a=2 /b=1 /c=1");
}

#[test]
fn temporary_files_of_killed_writers_go_at_the_next_start() {
    let mut world = World::new();
    let ids = ["Writer/user", "keyfile/text", "journal/log", "shm/quick"].map(id);
    for id in &ids {
        world.change(id, "/a=1");
    }
    world.run_out();
    world.stop();
    let token = "0123456789abcdef";
    let (config, volatile) = (world.places.config.clone(), world.places.volatile.clone());
    let stale = [
        config.join(format!(".user.unjank-{token}")),
        config.join("user.5TNF9Z"),
        config.join(format!(".text.txt.unjank-{token}")),
        config.join(format!(".log.journal-image.unjank-{token}")),
        config.join(format!(".log.journal-log.unjank-{token}")),
        volatile.join(format!("shm/.quick.unjank-{token}")),
        volatile.join(format!("keyfile/.text.unjank-{token}")),
        world.places.state.join(format!(".history.journal.unjank-{token}")),
        world.places.state.join(format!("snapshots/.user.1.1700000000.unjank-{token}")),
    ];
    let kept = [config.join("user.backup"), config.join(".another"), config.join("other.5TNF9Z")];
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    for path in stale.iter().chain(&kept) {
        put(path, b"half of some");
        std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    // One whose writer lives is its own business.
    let lived_in = config.join(format!(".user.unjank-{}", token.replace('0', "f")));
    let writer = world.disk.create(&lived_in, 0o600).unwrap();
    let file = std::fs::File::options().write(true).open(&lived_in).unwrap();
    file.set_modified(long_ago).unwrap();
    for id in &ids {
        world.change(id, "/a=2");
    }
    world.run_out();
    let left: Vec<_> = stale.iter().filter(|path| path.exists()).collect();
    assert_eq!(left, Vec::<&std::path::PathBuf>::new());
    assert!(kept.iter().all(|path| path.exists()) && lived_in.exists());
    drop(writer);
}

#[test]
fn snapshots_go_on_after_another_programs_file() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    for value in 0..9 {
        world.change(&user, &format!("/a={value}"));
    }
    world.stop();
    world.write_outside(&user, "/theirs=1");
    world.restart();
    world.clock.advance(Duration::from_secs(2 * 86_400));
    world.change(&user, "/ours=1");
    world.run_out();
    let kept = std::fs::read_dir(world.places.state.join("snapshots")).unwrap();
    let kept: Vec<_> = kept.map(|entry| keys_in(&entry.unwrap().path())).collect();
    assert!(kept.contains(&"/ours=1 /theirs=1".to_owned()), "{kept:?}");
}

#[test]
fn a_flipped_bit_never_loses_a_key() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a/one='first' /b/two=true");
    world.run_out();
    world.stop();
    let path = world.image(&user);
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        put(&path, &bad);
        world.restart();
        world.change(&user, "/nothing");
        world.run_out();
        assert_eq!(world.keys(&user), "/a/one='first' /b/two=true", "at {at}");
        let _ = std::fs::remove_file(path.with_file_name("user~0"));
    }
}

#[test]
fn another_programs_edit_is_merged_and_told() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/ours=1 /both=1 /gone=1");
    world.write_outside(&user, "/both=2 /theirs=1 /ours=1");
    world.ask(&user, ":1.1", 1, "/mine=1");
    assert_eq!(
        world.run(),
        ["notify / [both gone theirs] ", "1 ok :1.5:user:1", "notify /mine [] :1.5:user:1"]
    );
    assert_eq!(world.keys(&user), "/both=2 /mine=1 /ours=1 /theirs=1");
    // On the same key an unpublished change wins.
    world.write_outside(&user, "/both=3");
    world.ask(&user, ":1.1", 1, "/both=4");
    assert_eq!(world.run()[0], "notify / [both mine ours theirs] ");
    assert_eq!(world.keys(&user), "/both=4");
    // Without a change the daemon is told by its watch.
    world.write_outside(&user, "/both=5");
    world.stir(&user);
    assert_eq!(world.run(), ["notify /both [] "]);
    world.stir(&user);
    assert_eq!(world.run_out(), Vec::<String>::new());
    assert_eq!(world.keys(&user), "/both=5");
    assert_eq!(world.change(&user, "/both=5"), ["0 ok :1.5:user:3"]);
}

#[test]
fn a_look_waits_for_writes_and_who_changes_nothing_does_not_wait_for_it() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    // As every commit of ours stirs the file.
    world.engine.outside_edit(&user);
    assert!(world.engine.next_job().is_none(), "the next write would wait for the look");
    assert_eq!(world.change(&user, "/a=2"), ["0 ok :1.5:user:1", "notify /a [] :1.5:user:1"]);
    world.write_outside(&user, "/a=3");
    world.engine.outside_edit(&user);
    assert_eq!(
        world.change(&user, "/a=2"),
        ["notify /a [] ", "0 ok :1.5:user:2", "notify /a [] :1.5:user:2"]
    );
    world.write_outside(&user, "/a=4");
    world.stir(&user);
    assert_eq!(world.run(), ["notify /a [] "], "in time also without a request");
}

#[test]
fn removing_the_file_resets_the_settings_and_a_copy_is_kept() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1 /b=1");
    std::fs::remove_file(world.image(&user)).unwrap();
    world.stir(&user);
    // It may be about to be replaced by a program that removes first.
    assert_eq!(world.run(), Vec::<String>::new());
    world.clock.advance(Duration::from_millis(299));
    assert_eq!(world.run(), Vec::<String>::new());
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.run(), ["notify / [a b] "]);
    assert_eq!(world.keys(&user), "no file");
    let kept = std::fs::read_dir(world.places.state.join("snapshots")).unwrap();
    let kept: Vec<_> = kept.map(|entry| keys_in(&entry.unwrap().path())).collect();
    assert!(kept.contains(&"/a=1 /b=1".to_owned()), "{kept:?}");
    world.change(&user, "/c=1");
    assert_eq!(world.keys(&user), "/c=1");
}

#[test]
fn an_unfinished_file_of_another_program_is_kept_aside_and_ours_stays() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1 /b=1");
    let path = world.image(&user);
    let other = image("/x=1 /y='a-long-value-that-is-cut'");
    put(&path, &other[..other.len() - 20]);
    world.stir(&user);
    assert_eq!(world.run(), Vec::<String>::new());
    // It is finished in time: taken as it is.
    put(&path, &other);
    assert_eq!(world.run_out(), ["notify / [a b x y] "]);
    // It never is: ours is put back.
    put(&path, &other[..other.len() - 20]);
    world.stir(&user);
    world.run_out();
    assert_eq!(world.keys(&user), "/x=1 /y='a-long-value-that-is-cut'");
    assert_eq!(std::fs::read(path.with_file_name("user~0")).unwrap(), other[..other.len() - 20]);
    assert!(world.reports.iter().any(|r| matches!(r, EngineNotice::OutsideDamaged { .. })));
}

#[test]
fn a_symlink_stays_one() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let target = world.dir.path().join("dotfiles/user");
    put(&target, &image("/a=1"));
    std::fs::create_dir_all(&world.places.config).unwrap();
    std::os::unix::fs::symlink(&target, world.image(&user)).unwrap();
    world.change(&user, "/b=1");
    assert_eq!(keys_in(&target), "/a=1 /b=1");
    assert!(world.image(&user).is_symlink());
}

#[test]
fn the_text_of_a_keyfile_database_is_the_truth() {
    let (mut world, database) = (World::new(), id("keyfile/site"));
    let text = world.places.config.join("site.txt");
    put(&text, b"# by hand\n[a]\n# the answer\nx=42\nbroken=oops(\n\n[b/c]\ny='z'\n");
    // What the text has is told, because readers did not have it.
    assert_eq!(
        world.change(&database, "/a/x=43"),
        ["notify / [a/x b/c/y] ", "0 ok :1.5:site:0", "notify /a/x [] :1.5:site:0"]
    );
    assert_eq!(world.keys(&database), "/a/x=43 /b/c/y='z'");
    assert_eq!(read(&text), "# by hand\n[a]\n# the answer\nx=43\nbroken=oops(\n\n[b/c]\ny='z'\n");
    assert!(matches!(world.reports[..], [EngineNotice::TextSkipped { keys: 1, .. }]));
    // An edit by hand is picked up, with and without a change of ours.
    put(&text, b"[a]\nx=1\n");
    world.stir(&database);
    assert_eq!(world.run_out(), ["notify / [a/x b/c/y] "]);
    assert_eq!(world.keys(&database), "/a/x=1");
    put(&text, b"[a]\nx=2\n");
    assert_eq!(
        world.change(&database, "/n=['n']"),
        ["notify /a/x [] ", "0 ok :1.5:site:1", "notify /n [] :1.5:site:1"]
    );
    assert_eq!(read(&text), "[a]\nx=2\n\n[/]\nn=['n']\n");
    // Nonsense is an error, and nothing is touched.
    put(&text, b"nonsense\n");
    assert_eq!(world.change(&database, "/n=1"), ["0 failed Invalid"]);
    assert_eq!(read(&text), "nonsense\n");
}

#[test]
fn a_lock_held_elsewhere_delays_its_database_only() {
    let (mut world, database, user) = (World::new(), id("keyfile/site"), id("Writer/user"));
    *world.disk.locked.lock().unwrap() = true;
    world.ask(&database, ":1.1", 1, "/a=1");
    world.ask(&user, ":1.1", 2, "/a=1");
    assert_eq!(world.run(), ["2 ok :1.5:user:0", "notify /a [] :1.5:user:0"]);
    *world.disk.locked.lock().unwrap() = false;
    assert_eq!(world.run_out(), ["1 ok :1.5:site:0", "notify /a [] :1.5:site:0"]);
    // A host that never lets go is an error in the end.
    *world.disk.locked.lock().unwrap() = true;
    world.ask(&database, ":1.1", 1, "/a=2");
    assert_eq!(world.run_out(), ["1 failed Busy"]);
    assert_eq!(world.keys(&database), "/a=1");
}

#[test]
fn a_journal_database_writes_little_and_loses_nothing() {
    let (mut world, database) = (World::new(), id("journal/app"));
    world.change(&database, "/a=1");
    world.change(&database, "/b=1 /c/d=1");
    world.change(&database, "/c/ /a=2");
    // Killed: there is no checkpoint, and the live image may be gone with the session.
    assert!(!world.places.config.join("app.journal-image").exists());
    std::fs::remove_file(world.image(&database)).unwrap();
    world.restart();
    world.engine.init(&database, 5);
    assert_eq!(world.run(), ["notify / [a b] ", "5 init"]);
    assert_eq!(world.keys(&database), "/a=2 /b=1");
    // Ended: everything is in the checkpoint.
    world.change(&database, "/e=1");
    world.stop();
    assert_eq!(keys_in(&world.places.config.join("app.journal-image")), "/a=2 /b=1 /e=1");
    world.change(&database, "/e=2");
    world.restart();
    world.engine.init(&database, 5);
    world.run();
    assert_eq!(world.keys(&database), "/a=2 /b=1 /e=2");
}

#[test]
fn a_journal_that_failed_is_replaced_by_a_checkpoint() {
    let (mut world, database) = (World::new(), id("journal/app"));
    world.change(&database, "/a=1");
    world.run_out();
    world.disk.fail(0, 1);
    assert_eq!(world.change(&database, "/a=2"), ["0 failed NoSpace"]);
    assert_eq!(world.keys(&database), "/a=1");
    assert_eq!(world.change(&database, "/b=1")[0], "0 ok :1.5:app:2");
    // The failed record may be on the disk; it must not come back after this.
    world.restart();
    world.engine.init(&database, 5);
    world.run();
    assert_eq!(world.keys(&database), "/a=1 /b=1");
}

#[test]
fn a_stored_change_that_readers_do_not_see_is_told_later() {
    let (mut world, database) = (World::new(), id("journal/app"));
    world.change(&database, "/a=1");
    world.run_out();
    // One call for the record, then the live image.
    world.disk.fail(1, 1);
    let answers = world.change(&database, "/a=2");
    assert_eq!(answers, ["0 failed NoSpace"]);
    assert_eq!(world.keys(&database), "/a=1");
    assert_eq!(world.run_out(), ["notify /a [] :1.5:app:1"]);
    assert_eq!(world.keys(&database), "/a=2");
}

#[test]
fn a_damaged_checkpoint_is_kept_aside_and_replaced() {
    let (mut world, database) = (World::new(), id("journal/app"));
    world.change(&database, "/a=1 /b='text'");
    world.stop();
    world.change(&database, "/c=1");
    world.restart();
    let checkpoint = world.places.config.join("app.journal-image");
    let good = std::fs::read(&checkpoint).unwrap();
    put(&checkpoint, &good[..good.len() - 3]);
    world.engine.init(&database, 5);
    world.run_out();
    assert!(world.keys(&database).contains("/c=1"));
    assert!(checkpoint.with_file_name("app.journal-image~0").exists());
    world.restart();
    world.reports.clear();
    world.engine.init(&database, 5);
    world.run_out();
    assert_eq!(world.reports, []);
}

#[test]
fn the_disk_is_left_alone_when_nothing_happens() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    world.run_out();
    let writes = world.disk.writes.load(std::sync::atomic::Ordering::Relaxed);
    for _ in 0..10 {
        world.clock.advance(Duration::from_secs(3600));
        world.run_out();
    }
    assert_eq!(world.disk.writes.load(std::sync::atomic::Ordering::Relaxed), writes);
    assert_eq!(world.engine.deadline(), None);
    assert!(world.disk.stat(&world.image(&user)).is_ok());
}
