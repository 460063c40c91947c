//! An engine on a directory of its own, with a clock that stands still and a disk that fails when told to.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod simulated;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use gvdb::gvariant::Variant;
use store::disk::{Disk, DiskFile, FileLock, FileStat, LockHolder, LogFile, Retaken};
use sys::clock::Clock;
use unjank_settings::changeset::Changeset;
use unjank_settings::engine::{
    DatabaseDirectories, DatabaseId, Engine, EngineMessage, EngineNotice, EngineOptions, Job,
};

/// A clock that a test moves.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The real disk, with calls that fail: all from the one that the countdown ends at, `failures` of them.
#[derive(Debug)]
pub struct Faulty {
    real: Arc<dyn Disk>,
    pub countdown: Arc<AtomicI64>,
    pub failures: Arc<AtomicI64>,
    pub errno: AtomicI64,
    pub locked: Mutex<bool>,
    /// Renames nothing and says that it did.
    pub lies: Mutex<bool>,
    pub writes: Arc<AtomicU64>,
    /// How many temporary files were made, and how many beforehand.
    pub created: AtomicU64,
    pub preallocated: AtomicU64,
    /// What every lock fails with; 37 is what NFS says without its lock service.
    pub lock_errno: Arc<Mutex<Option<i32>>>,
    /// The type of the file system, if it is not one of this machine's alone.
    pub foreign: Mutex<Option<String>>,
    /// Whether those who hold locks run.
    pub holder_goes_on: Mutex<bool>,
}

impl Faulty {
    pub fn new() -> Arc<Faulty> {
        Arc::new(Faulty {
            real: store::disk::real(),
            countdown: Arc::new(AtomicI64::new(i64::MAX)),
            failures: Arc::new(AtomicI64::new(0)),
            errno: AtomicI64::new(28),
            locked: Mutex::new(false),
            lies: Mutex::new(false),
            writes: Arc::default(),
            created: AtomicU64::new(0),
            preallocated: AtomicU64::new(0),
            lock_errno: Arc::default(),
            foreign: Mutex::new(None),
            holder_goes_on: Mutex::new(false),
        })
    }

    /// Lets `count` calls that change the disk fail, after the next `after` of them.
    pub fn fail(&self, after: i64, count: i64) {
        self.countdown.store(after, Ordering::Relaxed);
        self.failures.store(count, Ordering::Relaxed);
    }

    fn fault(&self) -> Fault {
        Fault {
            countdown: Arc::clone(&self.countdown),
            failures: Arc::clone(&self.failures),
            errno: i32::try_from(self.errno.load(Ordering::Relaxed)).unwrap(),
            writes: Arc::clone(&self.writes),
        }
    }
}

/// What decides whether a call fails.
#[derive(Clone, Debug)]
struct Fault {
    countdown: Arc<AtomicI64>,
    failures: Arc<AtomicI64>,
    errno: i32,
    writes: Arc<AtomicU64>,
}

