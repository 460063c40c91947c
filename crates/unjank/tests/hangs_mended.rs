//! What mends a hang, and what it brought: a write of a setting that waits, the same hangs before and after a part was switched on,
//! and the sentence with which the doctor begins.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panics")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use hangs::model::{CallObject, CallShare, Hang, HangCause, HangRecord, ObjectKind};
use hangs::model::{ProgramSteps, WatchedPeriod};
use hangs::store::{DEFAULT_LIMIT, HangStore};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use setup::plan::{PlannedContents, PlannedFile, RELAX_FILE, relax_environment};
use setup::{ForeignFiles, Installation, SessionDirectories, SetupLayout, SetupPart};
use trace::report::account::TimeParts;

use crate::fixture::{Bus, NAME, REAL, has, in_time, skip};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
const HOUR: u64 = 3_600_000_000_000;

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goes on with a stopped process at the end, so that it can end, too.
struct Stopped(Pid);

impl Stopped {
    fn new(process: u32) -> Stopped {
        let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command)).unwrap()
}

/// Builds the program that writes settings; none where that cannot be done.
fn writer(dir: &Path) -> Option<PathBuf> {
    if !has(&["cc", "pkg-config"]) {
        return None;
    }
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "dconf"]).output().unwrap();
    if !flags.status.success() || !Path::new(REAL).exists() {
        skip("no libdconf-dev, or no dconf-service");
        return None;
    }
    let program = dir.join("writes-settings");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/writes_settings.c");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let mut build = Command::new("cc");
    build.args(["-g", "-Wall", "-o"]).args([&program, &source]).args(flags.split_whitespace());
    assert!(build.status().unwrap().success());
    Some(program)
}

/// What is installed for a user with these directories.
fn layout(home: &Path, config: &Path, data: &Path, state: &Path) -> SetupLayout {
    let [home, config, data, state] = [home, config, data, state].map(Path::to_owned);
    SetupLayout::of_user(&SessionDirectories { home, config, data, state })
}

/// Has it recorded that `relax` was switched on at a moment, as `unjank setup relax` does.
fn switch_relax_on(layout: &SetupLayout, at: SystemTime) {
    let disk = store::disk::real();
    let text = relax_environment(Path::new("/usr/lib/unjank/libunjank-relax.so"), "%h").unwrap();
    let file = PlannedFile {
        part: SetupPart::Relax,
        path: layout.environment.join(RELAX_FILE),
        contents: PlannedContents::Text(text),
        mode: 0o644,
    };
    let owner = rustix::process::geteuid().as_raw();
    let installation = Installation::open(&*disk, layout.clone(), owner).unwrap();
    installation.dated(at).switch_on(&[file], ForeignFiles::Refuse).unwrap();
}

#[test]
fn a_real_write_of_a_setting_that_waits_has_the_command_that_mends_it() {
    in_time(|| {
        let Some(bus) = Bus::start_with(&[REAL]) else { return };
        let Some(program) = writer(bus.dir()) else { return };
        let mut recorder = bus.command(UNJANK);
        recorder.args(["hangs", "record", "--program", "writes-settings"]).stderr(Stdio::null());
        let _recorder = Ended(recorder.spawn().unwrap());
        let mut command = bus.command(&program);
        let mut writer =
            Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut stored = BufReader::new(writer.0.stdout.take().unwrap());
        let write = || {
            let mut commands = writer.0.stdin.as_ref().unwrap();
            commands.write_all(b"w").unwrap();
        };
        let mut is_stored = || {
            let mut line = String::new();
            stored.read_line(&mut line).unwrap();
            assert_eq!(line, "stored\n");
        };
        // The first one starts the service.
        write();
        is_stored();
        let service = bus.client().wait_for_owner(NAME).unwrap();
        let service = bus.client().pid_of(&service).unwrap();
        // What hangs before the recorder follows the program is not recorded.
        let hang = loop {
            let stopped = Stopped::new(service);
            write();
            std::thread::park_timeout(Duration::from_millis(500));
            drop(stopped);
            is_stored();
            let hangs = json(bus.command(UNJANK).args(["hangs", "--all", "--json"]));
            let hangs = hangs["hangs"].as_array().unwrap();
            // One that was followed from its beginning on, and not told after the main loop was found; programs of others on a display
            // are recorded, too.
            let has_any = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            let is_whole = |hang: &&Value| {
                hang["program"] == "writes-settings"
                    && hang["length_ns"].as_u64().unwrap() > 300_000_000
                    && has_any(&hang["calls"])
                    && (has_any(&hang["frames"]) || !hang["chain"].is_null())
            };
            if let Some(hang) = hangs.iter().find(is_whole) {
                break hang.clone();
            }
        };
        assert_eq!(hang["command"], "unjank setup settings", "{hang:#}");
        assert_eq!(hang["remedy"]["state"], "off", "{hang:#}");
        let number = hang["number"].to_string();
        let sheet = stdout(bus.command(UNJANK).args(["hangs", "show", &number]));
        assert!(sheet.contains("unjank setup settings"), "{sheet}");
    });
}

