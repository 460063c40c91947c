//! `unjank bus expect`: rules held against commands and records, what is left of a run that fails or hangs, and records
//! that cannot be believed.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test drives other programs")]

use crate::fixture;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use capture::capture::{
    CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, Encoder, RecordFormat,
};
use fixture::{Bus, has, in_time};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use wire::MessageType;
use wire::write::{Draft, Marshal};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
/// A call that is answered at once.
const ANSWERED: [&str; 5] = [
    "dbus-send",
    "--print-reply",
    "--dest=org.freedesktop.DBus",
    "/",
    "org.freedesktop.DBus.ListNames",
];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A bus, and rules for what happens on it.
struct Bench {
    bus: Bus,
    rules: PathBuf,
}

impl Bench {
    /// Starts a bus; none where there is no `dbus-daemon` or `dbus-send`.
    fn start() -> Option<Bench> {
        if !has(&["dbus-send"]) {
            return None;
        }
        let bus = Bus::start()?;
        let rules = bus.dir().join("rules.txt");
        Some(Bench { bus, rules })
    }

    fn expect(&self, rules: &str, arguments: &[&str]) -> Command {
        std::fs::write(&self.rules, rules).unwrap();
        let mut command = self.bus.command(UNJANK);
        command.args(["bus", "expect", "-f"]).arg(&self.rules).args(arguments);
        command
    }

    fn run(&self, rules: &str, arguments: &[&str]) -> Output {
        self.expect(rules, arguments).output().unwrap()
    }

    /// Starts a program that owns a name and answers nobody.
    fn start_hung_service(&self) -> HungService {
        let mut command = self.bus.command(UNJANK);
        command.args(["bus", "traffic", "--address", self.bus.address(), "answer"]);
        let child = command.spawn().unwrap();
        self.bus.client().wait_for_owner("org.unjank.Traffic").unwrap();
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        HungService(child)
    }
}

/// Ends with the test.
struct HungService(Child);

impl Drop for HungService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a record of calls that are answered, and returns its bytes.
fn record(path: &Path, format: RecordFormat) -> Vec<u8> {
    record_of(path, format, CapturedBus::default())
}

fn record_of(path: &Path, format: RecordFormat, bus: CapturedBus) -> Vec<u8> {
    let mut encoder = Encoder::new(format);
    let mut out = Vec::new();
    encoder.event(&mut out, &CaptureEvent::Bus(Box::new(bus))).unwrap();
    for serial in 1..=20_u32 {
        let mut body = Marshal::new(Draft::new(MessageType::Call, 1).endian);
        body.text(&"x".repeat(500));
        let body = body.bytes();
        let call = Draft {
            path: "/o",
            interface: "org.example.I",
            member: "Say",
            sender: ":1.1",
            destination: ":1.2",
            signature: "s",
            body: &body,
            ..Draft::new(MessageType::Call, serial)
        };
        let answer = Draft {
            reply_serial: serial,
            sender: ":1.2",
            destination: ":1.1",
            ..Draft::new(MessageType::Return, serial)
        };
        for (at, bytes) in [(0, call.bytes()), (500_000, answer.bytes())] {
            let at = CaptureTime(1_795_271_100_000_000_000 + u64::from(serial) * 1_000_000 + at);
            let length = u32::try_from(bytes.len()).unwrap();
            let message = CapturedMessage { at, bus: 0, length, bytes: &bytes };
            encoder.event(&mut out, &CaptureEvent::Message(message)).unwrap();
        }
    }
    std::fs::write(path, &out).unwrap();
    out
}

