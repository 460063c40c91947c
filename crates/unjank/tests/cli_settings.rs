//! `unjank settings` as people use it: output, errors, exit codes, history, and the watcher beside the real one.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::fixture;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use fixture::{Bus, OURS, REAL, in_time, skip};
use rustix::process::Signal;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

fn settings(bus: &Bus, words: &[&str]) -> Output {
    bus.command(UNJANK).arg("settings").args(words).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed and returns what it printed.
fn said(bus: &Bus, words: &[&str]) -> String {
    let output = settings(bus, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must not succeed and returns its exit code and what it complained of.
fn refused(bus: &Bus, words: &[&str]) -> (i32, String) {
    let output = settings(bus, words);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn settings_are_written_read_listed_and_reset() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let _daemon = bus.serve(OURS, &["--names", "dconf"]);
        said(&bus, &["write", "/a/b", "'text'"]);
        said(&bus, &["write", "/a/c/d", "-5"]);
        assert_eq!(said(&bus, &["read", "/a/b"]), "'text'\n");
        assert_eq!(said(&bus, &["read", "-d", "/a/b"]), "");
        assert_eq!(said(&bus, &["list", "/a/"]), "b\nc/\n");
        let listed: serde_json::Value =
            serde_json::from_str(&said(&bus, &["list", "/a/", "--json"])).unwrap();
        assert_eq!(listed["names"], serde_json::json!(["b", "c/"]));
        assert_eq!(said(&bus, &["dump", "/"]), "[a]\nb='text'\n\n[a/c]\nd=-5\n");
        assert_eq!(said(&bus, &["complete", "/", "/a"]), "/a/\n");
        said(&bus, &["reset", "-f", "/a/c/"]);
        assert_eq!(said(&bus, &["list", "/a/"]), "b\n");
        let (code, text) = refused(&bus, &["reset", "/a/"]);
        assert_eq!(code, 2);
        assert_eq!(
            text,
            "unjank: cannot reset /a/: it is a directory\nhint: reset everything in it with -f\n"
        );
    });
}

#[test]
fn without_a_bus_reading_works_and_writing_says_why_not() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        said(&bus, &["write", "/a/b", "1"]);
        drop(daemon);
        let alone = |words: &[&str]| {
            let mut command = bus.command(UNJANK);
            command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
            command.arg("settings").args(words).stdin(Stdio::null()).output().unwrap()
        };
        for (words, wanted) in [
            (&["read", "/a/b"][..], "1\n"),
            (&["list", "/"], "a/\n"),
            (&["dump", "/"], "[a]\nb=1\n"),
            (&["list-locks", "/"], ""),
        ] {
            let output = alone(words);
            assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
            assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
        }
        for words in [&["write", "/a/b", "2"][..], &["reset", "/a/b"], &["watch", "/"], &["blame"]]
        {
            let output = alone(words);
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{words:?}");
            assert!(text.starts_with("unjank: cannot "), "{text}");
            assert!(text.contains("cannot connect to the bus"), "{text}");
        }
        let output = alone(&["write", "/a/b", "2"]);
        assert!(String::from_utf8(output.stderr).unwrap().contains("hint: changes need"));
    });
}

