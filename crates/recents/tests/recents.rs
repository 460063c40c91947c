//! The list of recent documents on real and simulated disks: many writers, damage, full disks, rules and switches.
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
use unjank_recents::policy::{DenialReason, Private, RetentionVerdict};
use unjank_recents::{
    Addition, AdditionOutcome, Compacted, Privacy, RecentEntry, RecentTime, Recents, RecentsFiles,
    RememberingProgram, Uri, writer,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A clock that a test sets.
#[derive(Debug)]
pub(crate) struct SetClock(Mutex<SystemTime>);

impl SetClock {
    fn new() -> Arc<SetClock> {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Arc::new(SetClock(Mutex::new(time)))
    }

    pub(crate) fn forward(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }

    pub(crate) fn back(&self, by: Duration) {
        *self.0.lock().unwrap() -= by;
    }
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        let mut now = self.0.lock().unwrap();
        // Time goes on from one question to the next.
        *now += Duration::from_micros(1);
        *now
    }

    fn monotonic(&self) -> Duration {
        self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
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

fn addition(uri: &Uri, at: RecentTime) -> Addition {
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

fn reason(added: &AdditionOutcome) -> String {
    match added {
        AdditionOutcome::Remembered => "remembered".to_owned(),
        AdditionOutcome::Left(reason) => reason.to_string(),
    }
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
fn private_mode_writes_nothing_and_ends_by_itself() {
    let home = Home::new();
    let mut recents = home.recents();
    recents.add(&home.addition("a")).unwrap();
    let until = RecentTime::of(home.clock.now()).after(Duration::from_secs(3600));
    Private::Until(until).turn_on(&*disk::real(), &home.places(), recents.now()).unwrap();
    let before = snapshot(home.dir.path());
    let added = recents.add(&home.addition("b")).unwrap();
    assert_eq!(added, AdditionOutcome::Left(DenialReason::Private(Private::Until(until))));
    assert!(matches!(home.recents().add(&home.addition("c")).unwrap(), AdditionOutcome::Left(_)));
    assert_eq!(snapshot(home.dir.path()), before, "not one byte");
    home.clock.forward(Duration::from_secs(3601));
    assert_eq!(recents.add(&home.addition("d")).unwrap(), AdditionOutcome::Remembered);
    Private::WithoutEnd.turn_on(&*disk::real(), &home.places(), recents.now()).unwrap();
    home.clock.forward(DAY * 1000);
    assert!(matches!(recents.add(&home.addition("e")).unwrap(), AdditionOutcome::Left(_)));
    assert!(Private::turn_off(&*disk::real(), &home.places(), recents.now()).unwrap());
    assert!(!Private::turn_off(&*disk::real(), &home.places(), recents.now()).unwrap());
    home.write("state/private", b"\xff nonsense");
    assert!(
        matches!(recents.add(&home.addition("f")).unwrap(), AdditionOutcome::Left(_)),
        "rather too little"
    );
    assert_eq!(names(&mut recents), ["a", "d"]);
}

/// Every file with what is in it and when it was changed.
fn snapshot(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(dir).unwrap().flatten() {
        match file.file_type().unwrap().is_dir() {
            true => found.extend(snapshot(&file.path())),
            false => found.push((
                file.path(),
                std::fs::read(file.path()).unwrap(),
                file.metadata().unwrap().modified().unwrap(),
            )),
        }
    }
    found.sort();
    found
}

#[test]
fn a_program_that_is_private_is_not_remembered() {
    let home = Home::new();
    let mut recents =
        Recents::new(home.places(), RememberingProgram::Private, disk::real(), home.clock.clone());
    let added = recents.add(&home.addition("a")).unwrap();
    assert_eq!(added, AdditionOutcome::Left(DenialReason::PrivateProgram));
    assert!(snapshot(home.dir.path()).is_empty());
}

#[test]
fn the_switches_of_every_desktop_are_honoured_as_they_change() {
    let home = Home::new();
    let mut recents = home.recents();
    let mut expect = |what: &str, expected: &str| {
        let added = recents.add(&home.addition("a")).unwrap();
        assert!(reason(&added).contains(expected), "{what}: {added:?}");
    };
    expect("nothing is set", "remembered");
    for (file, off, on) in [
        (
            "config/kdeglobals",
            "[RecentDocuments]\nUseRecent=false\n",
            "[RecentDocuments]\nUseRecent=true\n",
        ),
        (
            "config/kdeglobals",
            "[RecentDocuments]\nMaxEntries=0\n",
            "[RecentDocuments]\nMaxEntries=5\n",
        ),
        ("etc/kdeglobals", "[RecentDocuments]\nUseRecent=false\n", ""),
        ("config/katerc", "[RecentDocuments]\nUseRecent=false\n", ""),
        (
            "config/gtk-3.0/settings.ini",
            "[Settings]\ngtk-recent-files-enabled=0\n",
            "[Settings]\ngtk-recent-files-enabled=1\n",
        ),
        (
            "config/gtk-4.0/settings.ini",
            "[Settings]\ngtk-recent-files-max-age=0\n",
            "[Settings]\ngtk-recent-files-max-age=-1\n",
        ),
        ("config/unjank/recent.rules", "# no\noff\n", "# no\n"),
    ] {
        home.write(file, off.as_bytes());
        let line = off.lines().last().unwrap();
        expect(file, line);
        home.write(file, on.as_bytes());
        expect(file, "remembered");
    }
    // A lock of the administrator is stronger than the user.
    home.write("etc/kdeglobals", b"[RecentDocuments][$i]\nUseRecent=false\n");
    home.write("config/kdeglobals", b"[RecentDocuments]\nUseRecent=true\n");
    expect("locked", "etc/kdeglobals");
    std::fs::remove_file(home.dir.path().join("etc/kdeglobals")).unwrap();
    // What a program's own file says is stronger than what holds for all.
    home.write("config/kdeglobals", b"[RecentDocuments]\nUseRecent=false\n");
    home.write("config/katerc", b"[RecentDocuments]\nUseRecent=true\n");
    expect("own file", "remembered");
}

#[test]
fn gnomes_switch_is_read_from_dconfs_own_file() {
    use gvdb::gvariant::Variant;
    let home = Home::new();
    let mut recents = home.recents();
    for (value, expected) in [("false", "remember-recent-files=false"), ("true", "remembered")] {
        let value = Variant::parse(None, value).unwrap();
        let image = gvdb(&[("/org/gnome/desktop/privacy/remember-recent-files", value)]);
        home.write("config/dconf/user", &image);
        let added = recents.add(&home.addition("a")).unwrap();
        assert!(reason(&added).contains(expected), "{added:?}");
    }
    let days = Variant::parse(None, "7").unwrap();
    let image = gvdb(&[("/org/gnome/desktop/privacy/recent-files-max-age", days)]);
    home.write("config/dconf/user", &image);
    assert_eq!(recents.limits().age, Some(DAY * 7));
    home.write("config/dconf/user", b"no database");
    assert_eq!(recents.limits().age, None);
}

fn gvdb(values: &[(&str, gvdb::gvariant::Variant)]) -> Vec<u8> {
    use gvdb::{Image, write};
    let entries = values.iter().map(|(path, value)| (*path, value.as_bytes()));
    write(entries, &Image::default()).unwrap()
}

#[test]
fn rules_decide_by_path_mount_type_application_and_hidden_folder() {
    let home = Home::new();
    let mut recents = home.recents();
    home.write(
        "config/unjank/recent.rules",
        b"deny path ~/Secret\nallow path ~/Secret/open\ndeny type video/*\ndeny application vlc\nallow path ~/.seen\n",
    );
    let mut expect = |addition: &Addition, expected: &str| {
        let added = recents.add(addition).unwrap();
        assert!(reason(&added).contains(expected), "{addition:?}: {added:?}");
    };
    expect(&home.addition("Secret/x"), "line 1 of the rules");
    expect(&home.addition("Secret/open/x"), "remembered");
    expect(&home.addition("Secrets"), "remembered");
    let video = Addition { mime: Some("video/mp4".into()), ..home.addition("v") };
    expect(&video, "deny type video/*");
    let player = Addition { application: "org.videolan.VLC".into(), ..home.addition("v") };
    expect(&player, "deny application vlc");
    expect(&home.addition(".hidden/x"), "it is hidden, which KDE leaves out");
    expect(&home.addition(".seen/x"), "remembered");
    let temporary = Uri::of_path(&home.dir.path().join("tmp/x")).unwrap();
    expect(&addition(&temporary, RecentTime(1)), "temporary");
    home.write("config/kdeglobals", b"[RecentDocuments]\nIgnoreHidden=false\n");
    expect(&home.addition(".hidden/x"), "remembered");
    let point = sys_mount_above(home.dir.path());
    home.write(
        "config/unjank/recent.rules",
        format!("deny mount {}\n", if point == "/" { "/**" } else { &*point }).as_bytes(),
    );
    expect(&home.addition("x"), "deny mount");
    expect(&addition(&Uri::parse(b"sftp://host/x").unwrap(), RecentTime(1)), "remembered");
    // What another program wrote is judged by the user's own rules alone.
    home.write("config/unjank/recent.rules", b"deny path ~/Secret\n");
    home.write("config/kdeglobals", b"[RecentDocuments]\nUseRecent=false\n");
    let foreign = |recents: &mut Recents, addition: &Addition| {
        let subject = unjank_recents::policy::PolicySubject {
            uri: &addition.uri,
            mime: None,
            application: "x",
        };
        recents.policy().decide_foreign(&*disk::real(), subject, RecentTime(1), RecentTime(1))
    };
    assert_eq!(foreign(&mut recents, &home.addition(".hidden")), RetentionVerdict::Remember);
    assert!(matches!(
        foreign(&mut recents, &home.addition("Secret/y")),
        RetentionVerdict::Leave(_)
    ));
}

fn sys_mount_above(path: &Path) -> String {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = text.lines().map(|line| line.split(' ').nth(4).unwrap().to_owned());
    points.filter(|point| path.starts_with(point)).max_by_key(String::len).unwrap()
}

#[test]
fn the_list_keeps_the_latest_within_count_and_age() {
    let home = Home::new();
    let mut recents = home.recents();
    for number in 0..10 {
        recents.add(&home.addition(&format!("f{number}"))).unwrap();
        home.clock.forward(DAY);
    }
    home.write("config/unjank/recent.rules", b"keep entries 4\n");
    assert_eq!(names(&mut recents), ["f6", "f7", "f8", "f9"]);
    home.write("config/unjank/recent.rules", b"keep days 3\n");
    assert_eq!(names(&mut recents), ["f8", "f9"]);
    home.write("config/unjank/recent.rules", b"keep entries 0\n");
    assert!(names(&mut home.recents()).is_empty());
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
fn rules_that_cannot_be_read_are_not_taken_for_none() {
    let home = Home::new();
    let rules = home.dir.path().join("config/unjank/recent.rules");
    let deny = format!("deny path {}/home/secret/**\n", home.dir.path().display());
    home.write("config/unjank/recent.rules", deny.as_bytes());
    let mut recents = home.recents();
    let mut is_denied = |name: &str| {
        let added = recents.add(&home.addition(name)).unwrap();
        matches!(added, AdditionOutcome::Left(DenialReason::Rule { .. }))
    };
    assert!(is_denied("secret/a") && !is_denied("a"));
    let new = || reason(&home.recents().add(&home.addition("b")).unwrap());
    for is_directory in [true, false] {
        std::fs::remove_file(&rules).unwrap();
        match is_directory {
            true => std::fs::create_dir(&rules).unwrap(),
            // Too large to be rules.
            false => home.write("config/unjank/recent.rules", &[b'\n'; (1 << 20) + 1]),
        }
        assert!(is_denied("secret/b") && !is_denied("b"), "the rules of before hold");
        assert_eq!(new(), format!("the rules in {} cannot be read", rules.display()));
        if is_directory {
            std::fs::remove_dir(&rules).unwrap();
            home.write("config/unjank/recent.rules", deny.as_bytes());
        }
    }
    std::fs::remove_file(&rules).unwrap();
    assert!(!is_denied("secret/c"));
    assert_eq!(new(), "remembered");
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
