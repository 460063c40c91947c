//! What a caller of the settings engine sees: replies, signals, tags and files.

use crate::engine_support;

use engine_support::{World, changeset, id, keys_in, put};
use gvdb::gvariant::Variant;
use unjank_settings::changeset::Changeset;
use unjank_settings::engine::{DatabaseKind, MOST_DATABASES, MOST_OF_ALL, MOST_OF_ONE};

#[test]
fn a_change_is_replied_to_and_then_told() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    assert_eq!(world.change(&user, "/a/b=1"), ["0 ok :1.5:user:0", "notify /a/b [] :1.5:user:0"]);
    assert_eq!(world.keys(&user), "/a/b=1");
    assert_eq!(
        world.change(&user, "/a/b=2 /a/c='x' /q=true"),
        ["0 ok :1.5:user:1", "notify / [a/b a/c q] :1.5:user:1"]
    );
    assert_eq!(world.change(&user, "/a/"), ["0 ok :1.5:user:2", "notify /a/ [] :1.5:user:2"]);
    assert_eq!(world.keys(&user), "/q=true");
    // Each object counts for itself.
    let other = id("Writer/other");
    assert_eq!(world.change(&other, "/x"), ["0 ok :1.5:other:0"]);
    assert_eq!(world.keys(&other), "no file");
}

#[test]
fn what_changes_nothing_has_a_tag_but_no_write_and_no_signal() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    world.run_out();
    let jobs = world.jobs;
    assert_eq!(world.change(&user, "/a=1"), ["0 ok :1.5:user:1"]);
    assert_eq!(world.change(&user, "/b /c/"), ["0 ok :1.5:user:2"]);
    world.engine.change(&user, Changeset::default(), ":1.9", 7);
    assert_eq!(world.run(), ["7 ok :1.5:user:3"]);
    assert_eq!(world.jobs, jobs);
    assert_eq!(world.change(&user, "/a=2")[0], "0 ok :1.5:user:4");
}

#[test]
fn an_equal_value_is_acknowledged_only_when_the_first_is_durable() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/a=1");
    world.ask(&user, ":1.7", 1, "/a=2");
    let job = world.engine.next_job().unwrap();
    world.ask(&user, ":1.8", 2, "/a=2");
    assert!(world.engine.next_answer().is_none());
    world.finish(job);
    assert_eq!(world.run(), ["1 ok :1.5:user:1", "notify /a [] :1.5:user:1", "2 ok :1.5:user:2"]);
}

#[test]
fn changes_of_many_senders_share_one_write() {
    let (mut world, user, other) = (World::new(), id("Writer/user"), id("Writer/other"));
    world.change(&user, "/a=1");
    world.change(&other, "/a=1");
    world.run_out();
    let jobs = world.jobs;
    for token in 0..20 {
        let database = if token % 2 == 0 { &user } else { &other };
        world.ask(database, &format!(":1.{token}"), token, &format!("/k{token}=1"));
    }
    let answers = world.run();
    assert_eq!(world.jobs, jobs + 1);
    let order: Vec<u32> = answers
        .iter()
        .filter(|answer| !answer.starts_with("notify"))
        .map(|answer| answer.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    // Each signal follows its reply.
    assert!(answers.chunks(2).all(|pair| pair[1].ends_with(pair[0].rsplit(' ').next().unwrap())));
}

#[test]
fn a_change_sees_those_before_it() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.ask(&user, ":1.1", 1, "/a=1");
    world.ask(&user, ":1.2", 2, "/a=2 /b=1");
    world.ask(&user, ":1.3", 3, "/b /a=2");
    assert_eq!(
        world.run(),
        [
            "1 ok :1.5:user:0",
            "notify /a [] :1.5:user:0",
            "2 ok :1.5:user:1",
            "notify / [a b] :1.5:user:1",
            "3 ok :1.5:user:2",
            "notify /b [] :1.5:user:2",
        ]
    );
    assert_eq!(world.keys(&user), "/a=2");
}