/// A hang that waited for the sync of a file.
fn sync_of(number: u64, started_ns: u64, program: &str, path: &str) -> Hang {
    let object = CallObject {
        kind: ObjectKind::File,
        name: path.to_owned(),
        file_system: "ext4".to_owned(),
        device: "vda".to_owned(),
    };
    let blocked_ns = 700_000_000;
    Hang {
        number,
        started_ns,
        length_ns: blocked_ns,
        process: 12,
        program: program.to_owned(),
        cause: HangCause::Sync,
        parts: TimeParts { call_ns: blocked_ns, ..TimeParts::default() },
        calls: vec![CallShare { call: "fsync".into(), blocked_ns, seen: 1, object: Some(object) }],
        ..Hang::default()
    }
}

/// A home with a store of hangs.
struct Home {
    dir: tempfile::TempDir,
    store: HangStore,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::Builder::new().prefix("home").tempdir().unwrap();
        for name in ["home/.config", "home/.local/share", "home/.local/state", "run", "tmp"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let store = dir.path().join("home/.local/state/unjank/hangs");
        let store = HangStore::open(store::disk::real(), &store, DEFAULT_LIMIT).unwrap();
        Home { dir, store }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn layout(&self) -> SetupLayout {
        let home = self.home();
        let below = |name: &str| home.join(name);
        layout(&home, &below(".config"), &below(".local/share"), &below(".local/state"))
    }

    fn list(&self) -> String {
        format!("{}/.local/share/recently-used.xbel", self.home().display())
    }

    fn hang(&mut self, started_ns: u64, program: &str, path: &str) {
        let number = self.store.take_number();
        let hang = sync_of(number, started_ns, program, path);
        self.store.append(&[HangRecord::Hang(Box::new(hang))]).unwrap();
    }

    fn watched(&mut self, from_ns: u64, to_ns: u64) {
        let length_ns = to_ns - from_ns;
        let of_program = |program: &str| ProgramSteps {
            program: program.to_owned(),
            watched_ns: length_ns,
            present_ns: length_ns,
            processes: 1,
            ..ProgramSteps::default()
        };
        let period = WatchedPeriod {
            from_ns,
            to_ns,
            recorder_ns: length_ns,
            watched_ns: length_ns,
            programs: ["dolphin", "kate"].map(of_program).to_vec(),
            ..WatchedPeriod::default()
        };
        self.store.append(&[HangRecord::Watched(period)]).unwrap();
    }

    fn unjank(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(UNJANK);
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home());
        let at = |name: &str| self.dir.path().join(name);
        command.env("XDG_RUNTIME_DIR", at("run")).env("TMPDIR", at("tmp"));
        command
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

#[test]
fn compare_shows_what_a_part_brought_whatever_else_hung() {
    in_time(|| {
        let mut home = Home::new();
        let at_ns = (now_ns() - 5 * HOUR) / 1_000_000_000 * 1_000_000_000;
        let list = home.list();
        home.watched(at_ns - 4 * HOUR, at_ns);
        home.watched(at_ns + 1, at_ns + 4 * HOUR);
        let minute = HOUR / 60;
        for number in 0..9 {
            home.hang(at_ns - HOUR + number * minute, "dolphin", &format!("{list}.A1b2C3"));
        }
        // The others hang as before, and more than those.
        for number in 0..30 {
            home.hang(at_ns - 2 * HOUR + number * minute, "kate", "/srv/notes");
            home.hang(at_ns + 2 * HOUR + number * minute, "kate", "/srv/notes");
        }
        let off = home.unjank(&["hangs", "compare", "relax"]).output().unwrap();
        assert_eq!(off.status.code(), Some(2), "{off:?}");
        let said = String::from_utf8_lossy(&off.stderr).into_owned();
        assert!(said.contains("it is not on") && said.contains("unjank setup relax"), "{said}");
        let listed = stdout(&mut home.unjank(&["hangs", "--all"]));
        assert!(listed.contains("unjank setup relax"), "{listed}");

        switch_relax_on(&home.layout(), SystemTime::UNIX_EPOCH + Duration::from_nanos(at_ns));
        // It is not told to be switched on any more.
        let listed = stdout(&mut home.unjank(&["hangs", "--all"]));
        assert!(!listed.contains("unjank setup relax"), "{listed}");
        assert!(listed.contains("unjank hangs compare relax"), "{listed}");

        let text = stdout(&mut home.unjank(&["hangs", "compare", "relax"])).replace('\n', " ");
        assert!(
            text.starts_with("Fewer hangs that relax mends since relax was switched on"),
            "{text}"
        );
        assert!(text.contains("before: 9 hangs") && text.contains("after: 0 hangs"), "{text}");
        assert!(text.contains("all hangs, before: 39 hangs"), "{text}");
        assert!(text.contains("after the next login"), "{text}");
        let compared = json(&mut home.unjank(&["hangs", "compare", "relax", "--json"]));
        assert_eq!(compared["at_unix_ns"], at_ns);
        assert_eq!(compared["difference"], "fewer", "{compared:#}");
        assert_eq!(compared["counted"]["part"], "relax");
        assert_eq!(compared["all"]["after"]["hangs"], 30, "{compared:#}");

        let moment = format!("@{}", at_ns / 1_000_000_000);
        let date = stdout(Command::new("date").args(["-u", "-d", &moment, "+%Y-%m-%dT%H:%M:%SZ"]));
        let hangs = |filters: &[&str]| {
            let words = [&["hangs", "compare", date.trim(), "--json"][..], filters].concat();
            let compared = json(&mut home.unjank(&words));
            let of = |side: &str| compared[side]["hangs"].as_u64().unwrap();
            (of("before"), of("after"))
        };
        assert_eq!(hangs(&[]), (39, 30));
        for file in [&*list, "recently-used.xbel", "~/.local/share/recently-used.xbel"] {
            assert_eq!(hangs(&["--file", file]), (9, 0), "{file}");
        }
        assert_eq!(hangs(&["--file", "notes", "--program", "kate"]), (30, 30));
        assert_eq!(hangs(&["--file", "otes"]), (0, 0));
        assert_eq!(hangs(&["--cause", "sync"]), (39, 30));
        assert_eq!(hangs(&["--cause", "waiting until a disk has stored data"]), (39, 30));
        assert_eq!(hangs(&["--cause", "lock"]), (0, 0));
    });
}

#[test]
fn the_doctor_begins_with_what_was_recorded_of_yesterday() {
    in_time(|| {
        let mut home = Home::new();
        let yesterday_ns = now_ns() - 24 * HOUR;
        let list = home.list();
        home.watched(yesterday_ns - HOUR / 60, yesterday_ns + HOUR / 60);
        for program in ["dolphin", "kate", "dolphin"] {
            home.hang(yesterday_ns, program, &format!("{list}.A1b2C3"));
        }
        home.hang(yesterday_ns, "kate", "/srv/notes");
        let page = home.dir.path().join("page.html");
        let output = home.unjank(&["doctor", "-o", page.to_str().unwrap()]).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("Yesterday 4 hangs in "), "{text}");
        let told = "; 3 of them on ~/.local/share/recently-used.xbel on vda by 2 programs; what mends 3: unjank setup relax. ";
        assert!(text.replace('\n', " ").contains(told), "{text}");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(told.trim()), "the page has the same");
    });
}

