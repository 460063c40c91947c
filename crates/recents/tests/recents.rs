//! The list of recent documents on real and simulated disks: many writers, damage, full disks, and lists in memory.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(clippy::disallowed_methods, reason = "the tests write the files of other programs")]
#![expect(clippy::print_stderr, reason = "a skip says why")]

#[path = "../../../fuzz/src/recents.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod fuzzed;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::replay::replay;
use store::disk;
use store::sim::{FaultEffect, SimDisk};
use sys::clock::Clock;
use unjank_recents::{
    Addition, AdditionOutcome, Compacted, Privacy, RecentEntry, RecentTime, Recents, RecentsFiles,
    RememberingProgram, Uri, writer,
};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A clock that a test sets.
#[derive(Debug)]
pub(crate) struct SetClock(Mutex<(SystemTime, Duration)>);

impl SetClock {
    fn new() -> Arc<SetClock> {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Arc::new(SetClock(Mutex::new((time, Duration::from_secs(1_000)))))
    }

    pub(crate) fn forward(&self, by: Duration) {
        let mut times = self.0.lock().unwrap();
        times.0 += by;
        times.1 += by;
    }

    pub(crate) fn back(&self, by: Duration) {
        self.0.lock().unwrap().0 -= by;
    }
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        // Time goes on from one question to the next.
        self.forward(Duration::from_micros(1));
        self.0.lock().unwrap().0
    }

    fn monotonic(&self) -> Duration {
        self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
    }

    fn since_boot(&self) -> Duration {
        self.0.lock().unwrap().1
    }
}

fn places(root: &Path) -> RecentsFiles {
    RecentsFiles {
        state: root.join("state"),
        runtime: Some(root.join("run")),
        xbel: root.join("data/recently-used.xbel"),
        links: root.join("data/RecentDocuments"),
        data: root.join("data"),
        config: root.join("config"),
        config_dirs: vec![root.join("etc")],
        cache: root.join("cache"),
        home: root.join("home"),
        temporary: root.join("tmp"),
        dconf: vec![root.join("config/dconf/user")],
    }
}

pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) clock: Arc<SetClock>,
}

impl Home {
    pub(crate) fn new() -> Home {
        // Its own directories are hidden, which matters here.
        let dir = tempfile::Builder::new().prefix("recents").tempdir().unwrap();
        Home { dir, clock: SetClock::new() }
    }

    pub(crate) fn places(&self) -> RecentsFiles {
        places(self.dir.path())
    }

    pub(crate) fn recents(&self) -> Recents {
        Recents::new(self.places(), RememberingProgram::Ordinary, disk::real(), self.clock.clone())
    }

    pub(crate) fn write(&self, name: &str, text: &[u8]) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn addition(&self, name: &str) -> Addition {
        let path = self.dir.path().join("home").join(name);
        addition(&Uri::of_path(&path).unwrap(), RecentTime::of(self.clock.now()))
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("state/journal")
    }
}

pub(crate) fn addition(uri: &Uri, at: RecentTime) -> Addition {
    Addition {
        uri: uri.clone(),
        mime: Some("text/plain".into()),
        groups: Vec::new(),
        privacy: Privacy::Public,
        application: "org.kde.kate".into(),
        exec: "kate %U".into(),
        at,
    }
}