impl Fault {
    fn check(&self) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.countdown.fetch_sub(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        if self.failures.fetch_sub(1, Ordering::Relaxed) > 0 {
            return Err(io::Error::from_raw_os_error(self.errno));
        }
        self.countdown.store(i64::MAX, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile(Box<dyn DiskFile>, Fault);

impl DiskFile for FaultyFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.1.check() {
            // What a short write leaves.
            self.0.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.0.write_at(offset, bytes)
    }
    fn copy_attributes(&mut self, from: &Path, stat: &FileStat) -> io::Result<()> {
        self.0.copy_attributes(from, stat)
    }
    fn share_from(&mut self, from: &Path) -> io::Result<()> {
        self.0.share_from(from)
    }
    fn copy_from(&mut self, from: &Path) -> io::Result<()> {
        self.1.check()?;
        self.0.copy_from(from)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.1.check()?;
        self.0.sync()
    }
    fn stat(&self) -> io::Result<FileStat> {
        self.0.stat()
    }
    fn give_name(&mut self, path: &Path) -> io::Result<()> {
        self.1.check()?;
        self.0.give_name(path)
    }
}

#[derive(Debug)]
struct FaultyLog(Box<dyn LogFile>, Fault);

impl LogFile for FaultyLog {
    fn block_len(&self) -> usize {
        self.0.block_len()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.0.read()
    }
    fn read_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.0.read_at(at, len)
    }
    fn identity(&self) -> (u64, u64) {
        self.0.identity()
    }
    fn extend(&mut self, len: u64) -> io::Result<()> {
        self.1.check()?;
        self.0.extend(len)
    }
    fn write_blocks(&mut self, at: u64, blocks: &[u8]) -> io::Result<()> {
        if let Err(error) = self.1.check() {
            // The medium may have it all the same.
            self.0.write_blocks(at, blocks)?;
            return Err(error);
        }
        self.0.write_blocks(at, blocks)
    }
    fn write_cached(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.check()?;
        self.0.write_cached(at, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.1.check()?;
        self.0.sync()
    }
}

/// A lock that fails as the disk's locks do when it is taken again.
#[derive(Debug)]
struct FaultyLock(Box<dyn FileLock>, Arc<Mutex<Option<i32>>>);

impl FileLock for FaultyLock {
    fn let_go(&mut self) -> io::Result<()> {
        self.0.let_go()
    }
    fn retake(&mut self, path: &Path) -> io::Result<Retaken> {
        lock_fault(&self.1)?;
        self.0.retake(path)
    }
}

fn lock_fault(errno: &Mutex<Option<i32>>) -> io::Result<()> {
    let Some(errno) = *errno.lock().unwrap() else { return Ok(()) };
    let kind = if errno == 37 { io::ErrorKind::Unsupported } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, io::Error::from_raw_os_error(errno)))
}

impl Disk for Faulty {
    store::pass_on!(this, path => this.real;
        read stat read_link list create_dir remove remove_abandoned hold token);

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.fault().check()?;
        self.created.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FaultyFile(self.real.create(path, mode)?, self.fault())))
    }
    fn create_in_memory(&self, dir: &Path, len: u64) -> io::Result<Box<dyn DiskFile>> {
        self.fault().check()?;
        self.preallocated.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FaultyFile(self.real.create_in_memory(dir, len)?, self.fault())))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(FaultyFile(self.real.open(path)?, self.fault())))
    }
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn LogFile>> {
        Ok(Box::new(FaultyLog(self.real.open_log(path)?, self.fault())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fault().check()?;
        if *self.lies.lock().unwrap() {
            return self.real.remove(from);
        }
        self.real.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.fault().check()?;
        self.real.sync_dir(dir)
    }
    fn own(&self, path: &Path, patience: Duration) -> io::Result<Option<Box<dyn FileLock>>> {
        lock_fault(&self.lock_errno)?;
        let Some(lock) = self.real.own(path, patience)? else { return Ok(None) };
        Ok(Some(Box::new(FaultyLock(lock, Arc::clone(&self.lock_errno)))))
    }
    fn lock_holder(&self, path: &Path) -> Option<LockHolder> {
        let goes_on = *self.holder_goes_on.lock().unwrap();
        self.real.lock_holder(path).map(|holder| LockHolder { goes_on, ..holder })
    }
    fn foreign_file_system(&self, _path: &Path) -> Option<String> {
        self.foreign.lock().unwrap().clone()
    }
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        if *self.locked.lock().unwrap() {
            return Ok(None);
        }
        self.real.try_lock(path)
    }
}

/// An engine and what it needs.
#[derive(Debug)]
pub struct World {
    pub dir: tempfile::TempDir,
    pub places: DatabaseDirectories,
    pub clock: Arc<TestClock>,
    pub disk: Arc<Faulty>,
    pub options: EngineOptions,
    pub engine: Engine<u32>,
    /// Answers as text, in the order in which they came.
    pub answers: Vec<String>,
    pub reports: Vec<EngineNotice>,
    /// How many jobs were run.
    pub jobs: usize,
    /// Whether the next write is prepared when all is answered, as the daemon does.
    pub prepares: bool,
}

