//! Programs of KDE and GTK with our library in front: without syncs of lists, or without lists.
#![expect(clippy::unwrap_used, reason = "a test")]

use crate::fixture;
use crate::recent_home;

use std::fs;
use std::path::Path;
use std::process::Command;

use fixture::has;
use recent_home::{Display, Home, UNJANK, gtk, kde};

/// Runs a command under `strace` and returns the calls of `fsync` and the like, a line each.
fn syncs(home: &Home, command: &[&str], display: Option<&Display>) -> Vec<String> {
    let record = home.at("strace");
    let mut strace = home.command("strace");
    if let Some(display) = display {
        strace.env("DISPLAY", &display.name);
    }
    let traced = "trace=fsync,fdatasync,sync_file_range,sync,syncfs";
    let output = strace.args(["-f", "-y", "-e", traced, "-o"]).arg(&record).args(command).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&record).unwrap();
    text.lines().filter(|line| line.contains("sync")).map(str::to_owned).collect()
}

/// Runs a command under `unjank trace` and returns the calls of `calls` that succeeded, each with the file it was made on.
fn traced(
    home: &Home,
    command: &[&str],
    calls: &str,
    display: Option<&Display>,
) -> Vec<(String, String)> {
    let mut trace = home.command(UNJANK);
    if let Some(display) = display {
        trace.env("DISPLAY", &display.name);
    }
    let all = ["trace", "--json", "--calls", calls, "--threshold", "0ns", "--stacks", "none", "--"];
    let output = trace.args(all).args(command).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // What the program prints comes first.
    let said = String::from_utf8(output.stdout).unwrap();
    let report = said.lines().find(|line| line.starts_with("{\"schema\"")).unwrap();
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["watch"]["lost"], 0);
    let name = |list: &str, index: &serde_json::Value| {
        let index = usize::try_from(index.as_u64()?).unwrap();
        Some(report[list][index]["name"].as_str().unwrap().to_owned())
    };
    let slow = report["slow"].as_array().unwrap().iter();
    let succeeded = slow.filter(|call| call["result"].as_i64().is_some_and(|result| result >= 0));
    succeeded
        .filter_map(|call| Some((name("calls", &call["call"])?, name("targets", &call["target"])?)))
        .collect()
}

/// The calls that change a file or a directory.
const CHANGES: &str = "write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,fallocate,\
    copy_file_range,sendfile,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,\
    unlink,unlinkat,chmod,fchmod,fchmodat";

