//! The settings engine against a model: random requests of several senders, failing disks, crashes, and other programs
//! that edit the files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::engine_support;

use std::collections::BTreeMap;
use std::time::Duration;

use engine_support::{World, changeset, id, image, put};
use proptest::prelude::*;
use sys::clock::Clock;
use unjank_settings::changeset::Changeset;
use unjank_settings::database::KeyTable;
use unjank_settings::effective::apply;
use unjank_settings::engine::{DatabaseId, DatabaseKind, EngineMessage, EngineOptions, ErrorKind};
use unjank_settings::pacing::Pacing;

const DATABASES: [&str; 5] =
    ["Writer/user", "Writer/other", "shm/live", "keyfile/text", "journal/app"];

#[derive(Clone, Debug)]
enum Op {
    /// A sender asks for changes.
    Ask { database: usize, sender: u8, changes: String },
    /// A sender asks for a file.
    Init { database: usize },
    /// The disk thread does one job, while nothing else happens.
    Work,
    /// The disk thread takes a job, and changes are asked for before it is done.
    Overlap { database: usize, changes: String },
    /// Calls to the disk fail.
    Fail { after: i64, count: i64 },
    /// The disk works again.
    Heal,
    /// Time passes.
    Wait { ms: u64 },
    /// Another program replaces the file or the text.
    Outside { database: usize, keys: String },
    /// Another program removes it.
    Remove { database: usize },
    /// The watch tells of something.
    Notice { database: usize },
    /// `kill -9`, after the job in flight had its effect or before.
    Kill { after_job: bool },
    /// SIGTERM.
    Stop,
    /// All that is left is done on a working disk, and everything is compared.
    Settle,
}

fn changes() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        6 => "/[ab]/[cd]",
        2 => "/[ab]/[cd]/[ef]",
        2 => "/[xy]",
        1 => Just("/".to_owned()),
        2 => "/[ab]/",
        1 => "/[ab]/[cd]/",
    ];
    let change = (path, 0..4_u8).prop_map(|(path, value)| {
        if path.ends_with('/') || value == 0 { path } else { format!("{path}={value}") }
    });
    proptest::collection::vec(change, 1..4).prop_map(|changes| changes.join(" "))
}

fn keys() -> impl Strategy<Value = String> {
    proptest::collection::btree_map("/[ab]/[cd]|/[xyz]", 1..4_u8, 1..5)
        .prop_map(|keys| keys.into_iter().map(|(key, value)| format!("{key}={value} ")).collect())
}

fn op() -> impl Strategy<Value = Op> {
    let database = || 0..DATABASES.len();
    prop_oneof![
        12 => (database(), 0..3_u8, changes())
            .prop_map(|(database, sender, changes)| Op::Ask { database, sender, changes }),
        1 => database().prop_map(|database| Op::Init { database }),
        10 => Just(Op::Work),
        4 => (database(), changes())
            .prop_map(|(database, changes)| Op::Overlap { database, changes }),
        3 => (0..12_i64, 1..6_i64).prop_map(|(after, count)| Op::Fail { after, count }),
        2 => Just(Op::Heal),
        3 => (0..3000_u64).prop_map(|ms| Op::Wait { ms }),
        2 => (database(), keys()).prop_map(|(database, keys)| Op::Outside { database, keys }),
        1 => database().prop_map(|database| Op::Remove { database }),
        2 => database().prop_map(|database| Op::Notice { database }),
        2 => any::<bool>().prop_map(|after_job| Op::Kill { after_job }),
        1 => Just(Op::Stop),
        2 => Just(Op::Settle),
    ]
}

/// What must be true of one database.
#[derive(Debug, Default)]
struct Model {
    /// What was acknowledged.
    table: KeyTable,
    /// Paths of which nothing can be said: a change failed or was cut off.
    unsure: Vec<String>,
    /// What somebody knows who reads only what they are told of.
    observed: KeyTable,
    /// The service was killed, and may have told nobody of its last image.
    observer_lost: bool,
}

impl Model {
    fn is_sure(&self, key: &str) -> bool {
        !self
            .unsure
            .iter()
            .any(|path| key == path || (path.ends_with('/') && key.starts_with(path.as_str())))
    }

    fn doubt(&mut self, changes: &Changeset) {
        self.unsure.extend(changes.iter().map(|(path, _)| path.to_owned()));
    }
}

struct Test {
    world: World,
    models: BTreeMap<DatabaseId, Model>,
    /// What is asked for and not answered, by token.
    asked: BTreeMap<u32, (DatabaseId, Changeset)>,
    tokens: u32,
    /// A planted fault: the observer is told nothing.
    deaf: bool,
}

impl Test {
    fn new() -> Test {
        let pacing = Pacing { burst: 4, per_second: 2.0, ..Pacing::default() };
        let world = World::with(EngineOptions { pacing: Some(pacing), ..EngineOptions::default() });
        let models = DATABASES.iter().map(|path| (id(path), Model::default())).collect();
        Test { world, models, asked: BTreeMap::new(), tokens: 0, deaf: false }
    }

