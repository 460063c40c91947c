//! The lists of recent documents in memory: GTK's and KDE's programs use them as ever, and nothing is lost by a crash, by a
//! kill at any point, or on the way back.
//!
//! `VOLATILE_KILLS` is how often a move is killed (default 12; `ci/slow` 200), `VOLATILE_SEED` repeats a run.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::recent_home;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use recent_home::{Display, Home, gtk, kde};

/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const LIST: &str = ".local/share/recently-used.xbel";
const LINKS: &str = ".local/share/RecentDocuments";
const MEMORY: &str = "run/unjank/recents";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

fn unjank(home: &Home, arguments: &[&str]) -> String {
    succeed(home.command(recent_home::UNJANK).arg("recent").args(arguments))
}

/// Remembers documents `docs/NAME-0` … by a program of ours.
fn remember(home: &Home, name: &str, count: usize) {
    for number in 0..count {
        let path = home.write(&format!("docs/{name}-{number}"), "x");
        unjank(home, &["add", "--app", "org.kde.kate", path.to_str().unwrap()]);
    }
}

/// A GTK and a KDE program.
struct Programs {
    gtk: &'static Path,
    kde: &'static Path,
    display: Display,
}

impl Programs {
    fn find() -> Option<Programs> {
        let (Some(gtk), Some(kde)) = (gtk(), kde()) else { return None };
        Some(Programs { gtk, kde, display: Display::start()? })
    }

    fn command(&self, home: &Home, program: &Path) -> Command {
        let mut command = home.command(program);
        command.env("DISPLAY", &self.display.name);
        command
    }

    /// Has a program open documents `docs/NAME/0` …
    fn open(&self, home: &Home, program: &Path, name: &str, count: usize) {
        for number in 0..count {
            home.write(&format!("docs/{name}/{number}"), "x");
        }
        let dir = home.at("docs").join(name);
        succeed(self.command(home, program).arg("add").arg(dir).arg(count.to_string()));
    }

    /// What each of the programs lists.
    fn lists(&self, home: &Home) -> [String; 2] {
        [self.gtk, self.kde].map(|program| succeed(self.command(home, program).arg("list")))
    }
}

/// The daemon, which ends with this.
struct Daemon(Child);

impl Daemon {
    fn start(home: &Home) -> Daemon {
        let mut command = home.command(env!("CARGO_BIN_EXE_unjankd"));
        command.args(["--names", "session", "--idle-exit", "0"]).stderr(Stdio::null());
        let daemon = Daemon(command.spawn().unwrap());
        until("the daemon to watch the journal", || {
            unjank_status(home).contains("\"watched\": true")
        });
        daemon
    }

    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unjank_status(home: &Home) -> String {
    said(
        &home.command(recent_home::UNJANK).args(["recent", "volatile", "--json"]).output().unwrap(),
    )
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        crate::fixture::pause();
    }
}

fn is_link(home: &Home, name: &str) -> bool {
    home.at(name).symlink_metadata().is_ok_and(|about| about.is_symlink())
}

/// The documents that the shared list names, by whatever is under its name.
fn in_list(home: &Home) -> String {
    fs::read_to_string(home.at(LIST)).unwrap_or_default()
}

/// Takes the runtime directory away, as a power cut does.
fn lose_memory(home: &Home) {
    let _ = fs::remove_dir_all(home.at("run/unjank"));
}