#[test]
fn a_locked_key_is_named() {
    let Some(bus) = Bus::start() else { return };
    for (path, text) in [
        ("site.d/a", "[a]\nb='fixed'\n"),
        ("site.d/locks/a", "/a/b\n"),
        ("profile", &format!("user-db:user\nfile-db:{}/site\n", bus.dir().display())),
    ] {
        let path = bus.dir().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    said(&bus, &["compile", "site", "site.d"]);
    let run = |words: &[&str]| {
        let mut command = bus.command(UNJANK);
        command.env("DCONF_PROFILE", bus.dir().join("profile")).arg("settings").args(words);
        command.output().unwrap()
    };
    assert_eq!(run(&["read", "/a/b"]).stdout, b"'fixed'\n");
    assert_eq!(run(&["list-locks", "/"]).stdout, b"/a/b\n");
    let output = run(&["write", "/a/b", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("hint: /a/b is locked"), "{text}");
}

#[test]
fn mistakes_on_the_command_line_exit_with_2() {
    let Some(bus) = Bus::start() else { return };
    for (words, wanted) in [
        (&["read", "a"][..], "dconf key must begin with a slash"),
        (&["list", "/a"], "dconf dir must end with a slash"),
        (&["write", "/a", "zz"], "unknown keyword"),
        (&["write", "/a"], "<VALUE>"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["undo"], "<ID>"),
        (&["undo", "7"], "the history does not contain it"),
        (&["history", "--since", "soon"], "say how long ago"),
        (&["check", "/nonexistent"], "No such file or directory"),
    ] {
        let (code, text) = refused(&bus, words);
        assert_eq!(code, 2, "{words:?}: {text}");
        assert!(text.contains(wanted), "{words:?}: {text}");
        assert!(!text.contains("os error"), "{text}");
    }
}

#[test]
fn changes_are_listed_and_taken_back() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        for value in ["1", "2", "3"] {
            said(&bus, &["write", "/a/b", value]);
        }
        said(&bus, &["write", "/x", "'long value'"]);
        // What is recorded is on disk when the daemon has ended.
        daemon.end(Signal::TERM);
        assert!(said(&bus, &["history"]).starts_with("4 changes of 2 keys by 1 program.\n"));
        let document: serde_json::Value =
            serde_json::from_str(&said(&bus, &["history", "--json", "--path", "/a/"])).unwrap();
        assert_eq!(document["schema"], "unjank.settings.history/1");
        let changes = document["changes"].as_array().unwrap();
        assert_eq!(changes.len(), 3);
        let key = &changes[2]["keys"][0];
        assert_eq!(
            (&key["path"], &key["old"], &key["new"]),
            (&"/a/b".into(), &"2".into(), &"3".into())
        );
        assert!(changes[2]["exe"].as_str().unwrap().ends_with("unjank"));
        let id = |at: usize| changes[at]["id"].to_string();

        let _daemon = bus.serve(OURS, &["--names", "dconf"]);
        let plan = said(&bus, &["undo", &id(2), "--dry-run"]);
        assert!(plan.starts_with("1 key would be restored, 0 skipped.\n"), "{plan}");
        assert!(!plan.contains("last second"), "what was named is there: {plan}");
        let all = settings(&bus, &["undo", "--since", "1h", "--dry-run"]);
        let all = String::from_utf8(all.stdout).unwrap();
        assert!(all.contains("Changes of the last second may not be recorded yet"), "{all}");
        assert_eq!(said(&bus, &["read", "/a/b"]), "3\n");
        said(&bus, &["undo", &id(2)]);
        assert_eq!(said(&bus, &["read", "/a/b"]), "2\n");
        let output = settings(&bus, &["undo", &id(0)]);
        assert_eq!(output.status.code(), Some(1), "it was changed again");
        assert!(String::from_utf8(output.stdout).unwrap().contains("--force"));
        said(&bus, &["undo", &id(0), "--force"]);
        assert_eq!(said(&bus, &["read", "/a/b"]), "");
    });
}

/// Puts a profile with locks in place and returns the words for a command that uses it.
fn lock(bus: &Bus, key: &str) -> std::path::PathBuf {
    let (dir, name) = key.rsplit_once('/').unwrap();
    for (path, text) in [
        ("site.d/a", format!("[{}]\n{name}='fixed'\n", dir.trim_start_matches('/'))),
        ("site.d/locks/a", format!("{key}\n")),
        ("profile", format!("user-db:user\nfile-db:{}/site\n", bus.dir().display())),
    ] {
        let path = bus.dir().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    said(bus, &["compile", "site", "site.d"]);
    bus.dir().join("profile")
}

#[test]
fn undo_and_restore_leave_what_is_locked() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        for words in [["write", "/a/b", "1"], ["write", "/a/c", "1"]] {
            said(&bus, &words);
        }
        // The end of the service makes a snapshot and writes the history.
        daemon.end(Signal::TERM);
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        said(&bus, &["write", "/a/b", "2"]);
        said(&bus, &["write", "/a/c", "2"]);
        daemon.end(Signal::TERM);
        let listed: serde_json::Value =
            serde_json::from_str(&said(&bus, &["snapshots", "--json"])).unwrap();
        let first = listed["snapshots"][0]["name"].as_str().unwrap().to_owned();
        let profile = lock(&bus, "/a/b");
        let _daemon = bus.serve(OURS, &["--names", "dconf"]);
        let run = |words: &[&str]| {
            let mut command = bus.command(UNJANK);
            command.env("DCONF_PROFILE", &profile).arg("settings").args(words);
            let output = command.stdin(Stdio::null()).output().unwrap();
            (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
        };
        let value = |key| said(&bus, &["read", key]);
        for words in [&["undo", "2", "3", "--dry-run"][..], &["undo", "2", "3", "--force"]] {
            let (code, text) = run(words);
            assert_eq!(code, 1, "{text}");
            assert!(text.contains("1 key"), "{text}");
            assert!(text.contains("skipped: /a/b, locked by the administrator"), "{text}");
        }
        assert_eq!((value("/a/b"), value("/a/c")), ("2\n".to_owned(), "1\n".to_owned()));
        said(&bus, &["write", "/a/c", "3"]);
        let before = said(&bus, &["dump", "/"]);
        for (words, done) in [
            (&["restore", &first, "--dry-run"][..], "1 key would be changed"),
            (&["restore", &first], "1 key changed"),
        ] {
            assert_eq!(said(&bus, &["dump", "/"]), before);
            let (code, text) = run(words);
            assert_eq!(code, 1, "{text}");
            assert!(text.starts_with(done), "{text}");
            assert!(text.contains("skipped: /a/b, locked by the administrator"), "{text}");
        }
        assert_eq!((value("/a/b"), value("/a/c")), ("2\n".to_owned(), "1\n".to_owned()));
        let (code, text) = refused(&bus, &["restore", "user.9.9"]);
        assert_eq!(code, 2);
        assert!(text.contains("there is no such snapshot"), "{text}");
    });
}

