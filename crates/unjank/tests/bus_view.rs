//! What `unjank bus` makes of traffic: pairs beside what programs measured themselves, counts beside other readers,
//! the page of a diagram in a real browser, rules for a test run, and what the doctor hears.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test drives other programs")]

use crate::browser;
use crate::fixture;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use capture::capture::{
    Capture, CaptureEvent, CaptureTime, CapturedMessage, Encoder, RecordFormat,
};
use capture::model::{Ending, Model, read};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use wire::MessageType;
use wire::write::{Draft, Marshal};

use browser::Browser;
use fixture::{Bus, has, in_time, setting};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

fn unjank(bus: &Bus, arguments: &[&str]) -> Command {
    let mut command = bus.command(UNJANK);
    command.arg("bus").args(arguments);
    command
}

/// Runs a command of ours on a file and returns what came of it.
fn run(arguments: &[&str]) -> Output {
    Command::new(UNJANK).arg("bus").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records until it is asked to end.
struct Recorder(Program);

impl Recorder {
    fn start(bus: &Bus, output: &Path) -> Recorder {
        let mut command = unjank(bus, &["record", "-o"]);
        let mut child = command.arg(output).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // It says so once the monitor is there.
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("Recording "), "{line}");
        Recorder(Program(child))
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.0.0), Signal::INT).unwrap();
        assert!(self.0.0.wait().unwrap().success());
    }
}

/// Builds the programs that measure themselves; none where that cannot be done.
fn timed(dir: &Path) -> Option<PathBuf> {
    if !has(&["cc", "pkg-config"]) {
        return None;
    }
    let flags =
        Command::new("pkg-config").args(["--cflags", "--libs", "libsystemd"]).output().unwrap();
    if !flags.status.success() {
        fixture::skip("no libsystemd-dev");
        return None;
    }
    let program = dir.join("timed");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/bus_timed.c");
    let built = Command::new("cc")
        .args(["-O2", "-Wall", "-o"])
        .args([&program, &source])
        .args(text(&flags).split_whitespace())
        .status();
    assert!(built.unwrap().success());
    Some(program)
}

/// Reads lines of a serial and a time in nanoseconds.
fn times(said: &str) -> BTreeMap<u32, u64> {
    let pair = |line: &str| {
        let (serial, ns) = line.split_once(' ')?;
        Some((serial.parse().ok()?, ns.parse().ok()?))
    };
    said.lines().filter_map(pair).collect()
}

fn model(path: &Path) -> Model {
    let capture = Capture::open(path).unwrap();
    read(capture.events(), |_, _, _| Ending::Continue)
}

#[test]
fn pairs_and_latencies_are_those_that_programs_measured_themselves() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let (Some(program), Some(bus)) = (timed(dir.path()), Bus::start()) else { return };
        // As close as 50 µs only while nobody else needs the processor: one calm round is enough.
        let mut closest = u64::MAX;
        for round in 0..40 {
            let path = dir.path().join(format!("{round}.pcapng"));
            let mut command = bus.command(program.to_str().unwrap());
            let server = command.arg("serve").stdout(Stdio::piped()).spawn().unwrap();
            let mut server = Program(server);
            bus.client().wait_for_owner("org.unjank.Timed").unwrap();
            let recorder = Recorder::start(&bus, &path);
            let client = bus.command(program.to_str().unwrap()).arg("40").output().unwrap();
            assert!(client.status.success());
            recorder.end();
            server.0.kill().unwrap();
            let mut said = String::new();
            server.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            let (called, held) = (times(&text(&client)), times(&said));
            // The last line of who answers may come after its end.
            assert!(called.len() == 40 && held.len() >= 39, "{called:?} {held:?}");

            let model = model(&path);
            let calls = model.rows().filter(|(_, row)| {
                row.kind == MessageType::Call && model.texts.get(row.member) == "Hold"
            });
            let seen: BTreeMap<u32, u64> =
                calls.map(|(_, row)| (row.serial, model.latency_ns(row).unwrap())).collect();
            // Whatever the machine does, each call has its own answer.
            assert!(seen.keys().eq(called.keys()), "{seen:?}");
            // What the bus saw lies between what the one held and what the other waited.
            let mut off: Vec<u64> = seen
                .iter()
                .filter_map(|(serial, ns)| {
                    let held = held.get(serial)?;
                    Some(held.saturating_sub(*ns).max(ns.saturating_sub(called[serial])))
                })
                .collect();
            off.sort_unstable();
            closest = closest.min(off[off.len() * 9 / 10]);
            if closest <= 50_000 {
                return;
            }
        }
        // Planted: serials that are off by one would be off by the 300 µs by which calls differ.
        assert!(closest < 150_000, "nine of ten are off by up to {closest} ns");
        fixture::skip(&format!(
            "the machine is too busy: nine of ten are off by up to {closest} ns"
        ));
    });
}