#[test]
fn the_doctor_says_that_what_is_recorded_cannot_be_read() {
    in_time(|| {
        let home = Home::new();
        let store = home.home().join(".local/state/unjank/hangs");
        std::fs::remove_dir_all(&store).unwrap();
        std::fs::write(&store, "no directory").unwrap();
        let page = home.dir.path().join("page.html");
        let doctor = || {
            let arguments = ["doctor", "--json", "-o", page.to_str().unwrap()];
            let output = home.unjank(&arguments).output().unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
            serde_json::from_slice::<Value>(&output.stdout).unwrap()["hangs"].take()
        };
        assert_eq!(doctor(), Value::Null, "nobody records");
        let unit = home.layout().units.join("unjank-hangs.service");
        std::fs::create_dir_all(unit.parent().unwrap()).unwrap();
        std::fs::write(unit, "[Service]\n").unwrap();
        std::fs::remove_file(&page).unwrap();
        let hangs = doctor();
        let told = "What was recorded of yesterday's hangs cannot be read: ";
        assert!(hangs["sentence"].as_str().unwrap().starts_with(told), "{hangs:#}");
        assert!(hangs["error"].as_str().unwrap().contains("unjank/hangs"), "{hangs:#}");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("yesterday&#39;s hangs cannot be read") || page.contains(told));
    });
}
