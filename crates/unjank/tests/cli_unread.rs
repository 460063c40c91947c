//! What was not read is not taken for what is not there: descriptors that ran out, a disk that fails, permissions of other sessions.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::catalogue_home;
use crate::fixture;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use catalogue_home::{Home, UNJANK};
use fixture::fuse::{HangingMount, Server};
use fixture::{has, skip};

/// More plugins than one thread reads.
const MANY: usize = 40;

/// Runs a command that may open so many files.
fn with_descriptors(home: &Home, most: usize, words: &[&str]) -> Output {
    let mut command = home.command("/bin/sh");
    command.arg("-c").arg(format!("ulimit -n {most}; exec \"$@\"")).arg("sh").arg(UNJANK);
    command.args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(|part| String::from_utf8_lossy(part)).concat()
}

fn many(home: &Home) {
    for number in 0..MANY {
        fs::copy(home.path("plugins/kf5/one.so"), home.path(&format!("plugins/kf5/{number}.so")))
            .unwrap();
    }
    sys::file_clock::wait_until_later();
}

#[test]
fn an_index_is_not_made_with_too_few_descriptors_nor_an_answer_given() {
    let home = Home::new();
    many(&home);
    let json = |words: &[&str]| {
        let said = home.said(0, words);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    for words in [
        &["plugins", "index"][..],
        &["plugins", "list"],
        &["plugins", "find", "--namespace", "kf5"],
        &["plugins", "find", "--id", "one"],
    ] {
        let output = with_descriptors(&home, 4, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output));
        assert!(text(&output).contains("Too many open files"), "{}", text(&output));
        assert!(text(&output).contains("cannot read"), "{}", text(&output));
        home.said(1, &["plugins", "index", "--check"]);
    }
    let all = json(&["plugins", "find", "--id", "one", "--json"]);
    assert_eq!(all["plugins"].as_array().unwrap().len(), MANY + 1);
    // What was made before stays, and is an answer of before where that is wanted.
    fs::copy(home.path("plugins/kf5/one.so"), home.path("plugins/kf5/late.so")).unwrap();
    assert_eq!(with_descriptors(&home, 4, &["plugins", "index", "--full"]).status.code(), Some(2));
    let before = json(&["plugins", "find", "--id", "one", "--stale", "use", "--json"]);
    assert_eq!(before["plugins"].as_array().unwrap().len(), MANY + 1);
    let all = json(&["plugins", "find", "--id", "one", "--json"]);
    assert_eq!(all["plugins"].as_array().unwrap().len(), MANY + 2);
}

#[test]
fn what_a_disk_does_not_give_is_told_and_changes_no_index() {
    let home = Home::new();
    home.said(0, &["plugins", "index"]);
    for (link, words) in [
        ("plugins/kf5/sick.so", &["plugins", "list"][..]),
        ("config/mimeapps.list", &["apps", "for", "text/plain"]),
        ("data/applications/sick.desktop", &["apps", "for", "text/plain"]),
        ("data/applications/defaults.list", &["apps", "for", "text/plain"]),
    ] {
        // The first page of a process is never there: to read it is an input/output error.
        let link = home.path(link);
        std::os::unix::fs::symlink("/proc/self/mem", &link).unwrap();
        let told = home.said(2, &["plugins", "index"]);
        assert!(told.contains("Input/output error") && told.contains("cannot read"), "{told}");
        home.said(0, words);
        home.said(1, &["plugins", "index", "--check"]);
        fs::remove_file(&link).unwrap();
        home.said(0, &["plugins", "index"]);
        home.said(0, &["plugins", "index", "--check"]);
    }
}