#[test]
fn gtk_and_kde_programs_use_lists_in_memory_as_ever_there_and_back() {
    let Some(programs) = Programs::find() else { return };
    let home = Home::make();
    programs.open(&home, programs.kde, "kde", 2);
    programs.open(&home, programs.gtk, "gtk", 2);
    remember(&home, "ours", 2);
    unjank(&home, &["sync"]);
    let daemon = Daemon::start(&home);
    unjank(&home, &["volatile", "on"]);
    assert!(is_link(&home, LIST) && is_link(&home, LINKS));
    assert!(home.at(MEMORY).join("recently-used.xbel").is_file());
    let has = |name: &str| home.at(MEMORY).join("RecentDocuments").join(name).is_file();
    assert!(has("ours-0.desktop"));
    // A GTK program that runs sees what a KDE program adds, although the file is elsewhere.
    let later = home.write("docs/kde-later/0", "x");
    let uri = format!("file://{}", later.display());
    let mut waiting = programs.command(&home, programs.gtk);
    let mut waiting = waiting.args(["wait", &uri, "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    programs.open(&home, programs.kde, "kde-later", 1);
    assert!(is_link(&home, LIST), "KDE's programs write through the link");
    assert!(waiting.wait().unwrap().success(), "a GTK program did not see an addition of KDE's");
    // GTK's replace the link, which comes back.
    programs.open(&home, programs.gtk, "gtk-later", 1);
    until("the link to be put back", || is_link(&home, LIST));
    remember(&home, "ours-later", 1);
    until("ours to be in the list", || in_list(&home).contains("ours-later-0"));
    let all = ["kde/0", "kde/1", "gtk/0", "gtk/1", "ours-0", "ours-1"];
    let later = ["kde-later/0", "gtk-later/0", "ours-later-0"];
    let check = |when: &str| {
        let [gtk, kde] = programs.lists(&home);
        for name in all.iter().chain(&later) {
            assert!(in_list(&home).contains(name), "{name} is lost {when}");
            assert!(gtk.contains(name), "{name} is not in GTK's list {when}: {gtk}");
        }
        assert!(kde.contains("kde-later") && kde.contains("ours-later"), "{when}: {kde}");
    };
    check("in memory");
    unjank(&home, &["volatile", "off"]);
    assert!(!is_link(&home, LIST) && !is_link(&home, LINKS));
    check("back on the disk");
    daemon.end();
    let names = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(home.at(dir)).unwrap().map(Result::unwrap);
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("ecent") || name == "journal").collect()
    };
    let mut left = names(".local/share");
    left.sort();
    assert_eq!(left, ["RecentDocuments", "recently-used.xbel"], "nothing is left beside them");
    assert_eq!(names(MEMORY), Vec::<String>::new(), "nothing is left in memory");
}

#[test]
fn six_documents_are_six_after_a_crash_also_if_a_program_writes_first() {
    let Some(programs) = Programs::find() else { return };
    // With the journal's copy, and without: the shared list's own copy has them, too.
    for has_journal in [true, false] {
        let home = Home::make();
        remember(&home, "ours", 4);
        programs.open(&home, programs.gtk, "gtk", 1);
        programs.open(&home, programs.kde, "kde", 1);
        unjank(&home, &["sync"]);
        unjank(&home, &["volatile", "on"]);
        lose_memory(&home);
        if !has_journal {
            fs::remove_file(home.at(".local/state/unjank/recents/journal")).unwrap();
        }
        // The first program of the new session knows nothing of us.
        programs.open(&home, programs.gtk, "first", 1);
        unjank(&home, &["sync"]);
        let [gtk, kde] = programs.lists(&home);
        let ours = unjank(&home, &["list", "--uris"]);
        for name in ["ours-0", "ours-1", "ours-2", "ours-3", "gtk/0", "kde/0", "first/0"] {
            assert!(gtk.contains(name), "{name} is lost to GTK ({has_journal}): {gtk}");
            assert!(ours.contains(name), "{name} is lost to us ({has_journal}): {ours}");
        }
        assert!(kde.contains("ours-0") && kde.contains("kde/0"), "{kde}");
        assert!(is_link(&home, LIST) && is_link(&home, LINKS));
    }
}

#[test]
fn the_end_of_the_daemon_copies_what_a_session_has_added() {
    let home = Home::make();
    remember(&home, "before", 1);
    let daemon = Daemon::start(&home);
    unjank(&home, &["volatile", "on"]);
    remember(&home, "later", 3);
    until("the additions to be in the list", || in_list(&home).contains("later-2"));
    daemon.end();
    lose_memory(&home);
    unjank(&home, &["sync"]);
    for name in ["before-0", "later-0", "later-1", "later-2"] {
        assert!(in_list(&home).contains(name), "{name} is lost: {}", in_list(&home));
        assert!(home.at(LINKS).join(format!("{name}.desktop")).is_file(), "{name}");
    }
}

