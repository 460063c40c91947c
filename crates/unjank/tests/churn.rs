//! Random changesets with directory resets through the real libdconf: what it reads back and what an observer learns from
//! `Notify` alone are both what was written, on ext4 (or what the temporary directory is), tmpfs and btrfs.
//!
//! `CHURN` sets the number of changesets (the gate makes fewer), `CHURN_SEED` repeats a run.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::fixture;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fixture::loop_disk::LoopDisk;
use fixture::{Bus, OURS, setting, skip};

/// Builds the peer with the real libdconf, or says why it cannot be.
fn peer(dir: &Path) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "dconf"]).output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        skip("no libdconf-dev");
        return None;
    };
    let program = dir.join("dconf_churn");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/dconf_churn.c");
    let built = Command::new("gcc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([&program, &source])
        .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
        .status();
    assert!(built.is_ok_and(|status| status.success()), "gcc cannot build the peer");
    Some(program)
}

/// What the writer wrote, and what the observer learned.
fn churn(session: &Bus, program: &Path, mode: &str) -> (String, String) {
    let seed = setting("CHURN_SEED").unwrap_or(1).to_string();
    let count = setting("CHURN").unwrap_or(300).to_string();
    let mut observer = session.command(program);
    let mut observer =
        observer.arg("observe").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(observer.stderr.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "observing\n");
    let written = session.command(program).args(["write", &seed, &count, mode]).output().unwrap();
    let said = String::from_utf8_lossy(&written.stderr);
    assert!(written.status.success(), "{mode}, seed {seed}: {said}");
    assert!(said.contains("0 mismatches"), "{said}");
    let mut learned = String::new();
    observer.stdout.take().unwrap().read_to_string(&mut learned).unwrap();
    assert!(observer.wait().unwrap().success());
    (String::from_utf8(written.stdout).unwrap(), learned)
}

fn churn_on(dir: &Path) {
    let Some(program) = peer(dir) else { return };
    for mode in ["sync", "fast"] {
        let Some(session) = Bus::start_in(dir) else { return };
        let _daemon = session.serve(OURS, &["--names", "dconf"]);
        let (written, learned) = churn(&session, &program, mode);
        assert!(written.lines().count() > 100);
        assert_eq!(written, learned, "{mode}");
    }
}

#[test]
fn an_observer_converges_on_the_temporary_directory() {
    churn_on(tempfile::tempdir().unwrap().path());
}

#[test]
fn an_observer_converges_on_tmpfs() {
    churn_on(tempfile::tempdir_in("/dev/shm").unwrap().path());
}

#[test]
fn an_observer_converges_on_btrfs() {
    let Some(disk) = LoopDisk::make("btrfs") else { return };
    churn_on(disk.path());
}

/// The comparison is worth something: a writer that is told to write less than the observer saw is noticed.
#[test]
fn a_difference_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = peer(dir.path()) else { return };
    let Some(session) = Bus::start_in(dir.path()) else { return };
    let _daemon = session.serve(OURS, &["--names", "dconf"]);
    let planted = session.command("dconf").args(["write", "/churn/planted", "1"]).status();
    assert!(planted.is_ok_and(|status| status.success()));
    let mut observer = session.command(&program);
    let mut observer =
        observer.arg("observe").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(observer.stderr.take().unwrap()).read_line(&mut ready).unwrap();
    for key in ["/churn/planted", "/done"] {
        session.command("dconf").args(["write", key, "2"]).status().unwrap();
    }
    let mut learned = String::new();
    observer.stdout.take().unwrap().read_to_string(&mut learned).unwrap();
    observer.wait().unwrap();
    assert_eq!(learned, "/churn/planted 2\n");
}
