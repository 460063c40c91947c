//! A client beside a model, with a simulated service.

#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use gvdb::Image;
use gvdb::gvariant::VariantView;
use proptest::prelude::*;

use super::*;

type Values = BTreeMap<String, i32>;
type List = Vec<(String, Option<i32>)>;

/// The simulated service, which answers when the test says so.
#[derive(Debug, Default)]
struct Service(Mutex<ServiceState>);

#[derive(Default)]
struct ServiceState {
    waiting: VecDeque<(Vec<u8>, ChangeCompletion)>,
    watchers: Vec<(String, Deliver)>,
    tags: u32,
}

impl std::fmt::Debug for ServiceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} waiting", self.waiting.len())
    }
}

impl Transport for Service {
    fn change(&self, object_path: &str, body: Vec<u8>, done: ChangeCompletion) {
        assert_eq!(object_path, "/ca/desrt/dconf/Writer/user");
        lock(&self.0).waiting.push_back((body, done));
    }

    fn init(&self, _object_path: &str) -> Result<(), TransportError> {
        Ok(())
    }

    fn watch(
        &self,
        _bus: ProfileBus,
        _object_path: &str,
        path: &str,
        deliver: Deliver,
    ) -> Result<SignalDelivery, TransportError> {
        lock(&self.0).watchers.push((path.to_owned(), deliver));
        Ok(Box::new(()))
    }
}

/// A client, its service and what is on disk.
struct ClientFixture {
    dir: tempfile::TempDir,
    service: Arc<Service>,
    client: SettingsClient,
    disk: Values,
}

