//! The functions of the kernel in which a program waits are told.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use slowdisk::{DiskProfile, ModelDisk};
use sys::clock::{Clock, SystemClock};
use tempfile::TempDir;
use unjank_hangs::model::HangCause;

use crate::kernel::start;
use crate::loops::start_sampling;
use crate::recorder::Interactive;

/// Has a program sleep, and sync a file on a slow disk.
fn check(root: &TempDir, program: &mut Interactive) {
    program.order(b's');
    let hang = program.ended_hang(root);
    let has = |name: &str| hang.kernel_functions.iter().any(|function| function == name);
    assert!(hang.cause == HangCause::Sleep && has("hrtimer_nanosleep"), "{hang:?}");
    program.order(b'f');
    let hang = program.ended_hang(root);
    let has = |name: &str| hang.kernel_functions.iter().any(|function| function == name);
    assert!(hang.cause == HangCause::Sync && has("ext4_sync_file"), "{hang:?}");
    assert!(!has("hrtimer_nanosleep") && hang.kernel_functions.len() <= 16, "{hang:?}");
}

/// Makes a slow disk, on which the file is that the program of this folder syncs.
#[expect(clippy::print_stderr, reason = "a test says what it skips")]
fn slow_disk(root: &TempDir) -> Option<ModelDisk> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: not root");
        eprintln!("SKIPPED: mounting needs root");
        return None;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let profile = DiskProfile::named("sd").unwrap();
    let path = root.path().join("model");
    std::fs::create_dir(&path).unwrap();
    let disk = ModelDisk::make(profile, 64 << 20, &path, clock).unwrap();
    disk.set_delays(true);
    symlink(disk.path().join("file"), root.path().join("held.stored")).unwrap();
    Some(disk)
}

#[test]
fn by_programs_in_the_kernel_the_functions_of_a_wait_are_told() {
    // Mounts are of the thread that made them, and of those that it begins.
    let test = || {
        let root = tempfile::tempdir().unwrap();
        let Some(_disk) = slow_disk(&root) else { return };
        let Some((_recorder, mut program)) = start(&root, "poll") else { return };
        check(&root, &mut program);
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn by_sampling_the_functions_of_a_wait_are_told_too() {
    let test = || {
        let root = tempfile::tempdir().unwrap();
        let Some(_disk) = slow_disk(&root) else { return };
        let (_recorder, mut program) = start_sampling(&root);
        check(&root, &mut program);
    };
    std::thread::spawn(test).join().unwrap();
}