#[test]
fn a_damaged_database_is_repaired_before_a_snapshot_is_restored_as_a_whole() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        for key in ["/a/first", "/a/second"] {
            let daemon = bus.serve(OURS, &["--names", "dconf"]);
            said(&bus, &["write", key, "1"]);
            daemon.end(Signal::TERM);
        }
        let listed: serde_json::Value =
            serde_json::from_str(&said(&bus, &["snapshots", "--json"])).unwrap();
        let first = listed["snapshots"][0]["name"].as_str().unwrap().to_owned();
        let whole = std::fs::read(bus.user_database()).unwrap();
        let cut = whole[..whole.len() - 20].to_vec();
        let no_header = [&[b'x'; 24], &whole[24..]].concat();
        for damaged in [cut, no_header] {
            std::fs::write(bus.user_database(), damaged).unwrap();
            let daemon = bus.serve(OURS, &["--names", "dconf"]);
            for words in [&["restore", &first, "--dry-run"][..], &["restore", &first]] {
                let (code, text) = refused(&bus, words);
                assert_eq!(code, 2, "{text}");
                assert!(text.contains("is damaged"), "{text}");
                assert!(text.contains("hint: the settings service repairs it"), "{text}");
            }
            said(&bus, &["write", "/a/third", "1"]);
            let text = said(&bus, &["restore", &first]);
            assert!(text.starts_with("2 keys changed to what"), "{text}");
            assert_eq!(said(&bus, &["dump", "/"]), "[a]\nfirst=1\n");
            said(&bus, &["write", "/a/second", "1"]);
            daemon.end(Signal::TERM);
        }
        // A link to itself cannot be read, not by root either, and says nothing of what is in the file.
        std::fs::remove_file(bus.user_database()).unwrap();
        std::os::unix::fs::symlink("user", bus.user_database()).unwrap();
        let (code, text) = refused(&bus, &["restore", &first, "--dry-run"]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("cannot read") && text.contains("symbolic links"), "{text}");
        assert!(!text.contains("damaged") && !text.contains("repairs"), "{text}");
    });
}