/// Signals and pairs of calls, written as a record.
fn record(path: &Path, format: RecordFormat, pairs: u32) {
    let mut encoder = Encoder::new(format);
    let mut out = Vec::new();
    encoder.begin(&mut out);
    let session =
        capture::capture::CapturedBus { name: "session".to_owned(), ..Default::default() };
    encoder.event(&mut out, &CaptureEvent::Bus(Box::new(session))).unwrap();
    let mut add = |at_us: u64, draft: Draft<'_>, said: &str| {
        let mut body = Marshal::new(draft.endian);
        body.text(said);
        let body = body.bytes();
        let bytes = Draft { signature: "s", body: &body, ..draft }.bytes();
        let length = u32::try_from(bytes.len()).unwrap();
        let at = CaptureTime(1_795_271_100_000_000_000 + at_us * 1000);
        let message = CapturedMessage { at, bus: 0, length, bytes: &bytes };
        encoder.event(&mut out, &CaptureEvent::Message(message)).unwrap();
    };
    let members = ["Open", "Close", "Read", "Write"];
    for at in 0..pairs {
        let time = u64::from(at) * 100;
        let (caller, service) = (format!(":1.{}", at % 7), format!(":1.{}", 10 + at % 5));
        let draft = Draft {
            path: "/org/example/Object",
            interface: "org.example.Files",
            member: members[(at % 4) as usize],
            sender: &caller,
            destination: &service,
            ..Draft::new(MessageType::Call, at + 1)
        };
        add(time, draft, "</script><script>document.title='broken'</script>");
        if at % 50 == 49 {
            continue;
        }
        let kind = if at % 20 == 7 { MessageType::Error } else { MessageType::Return };
        let error_name = if kind == MessageType::Error { "org.example.Error.Failed" } else { "" };
        let draft = Draft {
            reply_serial: at + 1,
            error_name,
            sender: &service,
            destination: &caller,
            ..Draft::new(kind, at + 1)
        };
        add(time + if at % 100 == 3 { 40_000 } else { 60 }, draft, "needle in a body");
        if at % 3 == 0 {
            let draft = Draft {
                path: "/org/example/Object",
                interface: "org.example.Files",
                member: "Changed",
                sender: &service,
                ..Draft::new(MessageType::Signal, at + 2)
            };
            add(time + 70, draft, "");
        }
    }
    std::fs::write(path, out).unwrap();
}

