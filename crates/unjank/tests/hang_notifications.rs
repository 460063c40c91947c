//! `unjank hangs watch --notify` beside a real recorder, a program that hangs, and a real server of notifications.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panics")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hangs::model::{Hang, HangCause, HangFrame, HangRecord};
use hangs::store::{DEFAULT_LIMIT, HangStore};

use crate::fixture::{Bus, has, in_time};
use crate::recent_home::Display;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// A program with a main loop: it waits for a line, and sleeps for 2.2 s when one comes.
const SLEEPY: &str = "import select, sys, time
waits = select.poll()
waits.register(0, select.POLLIN)
while True:
    waits.poll()
    if not sys.stdin.buffer.raw.read(1):
        break
    time.sleep(2.2)
    print('woke up', flush=True)
";

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_long_hang_is_a_notification_and_a_short_one_is_none() {
    if !has(&["dunst", "dunstctl", "python3"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let Some(display) = Display::start() else { return };
        let script = bus.dir().join("sleepy<b>.py");
        std::fs::write(&script, SLEEPY).unwrap();
        let start = |command: &mut Command| Ended(command.spawn().unwrap());
        let _server =
            start(bus.command("dunst").env("DISPLAY", &display.name).stderr(Stdio::null()));
        bus.client().wait_for_owner("org.freedesktop.Notifications").unwrap();
        let mut recorder = bus.command(UNJANK);
        recorder.args(["hangs", "record", "--program", "sleepy<b>.py"]).stderr(Stdio::null());
        let _recorder = start(&mut recorder);
        let _notifier =
            start(bus.command(UNJANK).args(["hangs", "watch", "--notify"]).stderr(Stdio::null()));
        let mut sleepy =
            start(bus.command("python3").arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut woke = BufReader::new(sleepy.0.stdout.take().unwrap());
        // One that is hung when it is found counts from there: lines are sent until a hang was whole.
        let begin = Instant::now();
        let shown = 'shown: loop {
            let mut keys = sleepy.0.stdin.as_ref().unwrap();
            keys.write_all(b"x").unwrap();
            woke.read_line(&mut String::new()).unwrap();
            let ended = Instant::now();
            // It is stored and shown within moments, unless it was hung when it was found.
            while ended.elapsed() < Duration::from_secs(5) {
                output(bus.command("dunstctl").arg("close-all"));
                let history = output(bus.command("dunstctl").arg("history"));
                if history.contains("froze") {
                    break 'shown history;
                }
                // Each look starts two programs.
                std::thread::park_timeout(Duration::from_millis(50));
            }
            let stored = output(bus.command(UNJANK).args(["hangs", "--json"]));
            assert!(
                begin.elapsed() < Duration::from_secs(90),
                "no notification was shown; recorded: {stored}"
            );
        };
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let last = &shown["data"][0][0];
        let text = |name: &str| last[name]["data"].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("appname"), "unjank");
        assert!(text("summary").starts_with("sleepy<b>.py froze 2."), "{last:#}");
        assert!(text("body").contains("unjank hangs show "), "{last:#}");
        let hangs = output(bus.command(UNJANK).args(["hangs", "--json"]));
        let hangs: serde_json::Value = serde_json::from_str(&hangs).unwrap();
        let long = hangs["hangs"].as_array().unwrap().iter();
        let long = long.filter(|hang| hang["length_ns"].as_u64().unwrap() >= 2_000_000_000).count();
        let all = shown["data"][0].as_array().unwrap();
        let ends = all
            .iter()
            .filter(|one| one["summary"]["data"].as_str().unwrap_or_default().contains(" froze "));
        let ends = ends.count();
        assert!(ends <= long, "{ends} notifications of the ends of {long} long hangs");
        // Once more while it goes on.
        assert!(all.len() <= 2 * long, "{} notifications of {long} long hangs", all.len());
    });
}

/// The program that has a main loop, and what it needs.
struct Scene {
    _server: Ended,
    _recorder: Ended,
    _notifier: Ended,
    sleepy: Ended,
    woke: BufReader<ChildStdout>,
}