/// Runs a shell command as another user, who owns nothing of ours.
fn as_somebody_else(dir: &Path, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(dir).uid(65_534).gid(65_534);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn compile_follows_nothing_that_another_user_placed() {
    use std::os::unix::fs::PermissionsExt;
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            return skip("needs root to act as another user");
        }
        let home = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(home.path(), 0o755);
        let ours = home.path().join("ours");
        open(&ours, 0o755);
        open(&ours.join("db/site.d"), 0o755);
        std::fs::write(ours.join("db/site.d/a"), "[a]\nb=1\n").unwrap();
        // Databases, so that nothing but the owner tells them from what may be replaced or marked as old.
        let run = |words: &[&str], dir: &Path| {
            let mut command = Command::new(UNJANK);
            command.arg("settings").args(words).current_dir(dir).stdin(Stdio::null());
            let output = command.output().unwrap();
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        assert!(run(&["compile", "victim", "db/site.d"], &ours).0);
        let victim = std::fs::read(ours.join("victim")).unwrap();
        let source = ours.join("db/site.d").display().to_string();
        for (number, (prepare, words)) in [
            // A link in the place of the database: to a file, to one that is not there, over another link.
            ("ln -s VICTIM out", &["compile", "out", "SOURCE"][..]),
            ("ln -s OURS/new out", &["compile", "out", "SOURCE"]),
            ("ln -s VICTIM two; ln -s two out", &["compile", "out", "SOURCE"]),
            // A link, or a directory of somebody's, on the way.
            ("ln -s OURS dir", &["compile", "dir/victim", "SOURCE"]),
            ("ln -s OURS dir", &["compile", "dir/new", "SOURCE"]),
            ("mkdir dir; ln -s VICTIM dir/out", &["compile", "dir/out", "SOURCE"]),
            // A file of somebody's, who would own the database.
            ("touch out; chmod 666 out", &["compile", "out", "SOURCE"]),
            // Key files that somebody placed, or chose.
            ("mkdir d; echo '[a]' > d/x; echo 'b=2' >> d/x", &["compile", "new", "d"]),
            ("ln -s OURS/secrets d", &["compile", "new", "d"]),
            ("mkdir -p site.d; ln -s VICTIM site", &["update", "."]),
        ]
        .into_iter()
        .enumerate()
        {
            for mode in [0o1777, 0o777] {
                let shared = home.path().join(format!("shared{number}-{mode:o}"));
                open(&shared, mode);
                let victim_path = ours.join("victim").display().to_string();
                let prepare = prepare
                    .replace("VICTIM", &victim_path)
                    .replace("OURS", &ours.display().to_string());
                as_somebody_else(&shared, &prepare);
                let words: Vec<&str> = words
                    .iter()
                    .map(|word| if *word == "SOURCE" { &source } else { *word })
                    .collect();
                let (done, text) = run(&words, &shared);
                assert!(!done, "{prepare}: {words:?}");
                assert!(text.contains("belongs to another user"), "{prepare}: {text}");
                assert_eq!(std::fs::read(ours.join("victim")).unwrap(), victim, "{prepare}");
                assert!(!ours.join("new").exists(), "{prepare}");
                assert!(!shared.join("new").exists(), "{prepare}");
            }
        }
        // Our own links in such a directory, and anybody's in a directory of ours, are followed.
        let shared = home.path().join("shared");
        open(&shared, 0o1777);
        std::os::unix::fs::symlink(ours.join("victim"), shared.join("out")).unwrap();
        assert!(run(&["compile", "out", &source], &shared).0);
        assert!(shared.join("out").is_symlink());
    });
}

#[test]
fn a_history_on_a_pipe_has_who_and_both_values_whole() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        let long = |letter: &str| format!("'{}'", letter.repeat(2000));
        said(&bus, &["write", "/a/long", &long("x")]);
        said(&bus, &["write", "/a/long", &long("y")]);
        said(&bus, &["reset", "-f", "/a/"]);
        daemon.end(Signal::TERM);
        for columns in ["20", "80", "200"] {
            let mut command = bus.command(UNJANK);
            command.env("COLUMNS", columns).args(["settings", "history"]);
            let output = command.stdin(Stdio::null()).output().unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            let (x, y) = (long("x"), long("y"));
            for line in [
                format!("    /a/long: unset -> {x}"),
                format!("    /a/long: {x} -> {y}"),
                format!("    /a/long: {y} -> unset"),
            ] {
                assert!(told.lines().any(|found| found == line), "{columns}: {told}");
            }
            assert_eq!(told.matches("unjank, process ").count(), 3, "{told}");
        }
    });
}

#[test]
fn a_damaged_file_is_noticed_and_salvaged() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        for n in 0..40 {
            said(&bus, &["write", &format!("/d/k{n:02}"), &n.to_string()]);
        }
        daemon.end(Signal::TERM);
        assert!(said(&bus, &["check"]).contains("40 keys, checksum good"));
        let mut bytes = std::fs::read(bus.user_database()).unwrap();
        bytes.truncate(bytes.len() - 20);
        std::fs::write(bus.dir().join("cut"), bytes).unwrap();
        let output = settings(&bus, &["check", "cut", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["files"][0]["state"], "damaged");
        assert!(document["files"][0]["readable"].as_u64().unwrap() >= 39, "{document}");
        let output = settings(&bus, &["salvage", "cut", "--print"]);
        assert_eq!(output.status.code(), Some(1), "it was damaged");
        assert!(String::from_utf8(output.stdout).unwrap().starts_with("[d]\nk00=0\nk01=1\n"));
        assert_eq!(settings(&bus, &["salvage", "cut", "-o", "new"]).status.code(), Some(1));
        assert!(said(&bus, &["check", "new"]).contains("no damage found"));
        assert_eq!(
            settings(&bus, &["salvage", "cut", "-o", "new"]).status.code(),
            Some(2),
            "it exists"
        );
    });
}