impl World {
    pub fn new() -> World {
        World::with(EngineOptions::default())
    }

    /// Another service of the same user.
    pub fn beside(other: &World) -> World {
        let mut world = World::with(other.options.clone());
        world.places = other.places.clone();
        world.prepares = other.prepares;
        world.restart();
        world
    }

    pub fn with(options: EngineOptions) -> World {
        World::in_dir(tempfile::tempdir().unwrap(), options)
    }

    /// An engine on files in memory, where there is such a file system.
    #[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "it says what is skipped")]
    pub fn in_memory() -> Option<World> {
        let dir = tempfile::tempdir_in("/dev/shm").ok();
        let dir = dir.filter(|dir| store::disk::real().hold(dir.path()).is_in_memory());
        if dir.is_none() {
            let why = "skipped: /dev/shm is no tmpfs here";
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "{why}");
            println!("{why}");
        }
        let mut world = World::in_dir(dir?, EngineOptions::default());
        world.prepares = true;
        Some(world)
    }

    /// An engine on a disk, and one on files in memory.
    pub fn everywhere() -> impl Iterator<Item = World> {
        std::iter::once(World::new()).chain(World::in_memory())
    }

    pub fn in_dir(dir: tempfile::TempDir, options: EngineOptions) -> World {
        let places = DatabaseDirectories {
            config: dir.path().join("config/dconf"),
            flags: dir.path().join("run/dconf"),
            volatile: dir.path().join("run/dconf-service"),
            state: dir.path().join("state"),
        };
        std::fs::create_dir_all(dir.path().join("run")).unwrap();
        let (clock, disk) = (Arc::new(TestClock::default()), Faulty::new());
        let engine = engine(&places, &options, &disk, &clock);
        let (answers, reports) = (Vec::new(), Vec::new());
        let prepares = false;
        World { dir, places, clock, disk, options, engine, answers, reports, jobs: 0, prepares }
    }

    /// Ends the engine as `kill -9` does, and starts another.
    pub fn restart(&mut self) {
        self.engine = engine(&self.places, &self.options, &self.disk, &self.clock);
    }

    /// Ends the engine as SIGTERM does, and starts another.
    pub fn stop(&mut self) {
        self.engine.begin_shutdown();
        self.run();
        assert!(self.engine.is_idle(), "not idle after the end: {:?}", self.engine);
        self.restart();
    }

    /// Asks for changes, such as `"/a=1 /b/ /c"`: a set, a directory reset, a reset.
    pub fn ask(&mut self, id: &DatabaseId, sender: &str, token: u32, changes: &str) {
        self.engine.change(id, changeset(changes), sender, token);
    }

    /// Asks for changes, runs what there is to do now, and returns the answers.
    pub fn change(&mut self, id: &DatabaseId, changes: &str) -> Vec<String> {
        self.ask(id, ":1.9", 0, changes);
        self.run()
    }

    /// Runs what there is to do now, and returns the answers.
    pub fn run(&mut self) -> Vec<String> {
        while let Some(job) = self.engine.next_job() {
            self.finish(job);
        }
        self.collect();
        if self.prepares
            && let Some(job) = self.engine.next_preparation()
        {
            self.engine.finished(job.run());
        }
        std::mem::take(&mut self.answers)
    }

    /// Runs until nothing is left that waits for time.
    pub fn run_out(&mut self) -> Vec<String> {
        let mut answers = self.run();
        for _ in 0..1000 {
            let Some(deadline) = self.engine.deadline() else { return answers };
            let now = self.clock.monotonic();
            self.clock.advance(deadline.saturating_sub(now));
            self.engine.tick();
            answers.extend(self.run());
        }
        panic!("there is always something left: {:?}", self.engine)
    }

    pub fn finish(&mut self, job: Job) {
        self.jobs += 1;
        let done = job.run();
        self.engine.finished(done);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(answer) = self.engine.next_answer() {
            self.answers.push(text(&answer));
        }
        while let Some(report) = self.engine.next_report() {
            self.reports.push(report);
        }
    }

    /// Tells the engine that a file was touched, and lets the time pass after which it looks.
    pub fn stir(&mut self, id: &DatabaseId) {
        self.engine.outside_edit(id);
        self.clock.advance(Duration::from_millis(20));
    }

    /// Reads the keys in an image, as `"/a=1 /b='x'"`.
    pub fn keys(&self, id: &DatabaseId) -> String {
        keys_in(&self.image(id))
    }

    /// Where readers look.
    pub fn image(&self, id: &DatabaseId) -> PathBuf {
        match id.kind().segment() {
            "Writer" => self.places.config.join(id.name()),
            kind => self.places.volatile.join(kind).join(id.name()),
        }
    }

    /// Writes an image as another program does, over the one that is there.
    pub fn write_outside(&self, id: &DatabaseId, keys: &str) {
        let path = self.image(id);
        let temp = path.with_extension("outside");
        put(&temp, &image(keys));
        store::disk::real().rename(&temp, &path).unwrap();
    }
}