#[test]
fn init_makes_a_file_for_every_kind_but_writer() {
    let mut world = World::new();
    for (path, file) in
        [("Writer/user", "no file"), ("shm/a", ""), ("keyfile/b", ""), ("journal/c", "")]
    {
        world.engine.init(&id(path), 3);
        assert_eq!(world.run(), ["3 init"], "{path}");
        assert_eq!(world.keys(&id(path)), file, "{path}");
    }
    // A second one finds it there.
    let jobs = world.jobs;
    world.engine.init(&id("shm/a"), 4);
    assert_eq!(world.run(), ["4 init"]);
    assert_eq!(world.jobs, jobs);
}

#[test]
fn readers_of_a_live_image_are_told_by_its_first_byte() {
    let mut world = World::new();
    for path in ["shm/a", "keyfile/a", "journal/a"] {
        let database = id(path);
        world.change(&database, "/k=1");
        let old = std::fs::File::open(world.image(&database)).unwrap();
        world.change(&database, "/k=2");
        let mut first = [1_u8; 8];
        std::os::unix::fs::FileExt::read_exact_at(&old, &mut first, 0).unwrap();
        assert_eq!(first, [0; 8], "{path}");
    }
    // Readers of a Writer database may still use the old file.
    let user = id("Writer/user");
    world.change(&user, "/k=1");
    let old = std::fs::File::open(world.image(&user)).unwrap();
    world.change(&user, "/k=2");
    let mut first = [0_u8; 8];
    std::os::unix::fs::FileExt::read_exact_at(&old, &mut first, 0).unwrap();
    assert_eq!(&first, b"GVariant");
}

#[test]
fn a_writer_database_raises_its_flag_before_it_answers() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.change(&user, "/k=1");
    let flag = store::generation::Flag::arm(&world.places.flags.join("user"));
    assert!(!flag.is_raised());
    world.ask(&user, ":1.9", 1, "/k=2");
    let job = world.engine.next_job().unwrap();
    assert!(!flag.is_raised());
    let done = job.run();
    assert!(flag.is_raised());
    world.engine.finished(done);
    assert!(!world.places.flags.join("user").exists());
}

#[test]
fn names_are_those_on_disk_and_those_in_use() {
    let mut world = World::new();
    for file in ["user", "work", "user.txt", "old.journal-image", "user~0", "a b", ".hidden"] {
        put(&world.places.config.join(file), b"");
    }
    world.change(&id("Writer/fresh"), "/nothing");
    assert_eq!(world.engine.names(DatabaseKind::User).run(), ["fresh", "user", "work"]);
    assert_eq!(world.engine.names(DatabaseKind::Keyfile).run(), ["user"]);
    assert_eq!(world.engine.names(DatabaseKind::Journal).run(), ["old"]);
    assert_eq!(world.engine.names(DatabaseKind::Shm).run(), Vec::<String>::new());
}

#[test]
fn what_the_format_cannot_hold_is_refused_and_nothing_else() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    world.ask(&user, ":1.1", 1, &format!("/{}=1", "x".repeat(70_000)));
    world.ask(&user, ":1.1", 2, "/a=1");
    assert_eq!(world.run(), ["1 failed Invalid", "2 ok :1.5:user:1", "notify /a [] :1.5:user:1"]);
    assert_eq!(changeset("/a=1").len(), 1);
    let text = id("keyfile/t");
    assert_eq!(world.change(&text, "/a[b=1"), ["0 failed Invalid"]);
}

#[test]
fn a_paced_sender_waits_alone_and_its_last_value_lands() {
    let (mut world, user) = (World::new(), id("Writer/user"));
    let mut delayed = 0;
    for value in 0..200 {
        world.ask(&user, ":1.1", 1, &format!("/slider={value}"));
        delayed += usize::from(world.run().is_empty());
        if delayed > 0 {
            break;
        }
    }
    assert_eq!(delayed, 1, "never paced");
    // In memory at once, published when it is due.
    let due = world.engine.deadline().unwrap();
    assert!(due.as_millis() >= 50 && due.as_millis() <= 200, "{due:?}");
    // Another sender is answered at once, and takes the waiting change along.
    world.ask(&user, ":1.2", 2, "/other=1");
    let answers = world.run();
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert!(answers[0].starts_with("1 ok") && answers[2].starts_with("2 ok"));
    // The end hurries what waits.
    world.ask(&user, ":1.1", 1, "/slider=-1");
    assert_eq!(world.run(), Vec::<String>::new());
    world.stop();
    assert_eq!(world.keys(&user), "/other=1 /slider=-1");
    assert_eq!(keys_in(&world.image(&user)), world.keys(&user));
}

