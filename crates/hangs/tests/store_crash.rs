//! Every crash state and every failing call of the store's life on a simulated disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use store::disk::Disk;
use store::sim::{SimDisk, explore};
use unjank_hangs::model::HangRecord;
use unjank_hangs::store::{EraseSelection, HangStore, erase, read};

use crate::fuzz_hangs::hang;

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
    erase(&*shared, dir(), &selection).ok().filter(|outcome| outcome.not_erased.is_empty())?;
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