#[test]
fn what_is_on_a_mount_whose_server_is_gone_changes_no_index() {
    let Some(mut mount) = HangingMount::make(Server::NeverReads) else { return };
    mount.end_server();
    let error = fs::metadata(mount.path()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()), "{error}");
    // What was there is on the mount now: a root, a directory below it, a file.
    let plugins = &["plugins", "find", "--id", "one"][..];
    let apps = &["apps", "default", "text/plain"][..];
    for (link, words) in [
        ("plugins", plugins),
        ("plugins/kf5", plugins),
        ("plugins/kf5/one.so", plugins),
        ("data/applications", apps),
        ("data/applications/writer.desktop", apps),
        ("data/applications/mimeinfo.cache", apps),
    ] {
        let home = Home::new();
        home.said(0, &["plugins", "index"]);
        let (link, away) = (home.path(link), home.path("away"));
        fs::rename(&link, &away).unwrap();
        std::os::unix::fs::symlink(mount.path(), &link).unwrap();
        for how in [&["plugins", "index"][..], &["plugins", "index", "--full"]] {
            let told = home.said(2, how);
            assert!(told.contains("cannot read"), "{link:?}: {told}");
            assert!(told.contains("Transport endpoint is not connected"), "{link:?}: {told}");
        }
        home.said(1, &["plugins", "index", "--check"]);
        // What was known stays known to those who want it.
        home.said(0, &[words, &["--stale", "use"]].concat());
        fs::remove_file(&link).unwrap();
        fs::rename(&away, &link).unwrap();
        sys::file_clock::wait_until_later();
        home.said(0, words);
        home.said(0, &["plugins", "index", "--check"]);
    }
}

/// The user and the groups of a session.
const USER: u32 = 65_534;
const GROUP: u32 = 60_123;

/// Runs a command as another user, who is in the group or not.
fn as_user(home: &Home, is_in_group: bool, words: &[&str]) -> Output {
    let mut command = home.command("setpriv");
    command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
    match is_in_group {
        true => command.arg(format!("--groups={GROUP}")),
        false => command.arg("--clear-groups"),
    };
    command.arg(UNJANK).args(words).output().unwrap()
}

fn give_to(path: &Path, user: u32, group: u32, mode: u32) {
    chown(path, Some(user), Some(group)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_this_session_may_not_read_is_read_by_one_that_may() {
    if !rustix::process::geteuid().is_root() || !has(&["setpriv"]) {
        return skip("other users need root and setpriv");
    }
    // A directory of plugins that may not be read; one that may, without what is in it; a file; lists; a directory of applications.
    type Deny = fn(&Home);
    let deny_all: Deny = |home| give_to(&home.path("plugins/kf5"), 0, GROUP, 0o750);
    let deny_search: Deny = |home| give_to(&home.path("plugins/kf5"), 0, GROUP, 0o754);
    let deny_file: Deny = |home| give_to(&home.path("plugins/kf5/one.so"), 0, GROUP, 0o640);
    let deny_root: Deny = |home| give_to(&home.path("plugins"), 0, GROUP, 0o750);
    let deny_app: Deny =
        |home| give_to(&home.path("data/applications/writer.desktop"), 0, GROUP, 0o640);
    let deny_cache: Deny =
        |home| give_to(&home.path("data/applications/mimeinfo.cache"), 0, GROUP, 0o640);
    let deny_apps: Deny = |home| give_to(&home.path("data/applications"), 0, GROUP, 0o750);
    let plugins = &["plugins", "find", "--namespace", "kf5"][..];
    let default = &["apps", "default", "text/plain"][..];
    for (name, deny, words) in [
        ("a directory", deny_all, plugins),
        ("its files", deny_search, plugins),
        ("a file", deny_file, plugins),
        ("a root", deny_root, plugins),
        ("an application", deny_app, default),
        ("a list", deny_cache, default),
        ("a directory of applications", deny_apps, default),
    ] {
        let home = Home::new();
        let mut chown = Command::new("chown");
        chown.arg("-R").arg(USER.to_string()).arg(home.path(""));
        assert!(chown.status().unwrap().success());
        deny(&home);
        sys::file_clock::wait_until_later();
        if !as_user(&home, false, &["--version"]).status.success() {
            return skip("another user cannot start the program");
        }
        let made = as_user(&home, false, &["plugins", "index"]);
        assert_eq!(made.status.code(), Some(0), "{name}: {}", text(&made));
        assert!(text(&made).contains("Permission denied"), "{name}: {}", text(&made));
        // It is as it was for who may not read it, and no new index is made for each question.
        let check = as_user(&home, false, &["plugins", "index", "--check"]);
        assert_eq!(check.status.code(), Some(0), "{name}: {}", text(&check));
        assert_eq!(as_user(&home, false, words).status.code(), Some(1), "{name}");
        let check = as_user(&home, true, &["plugins", "index", "--check"]);
        assert_eq!(check.status.code(), Some(1), "{name}: {}", text(&check));
        let found = as_user(&home, true, words);
        assert_eq!(found.status.code(), Some(0), "{name}: {}", text(&found));
    }
}
