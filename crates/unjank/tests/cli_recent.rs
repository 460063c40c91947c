//! `unjank recent` as people and programs use it: many processes, processes that are killed, bad input, and the daemon.
//!
//! `RECENT_KILLS` is how often writers are killed.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the test is somebody else's program"
)]

use crate::fixture;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fixture::{Bus, OURS, Service, has, in_time, pause, setting, skip};
use serde_json::Value as Json;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(50);

/// Directories of a user; nobody writes into them any more when it is dropped.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(UNJANK);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.0.path()).current_dir("/");
        command.env("XDG_RUNTIME_DIR", self.0.path().join("run"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().arg("recent").args(arguments).output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        String::from_utf8(output.stdout).unwrap()
    }

    fn uris(&self) -> Vec<String> {
        self.text(&["list", "--uris"]).lines().map(str::to_owned).collect()
    }

    fn state(&self) -> std::path::PathBuf {
        self.0.path().join(".local/state/unjank/recents")
    }

    fn xbel(&self) -> String {
        let path = self.0.path().join(".local/share/recently-used.xbel");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Waits until no writer runs.
    fn settle(&self) {
        let lock = self.state().join("watcher.lock");
        if lock.exists() {
            assert!(store::disk::real().own(&lock, PATIENCE).unwrap().is_some(), "it writes still");
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.settle();
        }
    }
}

/// Waits until something holds.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        pause();
    }
}

#[test]
fn what_many_processes_add_is_all_there_and_soon_in_the_shared_file() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let home = &home;
            scope.spawn(move || {
                for number in 0..12 {
                    let name = format!("/srv/{writer}/{number}.txt");
                    assert!(home.run(&["add", "--app", "org.kde.kate", &name]).status.success());
                }
            });
        }
    });
    assert_eq!(home.uris().len(), 48);
    wait_until("the shared file has all", || home.xbel().matches("<bookmark ").count() == 48);
    home.settle();
    let links = std::fs::read_dir(home.0.path().join(".local/share/RecentDocuments")).unwrap();
    assert_eq!(links.count(), 10, "as many as KDE keeps");
    let json: Json = serde_json::from_str(&home.text(&["list", "--json", "-n", "1"])).unwrap();
    let document = &json["documents"][0];
    assert_eq!(document["mime"], "text/plain");
    assert_eq!(document["exists"], false);
    assert_eq!(document["applications"][0]["exec"], "kate %u");
}

#[test]
fn documents_that_are_added_together_have_the_types_that_each_has_alone() {
    let types = |home: &Home| -> Vec<(String, String)> {
        let json: Json = serde_json::from_str(&home.text(&["list", "--json"])).unwrap();
        let documents = json["documents"].as_array().unwrap().iter();
        let text = |value: &Json| value.as_str().unwrap().to_owned();
        let mut types: Vec<_> =
            documents.map(|document| (text(&document["uri"]), text(&document["mime"]))).collect();
        types.sort();
        types
    };
    let names = ["/srv/a.txt", "/srv/b.png", "/srv/Makefile", "/srv/c.tar.gz", "/srv/d.nothing"];
    let (together, alone) = (Home::new(), Home::new());
    assert!(together.run(&[&["add"], &names[..]].concat()).status.success());
    assert!(names.iter().all(|name| alone.run(&["add", name]).status.success()));
    assert_eq!(types(&together), types(&alone));
    assert!(types(&together).contains(&("file:///srv/b.png".into(), "image/png".into())));
}