#[test]
fn a_caller_that_names_many_databases_is_refused() {
    let mut world = World::new();
    for number in 0..MOST_DATABASES {
        let database = id(&format!("Writer/n{number}"));
        assert!(world.change(&database, "/a=1")[0].starts_with("0 ok"), "{number}");
    }
    for object in ["Writer/more", "shm/more", "keyfile/more", "journal/more"] {
        let answers = world.change(&id(object), "/a=1");
        assert!(answers.len() == 1 && !answers[0].starts_with("0 ok"), "{object}: {answers:?}");
        assert_eq!(world.keys(&id(object)), "no file", "{object}");
    }
    // Those that are there, and the user's own, are not affected.
    for object in ["Writer/n0", "Writer/user"] {
        assert!(world.change(&id(object), "/b=1")[0].starts_with("0 ok"), "{object}");
    }
}

/// A change that sets one key to a text of this length.
fn large(path: &str, length: usize) -> Changeset {
    let mut changes = Changeset::default();
    changes.change(path, Some(Variant::from(&*"x".repeat(length))));
    changes
}

#[test]
fn a_caller_that_fills_databases_is_refused_and_the_users_own_goes_on() {
    let mut world = World::new();
    let user = id("Writer/user");
    let ask = |world: &mut World, object: &str, path: &str, length| {
        world.engine.change(&id(object), large(path, length), ":1.9", 0);
        world.run_out().remove(0)
    };
    // One database holds so much and no more, also key by key, and can be made smaller.
    assert!(ask(&mut world, "Writer/a", "/a", MOST_OF_ONE - 1000).starts_with("0 ok"));
    assert_eq!(ask(&mut world, "Writer/a", "/b", 2000), "0 failed Quota");
    for number in 0..20 {
        ask(&mut world, "Writer/a", &format!("/many/{number}"), 10);
    }
    assert_eq!(ask(&mut world, "Writer/a", "/c", 10), "0 failed Quota");
    assert!(world.change(&id("Writer/a"), "/a")[0].starts_with("0 ok"));
    assert!(ask(&mut world, "Writer/a", "/c", MOST_OF_ONE / 2).starts_with("0 ok"));
    // All together, too: what was refused is in no file.
    let mut taken = 0;
    for number in 0..8 {
        let object = format!("Writer/n{number}");
        match &*ask(&mut world, &object, "/a", MOST_OF_ALL / 8) {
            "0 failed Quota" => assert_eq!(world.keys(&id(&object)), "no file", "{object}"),
            _ => taken += MOST_OF_ALL / 8,
        }
    }
    assert!(taken > 0 && taken < MOST_OF_ALL, "{taken}");
    // The user's own database has a share of its own.
    assert!(ask(&mut world, "Writer/user", "/a", MOST_OF_ONE / 2).starts_with("0 ok"));
    assert!(world.change(&user, "/b=1")[0].starts_with("0 ok"));
}

#[test]
fn changes_that_wait_are_bounded_also_where_each_replaces_the_last() {
    let mut world = World::new();
    let user = id("Writer/user");
    world.change(&user, "/a=1");
    world.run_out();
    for token in 1..=20 {
        world.engine.change(&user, large("/a", MOST_OF_ONE / 4), ":1.9", token);
    }
    let answers = world.run_out();
    let done = answers.iter().filter(|answer| answer.contains(" ok ")).count();
    let refused = answers.iter().filter(|answer| answer.ends_with(" Quota")).count();
    assert!(done > 2 && refused > 2 && done + refused == 20, "{answers:?}");
    // With what waited gone there is room again.
    world.engine.change(&user, large("/a", MOST_OF_ONE / 4), ":1.9", 21);
    assert!(world.run_out()[0].starts_with("21 ok"));
}
