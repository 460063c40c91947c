//! Databases whose image is patched from commit to commit: failures, other services and readers of old files in between.

use crate::engine_support;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use engine_support::{World, id};

/// What a database should hold, and how it is asked for.
#[derive(Default)]
struct Model(BTreeMap<String, u32>);

impl Model {
    /// Returns one change of a long life: mostly keys that come and go, and directories with them.
    fn next(&mut self, n: u32) -> String {
        let key = match n % 3 {
            0 => format!("/d{}/k{}", n % 7, n % 11),
            1 => format!("/d{}/e/f{}/k", n % 5, n % 4),
            _ => format!("/k{}", n % 23),
        };
        if self.0.remove(&key).is_some() && !n.is_multiple_of(4) {
            return key;
        }
        self.0.insert(key.clone(), n);
        format!("{key}={n}")
    }

    fn text(&self) -> String {
        let mut keys: Vec<String> = self.0.iter().map(|(key, n)| format!("{key}={n}")).collect();
        keys.sort();
        keys.join(" ")
    }
}

#[test]
fn a_failure_at_any_step_leaves_no_trace_in_the_next_patch() {
    let on_a_disk = ["Writer/user", "shm/app", "journal/app", "keyfile/app"];
    let worlds = on_a_disk.map(|kind| (World::new(), kind));
    for (mut world, kind) in
        worlds.into_iter().chain(World::in_memory().map(|world| (world, "Writer/user")))
    {
        let database = id(kind);
        world.change(&database, "/a/b=1 /a/c=2 /d/e/f=3 /g=4");
        for step in 0..12 {
            world.change(&database, &format!("/before={step}"));
            world.disk.fail(step, 1);
            let answers = world.change(&database, "/a/new/key=1 /d/e/f /a/b=-7");
            world.disk.fail(i64::MAX, 0);
            // Two patches of what the failure left.
            world.change(&database, "/h/i=1");
            world.change(&database, "/h/i");
            let without = format!("/a/b=1 /a/c=2 /before={step} /d/e/f=3 /g=4");
            let with = format!("/a/b=-7 /a/c=2 /a/new/key=1 /before={step} /g=4");
            let keys = world.keys(&database);
            let acknowledged = answers.iter().any(|answer| answer.starts_with("0 ok"));
            assert!(
                keys == with || (keys == without && !acknowledged),
                "{kind}, step {step}: {answers:?} left {keys}"
            );
            world.change(&database, "/a/new/ /d/e/f=3 /a/b=1");
            world.run_out();
        }
    }
}

#[test]
fn a_file_that_was_ever_published_stays_as_it_was_for_who_has_it_open() {
    for mut world in World::everywhere() {
        let (user, mut model) = (id("Writer/user"), Model::default());
        let path = world.places.config.join("user");
        let mut seen: Vec<(File, Vec<u8>)> = Vec::new();
        for n in 0..200 {
            let change = model.next(n);
            world.change(&user, &change);
            assert_eq!(world.keys(&user), model.text(), "after {change}");
            if n % 3 == 0 {
                seen.push((File::open(&path).unwrap(), std::fs::read(&path).unwrap()));
            }
        }
        for (file, bytes) in &mut seen {
            let mut now = Vec::new();
            file.read_to_end(&mut now).unwrap();
            assert!(now == *bytes, "a published file was written into");
        }
        world.restart();
        world.change(&user, "/nothing");
        assert_eq!(world.keys(&user), model.text());
    }
}

#[test]
fn two_services_that_patch_in_turn_lose_nothing_and_resurrect_nothing() {
    for mut one in World::everywhere() {
        let (user, mut model) = (id("Writer/user"), Model::default());
        let mut other = World::beside(&one);
        for n in 0..300_u32 {
            // Several in a row, so that each patches what it wrote itself before the other one comes.
            let service = if n / 5 % 2 == 0 { &mut one } else { &mut other };
            let change = model.next(n);
            let answers = service.change(&user, &change);
            assert!(
                answers.iter().any(|answer| answer.starts_with("0 ok")),
                "{change}: {answers:?}"
            );
            assert_eq!(service.keys(&user), model.text(), "after {change}");
        }
    }
}
