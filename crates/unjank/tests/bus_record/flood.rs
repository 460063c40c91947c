//! Floods while the disk is full, the pipe is blocked or the terminal stands still: the bus stays as it was, and every loss
//! is counted.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capture::capture::{Capture, CaptureEvent};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Action, Winsize, tcflow, tcsetwinsize};

use super::fixture::{Bus, in_time, skip, terminal};
use super::{FLOOD, Recorder, drops, floods, open, said, signals, unjank, until_files};

/// So many signals are a flood.
const MANY: u32 = 6000;

/// The memory of the daemon behind a bus, in bytes.
pub(super) fn memory(bus: &Bus) -> u64 {
    let pid = bus.client().pid_of("org.freedesktop.DBus").unwrap();
    sys::memory::Memory::of(pid).unwrap().resident_bytes
}

/// Sends 94 MiB, half as much again as what a recorder has room for. The bus may keep what is under way, and no more.
fn costs_the_bus_nothing(bus: &Bus) {
    let before = memory(bus);
    signals(bus, MANY, 16 << 10);
    let grown = memory(bus).saturating_sub(before);
    assert!(grown < 2 << 20, "the bus grew by {grown} bytes");
}

#[test]
fn a_blocked_pipe_costs_the_bus_nothing_and_every_loss_is_counted() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let (mut reading, writing) = std::io::pipe().unwrap();
        let mut command = unjank(&bus);
        command.args(["record", "-o", "-", "--match", FLOOD]).stdout(OwnedFd::from(writing));
        let recorder = Recorder::start(command);
        // The bus has made what it needs for such messages.
        signals(&bus, 100, 16 << 10);
        costs_the_bus_nothing(&bus);
        // Somebody reads again, and what comes then is recorded.
        let small_came = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let small_came = Arc::clone(&small_came);
            move || {
                let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
                loop {
                    match reading.read(&mut piece).unwrap() {
                        0 => break bytes,
                        count => bytes.extend(&piece[..count]),
                    }
                    // Two in so little are small ones.
                    let last = &bytes[bytes.len().saturating_sub(4096)..];
                    let names = last.windows(5).filter(|word| word == b"Flood").count();
                    small_came.fetch_or(names > 1, Ordering::Relaxed);
                }
            }
        });
        let mut sent = 100 + u64::from(MANY);
        // The first of these may still be dropped; each asks again whether there is room.
        while !small_came.load(Ordering::Relaxed) {
            signals(&bus, 20, 100);
            sent += 20;
        }
        let ended = recorder.end();
        assert!(ended.status.success(), "{}", said(&ended));
        let capture = Capture::of(reader.join().unwrap()).unwrap();
        assert!(!capture.events().any(|event| matches!(event, CaptureEvent::Damaged(_))));
        let floods = floods(&capture);
        assert!(floods.last().unwrap().len() < 1000, "recording went on");
        let dropped: u64 = drops(&capture).iter().map(|dropped| dropped.count).sum();
        assert!(dropped > 1000, "{dropped}");
        assert_eq!(u64::try_from(floods.len()).unwrap() + dropped, sent);
        assert!(said(&ended).contains(&format!("{dropped} were dropped")), "{}", said(&ended));
    });
}

#[test]
fn a_full_disk_is_waited_for_and_every_loss_is_counted() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let disk = bus.dir().join("disk");
        let Some(mounted) = Mounted::small(&disk) else { return };
        let path = disk.join("a.pcapng");
        let recorder = Recorder::of(&bus, &path, &["--match", FLOOD]);
        signals(&bus, 100, 16 << 10);
        costs_the_bus_nothing(&bus);
        // There is room again, and what comes then is recorded.
        mounted.grow();
        let mut sent = 100 + u64::from(MANY);
        let goes_on = || {
            Capture::open(&path)
                .is_ok_and(|it| floods(&it).last().is_some_and(|last| last.len() < 1000))
        };
        while !goes_on() {
            signals(&bus, 20, 100);
            sent += 20;
        }
        let ended = recorder.end();
        assert!(ended.status.success(), "{}", said(&ended));
        let capture = open(&path);
        assert!(!capture.events().any(|event| matches!(event, CaptureEvent::Damaged(_))));
        let dropped: u64 = drops(&capture).iter().map(|dropped| dropped.count).sum();
        assert!(dropped > 1000, "{dropped}");
        assert_eq!(u64::try_from(floods(&capture).len()).unwrap() + dropped, sent);
        drop(capture);
        drop(mounted);
    });
}