#[test]
fn a_daemon_that_began_in_memory_goes_back_to_the_disk_when_the_rule_is_gone() {
    for is_by_command in [true, false] {
        let home = Home::make();
        remember(&home, "before", 1);
        unjank(&home, &["volatile", "on"]);
        let daemon = Daemon::start(&home);
        remember(&home, "in-memory", 1);
        until("the addition to be in the list", || in_list(&home).contains("in-memory-0"));
        if is_by_command {
            unjank(&home, &["policy", "remove", "volatile"]);
            assert!(!is_link(&home, LIST) && !is_link(&home, LINKS));
        } else {
            // By an editor.
            home.write(".config/unjank/recent.rules", "");
            until("the lists to be on the disk", || !is_link(&home, LIST));
        }
        remember(&home, "later", 1);
        until("the addition to be in the list", || in_list(&home).contains("later-0"));
        assert!(!is_link(&home, LIST));
        daemon.end();
        lose_memory(&home);
        let list = unjank(&home, &["list", "--uris"]);
        for name in ["before-0", "in-memory-0", "later-0"] {
            assert!(list.contains(name), "{name} is lost: {list}");
        }
    }
}

#[test]
fn the_rule_goes_with_the_lists_and_is_removed_once() {
    let home = Home::make();
    remember(&home, "ours", 1);
    unjank(&home, &["volatile", "on"]);
    assert_eq!(unjank(&home, &["policy", "remove", "volatile"]), "Removed: volatile\n");
    assert!(!is_link(&home, LIST) && in_list(&home).contains("ours-0"));
    let again = home.unjank(&["recent", "policy", "remove", "volatile"]);
    assert_eq!(said(&again), "There is no rule: volatile\n");
}

#[test]
fn the_question_where_the_lists_are_locks_nothing() {
    let home = Home::make();
    let lock = home.at(".local/state/unjank/recents/watcher.lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    assert!(unjank_status(&home).contains("\"watched\": false"));
    assert!(!lock.exists(), "who has it for a moment keeps a writer from starting");
    let _held = store::disk::real().own(&lock, Duration::ZERO).unwrap().unwrap();
    assert!(unjank_status(&home).contains("\"watched\": true"));
}

#[test]
fn what_is_forgotten_is_in_no_copy() {
    let home = Home::make();
    remember(&home, "zebra", 3);
    remember(&home, "giraffe", 3);
    unjank(&home, &["sync"]);
    unjank(&home, &["volatile", "on"]);
    remember(&home, "zebra-later", 1);
    unjank(&home, &["sync"]);
    unjank(&home, &["volatile", "save"]);
    let zebras: Vec<PathBuf> = ["zebra-0", "zebra-1", "zebra-2", "zebra-later-0"]
        .map(|name| home.at("docs").join(name))
        .into();
    let mut forget = home.command(recent_home::UNJANK);
    let told = succeed(forget.args(["recent", "forget"]).args(&zebras));
    assert!(told.starts_with("Forgot 4 documents; a search of "), "{told}");
    assert_eq!(home.naming(b"zebra"), Vec::<PathBuf>::new());
    lose_memory(&home);
    unjank(&home, &["sync"]);
    unjank(&home, &["volatile", "off"]);
    assert_eq!(home.naming(b"zebra"), Vec::<PathBuf>::new());
    assert!(in_list(&home).contains("giraffe-0"));
}

#[test]
fn what_a_program_without_a_runtime_directory_adds_is_kept() {
    let home = Home::make();
    remember(&home, "before", 1);
    unjank(&home, &["volatile", "on"]);
    remember(&home, "in-session", 1);
    let path = home.write("docs/cron-0", "x");
    let mut command = home.command(recent_home::UNJANK);
    command.env_remove("XDG_RUNTIME_DIR").args(["recent", "add"]).arg(path);
    succeed(&mut command);
    unjank(&home, &["volatile", "save"]);
    for state in ["on", "off"] {
        unjank(&home, &["volatile", state]);
        let list = unjank(&home, &["list", "--uris"]);
        for name in ["before-0", "in-session-0", "cron-0"] {
            assert!(list.contains(name), "{name} is lost ({state}): {list}");
        }
    }
}

