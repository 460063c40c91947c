//! A model disk is a disk: a file system works on it, its queue can be set, and nothing of it stays.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails"
)]

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use session::clock::{Clock, SystemClock};
use unjank_probe::model::{ModelDisk, Profile, Queue};

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
    let profile = Profile::named("emmc").unwrap();
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
        std::thread::yield_now();
    }
}
