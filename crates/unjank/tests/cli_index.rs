//! `unjank plugins` and `unjank apps` as people use them, on an own home with plugins of this machine's compiler.
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::catalogue_home;
use crate::fixture;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use catalogue_home::{Home, UNJANK};

const UNJANKD: &str = env!("CARGO_BIN_EXE_unjankd");
const UNJANK_INDEX: &str = env!("CARGO_BIN_EXE_unjank-index");

#[test]
fn plugins_are_found_and_shown() {
    let home = Home::new();
    let made = home.said(0, &["plugins", "index"]);
    assert!(made.contains("2 applications"), "{made}");
    assert!(home.said(0, &["plugins", "index"]).contains("nothing had changed"));
    assert!(
        home.said(0, &["plugins", "find", "--id", "one", "--locale", "de_DE.UTF-8"])
            .contains("Eins")
    );
    assert_eq!(home.said(1, &["plugins", "find", "--protocol", "nothing"]), "");
    let found = home
        .said(0, &["plugins", "find", "--namespace", "kf5", "--where", "Id == 'one'", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["plugins"][0]["properties"]["Name"], "One");
    let whole = home.said(0, &["plugins", "show", "one", "--json"]);
    assert!(whole.starts_with("{\n  \"schema\": "), "{whole}");
    let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["schema"], "unjank.plugins.show/1");
    assert_eq!(whole["metadata"]["MetaData"]["KPlugin"]["Name[de]"], "Eins");
    let shown = home.said(0, &["plugins", "show", "one"]);
    assert!(shown.contains("\nMetaData.KPlugin.Name[de]  Eins\n"), "{shown}");
    assert!(home.said(2, &["plugins", "show", "two"]).contains("no plugin has this identifier"));
    assert!(home.said(2, &["plugins", "list", "--where", "Id =="]).contains("at character 6"));
}

#[test]
fn a_change_is_noticed_and_said() {
    let home = Home::new();
    home.said(0, &["plugins", "index"]);
    assert!(home.said(0, &["plugins", "index", "--check"]).contains("current"));
    fs::copy(home.path("plugins/kf5/one.so"), home.path("plugins/kf5/two.so")).unwrap();
    assert!(home.said(1, &["plugins", "index", "--check"]).contains("kf5 changed"));
    assert_eq!(
        home.said(0, &["plugins", "find", "--id", "one", "--stale", "use"]).lines().count(),
        2
    );
    assert_eq!(home.said(0, &["plugins", "find", "--id", "one"]).lines().count(), 3);
}

#[test]
fn the_small_program_makes_the_same_index_without_a_word() {
    let home = Home::new();
    let ran = |words: &[&str]| home.command(UNJANK_INDEX).args(words).output().unwrap();
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    let made = ran(&[]);
    assert_eq!((made.status.code(), text(made)), (Some(0), String::new()));
    assert!(home.said(0, &["plugins", "index"]).contains("nothing had changed"));
    assert!(text(ran(&["--help"])).contains("Usage: unjank-index"));
    // The machine's own plugins count, too.
    let found = || -> u32 {
        let told = text(ran(&["ask", "plugins", "kf5", "1"]));
        told.split_whitespace().nth(1).map_or(0, |count| count.parse().unwrap())
    };
    let before = found();
    fs::copy(home.path("plugins/kf5/one.so"), home.path("plugins/kf5/two.so")).unwrap();
    assert_eq!((before > 0, found()), (true, 0), "what has changed gives no answer");
    // What changed in the moment in which an index is made is looked at again, and gives no answer until then.
    sys::file_clock::wait_until_later();
    assert_eq!(ran(&[]).status.code(), Some(0));
    assert_eq!(found(), before + 1);

    let homeless =
        home.command(UNJANK_INDEX).env_remove("XDG_CACHE_HOME").env_remove("HOME").output();
    for (told, reason) in [
        (ran(&["now"]), "takes no arguments"),
        (homeless.unwrap(), "neither XDG_CACHE_HOME nor HOME is set"),
    ] {
        assert_eq!(told.status.code(), Some(2));
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(said.starts_with("unjank-index: ") && said.contains(reason), "{said}");
    }
}

