//! Every crash state and every failing call of the store's life on a simulated disk.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::disk::{Disk, DiskFile};
use store::sim::{SimDisk, explore};
use unjank_hangs::model::HangRecord;
use unjank_hangs::store::{EraseSelection, HangStore, erase, read};

use crate::fuzz_hangs::hang;
use crate::store_real::LATER_NS;

fn dir() -> &'static Path {
    Path::new("/home/hangs")
}

/// What was promised.
#[derive(Debug, Default)]
struct Promise {
    /// Numbers that a reader must find.
    told: BTreeSet<u64>,
    /// Numbers that must be there after a power cut, too.
    synced: BTreeSet<u64>,
    /// Numbers that were asked to be erased; they may be there or not.
    asked: BTreeSet<u64>,
    /// Numbers that were erased, which nobody finds again.
    erased: BTreeSet<u64>,
}

fn append(store: &mut HangStore, promise: &mut Promise, program: &str) -> Option<()> {
    let number = store.take_number();
    let mut record = hang(number);
    record.program = program.to_owned();
    store.append(&[HangRecord::Hang(Box::new(record))]).ok()?;
    promise.told.insert(number);
    Some(())
}

fn live(disk: &SimDisk) -> Promise {
    let mut promise = Promise::default();
    let _ = live_until_a_failure(disk, &mut promise);
    promise
}

fn live_until_a_failure(disk: &SimDisk, promise: &mut Promise) -> Option<()> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut store = HangStore::open(Arc::clone(&shared), dir(), 1 << 20).ok()?;
    append(&mut store, promise, "secret")?;
    append(&mut store, promise, "kate")?;
    store.sync().ok()?;
    promise.synced.clone_from(&promise.told);
    append(&mut store, promise, "kate")?;
    let secret: BTreeSet<u64> = promise.told.iter().copied().take(1).collect();
    promise.asked.clone_from(&secret);
    let selection =
        EraseSelection { program: Some("secret".to_owned()), ..EraseSelection::default() };
    erase(&*shared, dir(), &selection, LATER_NS)
        .ok()
        .filter(|outcome| outcome.not_erased.is_empty())?;
    promise.erased = secret;
    // The file was written anew, durably.
    promise.synced.clone_from(&promise.told);
    append(&mut store, promise, "kate")
}

fn check(disk: &dyn Disk, promise: &Promise, wanted: &BTreeSet<u64>) -> Result<(), String> {
    let stored = read(disk, dir()).map_err(|error| error.to_string())?;
    let found: BTreeSet<u64> = stored.hangs.into_keys().collect();
    let missing: Vec<_> =
        wanted.difference(&found).filter(|n| !promise.asked.contains(n)).collect();
    let back: Vec<_> = promise.erased.intersection(&found).collect();
    match missing.is_empty() && back.is_empty() {
        true => Ok(()),
        false => Err(format!("missing {missing:?}, came back {back:?}, of {promise:?}")),
    }
}

/// A disk with no room for a new file until one is removed, or even then.
#[derive(Debug)]
struct FullDisk {
    disk: SimDisk,
    is_full: AtomicBool,
    stays_full: bool,
}

impl Disk for FullDisk {
    store::pass_on!(this, path => this.disk;
        read stat read_link list create_dir open open_log rename remove_abandoned sync_dir own token);

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())),
            false => self.disk.create(path, mode),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let is_last = !path.to_string_lossy().ends_with(".erased") && !self.stays_full;
        self.is_full.fetch_and(!is_last, Ordering::Relaxed);
        self.disk.remove(path)
    }
}

#[test]
fn on_a_full_disk_everything_can_be_erased_and_nothing_is_said_to_be_that_is_not() {
    let disk = SimDisk::new().with_dir("/home");
    let mut store = HangStore::open(Arc::new(disk.clone()), dir(), 1 << 20).unwrap();
    let mut promise = Promise::default();
    append(&mut store, &mut promise, "kate").unwrap();
    append(&mut store, &mut promise, "secret").unwrap();
    drop(store);
    let full = FullDisk { disk, is_full: AtomicBool::new(true), stays_full: false };
    let selection =
        EraseSelection { program: Some("secret".to_owned()), ..EraseSelection::default() };
    let outcome = erase(&full, dir(), &selection, LATER_NS).unwrap();
    assert_eq!((outcome.hangs, outcome.not_erased.len()), (0, 1));
    assert_eq!(read(&full, dir()).unwrap().hangs.len(), 2);
    let outcome = erase(&full, dir(), &EraseSelection::default(), LATER_NS).unwrap();
    assert!(outcome.hangs == 2 && outcome.not_erased.is_empty(), "{outcome:?}");
    assert!(read(&full, dir()).unwrap().hangs.is_empty());
    let mut store = HangStore::open(Arc::new(full), dir(), 1 << 20).unwrap();
    assert_eq!(store.take_number(), 3, "no number is given twice");
}

#[test]
fn what_was_erased_is_told_also_if_there_is_no_room_for_an_empty_file_after_it() {
    let disk = SimDisk::new().with_dir("/home");
    let mut store = HangStore::open(Arc::new(disk.clone()), dir(), 1 << 20).unwrap();
    let mut promise = Promise::default();
    append(&mut store, &mut promise, "kate").unwrap();
    drop(store);
    let full = FullDisk { disk, is_full: AtomicBool::new(true), stays_full: true };
    let outcome = erase(&full, dir(), &EraseSelection::default(), LATER_NS).unwrap();
    assert!(outcome.hangs == 1 && outcome.not_erased.is_empty(), "{outcome:?}");
    assert!(read(&full, dir()).unwrap().hangs.is_empty());
}

#[test]
fn every_crash_keeps_what_was_told_and_brings_back_nothing_that_was_erased() {
    let explored = explore(
        || SimDisk::new().with_dir("/home"),
        live,
        |disk, promise| check(disk, promise, &promise.told),
        |disk, promise| check(disk, promise, &promise.synced),
    );
    let explored = explored.unwrap();
    assert!(explored.runs > 100 && explored.images > 500, "{explored:?}");
}