#[test]
fn rules_are_held_against_a_command() {
    in_time(|| {
        let Some(bench) = Bench::start() else { return };
        let expect =
            |rules: &str, command: &[&str]| bench.run(rules, &[&["--"][..], command].concat());
        let kept = expect(
            "called org.freedesktop.DBus.ListNames within 10s\nno errors\nno lost\n",
            &ANSWERED,
        );
        assert_eq!(kept.status.code(), Some(0), "{kept:?}");
        assert!(text(&kept).contains("● kept"));
        // Each planted fault is found.
        let nobody =
            ["sh", "-c", "dbus-send --print-reply --dest=org.example.Nobody / a.b.C || true"];
        for rule in ["no errors", "no unowned", "called a.b.D", "at most 0 calls where member:C"] {
            let broken = expect(rule, &nobody);
            assert_eq!(broken.status.code(), Some(1), "{rule}: {broken:?}");
            assert!(text(&broken).contains("▲ broken"));
        }
        let missing = expect("no errors", &["/nowhere/program"]);
        assert_eq!(missing.status.code(), Some(2));
        assert_eq!(expect("# nothing", &["true"]).status.code(), Some(2));
    });
}

/// A bus at an address of its own, which can be ended and begun again.
struct EndingBus {
    dir: tempfile::TempDir,
    daemon: Child,
}

impl EndingBus {
    fn start() -> EndingBus {
        let dir = tempfile::tempdir().unwrap();
        let address = format!("unix:path={}", dir.path().join("bus").display());
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--print-address", "--address", &address]);
        let mut daemon = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        EndingBus { dir, daemon }
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.dir.path().join("bus").display())
    }

    fn run(&self, rules: &str, script: &str) -> Output {
        self.run_beside(&[], rules, script)
    }

    /// Runs a script that may end the bus (`$BUS` is its process) and begin it again (`$AGAIN`, its process is in the file
    /// `$PID`), and watches other buses, too.
    fn run_beside(&self, others: &[&EndingBus], rules: &str, script: &str) -> Output {
        let address = self.address();
        let file = self.dir.path().join("rules");
        std::fs::write(&file, rules).unwrap();
        let mut command = Command::new(UNJANK);
        command.args(["bus", "expect", "--address", &address, "-f"]).arg(file);
        command.args(others.iter().flat_map(|other| ["--address".to_owned(), other.address()]));
        command.args(["--", "sh", "-ec", script]);
        let pid = self.dir.path().join("again");
        let again = format!(
            "dbus-daemon --session --fork --print-pid --address {address} > {}",
            pid.display()
        );
        command.env("DBUS_SESSION_BUS_ADDRESS", &address).env("PID", pid);
        command.env("BUS", self.daemon.id().to_string()).env("AGAIN", again).output().unwrap()
    }
}

impl Drop for EndingBus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let again = std::fs::read_to_string(self.dir.path().join("again")).unwrap_or_default();
        if let Some(pid) = again.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn what_a_bus_says_after_the_recording_of_it_ended_leaves_no_verdict() {
    in_time(|| {
        if !has(&["dbus-send", "dbus-daemon"]) {
            return;
        }
        let rules = "called ListNames\nno errors\n";
        let call = ANSWERED.join(" ");
        let end = "kill $BUS; while dbus-send --print-reply --dest=org.freedesktop.DBus / a.b.C 2>&1 \
                   | grep -q UnknownInterface; do sleep 0.02; done";
        // All that the bus has said was seen.
        let ended = EndingBus::start();
        let last_act = ended.run(rules, &format!("{call}; kill $BUS"));
        assert_eq!(last_act.status.code(), Some(0), "{last_act:?}");
        let ended = EndingBus::start();
        let goes_on = ended.run(rules, &format!("{call}; {end}; sleep 0.2"));
        assert_eq!(goes_on.status.code(), Some(0), "{goes_on:?}");
        // One that is there again says what nobody sees, whether it stays or not.
        let nobody = "dbus-send --print-reply --dest=org.example.Nobody / a.b.C || true";
        let bus = EndingBus::start();
        let stays = bus.run(rules, &format!("{call}; {end}; sh -c \"$AGAIN\"; {nobody}"));
        assert_eq!(stays.status.code(), Some(2), "{stays:?}");
        assert!(said(&stays).contains("the recording is incomplete"), "{}", said(&stays));
        assert!(text(&stays).contains("● kept    no errors"), "{}", text(&stays));
    });
}

