//! `unjank doctor --only listing`: the user's large directories, and a mount that hangs.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::fixture;

use std::path::Path;
use std::process::Command;

use fixture::fuse::{HangingMount, Server};
use fixture::in_time;

/// Runs the probe for a user whose home this is.
fn doctor(home: &Path) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
        .args(["doctor", "--only", "listing", "--json"])
        .env_clear()
        .env("HOME", home)
        .env("XDG_DATA_DIRS", home.join("no-such-directory"))
        .output()
        .unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn finding<'a>(document: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    document["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name)
}

/// Makes a directory of so many files.
fn fill(dir: &Path, count: usize) {
    std::fs::create_dir_all(dir).unwrap();
    for number in 0..count {
        std::fs::write(dir.join(format!("{number}")), "").unwrap();
    }
}

#[test]
fn the_largest_directories_are_opened_and_small_ones_are_not_named() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(".config")).unwrap();
    let named = "XDG_DOWNLOAD_DIR=\"$HOME/In\"\nXDG_MUSIC_DIR=\"$HOME/Music\"\n";
    std::fs::write(home.path().join(".config/user-dirs.dirs"), named).unwrap();
    fill(&home.path().join("In"), 400);
    fill(&home.path().join("Music"), 5);
    let document = doctor(home.path());
    let open = finding(&document, "open ~/In").unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!(open["kind"], "time", "{document:#}");
    let all = finding(&document, "all of ~/In").unwrap();
    assert!(all["text"].as_str().unwrap().starts_with("400 entries"), "{all:#}");
    assert_eq!(finding(&document, "open ~/Music"), None);
}

/// Alone: what is largest is opened first, and on a slow machine takes the time of the others.
#[test]
fn old_thumbnails_of_a_large_directory_are_removed_by_a_command() {
    let home = tempfile::tempdir().unwrap();
    fill(&home.path().join(".cache/thumbnails/normal"), 10_000);
    let document = doctor(home.path());
    let all = finding(&document, "all of ~/.cache/thumbnails/normal");
    let all = all.unwrap_or_else(|| panic!("{document:#}"));
    let command = all["advice"][0]["command"].as_str().unwrap();
    assert!(command.starts_with("find ") && command.ends_with("-atime +90 -delete"), "{command}");
}

#[test]
fn a_mount_that_hangs_is_found_and_does_not_hang_the_doctor() {
    in_time(|| {
        let home = tempfile::tempdir().unwrap();
        let Some(hanging) = HangingMount::make(Server::NeverAnswers) else { return };
        let document = doctor(home.path());
        let name = format!("open {}", hanging.path().display());
        let found = finding(&document, &name).unwrap();
        assert_eq!(found["kind"], "wrong", "{document:#}");
        assert!(found["text"].as_str().unwrap().contains("no answer within 1.00 s"), "{found:#}");
        assert!(found["cause"].as_str().unwrap().contains("a program answers for it"));
        assert_eq!(document["bad"], true);
    });
}