#[test]
fn killed_at_any_point_a_writer_loses_nothing_that_was_acknowledged() {
    let home = Home::new();
    let mut acknowledged = Vec::new();
    let rounds = setting("RECENT_KILLS").unwrap_or(4);
    for round in 0..rounds {
        let name = format!("/srv/{round}");
        assert!(home.run(&["add", &name]).status.success());
        acknowledged.push(format!("file://{name}"));
        home.settle();
        // One who adds many and one who writes are killed somewhere on their way.
        let many: Vec<String> = (0..50).map(|number| format!("/srv/{round}.{number}")).collect();
        let mut adder = home.command();
        let mut adder =
            adder.args(["recent", "add"]).args(many).stdout(Stdio::null()).spawn().unwrap();
        let mut writer = home.command().args(["recent", "sync", "-q"]).spawn().unwrap();
        // A pause of another length each round: how far they get is chance in any case.
        std::thread::park_timeout(Duration::from_micros(round * 40_000 / rounds));
        let _ = adder.kill();
        let _ = writer.kill();
        adder.wait().unwrap();
        writer.wait().unwrap();
        home.settle();
        let found = home.uris();
        for uri in &acknowledged {
            assert!(found.contains(uri), "{uri} is lost in round {round}");
        }
    }
    // Everything is as if nobody had been killed.
    let output = home.run(&["sync"]);
    assert!(output.status.success(), "{output:?}");
    home.settle();
    assert_eq!(home.xbel().matches("<bookmark ").count(), home.uris().len());
    let left: Vec<String> = std::fs::read_dir(home.state())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains('~') || name.ends_with(".old"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_damaged_journal_is_told_kept_and_filled_again_from_the_shared_list() {
    let home = Home::new();
    for number in 0..5 {
        assert!(home.run(&["add", &format!("/srv/{number}")]).status.success());
    }
    assert!(home.run(&["sync"]).status.success());
    home.settle();
    let journal = home.state().join("journal");
    let whole = std::fs::read(&journal).unwrap();
    for (number, damaged) in
        [Vec::new(), whole[..whole.len() / 2].to_vec(), b"notes".repeat(99)].into_iter().enumerate()
    {
        std::fs::write(&journal, &damaged).unwrap();
        let listed = home.run(&["list", "--uris"]);
        let said = String::from_utf8(listed.stderr).unwrap();
        assert!(said.contains("journal is damaged"), "{number}: {said}");
        let synced = home.run(&["sync"]);
        assert!(synced.status.success(), "{number}: {synced:?}");
        let said = String::from_utf8(synced.stderr).unwrap();
        let kept = format!("is kept in ~/.local/state/unjank/recents/journal~{number}\n");
        assert!(said.contains(&kept), "{number}: {said}");
        assert_eq!(std::fs::read(home.state().join(format!("journal~{number}"))).unwrap(), damaged);
        assert_eq!(home.uris().len(), 5, "{number}");
        assert_eq!(home.xbel().matches("<bookmark ").count(), 5, "{number}");
    }
}

#[test]
fn mistakes_are_said_and_exit_codes_are_right() {
    let home = Home::new();
    let code = |arguments: &[&str]| home.run(arguments).status.code().unwrap();
    assert_eq!(code(&["list"]), 1);
    assert_eq!(code(&["add", ""]), 2);
    assert_eq!(code(&["add"]), 2);
    assert_eq!(code(&["list", "--since", "some day"]), 2);
    assert_eq!(code(&["policy", "keep", "entries", "many"]), 2);
    assert_eq!(code(&["private"]), 1);
    assert_eq!(code(&["private", "on", "--for", "soon"]), 2);
    assert_eq!(code(&["policy", "remove", "deny", "hidden"]), 1);
    let output = home.command().args(["recent", "add", "/x"]).env_remove("HOME").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text.starts_with("unjank: cannot find the list of recent documents: HOME"), "{text}");
    // A place where nothing can be written.
    let mut command = home.command();
    let output =
        command.args(["recent", "add", "/x"]).env("XDG_STATE_HOME", "/proc").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // Whoever reads half of the list is no error.
    for number in 0..3 {
        assert_eq!(code(&["add", &format!("/srv/{number}")]), 0);
    }
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let status = home.command().args(["recent", "list"]).stdout(write).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn rules_are_changed_and_explained_with_their_comments_kept() {
    let home = Home::new();
    let rules = home.0.path().join(".config/unjank/recent.rules");
    std::fs::create_dir_all(rules.parent().unwrap()).unwrap();
    std::fs::write(&rules, "# mine\n").unwrap();
    assert!(home.run(&["policy", "deny", "path", "~/Secret"]).status.success());
    assert!(home.run(&["policy", "allow", "path", "~/Secret/open"]).status.success());
    assert_eq!(
        std::fs::read_to_string(&rules).unwrap(),
        "# mine\ndeny path ~/Secret\nallow path ~/Secret/open\n"
    );
    let secret = home.0.path().join("Secret/x");
    // The directory of the test is a hidden one below the one of temporary files.
    let explained = |name: &Path| {
        let mut command = home.command();
        let command = command.args(["recent", "policy", "explain"]).arg(name);
        let output = command.env("TMPDIR", "/nowhere").output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = explained(&secret);
    assert_eq!((code, text.contains("line 2 of the rules")), (1, true), "{text}");
    assert_eq!(explained(&home.0.path().join("Secret/open/x")).0, 0);
    assert!(home.run(&["policy", "off"]).status.success());
    assert_eq!(home.run(&["add", "/srv/x"]).status.code(), Some(1));
    assert!(home.run(&["policy", "on"]).status.success());
    assert_eq!(home.run(&["add", "/srv/x"]).status.code(), Some(0));
}

/// A running `unjankd --names session` on a bus.
fn daemon(bus: &Bus) -> Service {
    let mut command = bus.command(OURS);
    command.args(["--names", "session", "--idle-exit", "0"]).stderr(Stdio::piped());
    let service = Service::from(command.spawn().unwrap());
    wait_until("the daemon has the name", || call(bus, "Policy", &[]).0);
    service
}

#[test]
fn the_daemon_of_a_second_session_goes_on_when_the_first_has_ended() {
    in_time(|| {
        if !has(&["gdbus"]) {
            return;
        }
        let Some(first) = Bus::start() else { return skip("no bus") };
        let second = Bus::start_beside(&first, fixture::SharedDirectories::Home).unwrap();
        // Of one home, in which there is one list.
        std::fs::remove_dir(second.dir().join("data")).unwrap();
        std::os::unix::fs::symlink(first.dir().join("data"), second.dir().join("data")).unwrap();
        let lock = first.dir().join("state/unjank/recents/watcher.lock");
        let watches = |pid| store::disk::real().lock_holder(&lock).is_some_and(|h| h.pid == pid);
        let first_daemon = daemon(&first);
        wait_until("the first watches", || watches(first_daemon.pid()));
        let second_daemon = daemon(&second);
        let shown = |name: &str| {
            let list = std::fs::read_to_string(second.dir().join("data/recently-used.xbel"));
            list.is_ok_and(|text| text.contains(name))
        };
        // What it takes it writes, also while another one watches.
        let add = |name: &str| assert!(call(&second, "Add", &[&format!("file://{name}"), "{}"]).0);
        add("/srv/beside");
        wait_until("it is written", || shown("/srv/beside"));
        drop(first_daemon);
        wait_until("the second watches", || watches(second_daemon.pid()));
        let path = ["recent", "add", "/srv/by-a-command"];
        assert!(second.command(UNJANK).args(path).status().unwrap().success());
        wait_until("it is written", || shown("/srv/by-a-command"));
    });
}

#[test]
fn what_is_added_while_the_daemon_ends_a_round_is_written_by_the_next() {
    in_time(|| {
        if !has(&["gdbus", "strace"]) {
            return;
        }
        let Some(bus) = Bus::start() else { return skip("no bus") };
        // Each new name takes two seconds, in which the round has read all that it will.
        let mut command = bus.command("strace");
        // Beside the daemon, so that its end is the end of both.
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=/^rename"]);
        command.args(["-e", "inject=/^rename:delay_exit=2000000", OURS]);
        command.args(["--names", "session", "--idle-exit", "0"]).stderr(Stdio::piped());
        let _service = Service::from(command.spawn().unwrap());
        wait_until("the daemon has the name", || call(&bus, "Policy", &[]).0);
        let xbel = bus.dir().join("data/recently-used.xbel");
        let shown =
            |name: &str| std::fs::read_to_string(&xbel).is_ok_and(|text| text.contains(name));
        for name in ["/srv/a", "/srv/b"] {
            let added = bus.command(UNJANK).args(["recent", "add", name]).status().unwrap();
            assert!(added.success());
            wait_until("it is written", || shown(name));
        }
    });
}

/// Calls a method; says whether it was answered, and what.
fn call(bus: &Bus, method: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = bus.command("gdbus");
    command.args(["call", "--session", "-d", "org.unjank.Session1", "-o", "/org/unjank/Recent1"]);
    let output =
        command.args(["-m", &format!("org.unjank.Recent1.{method}")]).args(arguments).output();
    let output = output.unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn the_daemon_remembers_lists_and_forgets_for_programs_on_the_bus() {
    in_time(|| {
        if !has(&["gdbus"]) {
            return;
        }
        let Some(bus) = Bus::start() else { return skip("no bus") };
        let service = daemon(&bus);
        let xbel = bus.dir().join("data/recently-used.xbel");
        let shown =
            |name: &str| std::fs::read_to_string(&xbel).is_ok_and(|text| text.contains(name));

        assert_eq!(
            call(&bus, "Add", &["file:///srv/a", "{'mime': <'text/plain'>}"]),
            (true, "('',)\n".into())
        );
        wait_until("the daemon writes what was added", || shown("file:///srv/a"));
        let (_, text) = call(&bus, "List", &["{}"]);
        assert!(
            text.contains("'applications': <['gdbus']>"),
            "who calls is for the bus to say: {text}"
        );
        // Another program's addition is seen by the daemon: no writer is started for it.
        let added = bus.command(UNJANK).args(["recent", "add", "/srv/b"]).status().unwrap();
        assert!(added.success());
        wait_until("the daemon sees what others add", || shown("file:///srv/b"));

        let mut private = bus.command("gdbus");
        private.args([
            "call",
            "--session",
            "-d",
            "org.unjank.Session1",
            "-o",
            "/org/unjank/Recent1",
        ]);
        private.args(["-m", "org.unjank.Recent1.Add", "file:///srv/p", "{}"]);
        let output = private.env("UNJANK_PRIVATE_PATHS", "/x").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("started to be private"), "{text}");

        assert!(call(&bus, "Private", &["true", "60"]).0);
        assert!(call(&bus, "Add", &["file:///srv/c", "{}"]).1.contains("private mode"));
        assert!(call(&bus, "Policy", &[]).1.contains("'remembers': <false>"));
        assert!(call(&bus, "Private", &["false", "0"]).0);

        assert_eq!(call(&bus, "Forget", &["['file:///srv/a']"]), (true, "(uint32 1,)\n".into()));
        assert_eq!(call(&bus, "Forget", &["@as []"]), (true, "(uint32 0,)\n".into()), "not all");
        assert!(call(&bus, "Sync", &[]).0);
        assert!(!shown("file:///srv/a") && shown("file:///srv/b"));
        for (method, arguments) in [
            ("Add", &["no uri", "{}"][..]),
            ("Add", &["file:///x", "{'unknown': <1>}"]),
            ("Add", &["file:///x", "{'mime': <1>}"]),
            ("List", &["{'most': <'all'>}"]),
            ("Nothing", &[]),
        ] {
            let (answered, text) = call(&bus, method, arguments);
            assert!(!answered, "{method} {arguments:?}: {text}");
        }
        let (status, text, _) = service.end(rustix::process::Signal::TERM);
        assert!(status.success(), "{text}");
        // Without it the next addition starts a writer again.
        assert!(bus.command(UNJANK).args(["recent", "add", "/srv/d"]).status().unwrap().success());
        wait_until("the writer writes", || shown("file:///srv/d"));
        let lock = bus.dir().join("state/unjank/recents/watcher.lock");
        assert!(store::disk::real().own(&lock, PATIENCE).unwrap().is_some());
    });
}

#[test]
fn the_daemon_keeps_quiet_when_nothing_happens() {
    in_time(|| {
        if !has(&["gdbus"]) {
            return;
        }
        let Some(bus) = Bus::start() else { return skip("no bus") };
        let service = daemon(&bus);
        assert!(call(&bus, "Add", &["file:///srv/a", "{}"]).0);
        assert!(call(&bus, "Sync", &[]).0);
        let threads = || -> Vec<String> {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
            let text =
                |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status"));
            let switches = |text: String| -> String {
                text.lines().filter(|line| line.contains("voluntary_ctxt")).collect()
            };
            tasks.filter_map(|task| text(task.unwrap()).ok()).map(switches).collect()
        };
        // What the call set off comes to rest; then nothing moves for longer than a round is put off.
        let (start, mut before, mut since) = (Instant::now(), threads(), Instant::now());
        while since.elapsed() < Duration::from_secs(2) {
            assert!(start.elapsed() < PATIENCE, "it does not come to rest");
            pause();
            let now = threads();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    });
}
