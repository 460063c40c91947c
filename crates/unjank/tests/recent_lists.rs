//! `unjank recent` beside lists that others wrote: long ones, ones that grew too long, and homes that cannot be written.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the test is somebody else's program"
)]

use crate::fixture;
use crate::recent_home;

use std::fmt::Write;
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use fixture::has;
use recent_home::{Home, UNJANK};

const XBEL: &str = ".local/share/recently-used.xbel";

/// A list as GTK's programs write it.
fn list_of(names: impl Iterator<Item = String>) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xbel version=\"1.0\" \
         xmlns:bookmark=\"http://www.freedesktop.org/standards/desktop-bookmarks\" \
         xmlns:mime=\"http://www.freedesktop.org/standards/shared-mime-info\">\n",
    );
    for name in names {
        let time = "2026-11-21T17:33:11.395718Z";
        writeln!(
            text,
            "<bookmark href=\"file:///srv/{name}\" added=\"{time}\" modified=\"{time}\" \
             visited=\"{time}\"><info><metadata owner=\"http://freedesktop.org\">\
             <mime:mime-type type=\"text/plain\"/><bookmark:applications>\
             <bookmark:application name=\"gedit\" exec=\"&apos;gedit %u&apos;\" \
             modified=\"{time}\" count=\"1\"/></bookmark:applications></metadata></info></bookmark>"
        )
        .unwrap();
    }
    text.push_str("</xbel>\n");
    text
}

fn listed(home: &Home) -> usize {
    let output = home.unjank(&["recent", "list", "--uris"]);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().count()
}

#[test]
fn what_others_wrote_is_listed_before_anything_is_synced_and_nothing_is_written_for_it() {
    let home = Home::make();
    fs::create_dir_all(home.at(".local/share")).unwrap();
    fs::write(home.at(XBEL), list_of((0..5000).map(|number| number.to_string()))).unwrap();
    assert_eq!(listed(&home), 5000);
    assert!(!home.at(".local/state/unjank/recents/journal").exists());
    assert!(home.unjank(&["recent", "sync", "--quiet"]).status.success());
    assert_eq!(listed(&home), 5000);
}

#[test]
fn a_list_is_read_in_a_home_that_cannot_be_written() {
    if !has(&["bwrap"]) {
        return;
    }
    let home = Home::make();
    fs::create_dir_all(home.at(".local/share")).unwrap();
    fs::write(home.at(XBEL), list_of((0..3).map(|number| number.to_string()))).unwrap();
    let list = || {
        let inside = home.command(UNJANK);
        let mut command = Command::new("bwrap");
        command.env_clear();
        command.envs(inside.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        let output = command.args([UNJANK, "recent", "list", "--uris"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(list(), 3);
    assert!(home.unjank(&["recent", "add", "/srv/more"]).status.success());
    assert!(home.unjank(&["recent", "sync", "--quiet"]).status.success());
    assert_eq!(list(), 4);
}

#[test]
fn a_list_that_grew_too_long_is_kept_aside_and_shortened() {
    let home = Home::make();
    fs::create_dir_all(home.at(".local/share")).unwrap();
    // As an addition without bounds made it: a few entries are most of it.
    let mut text = list_of((0..1200).map(|number| number.to_string()));
    let long = format!("exec=\"{}", "x".repeat(140_000));
    let (short, rest) = text.split_at(text.len() / 2);
    text = format!("{}{rest}", short.replace("exec=\"", &long));
    fs::write(home.at(XBEL), text).unwrap();
    let before = fs::metadata(home.at(XBEL)).unwrap().len();
    assert!(before > 64 << 20, "{before}");
    let output = home.unjank(&["recent", "sync"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("It was damaged"), "{said}");
    let aside = home.at(&format!("{XBEL}.damaged"));
    assert_eq!(fs::metadata(aside).unwrap().len(), before);
    let after = fs::metadata(home.at(XBEL)).unwrap().len();
    assert!(after < 2 << 20, "{after}");
    assert!((598..=600).contains(&listed(&home)), "{}", listed(&home));
    // From now on it is as any other.
    let said = String::from_utf8(home.unjank(&["recent", "sync"]).stdout).unwrap();
    assert!(said.contains("already"), "{said}");
}

#[test]
fn a_place_with_one_slash_is_no_file_below_the_working_directory() {
    let home = Home::make();
    assert!(home.unjank(&["recent", "add", "mtp:/phone/a.jpg"]).status.success());
    let listed = home.unjank(&["recent", "list", "--uris"]).stdout;
    assert_eq!(String::from_utf8(listed).unwrap(), "mtp:/phone/a.jpg\n");
}

#[test]
fn sync_waits_for_a_writer_of_ours_longer_than_one_attempt_does() {
    let home = Home::make();
    fs::create_dir_all(home.at(".local/share")).unwrap();
    fs::write(home.at(XBEL), list_of(["1".to_owned()].into_iter())).unwrap();
    let lock = home.at(".local/state/unjank/recents/writer.lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let file = File::create(&lock).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let start = Instant::now();
    let holder = std::thread::spawn(move || {
        let (_nobody, silence) = std::sync::mpsc::channel::<()>();
        // One attempt waits for ten seconds.
        let _ = silence.recv_timeout(Duration::from_secs(12));
        drop(file);
    });
    let output = home.unjank(&["recent", "sync"]);
    assert!(output.status.success(), "{output:?}");
    assert!(start.elapsed() > Duration::from_secs(11), "it was not waited for");
    holder.join().unwrap();
}