impl ClientFixture {
    fn new(profile: &str) -> ClientFixture {
        let dir = tempfile::tempdir().unwrap();
        let service = Arc::new(Service::default());
        let environment = SettingsEnvironment {
            profile: None,
            config_home: dir.path().join("config"),
            runtime_dir: dir.path().join("run"),
            data_dirs: Vec::new(),
            sysconf_dir: dir.path().join("etc"),
            mandatory_dir: dir.path().join("mandatory"),
            uid: 0,
        };
        std::fs::create_dir(&environment.runtime_dir).unwrap();
        let profile = SettingsProfile::parse(profile.as_bytes());
        let transport: Arc<dyn Transport> = Arc::clone(&service) as _;
        let client = SettingsClient::open(&profile, &environment, transport);
        ClientFixture { dir, service, client, disk: Values::new() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Publishes what is on disk as the service does.
    fn publish(&self) {
        write(&self.path("config/dconf/user"), &self.disk, &[]);
        store::generation::raise(&self.path("run/dconf/user")).unwrap();
    }

    fn apply_and_publish(&mut self, list: &List) {
        apply(&mut self.disk, list);
        self.publish();
    }

    /// Answers the request under way; says whether there was one.
    fn answer(&mut self, refuse: Option<&str>) -> Option<List> {
        let (body, done) = {
            let mut state = lock(&self.service.0);
            assert!(state.waiting.len() <= 1, "one request at a time");
            state.waiting.pop_front()?
        };
        let list: List = Changeset::decode(&body)
            .iter()
            .map(|(path, value)| (path.to_owned(), value.and_then(|v| v.view().as_i32())))
            .collect();
        if let Some(text) = refuse {
            done(Err(TransportError { text: text.to_owned() }));
            return Some(list);
        }
        self.apply_and_publish(&list);
        let tag = {
            let mut state = lock(&self.service.0);
            state.tags += 1;
            format!(":1.9:user:{}", state.tags)
        };
        done(Ok(tag.clone()));
        self.signal(&list, &tag);
        Some(list)
    }

    fn signal(&self, list: &List, tag: &str) {
        let sorted: BTreeMap<_, _> = list.iter().cloned().collect();
        let paths: Vec<_> = sorted.keys().collect();
        let Some((prefix, changes)) = notification(&paths) else { return };
        let watchers = lock(&self.service.0).watchers.clone();
        for (path, deliver) in watchers {
            // As the bus does for `arg0path`.
            let related = prefix == path
                || (prefix.ends_with('/') && path.starts_with(&prefix))
                || (path.ends_with('/') && prefix.starts_with(&path));
            if related {
                deliver(DatabaseSignal::Notify {
                    prefix: prefix.clone(),
                    changes: changes.clone(),
                    tag: tag.to_owned(),
                });
            }
        }
    }

    fn change(&self, list: &[(&str, Option<i32>)]) -> Result<(), ChangeError> {
        self.client.change(&changeset(list))
    }
}

#[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
fn write(path: &Path, values: &Values, locks: &[&str]) {
    let values: Vec<_> = values.iter().map(|(k, v)| (&**k, Variant::from(*v))).collect();
    let entries = values.iter().map(|(key, value)| (*key, value.as_bytes()));
    let image = gvdb::write(entries, &Image { locks, generation: None }).unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let temp = path.with_extension("new");
    std::fs::write(&temp, image).unwrap();
    std::fs::rename(temp, path).unwrap();
}

fn apply(values: &mut Values, list: &List) {
    let sorted: BTreeMap<_, _> = list.iter().cloned().collect();
    for (path, value) in sorted {
        match value {
            _ if path.ends_with('/') => values.retain(|key, _| !key.starts_with(&path)),
            Some(value) => drop(values.insert(path, value)),
            None => drop(values.remove(&path)),
        }
    }
}

fn changeset(list: &[(&str, Option<i32>)]) -> Changeset {
    let mut changes = Changeset::default();
    for (path, value) in list {
        changes.change(path, value.map(Variant::from));
    }
    changes
}

fn read(reader: &mut SettingsReader, key: &str, which: ValueChoice) -> Option<i32> {
    reader.read(&Key::new(key), which).and_then(VariantView::as_i32)
}

/// Reads the effective value as a program does that keeps values by their origin.
fn read_by_origin(reader: &mut SettingsReader, key: &str) -> Option<i32> {
    match reader.origin(key) {
        ValueOrigin::Pending(Some(value)) => value.view().as_i32(),
        ValueOrigin::Pending(None) => read(reader, key, ValueChoice::Default),
        ValueOrigin::Databases(_) => {
            reader.read_databases(&Key::new(key)).and_then(VariantView::as_i32)
        }
    }
}

#[test]
fn a_change_is_seen_at_once_and_stays() {
    let mut world = ClientFixture::new("user-db:user");
    let mut reader = world.client.reader();
    world.change(&[("/a", Some(1))]).unwrap();
    assert_eq!(read(&mut reader, "/a", ValueChoice::InForce), Some(1));
    assert_eq!(read(&mut reader, "/a", ValueChoice::Default), None);
    world.answer(None).unwrap();
    assert_eq!(read(&mut reader, "/a", ValueChoice::InForce), Some(1));
    assert!(!world.client.0.has_overlay(), "now it comes from the database");
    world.client.sync();
}

#[test]
fn what_changes_while_a_request_is_under_way_is_one_request() {
    let mut world = ClientFixture::new("user-db:user");
    for value in 0..100 {
        world.change(&[("/slider", Some(value))]).unwrap();
    }
    assert_eq!(world.answer(None).unwrap(), [("/slider".to_owned(), Some(0))]);
    assert_eq!(world.answer(None).unwrap(), [("/slider".to_owned(), Some(99))]);
    assert_eq!(world.answer(None), None);
}

#[test]
fn a_refused_change_is_taken_back_and_told() {
    let mut world = ClientFixture::new("user-db:user");
    let (_subscription, notices) = world.client.subscribe("/a/").unwrap();
    let mut reader = world.client.reader();
    world.change(&[("/a/b", Some(1)), ("/a/c", Some(2)), ("/z", Some(3))]).unwrap();
    let own = notices.try_recv().unwrap();
    assert_eq!(own.paths().collect::<Vec<_>>(), ["/a/b", "/a/c"]);
    assert_eq!(own.cause, NoticeCause::Own);
    world.answer(Some("disk full")).unwrap();
    assert_eq!(read(&mut reader, "/a/b", ValueChoice::InForce), None);
    let back = notices.try_recv().unwrap();
    assert_eq!(back.paths().collect::<Vec<_>>(), ["/a/b", "/a/c"]);
    assert!(matches!(back.cause, NoticeCause::Refused { error } if error.text == "disk full"));
}

#[test]
fn a_program_that_delivers_notices_itself_is_told_of_the_same() {
    let mut world = ClientFixture::new("user-db:user");
    let refused: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let sink = Arc::clone(&refused);
    world.client.observe_refusals(Arc::new(move |notice| lock(&sink).push(notice.clone())));
    let mut own = Vec::new();
    let mut tell = |notice: &Notice| own.push(notice.clone());
    let set = changeset(&[("/a/b", Some(1)), ("/a/c", Some(2))]);
    world.client.change_with(&set, &mut tell).unwrap();
    // The same again changes nothing.
    world.client.change_with(&set, &mut tell).unwrap();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].paths().collect::<Vec<_>>(), ["/a/b", "/a/c"]);
    let signal = |tag: &str| DatabaseSignal::Notify {
        prefix: "/a/".to_owned(),
        changes: vec!["b".to_owned(), "c".to_owned()],
        tag: tag.to_owned(),
    };
    world.answer(None).unwrap();
    assert_eq!(world.client.notice_of(signal(":1.9:user:1")), None, "it is its own");
    assert!(world.client.notice_of(signal(":1.9:user:7")).is_some());
    assert!(lock(&refused).is_empty());
    while world.answer(Some("disk full")).is_some() {}
    assert_eq!(lock(&refused).len(), 1, "nobody subscribed to the path");
    assert!(matches!(lock(&refused)[0].cause, NoticeCause::Refused { .. }));
}

