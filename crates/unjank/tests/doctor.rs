//! `unjank doctor` on machines in every state: it measures, changes nothing, and says what it could not do.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr, reason = "a test")]

use crate::fixture;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_unjank");

/// A user's directories, with a database of a few keys.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        Home::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Home {
        let dir = tempfile::tempdir_in(parent).unwrap();
        for name in ["home/.config/dconf", "run", "tmp"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let value = |number: u8| vec![number, 0, 0, 0, 0, b'i'];
        let entries: Vec<(String, Vec<u8>)> =
            (0..40).map(|number| (format!("/org/example/key{number:02}"), value(number))).collect();
        let entries = entries.iter().map(|(name, value)| (&**name, &**value));
        let image = gvdb::write(entries, &gvdb::Image::default()).unwrap();
        fs::write(dir.path().join("home/.config/dconf/user"), image).unwrap();
        Home { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn doctor(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("doctor")
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.at("home"))
            .env("XDG_RUNTIME_DIR", self.at("run"))
            .env("TMPDIR", self.at("tmp"));
        command
    }

    /// Describes everything below the user's directories: names, contents, owners, modes, times.
    fn state(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u32, i64)> {
        let mut state = BTreeMap::new();
        let mut left = vec![self.dir.path().to_owned()];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let data = entry.metadata().unwrap();
                let (bytes, time) = if data.is_dir() {
                    left.push(entry.path());
                    // A directory's own time tells of files that came and went, which is allowed.
                    (Vec::new(), 0)
                } else {
                    (fs::read(entry.path()).unwrap(), data.mtime_nsec() + data.mtime())
                };
                state.insert(entry.path(), (bytes, data.uid(), data.mode(), time));
            }
        }
        state
    }
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn finding<'a>(document: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {document:#}"))
}

/// Makes a file system of `kind` on a loop device or in memory, if we may; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, options: &str) -> Option<Mount> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Mount(at.to_owned()));
        }
        // Only root mounts; the gate runs both as root and not.
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        assert!(!(root && std::env::var_os("REQUIRE_ALL").is_some()), "cannot mount a tmpfs");
        eprintln!("SKIPPED: cannot mount a tmpfs");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.0).output().unwrap();
    }
}

#[test]
fn all_probes_run_without_a_bus_and_nothing_is_changed() {
    let home = Home::new();
    let before = home.state();
    let start = Instant::now();
    let output = home.doctor(&["--json"]).output().unwrap();
    // A busy machine takes several times as long as the 20 s that are promised; one that hangs takes for ever.
    assert!(start.elapsed() < Duration::from_secs(600), "{:?}", start.elapsed());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let document = json(&output);
    assert_eq!(document["schema"], "unjank.doctor/1");
    assert!(document["hangs"].is_null(), "hangs were never recorded here");
    assert_eq!(document["bad"].as_bool(), Some(output.status.code() == Some(1)));
    assert_eq!(finding(&document, "sync (")["kind"], "time");
    assert_eq!(finding(&document, "replace a file")["kind"], "time");
    assert_eq!(finding(&document, "read a setting")["kind"], "time");
    assert_eq!(finding(&document, "service now")["text"], "there is no session bus");
    let database = finding(&document, "database")["text"].as_str().unwrap().to_owned();
    assert!(
        database.starts_with("~/.config/dconf/user: ") && database.contains("40 keys"),
        "{database}"
    );
    // All that it leaves is its own record of the figures, for the next run.
    let figures = fs::read_to_string(home.at("home/.local/state/unjank/doctor.json")).unwrap();
    assert!(figures.contains("unjank.doctor.figures/1"), "{figures}");
    fs::remove_file(home.at("home/.local/state/unjank/doctor.json")).unwrap();
    for directory in ["home/.local/state/unjank", "home/.local/state", "home/.local"] {
        fs::remove_dir(home.at(directory)).unwrap();
    }
    assert_eq!(home.state(), before);
}