#[test]
fn a_reader_that_goes_early_is_no_error() {
    let Some(bus) = Bus::start() else { return };
    // The pipe is closed before anything is written into it.
    let script = format!("exec 3>&1; ({UNJANK} settings complete '' '' ; echo $? >&3) | :");
    let output = bus.command("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.stdout, b"0\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}

/// A `dconf watch` that runs.
struct Watcher {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(bus: &Bus, program: &str, path: &str) -> Watcher {
        let mut command: Command = bus.command(program);
        command.arg0("dconf").args(["watch", path]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Watcher { child, lines }
    }

    /// Reads until a line is `last`.
    fn until(&mut self, last: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(&format!("\n{last}\n")) && text != format!("{last}\n") {
            assert_ne!(self.lines.read_line(&mut text).unwrap(), 0, "it ended: {text}");
        }
        text
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a watcher of `/` prints of a session.
fn watched(program: &str) -> Option<String> {
    let bus = Bus::start()?;
    let _service = bus.serve(REAL, &[]);
    let mut watcher = Watcher::start(&bus, program, "/");
    // It does not say when it has subscribed, so it is told until it shows something.
    let is_ready = AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                said(&bus, &["write", "/ready", &n.to_string()]);
                if is_ready.load(Ordering::Relaxed) {
                    break;
                }
            }
            for words in [
                &["write", "/a/b", "'x'"][..],
                &["write", "/a/b", "'x'"],
                &["write", "/a/c", "@as []"],
                &["reset", "/a/b"],
                &["reset", "-f", "/a/"],
            ] {
                said(&bus, words);
            }
            let mut load = bus.command(UNJANK);
            load.args(["settings", "load", "/q/"]).stdin(Stdio::piped());
            let mut load = load.spawn().unwrap();
            let mut input = load.stdin.take().unwrap();
            input.write_all(b"[/]\nz=1\n[r]\ny=2\nx=(3, 'vier')\n").unwrap();
            drop(input);
            assert!(load.wait().unwrap().success());
            said(&bus, &["write", "/zz", "true"]);
        });
        watcher.until("/ready");
        is_ready.store(true, Ordering::Relaxed);
        watcher.until("/zz") + &watcher.until("")
    });
    let start = text.find("/a/b\n").unwrap();
    Some(text[start..].to_owned())
}

#[test]
fn a_watcher_prints_what_the_real_one_prints() {
    if !Path::new(REAL).exists() {
        return skip("no dconf");
    }
    in_time(|| {
        let Some(theirs) = watched("/usr/bin/dconf") else { return };
        assert!(theirs.contains("/q/r/x\n  (3, 'vier')\n"), "{theirs}");
        assert_eq!(watched(UNJANK).unwrap(), theirs);
    });
}

#[test]
fn a_watcher_says_that_the_bus_is_gone() {
    in_time(|| {
        let Some(mut bus) = Bus::start() else { return };
        let daemon = bus.serve(OURS, &["--names", "dconf"]);
        let mut command = bus.command(UNJANK);
        command.args(["settings", "watch", "/"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut watcher = command.spawn().unwrap();
        let mut lines = BufReader::new(watcher.stdout.take().unwrap());
        // It has subscribed when it shows something.
        let is_ready = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    said(&bus, &["write", "/ready", &n.to_string()]);
                    if is_ready.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            is_ready.store(true, Ordering::Relaxed);
        });
        drop(daemon);
        bus.kill();
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let output = watcher.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text, "unjank: cannot watch /: the bus closed the connection\n");
    });
}