/// Runs a command under `unjank trace` and returns what it changed below the home, with the call.
fn changed(home: &Home, command: &[&str], display: Option<&Display>) -> Vec<(String, String)> {
    let mut calls = traced(home, command, CHANGES, display);
    let below = text(&home.at("").canonicalize().unwrap()).to_owned();
    calls.retain(|(_, path)| path.starts_with(&below));
    calls
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn kde_programs_wait_for_no_sync_of_their_lists_and_record_all_the_same() {
    let Some(kde) = kde().filter(|_| has(&["strace"])) else { return };
    let home = Home::make();
    let docs = home.documents(4);
    let add = [text(kde), "add", text(&docs), "3"];
    let mut plain = syncs(&home, &add, None);
    // The first call also makes KDE's own cache.
    plain.retain(|line| line.contains("/.local/share/"));
    assert_eq!(plain.len(), 12, "KDE syncs four times a document: {plain:#?}");
    let relaxed = [&[UNJANK, "recent", "relax", "--"], &add[..]].concat();
    assert_eq!(syncs(&home, &relaxed, None), Vec::<String>::new());
    // `unjank trace` shows the same.
    assert_eq!(traced(&home, &relaxed, "sync", None), []);
    let lists = |calls: &[(String, String)]| {
        calls.iter().filter(|(_, path)| path.contains("/.local/share/")).count()
    };
    assert_eq!(lists(&traced(&home, &add, "sync", None)), 12);
    let list = home.command(kde).arg("list").output().unwrap();
    assert_eq!(String::from_utf8(list.stdout).unwrap().lines().count(), 3);
}

#[test]
fn gtk_programs_wait_for_the_directory_alone() {
    let Some((gtk, display)) = gtk().zip(Display::start()).filter(|_| has(&["strace"])) else {
        return;
    };
    let home = Home::make();
    let docs = home.documents(2);
    let add = [text(gtk), "add", text(&docs), "2"];
    let plain = syncs(&home, &add, Some(&display));
    let relaxed = [&[UNJANK, "recent", "relax", "--"], &add[..]].concat();
    let left = syncs(&home, &relaxed, Some(&display));
    let of_lists = |lines: &[String]| lines.iter().filter(|l| l.contains("recently-used")).count();
    assert!(of_lists(&plain) > 0, "{plain:?}");
    assert_eq!(of_lists(&left), 0, "{left:?}");
    // The data directory is no list: it may hold other names that somebody wants to last.
    assert!(left.iter().all(|line| line.contains("/.local/share>")), "{left:?}");
}

/// Syncs files as programs do: named ones, and one that is nameless in the data directory, with and without the lock.
const SYNCS: &str = "
import os, sys
data = os.environ['XDG_DATA_HOME']
def named(name):
    path = os.path.join(data, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.fsync(fd)
    os.close(fd)
def nameless(dir):
    fd = os.open(dir, os.O_RDWR | os.O_TMPFILE, 0o600)
    os.fdatasync(fd)
    os.close(fd)
for name in ['recently-used.xbel', 'recently-used.xbel.lock', 'recently-used.xbel.a1B2c3', 'RecentDocuments/x.desktop',
             'recently-used.xbel.backup', 'user-places.xbel', 'RecentDocuments/below/x', 'app/recently-used.xbel']:
    named(name)
nameless(data)
nameless(os.path.join(data, 'RecentDocuments'))
os.unlink(os.path.join(data, 'recently-used.xbel.lock'))
lock = os.open(os.path.join(data, 'recently-used.xbel.lock'), os.O_RDWR | os.O_CREAT | os.O_EXCL)
nameless(data)
if os.fork() == 0:
    nameless(data)
    os._exit(0)
os.wait()
os.unlink(os.path.join(data, 'recently-used.xbel.lock'))
nameless(data)
try:
    os.fsync(999)
except OSError as error:
    print(error.errno)
";

#[test]
fn every_other_sync_is_as_it_was() {
    if !has(&["strace", "python3"]) {
        return;
    }
    let home = Home::make();
    let script = home.write("syncs.py", SYNCS);
    let command = [UNJANK, "recent", "relax", "--", "python3", text(&script)];
    let lines = syncs(&home, &command, None);
    let data = format!("{}/", text(&home.at(".local/share").canonicalize().unwrap()));
    let named: Vec<String> = lines
        .iter()
        .filter_map(|line| line.split_once('<')?.1.split_once('>'))
        .map(|(path, _)| path.replace(&data, ""))
        .collect();
    let nameless = named.iter().filter(|name| name.starts_with('#')).count();
    let others: Vec<&str> =
        named.iter().map(String::as_str).filter(|name| !name.starts_with('#')).collect();
    let wanted = [
        "recently-used.xbel.backup",
        "user-places.xbel",
        "RecentDocuments/below/x",
        "app/recently-used.xbel",
    ];
    assert_eq!(others, wanted);
    // Before the lock was taken, in a child that does not hold it, and after it was given back.
    assert_eq!(nameless, 3, "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.contains("fsync(999)") && line.contains("EBADF")),
        "{lines:#?}"
    );
}

#[test]
fn a_private_kde_program_writes_no_byte_of_any_list_and_takes_nothing_away() {
    let Some(kde) = kde() else { return };
    let home = Home::make();
    // More than ten, so that KDE would make room for a new link.
    let docs = home.documents(24);
    let add = |docs: &Path| home.command(kde).arg("add").arg(docs).arg("12").output().unwrap();
    assert!(add(&docs).status.success());
    let before = home.contents();
    for number in 0..12 {
        home.write(&format!("others/{number}"), "text");
    }
    let others = home.at("others");
    let private = home.unjank(&["recent", "private", "--", text(kde), "add", text(&others), "12"]);
    assert!(private.status.success(), "{}", String::from_utf8_lossy(&private.stderr));
    assert_eq!(home.contents(), before);
    // Nor does it write and take back.
    let add_others = [text(kde), "add", text(&others), "12"];
    let private = [&[UNJANK, "recent", "private", "--"], &add_others[..]].concat();
    assert_eq!(changed(&home, &private, None), []);
    // The test sees what is written: without the library there is something.
    assert!(!changed(&home, &add_others, None).is_empty());
    assert_ne!(home.contents(), before);
}

#[test]
fn a_private_gtk_program_writes_no_byte_of_any_list() {
    let Some((gtk, display)) = gtk().zip(Display::start()) else { return };
    let home = Home::make();
    let docs = home.documents(3);
    let burst = |program: &[&str]| {
        let mut command = home.command(program[0]);
        command.args(&program[1..]).env("DISPLAY", &display.name);
        command.args([text(gtk), "burst", text(&docs), "3", "10"]).output().unwrap()
    };
    let before = home.contents();
    let private = burst(&[UNJANK, "recent", "private", "--"]);
    assert!(private.status.success(), "{}", String::from_utf8_lossy(&private.stderr));
    assert_eq!(home.contents(), before);
    let add = [text(gtk), "burst", text(&docs), "3", "10"];
    let private = [&[UNJANK, "recent", "private", "--"], &add[..]].concat();
    assert_eq!(changed(&home, &private, Some(&display)), []);
    assert!(!changed(&home, &add, Some(&display)).is_empty());
    assert_ne!(home.contents(), before);
}

#[test]
fn our_own_additions_know_that_they_are_private() {
    let home = Home::make();
    let docs = home.documents(1);
    let document = docs.join("0");
    let before = home.contents();
    let add = ["recent", "private", "--", UNJANK, "recent", "add", text(&document)];
    home.unjank(&add);
    assert_eq!(home.contents(), before);
    home.unjank(&add[3..].iter().copied().skip(1).collect::<Vec<_>>());
    assert_ne!(home.contents(), before);
}

/// Writes in every way that the C library offers onto the file whose name is given, and prints what went through.
const WAYS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>
#define WAY(call) do { errno = 0; if ((call) || errno != EACCES) printf("%s: errno %d\n", #call, errno); } while (0)
int main(int argc, char **argv) {
  const char *name = argv[1]; char temporary[4096]; int at, file; struct stat about;
  (void) argc;
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", name);
  at = open(".", O_RDONLY | O_DIRECTORY);
  file = open(name, O_RDONLY);
  if (file < 0 || read(file, temporary + 4000, 1) != 1 || stat(name, &about)) printf("cannot be read\n");
  WAY(open(name, O_WRONLY) >= 0);
  WAY(open(name, O_RDONLY | O_TRUNC) >= 0);
  WAY(open64(name, O_RDWR | O_CREAT, 0600) >= 0);
  WAY(openat(at, name, O_WRONLY | O_APPEND) >= 0);
  WAY(creat(name, 0600) >= 0);
  WAY(fopen(name, "a") != NULL);
  WAY(fopen(name, "r+") != NULL);
  WAY(freopen(name, "w", fopen("/dev/null", "r")) != NULL);
  WAY(mkstemp(temporary) >= 0);
  WAY(rename("other", name) == 0);
  WAY(renameat(at, "other", at, name) == 0);
  WAY(renameat2(at, "other", at, name, RENAME_EXCHANGE) == 0);
  WAY(link("other", name) == 0);
  WAY(linkat(at, "other", at, name, 0) == 0);
  WAY(symlink("other", name) == 0);
  WAY(mkdir(name, 0700) == 0);
  WAY(truncate(name, 0) == 0);
  WAY(utime(name, NULL) == 0);
  WAY(utimes(name, NULL) == 0);
  WAY(utimensat(at, name, NULL, 0) == 0);
  WAY(futimens(file, NULL) == 0);
  WAY(unlink(name) == 0);
  WAY(remove(name) == 0);
  if (fopen("third", "w") == NULL || rename("third", "fourth") || unlink("fourth")) printf("others fail\n");
  return 0;
}
"#;

#[test]
fn no_way_of_the_c_library_leads_to_a_list_under_whatever_name() {
    if !has(&["gcc"]) {
        return;
    }
    let home = Home::make();
    let source = home.write("ways.c", WAYS);
    let program = home.at("ways");
    let compile = Command::new("gcc")
        .args(["-O2", "-D_FORTIFY_SOURCE=2", "-w", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    assert!(compile.status.success(), "{}", String::from_utf8_lossy(&compile.stderr));
    let list = home.write(".local/share/recently-used.xbel", "<xbel/>");
    std::os::unix::fs::symlink(home.at(".local"), home.at("short")).unwrap();
    let data = home.at(".local/share");
    home.write(".local/share/other", "other");
    for name in [
        text(&list),
        "recently-used.xbel",
        "./../share//recently-used.xbel",
        "../../short/share/recently-used.xbel",
    ] {
        let run = |program: &[&str]| {
            let mut command = home.command(program[0]);
            let output = command.args(&program[1..]).arg(name).current_dir(&data).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(run(&[UNJANK, "recent", "private", "--", text(&program)]), "", "{name}");
        assert_eq!(fs::read(&list).unwrap(), b"<xbel/>");
    }
    assert_eq!(fs::read(data.join("other")).unwrap(), b"other");
}

#[test]
fn what_cannot_be_preloaded_into_is_refused_and_exit_codes_pass() {
    let home = Home::make();
    let status = |arguments: &[&str]| home.unjank(arguments).status.code();
    assert_eq!(status(&["recent", "relax", "--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(status(&["recent", "private", "--", "sh", "-c", "exit 0"]), Some(0));
    assert_eq!(status(&["recent", "relax"]), Some(2));
    let none = home.unjank(&["recent", "relax", "--", "/nonexistent/program"]);
    assert_eq!(none.status.code(), Some(2));
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(said.starts_with("unjank: cannot run /nonexistent/program: "), "{said}");
    if Path::new("/sbin/ldconfig").exists() {
        let refused = home.unjank(&["recent", "private", "--", "/sbin/ldconfig"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("linked statically"), "{said}");
    }
}

#[test]
fn a_session_is_relaxed_by_a_file_and_not_any_more_without_it() {
    let home = Home::make();
    let status = || home.unjank(&["recent", "relax", "--session", "status"]).status.code();
    assert_eq!(status(), Some(1));
    assert_eq!(home.unjank(&["recent", "relax", "--session", "on"]).status.code(), Some(0));
    assert_eq!(status(), Some(0));
    let file = home.at(".config/environment.d/60-unjank-relax.conf");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("\nLD_PRELOAD=/"), "{written}");
    assert!(written.contains(&format!("\nUNJANK_RELAX_DIR=\"{}", text(home.path()))), "{written}");
    assert_eq!(home.unjank(&["recent", "relax", "--session", "off"]).status.code(), Some(0));
    assert_eq!((status(), file.exists()), (Some(1), false));
}
