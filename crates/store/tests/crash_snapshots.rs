//! Every crash state and every failing call of keeping snapshots.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::path::Path;
use std::time::Duration;

use unjank_store::disk::Disk;
use unjank_store::publish::publish;
use unjank_store::sim::{SimDisk, explore};
use unjank_store::snapshots::{SnapshotPolicy, Snapshots};

const POLICY: SnapshotPolicy = SnapshotPolicy {
    recent: 1,
    shared_every: Duration::from_secs(10),
    copied_every: Duration::from_secs(10),
};

fn file() -> &'static Path {
    Path::new("/home/user")
}

fn image(generation: u64) -> Vec<u8> {
    format!("generation {generation}, whole").into_bytes()
}

/// Keeps three generations; returns the newest whose snapshot was promised.
fn keep_three(disk: &SimDisk) -> u64 {
    let mut promised = 0;
    let Ok(mut snapshots) = Snapshots::open(disk, Path::new("/home/kept"), "user", POLICY) else {
        return promised;
    };
    for generation in 1..=3 {
        if publish(disk, file(), &image(generation)).is_err() {
            continue;
        }
        if let Ok(true) = snapshots.keep(disk, file(), generation, generation * 100) {
            promised = generation;
        }
    }
    promised
}

/// Checks that the newest promised snapshot, or a newer one, is there and whole.
fn check(disk: &SimDisk, promised: u64) -> Result<(), String> {
    let snapshots = Snapshots::open(disk, Path::new("/home/kept"), "user", POLICY).unwrap();
    let whole = snapshots
        .newest_first()
        .find(|snapshot| disk.read(&snapshot.path).unwrap() == image(snapshot.generation))
        .map_or(0, |snapshot| snapshot.generation);
    if whole >= promised { Ok(()) } else { Err(format!("{promised} was kept, {whole} is found")) }
}

fn explore_snapshots(seeded: fn() -> SimDisk, keep: fn(&SimDisk) -> u64) -> Result<(), String> {
    let check = |disk: &SimDisk, promised: &u64| check(disk, *promised);
    explore(seeded, keep, check, check).map(|_| ())
}

#[test]
fn a_snapshot_that_was_kept_is_found_after_any_crash_until_a_newer_one_is() {
    explore_snapshots(|| SimDisk::new().with_dir("/home"), keep_three).unwrap();
}

#[test]
fn the_same_holds_where_blocks_are_shared() {
    explore_snapshots(|| SimDisk::new().with_dir("/home").with_sharing(), keep_three).unwrap();
}

#[test]
fn the_explorer_catches_an_old_snapshot_removed_before_the_new_one_is_durable() {
    let hasty = |disk: &SimDisk| {
        let kept = |generation: u64| format!("/home/kept/user.{generation}.{generation}00");
        let mut promised = 0;
        for generation in 1..=2 {
            if publish(disk, file(), &image(generation)).is_err() {
                break;
            }
            let before = kept(promised);
            if promised > 0 && disk.remove(Path::new(&before)).is_err() {
                break;
            }
            if publish(disk, Path::new(&kept(generation)), &image(generation)).is_err() {
                break;
            }
            promised = generation;
        }
        promised
    };
    let fault = explore_snapshots(|| SimDisk::new().with_dir("/home"), hasty);
    assert!(fault.unwrap_err().contains("1 was kept, 0 is found"));
}
