//! Recording a private bus beside dbus-monitor, busctl and tshark, and with outputs that are full or blocked.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panics")]

#[path = "bus_record/flood.rs"]
mod flood;
#[path = "bus_record/limits.rs"]
mod limits;
#[path = "bus_record/rights.rs"]
mod rights;
#[path = "bus_record/stopped.rs"]
mod stopped;

use crate::fixture;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use capture::capture::{Capture, CaptureEvent, ConnectionRole, Dropped, PeerRecord, RecordFormat};
use capture::model::{Ending, Row, read};
use fixture::{Bus, has, in_time};
use rustix::process::{Pid, Signal, kill_process};
use sys::dir::OpenDirectory;
use sys::watch::{DirectoryWatch, Ready, WatchScope};

/// Nothing but our own signals.
const FLOOD: &str = "type='signal',interface='org.unjank.Traffic'";
const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// Waits until something is so of files in a directory; looks again whenever one of them has changed.
fn until_files(dir: &Path, what: &str, mut are_so: impl FnMut() -> bool) {
    let watch =
        DirectoryWatch::of(&OpenDirectory::open(dir).unwrap(), WatchScope::Attributes).unwrap();
    let (socket, _other_end) = sys::socket::pair().unwrap();
    while !are_so() {
        let ready = watch.wait(&socket, Some(Duration::from_secs(50))).unwrap();
        assert_eq!(ready, Ready::Changes, "{what}");
        watch.read(|_| ()).unwrap();
    }
}

fn unjank(bus: &Bus) -> Command {
    let mut command = bus.command(UNJANK);
    command.arg("bus");
    command
}

fn traffic(bus: &Bus) -> Command {
    let mut command = unjank(bus);
    command.args(["traffic", "--address", bus.address()]);
    command
}

/// Sends signals that nobody asked for.
fn signals(bus: &Bus, count: u32, size: u32) {
    let done = traffic(bus).arg("signal").args([count, size].map(|n| n.to_string())).status();
    assert!(done.unwrap().success());
}

/// A recorder; ends with the test.
struct Recorder(Option<Child>);

impl Recorder {
    fn start(mut command: Command) -> Recorder {
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut recorder = Recorder(Some(child));
        // It says so once the monitor is there.
        let mut said = Vec::new();
        let stderr = recorder.0.as_mut().unwrap().stderr.as_mut().unwrap();
        while !said.ends_with(b"\n") {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
            said.extend(byte);
        }
        assert!(said.starts_with(b"Recording "), "{}", String::from_utf8_lossy(&said));
        recorder
    }