#[test]
fn a_default_is_chosen_and_explained() {
    let home = Home::new();
    assert_eq!(home.said(0, &["apps", "default", "image/png"]), "painter.desktop\n");
    let list = home.path("config/mimeapps.list");
    fs::write(&list, "# mine\n[Default Applications]\nvideo/mp4=x.desktop\n").unwrap();
    home.said(0, &["apps", "set-default", "writer", "image/png"]);
    let text = fs::read_to_string(&list).unwrap();
    assert!(
        text.starts_with(
            "# mine\n[Default Applications]\nvideo/mp4=x.desktop\nimage/png=writer.desktop\n"
        ),
        "{text}"
    );
    assert_eq!(home.said(0, &["apps", "default", "image/png"]), "writer.desktop\n");
    let said = home.said(0, &["apps", "explain", "image/png"]);
    assert!(
        said.starts_with(&format!(
            "writer.desktop opens image/png: line 4 of {} makes it the default",
            list.display()
        )),
        "{said}"
    );
    assert!(said.contains("comes later"), "{said}");
    assert_eq!(home.said(1, &["apps", "default", "audio/ogg"]), "");
    assert!(home.said(2, &["apps", "set-default", "nobody", "image/png"]).contains("hint: "));
    assert_eq!(fs::read_to_string(&list).unwrap(), text);
}

#[test]
fn applications_are_found_by_words() {
    let home = Home::new();
    assert!(home.said(0, &["apps", "find", "LETTER"]).contains("writer.desktop"));
    assert!(!home.said(0, &["apps", "list"]).contains("painter.desktop"));
    assert!(
        home.said(0, &["apps", "list", "--all", "--locale", "de"]).contains("painter auf Deutsch")
    );
    assert!(
        home.said(0, &["apps", "for", "text/plain", "--json"])
            .contains("\"id\": \"writer.desktop\"")
    );
    assert_eq!(home.said(1, &["apps", "find", "nothing-at-all"]), "");
}