    fn ask(&mut self, database: usize, sender: u8, changes: &str) {
        let (database, changes) = (id(DATABASES[database]), changeset(changes));
        self.tokens += 1;
        self.asked.insert(self.tokens, (database.clone(), changes.clone()));
        self.world.engine.change(&database, changes, &format!(":1.{sender}"), self.tokens);
    }

    /// Reads what readers of a database see.
    fn file(&self, database: &DatabaseId) -> KeyTable {
        match std::fs::read(self.world.image(database)) {
            Ok(bytes) => {
                let table = gvdb::GvdbTable::open(&bytes).unwrap();
                table.check().unwrap();
                let value = |v| gvdb::gvariant::VariantView::inside(v, table.order()).to_variant();
                table.entries().map(|(key, v)| (key, value(v))).collect()
            }
            Err(_) => KeyTable::default(),
        }
    }

    fn answers(&mut self) {
        let mut last_reply: BTreeMap<DatabaseId, u32> = BTreeMap::new();
        while let Some(answer) = self.world.engine.next_answer() {
            match answer {
                EngineMessage::Changed { token, .. } | EngineMessage::Initialised { token } => {
                    let (database, changes) = self.asked.remove(&token).expect("answered once");
                    let last = last_reply.insert(database.clone(), token);
                    assert!(last.is_none_or(|last| last < token), "out of order");
                    let model = self.models.get_mut(&database).unwrap();
                    apply(&mut model.table, &changes);
                    // A key that is set for certain is certain again.
                    for (path, _) in changes.iter().filter(|(path, _)| !path.ends_with('/')) {
                        model.unsure.retain(|unsure| unsure != path);
                    }
                }
                EngineMessage::Failed { token, error } => {
                    let (database, changes) = self.asked.remove(&token).expect("answered once");
                    let model = self.models.get_mut(&database).unwrap();
                    if error.kind == ErrorKind::NotDurable
                        || !error.text.contains("nothing was changed")
                    {
                        model.doubt(&changes);
                        apply(&mut model.table, &changes);
                    }
                }
                EngineMessage::Notify { .. } if self.deaf => {}
                EngineMessage::Notify { id, prefix, changes, .. } => {
                    let file = self.file(&id);
                    let model = self.models.get_mut(&id).unwrap();
                    assert!(!changes.is_empty());
                    for change in changes {
                        let path = format!("{prefix}{change}");
                        if path.ends_with('/') {
                            let old: Vec<String> = model
                                .observed
                                .below(&path)
                                .map(|(key, _)| key.to_owned())
                                .collect();
                            for key in old {
                                model.observed.put(&key, None);
                            }
                            for (key, value) in file.below(&path) {
                                model.observed.put(key, Some(value.clone()));
                            }
                        } else {
                            model.observed.put(&path, file.get(&path).cloned());
                        }
                    }
                }
            }
        }
        while self.world.engine.next_report().is_some() {}
    }

    fn work(&mut self) -> bool {
        let Some(job) = self.world.engine.next_job() else {
            self.answers();
            return false;
        };
        let done = job.run();
        self.world.engine.finished(done);
        self.answers();
        true
    }

    /// Another program's doing; what it leaves is what was acknowledged from now on.
    fn outside(&mut self, database: usize, keys: Option<&str>) {
        let database = id(DATABASES[database]);
        let path = match database.kind() {
            DatabaseKind::User => self.world.image(&database),
            DatabaseKind::Keyfile => self.world.places.config.join("text.txt"),
            DatabaseKind::Shm | DatabaseKind::Journal => return,
        };
        let Some(keys) = keys else {
            let _ = std::fs::remove_file(path);
            self.replaced(&database, KeyTable::default());
            return;
        };
        let changes = changeset(keys);
        if database.kind() == DatabaseKind::User {
            self.world.write_outside(&database, keys);
        } else {
            let mut file = xdg::keyfile::KeyFile::new();
            for (key, value) in changes.iter() {
                let (group, name) = key.rsplit_once('/').unwrap();
                let group = if group.is_empty() { "/" } else { &group[1..] };
                file.set(group, name, &value.unwrap().print()).unwrap();
            }
            put(&path, &file.to_bytes());
        }
        let _ = image(keys);
        let entries = changes.iter().map(|(key, value)| (key, value.unwrap().clone()));
        self.replaced(&database, entries.collect());
    }

    fn replaced(&mut self, database: &DatabaseId, theirs: KeyTable) {
        // The watch tells at once; what changes nothing in memory waits for the look that follows.
        self.world.engine.outside_edit(database);
        let in_use = self.world.engine.watched().iter().any(|(_, id)| id == database);
        let model = self.models.get_mut(database).unwrap();
        // Nobody tells of a file that no service has opened yet.
        model.observer_lost |= !in_use;
        model.table = theirs;
        model.unsure.clear();
    }