    fn of(bus: &Bus, output: &Path, more: &[&str]) -> Recorder {
        let mut command = unjank(bus);
        command.args(["record", "-o"]).arg(output).args(more);
        Recorder::start(command)
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Asks it to end and returns what it said.
    fn end(mut self) -> Output {
        kill_process(Pid::from_child(self.child()), Signal::INT).unwrap();
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The messages of our own traffic in a record: whole bytes, in their order.
fn floods(capture: &Capture) -> Vec<Vec<u8>> {
    let ours = capture.events().filter_map(|event| match event {
        CaptureEvent::Message(message) => {
            let header = wire::message(message.bytes).ok()?;
            (header.member == Some("Flood")).then(|| message.bytes.to_vec())
        }
        _ => None,
    });
    ours.collect()
}

fn drops(capture: &Capture) -> Vec<Dropped> {
    let drops = capture.events().filter_map(|event| match event {
        CaptureEvent::Dropped(dropped) => Some(dropped),
        _ => None,
    });
    drops.collect()
}

fn open(path: &Path) -> Capture {
    Capture::open(path).unwrap()
}

#[test]
fn a_record_begins_with_who_is_there_and_has_every_message() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let mut answer = traffic(&bus).arg("answer").spawn().unwrap();
        bus.client().wait_for_owner("org.unjank.Traffic").unwrap();
        let path = bus.dir().join("a.pcapng");
        let recorder = Recorder::of(&bus, &path, &[]);
        let called = traffic(&bus).args(["call", "200", "8", "64"]).output().unwrap();
        assert_eq!(called.stdout.iter().filter(|byte| **byte == b'\n').count(), 201);
        signals(&bus, 20, 100_000);
        let ended = recorder.end();
        answer.kill().unwrap();
        let pid = answer.id();
        answer.wait().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
        assert!(said(&ended).contains("none was dropped"), "{}", said(&ended));
        let capture = open(&path);
        assert_eq!(capture.format(), RecordFormat::Pcapng);
        let events: Vec<CaptureEvent<'_>> = capture.events().collect();
        let CaptureEvent::Bus(first) = &events[0] else { panic!("{:?}", events[0]) };
        assert_eq!((&*first.name, &*first.address), ("session", bus.address()));
        let first_message =
            events.iter().position(|event| matches!(event, CaptureEvent::Message(_)));
        let before: Vec<&PeerRecord> = events[..first_message.unwrap()]
            .iter()
            .filter_map(|event| match event {
                CaptureEvent::Peer(peer) => Some(&**peer),
                _ => None,
            })
            .collect();
        let service = before.iter().find(|peer| peer.names == ["org.unjank.Traffic"]).unwrap();
        assert_eq!((service.pid, service.role), (Some(pid), ConnectionRole::Watched));
        assert_eq!(
            Path::new(service.exe.as_ref().unwrap()),
            Path::new(UNJANK).canonicalize().unwrap()
        );
        assert!(before.iter().any(|peer| peer.role == ConnectionRole::Recorder));
        // Those who came later are followed, until they have gone.
        let later =
            events.iter().filter(|event| matches!(event, CaptureEvent::Peer(peer) if peer.gone));
        assert!(later.count() >= 2);
        let mut members: BTreeMap<String, usize> = BTreeMap::new();
        let mut last = 0;
        for event in &events {
            let CaptureEvent::Message(message) = event else { continue };
            assert!(message.at.0 >= last);
            last = message.at.0;
            let header = wire::message(message.bytes).unwrap();
            assert!(!header.is_cut());
            let member = header.member.map_or_else(|| header.signature.to_owned(), str::to_owned);
            *members.entry(member).or_default() += 1;
        }
        assert_eq!((members["Echo"], members["ay"], members["Flood"]), (200, 200, 20));
        assert!(floods(&capture).iter().all(|bytes| bytes.len() > 100_000));
    });
}

#[test]
fn wireshark_reads_the_same_messages() {
    if !has(&["tshark", "editcap"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("a.pcapng");
        let recorder = Recorder::of(&bus, &path, &[]);
        signals(&bus, 30, 5000);
        signals(&bus, 30, 3);
        assert!(recorder.end().status.success());
        let ours: Vec<String> = open(&path)
            .events()
            .filter_map(|event| match event {
                CaptureEvent::Message(message) => {
                    let header = wire::message(message.bytes).unwrap();
                    let member = header.member.unwrap_or_default();
                    Some(format!("{}\t{}\t{member}", message.bytes.len(), header.serial))
                }
                _ => None,
            })
            .collect();
        assert!(ours.len() >= 60);
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path).args(["-T", "fields"]);
        tshark.args(["-e", "frame.len", "-e", "dbus.serial", "-e", "dbus.member"]);
        let theirs = tshark.env("HOME", bus.dir()).output().unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        assert_eq!(theirs.lines().collect::<Vec<_>>(), ours);
        // What another reader writes again has the same bytes.
        let again = bus.dir().join("again.pcap");
        let done = Command::new("editcap").args(["-F", "pcap"]).arg(&path).arg(&again).status();
        assert!(done.unwrap().success());
        let again = open(&again);
        assert_eq!((again.format(), floods(&again)), (RecordFormat::Pcap, floods(&open(&path))));
    });
}