impl Scene {
    /// Starts a server of notifications, a recorder, and a program that sleeps for so many seconds each time.
    fn start(bus: &Bus, display: &Display, seconds: &str) -> Scene {
        let script = bus.dir().join("sleepy.py");
        std::fs::write(&script, SLEEPY.replace("2.2", seconds)).unwrap();
        let start = |command: &mut Command| Ended(command.spawn().unwrap());
        let _server =
            start(bus.command("dunst").env("DISPLAY", &display.name).stderr(Stdio::null()));
        bus.client().wait_for_owner("org.freedesktop.Notifications").unwrap();
        let mut recorder = bus.command(UNJANK);
        recorder.args(["hangs", "record", "--program", "sleepy.py"]).stderr(Stdio::null());
        let _recorder = start(&mut recorder);
        let _notifier =
            start(bus.command(UNJANK).args(["hangs", "watch", "--notify"]).stderr(Stdio::null()));
        let mut sleepy =
            start(bus.command("python3").arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let woke = BufReader::new(sleepy.0.stdout.take().unwrap());
        Scene { _server, _recorder, _notifier, sleepy, woke }
    }

    fn fall_asleep(&self) {
        self.sleepy.0.stdin.as_ref().unwrap().write_all(b"x").unwrap();
    }

    fn wake_up(&mut self) {
        self.woke.read_line(&mut String::new()).unwrap();
    }
}

/// The notifications that are asked for on a bus, as `dbus-monitor` prints them.
struct AskedNotifications {
    _monitor: Ended,
    lines: BufReader<ChildStdout>,
}

impl AskedNotifications {
    fn begin(bus: &Bus) -> AskedNotifications {
        let rule = "interface='org.freedesktop.Notifications',member='Notify'";
        let mut monitor = bus.command("dbus-monitor");
        let mut monitor =
            Ended(monitor.args(["--session", rule]).stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(monitor.0.stdout.take().unwrap());
        // It says that it has got its own name, and then that it lost it: from then on it sees all.
        let mut line = String::new();
        while !line.contains("member=NameLost") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        AskedNotifications { _monitor: monitor, lines }
    }

    /// Returns the next notification about a program, until the bus ends: programs of other tests may hang, too.
    fn next_of(&mut self, program: &str) -> Option<(u32, String)> {
        loop {
            let next = self.next()?;
            if next.1.starts_with(&format!("{program} ")) {
                return Some(next);
            }
        }
    }

    /// Returns the number of the notification that the next one takes the place of, and its summary.
    fn next(&mut self) -> Option<(u32, String)> {
        let (mut replaces, mut texts) = (None, Vec::new());
        while texts.len() < 3 {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim();
            if line.contains("member=Notify") {
                (replaces, texts) = (None, Vec::new());
            }
            if let Some(number) = line.strip_prefix("uint32 ") {
                replaces = replaces.or(number.parse().ok());
            }
            if let Some(text) = line.strip_prefix("string \"") {
                texts.push(text.trim_end_matches('"').to_owned());
            }
        }
        // The name of the sender and an icon come before it.
        Some((replaces?, texts.remove(2)))
    }
}

#[test]
fn a_program_that_is_still_frozen_is_told_and_its_end_takes_that_place() {
    if !has(&["dunst", "dbus-monitor", "python3"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let Some(display) = Display::start() else { return };
        let mut asked = AskedNotifications::begin(&bus);
        let (sender, told) = std::sync::mpsc::channel();
        // It ends with the monitor, or when nobody listens any more.
        std::thread::spawn(move || {
            while let Some(one) = asked.next_of("sleepy.py") {
                if sender.send(one).is_err() {
                    break;
                }
            }
        });
        let mut scene = Scene::start(&bus, &display, "6.2");
        // One that is hung when it is found counts from there, or not at all: lines are sent until a hang was whole.
        let begin = Instant::now();
        let mut all = Vec::new();
        loop {
            assert!(begin.elapsed() < Duration::from_secs(120), "not told while it froze: {all:?}");
            scene.fall_asleep();
            scene.wake_up();
            let frozen: Vec<(u32, String)> = told.try_iter().collect();
            let ended = told.recv_timeout(Duration::from_secs(5));
            all.extend(frozen.iter().cloned().chain(ended.clone()));
            let told_before = |(_, text): &(u32, String)| text.contains(" has not answered for ");
            if !frozen.last().is_some_and(told_before) {
                continue;
            }
            let (replaces, end) = ended.expect("its end is told");
            assert!(end.starts_with("sleepy.py froze ") && replaces != 0, "{all:?}");
            break;
        }
        assert_eq!(all[0].0, 0, "the first takes the place of none: {all:?}");
    });
}

/// A hang whose record takes a few thousand bytes, as of a program in C++.
fn long_hang(number: u64) -> HangRecord {
    let frame = |at: usize| HangFrame {
        function: format!("std::__detail::{}::function_{at}", "template_argument::".repeat(6)),
        module: "libprogram.so.5".into(),
    };
    HangRecord::Hang(Box::new(Hang {
        number,
        started_ns: 1_795_248_000_000_000_000 + number,
        length_ns: 2_700_000_000,
        process: 12,
        program: format!("program-{number}"),
        cause: HangCause::Sync,
        frames: (0..20).map(frame).collect(),
        ..Hang::default()
    }))
}

/// Fills the store of the user of a bus.
fn full_store(bus: &Bus) -> HangStore {
    let dir = bus.dir().join("state/unjank/hangs");
    let mut store = HangStore::open(store::disk::real(), &dir, DEFAULT_LIMIT).unwrap();
    let used = || -> u64 {
        let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
        files.map(|file| file.metadata().unwrap().len()).sum()
    };
    while used() < DEFAULT_LIMIT - (6 << 20) {
        let numbers: Vec<u64> = (0..500).map(|_| store.take_number()).collect();
        store.append(&numbers.into_iter().map(long_hang).collect::<Vec<_>>()).unwrap();
    }
    assert!(used() > 50 << 20, "{} bytes are a full store", used());
    store
}

/// Waits until a process watches a folder.
fn wait_until_it_watches(process: u32) {
    let infos = PathBuf::from(format!("/proc/{process}/fdinfo"));
    let watches =
        |path: &Path| std::fs::read_to_string(path).is_ok_and(|info| info.contains("inotify wd:"));
    while !std::fs::read_dir(&infos).unwrap().any(|info| watches(&info.unwrap().path())) {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Returns the most memory that a process has had, in KiB.
fn most_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What the unit of the notifications may have (`MemoryMax=`), in KiB.
const LIMIT_KIB: u64 = 64 << 10;

#[test]
fn beside_a_full_store_a_new_hang_is_told_within_the_memory_of_the_unit() {
    let unit = include_str!("../../setup/templates/systemd/unjank-hang-notifications.service.in");
    assert!(unit.contains("\nMemoryMax=64M\n"));
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let mut store = full_store(&bus);
        let mut command = bus.command(UNJANK);
        command.args(["hangs", "watch"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watcher = Ended(command.spawn().unwrap());
        let mut lines = BufReader::new(watcher.0.stdout.take().unwrap());
        wait_until_it_watches(watcher.0.id());
        for _ in 0..3 {
            let number = store.take_number();
            store.append(&[long_hang(number)]).unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            assert!(
                line.starts_with(&format!("{number}  program-{number} froze 2.70 s")),
                "{line}"
            );
        }
        let most = most_memory(watcher.0.id());
        assert!(most < LIMIT_KIB, "{most} KiB");
    });
}

#[test]
fn beside_a_full_store_notifications_stay_within_the_memory_of_the_unit() {
    if !has(&["dunst", "dbus-monitor"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let Some(display) = Display::start() else { return };
        let mut store = full_store(&bus);
        let mut asked = AskedNotifications::begin(&bus);
        let mut server = bus.command("dunst");
        let _server =
            Ended(server.env("DISPLAY", &display.name).stderr(Stdio::null()).spawn().unwrap());
        bus.client().wait_for_owner("org.freedesktop.Notifications").unwrap();
        let mut notifier = bus.command(UNJANK);
        notifier.args(["hangs", "watch", "--notify"]).stderr(Stdio::null());
        let notifier = Ended(notifier.spawn().unwrap());
        wait_until_it_watches(notifier.0.id());
        let number = store.take_number();
        store.append(&[long_hang(number)]).unwrap();
        assert_eq!(asked.next().unwrap().1, format!("program-{number} froze 2.70 s"));
        let most = most_memory(notifier.0.id());
        assert!(most < LIMIT_KIB, "{most} KiB");
    });
}

#[test]
fn without_a_session_bus_notifications_are_an_error() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(UNJANK);
        command.args(["hangs", "watch", "--notify"]).env_clear();
        command.env("HOME", dir.path()).env("XDG_RUNTIME_DIR", dir.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot show notifications"), "{said}");
        assert!(said.contains("without --notify hangs are printed"), "{said}");
    });
}