#[test]
fn the_origin_of_a_value_stays_while_other_keys_change() {
    let mut world = ClientFixture::new("user-db:user");
    world.change(&[("/a", Some(1))]).unwrap();
    world.answer(None).unwrap();
    let mut reader = world.client.reader();
    let ValueOrigin::Databases(state) = reader.origin("/a") else { panic!("it is stored") };
    world.change(&[("/b", Some(2))]).unwrap();
    assert!(matches!(reader.origin("/a"), ValueOrigin::Databases(same) if same == state));
    assert!(matches!(reader.origin("/b"), ValueOrigin::Pending(Some(_))));
    world.answer(None).unwrap();
    assert!(matches!(reader.origin("/a"), ValueOrigin::Databases(later) if later != state));
}

#[test]
fn a_client_is_told_once_of_its_own_change_and_of_those_of_others() {
    let mut world = ClientFixture::new("user-db:user");
    let (subscription, notices) = world.client.subscribe("/a/").unwrap();
    world.change(&[("/a/b", Some(1))]).unwrap();
    world.answer(None).unwrap();
    assert_eq!(notices.try_iter().map(|n| n.cause).collect::<Vec<_>>(), [NoticeCause::Own]);
    world.change(&[("/a/b", Some(1))]).unwrap();
    assert_eq!(notices.try_iter().count(), 0, "it has that value");
    world.answer(None).unwrap();
    world.signal(&vec![("/a/x".into(), Some(1))], ":1.7:user:0");
    world.signal(&vec![("/b/x".into(), Some(1))], ":1.7:user:1");
    let told: Vec<_> = notices.try_iter().collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].prefix, "/a/x");
    drop(subscription);
    world.change(&[("/a/b", Some(2))]).unwrap();
    assert_eq!(notices.try_iter().count(), 0);
}

