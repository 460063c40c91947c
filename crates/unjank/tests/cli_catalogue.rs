//! What `unjank plugins` and `unjank apps` say is true: after files were edited in place, an index was damaged, and files that override others came.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::catalogue_home;

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::{Path, PathBuf};

use catalogue_home::{Home, UNJANK};

/// Overwrites a file as an editor or `cp` does: the same file, and here the same size and time.
fn overwrite(path: &Path, change: impl Fn(Vec<u8>) -> Vec<u8>) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let bytes = change(fs::read(path).unwrap());
    let mut file = File::options().write(true).truncate(true).open(path).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// Returns bytes in which a text is replaced by another one.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

/// The index of this home.
fn index_of(home: &Home) -> PathBuf {
    home.said(0, &["plugins", "index"]);
    let found = fs::read_dir(home.path("cache/unjank")).unwrap().flatten();
    let mut found = found.map(|entry| entry.path());
    found.find(|path| path.extension().is_some_and(|ending| ending == "gvdb")).unwrap()
}

#[test]
fn files_that_were_edited_in_place_are_read_again_by_every_question() {
    let plugin = |text: &str| {
        let text = text.to_owned();
        move |home: &Home| {
            overwrite(&home.path("plugins/kf5/one.so"), |bytes| replaced(&bytes, "One", &text));
        }
    };
    let app = |home: &Home| {
        overwrite(&home.path("data/applications/writer.desktop"), |bytes| {
            replaced(&replaced(&bytes, "Name=writer", "Name=WRITER"), "sh -c writer", "env X=1 wri")
        });
    };
    type Change<'a> = &'a dyn Fn(&Home);
    let questions: [(&[&str], Change<'_>, &str); 9] = [
        (&["plugins", "find", "--id", "one"], &plugin("Two"), "Two"),
        (&["plugins", "list", "--where", "Id == 'one'"], &plugin("Two"), "Two"),
        (&["plugins", "find", "--namespace", "kf5", "--json"], &plugin("Two"), "Two"),
        (&["apps", "list"], &app, "WRITER"),
        (&["apps", "list", "--all"], &app, "WRITER"),
        (&["apps", "find", "letter"], &app, "WRITER"),
        (&["apps", "show", "writer"], &app, "env X=1 wri"),
        (&["apps", "for", "text/plain"], &app, "env X=1 wri"),
        (&["apps", "find", "--where", "Name == 'WRITER'", "writer"], &app, "WRITER"),
    ];
    for (words, change, expected) in questions {
        let home = Home::new();
        index_of(&home);
        assert!(!home.unjank(words).stdout.is_empty() || words.contains(&"--where"), "{words:?}");
        change(&home);
        let said = home.said(0, words);
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn what_a_file_became_when_it_was_edited_in_place_is_found_and_what_it_was_is_not() {
    let home = Home::new();
    index_of(&home);
    overwrite(&home.path("plugins/kf5/one.so"), |bytes| replaced(&bytes, "one", "two"));
    assert!(home.said(0, &["plugins", "find", "--id", "two"]).contains("one.so"));
    home.said(1, &["plugins", "find", "--id", "one"]);
    overwrite(&home.path("plugins/kf5/one.so"), |bytes| replaced(&bytes, "two", "six"));
    home.said(1, &["plugins", "find", "--id", "two"]);
    assert!(home.said(0, &["plugins", "show", "six"]).contains("one.so"));
    // An application that is deleted, and one whose program went.
    let writer = home.path("data/applications/writer.desktop");
    overwrite(&writer, |bytes| replaced(&bytes, "Keywords=Letter;", "Hidden=true\n#..."));
    home.said(1, &["apps", "default", "text/plain"]);
    home.said(2, &["apps", "set-default", "writer", "image/png"]);
    overwrite(&writer, |bytes| replaced(&bytes, "Hidden=true", "Hidden=0.  "));
    assert_eq!(home.said(0, &["apps", "default", "text/plain"]), "writer.desktop\n");
    overwrite(&writer, |bytes| replaced(&bytes, "Exec=sh", "Exec=no"));
    home.said(1, &["apps", "default", "text/plain"]);
}

#[test]
fn a_file_that_becomes_part_of_an_answer_in_its_place_is_found() {
    // Half of a plugin that is being copied, and a desktop file that is being written.
    let home = Home::new();
    let plugin = fs::read(home.path("plugins/kf5/one.so")).unwrap();
    let late = home.path("plugins/kf5/late.so");
    fs::write(&late, &plugin[..plugin.len() / 2]).unwrap();
    home.app("reader", "MimeType=text/plain;\n");
    let reader = home.path("data/applications/reader.desktop");
    let whole = fs::read(&reader).unwrap();
    fs::write(&reader, "half").unwrap();
    let list = "[Default Applications]\ntext/plain=reader.desktop\n[Added Associations]\nimage/png=reader.desktop\n";
    fs::write(home.path("config/mimeapps.list"), list).unwrap();
    sys::file_clock::wait_until_later();
    home.said(0, &["plugins", "index"]);
    let questions: [(&[&str], &str); 5] = [
        (&["plugins", "find", "--namespace", "kf5"], "late.so"),
        (&["plugins", "find", "--id", "one"], "late.so"),
        (&["apps", "default", "text/plain"], "reader"),
        (&["apps", "for", "image/png"], "reader"),
        (&["apps", "explain", "text/plain"], "reader.desktop opens"),
    ];
    for (words, expected) in questions {
        overwrite(&late, |_| plugin[..plugin.len() / 2].to_vec());
        overwrite(&reader, |_| b"half".to_vec());
        home.said(0, &["plugins", "index", "--full"]);
        home.said(0, &["plugins", "index", "--check"]);
        assert!(!home.said(0, words).contains(expected), "{words:?}");
        overwrite(&late, |_| plugin.clone());
        overwrite(&reader, |_| whole.clone());
        let said = home.said(0, words);
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    // A plugin that came to have what others have: found with them, whatever it is found by.
    let questions: [(&[&str], &str, &str); 3] = [
        (&["plugins", "find", "--id", "one"], "one", "two"),
        (&["plugins", "find", "--interface", "org.example.I"], "org.example.I", "org.example.J"),
        (&["plugins", "show", "one"], "one", "two"),
    ];
    let first = home.path("plugins/first.so");
    for (words, wanted, other) in questions {
        fs::write(&first, replaced(&plugin, wanted, other)).unwrap();
        home.said(0, &["plugins", "index"]);
        assert!(!home.said(0, words).contains("first.so"), "{words:?}");
        overwrite(&first, |_| plugin.clone());
        let said = home.said(0, words);
        assert!(said.contains("first.so"), "{words:?}: {said}");
    }
}

#[test]
fn check_reads_every_sum_and_every_file() {
    let home = Home::new();
    let index = index_of(&home);
    let check = |code, expected: &str| {
        let said = home.said(code, &["plugins", "index", "--check"]);
        assert!(said.contains(expected), "{said}");
        let json = home.said(code, &["plugins", "index", "--check", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let state = json["state"].as_str().unwrap().to_owned();
        assert_eq!(json["schema"], "unjank.plugins.check/1");
        state
    };
    assert_eq!(check(0, ": current"), "current");
    let whole = fs::read(&index).unwrap();
    let at = whole.windows(3).position(|window| window == b"One").unwrap();
    let mut bytes = whole.clone();
    bytes[at] ^= 1;
    fs::write(&index, bytes).unwrap();
    assert_eq!(check(1, ": a damaged index"), "damaged");
    fs::write(&index, &whole[..100]).unwrap();
    assert_eq!(check(1, ": a damaged index"), "damaged");
    fs::write(&index, &whole).unwrap();
    assert_eq!(check(0, ": current"), "current");
    overwrite(&home.path("plugins/kf5/one.so"), |bytes| replaced(&bytes, "One", "Two"));
    assert_eq!(check(1, "out of date, because"), "out of date");
    fs::remove_file(&index).unwrap();
    assert_eq!(check(1, "cannot read the index"), "missing");
}

#[test]
fn damage_is_told_once_and_the_answer_is_right() {
    let home = Home::new();
    let index = index_of(&home);
    let mut bytes = fs::read(&index).unwrap();
    let at = bytes.windows(3).position(|window| window == b"One").unwrap();
    bytes[at] ^= 1;
    fs::write(&index, &bytes).unwrap();
    let output = home.unjank(&["plugins", "find", "--id", "one"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("One"), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("was damaged; a new one was made"), "{told}");
    assert!(home.unjank(&["plugins", "find", "--id", "one"]).stderr.is_empty());
    fs::write(&index, &bytes).unwrap();
    let said = home.said(0, &["plugins", "index", "--full"]);
    assert!(said.contains("the old index was damaged"), "{said}");
    fs::write(&index, "something else").unwrap();
    let output = home.command(env!("CARGO_BIN_EXE_unjank-index")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("was damaged"), "{told}");
}

#[test]
fn a_menu_shows_what_is_meant_for_its_desktop_and_not_deleted() {
    let home = Home::new();
    let share = home.path("share/applications");
    fs::create_dir_all(&share).unwrap();
    let system = |name: &&str| {
        let text = format!("[Desktop Entry]\nType=Application\nName={name}\nExec=sh\n");
        fs::write(share.join(format!("{name}.desktop")), text).unwrap();
    };
    home.app("for-kde", "OnlyShowIn=KDE;\n");
    home.app("not-kde", "NotShowIn=GNOME;KDE;\n");
    home.app("for-none", "OnlyShowIn=\n");
    home.app("both", "OnlyShowIn=XFCE;KDE;\nNotShowIn=KDE;\n");
    ["deleted", "deleted-briefly", "no-program", "unshown", "kept"].iter().for_each(system);
    home.app("deleted", "Hidden=true\n");
    home.app("unshown", "NoDisplay=true\n");
    let briefly = home.path("data/applications/deleted-briefly.desktop");
    fs::write(briefly, "[Desktop Entry]\nHidden=true\n").unwrap();
    home.app("no-program", "TryExec=no-such-program-anywhere\n");
    let listed = |desktop: &str| {
        let mut command = home.command(UNJANK);
        command.env("XDG_CURRENT_DESKTOP", desktop).args(["apps", "list", "--json"]);
        let output = command.output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = json["applications"].as_array().unwrap().iter();
        let mut ids: Vec<String> =
            all.map(|app| app["id"].as_str().unwrap().replace(".desktop", "")).collect();
        ids.sort();
        ids.retain(|id| id != "writer");
        ids
    };
    assert_eq!(listed("KDE"), ["both", "for-kde", "kept"]);
    assert_eq!(listed("GNOME"), ["kept"]);
    assert_eq!(listed("XFCE"), ["both", "kept", "not-kde"]);
    assert_eq!(listed("kde"), ["kept", "not-kde"], "desktops are named exactly");
    assert_eq!(listed("ubuntu:GNOME"), ["kept"]);
    assert_eq!(listed("Plasma:KDE"), ["both", "for-kde", "kept"]);
    assert_eq!(listed(""), ["kept", "not-kde"]);
    // What a user deleted is nobody's default, even where another list says so.
    fs::write(
        home.path("config/mimeapps.list"),
        "[Default Applications]\ntext/x-d=deleted-briefly.desktop;kept.desktop\n",
    )
    .unwrap();
    assert_eq!(home.said(0, &["apps", "default", "text/x-d"]), "kept.desktop\n");
}

#[test]
fn of_keys_and_groups_that_come_twice_the_last_counts_as_for_glib() {
    let home = Home::new();
    let list = home.path("config/mimeapps.list");
    fs::write(&list, "[Default Applications]\ntext/plain=painter.desktop\ntext/plain=writer.desktop\nimage/png=writer.desktop\n\n[Added Associations]\nimage/png=writer.desktop\n\n[Default Applications]\nimage/png=painter.desktop\n").unwrap();
    assert_eq!(home.said(0, &["apps", "default", "text/plain"]), "writer.desktop\n");
    assert_eq!(home.said(0, &["apps", "default", "image/png"]), "painter.desktop\n");
    let explained = home.said(0, &["apps", "explain", "image/png", "--json"]);
    let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
    let decides =
        explained["steps"].as_array().unwrap().iter().find(|step| step["verdict"] == "decides");
    assert_eq!(decides.unwrap()["line"], 10);
    home.said(0, &["apps", "set-default", "painter", "text/plain"]);
    assert_eq!(home.said(0, &["apps", "default", "text/plain"]), "painter.desktop\n");
}

#[test]
fn set_default_says_when_another_file_makes_it_void() {
    let home = Home::new();
    let over = home.path("config/kde-mimeapps.list");
    fs::write(&over, "[Default Applications]\nimage/png=painter.desktop\n").unwrap();
    let run = |desktop: &str| {
        let mut command = home.command(UNJANK);
        command.env("XDG_CURRENT_DESKTOP", desktop);
        let words = ["apps", "set-default", "writer", "image/png", "text/plain"];
        let output = command.args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = run("KDE");
    assert_eq!(code, Some(1), "{told}");
    let reason = format!("has no effect on image/png: line 2 of {} counts more", over.display());
    assert!(told.contains(&reason) && told.contains("hint: "), "{told}");
    assert!(!told.contains("text/plain"), "{told}");
    assert_eq!(run("GNOME"), (Some(0), String::new()));
    // An older name of the same type, later in the same file.
    fs::create_dir_all(home.path("data/mime")).unwrap();
    fs::write(home.path("data/mime/aliases"), "image/x-png image/png\n").unwrap();
    let text = "[Default Applications]\nimage/x-png=painter.desktop\n";
    fs::write(home.path("config/mimeapps.list"), text).unwrap();
    let (code, told) = run("GNOME");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("line 2 of"), "{told}");
}

#[test]
fn names_that_would_change_the_terminal_are_shown_as_escapes() {
    let home = Home::new();
    home.app("evil", "Name=\u{1b}]0;owned\u{7}\nMimeType=text/x-e;\nComment=a\u{202e}b\n");
    let hostile = home.path("data/applications/\u{1b}[31m.desktop");
    fs::write(&hostile, "[Desktop Entry]\nType=Application\nName=x\nExec=sh\n").unwrap();
    fs::write(home.path("plugins/kf5/\u{1b}[32mbad.so"), "no plugin").unwrap();
    fs::copy(home.path("plugins/kf5/one.so"), home.path("plugins/kf5/\u{1b}[33m.so")).unwrap();
    let list = "[Default Applications]\ntext/x-e=\u{1b}[31m.desktop;evil.desktop;\n";
    fs::write(home.path("config/mimeapps.list"), list).unwrap();
    for words in [
        &["apps", "list", "--all"][..],
        &["apps", "show", "evil"],
        &["apps", "show", "\u{1b}[31m"],
        &["apps", "show", "\u{1b}[41m"],
        &["apps", "find", "evil"],
        &["apps", "for", "text/x-e"],
        &["apps", "default", "text/x-e"],
        &["apps", "default", "text/x-e", "\u{1b}/x"],
        &["apps", "explain", "text/x-e"],
        &["apps", "explain", "\u{1b}/x"],
        &["apps", "set-default", "\u{1b}", "a/b"],
        &["apps", "set-default", "evil", "\u{1b}"],
        &["plugins", "list"],
        &["plugins", "find", "--id", "one"],
        &["plugins", "show", "one"],
        &["plugins", "show", "\u{1b}"],
        &["plugins", "show", "/\u{1b}"],
        &["plugins", "index"],
        &["plugins", "index", "--check"],
    ] {
        let output = home.unjank(words);
        let text = [output.stdout, output.stderr].concat();
        assert!(
            !text.contains(&0x1b) && !text.contains(&7),
            "{words:?}: {:?}",
            String::from_utf8_lossy(&text)
        );
        assert!(!String::from_utf8_lossy(&text).contains('\u{202e}'), "{words:?}");
    }
}
