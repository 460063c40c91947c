//! Every power cut and every failing call in the life of a database: what was acknowledged is there afterwards, and
//! nothing half.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine_support;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine_support::{TestClock, changeset, id};
use store::disk::{Disk, DiskFile, LogFile, Stat};
use store::sim::{Explored, SimDisk, explore};
use store::table::gvariant::View;
use store::table::gvdb;
use unjank_session::clock::Clock;
use unjank_session::settings::database::Table;
use unjank_session::settings::effective::apply;
use unjank_session::settings::engine::{Answer, DatabaseId, Engine, ErrorKind, Options, Places};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was answered with a tag.
    Acknowledged,
    /// The error said that nothing was changed.
    Refused,
    /// The error said that it may be found, or that it may be lost.
    Unsure,
}

/// Changes in the order in which they were asked for.
type Life = Vec<(&'static str, Fate)>;

/// What is asked for, one batch a line; what is behind `|` is asked for while the batch before it is written.
const LIFE: [&str; 3] = ["/a=1 /b/c=1", "/a=2|/b/ /d=1", "/e=1"];

/// A disk and a runtime directory beside it, which is in memory and gone after a power cut.
#[derive(Clone, Debug, Default)]
struct Machine {
    disk: SimDisk,
    runtime: SimDisk,
}

impl Machine {
    fn on(disk: &SimDisk) -> Machine {
        Machine { disk: disk.clone(), runtime: SimDisk::new().with_dir("/run") }
    }

    fn of(&self, path: &Path) -> &SimDisk {
        if path.starts_with("/run") { &self.runtime } else { &self.disk }
    }
}

impl Disk for Machine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.of(path).read(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.of(path).stat(path)
    }
    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.of(path).read_link(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.of(dir).list(dir)
    }
    fn create_dir(&self, dir: &Path, mode: u32) -> io::Result<()> {
        self.of(dir).create_dir(dir, mode)
    }
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.of(path).create(path, mode)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.of(path).open(path)
    }
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn LogFile>> {
        self.of(path).open_log(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.of(to).rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.of(path).remove(path)
    }
    fn remove_abandoned(&self, path: &Path) -> io::Result<bool> {
        self.of(path).remove_abandoned(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.of(dir).sync_dir(dir)
    }
    fn token(&self) -> io::Result<u64> {
        self.disk.token()
    }
}

/// Leaves the flags to the real disk, where nobody reads.
fn places() -> Places {
    Places {
        config: "/home/config/dconf".into(),
        flags: "/nowhere/dconf".into(),
        volatile: "/run/dconf-service".into(),
        state: "/home/state".into(),
    }
}

fn engine(machine: &Machine) -> Engine<usize> {
    let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
    let options = Options { history: None, ..Options::default() };
    Engine::new(places(), options, ":1.5".into(), Arc::new(machine.clone()), clock)
}

fn answers(engine: &mut Engine<usize>, life: &mut Life) {
    while let Some(answer) = engine.next_answer() {
        match answer {
            Answer::Changed { token, .. } => life[token].1 = Fate::Acknowledged,
            Answer::Failed { token, error } => {
                let refused = error.kind != ErrorKind::NotDurable
                    && error.text.ends_with("nothing was changed");
                life[token].1 = if refused { Fate::Refused } else { Fate::Unsure };
            }
            Answer::Initialised { .. } | Answer::Notify { .. } => {}
        }
    }
}

/// Lives through the first `batches` of [`LIFE`], and ends as SIGTERM does.
fn live(disk: &SimDisk, database: &DatabaseId, batches: usize) -> (Life, Machine) {
    let machine = Machine::on(disk);
    let (mut engine, mut life) = (engine(&machine), Life::new());
    for batch in &LIFE[..batches] {
        let mut overlapping = batch.split('|');
        let ask = |engine: &mut Engine<usize>, life: &mut Life, changes: &'static str| {
            engine.change(database, changeset(changes), ":1.9", life.len());
            life.push((changes, Fate::Unsure));
        };
        ask(&mut engine, &mut life, overlapping.next().unwrap());
        while let Some(job) = engine.next_job() {
            if let Some(changes) = overlapping.next() {
                ask(&mut engine, &mut life, changes);
            }
            let done = job.run();
            engine.finished(done);
            answers(&mut engine, &mut life);
        }
        answers(&mut engine, &mut life);
    }
    engine.begin_shutdown();
    for _ in 0..20 {
        let Some(job) = engine.next_job() else { break };
        engine.finished(job.run());
        answers(&mut engine, &mut life);
    }
    (life, machine)
}