#[test]
fn a_bus_that_lives_twice_beside_one_that_goes_on_leaves_no_verdict() {
    in_time(|| {
        if !has(&["dbus-send", "dbus-daemon"]) {
            return;
        }
        let rules = "called ListNames\nno errors\n";
        let call = ANSWERED.join(" ");
        let gone = "while dbus-send --print-reply --dest=org.freedesktop.DBus / a.b.C 2>&1 \
                    | grep -q UnknownInterface; do sleep 0.02; done";
        let other = EndingBus::start();
        let ended = EndingBus::start();
        let once = ended.run_beside(&[&other], rules, &format!("{call}; kill $BUS; {gone}"));
        assert_eq!(once.status.code(), Some(0), "all of it was seen: {once:?}");
        // Each call has the next number as its name until somebody else connects, which is how the second life is noticed.
        let noticed =
            format!("n=1; while [ $n -lt 300 ] && {call} | grep -q :1.$n; do n=$((n + 1)); done");
        let nobody = "dbus-send --print-reply --dest=org.example.Nobody / a.b.C || true";
        let second = format!("sh -c \"$AGAIN\"; {nobody}; {noticed}; kill $(cat $PID); {gone}");
        let bus = EndingBus::start();
        let script = format!("{call}; kill $BUS; {gone}; {second}");
        let twice = bus.run_beside(&[&other], rules, &script);
        assert_eq!(twice.status.code(), Some(2), "{twice:?}");
        assert!(said(&twice).contains("the recording is incomplete"), "{}", said(&twice));
    });
}

#[test]
fn a_call_that_hangs_breaks_a_rule_about_slow_calls() {
    in_time(|| {
        let Some(bench) = Bench::start() else { return };
        let _service = bench.start_hung_service();
        let call =
            "dbus-send --print-reply --reply-timeout=300 --dest=org.unjank.Traffic / a.b.C || true";
        for rule in [
            "at most 0 calls where slower-than:1s",
            "no calls where slower-than:50s",
            "called a.b.C",
        ] {
            let broken = bench.run(rule, &["--", "sh", "-c", call]);
            assert_eq!(broken.status.code(), Some(1), "{rule}: {broken:?}");
            assert!(text(&broken).contains("had no answer in "), "{broken:?}");
        }
    });
}