#[test]
fn records_of_others_hold_the_same() {
    if !has(&["dbus-monitor", "busctl"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let address = bus.address().to_owned();
        let others: [(&str, RecordFormat, Vec<String>); 4] = [
            (
                "pcap",
                RecordFormat::Pcap,
                vec!["dbus-monitor".into(), "--pcap".into(), "--address".into(), address.clone()],
            ),
            (
                "binary",
                RecordFormat::Binary,
                vec!["dbus-monitor".into(), "--binary".into(), "--address".into(), address.clone()],
            ),
            (
                "profile",
                RecordFormat::Log,
                vec![
                    "dbus-monitor".into(),
                    "--profile".into(),
                    "--address".into(),
                    address.clone(),
                ],
            ),
            (
                "busctl",
                RecordFormat::Pcapng,
                vec!["busctl".into(), format!("--address={address}"), "capture".into()],
            ),
        ];
        let path = bus.dir().join("ours.pcapng");
        let recorder = Recorder::of(&bus, &path, &[]);
        let running: Vec<(PathBuf, RecordFormat, Child)> = others
            .into_iter()
            .map(|(name, format, words)| {
                let path = bus.dir().join(name);
                let mut command = bus.command(&words[0]);
                command.args(&words[1..]).stdout(File::create(&path).unwrap());
                (path, format, command.stderr(Stdio::null()).spawn().unwrap())
            })
            .collect();
        // Who is a monitor is heard by those who were before.
        let monitors = || {
            let Ok(capture) = Capture::open(&path) else { return 0 };
            let model = read(capture.events(), |_, _, _| Ending::Continue);
            let is_one = |row: &Row| model.texts.get(row.member) == "BecomeMonitor";
            model.rows().filter(|(_, row)| is_one(row) && model.partner(row).is_some()).count()
        };
        until_files(bus.dir(), "the others watch", || monitors() == running.len());
        signals(&bus, 25, 6000);
        let length = |path: &Path| std::fs::metadata(path).unwrap().len();
        until_files(bus.dir(), "the others have all", || {
            running.iter().all(|(path, _, _)| {
                let before = length(path);
                Capture::open(path).is_ok_and(|it| flood_members(&it) == 25)
                    && before == length(path)
            })
        });
        assert!(recorder.end().status.success());
        let ours = floods(&open(&path));
        assert_eq!(ours.len(), 25);
        for (path, format, mut child) in running {
            child.kill().unwrap();
            child.wait().unwrap();
            let capture = open(&path);
            assert_eq!(capture.format(), format);
            match format {
                RecordFormat::Log => assert_eq!(flood_members(&capture), 25),
                // It cuts bodies, and says how long they were.
                RecordFormat::Pcapng => {
                    let theirs = floods(&capture);
                    assert!(theirs.iter().zip(&ours).all(|(cut, whole)| whole.starts_with(cut)));
                    assert!(theirs.iter().all(|cut| cut.len() == 4096));
                }
                _ => assert_eq!(floods(&capture), ours, "{format:?}"),
            }
        }
    });
}

fn flood_members(capture: &Capture) -> usize {
    let members = capture.events().filter(|event| match event {
        CaptureEvent::Message(message) => {
            wire::message(message.bytes).is_ok_and(|header| header.member == Some("Flood"))
        }
        _ => false,
    });
    members.count()
}

