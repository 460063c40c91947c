//! The files of GTK and KDE beside the real programs: they read what we write, we read what they write, nothing is lost.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a test stands for other programs")]

#[path = "../../../fuzz/src/xbel.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod fuzz;
use crate::peers;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use crate::replay::replay;
use peers::{Home, add, peers, printed};
use sys::clock::{Clock, SystemClock};
use unjank_recents::projection::{XbelOutcome, damaged_path, project};
use unjank_recents::xbel::{Condition, XbelDocument};
use unjank_recents::{Recents, RememberingProgram, Uri, writer};

fn uris(recents: &mut Recents) -> BTreeSet<String> {
    recents.list().unwrap().iter().map(|entry| entry.uri.to_string()).collect()
}

fn in_file(home: &Home) -> BTreeSet<String> {
    let document = XbelDocument::parse(fs::read(&home.places.xbel).unwrap()).unwrap();
    let entries = document.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
    entries.map(|entry| entry.uri.to_string()).collect()
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(String::from).collect()
}

/// What GBookmarkFile reads, a text for each bookmark, its lines in the order in which it tells them.
fn read_by_glib(home: &Home, gtk: &Path) -> Vec<String> {
    let text = home.run(gtk, &["read", home.places.xbel.to_str().unwrap()]);
    let mut all: Vec<String> = text.split("uri ").skip(1).map(|one| format!("uri {one}")).collect();
    all.sort();
    all
}

#[test]
fn gtk_and_kde_read_what_we_write() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    let mut recents = home.recents();
    let names = ["plain.txt", "a b$%#?.txt", "é\u{1F600}.txt", "[2].txt", "q'\"<&>.txt", " lead"];
    for name in names {
        let path = home.file(name);
        add(&mut recents, &path);
        add(&mut recents, &path);
    }
    let projected = project(&mut recents).unwrap();
    let links: Vec<_> =
        fs::read_dir(&home.places.links).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(
        (projected.xbel, projected.links.made),
        (XbelOutcome::Written, names.len()),
        "{links:?}"
    );
    assert_eq!(read_by_glib(&home, &peers.gtk), printed(&mut recents));
    let listed = lines(&home.run(&peers.gtk, &["list"]));
    assert_eq!(listed, uris(&mut recents));
    // Qt escapes differently; the files are the same.
    let by_path = |text: &str| -> BTreeSet<_> {
        text.lines().map(|uri| Uri::parse(uri.as_bytes()).unwrap().to_string()).collect()
    };
    assert_eq!(by_path(&home.run(&peers.kde, &["list"])), listed);
    assert_eq!(home.run(&peers.kde, &["links"]).lines().count(), names.len());
    assert_eq!(fs::metadata(&home.places.xbel).unwrap().permissions().mode() & 0o777, 0o600);
    // A second look finds nothing to do.
    let written = fs::metadata(&home.places.xbel).unwrap().modified().unwrap();
    let projected = project(&mut recents).unwrap();
    assert_eq!((projected.xbel, projected.written_bytes), (XbelOutcome::Unchanged, 0));
    assert_eq!(fs::metadata(&home.places.xbel).unwrap().modified().unwrap(), written);
}

#[test]
fn we_read_what_gtk_and_kde_write() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    (0..3).for_each(|number| drop(home.file(&number.to_string())));
    let docs = home.dir.path().join("docs");
    home.run(&peers.kde, &["add", docs.to_str().unwrap(), "3"]);
    home.run(&peers.gtk, &["add", "/elsewhere", "2"]);
    home.run(&peers.gtk, &["add", docs.to_str().unwrap(), "1"]);
    let before = read_by_glib(&home, &peers.gtk);
    let mut recents = home.recents();
    let projected = project(&mut recents).unwrap();
    assert_eq!((projected.taken_in, projected.deleted, projected.restored), (5, 0, 0));
    assert_eq!(projected.xbel, XbelOutcome::Unchanged, "there was nothing to add");
    assert_eq!(printed(&mut recents), before);
    assert_eq!(fs::read_dir(&home.places.links).unwrap().count(), 6, "each three times");
    // Ours on top of theirs: theirs stays as it was.
    add(&mut recents, &docs.join("0"));
    project(&mut recents).unwrap();
    assert_eq!(read_by_glib(&home, &peers.gtk), printed(&mut recents));
    // The same document and program again: the link is touched, not made again.
    let links = fs::read_dir(&home.places.links).unwrap().count();
    add(&mut recents, &docs.join("0"));
    let projected = project(&mut recents).unwrap();
    assert_eq!((projected.links.made, projected.links.touched), (0, 1));
    assert_eq!(fs::read_dir(&home.places.links).unwrap().count(), links);
}