#[test]
fn counts_are_those_of_other_readers() {
    if !has(&["tshark", "bustle"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pcap");
        record(&path, RecordFormat::Pcap, 400);
        let path = path.to_str().unwrap();
        let stats: Value = serde_json::from_str(&text(&run(&["stats", "--json", path]))).unwrap();
        assert_eq!(stats["schema"], "unjank.bus.stats/1");
        let fields = ["-T", "fields", "-e", "dbus.message_type", "-e", "dbus.member"];
        let tshark = Command::new("tshark").args(["-r", path]).args(fields).output().unwrap();
        let mut kinds = BTreeMap::<String, u64>::new();
        for line in text(&tshark).lines() {
            *kinds.entry(line.split('\t').next().unwrap().to_owned()).or_default() += 1;
        }
        let kind = |name: &str| stats["kinds"][name].as_u64().unwrap();
        let theirs = |number: &str| kinds.get(number).copied().unwrap_or(0);
        assert_eq!(
            [kind("calls"), kind("returns"), kind("errors"), kind("signals")],
            ["1", "2", "3", "4"].map(theirs)
        );
        // Bustle counts calls and signals by member.
        let bustle = Command::new("bustle").args(["--count", path]).output().unwrap();
        let counted = text(&bustle);
        for method in stats["methods"].as_array().unwrap() {
            let member = method["member"].as_str().unwrap();
            let line = counted.lines().find(|line| line.ends_with(member));
            let theirs = line.and_then(|line| line.split_whitespace().next()).unwrap();
            let ours: u64 = stats["methods"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|other| other["member"] == member)
                .map(|other| other["calls"].as_u64().unwrap())
                .sum();
            assert_eq!(theirs.parse::<u64>().unwrap(), ours, "{member}: {counted}");
        }
        let unanswered: u64 = stats["methods"]
            .as_array()
            .unwrap()
            .iter()
            .map(|method| method["unanswered"].as_u64().unwrap())
            .sum();
        assert_eq!(unanswered, 8);
    });
}