fn engine(
    places: &DatabaseDirectories,
    options: &EngineOptions,
    disk: &Arc<Faulty>,
    clock: &Arc<TestClock>,
) -> Engine<u32> {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    Engine::new(places.clone(), options.clone(), ":1.5".into(), disk, clock)
}

pub fn id(path: &str) -> DatabaseId {
    DatabaseId::from_object_path(&format!("/ca/desrt/dconf/{path}")).unwrap()
}

/// Reads `"/a=1 /b/ /c"`; values have no blanks.
pub fn changeset(changes: &str) -> Changeset {
    let mut changeset = Changeset::default();
    for change in changes.split_whitespace() {
        match change.split_once('=') {
            Some((path, value)) => {
                changeset.change(path, Some(Variant::parse(None, value).unwrap()));
            }
            None => changeset.change(change, None),
        }
    }
    changeset
}

/// Makes an image as another program does, without a stamp.
pub fn image(keys: &str) -> Vec<u8> {
    let changes = changeset(keys);
    let entries = changes.iter().filter_map(|(key, value)| Some((key, value?.as_bytes())));
    gvdb::write(entries, &gvdb::Image::default()).unwrap()
}

pub fn keys_in(path: &Path) -> String {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return "no file".into(),
        Err(error) => panic!("{error}"),
    };
    let table = gvdb::GvdbTable::open(&bytes).unwrap();
    table.check().unwrap();
    let value =
        |v: &[u8]| gvdb::gvariant::VariantView::inside(v, table.order()).to_variant().print();
    let mut keys: Vec<String> =
        table.entries().map(|(key, v)| format!("{key}={}", value(v))).collect();
    keys.sort();
    keys.join(" ")
}

/// Writes a file as another program does.
#[expect(clippy::disallowed_methods, reason = "another program writes as it likes")]
pub fn put(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// An answer as text: `"0 ok :1.5:user:0"`, `"0 init"`, `"0 failed NoSpace"`, `"notify /a/ [b c] :1.5:user:0"`.
pub fn text(answer: &EngineMessage<u32>) -> String {
    match answer {
        EngineMessage::Changed { token, tag } => format!("{token} ok {tag}"),
        EngineMessage::Initialised { token } => format!("{token} init"),
        EngineMessage::Failed { token, error } => format!("{token} failed {:?}", error.kind),
        EngineMessage::Notify { prefix, changes, tag, .. } => {
            format!("notify {prefix} [{}] {tag}", changes.join(" "))
        }
    }
}
