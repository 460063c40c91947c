//! A model disk is a disk: a file system works on it, its queue can be set, and nothing of it stays.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot be set up fails"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Clock, SystemClock};
use unjank_slowdisk::{DiskProfile, ModelDisk, Queue};

#[test]
fn a_file_system_lives_on_a_model_disk() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: not root");
        eprintln!("SKIPPED: mounting needs root");
        return;
    }
    // Its mounts are this thread's own.
    std::thread::spawn(on_a_model_disk).join().unwrap();
}

fn on_a_model_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let profile = DiskProfile::named("emmc").unwrap();
    let disk = ModelDisk::make(profile, 128 << 20, directory.path(), Arc::clone(&clock)).unwrap();
    for scheduler in ["none", "mq-deadline", "bfq"] {
        let wanted = Queue { scheduler: scheduler.to_owned(), wbt_lat_usec: Some(2000) };
        assert_eq!(disk.set(&wanted).unwrap(), wanted);
    }
    assert!(disk.set(&Queue { scheduler: "no-such".to_owned(), wbt_lat_usec: None }).is_err());
    let path = disk.path().join("file");
    let contents: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
    let before = disk.traffic();
    disk.set_delays(true);
    let start = clock.monotonic();
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&contents).unwrap();
    file.sync_all().unwrap();
    // 4 MB at 30 MB a second and a flush.
    assert!(clock.monotonic() - start >= Duration::from_millis(138), "it takes its time");
    let written = disk.traffic();
    assert!(written.written_bytes - before.written_bytes >= 4_000_000);
    assert!(written.flushes > before.flushes);
    drop(file);
    rustix::fs::sync();
    fs::OpenOptions::new()
        .write(true)
        .open("/proc/sys/vm/drop_caches")
        .unwrap()
        .write_all(b"1")
        .unwrap();
    let mut read = Vec::new();
    fs::File::open(&path).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, contents);
    assert!(disk.traffic().read_bytes > written.read_bytes, "it was read from the disk");
    let name = disk.name().to_owned();
    drop(disk);
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    assert!(!mounts.contains("unjank-model"), "{mounts}");
    let backing = format!("/sys/block/{name}/loop/backing_file");
    let ours = directory.path().to_str().unwrap().to_owned();
    let is_ours = || fs::read_to_string(&backing).is_ok_and(|file| file.starts_with(&ours));
    while is_ours() {
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The process that is killed has this in its environment.
const VICTIM: &str = "UNJANK_TEST_VICTIM";

#[test]
fn a_maker_that_is_killed_leaves_no_loop_device() {
    if !rustix::process::geteuid().is_root() {
        // The other test says so.
        return;
    }
    if let Some(directory) = std::env::var_os(VICTIM) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let profile = DiskProfile::named("emmc").unwrap();
        let disk = ModelDisk::make(profile, 64 << 20, directory.as_ref(), clock).unwrap();
        disk.set_delays(true);
        // Something is left to be written when the end comes.
        fs::write(disk.path().join("dirty"), vec![1; 9_000_000]).unwrap();
        println!("made on {}", disk.name());
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_maker_that_is_killed_leaves_no_loop_device", "--nocapture"])
        .env(VICTIM, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let name = lines
        .find_map(|line| line.unwrap().split_once("made on ").map(|(_, name)| name.to_owned()))
        .unwrap();
    let backing = format!("/sys/block/{name}/loop/backing_file");
    assert!(fs::read_to_string(&backing).unwrap().contains("unjank-slowdisk"));
    let ours = directory.path().to_str().unwrap().to_owned();
    victim.kill().unwrap();
    victim.wait().unwrap();
    while fs::read_to_string(&backing).is_ok_and(|file| file.starts_with(&ours)) {
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
