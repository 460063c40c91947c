//! Nine documents among thousands are forgotten while a GTK program has them in memory and is stopped; afterwards GTK and
//! KDE programs are used, and no byte of the home or of the runtime directory names one.
//!
//! `FORGET_ROUNDS` is how many rounds are played (default 1), every second one without the daemon; `ci/slow` plays more.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::fixture::pause;
use crate::recent_home;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use recent_home::{Display, Home, gtk, kde};

/// A part of the names of documents that are forgotten, and of no other.
const SECRET: &str = "zebra";
/// A part of the names of documents that stay.
const OPEN: &str = "giraffe";
/// How many documents there are: more than are kept when nobody says otherwise.
const CROWD: usize = 6_000;
/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(100);

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn succeed(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

fn remember(home: &Home, app: &str, documents: &[PathBuf]) {
    for some in documents.chunks(500) {
        let mut command = home.command(recent_home::UNJANK);
        command.args(["recent", "add", "--app", app]).args(some);
        succeed(command);
    }
}

/// Has a program open `count` documents of a folder; GTK's needs a display.
fn open(home: &Home, program: &Path, display: &Display, folder: &str, count: usize) {
    for number in 0..count {
        home.write(&format!("docs/{folder}/{number}"), "x");
    }
    let mut command = home.command(program);
    command.env("DISPLAY", &display.name).arg("add").arg(home.at("docs").join(folder));
    command.arg(count.to_string());
    succeed(command);
}

/// The files below the home, the documents apart, in which a word is or whose name has it: in plain bytes and in UTF-16.
/// It shares nothing with the search of ours.
fn naming(home: &Home, word: &str) -> Vec<PathBuf> {
    let wide: String = word.chars().map(|letter| format!("{letter}\\x00")).collect();
    let paths = |command: &mut Command| -> Vec<PathBuf> {
        let output = command.env("LC_ALL", "C").output().unwrap();
        said(&output).lines().map(PathBuf::from).collect()
    };
    let mut found = paths(
        Command::new("grep")
            .args(["--recursive", "--files-with-matches", "--text", "--devices=skip"])
            .args(["--exclude-dir=docs", "--perl-regexp", &format!("{word}|{wide}")])
            .arg(home.path()),
    );
    found.extend(paths(
        Command::new("find")
            .arg(home.path())
            .args(["-path", &format!("{}/docs", home.path().display()), "-prune", "-o"])
            .args(["-name", &format!("*{word}*"), "-print"]),
    ));
    found
}

/// A GTK program that has read the list, and is stopped before it adds a document of its own.
struct Stopped(Child);

impl Stopped {
    fn start(home: &Home, gtk: &Path, display: &Display) -> Stopped {
        home.write(&format!("docs/{OPEN}-late/0"), "x");
        let mut command = home.command(gtk);
        command.env("DISPLAY", &display.name).arg("busy");
        command.arg(home.at(&format!("docs/{OPEN}-late"))).args(["1", "1"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line}");
        let stopped = Stopped(child);
        stopped.signal(rustix::process::Signal::STOP);
        stopped
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Lets it add its document, and write the list as it has it.
    fn go_on(mut self) {
        self.signal(rustix::process::Signal::CONT);
        let ended = self.0.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nine_among_thousands_are_forgotten_and_no_program_brings_them_back() {
    let (Some(kde), Some(gtk)) = (kde(), gtk()) else { return };
    let Some(display) = Display::start() else { return };
    let rounds =
        std::env::var("FORGET_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for round in 0..rounds {
        play(kde, gtk, &display, round % 2 == 0);
    }
}

fn play(kde: &Path, gtk: &Path, display: &Display, has_daemon: bool) {
    let home = Home::make();
    let documents = |name: &str, count: usize| -> Vec<PathBuf> {
        (0..count).map(|number| home.at(&format!("docs/{name}/by-us-{number}"))).collect()
    };
    // Three are the first of all, which the list does not show; three were opened by a program of each toolkit.
    remember(&home, "org.kde.okular", &documents(SECRET, 3));
    remember(&home, "org.kde.kate", &documents(OPEN, CROWD - 9));
    open(&home, kde, display, SECRET, 3);
    open(&home, gtk, display, &format!("{SECRET}-gtk"), 3);
    succeed_unjank(&home, &["sync"]);
    assert!(naming(&home, SECRET).len() >= 5, "{:#?}", naming(&home, SECRET));
    let mut daemon = has_daemon.then(|| {
        let mut command = home.command(env!("CARGO_BIN_EXE_unjankd"));
        command.args(["--names", "session"]).stderr(Stdio::null()).spawn().unwrap()
    });
    let stopped = Stopped::start(&home, gtk, display);
    let folders = [SECRET, &format!("{SECRET}-gtk")].map(|name| home.at("docs").join(name));
    let mut command = home.command(recent_home::UNJANK);
    let done = command.args(["recent", "forget"]).args(&folders).output().unwrap();
    let told = said(&done);
    assert_eq!(done.status.code(), Some(0), "{told}");
    assert!(told.starts_with("Forgot 9 documents; a search of "), "{told}");
    let holder = format!("running: recent_gtk ({}) has the shared list in memory", stopped.0.id());
    assert!(told.contains(&holder), "{told}");
    assert!(told.contains("\nnot searched: ~ ("), "what was not searched is said: {told}");
    assert_eq!(naming(&home, SECRET), Vec::<PathBuf>::new());
    // It writes all nine, and its own.
    stopped.go_on();
    if has_daemon {
        let end = Instant::now() + PATIENCE;
        let late = format!("{OPEN}-late");
        while naming(&home, &late).is_empty() || !naming(&home, SECRET).is_empty() {
            assert!(Instant::now() < end, "the daemon did not clean the shared list in time");
            pause();
        }
    } else {
        succeed_unjank(&home, &["sync"]);
    }
    // Others are used, and more than before may be shown.
    open(&home, kde, display, &format!("{OPEN}-kde"), 12);
    open(&home, gtk, display, &format!("{OPEN}-gtk"), 3);
    home.write(".config/unjank/recent.rules", "keep entries 20000\n");
    remember(&home, "org.kde.kate", &documents(&format!("{OPEN}-more"), 10));
    succeed_unjank(&home, &["sync"]);
    let mut list = home.command(gtk);
    list.env("DISPLAY", &display.name).arg("list");
    let shown = [
        succeed_unjank(&home, &["list", "--uris"]),
        succeed(list),
        succeed({
            let mut list = home.command(kde);
            list.arg("list");
            list
        }),
    ];
    if let Some(daemon) = &mut daemon {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(daemon),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        daemon.wait().unwrap();
    }
    assert_eq!(naming(&home, SECRET), Vec::<PathBuf>::new());
    for list in &shown {
        assert!(!list.contains(SECRET) && list.contains(OPEN), "{list}");
    }
    assert!(shown[0].lines().count() >= 5_000, "{}", shown[0].lines().count());
}

#[test]
fn documents_beyond_the_default_limit_are_forgotten_by_time() {
    let home = Home::make();
    let documents: Vec<PathBuf> =
        (0..5_200).map(|number| home.at(&format!("docs/{SECRET}-{number}"))).collect();
    remember(&home, "org.kde.okular", &documents);
    succeed_unjank(&home, &["sync"]);
    let mut command = home.command(recent_home::UNJANK);
    let done = command.args(["recent", "forget", "--since", "1h"]).output().unwrap();
    let told = said(&done);
    assert_eq!(done.status.code(), Some(0), "{told}");
    assert!(told.starts_with("Forgot 5200 documents; a search of "), "{told}");
    home.write(".config/unjank/recent.rules", "keep entries 20000\n");
    succeed_unjank(&home, &["sync"]);
    assert!(!home.unjank(&["recent", "list", "--uris"]).status.success());
    assert_eq!(naming(&home, SECRET), Vec::<PathBuf>::new());
}

fn succeed_unjank(home: &Home, arguments: &[&str]) -> String {
    let mut command = home.command(recent_home::UNJANK);
    command.arg("recent").args(arguments);
    succeed(command)
}
