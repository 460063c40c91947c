//! Engines on a simulated disk, and what a life of changes allows to be found on it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::disk::{Disk, DiskFile, FileLock, Held, LogFile, Stat};
use store::sim::SimDisk;
use store::table::gvariant::View;
use store::table::gvdb;
use unjank_session::clock::Clock;
use unjank_session::settings::database::Table;
use unjank_session::settings::effective::apply;
use unjank_session::settings::engine::{Answer, DatabaseId, Engine, ErrorKind, Options, Places};

use super::{TestClock, changeset};

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
    fn hold(&self, path: &Path) -> Held {
        self.of(path).hold(path)
    }
    fn own(&self, path: &Path, patience: Duration) -> io::Result<Option<Box<dyn FileLock>>> {
        self.of(path).own(path, patience)
    }
    fn token(&self) -> io::Result<u64> {
        self.disk.token()
    }
}

/// Leaves the flags to the real disk, where nobody reads.
pub fn places() -> Places {
    Places {
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
    let options = Options { history: None, ..Options::default() };
    Engine::new(places(), options, ":1.5".into(), disk, clock)
}

pub fn answers(engine: &mut Engine<usize>, life: &mut Life) {
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

/// Returns every content that a life allows.
pub fn allowed(life: &Life) -> Vec<Table> {
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

pub fn file(machine: &Machine, path: &Path) -> Result<Table, String> {
    let Ok(bytes) = machine.read(path) else { return Ok(Table::default()) };
    let table = gvdb::Table::open(&bytes).map_err(|error| error.to_string())?;
    table.check().map_err(|error| error.to_string())?;
    let value = |v| View::inside(v, table.order()).to_variant();
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
pub fn running(machine: &Machine, database: &DatabaseId, life: &Life) -> Result<(), String> {
    let found = file(machine, &image(database))?;
    let allowed = allowed(life);
    if allowed.contains(&found) {
        return Ok(());
    }
    Err(format!("readers see {found:?}, which {life:?} does not allow"))
}