pub(crate) fn names(recents: &mut Recents) -> Vec<String> {
    let list = recents.list().unwrap();
    list.iter().map(|entry| entry.uri.as_str().rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn four_writers_lose_nothing_with_an_empty_list_and_with_a_thousand_entries() {
    for before in [0, 1000] {
        let home = Home::new();
        let mut first = home.recents();
        for number in 0..before {
            first.add(&home.addition(&format!("before{number}"))).unwrap();
        }
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let home = &home;
                scope.spawn(move || {
                    let mut recents = home.recents();
                    for number in 0..50 {
                        let added = recents.add(&home.addition(&format!("{writer}.{number}")));
                        assert_eq!(added.unwrap(), AdditionOutcome::Remembered);
                    }
                });
            }
            scope.spawn(|| home.recents().compact().unwrap());
        });
        assert_eq!(home.recents().list().unwrap().len(), before + 200);
        assert_eq!(first.list().unwrap().len(), before + 200, "also seen by one that was open");
        let mode = disk::real().stat(&home.journal()).unwrap().mode;
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn what_is_beyond_the_limits_goes_when_the_journal_is_made_short_and_not_before() {
    let home = Home::new();
    home.write("config/unjank/recent.rules", b"keep entries 4\n");
    let mut recents = home.recents();
    for number in 0..10 {
        recents.add(&home.addition(&format!("f{number}"))).unwrap();
    }
    assert_eq!(recents.list().unwrap().len(), 4);
    // It replaces the journal.
    let one = recents.list().unwrap().iter().next().unwrap().uri.clone();
    recents.forget(&[one]).unwrap();
    assert_eq!(home.recents().records().unwrap().len(), 9);
    for number in 0..2000 {
        recents.add(&home.addition(&format!("g{}", number % 2))).unwrap();
    }
    assert_eq!(recents.compact().unwrap(), Compacted::Done);
    assert_eq!(home.recents().records().unwrap().len(), 4);
}

#[test]
fn the_next_writer_removes_what_one_that_was_killed_left_of_the_journal_before() {
    let home = Home::new();
    let mut recents = home.recents();
    for number in 0..3 {
        recents.add(&home.addition(&format!("f{number}"))).unwrap();
    }
    let journal = recents.journal_path();
    let old = journal.with_extension("old");
    // Killed before the new journal was in place: the old one has a second name.
    std::fs::hard_link(&journal, &old).unwrap();
    writer::write(&mut recents).unwrap();
    assert!(!old.exists());
    assert_eq!(recents.list().unwrap().len(), 3);
    // Killed after it was in place: the old one names a document that was forgotten.
    let before = std::fs::read(&journal).unwrap();
    let one = recents.list().unwrap().iter().next().unwrap().uri.clone();
    recents.forget(std::slice::from_ref(&one)).unwrap();
    std::fs::write(&old, before).unwrap();
    writer::write(&mut recents).unwrap();
    assert!(!old.exists());
    let uris: Vec<_> =
        recents.list().unwrap().iter().map(|document| document.uri.clone()).collect();
    assert_eq!(uris.len(), 2);
    assert!(!uris.contains(&one));
}

#[test]
fn what_killed_writers_left_unfinished_goes_with_the_next_round_and_with_what_is_forgotten() {
    for forgets in [false, true] {
        let home = Home::new();
        let mut recents = home.recents();
        recents.add(&home.addition("f")).unwrap();
        let unfinished = |name: &str| format!("state/.{name}.unjank-0123456789abcdef");
        for name in ["journal", "projection", "journal.extent", "young"] {
            home.write(&unfinished(name), b"a document");
        }
        let path = |name: &str| home.dir.path().join(unfinished(name));
        for name in ["journal", "projection", "journal.extent"] {
            let file = std::fs::File::options().write(true).open(path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        match forgets {
            true => {
                drop(recents.forget(&[Uri::of_path(Path::new("/srv/other")).unwrap()]).unwrap())
            }
            false => drop(writer::write(&mut recents).unwrap()),
        }
        for name in ["journal", "projection", "journal.extent"] {
            assert!(!path(name).exists(), "{name}, {forgets}");
        }
        assert!(path("young").exists(), "its writer may live");
    }
}

#[test]
fn a_journal_that_is_long_is_made_short_and_says_the_same() {
    let home = Home::new();
    let mut recents = home.recents();
    for number in 0..2000 {
        recents.add(&home.addition(&format!("f{}", number % 10))).unwrap();
    }
    let before: Vec<_> = recents.list().unwrap().iter().cloned().collect();
    let long = std::fs::metadata(home.journal()).unwrap().len();
    assert_eq!(recents.compact().unwrap(), Compacted::Done);
    assert_eq!(recents.compact().unwrap(), Compacted::NotNeeded);
    let short = std::fs::metadata(home.journal()).unwrap().len();
    assert!(short * 5 < long, "{short} of {long} bytes");
    let after: Vec<_> = home.recents().list().unwrap().iter().cloned().collect();
    assert_eq!(before, after);
    assert_eq!(after[0].applications[0].count, 200);
}

#[test]
fn a_journal_that_is_as_large_as_it_has_to_be_is_not_written_anew_in_each_round() {
    let home = Home::new();
    let mut recents = home.recents();
    let uri = |number: u32| Uri::of_path(Path::new(&format!("/srv/{number}"))).unwrap();
    recents.add(&home.addition("kept")).unwrap();
    recents.forget(&(0..6_000).map(uri).collect::<Vec<_>>()).unwrap();
    let journal = || std::fs::metadata(home.journal()).unwrap();
    assert!(journal().len() > 1 << 16, "what was forgotten has its marks");
    writer::write(&mut recents).unwrap();
    let before = journal();
    for _ in 0..2 {
        assert_eq!(writer::write(&mut recents).unwrap().compacted, Compacted::NotNeeded);
    }
    assert_eq!(before.modified().unwrap(), journal().modified().unwrap());
}

#[test]
fn what_is_forgotten_is_in_no_byte_of_the_journal() {
    let home = Home::new();
    let mut recents = home.recents();
    for name in ["keep", "secret", "other"] {
        recents.add(&home.addition(name)).unwrap();
    }
    let secret = home.addition("secret").uri;
    let holds = |word: &str| {
        let files = std::fs::read_dir(home.dir.path().join("state")).unwrap();
        files.flatten().any(|file| {
            let bytes = std::fs::read(file.path()).unwrap();
            bytes.windows(word.len()).any(|window| window == word.as_bytes())
        })
    };
    assert!(holds("secret"), "the search finds what is there");
    // A damaged journal that was put aside names it too.
    std::fs::copy(home.journal(), home.dir.path().join("state/journal~0")).unwrap();
    let told = recents.forget(std::slice::from_ref(&secret)).unwrap();
    assert_eq!(told.iter().map(|record| record.marks.len()).sum::<usize>(), 1);
    assert!(!holds("secret") && holds("keep"));
    assert_eq!(names(&mut recents), ["keep", "other"]);
    assert!(recents.list().unwrap().forgotten(&secret).is_some());
    recents.forget_everything().unwrap();
    assert!(!holds("keep") && !holds("other"));
    assert!(recents.list().unwrap().is_empty());
    recents.add(&home.addition("secret")).unwrap();
    assert_eq!(names(&mut home.recents()), ["secret"], "who opens it again is remembered again");
}

#[test]
fn a_damaged_journal_is_salvaged_and_kept_aside() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        home.recents().add(&home.addition(name)).unwrap();
    }
    let whole = std::fs::read(home.journal()).unwrap();
    for (what, bytes) in [
        ("its start is gone", [&[0_u8; 64][..], &whole[64..]].concat()),
        ("its end is gone", whole[..whole.len() - 1].to_vec()),
        ("it is nothing", Vec::new()),
        ("it is another file", b"somebody's notes, long enough to be one".repeat(4)),
    ] {
        std::fs::write(home.journal(), &bytes).unwrap();
        let mut recents = home.recents();
        let expected: &[&str] = match what {
            "its start is gone" => &["a", "b", "c", "d"],
            "its end is gone" => &["a", "b", "d"],
            _ => &["d"],
        };
        recents.add(&home.addition("d")).unwrap();
        assert_eq!(names(&mut recents), expected, "{what}");
        assert_eq!(names(&mut home.recents()), expected, "{what}");
        let is_aside =
            std::fs::read_dir(home.dir.path().join("state")).unwrap().flatten().any(|file| {
                file.file_name().to_string_lossy().starts_with("journal~")
                    && std::fs::read(file.path()).unwrap() == bytes
            });
        assert!(is_aside || what == "its end is gone", "{what}");
        recents.forget_everything().unwrap();
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_that_was_there() {
    let disk = SimDisk::new().with_dir("/h");
    let clock = SetClock::new();
    let recents = |disk: &SimDisk| {
        Recents::new(
            places(Path::new("/h")),
            RememberingProgram::Ordinary,
            Arc::new(disk.clone()),
            clock.clone(),
        )
    };
    let uri = |name: &str| Uri::of_path(&Path::new("/h/home").join(name)).unwrap();
    let mut first = recents(&disk);
    first.add(&addition(&uri("a"), RecentTime(1))).unwrap();
    let calls = {
        let fork = disk.fork();
        let before = fork.calls();
        recents(&fork).add(&addition(&uri("b"), RecentTime(2))).unwrap();
        fork.calls() - before
    };
    for call in 0..calls {
        for effect in [FaultEffect::Nothing, FaultEffect::Partial] {
            let full = disk.fork();
            full.fail_call(full.calls() + call, 28, effect);
            let added = recents(&full).add(&addition(&uri("b"), RecentTime(2)));
            full.heal();
            let found = names(&mut recents(&full));
            assert_eq!(found[0], "a", "call {call}");
            let is_remembered = added.is_ok_and(|added| added == AdditionOutcome::Remembered);
            assert!(found.len() == 2 || !is_remembered, "call {call}");
            recents(&full).add(&addition(&uri("c"), RecentTime(3))).unwrap();
            assert!(names(&mut recents(&full)).contains(&"c".to_owned()), "call {call}");
        }
    }
}

#[test]
fn a_volatile_list_is_in_memory_and_starts_from_its_copy_on_the_disk() {
    let home = Home::new();
    home.recents().add(&home.addition("before")).unwrap();
    let bytes = std::fs::read(home.journal()).unwrap();
    home.write("config/unjank/recent.rules", b"volatile\n");
    let mut recents = home.recents();
    recents.add(&home.addition("a")).unwrap();
    assert_eq!(names(&mut recents), ["before", "a"]);
    assert_eq!(std::fs::read(home.journal()).unwrap(), bytes, "the disk is left alone");
    recents.snapshot().unwrap();
    recents.add(&home.addition("b")).unwrap();
    // The session ends, and with it what was not copied.
    std::fs::remove_dir_all(home.dir.path().join("run")).unwrap();
    assert_eq!(names(&mut home.recents()), ["before", "a"]);
    home.recents().add(&home.addition("c")).unwrap();
    assert_eq!(names(&mut home.recents()), ["before", "a", "c"]);
}

#[test]
fn what_was_added_after_the_rule_volatile_was_gone_is_not_forgotten_with_what_was_in_memory() {
    let home = Home::new();
    let remember = |name: &str| {
        let added = home.recents().add(&home.addition(name)).unwrap();
        assert_eq!(added, AdditionOutcome::Remembered);
        home.clock.forward(Duration::from_secs(60));
    };
    for is_everything in [true, false] {
        home.write("config/unjank/recent.rules", b"volatile\n");
        unjank_recents::volatile::settle(&mut home.recents()).unwrap();
        ["a", "b"].into_iter().for_each(remember);
        home.recents().snapshot().unwrap();
        match is_everything {
            true => home.recents().forget_everything().unwrap(),
            false => {
                let uris = ["a", "b"].map(|name| home.addition(name).uri);
                home.recents().forget(&uris).unwrap();
            }
        }
        home.clock.forward(Duration::from_secs(60));
        // An editor, and no command of ours, that would make a copy.
        home.write("config/unjank/recent.rules", b"");
        remember("b");
        unjank_recents::volatile::settle(&mut home.recents()).unwrap();
        assert_eq!(names(&mut home.recents()), ["b"], "everything: {is_everything}");
    }
}

#[test]
fn a_journal_in_memory_that_was_made_and_not_filled_is_filled_by_the_next() {
    let home = Home::new();
    home.recents().add(&home.addition("before")).unwrap();
    home.write("config/unjank/recent.rules", b"volatile\n");
    // Its maker was killed at this point.
    let journal = home.recents().journal_path();
    store::journal::shared::Appender::open(&*disk::real(), &journal).unwrap();
    assert_eq!(names(&mut home.recents()), ["before"]);
    home.recents().add(&home.addition("a")).unwrap();
    home.recents().snapshot().unwrap();
    assert_eq!(names(&mut home.recents()), ["before", "a"]);
    // Once: nothing is counted twice.
    let counts = |entry: &RecentEntry| entry.applications.iter().map(|one| one.count).sum::<u32>();
    let mut recents = home.recents();
    assert!(recents.list().unwrap().iter().all(|entry| counts(entry) == 1));
}

const GLIB: &str = r#"
#include <glib.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        size_t len = 0;
        unsigned byte;
        char path[128];
        for (char *at = line; sscanf(at, "%2x", &byte) == 1; at += 2) path[len++] = (char)byte;
        path[len] = 0;
        puts(g_filename_to_uri(path, NULL, NULL));
    }
    return 0;
}
"#;
const QT: &str = r#"
#include <QByteArray>
#include <QUrl>
#include <cstdio>
#include <iostream>
#include <string>
int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        QByteArray text = QByteArray::fromHex(QByteArray::fromStdString(line));
        QUrl url = text.startsWith('/') ? QUrl::fromLocalFile(QString::fromUtf8(text)) : QUrl(QString::fromUtf8(text));
        std::puts(url.toEncoded().constData());
    }
    return 0;
}
"#;