#[test]
fn a_record_says_how_long_a_call_waited_though_nothing_came_after_it() {
    in_time(|| {
        let Some(bench) = Bench::start() else { return };
        let _service = bench.start_hung_service();
        for format in ["x.pcapng", "x.jsonl"] {
            let path = bench.bus.dir().join(format);
            let mut recorder = bench.bus.command(UNJANK);
            recorder.args(["bus", "record", "--for", "3s", "-o"]).arg(&path);
            if format == "x.jsonl" {
                recorder = bench.bus.command(UNJANK);
                let from = bench.bus.dir().join("x.pcapng");
                recorder.args(["bus", "convert"]).arg(from).arg("-o").arg(&path);
            }
            let mut recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
            if format == "x.pcapng" {
                let mut line = String::new();
                BufReader::new(recorder.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
                assert!(line.starts_with("Recording "), "{line}");
                // It waits longer than the recording does.
                let mut caller = bench.bus.command("dbus-send");
                caller.args(["--print-reply", "--reply-timeout=60000"]);
                caller.args(["--dest=org.unjank.Traffic", "/", "a.b.C"]);
                let mut caller = HungService(caller.spawn().unwrap());
                assert!(recorder.wait().unwrap().success());
                assert!(caller.0.try_wait().unwrap().is_none());
            }
            assert!(recorder.wait().unwrap().success());
            let mut stats = bench.bus.command(UNJANK);
            let stats = stats.args(["bus", "stats", "--json"]).arg(&path).output().unwrap();
            let stats: Value = serde_json::from_str(&text(&stats)).unwrap();
            let open = stats["unanswered"].as_array().unwrap();
            let open = open.iter().find(|open| open["member"] == "a.b.C").unwrap();
            let waited = open["waited_ns"].as_u64().unwrap();
            assert!((1_000_000_000..30_000_000_000).contains(&waited), "{open}");
            assert_eq!(open["caller_left"], false);
        }
    });
}

#[test]
fn what_was_found_is_kept_when_the_command_fails() {
    in_time(|| {
        let Some(bench) = Bench::start() else { return };
        let rules = "called ListNames\nno messages where member:ListNames\n";
        let fails = [&["--json", "--", "sh", "-c"][..], &[&(ANSWERED.join(" ") + "; exit 3")]];
        let failed = bench.run(rules, &fails.concat());
        assert_eq!(failed.status.code(), Some(2));
        let document: Value = serde_json::from_str(&text(&failed)).unwrap();
        assert_eq!(document["schema"], "unjank.bus.expect/1");
        assert_eq!((&document["kept"], &document["command"]["status"]), (&false.into(), &3.into()));
        let kept = [0, 1].map(|at| document["outcomes"][at]["kept"].as_bool().unwrap());
        assert_eq!(kept, [true, false], "{document}");
        assert!(said(&failed).contains("the command failed with status 3"), "{}", said(&failed));
        let killed = bench.run("called ListNames", &["--", "sh", "-c", "kill -9 $$"]);
        assert_eq!(killed.status.code(), Some(2));
        assert!(text(&killed).contains("▲ broken  called ListNames: it was not called"));
        assert!(said(&killed).contains("ended by signal 9"), "{}", said(&killed));
    });
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
    in_time(|| {
        let Some(bench) = Bench::start() else { return };
        let pids = bench.bus.dir().join("pids");
        // One ignores being asked, one has a session of its own, one was stopped.
        let script = format!(
            "{}; trap '' TERM; (trap '' TERM; sh -c 'echo $PPID' >> {pids}; while :; do sleep 1; done) & \
             setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & \
             sh -c 'echo $$ >> {pids}; kill -STOP $$; sleep 1000' & echo $$ >> {pids}; wait; sleep 1000",
            ANSWERED.join(" "),
            pids = pids.display()
        );
        let junit = bench.bus.dir().join("junit.xml");
        let arguments = [
            "--time-limit",
            "1500ms",
            "--junit",
            junit.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            &script,
        ];
        let start = Instant::now();
        let ended = bench.run("called ListNames\n", &arguments);
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(text(&ended).contains("● kept    called ListNames"), "{ended:?}");
        assert!(said(&ended).contains("ended after 1.50 s"), "{}", said(&ended));
        let pids = std::fs::read_to_string(pids).unwrap();
        assert_eq!(pids.lines().count(), 4, "{pids}");
        for pid in pids.lines() {
            // Nobody may wait for the end of an orphan here; it has ended all the same.
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "it goes on: {stat}");
        }
        let report = std::fs::read_to_string(&junit).unwrap();
        assert!(
            report.contains("errors=\"1\"") && report.contains("ended after 1.50 s"),
            "{report}"
        );
    });
}