#[test]
fn a_write_is_measured_through_the_installed_service_and_ours() {
    if !Path::new("/usr/libexec/dconf-service").exists()
        || !Path::new("/usr/bin/dbus-daemon").exists()
    {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "no dconf-service or dbus-daemon");
        eprintln!("SKIPPED: no dconf-service or dbus-daemon");
        return;
    }
    let home = Home::new();
    let before = home.state();
    let output = home.doctor(&["--json", "--only", "settings"]).output().unwrap();
    let document = json(&output);
    for name in ["write a setting, installed", "write a setting, unjank"] {
        let found = finding(&document, name);
        assert_eq!(found["kind"], "time", "{found:#}");
        assert!(found["time"]["n"].as_u64().unwrap() >= 2);
    }
    assert_eq!(home.state(), before);
}

#[test]
fn a_machine_without_home_bus_or_environment_is_measured_as_far_as_it_goes() {
    let output = Command::new(PROGRAM).args(["doctor", "--json"]).env_clear().output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let document = json(&output);
    assert_eq!(finding(&document, "sync (temp)")["kind"], "time");
    let settings = finding(&document, "settings");
    assert_eq!(settings["kind"], "skipped");
    assert!(settings["text"].as_str().unwrap().starts_with("there is no home directory"));
}

#[test]
fn an_ordinary_user_can_run_it() {
    if !rustix::process::geteuid().is_root() {
        // The other tests have shown it.
        return;
    }
    let home = Home::new();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["", "home", "home/.config", "home/.config/dconf", "run", "tmp"] {
        open(&home.at(name));
        std::os::unix::fs::chown(home.at(name), Some(65534), Some(65534)).unwrap();
    }
    let program = home.at("unjank");
    fixture::copy_program(PROGRAM, &program);
    open(&program);
    let mut command = home.doctor(&["--json"]);
    let arguments: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let environment: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.unwrap().to_owned()))
        .collect();
    command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    let output = command.args(arguments).env_clear().envs(environment).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let document = json(&output);
    assert_eq!(finding(&document, "replace a file")["kind"], "time");
    assert_eq!(finding(&document, "read a setting")["kind"], "time");
}

#[test]
fn a_read_only_and_a_full_disk_are_named_and_the_rest_is_measured() {
    let home = Home::new();
    let Some(_full) = Mount::tmpfs(&home.at("run"), "size=64k") else { return };
    fs::write(home.at("run/filler"), vec![1; 60 << 10]).unwrap();
    let rest = fs::OpenOptions::new().append(true).open(home.at("run/filler")).unwrap();
    // To the last page.
    while std::io::Write::write_all(&mut &rest, &[1; 4096]).is_ok() {}
    let Some(_read_only) = Mount::tmpfs(&home.at("tmp"), "size=64k,ro") else { return };
    let output = home.doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document = json(&output);
    assert!(
        finding(&document, "file system (runtime)")["text"].as_str().unwrap().starts_with("full: ")
    );
    assert!(
        finding(&document, "file system (temp)")["text"]
            .as_str()
            .unwrap()
            .starts_with("read-only: ")
    );
    assert_eq!(finding(&document, "replace a file (runtime)")["kind"], "skipped");
    assert!(finding(&document, "sync (temp)")["text"].as_str().unwrap().ends_with("is read-only"));
    assert_eq!(finding(&document, "sync (home)")["kind"], "time");
    assert_eq!(
        finding(&document, "read a setting")["kind"],
        "time",
        "a place for the copy was found"
    );
}