#[test]
fn a_terminal_that_stands_still_costs_the_bus_nothing_and_every_loss_is_counted() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let (screen, line) = terminal::open();
        let screen = File::from(screen);
        let end = || Stdio::from(line.try_clone().unwrap());
        // One prints all messages on it, as much as can be seen in a moment; the other how far it is.
        let mut tail = unjank(&bus);
        tail.args(["tail", "--json", "--room", "16M", "--match", FLOOD])
            .stdout(end())
            .stderr(end());
        // A command that was started holds the line as long as it is there.
        let start = |mut command: Command| Recorder(Some(command.spawn().unwrap()));
        let tail = start(tail);
        let path = bus.dir().join("a.pcapng");
        let mut record = unjank(&bus);
        record.args(["record", "--room", "128M", "--match", FLOOD, "-o"]).arg(&path).stderr(end());
        let record = start(record);
        let mut screen = BufReader::new(screen);
        let mut began = 0;
        while began < 2 {
            let mut seen = String::new();
            assert!(screen.read_line(&mut seen).unwrap() > 0);
            began += usize::from(seen.contains(r#""event":"bus""#) || seen.contains("Recording "));
        }
        // As Ctrl-S does.
        tcflow(&line, Action::OOff).unwrap();
        signals(&bus, 100, 16 << 10);
        costs_the_bus_nothing(&bus);
        // Who prints little is not held up at all.
        let ended = record.end();
        assert!(ended.status.success());
        assert_eq!(
            (floods(&open(&path)).len(), drops(&open(&path))),
            (usize::try_from(100 + MANY).unwrap(), Vec::new())
        );
        tcflow(&line, Action::OOn).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            // The end of a terminal is an error.
            for text in screen.lines().map_while(Result::ok) {
                let Ok(said) = serde_json::from_str::<serde_json::Value>(&text) else { continue };
                let is_flood = said["member"] == "Flood";
                let is_small = said["length"].as_u64().is_some_and(|length| length < 1000);
                let dropped = said["count"].as_u64().filter(|_| said["event"] == "dropped");
                let _ =
                    tell.send((u64::from(is_flood), dropped.unwrap_or(0), is_flood && is_small));
            }
        });
        let mut sent = 100 + u64::from(MANY);
        let (mut floods, mut dropped, mut small_came) = (0, 0, false);
        while !small_came || floods + dropped < sent {
            if !small_came {
                signals(&bus, 20, 100);
                sent += 20;
            }
            // What comes once there is room is all printed, and nothing else ends the wait for it.
            let first = if small_came { told.recv().ok() } else { told.try_recv().ok() };
            for (flood, missed, is_small) in first.into_iter().chain(told.try_iter()) {
                floods += flood;
                dropped += missed;
                small_came |= is_small;
            }
        }
        assert!(tail.end().status.success());
        drop(line);
        reader.join().unwrap();
        assert!(dropped > 1000, "{dropped}");
        assert_eq!(floods + dropped, sent);
    });
}