#[test]
fn junk_from_the_bus_is_dropped() {
    let notify = |prefix: &str, changes: &[&str]| DatabaseSignal::Notify {
        prefix: prefix.into(),
        changes: changes.iter().map(|&change| change.to_owned()).collect(),
        tag: String::new(),
    };
    for (prefix, changes) in [
        ("/a", &["b"][..]),
        ("/a", &[]),
        ("/a/", &[]),
        ("/a/", &["/b"]),
        ("/a/", &["b//c"]),
        ("a/", &["b"]),
        ("", &[""]),
    ] {
        assert_eq!(watch::notice(notify(prefix, changes), ""), None, "{prefix} {changes:?}");
    }
    assert!(watch::notice(notify("/a", &[""]), "").is_some(), "an empty tag is never ours");
    assert!(watch::notice(notify("/a/", &["b", "c/"]), "").is_some());
}

#[test]
fn a_lock_hides_the_users_value_and_stops_changes() {
    let mut world = ClientFixture::new("user-db:user\nsystem-db:site\nsystem-db:vendor");
    let values = |list: &[(&str, i32)]| list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    write(&world.path("etc/dconf/db/site"), &values(&[("/a", 10), ("/b", 11)]), &["/b"]);
    write(&world.path("etc/dconf/db/vendor"), &values(&[("/a", 20), ("/c", 21)]), &["/c", "/d"]);
    world.disk = values(&[("/a", 1), ("/b", 2), ("/c", 3), ("/d", 4), ("/e", 5)]);
    world.publish();
    let mut reader = world.client.reader();
    for (key, in_force, user, default) in [
        ("/a", Some(1), Some(1), Some(10)),
        ("/b", Some(11), Some(2), Some(11)),
        ("/c", Some(21), Some(3), Some(21)),
        ("/d", None, Some(4), None),
        ("/e", Some(5), Some(5), None),
    ] {
        assert_eq!(read(&mut reader, key, ValueChoice::InForce), in_force, "{key}");
        assert_eq!(read_by_origin(&mut reader, key), in_force, "{key}");
        assert_eq!(read(&mut reader, key, ValueChoice::User), user, "{key}");
        assert_eq!(read(&mut reader, key, ValueChoice::Default), default, "{key}");
    }
    assert_eq!(Vec::from_iter(reader.list_locks("/")), ["/b", "/c", "/d"]);
    assert_eq!(Vec::from_iter(reader.list("/")), ["a", "b", "c", "d", "e"]);
    assert!(reader.is_writable("/a") && !reader.is_writable("/b"));
    assert_eq!(
        world.change(&[("/a", Some(7)), ("/c", Some(7))]),
        Err(ChangeError::NotWritable { key: "/c".into() })
    );
    assert_eq!(read(&mut reader, "/a", ValueChoice::InForce), Some(1), "all or nothing");
    world.change(&[("/c", None)]).unwrap();
    assert_eq!(read(&mut reader, "/c", ValueChoice::User), None, "a reset is always taken");
    world.answer(None).unwrap();
    assert_eq!(read(&mut reader, "/c", ValueChoice::InForce), Some(21));
}

#[test]
fn a_profile_that_cannot_be_written_says_so() {
    let world = ClientFixture::new("system-db:site\nuser-db:user");
    assert!(matches!(world.change(&[("/a", Some(1))]), Err(ChangeError::NotWritable { .. })));
    assert!(matches!(
        world.client.change_and_wait(&changeset(&[("/a", None)])),
        Err(ChangeError::NotWritable { .. })
    ));
    world.change(&[("/a", None)]).unwrap();
    world.client.sync();
    assert_eq!(Vec::from_iter(world.client.reader().list_locks("/x/")), ["/x/"]);
    assert!(matches!(
        ClientFixture::new("user-db:user").change(&[("a//b", Some(1))]),
        Err(ChangeError::NotAPath { .. })
    ));
}