    fn kill(&mut self, after_job: bool) {
        if let Some(job) = self.world.engine.next_job()
            && after_job
        {
            drop(job.run());
        }
        for (database, changes) in std::mem::take(&mut self.asked).into_values() {
            let model = self.models.get_mut(&database).unwrap();
            model.doubt(&changes);
        }
        for model in self.models.values_mut() {
            model.observer_lost = true;
        }
        self.world.restart();
    }

    fn settle(&mut self) {
        self.world.disk.fail(i64::MAX, 0);
        for (database, path) in DATABASES.iter().enumerate() {
            // Loads it, whatever happened before, and has other programs' edits noticed.
            self.ask(database, 9, "/none");
            self.world.engine.outside_edit(&id(path));
        }
        for _ in 0..500 {
            while self.work() {}
            // A database that was only just loaded has not looked yet.
            let Some(deadline) = self.world.engine.deadline() else { break };
            let now = self.world.clock.monotonic();
            self.world.clock.advance(deadline.saturating_sub(now));
            self.world.engine.tick();
        }
        assert_eq!(self.world.engine.deadline(), None);
        assert!(self.asked.is_empty(), "not answered: {:?}", self.asked);
        assert!(self.world.engine.is_idle());
        let files: Vec<(DatabaseId, KeyTable)> =
            self.models.keys().map(|id| (id.clone(), self.file(id))).collect();
        for (database, file) in files {
            let model = self.models.get_mut(&database).unwrap();
            let keys = file.iter().chain(model.table.iter()).map(|(key, _)| key);
            for key in keys.filter(|key| model.is_sure(key)) {
                assert_eq!(file.get(key), model.table.get(key), "{key} of {database}");
            }
            if !model.observer_lost {
                assert_eq!(model.observed, file, "the observer of {database}");
            }
            model.observed = file.clone();
            model.table = file;
            model.unsure.clear();
            model.observer_lost = false;
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Ask { database, sender, changes } => self.ask(database, sender, &changes),
            Op::Init { database } => {
                self.tokens += 1;
                let database = id(DATABASES[database]);
                self.asked.insert(self.tokens, (database.clone(), Changeset::default()));
                self.world.engine.init(&database, self.tokens);
            }
            Op::Work => {
                self.work();
            }
            Op::Overlap { database, changes } => {
                let job = self.world.engine.next_job();
                self.ask(database, 7, &changes);
                if let Some(job) = job {
                    self.world.engine.finished(job.run());
                }
            }
            Op::Fail { after, count } => self.world.disk.fail(after, count),
            Op::Heal => self.world.disk.fail(i64::MAX, 0),
            Op::Wait { ms } => {
                self.world.clock.advance(Duration::from_millis(ms));
                self.world.engine.tick();
            }
            Op::Outside { database, keys } => self.outside(database, Some(&keys)),
            Op::Remove { database } => self.outside(database, None),
            Op::Notice { database } => self.world.engine.outside_edit(&id(DATABASES[database])),
            Op::Kill { after_job } => self.kill(after_job),
            Op::Stop => {
                self.world.disk.fail(i64::MAX, 0);
                self.world.engine.begin_shutdown();
                while self.work() {}
                assert!(self.world.engine.is_idle() || self.world.engine.deadline().is_some());
                self.kill(false);
            }
            Op::Settle => self.settle(),
        }
        self.answers();
    }
}

fn cases(usual: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    // A number from the environment is taken as it is.
    let cases = if config.cases == 256 { usual } else { config.cases };
    ProptestConfig { cases, ..config }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn whatever_happens_files_and_observers_agree_with_what_was_acknowledged(
        ops in proptest::collection::vec(op(), 1..50),
    ) {
        let mut test = Test::new();
        for op in ops {
            test.run(op);
        }
        test.settle();
    }
}

/// Says whether the model complains about one change.
fn complains(plant: impl FnOnce(&mut Test)) -> bool {
    let mut test = Test::new();
    test.run(Op::Ask { database: 0, sender: 0, changes: "/a/c=1".into() });
    test.settle();
    plant(&mut test);
    test.run(Op::Ask { database: 0, sender: 0, changes: "/a/c=2 /x=1".into() });
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test.settle())).is_err()
}

#[test]
fn the_model_catches_planted_faults() {
    assert!(!complains(|_| {}));
    assert!(complains(|test| *test.world.disk.lies.lock().unwrap() = true));
    assert!(complains(|test| test.deaf = true));
}

#[test]
fn a_change_that_the_file_lost_meanwhile_is_made_again() {
    let mut test = Test::new();
    for op in [
        Op::Settle,
        Op::Overlap { database: 0, changes: "/a/c=3".into() },
        Op::Outside { database: 0, keys: "/a/c=3 ".into() },
        Op::Work,
        Op::Remove { database: 0 },
    ] {
        test.run(op);
    }
    test.settle();
}