#[test]
fn a_live_view_whose_terminal_stands_still_costs_the_bus_nothing_and_every_loss_is_counted() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let (screen, line) = terminal::open();
        let screen = File::from(screen);
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&line, size).unwrap();
        let end = || Stdio::from(line.try_clone().unwrap());
        let mut command = unjank(&bus);
        command.args(["live", "--match", FLOOD]);
        command.stdin(end()).stdout(end()).stderr(end());
        let live = command.env("TERM", "xterm").current_dir(bus.dir()).spawn().unwrap();
        let mut live = Recorder(Some(live));
        // A command that was started holds the line as long as it is there.
        drop(command);
        let (began, begin) = std::sync::mpsc::channel();
        let mut keys = screen.try_clone().unwrap();
        // Somebody looks for as long as there is something to see.
        let reader = std::thread::spawn(move || {
            let (mut screen, mut seen, mut piece) = (screen, Vec::<u8>::new(), vec![0; 1 << 16]);
            // The end of a terminal is an error.
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                seen.extend(&piece[..count]);
                if seen.windows(8).any(|word| word == b"messages") {
                    seen.clear();
                    let _ = began.send(());
                }
            }
        });
        begin.recv().unwrap();
        tcflow(&line, Action::OOff).unwrap();
        signals(&bus, 100, 16 << 10);
        costs_the_bus_nothing(&bus);
        tcflow(&line, Action::OOn).unwrap();
        let mut sent = 100 + u64::from(MANY);
        let mut goes_on = false;
        for number in 0.. {
            if !goes_on {
                signals(&bus, 20, 100);
                sent += 20;
            }
            // Ctrl-U empties the name that is offered.
            let name = format!("{number}.pcapng");
            keys.write_all(format!("w\x15{name}\r").as_bytes()).unwrap();
            let path = bus.dir().join(name);
            let is_whole = || Capture::open(&path).is_ok_and(|it| !floods(&it).is_empty());
            until_files(bus.dir(), "what is shown is saved", is_whole);
            let saved = open(&path);
            let floods = floods(&saved);
            let dropped: u64 = drops(&saved).iter().map(|dropped| dropped.count).sum();
            goes_on = floods.last().is_some_and(|last| last.len() < 1000);
            if goes_on && u64::try_from(floods.len()).unwrap() + dropped == sent {
                assert!(dropped > 1000, "{dropped}");
                break;
            }
            std::fs::remove_file(&path).unwrap();
        }
        // It ends when it is asked to, whether or not it can say so on the terminal.
        tcflow(&line, Action::OOff).unwrap();
        kill_process(Pid::from_child(live.child()), Signal::TERM).unwrap();
        assert_eq!(live.child().wait().unwrap().code(), Some(128 + 15));
        drop((line, keys));
        reader.join().unwrap();
    });
}

#[test]
fn a_disk_that_stays_full_is_an_error_and_what_is_there_is_whole() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let disk = bus.dir().join("disk");
        let Some(mounted) = Mounted::small(&disk) else { return };
        let path = disk.join("a.pcapng");
        let recorder = Recorder::of(&bus, &path, &["--match", FLOOD]);
        signals(&bus, 300, 16 << 10);
        let ended = recorder.end();
        assert_eq!(ended.status.code(), Some(2), "{}", said(&ended));
        let text = said(&ended);
        assert!(text.contains("No space left on device"), "{text}");
        let capture = open(&path);
        assert!(!capture.events().any(|event| matches!(event, CaptureEvent::Damaged(_))));
        let there = floods(&capture).len();
        assert!(there > 10 && there < 300);
        // The bus also tells a monitor that its name is gone.
        let all =
            capture.events().filter(|event| matches!(event, CaptureEvent::Message(_))).count();
        let expected = format!("the file contains {all} messages, {} are missing", 300 - there);
        assert!(text.contains(&expected), "{expected}: {text}");
        drop(capture);
        drop(mounted);
    });
}

/// A file system in memory.
struct Mounted(PathBuf);

impl Mounted {
    /// Makes the directory `at` and mounts a small one there; `None`, said, where that is not allowed.
    fn small(at: &Path) -> Option<Mounted> {
        if !rustix::process::geteuid().is_root() {
            skip("only root may mount");
            return None;
        }
        std::fs::create_dir(at).unwrap();
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at).status();
        if !done.is_ok_and(|status| status.success()) {
            skip("nothing may be mounted");
            return None;
        }
        Some(Mounted(at.to_owned()))
    }

    fn grow(&self) {
        let done = Command::new("mount").args(["-o", "remount,size=256m"]).arg(&self.0).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