/// Asks a library how it writes documents; `None` if it is not there to be built against.
fn ask(
    compiler: &str,
    ending: &str,
    source: &str,
    library: &str,
    names: &[Vec<u8>],
) -> Option<Vec<String>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", library]).output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        assert!(
            std::env::var_os("REQUIRE_ALL").is_none(),
            "REQUIRE_ALL is set, and there is no {library}"
        );
        eprintln!("SKIPPED: no {library}");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join(format!("ask.{ending}")), dir.path().join("ask"));
    std::fs::write(&file, source).unwrap();
    let flags = String::from_utf8(flags.stdout).unwrap();
    let built = Command::new(compiler)
        .arg("-fPIC")
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace())
        .status();
    assert!(built.unwrap().success());
    let mut child =
        Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines: String = names
        .iter()
        .map(|name| name.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
        .collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn documents_are_written_as_glib_and_qt_write_them() {
    use std::os::unix::ffi::OsStrExt;
    let ours = |name: &[u8]| Uri::of_path(Path::new(std::ffi::OsStr::from_bytes(name))).unwrap();
    // Every byte that a name can have, and some names.
    let mut names: Vec<Vec<u8>> =
        (1..=255).filter(|b| *b != b'/').map(|b| vec![b'/', b'x', b]).collect();
    names.extend(
        ["/a b/c%41.txt", "/ä/ö ü", "/#?;[]{}|", "/a+b&c=d"].map(|name| name.as_bytes().to_vec()),
    );
    if let Some(theirs) = ask("cc", "c", GLIB, "glib-2.0", &names) {
        let ours: Vec<_> = names.iter().map(|name| ours(name).to_string()).collect();
        assert_eq!(ours, theirs);
    }
    // Qt's names are Unicode.
    names.retain(|name| std::str::from_utf8(name).is_ok());
    if let Some(theirs) = ask("c++", "cpp", QT, "Qt5Core", &names) {
        for (name, theirs) in names.iter().zip(theirs) {
            let ours = ours(name);
            let other = ours.other_spelling().map(|other| other.to_string());
            assert!(
                ours.as_str() == theirs || other == Some(theirs.clone()),
                "{ours} and {theirs}"
            );
        }
    }
    let uris = [
        "sftp://Host/a b%2f%7e?q#f",
        "http://x/ä%c3%A4",
        "smb://Me@HOST/share/[1]",
        "trash:///x y",
        "mailto:a@b",
    ]
    .map(|uri| uri.as_bytes().to_vec());
    if let Some(theirs) = ask("c++", "cpp", QT, "Qt5Core", &uris) {
        let ours: Vec<_> = uris.iter().map(|uri| Uri::parse(uri).unwrap().to_string()).collect();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn hostile_records_journals_and_uris_are_read_without_harm() {
    assert!(replay("recents_record", 300, &[0, 1, 0xff], fuzzed::record).unwrap() >= 600);
    assert!(replay("recents_journal", 300, &[0, 1, 0xff], fuzzed::journal).unwrap() >= 600);
    assert!(replay("recents_uri", 300, &[0, 1, 0xff], fuzzed::uri).unwrap() >= 600);
}

#[test]
fn the_replay_catches_a_body_that_fails() {
    let wrong = |data: &[u8]| assert!(!data.starts_with(b"smb"), "planted");
    assert!(replay("recents_uri", 300, &[0, 1, 0xff], wrong).is_err());
}