#[test]
fn what_a_user_removes_in_gtk_or_clears_in_kde_stays_removed() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    let mut recents = home.recents();
    for name in ["a", "b", "c"] {
        add(&mut recents, &home.file(name));
        project(&mut recents).unwrap();
    }
    let b = Uri::of_path(&home.dir.path().join("docs/b")).unwrap();
    home.run(&peers.gtk, &["remove", b.as_str()]);
    assert_eq!(project(&mut recents).unwrap().deleted, 1);
    assert!(!uris(&mut recents).contains(b.as_str()));
    assert!(!home.places.links.join("b.desktop").exists());
    home.run(&peers.gtk, &["purge"]);
    // People take longer; what is a moment old could be unread by an idle program.
    let written = fs::File::options().write(true).open(&home.places.xbel).unwrap();
    let moment = written.metadata().unwrap().modified().unwrap();
    written.set_modified(moment + std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(project(&mut recents).unwrap().deleted, 2);
    assert_eq!(uris(&mut recents), BTreeSet::new());
    assert_eq!(fs::read_dir(&home.places.links).unwrap().count(), 0);
}

#[test]
fn many_writers_of_every_kind_lose_none_of_ours() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    let docs = home.dir.path().join("docs");
    let others: Vec<_> = ["k0", "k1", "g0", "g1"]
        .into_iter()
        .map(|name| {
            let dir = docs.join(name);
            fs::create_dir(&dir).unwrap();
            let dir = dir.to_str().unwrap().to_owned();
            match name.starts_with('k') {
                true => home.start(&peers.kde, &["add", &dir, "30"]),
                false => home.start(&peers.gtk, &["burst", &dir, "30", "40"]),
            }
        })
        .collect();
    let (over, is_over) = mpsc::channel::<()>();
    let (passed, passes): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<()>()).unzip();
    std::thread::scope(|scope| {
        // What the daemon does while the files change.
        let (home, docs) = (&home, &docs);
        let projector = scope.spawn(move || {
            let mut recents = home.recents();
            // It gathers what comes in a moment; KDE's programs wait no longer than that for the lock.
            let moment = std::time::Duration::from_millis(200);
            while is_over.recv_timeout(moment) == Err(mpsc::RecvTimeoutError::Timeout) {
                match project(&mut recents) {
                    Ok(done) => assert_eq!(done.deleted, 0, "nobody deletes"),
                    // On a busy machine KDE's programs hold it for longer than we wait, and the others write more often than
                    // we try; the daemon tries again, too.
                    Err(error) if error.is_contention() => {}
                    Err(error) => panic!("{error}"),
                }
                for passed in &passed {
                    // A writer that is done listens no longer.
                    let _ = passed.send(());
                }
            }
        });
        let writers: Vec<_> = passes
            .into_iter()
            .enumerate()
            .map(|(writer, passes)| {
                scope.spawn(move || {
                    let mut recents = home.recents();
                    for number in 0..50 {
                        add(&mut recents, &docs.join(format!("ours-{writer}-{number}")));
                        // Spread over the time in which the others write; a projector that failed sends no more.
                        if number % 10 == 9 {
                            let _ = passes.recv();
                        }
                    }
                })
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        let ended: Vec<_> = others.into_iter().map(|mut other| other.wait().unwrap()).collect();
        drop(over);
        projector.join().unwrap();
        assert!(written.iter().all(Result::is_ok), "{written:?}");
        assert!(ended.iter().all(|status| status.success()), "{ended:?}");
    });
    let mut recents = home.recents();
    project(&mut recents).unwrap();
    let ours = |uris: &BTreeSet<String>| uris.iter().filter(|uri| uri.contains("/ours-")).count();
    assert_eq!(ours(&uris(&mut recents)), 200);
    assert_eq!(ours(&in_file(&home)), 200);
    assert_eq!(ours(&lines(&home.run(&peers.gtk, &["list"]))), 200);
    assert_eq!(read_by_glib(&home, &peers.gtk), printed(&mut recents));
    let gtk = uris(&mut recents).iter().filter(|uri| uri.contains("/docs/g")).count();
    eprintln!("of GTK's 60: {gtk}; of KDE's 60: {}", uris(&mut recents).len() - 200 - gtk);
}

/// A program that writes the shared list each time when we are about to: the time limit of the lock is read then.
#[derive(Debug)]
struct WritesFirst {
    clock: SystemClock,
    xbel: PathBuf,
    times: AtomicUsize,
}

impl Clock for WritesFirst {
    fn now(&self) -> SystemTime {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        let left = self.times.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if let Ok(left) = left {
            let next = self.xbel.with_extension("next");
            let text = format!("<xbel version=\"1.0\"><!-- {left} --></xbel>");
            fs::write(&next, text).unwrap();
            fs::rename(&next, &self.xbel).unwrap();
        }
        self.clock.monotonic()
    }
}

#[test]
fn a_user_who_waits_for_the_lists_is_not_told_that_others_were_faster() {
    let home = Home::new();
    let with_others = |times| {
        let (clock, times) = (SystemClock::start(), AtomicUsize::new(times));
        let xbel = home.places.xbel.clone();
        let clock = Arc::new(WritesFirst { clock, xbel, times });
        let disk = store::disk::real();
        Recents::new(home.places.clone(), RememberingProgram::Ordinary, disk, clock)
    };
    let mut recents = with_others(1000);
    add(&mut recents, &home.file("a"));
    let refused = project(&mut recents).unwrap_err();
    assert!(refused.is_contention(), "{refused}");
    // More often than one round tries.
    let written = writer::write_for_user(&mut with_others(70)).unwrap();
    assert_eq!(written.projected.xbel, XbelOutcome::Written);
    assert_eq!(in_file(&home).len(), 1);
}

#[test]
fn a_running_gtk_program_sees_what_we_add() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    let mut recents = home.recents();
    add(&mut recents, &home.file("first"));
    project(&mut recents).unwrap();
    let path = home.file("second");
    let uri = Uri::of_path(&path).unwrap();
    let mut waiting = home.start(&peers.gtk, &["wait", uri.as_str(), "50"]);
    let mut out = BufReader::new(waiting.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    add(&mut recents, &path);
    project(&mut recents).unwrap();
    let mut seen = String::new();
    out.read_to_string(&mut seen).unwrap();
    assert!(waiting.wait().unwrap().success());
    assert!(seen.contains("seen_ms"), "{seen}");
    eprintln!("{seen}");
}

#[test]
fn forty_additions_to_a_long_list_are_one_small_write() {
    let home = Home::new();
    let mut recents = home.recents();
    let docs = home.dir.path().join("docs");
    let many = (0..5000).map(|number| docs.join(format!("document-{number}")));
    let mut text = String::from("<xbel version=\"1.0\">");
    for path in many {
        let uri = Uri::of_path(&path).unwrap();
        text.push_str(&format!("<bookmark href=\"{uri}\" added=\"2026-01-01T00:00:00Z\"/>"));
    }
    text.push_str("</xbel>");
    fs::write(&home.places.xbel, text).unwrap();
    project(&mut recents).unwrap();
    let journal = || fs::metadata(home.places.state.join("journal")).map_or(0, |meta| meta.len());
    let before = journal();
    for number in 0..40 {
        add(&mut recents, &docs.join(format!("new-{number}")));
    }
    let projected = project(&mut recents).unwrap();
    let links = u64::try_from(projected.links.written_bytes).unwrap();
    let written = u64::try_from(projected.written_bytes).unwrap() + links + journal() - before;
    assert!(written * 15 <= 104_000_000, "{written} bytes");
    assert_eq!(in_file(&home).len(), 5040);
}

#[test]
fn a_list_of_others_modes_and_places_is_respected() {
    let home = Home::new();
    let mut recents = home.recents();
    let elsewhere = home.dir.path().join("elsewhere.xbel");
    symlink(&elsewhere, &home.places.xbel).unwrap();
    add(&mut recents, &home.file("a"));
    project(&mut recents).unwrap();
    assert!(fs::symlink_metadata(&home.places.xbel).unwrap().is_symlink());
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o644)).unwrap();
    add(&mut recents, &home.file("b"));
    project(&mut recents).unwrap();
    assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o600);
    // What a link points to is gone after a restart when it was in memory: nobody deleted anything.
    fs::remove_file(&elsewhere).unwrap();
    assert_eq!(project(&mut recents).unwrap().deleted, 0);
    assert_eq!(in_file(&home).len(), 2);
    // Somebody wants no list.
    fs::remove_file(&home.places.xbel).unwrap();
    for blocked in ["directory", "device"] {
        match blocked {
            "directory" => fs::create_dir(&home.places.xbel).unwrap(),
            _ => symlink("/dev/null", &home.places.xbel).unwrap(),
        }
        assert_eq!(project(&mut recents).unwrap().xbel, XbelOutcome::Blocked);
        assert_eq!(uris(&mut recents).len(), 2);
        let _ = fs::remove_dir(&home.places.xbel).or_else(|_| fs::remove_file(&home.places.xbel));
    }
    let names: Vec<_> =
        fs::read_dir(&home.places.data).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["RecentDocuments"], "no lock and no temporary file is left");
    // With `rm` it was a file.
    assert_eq!(project(&mut recents).unwrap().deleted, 2);
}

