//! A full disk and one that turned read-only: a clear error, nothing lost, and the next write works when the disk does.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::fixture;

use std::io::Write;
use std::path::Path;

use fixture::loop_disk::LoopDisk;
use fixture::{Bus, OURS, in_time};

/// Runs a command and returns whether it succeeded and everything it said.
fn dconf(bus: &Bus, arguments: &[&str]) -> (bool, String) {
    let output = bus.command("dconf").args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn read(bus: &Bus, key: &str) -> String {
    dconf(bus, &["read", key]).1.trim().to_owned()
}

/// Fills the file system to the last byte that an ordinary file gets.
fn fill(disk: &Path) -> std::path::PathBuf {
    let path = disk.join("filler");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    for block in [vec![7_u8; 1 << 20], vec![7_u8; 1 << 12], vec![7_u8; 1]] {
        while file.write_all(&block).is_ok() {}
    }
    path
}

/// Writes, breaks the disk, sees the error, mends the disk, and writes again.
fn trouble(kind: &'static str, words: &'static str, breaks: fn(&LoopDisk), mends: fn(&LoopDisk)) {
    let Some(disk) = LoopDisk::make(kind) else { return };
    let Some(bus) = Bus::start() else { return };
    let config = bus.dir().join("config");
    std::fs::remove_dir(&config).unwrap();
    std::os::unix::fs::symlink(disk.path(), &config).unwrap();
    let service = bus.serve(OURS, &["--names", "dconf"]);
    // Large enough that no gap which is left over holds the database.
    let large = format!("'{}'", "x".repeat(100_000));
    assert!(dconf(&bus, &["write", "/a/large", &large]).0);
    assert!(dconf(&bus, &["write", "/a/kept", "'before'"]).0);

    breaks(&disk);
    let (worked, said) = dconf(&bus, &["write", "/a/kept", "'during'"]);
    assert!(!worked, "a write to a broken disk was acknowledged");
    assert!(said.contains(words), "{said}");
    assert!(said.contains("config/dconf/user"), "no path in: {said}");
    // What programs read is what the service has in memory: the same change again is no change that is left out.
    assert_eq!(read(&bus, "/a/kept"), "'before'");
    assert!(!dconf(&bus, &["write", "/a/kept", "'during'"]).0);

    mends(&disk);
    assert!(dconf(&bus, &["write", "/a/kept", "'after'"]).0);
    assert_eq!(read(&bus, "/a/kept"), "'after'");
    assert_eq!(read(&bus, "/a/large"), large);
    let (status, log, _) = service.end(rustix::process::Signal::TERM);
    assert!(status.success(), "{log}");
    let left: Vec<_> = std::fs::read_dir(bus.dir().join("config/dconf"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["user"], "something was left behind");
}

#[test]
fn a_full_disk_loses_nothing() {
    in_time(|| {
        trouble(
            "ext4",
            "No space left on device",
            |disk| drop(fill(disk.path())),
            |disk| std::fs::remove_file(disk.path().join("filler")).unwrap(),
        );
    });
}

#[test]
fn a_full_btrfs_loses_nothing() {
    in_time(|| {
        trouble(
            "btrfs",
            "No space left on device",
            |disk| drop(fill(disk.path())),
            |disk| std::fs::remove_file(disk.path().join("filler")).unwrap(),
        );
    });
}

#[test]
fn a_disk_that_turned_read_only_loses_nothing() {
    in_time(|| {
        trouble(
            "ext4",
            "Read-only file system",
            |disk| disk.remount("ro"),
            |disk| disk.remount("rw"),
        );
    });
}