#[test]
fn without_a_bus_reading_works_and_a_change_says_why_not() {
    let mut world = ClientFixture::new("user-db:user");
    let profile = SettingsProfile::parse(b"user-db:user");
    let client = SettingsClient::open(&profile, &world.client.0.environment, Arc::new(NoBus));
    world.apply_and_publish(&vec![("/a".into(), Some(1))]);
    assert_eq!(read(&mut client.reader(), "/a", ValueChoice::InForce), Some(1));
    let refused = client.change_and_wait(&changeset(&[("/a", Some(2))]));
    assert!(matches!(refused, Err(ChangeError::Refused(_))));
    client.change(&changeset(&[("/a", Some(2))])).unwrap();
    client.sync();
    assert_eq!(read(&mut client.reader(), "/a", ValueChoice::InForce), Some(1), "taken back");
}

#[test]
fn readers_in_other_threads_see_old_or_new_and_never_go_back() {
    let mut world = ClientFixture::new("user-db:user");
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let mut reader = world.client.reader();
            std::thread::spawn(move || {
                let mut last = 0;
                while last < 200 {
                    let seen = read(&mut reader, "/n", ValueChoice::InForce).unwrap_or(0);
                    assert!(seen >= last, "{seen} after {last}");
                    last = seen;
                }
            })
        })
        .collect();
    for value in 1..=200 {
        world.change(&[("/n", Some(value))]).unwrap();
        while world.answer(None).is_some() {}
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

/// A step of the test.
#[derive(Clone, Debug)]
enum Op {
    Change(List),
    Answer,
    Refuse,
    /// Another program changes something through the service.
    Outside(List),
}

fn list() -> impl Strategy<Value = List> {
    let key = "(/[ab]){1,2}";
    let one = prop_oneof![
        4 => (key, any::<i32>().prop_map(Some)),
        1 => (key, Just(None)),
        1 => ("(/[ab]){0,1}/", Just(None)),
    ];
    proptest::collection::vec(one, 1..5)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => list().prop_map(Op::Change),
        3 => Just(Op::Answer),
        1 => Just(Op::Refuse),
        1 => list().prop_map(Op::Outside),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_client_reads_what_its_changes_will_have_made(ops in proptest::collection::vec(op(), 0..25)) {
        let mut world = ClientFixture::new("user-db:user");
        let mut reader = world.client.reader();
        // The model: what is under way, then what waits, each as it was asked for.
        let (mut in_flight, mut pending): (Vec<List>, Vec<List>) = (Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Change(list) => {
                    let borrowed: Vec<_> = list.iter().map(|(p, v)| (&**p, *v)).collect();
                    world.change(&borrowed).unwrap();
                    // A changeset holds one change of each path, the last.
                    pending.push(list);
                }
                Op::Answer | Op::Refuse => {
                    let refuse = matches!(op, Op::Refuse).then_some("no");
                    let was_under_way = world.answer(refuse).is_some();
                    prop_assert_eq!(was_under_way, !in_flight.is_empty());
                    in_flight.clear();
                }
                Op::Outside(list) => world.apply_and_publish(&list),
            }
            if in_flight.is_empty() {
                in_flight = std::mem::take(&mut pending);
            }
            let mut expected = world.disk.clone();
            for list in in_flight.iter().chain(&pending) {
                apply(&mut expected, list);
            }
            for key in ["/a", "/b", "/a/a", "/a/b", "/b/a", "/b/b"] {
                prop_assert_eq!(
                    read(&mut reader, key, ValueChoice::InForce),
                    expected.get(key).copied(),
                    "{}", key
                );
                prop_assert_eq!(
                    read_by_origin(&mut reader, key),
                    expected.get(key).copied(),
                    "by its origin: {}", key
                );
            }
        }
        while world.answer(None).is_some() {}
        world.client.sync();
        prop_assert!(!world.client.0.has_overlay());
    }
}