#[test]
fn a_list_that_somebody_keeps_elsewhere_is_refused_and_left_alone() {
    let home = Home::make();
    let mine = home.write("mine.xbel", "<xbel version=\"1.0\"></xbel>");
    std::os::unix::fs::symlink(&mine, home.at(LIST)).unwrap();
    let output =
        home.command(recent_home::UNJANK).args(["recent", "volatile", "on"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("somebody else's"), "{}", said(&output));
    assert_eq!(fs::read_link(home.at(LIST)).unwrap(), mine);
    let status = home.command(recent_home::UNJANK).args(["recent", "volatile"]).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// Makes an empty lock of the shared list an old one: its maker was killed before it wrote into it, and as Qt has it, it
/// counts for half a minute.
fn let_time_pass_for_a_lock(home: &Home) {
    let Ok(lock) = fs::File::options().write(true).open(home.at(&format!("{LIST}.lock"))) else {
        return;
    };
    if lock.metadata().unwrap().len() == 0 {
        lock.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn a_move_that_is_killed_at_any_point_loses_nothing() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let seed = number("VOLATILE_SEED", u64::from(std::process::id()) + 1);
    eprintln!("VOLATILE_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let home = Home::make();
    remember(&home, "ours", 6);
    unjank(&home, &["sync"]);
    // How long a move takes here.
    let start = Instant::now();
    unjank(&home, &["volatile", "on"]);
    let longest = u64::try_from(start.elapsed().as_micros()).unwrap();
    for round in 0..number("VOLATILE_KILLS", 12) {
        let state = ["off", "on"][usize::from(round % 4 > 1)];
        let mut command = home.command(recent_home::UNJANK);
        command.args(["recent", "volatile", state]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Nothing is waited for but the time.
        let (_nobody, silence) = channel::<()>();
        let _ = silence.recv_timeout(Duration::from_micros(dice.u64(..longest)));
        let _ = child.kill();
        child.wait().unwrap();
        let_time_pass_for_a_lock(&home);
        let is_whole = |when: &str| {
            for number in 0..6 {
                let name = format!("ours-{number}");
                assert!(in_list(&home).contains(&name), "round {round} {when}: {name} is lost");
                let link = home.at(LINKS).join(format!("{name}.desktop"));
                assert!(link.is_file(), "round {round} {when}: {} is lost", link.display());
            }
        };
        is_whole("as it was left");
        if dice.u64(..2) == 0 {
            lose_memory(&home);
            // Whatever somebody does next.
            unjank(&home, &["sync"]);
            is_whole("after the memory was lost, too");
        }
        let list = unjank(&home, &["list", "--uris"]);
        assert_eq!(list.lines().count(), 6, "round {round}: {list}");
    }
    unjank(&home, &["volatile", "off"]);
    assert!(!is_link(&home, LIST) && !is_link(&home, LINKS));
    // What a killed process was writing goes when it is a minute old.
    let old = std::time::SystemTime::now() - Duration::from_secs(120);
    let entries = || fs::read_dir(home.at(".local/share")).unwrap().map(Result::unwrap);
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    for entry in entries().filter(|entry| name(entry).starts_with('.')) {
        fs::File::options().write(true).open(entry.path()).unwrap().set_modified(old).unwrap();
    }
    // So does the lock of one that was killed before it wrote its name into it, also if there is nothing to write.
    let lock = fs::File::create(home.at(&format!("{LIST}.lock"))).unwrap();
    lock.set_modified(old).unwrap();
    unjank(&home, &["sync"]);
    let mut left: Vec<String> = entries().map(|entry| name(&entry)).collect();
    left.sort();
    assert_eq!(left, ["RecentDocuments", "recently-used.xbel"]);
}
