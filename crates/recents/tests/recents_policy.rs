//! What is remembered: private mode, the switches of desktops, the user's rules, and how much is kept.
#![expect(
    clippy::unwrap_used,
    reason = "the tests stand for programs of desktops, and what fails here has failed"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::disk;
use sys::clock::Clock;
use unjank_recents::policy::{DenialReason, Private, RetentionVerdict};
use unjank_recents::{Addition, AdditionOutcome, RecentTime, Recents, RememberingProgram, Uri};

use crate::recents_list::{DAY, Home, addition, names};

fn reason(added: &AdditionOutcome) -> String {
    match added {
        AdditionOutcome::Remembered => "remembered".to_owned(),
        AdditionOutcome::Left(reason) => reason.to_string(),
    }
}

#[test]
fn private_mode_writes_nothing_and_ends_by_itself() {
    let home = Home::new();
    let mut recents = home.recents();
    recents.add(&home.addition("a")).unwrap();
    let until = RecentTime::of(home.clock.now()).after(Duration::from_secs(3600));
    Private::Until(until).turn_on(&*disk::real(), &home.places(), recents.clock()).unwrap();
    let before = snapshot(home.dir.path());
    let added = recents.add(&home.addition("b")).unwrap();
    assert_eq!(added, AdditionOutcome::Left(DenialReason::Private(Private::Until(until))));
    assert!(matches!(home.recents().add(&home.addition("c")).unwrap(), AdditionOutcome::Left(_)));
    assert_eq!(snapshot(home.dir.path()), before, "not one byte");
    home.clock.forward(Duration::from_secs(3601));
    assert_eq!(recents.add(&home.addition("d")).unwrap(), AdditionOutcome::Remembered);
    Private::WithoutEnd.turn_on(&*disk::real(), &home.places(), recents.clock()).unwrap();
    home.clock.forward(DAY * 1000);
    assert!(matches!(recents.add(&home.addition("e")).unwrap(), AdditionOutcome::Left(_)));
    assert!(Private::turn_off(&*disk::real(), &home.places(), recents.clock()).unwrap());
    assert!(!Private::turn_off(&*disk::real(), &home.places(), recents.clock()).unwrap());
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
        recents.policy().decide_by_rules(&*disk::real(), subject)
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