#[test]
fn a_check_that_is_interrupted_says_what_it_found() {
    in_time(|| {
        let Some(bench) = Bench::start() else { return };
        let script = ANSWERED.join(" ") + " > /dev/null; echo done; exec sleep 1000";
        let mut command = bench.expect("called ListNames", &["--", "sh", "-c", &script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(rest[0].contains("● kept    called ListNames"), "{rest:?}");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains("interrupted"), "{}", said(&output));
    });
}

#[test]
fn a_record_is_checked_with_options_on_either_side_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let [path, rules] = ["x.pcapng", "rules"].map(|name| dir.path().join(name));
    record(&path, RecordFormat::Pcapng);
    std::fs::write(&rules, "called Say within 1ms\nat least 1 signals\n").unwrap();
    let [path, rules] = [&path, &rules].map(|path| path.to_str().unwrap());
    for arguments in [["-f", rules, path, "--json"], ["--json", "-f", rules, path]] {
        let output = Command::new(UNJANK).args(["bus", "expect"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let document: Value = serde_json::from_str(&text(&output)).unwrap();
        let kept = [0, 1].map(|at| document["outcomes"][at]["kept"].as_bool().unwrap());
        assert_eq!(kept, [true, false], "{document}");
    }
    // Neither a record nor a command, and both.
    for arguments in [&["-f", rules][..], &["-f", rules, path, "--", "true"]] {
        let output = Command::new(UNJANK).args(["bus", "expect"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn the_junit_file_of_an_earlier_check_does_not_outlive_one_that_could_judge_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    record(&at("record"), RecordFormat::Pcapng);
    std::fs::write(at("kept"), "no errors\n").unwrap();
    std::fs::write(at("no-rule"), "no sense\n").unwrap();
    let check = |rules: &str, file: &str| {
        std::fs::write(at("junit.xml"), "<testsuites failures=\"0\"/>").unwrap();
        let mut command = Command::new(UNJANK);
        command.args(["bus", "expect", "-f", rules, "--junit", "junit.xml", file]);
        command.current_dir(dir.path()).output().unwrap().status.code()
    };
    for (rules, file) in
        [("no-rule", "record"), ("missing", "record"), ("kept", "missing"), ("kept", "kept")]
    {
        assert_eq!(check(rules, file), Some(2), "{rules} {file}");
        let left = std::fs::read_to_string(at("junit.xml")).unwrap_or_default();
        assert!(!left.contains("failures=\"0\""), "{rules} {file}: {left}");
    }
    assert_eq!(check("kept", "record"), Some(0));
    assert!(std::fs::read_to_string(at("junit.xml")).unwrap().contains("no errors"));
}

#[test]
fn the_rules_and_the_recording_are_not_emptied_for_a_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    record(&at("record"), RecordFormat::Pcapng);
    std::fs::write(at("rules"), "no errors\n").unwrap();
    std::os::unix::fs::symlink("record", at("link")).unwrap();
    let before = ["record", "rules"].map(|name| std::fs::read(at(name)).unwrap());
    for junit in ["rules", "record", "./rules", "link"] {
        let mut command = Command::new(UNJANK);
        command.args(["bus", "expect", "-f", "rules", "--junit", junit, "record"]);
        let output = command.current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains("it is also"), "{junit}: {said}");
    }
    let after = ["record", "rules"].map(|name| std::fs::read(at(name)).unwrap());
    assert!(before == after, "a file is not what it was");
}

#[test]
fn half_a_verdict_does_not_stay_where_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    record(&at("record"), RecordFormat::Pcapng);
    std::fs::write(at("rules"), "no errors\n".repeat(100)).unwrap();
    std::fs::write(at("target.xml"), "").unwrap();
    std::os::unix::fs::symlink("target.xml", at("link.xml")).unwrap();
    for (junit, file) in [("link.xml", "target.xml"), ("plain.xml", "plain.xml")] {
        let check =
            "trap '' XFSZ; ulimit -f 2; exec \"$0\" bus expect -f rules --junit \"$1\" record";
        let mut command = Command::new("sh");
        command.args(["-c", check, UNJANK, junit]).current_dir(dir.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let left = std::fs::read(at(file)).unwrap_or_default();
        assert!(left.is_empty(), "{junit}: {}", String::from_utf8_lossy(&left));
    }
}

#[test]
fn a_record_that_is_cut_is_refused_and_every_command_tells_it() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules");
    std::fs::write(&rules, "no errors\nno unanswered\n").unwrap();
    let check = |path: &Path| {
        let mut command = Command::new(UNJANK);
        command.args(["bus", "expect", "-f"]).arg(&rules).arg(path).arg("--json");
        command.output().unwrap()
    };
    for format in [RecordFormat::Pcapng, RecordFormat::Pcap, RecordFormat::Binary] {
        let path = dir.path().join(format!("{format:?}"));
        let whole = record(&path, format);
        assert_eq!(check(&path).status.code(), Some(0), "{format:?}");
        for cut in [whole.len() - 1, whole.len() - 40, whole.len() / 2 + 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let refused = check(&path);
            assert_eq!(refused.status.code(), Some(2), "{format:?} {cut}: {refused:?}");
            assert!(said(&refused).contains("truncated or damaged"), "{}", said(&refused));
            let document: Value = serde_json::from_str(&text(&refused)).unwrap();
            assert_eq!(document["kept"], false);
            assert_eq!(document["outcomes"].as_array().unwrap().len(), 0);
            let run = |arguments: &[&str]| {
                let mut command = Command::new(UNJANK);
                command.arg("bus").args(arguments).arg(&path);
                command.output().unwrap()
            };
            for arguments in [&["stats"][..], &["diagram"], &["diff", path.to_str().unwrap()]] {
                let told = text(&run(arguments));
                assert!(told.contains("truncated or damaged: 1 place cannot be read"), "{told}");
            }
            let same = run(&["diff", path.to_str().unwrap()]);
            assert_eq!(same.status.code(), Some(2), "what is missing may differ: {same:?}");
        }
    }
}

#[test]
fn a_record_of_chosen_messages_is_told_as_one_and_judged_only_for_who_chose_them() {
    let dir = tempfile::tempdir().unwrap();
    let (path, whole) = (dir.path().join("chosen.pcapng"), dir.path().join("whole.pcapng"));
    let rules = dir.path().join("rules");
    std::fs::write(&rules, "no errors\n").unwrap();
    let chosen = "type='method_call'\u{1b}".to_owned();
    let bus = CapturedBus { rules: vec![chosen.clone()], ..CapturedBus::default() };
    record_of(&path, RecordFormat::Pcapng, bus);
    record(&whole, RecordFormat::Pcapng);
    let run = |arguments: &[&str], files: &[&Path]| {
        let mut command = Command::new(UNJANK);
        command.arg("bus").args(arguments).args(files).output().unwrap()
    };
    let expect = ["expect", "-f", rules.to_str().unwrap()];
    let refused = run(&expect, &[&path]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(said(&refused).contains("holds only messages that match"), "{}", said(&refused));
    let other = run(&[&expect[..], &["--match", "type='signal'"]].concat(), &[&path]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let accepted = run(&[&expect[..], &["--match", &chosen]].concat(), &[&path]);
    assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
    let first = "Only messages that match type='method_call'";
    assert!(text(&accepted).starts_with(first) && !text(&accepted).contains('\u{1b}'));
    for arguments in [&["stats"][..], &["diagram"], &["why", ":1.1"]] {
        let told = text(&run(arguments, &[&path]));
        assert!(told.starts_with(first) && !told.contains('\u{1b}'), "{arguments:?}: {told}");
    }
    // Nothing differs, but one of them does not say what it does not hold.
    let apart = run(&["diff"], &[&path, &whole]);
    assert_eq!(apart.status.code(), Some(2), "{apart:?}");
    assert!(text(&apart).contains(&format!("before: {first}")), "{}", text(&apart));
    assert_eq!(run(&["diff"], &[&path, &path]).status.code(), Some(0));
    for (other, differ) in [(&whole, true), (&path, false)] {
        let json = text(&run(&["diff", "--json"], &[&path, other]));
        let document: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(document["match_rules_differ"], differ, "{document:#}");
    }
}

#[test]
fn records_and_reports_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcapng");
    record(&path, RecordFormat::Pcapng);
    let rules = dir.path().join("rules");
    std::fs::write(&rules, "no errors\n").unwrap();
    std::fs::write(dir.path().join("old.html"), "").unwrap();
    let [input, rules] = [&path, &rules].map(|path| path.to_str().unwrap());
    for (name, arguments) in [
        ("a.jsonl", &["convert", input, "-o", "a.jsonl"][..]),
        ("b.pcapng", &["merge", input, input, "-o", "b.pcapng"]),
        ("c.html", &["diagram", input, "-o", "c.html"]),
        ("d.txt", &["diagram", input, "-o", "d.txt"]),
        ("old.html", &["diagram", input, "-o", "old.html", "--force"]),
        ("e.xml", &["expect", "-f", rules, "--junit", "e.xml", input]),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$@\"", "sh", UNJANK, "bus"]).args(arguments);
        let output = command.current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