/// Returns every content that a life allows.
fn allowed(life: &Life) -> Vec<Table> {
    let mut tables = vec![Table::default()];
    for (changes, fate) in life {
        let applied = tables.iter().map(|table| {
            let mut table = table.clone();
            apply(&mut table, &changeset(changes));
            table
        });
        let applied: Vec<Table> = applied.collect();
        match fate {
            Fate::Acknowledged => tables = applied,
            Fate::Unsure => tables.extend(applied),
            Fate::Refused => {}
        }
    }
    tables
}

fn file(machine: &Machine, path: &Path) -> Result<Table, String> {
    let Ok(bytes) = machine.read(path) else { return Ok(Table::default()) };
    let table = gvdb::Table::open(&bytes).map_err(|error| error.to_string())?;
    table.check().map_err(|error| error.to_string())?;
    let value = |v| View::inside(v, table.order()).to_variant();
    Ok(table.entries().map(|(key, v)| (key, value(v))).collect())
}

fn image(database: &DatabaseId) -> PathBuf {
    match database.kind().segment() {
        "Writer" => places().config.join(database.name()),
        kind => places().volatile.join(kind).join(database.name()),
    }
}

/// Starts a service on a disk, changes nothing, and checks what it makes of it.
fn restarted(disk: &SimDisk, database: &DatabaseId, life: &Life) -> Result<(), String> {
    disk.heal();
    let machine = Machine::on(disk);
    let mut engine = engine(&machine);
    engine.init(database, 0);
    while let Some(job) = engine.next_job() {
        engine.finished(job.run());
    }
    while let Some(answer) = engine.next_answer() {
        if let Answer::Failed { error, .. } = answer {
            return Err(format!("cannot be read after a restart: {}", error.text));
        }
    }
    if let Some(report) = engine.next_report() {
        return Err(format!("a power cut damages nothing: {report}"));
    }
    let found = file(&machine, &image(database))?;
    let allowed = allowed(life);
    if allowed.contains(&found) {
        return Ok(());
    }
    Err(format!("found {found:?}, which {life:?} does not allow"))
}

/// Looks at what readers see while the machine goes on.
fn running(machine: &Machine, database: &DatabaseId, life: &Life) -> Result<(), String> {
    let found = file(machine, &image(database))?;
    let allowed = allowed(life);
    if allowed.contains(&found) {
        return Ok(());
    }
    Err(format!("readers see {found:?}, which {life:?} does not allow"))
}

fn explored(
    database: &str,
    protocol: impl Fn(&SimDisk, &DatabaseId) -> (Life, Machine),
) -> Result<Explored, String> {
    let database = id(database);
    explore(
        || SimDisk::new().with_dir("/home/config").with_dir("/home/state"),
        |disk| protocol(disk, &database),
        |disk, (life, machine)| {
            let machine = Machine { disk: disk.clone(), ..machine.clone() };
            running(&machine, &database, life)
        },
        |disk, (life, _)| restarted(disk, &database, life),
    )
}

#[test]
fn a_writer_database_keeps_what_it_acknowledged() {
    let explored = explored("Writer/user", |disk, database| live(disk, database, 2)).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 1000 && explored.images > 1000, "{explored:?}");
}

#[test]
fn a_journal_database_keeps_what_it_acknowledged() {
    let explored = explored("journal/app", |disk, database| live(disk, database, 3)).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 1000 && explored.images > 1000, "{explored:?}");
}

#[test]
fn the_explorer_catches_an_engine_that_answers_too_early() {
    let hasty = |disk: &SimDisk, database: &DatabaseId| {
        let (mut life, machine) = live(disk, database, 2);
        for (_, fate) in &mut life {
            *fate = Fate::Acknowledged;
        }
        (life, machine)
    };
    explored("Writer/user", hasty).unwrap_err();
    explored("journal/app", hasty).unwrap_err();
}