#[test]
fn a_damaged_file_is_kept_beside_and_salvaged() {
    let home = Home::new();
    let mut recents = home.recents();
    for name in ["a", "b", "c"] {
        add(&mut recents, &home.file(name));
    }
    project(&mut recents).unwrap();
    let text = fs::read_to_string(&home.places.xbel).unwrap();
    let foreign = text.replace("/docs/b", "/docs/foreign");
    for cut in [foreign.len() - 30, foreign.rfind("<bookmark ").unwrap() + 100] {
        fs::write(&home.places.xbel, &foreign[..cut]).unwrap();
        let projected = project(&mut recents).unwrap();
        assert_eq!(projected.deleted, 0);
        let aside = damaged_path(&home.places);
        assert_eq!(projected.kept_aside.as_ref(), Some(&aside));
        assert_eq!(fs::read_to_string(&aside).unwrap(), &foreign[..cut]);
        assert_eq!(in_file(&home).len(), 4, "three of ours and one that was only there");
    }
    // Emptied by a power cut.
    fs::write(&home.places.xbel, "").unwrap();
    project(&mut recents).unwrap();
    assert_eq!(in_file(&home).len(), 4);
}

/// What documents are made of.
const MARKS: &[u8] = b"<>&\"'/ \0";

#[test]
fn documents_and_links_of_the_corpus_pass() {
    assert!(replay("xbel", 60, MARKS, fuzz::document).unwrap() >= 300);
    assert!(replay("recent_link", 60, MARKS, fuzz::link).unwrap() >= 200);
}