#[test]
fn where_nothing_can_be_saved_is_wrong_whatever_hinders_it() {
    let home = Home::new();
    // Room for bytes, and for no file beyond the directory itself.
    let Some(_few) = Mount::tmpfs(&home.at("run"), "size=8m,nr_inodes=1") else { return };
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        json(&output)
    };
    let document = run(&mut home.doctor(&["--only", "storage", "--json"]));
    let told = finding(&document, "file system (runtime)");
    assert_eq!(told["kind"], "wrong", "{told}");
    assert!(told["text"].as_str().unwrap().contains("holds no more files: tmpfs"), "{told}");
    assert_eq!(finding(&document, "sync (runtime)")["kind"], "skipped", "it is told once");
    assert_eq!(finding(&document, "sync (home, temp)")["kind"], "time");
    // A home of somebody else; the directory for temporary files is on the same file system.
    let program = home.at("unjank");
    fixture::copy_program(PROGRAM, &program);
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(&program);
    open(&home.at(""));
    fs::set_permissions(home.at("tmp"), fs::Permissions::from_mode(0o777)).unwrap();
    let as_other = |home_dir: &Path, temp_dir: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.args(["doctor", "--only", "storage", "--json"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", home_dir).env("TMPDIR", temp_dir);
        command.output().unwrap()
    };
    let output = as_other(&home.at("home"), &home.at("tmp"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document = json(&output);
    let told = finding(&document, "file system (home, temp)");
    assert_eq!(told["kind"], "wrong", "{told}");
    let is_denied_in = |told: &serde_json::Value, dir: &Path| {
        let text = told["text"].as_str().unwrap();
        assert!(text.contains("Permission denied"), "{text}");
        assert!(text.contains(&format!(" in {}: ", dir.display())), "{text}");
    };
    is_denied_in(told, &home.at("home/.config"));
    // A directory for temporary files of somebody else, on the file system of a home in which all can be saved.
    let output = as_other(&home.at("tmp"), &home.at("home"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document = json(&output);
    let told = finding(&document, "file system (home, temp)");
    assert_eq!(told["kind"], "wrong", "{told}");
    is_denied_in(told, &home.at("home"));
    assert_eq!(finding(&document, "sync (home, temp)")["kind"], "time");
    // A home that is not there is none that is damaged.
    let output = as_other(&home.at("nobody/at/all"), &home.at("tmp"));
    let document = json(&output);
    assert_eq!(finding(&document, "file system (home, temp)")["kind"], "note", "{output:?}");
    assert_eq!(finding(&document, "sync (home, temp)")["kind"], "skipped");
}

#[test]
fn the_terminal_gets_a_verdict_a_table_and_no_colour_on_a_pipe() {
    let home = Home::new();
    let output = home.doctor(&["--only", "storage"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().next().unwrap().contains("frame of 16.7 ms"), "{text}");
    assert!(text.contains("median") && !text.contains('\x1b'), "{text}");
    let steps = String::from_utf8(output.stderr).unwrap();
    assert!(steps.lines().any(|line| line.starts_with("storage: sync (")), "{steps}");
    assert!(!steps.contains("settings:"), "only what was asked for: {steps}");
}

#[test]
fn a_smaller_frame_is_missed_and_exits_with_1() {
    let home = Home::new();
    let output = home.doctor(&["--only", "storage", "--frame", "1us"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("misses"));
}

#[test]
fn a_wrong_argument_exits_with_2_and_says_what_would_be_right() {
    let home = Home::new();
    for (arguments, right) in
        [(["--only", "storrage"], "storage"), (["--frame", "fast"], "for example")]
    {
        let output = home.doctor(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains(right));
    }
}

#[test]
fn a_page_is_written_beside_the_text_and_never_over_a_file() {
    let home = Home::new();
    let path = home.at("page.html");
    let page = path.to_str().unwrap();
    home.doctor(&["--only", "storage", "-o", page]).output().unwrap();
    let html = fs::read_to_string(&path).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg"));
    let output = home.doctor(&["--only", "storage", "-o", page]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), html);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("unjank: cannot write "), "before anything is measured: {said}");
    assert!(said.contains(page) && said.contains("hint: "), "{said}");

    let output =
        home.doctor(&["--only", "background", "-o", "/no/such/page.html"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_narrow_pipe_gets_the_times_too() {
    let home = Home::new();
    let mut command = home.doctor(&["--only", "storage,recents"]);
    let text = String::from_utf8(command.env("COLUMNS", "40").output().unwrap().stdout).unwrap();
    let table = text.split("\n\n").nth(1).unwrap();
    let has_time = [" ms", " us", " s "].iter().any(|unit| table.contains(unit));
    assert!(table.contains("median") && has_time, "{text}");
    assert!(table.lines().all(|line| line.chars().count() <= 40), "{text}");
}

#[test]
fn a_home_without_a_data_directory_is_measured_too() {
    let home = Home::new();
    let document = json(&home.doctor(&["--json", "--only", "recents"]).output().unwrap());
    assert!(!home.at("home/.local").exists());
    assert_eq!(finding(&document, "one add as KDE's")["kind"], "time", "{document:#}");
    // No document in the temporary directory is remembered, nor one in a hidden folder.
    let text = finding(&document, "one add by unjank")["text"].as_str().unwrap();
    assert!(text.starts_with("the rules leave it out: "), "{document:#}");
    assert_eq!(finding(&document, "the off switch of unjank")["kind"], "note");
}

#[test]
fn an_interrupted_run_tells_what_it_knows_and_leaves_nothing() {
    let home = Home::new();
    let before = home.state();
    let mut child =
        home.doctor(&["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut steps = BufReader::new(child.stderr.take().unwrap()).lines();
    let replacing =
        steps.by_ref().map_while(Result::ok).find(|line| line.contains("replace a file"));
    assert!(replacing.is_some());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let rest: Vec<String> = steps.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["interrupted"], true);
    assert_eq!(finding(&document, "sync (")["kind"], "time");
    assert!(rest.last().unwrap().contains("interrupted"), "{rest:?}");
    assert_eq!(home.state(), before);
}

#[test]
fn background_units_without_manners_and_settings_that_do_nothing_are_named() {
    let home = Home::new();
    let units = home.at("home/.config/systemd/user");
    let put = |name: &str, text: &str| {
        let path = units.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("borgmatic.service", "[Service]\nExecStart=/usr/bin/borgmatic\n");
    put("restic-backup.service", "[Service]\nExecStart=/usr/bin/restic\n");
    put("restic-backup.service.d/idle.conf", "[Service]\nIOSchedulingClass=idle\n");
    put("mine.service", "[Service]\nIOWeight=10\n");
    let output = home.doctor(&["--only", "background", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "nothing of it is broken");
    let document = json(&output);
    let named = |name: &str| finding(&document, name);
    let units = named("background units of the user");
    let text = units["text"].as_str().unwrap();
    assert!(text.contains("borgmatic.service") && !text.contains("restic"), "{text}");
    // What root adopts are the system's.
    if !rustix::process::geteuid().is_root() {
        let command = units["advice"][0]["command"].as_str().unwrap();
        assert!(command.ends_with("unjank run --adopt-units"), "{command}");
    }
    // Nobody delegates to a user without a manager.
    let user = rustix::process::geteuid().as_raw();
    let manager = format!("user.slice/user-{user}.slice/user@{user}.service");
    if !Path::new("/sys/fs/cgroup").join(manager).exists() {
        let weights = named("IOWeight= of the user's units");
        assert!(weights["text"].as_str().unwrap().contains("mine.service"), "{document:#}");
    }
    assert!(named("holding a job")["text"].as_str().unwrap().starts_with("by "));
    // Once adopted it is told no more.
    let mut adopt = Command::new(PROGRAM);
    adopt.args(["run", "--adopt-units"]).env_clear().env("HOME", home.at("home"));
    adopt.env("XDG_CONFIG_HOME", home.at("home/.config"));
    if !rustix::process::geteuid().is_root() {
        assert!(adopt.status().unwrap().success());
        let document = json(&home.doctor(&["--only", "background", "--json"]).output().unwrap());
        assert!(!document.to_string().contains("do not step back: borgmatic"), "{document:#}");
    }
}