#[test]
fn man_pages_and_completions_are_made() {
    let Some(bus) = Bus::start() else { return };
    let run = |words: &[&str]| bus.command(UNJANK).args(words).output().unwrap();
    assert!(run(&["generate", "man", "man"]).status.success());
    let page = std::fs::read_to_string(bus.dir().join("man/unjank-settings-history.1")).unwrap();
    assert!(page.contains("unjank settings history"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["generate", "completions", shell]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
    let mut bash = bus.command("bash").args(["-n"]).stdin(Stdio::piped()).spawn().unwrap();
    let script = run(&["generate", "completions", "bash"]).stdout;
    bash.stdin.take().unwrap().write_all(&script).unwrap();
    assert!(bash.wait().unwrap().success());
}

#[test]
fn completions_know_every_level_of_help_and_no_command_of_our_own_programs() {
    let Some(bus) = Bus::start() else { return };
    let script = bus.command(UNJANK).args(["generate", "completions", "bash"]).output().unwrap();
    std::fs::write(bus.dir().join("completions"), script.stdout).unwrap();
    let complete = |words: &str| {
        let asked = format!(
            "source ./completions; COMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _unjank unjank '' x; echo \" ${{COMPREPLY[*]}} \""
        );
        let output = bus.command("bash").current_dir(bus.dir()).args(["-c", &asked]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    for (words, known) in [
        ("unjank", " slowdisk "),
        ("unjank help", " slowdisk "),
        ("unjank help bus", " record "),
        ("unjank help host policy", " explain "),
        ("unjank settings help", " salvage "),
        ("unjank host policy", " explain "),
        ("unjank trace", " attach "),
        ("unjank doctor", " --only "),
    ] {
        let said = complete(words);
        assert!(said.contains(known), "{words}: {said}");
    }
    for (words, ours) in [
        ("unjank", ["daemon", "listing-worker", "recent-writer", "exercise"].as_slice()),
        ("unjank help", &["daemon", "exercise"]),
        ("unjank bench", &["launch-guardian", "listing-client"]),
        ("unjank bus", &["hand-monitor", "traffic"]),
    ] {
        let said = complete(words);
        assert!(said.trim().len() > 20, "{words}: {said}");
        assert!(ours.iter().all(|name| !said.contains(name)), "{words}: {said}");
    }
}

#[test]
fn each_help_fits_a_screen_and_has_an_example() {
    let Some(bus) = Bus::start() else { return };
    let help = |words: &[&str]| {
        let output = bus.command(UNJANK).args(words).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let group = help(&["settings"]);
    let commands = group.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    let names: Vec<String> = names.collect();
    assert!(names.len() >= 16, "{names:?}");
    for name in names {
        let text = help(&["settings", &name]);
        assert!(text.lines().count() <= 40, "{name}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}: {text}");
        assert!(text.contains("Example: unjank settings"), "{name}");
    }
}

/// The shell blocks of the page.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    for part in page.split("```sh\n").skip(1) {
        blocks.push(part.split("```").next().unwrap().to_owned());
    }
    blocks
}

#[test]
fn every_shell_block_of_the_page_works() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let _daemon = bus.serve(OURS, &["--names", "dconf"]);
        let bin = bus.dir().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(UNJANK, bin.join("unjank")).unwrap();
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
        let mut text = String::new();
        std::fs::File::open(page).unwrap().read_to_string(&mut text).unwrap();
        let blocks = blocks(&text);
        assert!(blocks.len() >= 5);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        for block in blocks {
            let output =
                bus.command("sh").env("PATH", &path).args(["-euc", &block]).output().unwrap();
            assert!(
                output.status.success(),
                "{block}\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    });
}

#[test]
fn the_history_holds_no_values_of_secret_keys_whatever_else_is_asked() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let history = bus.dir().join("state/unjank/settings/history.journal");
        for arguments in [&["daemon"][..], &["daemon", "--history-deny", "/a/private*"]] {
            let daemon = bus.serve(UNJANK, arguments);
            said(&bus, &["write", "/a/password", "'hunter2'"]);
            said(&bus, &["write", "/a/private-thing", "'quiet'"]);
            said(&bus, &["write", "/a/open", "'loud'"]);
            said(&bus, &["reset", "-f", "/a/"]);
            let (status, log, _) = daemon.end(Signal::TERM);
            assert!(status.success(), "{log}");
        }
        let told = said(&bus, &["history"]);
        assert_eq!(told.matches("/a/password").count(), 4, "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        assert_eq!(told.matches("quiet").count(), 2, "only the first daemon may store it: {told}");
        assert_eq!(told.matches("loud").count(), 4, "{told}");
        let stored = std::fs::read(history).unwrap();
        assert!(!stored.windows(7).any(|part| part == b"hunter2"));
    });
}
