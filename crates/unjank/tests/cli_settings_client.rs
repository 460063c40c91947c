//! The settings API for programs on a real bus, beside either service and beside the programs that change settings.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::fixture;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bus::client::BusTransport;
use fixture::{Bus, OURS, REAL, in_time, skip};
use gvdb::gvariant::Variant;
use settings::changeset::Changeset;
use settings::client::{Notice, NoticeCause, SettingsClient};
use settings::profile::{SettingsEnvironment, SettingsProfile};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
const PATIENCE: Duration = Duration::from_secs(30);

/// A program on a bus that uses the API.
fn client(bus: &Bus, profile: &str) -> SettingsClient {
    let dir = bus.dir();
    let environment = SettingsEnvironment {
        profile: None,
        config_home: dir.join("config"),
        runtime_dir: dir.join("run"),
        data_dirs: Vec::new(),
        sysconf_dir: dir.join("etc"),
        mandatory_dir: dir.join("mandatory"),
        uid: 0,
    };
    let transport = BusTransport::start(Some(bus.address().to_owned()), None).unwrap();
    SettingsClient::open(
        &SettingsProfile::parse(profile.as_bytes()),
        &environment,
        Arc::new(transport),
    )
}

fn changes(list: &[(&str, Option<i32>)]) -> Changeset {
    let mut changes = Changeset::default();
    for (path, value) in list {
        changes.change(path, value.map(Variant::from));
    }
    changes
}

fn next(notices: &Receiver<Notice>) -> Notice {
    notices.recv_timeout(PATIENCE).unwrap()
}

/// Runs `test` on a bus with our service and on one with the real one.
fn with_either_service(test: fn(&Bus)) {
    with_services(&[(OURS, &["--names", "dconf"]), (REAL, &[])], test);
}

fn with_services(services: &'static [(&'static str, &'static [&'static str])], test: fn(&Bus)) {
    for &(program, arguments) in services {
        if !Path::new(program).exists() {
            skip(&format!("no {program}"));
            continue;
        }
        in_time(move || {
            let Some(bus) = Bus::start() else { return };
            let _service = bus.serve(program, arguments);
            test(&bus);
        });
    }
}

#[test]
fn a_change_is_seen_at_once_by_this_program_and_soon_by_others() {
    with_either_service(|bus| {
        let (ours, other) = (client(bus, "user-db:user"), client(bus, "user-db:user"));
        let (_own, own) = ours.subscribe("/a/").unwrap();
        let (_others, others) = other.subscribe("/a/").unwrap();
        let mut reader = ours.reader();
        ours.change(&changes(&[("/a/b", Some(1)), ("/a/c", Some(2))])).unwrap();
        assert_eq!(reader.get("/a/b").unwrap().as_i32(), Some(1));
        let told = next(&others);
        assert_eq!(told.paths().collect::<Vec<_>>(), ["/a/b", "/a/c"]);
        assert!(matches!(told.cause, NoticeCause::Other { tag } if !tag.is_empty()));
        let mut far = other.reader();
        assert_eq!(far.get("/a/c").unwrap().as_i32(), Some(2));

        ours.sync();
        assert_eq!(reader.get("/a/b").unwrap().as_i32(), Some(1), "now from the database");
        let output = bus.command(UNJANK).args(["settings", "read", "/a/b"]).output().unwrap();
        assert_eq!(output.stdout, b"1\n");
        let status = bus.command(UNJANK).args(["settings", "write", "/a/b", "7"]).status();
        assert!(status.unwrap().success());
        // Our own change was told once, when it was made; the next notice is that of the command.
        assert_eq!(next(&own).cause, NoticeCause::Own);
        let told = next(&own);
        assert_eq!(told.paths().collect::<Vec<_>>(), ["/a/b"]);
        assert!(matches!(told.cause, NoticeCause::Other { .. }));
        assert_eq!(reader.get("/a/b").unwrap().as_i32(), Some(7));
    });
}

#[test]
fn an_observer_that_is_only_told_converges() {
    // dconf-service 0.40 goes through a changeset in the order of a hash table, and a reset of a directory drops what it
    // took from below that directory before. So a change that resets a directory and sets keys in it loses some of them
    // there, whoever sends it; with ours it does not.
    with_services(&[(OURS, &["--names", "dconf"])], |bus| {
        let (ours, other) = (client(bus, "user-db:user"), client(bus, "user-db:user"));
        let (_subscription, notices) = other.subscribe("/").unwrap();
        let mut far = other.reader();
        let mut seen: BTreeMap<String, i32> = BTreeMap::new();
        let mut model: BTreeMap<String, i32> = BTreeMap::new();
        let mut random = fastrand::Rng::with_seed(1);
        let mut below = |end: u64| random.u64(..end);
        for n in 0..400 {
            let key = format!("/d{}/e{}/k{}", below(4), below(3), below(12));
            let change = match below(20) {
                0 => (format!("/d{}/", below(4)), None),
                1..4 => (key, None),
                _ => (key, Some(n)),
            };
            match &change {
                (dir, None) if dir.ends_with('/') => model.retain(|key, _| !key.starts_with(dir)),
                (key, None) => drop(model.remove(key)),
                (key, Some(value)) => drop(model.insert(key.clone(), *value)),
            }
            ours.change(&changes(&[(&change.0, change.1)])).unwrap();
            let mine = ours.reader().get(&change.0).and_then(|value| value.as_i32());
            assert_eq!(mine, change.1, "{}", change.0);
        }
        ours.change(&changes(&[("/end", Some(1))])).unwrap();
        ours.sync();
        while !seen.contains_key("/end") {
            for path in next(&notices).paths() {
                if path.ends_with('/') {
                    seen.retain(|key, _| !key.starts_with(&path));
                    continue;
                }
                match far.get(&path).and_then(|value| value.as_i32()) {
                    Some(value) => drop(seen.insert(path, value)),
                    None => drop(seen.remove(&path)),
                }
            }
        }
        seen.remove("/end");
        assert_eq!(seen, model);
    });
}

#[test]
fn a_service_database_is_made_when_it_is_read() {
    with_either_service(|bus| {
        let ours = client(bus, "service-db:shm/one");
        let mut reader = ours.reader();
        assert!(reader.get("/a").is_none());
        assert!(bus.dir().join("run/dconf-service/shm/one").exists());
        assert_eq!(ours.take_warnings(), Vec::<String>::new());
        ours.change_and_wait(&changes(&[("/a", Some(1))])).unwrap();
        assert_eq!(reader.get("/a").unwrap().as_i32(), Some(1));
    });
}

#[test]
fn a_program_learns_that_its_change_was_refused() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        // Nobody owns the name and nothing can be started.
        let ours = client(&bus, "user-db:user");
        let (_subscription, notices) = ours.subscribe("/").unwrap();
        ours.change(&changes(&[("/a", Some(1))])).unwrap();
        assert_eq!(next(&notices).cause, NoticeCause::Own);
        assert!(matches!(next(&notices).cause, NoticeCause::Refused { .. }));
        ours.sync();
        assert!(ours.reader().get("/a").is_none());
    });
}