#[test]
fn a_body_that_panics_is_noticed() {
    let wrong = |data: &[u8]| assert!(data.len() < 100, "planted");
    assert!(replay("xbel", 60, MARKS, wrong).is_err());
}

#[test]
fn a_list_that_gtk_refuses_is_damaged_for_us_too_and_whole_when_it_is_written() {
    let Some(peers) = peers() else { return };
    let home = Home::new();
    let mut recents = home.recents();
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| add(&mut recents, &home.file(name)));
    project(&mut recents).unwrap();
    let whole = fs::read_to_string(&home.places.xbel).unwrap();
    let wide: Vec<u8> = format!("\u{feff}{}", whole.replace("UTF-8", "UTF-16"))
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let prefix = whole.replace("xmlns:bookmark=", "xmlns:other=");
    let variants = [
        ("junk behind", format!("{whole}junk").into_bytes()),
        ("an element behind", format!("{whole}<more/>").into_bytes()),
        ("a second list behind", whole.repeat(2).into_bytes()),
        ("junk in front", format!("junk{whole}").into_bytes()),
        ("UTF-16", wide),
        ("an unbound prefix of ours", prefix.into_bytes()),
        ("a comment behind", format!("{whole}<!-- end -->\n").into_bytes()),
    ];
    let gtk_reads = || {
        let mut command = home.command(&peers.gtk);
        let output = command.arg("read").arg(&home.places.xbel).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { text.matches("uri ").count() } else { 0 }
    };
    let mut refused = Vec::new();
    for (what, bytes) in variants {
        fs::write(&home.places.xbel, &bytes).unwrap();
        let is_read = gtk_reads() == names.len();
        let document = XbelDocument::parse(bytes).unwrap();
        let is_whole = document.condition() == Condition::Whole;
        assert!(is_read || !is_whole, "{what}: GTK refuses it");
        if !is_read {
            refused.push(what);
        }
        let projected = project(&mut recents).unwrap();
        assert_eq!(projected.kept_aside.is_some(), !is_whole, "{what}");
        assert_eq!(gtk_reads(), names.len(), "{what}: as we wrote it");
        assert_eq!(uris(&mut recents).len(), names.len(), "{what}");
    }
    eprintln!("GTK refuses: {refused:?}");
    assert!(refused.len() >= 4, "GTK refuses {refused:?} only");
}