#[test]
fn the_page_of_a_diagram_works_in_a_browser() {
    if !has(&["chromium"]) {
        return;
    }
    let test = || {
        let dir = tempfile::tempdir().unwrap();
        let (capture, page) = (dir.path().join("x.pcapng"), dir.path().join("x.html"));
        // BUS_PAIRS=420000 is a million messages.
        record(
            &capture,
            RecordFormat::Pcapng,
            setting("BUS_PAIRS").map_or(8000, |n| u32::try_from(n).unwrap()),
        );
        let output = run(&["diagram", capture.to_str().unwrap(), "-o", page.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let mut browser = Browser::start(dir.path(), 1200, 900);
        browser.open(&page);
        let ready = "new Promise(done => { const look = () => window.unjankBus && unjankBus.ready && unjankBus.draws ? done(true) : setTimeout(look, 20); look(); })";
        assert_eq!(browser.run(ready), true);
        assert_eq!(browser.run("document.title"), "unjank bus diagram", "no body became markup");
        let all = browser.run("unjankBus.shown()").as_u64().unwrap();
        assert!(all > 16_000, "{all}");

        // Whatever the number of messages, only those on the screen are drawn, anywhere in the record.
        let frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        let mut longest = 0.0_f64;
        // The browser tells of frames that took over 50 ms, whoever held them up.
        browser.run("unjankBus.longest = 0; window.slow = []; new PerformanceObserver(list => slow.push(...list.getEntries().map(entry => entry.duration))).observe({ type: 'long-animation-frame' }); true");
        for part in 0..=20 {
            browser.run(&format!("unjankBus.goTo({all} * {part} / 20)"));
            browser.run(frame);
            let drawn = browser.run("unjankBus.drawn").as_u64().unwrap();
            assert!(drawn > 0 && drawn < 1000, "{drawn} at {part}");
        }
        for _ in 0..20 {
            let wheel =
                json!({ "type": "mouseWheel", "x": 600, "y": 500, "deltaX": 0, "deltaY": -240 });
            browser.ask("Input.dispatchMouseEvent", &wheel);
            browser.run(frame);
        }
        longest = longest.max(browser.run("unjankBus.longest").as_f64().unwrap());
        browser.run(frame);
        let slow = browser.run("slow");
        eprintln!(
            "the longest picture of {all} messages took {longest:.1} ms; frames over 50 ms: {slow}"
        );
        if setting("BUS_PAIRS").is_some() {
            assert_eq!(slow, json!([]), "frames over 50 ms");
        }
        let top = browser.run("unjankBus.top()").as_f64().unwrap();
        assert!(top > 0.0 && top < all as f64 - 100.0, "the wheel moved it: {top}");

        // A click opens what is known; Enter goes to the answer; Escape closes.
        browser.run("unjankBus.goTo(0)");
        browser.run(frame);
        let place = browser.run("(() => { const r = document.querySelector('.view').getBoundingClientRect(); return [r.x + 150, r.y + 46 + 13]; })()");
        for kind in ["mousePressed", "mouseReleased"] {
            let click = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            browser.ask("Input.dispatchMouseEvent", &click);
        }
        assert_eq!(browser.run("unjankBus.picked()"), 0);
        let about = browser.run("document.querySelector('.about').textContent");
        let about = about.as_str().unwrap();
        for part in ["org.example.Files.Open", "/org/example/Object", "</script>", "60.0"] {
            assert!(about.contains(part), "{part}: {about}");
        }
        let key = |name: &str, code: u32| json!({ "type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": code });
        browser.ask("Input.dispatchKeyEvent", &key("Enter", 13));
        assert_eq!(browser.run("unjankBus.picked()"), 1);
        browser.ask("Input.dispatchKeyEvent", &key("ArrowDown", 40));
        assert_eq!(browser.run("unjankBus.picked()"), 2);
        browser.ask("Input.dispatchKeyEvent", &key("Escape", 27));
        assert_eq!(browser.run("document.querySelector('.about').hidden"), true);

        // Search finds words in members, errors and bodies, and can hide the rest.
        let found = |browser: &mut Browser, words: &str| {
            browser.run(&format!("(() => {{ const i = document.querySelector('.tools input'); i.value = {words:?}; i.dispatchEvent(new Event('input')); }})()"));
            let done = format!(
                "new Promise(done => {{ const look = () => unjankBus.searched === {words:?} ? done(unjankBus.hits()) : setTimeout(look, 20); look(); }})"
            );
            browser.run(&done).as_u64().unwrap()
        };
        let changed = found(&mut browser, "member:changed");
        let signals = found(&mut browser, "type:signal");
        assert!(changed > 0 && changed == signals, "{changed} {signals}");
        assert!(found(&mut browser, "needle") > signals);
        assert!(found(&mut browser, "slower-than:30ms") > 0);
        let failed = found(&mut browser, "type:error error:failed");
        assert!(failed > 0);
        for shown in [failed, all] {
            // The page stays alive meanwhile, so it is done some pictures later.
            let done = format!(
                "new Promise(done => {{ document.getElementById('only').click(); const look = () => unjankBus.shown() === {shown} ? done(true) : setTimeout(look, 20); look(); }})"
            );
            assert_eq!(browser.run(&done), true);
        }
        found(&mut browser, "nothing has this in it");
        assert_eq!(browser.run("unjankBus.hits()"), 0);

        // Colours: as is chosen, in the picture too.
        let pixel = "(() => { const o = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true }); o.drawImage(document.querySelector('.whole canvas'), 3, 100, 1, 1, 0, 0, 1, 1); return [...o.getImageData(0, 0, 1, 1).data].slice(0, 3).join(); })()";
        let mut seen = Vec::new();
        for choice in ["light", "dark"] {
            browser.run(&format!("document.getElementById('{choice}').click()"));
            browser.run(frame);
            seen.push(browser.run(pixel));
        }
        assert_ne!(seen[0], seen[1]);
        if let Some(path) = std::env::var_os("BUS_SHOT") {
            browser.run("document.querySelector('.view').focus()");
            browser.ask("Input.dispatchKeyEvent", &key("ArrowDown", 40));
            browser.run(frame);
            let shot = browser.ask("Page.captureScreenshot", &json!({}));
            std::fs::write(path, shot["data"].as_str().unwrap()).unwrap();
        }
        let narrow =
            json!({ "width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.ask("Emulation.setDeviceMetricsOverride", &narrow);
        assert_eq!(browser.run("document.documentElement.scrollWidth <= innerWidth"), true);
        assert_eq!(browser.complaints(), Vec::<&Value>::new());
        assert_eq!(browser.requests().len(), 1, "{:?}", browser.requests());
    };
    // A million messages take as long as they take.
    if setting("BUS_PAIRS").is_some() { test() } else { in_time(test) }
}

#[test]
fn the_page_of_a_diagram_has_its_beginning_without_scripts() {
    if !has(&["chromium"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let (capture, page) = (dir.path().join("x.pcapng"), dir.path().join("x.html"));
        record(&capture, RecordFormat::Pcapng, 100);
        assert!(
            run(&["diagram", capture.to_str().unwrap(), "-o", page.to_str().unwrap()])
                .status
                .success()
        );
        let mut browser = Browser::start(dir.path(), 1200, 900);
        browser.ask("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
        browser.open(&page);
        let body = browser.run("document.body.innerText");
        let body = body.as_str().unwrap();
        assert!(body.contains("The first 60 of ") && body.contains("Methods"), "{body}");
        assert!(
            browser.run("document.querySelectorAll('.static svg g').length").as_u64() == Some(60)
        );
        assert_eq!(browser.run("document.getElementById('sequence').hidden"), true);
    });
}

#[test]
fn files_are_drawn_and_nothing_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcapng");
    record(&path, RecordFormat::Pcapng, 50);
    let path = path.to_str().unwrap();
    let out = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (name, begin) in [("a.svg", "<svg "), ("a.dot", "digraph "), ("a.html", "<!doctype html>")]
    {
        assert!(run(&["diagram", path, "-o", &out(name)]).status.success());
        assert!(std::fs::read_to_string(out(name)).unwrap().starts_with(begin));
    }
    let again = run(&["diagram", path, "-o", &out("a.svg")]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("use --force to replace it"));
    assert!(run(&["diagram", path, "-o", &out("a.svg"), "--force"]).status.success());
    assert_eq!(
        run(&["diagram", path, "-o", path, "--force", "--format", "svg"]).status.code(),
        Some(2)
    );
    assert_eq!(run(&["diagram", path, "-o", &out("a.pdf")]).status.code(), Some(2));
    assert!(text(&run(&["diagram", path])).contains("org.example.Files.Open"));
    let same = run(&["diff", path, path]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let other = out("b.pcapng");
    record(Path::new(&other), RecordFormat::Pcapng, 2);
    assert_eq!(run(&["diff", path, &other]).status.code(), Some(1));
    std::fs::write(out("junk"), "this is no record").unwrap();
    for command in ["stats", "diagram"] {
        let refused = run(&[command, &out("junk")]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).starts_with("unjank: cannot read "));
    }
    assert_eq!(run(&["stats", path, "--filter", "colour:red"]).status.code(), Some(2));
}

#[test]
fn the_doctor_hears_who_chatters_and_who_was_left_attached() {
    if !has(&["dbus-monitor", "dbus-send"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let doctor = || {
            let output =
                bus.command(UNJANK).args(["doctor", "--only", "bus", "--json"]).output().unwrap();
            let document: Value = serde_json::from_str(&text(&output)).unwrap();
            let findings = document["findings"].as_array().unwrap().clone();
            let find = move |name: &str| findings.iter().find(|one| one["name"] == name).cloned();
            (find("idle chatter"), find("monitors"))
        };
        let (chatter, monitors) = doctor();
        assert!(chatter.unwrap()["text"].as_str().unwrap().contains("message"));
        assert_eq!(monitors, None, "ours is not one that was left");
        let mut command = bus.command("dbus-monitor");
        let mut left = Program(command.arg("--profile").stdout(Stdio::piped()).spawn().unwrap());
        // Its first line comes when it is attached.
        let mut line = String::new();
        BufReader::new(left.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut chatty = bus.command("sh");
        chatty.args(["-c", "while dbus-send / org.example.I.Tick; do sleep 0.02; done"]);
        let _chatty = Program(chatty.spawn().unwrap());
        let (chatter, monitors) = doctor();
        let text = monitors.unwrap()["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("1 monitor attached") && text.contains("dbus-monitor"), "{text}");
        assert!(chatter.unwrap()["advice"].as_array().is_some_and(|advice| !advice.is_empty()));
    });
}
