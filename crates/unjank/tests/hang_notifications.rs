//! `unjank hangs watch --notify` beside a real recorder, a program that hangs, and a real server of notifications.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panics")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
        let all = shown["data"][0].as_array().unwrap().len();
        assert!(all <= long, "{all} notifications of {long} long hangs");
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