#[test]
fn a_recording_ends_by_itself_at_its_size_or_time_and_with_the_bus() {
    in_time(|| {
        let Some(mut bus) = Bus::start() else { return };
        let path = bus.dir().join("size");
        let mut sized = Recorder::of(&bus, &path, &["--max-size", "100K"]);
        signals(&bus, 100, 5000);
        assert_eq!(sized.child().wait().unwrap().code(), Some(0));
        let length = std::fs::metadata(&path).unwrap().len();
        assert!((90_000..=100 << 10).contains(&length), "{length}");
        assert!(!open(&path).events().any(|event| matches!(event, CaptureEvent::Damaged(_))));

        let path = bus.dir().join("time");
        let mut timed = Recorder::of(&bus, &path, &["--for", "300ms"]);
        assert_eq!(timed.child().wait().unwrap().code(), Some(0));

        let path = bus.dir().join("bus-ended");
        let mut orphan = Recorder::of(&bus, &path, &[]);
        bus.kill();
        assert_eq!(orphan.child().wait().unwrap().code(), Some(0));
        assert_eq!(open(&path).format(), RecordFormat::Pcapng);
    });
}

#[test]
fn a_record_is_converted_there_and_back_and_merged() {
    in_time(|| {
        let (Some(one), Some(two)) = (Bus::start(), Bus::start()) else { return };
        let path = one.dir().join("a.pcapng");
        let mut command = unjank(&one);
        command.args(["record", "--session", "--address", two.address(), "-o"]).arg(&path);
        let recorder = Recorder::start(command);
        signals(&one, 5, 64);
        signals(&two, 7, 64);
        assert!(recorder.end().status.success());
        let capture = open(&path);
        assert_eq!(floods(&capture).len(), 12);
        let convert = |from: &Path, to: &Path| {
            let done = unjank(&one).arg("convert").arg(from).arg("-o").arg(to).output().unwrap();
            assert!(done.status.success(), "{}", said(&done));
        };
        let lines = one.dir().join("a.jsonl");
        let again = one.dir().join("again.pcapng");
        convert(&path, &lines);
        convert(&lines, &again);
        let events: Vec<CaptureEvent<'_>> = capture.events().collect();
        assert_eq!(open(&again).events().collect::<Vec<_>>(), events);
        let mut refused = unjank(&one);
        refused.arg("convert").arg(&path).args(["--to", "pcap", "-o"]);
        let refused = refused.arg(one.dir().join("no.pcap")).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(said(&refused).contains("one bus"), "{}", said(&refused));
        let merged = one.dir().join("merged.pcapng");
        let done =
            unjank(&one).arg("merge").args([&path, &again, &lines]).arg("-o").arg(&merged).output();
        assert!(done.unwrap().status.success());
        let merged = open(&merged);
        assert_eq!(floods(&merged).len(), 36);
        let buses = merged.events().filter(|event| matches!(event, CaptureEvent::Bus(_)));
        assert_eq!(buses.count(), 6);
    });
}

#[test]
fn a_pcap_of_ours_tells_who_is_there_by_messages() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("a.pcap");
        let recorder = Recorder::of(&bus, &path, &[]);
        signals(&bus, 5, 64);
        assert!(recorder.end().status.success());
        let capture = open(&path);
        assert_eq!((capture.format(), floods(&capture).len()), (RecordFormat::Pcap, 5));
        let asked = capture.events().any(|event| match event {
            CaptureEvent::Message(message) => {
                wire::message(message.bytes).is_ok_and(|header| header.member == Some("ListNames"))
            }
            _ => false,
        });
        assert!(asked);
        if has(&["bustle"]) {
            let counted = bus.command("bustle").arg("--count").arg(&path).output().unwrap();
            let counted = String::from_utf8_lossy(&counted.stdout).into_owned();
            assert!(counted.contains("Flood"), "{counted}");
        }
    });
}

#[test]
fn lines_come_as_messages_do() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let mut command = unjank(&bus);
        command.args(["tail", "--json", "--match", FLOOD]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.starts_with(r#"{"event":"bus""#), "{first}");
        signals(&bus, 1, 3);
        let line = lines.map(Result::unwrap).find(|line| line.contains("Flood")).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["type"], &line["body"][0]), (&"signal".into(), &"xxx".into()));
        // Nobody reads any more, so the next line ends it.
        signals(&bus, 1, 3);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    });
}
