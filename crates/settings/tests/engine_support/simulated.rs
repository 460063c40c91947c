//! Engines on a simulated disk, and what a life of changes allows to be found on it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gvdb::gvariant::VariantView;
use store::disk::Disk;
use store::sim::{Explored, SimDisk, explore_every};
use sys::clock::Clock;
use unjank_settings::database::KeyTable;
use unjank_settings::effective::apply;
use unjank_settings::engine::{
    DatabaseDirectories, DatabaseId, Engine, EngineMessage, EngineOptions, ErrorKind,
};

use super::{TestClock, changeset, id};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was answered with a tag.
    Acknowledged,
    /// The error said that nothing was changed.
    Refused,
    /// The error said that it may be found, or that it may be lost.
    Unsure,
}

/// Changes in the order in which they were asked for.
pub type Life = Vec<(&'static str, Fate)>;

/// A disk and a runtime directory beside it, which is in memory and gone after a power cut.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub disk: SimDisk,
    pub runtime: SimDisk,
}

impl Machine {
    pub fn on(disk: &SimDisk) -> Machine {
        Machine { disk: disk.clone(), runtime: SimDisk::new().with_dir("/run") }
    }

    fn of(&self, path: &Path) -> &SimDisk {
        if path.starts_with("/run") { &self.runtime } else { &self.disk }
    }
}

impl Disk for Machine {
    store::pass_on!(this, path => this.of(path);
        read stat read_link list create_dir create create_in_memory open open_log rename remove remove_abandoned sync_dir
        hold own);

    fn token(&self) -> io::Result<u64> {
        self.disk.token()
    }
}

/// Leaves the flags to the real disk, where nobody reads.
pub fn places() -> DatabaseDirectories {
    DatabaseDirectories {
        config: "/home/config/dconf".into(),
        flags: "/nowhere/dconf".into(),
        volatile: "/run/dconf-service".into(),
        state: "/home/state".into(),
    }
}

pub fn engine(machine: &Machine) -> Engine<usize> {
    engine_with_clock(Arc::new(machine.clone()), Arc::new(TestClock::default()))
}

pub fn engine_with_clock(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Engine<usize> {
    let options = EngineOptions { history: None, ..EngineOptions::default() };
    Engine::new(places(), options, ":1.5".into(), disk, clock)
}

pub fn answers(engine: &mut Engine<usize>, life: &mut Life) {
    while let Some(answer) = engine.next_answer() {
        match answer {
            EngineMessage::Changed { token, .. } => life[token].1 = Fate::Acknowledged,
            EngineMessage::Failed { token, error } => {
                let refused = error.kind != ErrorKind::NotDurable
                    && error.text.ends_with("nothing was changed");
                life[token].1 = if refused { Fate::Refused } else { Fate::Unsure };
            }
            EngineMessage::Initialised { .. } | EngineMessage::Notify { .. } => {}
        }
    }
}

/// Returns every content that a life allows.
pub fn allowed(life: &Life) -> Vec<KeyTable> {
    let mut tables = vec![KeyTable::default()];
    for (changes, fate) in life {
        let applied = tables.iter().map(|table| {
            let mut table = table.clone();
            apply(&mut table, &changeset(changes));
            table
        });
        let applied: Vec<KeyTable> = applied.collect();
        match fate {
            Fate::Acknowledged => tables = applied,
            Fate::Unsure => tables.extend(applied),
            Fate::Refused => {}
        }
    }
    tables
}

pub fn file(machine: &Machine, path: &Path) -> Result<KeyTable, String> {
    let Ok(bytes) = machine.read(path) else { return Ok(KeyTable::default()) };
    let table = gvdb::GvdbTable::open(&bytes).map_err(|error| error.to_string())?;
    table.check().map_err(|error| error.to_string())?;
    let value = |v| VariantView::inside(v, table.order()).to_variant();
    Ok(table.entries().map(|(key, v)| (key, value(v))).collect())
}

pub fn image(database: &DatabaseId) -> PathBuf {
    match database.kind().segment() {
        "Writer" => places().config.join(database.name()),
        kind => places().volatile.join(kind).join(database.name()),
    }
}

/// Starts a service on a disk, changes nothing, and checks what it makes of it.
pub fn restarted(disk: &SimDisk, database: &DatabaseId, life: &Life) -> Result<(), String> {
    disk.heal();
    let machine = Machine::on(disk);
    let mut engine = engine(&machine);
    engine.init(database, 0);
    while let Some(job) = engine.next_job() {
        engine.finished(job.run());
    }
    while let Some(answer) = engine.next_answer() {
        if let EngineMessage::Failed { error, .. } = answer {
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
pub fn running(machine: &Machine, database: &DatabaseId, life: &Life) -> Result<(), String> {
    let found = file(machine, &image(database))?;
    let allowed = allowed(life);
    if allowed.contains(&found) {
        return Ok(());
    }
    Err(format!("readers see {found:?}, which {life:?} does not allow"))
}

/// Returns at every how many-th call after a failing one the disk goes away: the gate tries a sample, `ENGINE_STOPS=1` each call.
#[expect(clippy::disallowed_methods, reason = "ci/slow asks for more")]
pub fn stops() -> usize {
    std::env::var("ENGINE_STOPS").map_or(3, |text| text.parse().unwrap())
}

/// Explores what becomes of a database: lives of `protocol` on disks that fail and lose power, and that go
/// away at every `step`-th call after a failing one.
pub fn explored(
    step: usize,
    database: &str,
    protocol: impl Fn(&SimDisk, &DatabaseId) -> (Life, Machine),
) -> Result<Explored, String> {
    let database = id(database);
    explore_every(
        step,
        || SimDisk::new().with_dir("/home/config").with_dir("/home/state"),
        |disk| protocol(disk, &database),
        |disk, (life, machine)| {
            let machine = Machine { disk: disk.clone(), ..machine.clone() };
            running(&machine, &database, life)
        },
        |disk, (life, _)| restarted(disk, &database, life),
    )
}
