//! What the rules and private mode do not let in goes out of the lists that KDE's and GTK's programs share.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::recent_home;

use std::path::{Path, PathBuf};
use std::process::Output;

use recent_home::{Display, Home, gtk, kde};

/// A part of the names of documents that nobody shall remember.
const SECRET: &str = "zebra";
/// A part of the names of others.
const OPEN: &str = "giraffe";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn unjank(home: &Home, arguments: &[&str]) -> String {
    let output = home.unjank(&[&["recent"], arguments].concat());
    assert!(output.status.code().is_some_and(|code| code < 2), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// Has a program of KDE's open two documents in a folder.
fn open_with_kde(home: &Home, kde: &Path, folder: &str) {
    for number in 0..2 {
        home.write(&format!("docs/{folder}/{number}"), "x");
    }
    let folder = home.at("docs").join(folder);
    let added = home.command(kde).arg("add").arg(folder).arg("2").output().unwrap();
    assert!(added.status.success(), "{}", said(&added));
}

fn count(home: &Home, name: &str) -> usize {
    let xbel = std::fs::read_to_string(home.at(".local/share/recently-used.xbel"));
    xbel.unwrap_or_default().matches(&format!("/{name}/")).count()
}

#[test]
fn what_a_rule_denies_goes_out_of_kdes_links_too() {
    let Some(kde) = kde() else { return };
    let home = Home::make();
    let rule = text(&home.at("docs").join(SECRET)).to_owned();
    unjank(&home, &["policy", "deny", "path", &rule]);
    // Nobody has looked at the lists before.
    open_with_kde(&home, kde, SECRET);
    open_with_kde(&home, kde, OPEN);
    assert!(!home.naming(SECRET.as_bytes()).is_empty());
    unjank(&home, &["sync"]);
    let rules = home.at(".config/unjank/recent.rules");
    assert_eq!(home.naming(SECRET.as_bytes()), [rules]);
    assert_eq!(count(&home, OPEN), 2);
    let links = home.command(kde).arg("links").output().unwrap();
    assert_eq!(said(&links).lines().count(), 2, "{}", said(&links));
}

#[test]
fn what_was_remembered_before_a_rule_denies_it_is_said_and_forgotten_by_one_command() {
    let home = Home::make();
    for name in [SECRET, OPEN] {
        let document = home.write(&format!("docs/{name}/1"), "x");
        unjank(&home, &["add", text(&document), "--app", "okular"]);
    }
    unjank(&home, &["sync"]);
    let nothing = unjank(&home, &["forget", "--denied"]);
    assert_eq!(nothing, "No list on this machine has such a document.\n");
    let said = unjank(&home, &["policy", "deny", "path", &format!("~/docs/{SECRET}")]);
    assert!(said.contains("1 document that it denies is in the lists already."), "{said}");
    assert!(said.contains("hint: remove it with: unjank recent forget --denied"), "{said}");
    let said = unjank(&home, &["forget", "--denied"]);
    assert!(said.starts_with("Forgot 1 document"), "{said}");
    assert_eq!(count(&home, OPEN), 1);
    let rules = home.at(".config/unjank/recent.rules");
    assert_eq!(home.naming(SECRET.as_bytes()), [rules]);
    let said = unjank(&home, &["policy", "deny", "application", "okular"]);
    assert!(said.contains("1 document that it denies is in the lists already."), "{said}");
}

#[test]
fn what_was_opened_in_private_mode_is_in_no_shared_list_afterwards() {
    let Some(kde) = kde() else { return };
    for is_synced in [true, false] {
        let home = Home::make();
        // A first use: no list of ours knows what was there before.
        open_with_kde(&home, kde, OPEN);
        unjank(&home, &["private", "on"]);
        open_with_kde(&home, kde, SECRET);
        // What was there before and is used again keeps the time that it had.
        let before = home.contents();
        open_with_kde(&home, kde, OPEN);
        if is_synced {
            unjank(&home, &["sync"]);
            assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
        }
        unjank(&home, &["private", "off"]);
        assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new(), "{is_synced}");
        assert_eq!(count(&home, OPEN), 2, "{is_synced}");
        let links = |contents: &std::collections::BTreeMap<PathBuf, (i64, i64, Vec<u8>)>| {
            let links = contents
                .iter()
                .filter(|(path, _)| path.extension().is_some_and(|e| e == "desktop"));
            links.map(|(path, (seconds, ..))| (path.clone(), *seconds)).collect::<Vec<_>>()
        };
        let open: Vec<_> = links(&before)
            .into_iter()
            .filter(|(path, _)| std::fs::read_to_string(path).is_ok_and(|text| text.contains(OPEN)))
            .collect();
        assert_eq!(links(&home.contents()), open, "{is_synced}");
        // From now on it is as ever.
        open_with_kde(&home, kde, SECRET);
        unjank(&home, &["sync"]);
        assert_eq!(count(&home, SECRET), 2);
    }
}

#[test]
fn private_mode_that_ended_by_itself_leaves_nothing_either() {
    let (Some(kde), Some(gtk)) = (kde(), gtk()) else { return };
    let Some(display) = Display::start() else { return };
    let home = Home::make();
    unjank(&home, &["private", "on"]);
    open_with_kde(&home, kde, SECRET);
    let added = home
        .command(gtk)
        .env("DISPLAY", &display.name)
        .args(["add", text(&home.at("docs").join(SECRET)), "1", "viewer"])
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", said(&added));
    assert!(!home.naming(SECRET.as_bytes()).is_empty());
    // As if it had been turned on for so long, and nobody was there when it ended.
    let file = home.at(".local/state/unjank/recents/private");
    let period = std::fs::read_to_string(&file).unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    std::fs::write(file, period.replace("told otherwise", &now.to_string())).unwrap();
    assert!(unjank(&home, &["private"]).contains("is off"));
    unjank(&home, &["sync"]);
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
}