#[test]
fn without_a_home_it_answers_and_says_what_an_index_needs() {
    let home = Home::new();
    let homeless = |words: &[&str]| {
        let mut command = home.command(UNJANK);
        for name in ["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        command.args(words).output().unwrap()
    };
    assert_eq!(homeless(&["plugins", "find", "--id", "one"]).status.code(), Some(0));
    let none = homeless(&["apps", "default", "text/x-none"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
    assert_eq!(none.stderr, b"unjank: no application matches\n");
    let none = homeless(&["plugins", "find", "--id", "nobody"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
    assert!(none.stderr.starts_with(b"unjank: no plugin "));
    let output = homeless(&["plugins", "index"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("XDG_CACHE_HOME") && said.contains("hint: set HOME"), "{said}");
    assert!(!Path::new("unjank").exists());
}

#[test]
fn where_nothing_can_be_stored_questions_are_answered_all_the_same() {
    let home = Home::new();
    // Not even root can make a directory in a file.
    let nowhere = home.path("plugin.s");
    let asked = |words: &[&str]| {
        home.command(UNJANK).env("XDG_CACHE_HOME", &nowhere).args(words).output().unwrap()
    };
    let found = asked(&["apps", "default", "text/plain"]);
    assert!(String::from_utf8(found.stdout).unwrap().contains("writer.desktop"));
    assert_eq!(asked(&["plugins", "find", "--id", "one"]).status.code(), Some(0));
    let output = asked(&["plugins", "index"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot lock"), "{said}");
}

#[test]
fn every_figure_of_the_benchmark_is_measured_and_nothing_is_left() {
    if !fixture::has(&["g++", "pkg-config", "kbuildsycoca5", "gio", "xdg-mime"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(UNJANK);
        command.args(["bench", "plugins", "--quick", "--warm", "--json", "--dir"]).arg(dir.path());
        let output = command.args(arguments).output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), document)
    };
    let (code, document) = bench(&["--peer", "xdg-mime=xdg-mime query default {type}"]);
    assert_eq!(document["schema"], "unjank.bench.plugins/1");
    assert_eq!(document["missing"].as_array().unwrap().len(), 0, "{:#}", document["missing"]);
    assert_eq!(code, Some(0), "a quick run judges no time: {document:#}");
    let figures = document["figures"].as_array().unwrap();
    let ids: Vec<&str> = figures.iter().map(|figure| figure["id"].as_str().unwrap()).collect();
    let wanted = [
        "first",
        "first-mime",
        "plugins",
        "plugin",
        "plugin-last",
        "again",
        "again-mime",
        "build",
        "unchanged",
        "unchanged-inside",
        "added",
        "added-inside",
        "size",
        "command",
        "peers",
    ];
    assert_eq!(ids, wanted);
    for figure in figures {
        assert!(figure["ours"]["median"].as_f64().unwrap() > 0.0, "{figure:#}");
        let has_peer = figure["peer"]["median"].as_f64().is_some();
        let is_inside = figure["id"].as_str().unwrap().ends_with("-inside");
        assert_eq!(has_peer, !is_inside, "{figure:#}");
    }
    let (code, document) = bench(&["--only", "first", "--app", "org.unjank.Nobody"]);
    assert_eq!(code, Some(2), "{document:#}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_daemon_makes_the_index_anew_before_anybody_asks() {
    let home = Home::new();
    fs::create_dir(home.path("runtime")).unwrap();
    let mut daemon = home.command(UNJANKD);
    daemon.args(["--names", "session", "--idle-exit", "0"]);
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    // Neither of these makes an index itself.
    let check = ["plugins", "index", "--check"];
    let is_current = |output: &Output| output.status.code() == Some(0);
    home.until(&check, is_current);

    // In its place: the directory is what it was.
    let plugin = home.path("plugins/kf5/one.so");
    let mut bytes = fs::read(&plugin).unwrap();
    let at = bytes.windows(3).position(|window| window == b"One").unwrap();
    bytes[at..at + 3].copy_from_slice(b"Two");
    let mut file = fs::File::options().write(true).open(&plugin).unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    drop(file);
    let find = ["plugins", "find", "--id", "one", "--stale", "use"];
    home.until(&find, |output| String::from_utf8_lossy(&output.stdout).contains("Two"));

    // A directory that was not there when the watch began, and a file in it.
    fs::create_dir_all(home.path("plugins/kf6/new")).unwrap();
    home.until(&check, is_current);
    fs::copy(&plugin, home.path("plugins/kf6/new/two.so")).unwrap();
    home.until(&["plugins", "find", "--namespace", "kf6/new", "--stale", "use"], is_current);

    // A choice of the user's, in a file that was not there.
    let choice = "[Default Applications]\nimage/png=writer.desktop\n";
    fs::write(home.path("config/mimeapps.list"), choice).unwrap();
    home.until(&["apps", "default", "image/png", "--stale", "use"], |output| {
        output.stdout == b"writer.desktop\n"
    });

    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn the_daemon_makes_an_index_after_one_could_not_be_made() {
    let home = Home::new();
    fs::create_dir(home.path("runtime")).unwrap();
    let mut daemon = home.command(UNJANKD);
    daemon.args(["--names", "session", "--idle-exit", "0", "--verbose"]);
    let mut daemon = daemon.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_for = |text: &str| assert!(lines.any(|line| line.contains(text)), "{text}");
    wait_for("the index of plugins and applications is new");
    // A file that the disk does not give.
    let sick = home.path("plugins/kf5/sick.so");
    std::os::unix::fs::symlink("/proc/self/mem", &sick).unwrap();
    wait_for("cannot make the index of plugins and applications");
    fs::remove_file(&sick).unwrap();
    fs::copy(home.path("plugins/kf5/one.so"), home.path("plugins/kf5/two.so")).unwrap();
    wait_for("the index of plugins and applications is new");
    let find = ["plugins", "find", "--namespace", "kf5", "--stale", "use"];
    home.until(&find, |output| String::from_utf8_lossy(&output.stdout).contains("two.so"));

    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    lines.for_each(drop);
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn the_daemon_watches_again_after_there_were_no_watches_left() {
    fixture::in_time(|| {
        if !fixture::has(&["unshare"]) {
            return;
        }
        let home = Home::new();
        fs::create_dir(home.path("runtime")).unwrap();
        // Its own limit of watches, in a user namespace of its own. The shell sets it whenever it is told a number.
        let script = r#""$0" --names session --idle-exit 0 --verbose &
        while read limit; do
            echo "$limit" >/proc/sys/user/max_inotify_watches || break
            echo "the limit is $limit" >&2
        done
        kill $!; wait $!"#;
        let mut daemon = home.command("unshare");
        daemon.args(["--user", "--map-root-user", "sh", "-c", script, UNJANKD]);
        let daemon = daemon.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut daemon = daemon.spawn().unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut limits = daemon.stdin.take().unwrap();
        let mut wait_for = |text: &str| lines.any(|line| line.contains(text));
        writeln!(limits, "1000").unwrap();
        if !wait_for("the limit is 1000") {
            daemon.wait().unwrap();
            return fixture::skip("the limit of watches of a user namespace cannot be set");
        }
        let copy_to = |name: &str| {
            let name = home.path(&format!("plugins/kf5/{name}.so"));
            fs::copy(home.path("plugins/kf5/one.so"), name).unwrap();
        };
        let until_found = |name: &str| {
            let find = ["plugins", "find", "--namespace", "kf5", "--stale", "use"];
            home.until(&find, |output| String::from_utf8_lossy(&output.stdout).contains(name));
        };
        home.until(&["plugins", "index", "--check"], |output| output.status.success());
        copy_to("before");
        until_found("before.so");
        writeln!(limits, "0").unwrap();
        assert!(wait_for("the limit is 0"));
        // An index is made of this change, and nothing can be watched any more for the next one.
        copy_to("two");
        assert!(wait_for("cannot watch plugins and applications"));
        until_found("two.so");
        writeln!(limits, "1000").unwrap();
        assert!(wait_for("the limit is 1000"));
        copy_to("three");
        until_found("three.so");

        drop(limits);
        lines.for_each(drop);
        daemon.wait().unwrap();
    });
}
