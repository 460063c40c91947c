//! Programs that watch a bus and are stopped in a flood, by Ctrl-Z or SIGSTOP: the bus stays as it was, and every loss is
//! counted. What reads the bus beside them goes on, and ends with them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use capture::capture::Capture;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcsetwinsize};

use super::fixture::{Bus, has, in_time, pause, setting, terminal};
use super::flood::memory;
use super::{FLOOD, Recorder, drops, floods, open, said, signals, unjank, until_files};

/// So many signals are more than there is room for.
const MANY: u32 = 6000;
/// What they carry.
const SIZE: u32 = 16 << 10;

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Returns the state of a process as `/proc` has it, and its parent; nothing if it has ended.
fn state(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?)).filter(|(state, _)| !"ZX".contains(*state))
}

/// Waits until a process is in a state, or has ended.
fn until_state(pid: u32, what: &str, is_so: impl Fn(Option<char>) -> bool) {
    let start = std::time::Instant::now();
    while !is_so(state(pid).map(|(state, _)| state)) {
        assert!(start.elapsed().as_secs() < 60, "{pid} {what}: {:?}", state(pid));
        pause();
    }
}

/// Returns the process that reads the bus for another one.
fn reader_of(pid: u32) -> u32 {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut pids = processes.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_reader = |child: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        state(*child).is_some_and(|(_, parent)| parent == pid) && name.trim() == "bus-reader"
    };
    pids.find(is_reader).expect("nobody reads the bus")
}

/// Sends more than there is room for; FLOOD_SECONDS has it last so long.
fn flood(bus: &Bus) -> u64 {
    let start = std::time::Instant::now();
    let mut sent = 0;
    loop {
        signals(bus, MANY, SIZE);
        sent += u64::from(MANY);
        if start.elapsed().as_secs() >= setting("FLOOD_SECONDS").unwrap_or(0) {
            return sent;
        }
    }
}

/// Floods a bus while a program that watches it is stopped, by a signal or a key; returns how many signals that were.
fn flood_beside_stopped(bus: &Bus, how: &str) -> u64 {
    let before = memory(bus);
    let sent = flood(bus);
    let grown = memory(bus).saturating_sub(before);
    #[expect(clippy::print_stderr, reason = "the figure is to be seen with --nocapture")]
    if setting("FLOOD_SECONDS").is_some() {
        eprintln!("{how}, {sent} signals of 16 KiB: the bus grew by {} KiB", grown >> 10);
    }
    assert!(grown < 2 << 20, "the bus grew by {grown} bytes");
    sent
}

/// Stops a program, floods the bus and lets the program go on; returns how many signals that were.
fn stop_in_a_flood(bus: &Bus, pid: u32) -> u64 {
    // The bus has made what it needs for such messages.
    signals(bus, 100, SIZE);
    send(pid, Signal::STOP);
    until_state(pid, "does not stop", |state| state == Some('T'));
    let sent = flood_beside_stopped(bus, "SIGSTOP");
    assert_eq!(state(pid).unwrap().0, 'T', "it went on by itself");
    send(pid, Signal::CONT);
    sent + 100
}

#[test]
fn a_recorder_that_is_stopped_costs_the_bus_nothing_and_every_loss_is_counted() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("a.pcapng");
        let mut recorder = Recorder::of(&bus, &path, &["--match", FLOOD, "--room", "16M"]);
        let mut sent = stop_in_a_flood(&bus, recorder.child().id());
        // It goes on where it was, and what comes then is recorded.
        let goes_on = || {
            let small =
                |capture: Capture| floods(&capture).last().is_some_and(|it| it.len() < 1000);
            Capture::open(&path).is_ok_and(small)
        };
        while !goes_on() {
            signals(&bus, 20, 100);
            sent += 20;
        }
        let ended = recorder.end();
        assert!(ended.status.success(), "{}", said(&ended));
        let capture = open(&path);
        let dropped: u64 = drops(&capture).iter().map(|dropped| dropped.count).sum();
        assert!(dropped > 1000, "{dropped}");
        assert_eq!(floods(&capture).len() as u64 + dropped, sent);
        assert!(said(&ended).contains(&format!("{dropped} were dropped")), "{}", said(&ended));
    });
}

#[test]
fn whatever_watches_a_bus_may_be_stopped_without_a_cost_to_the_bus() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let rules = bus.dir().join("rules");
        std::fs::write(&rules, "no errors\n").unwrap();
        let watching = |child: Child| {
            let child = Recorder(Some(child));
            let pid = child.0.as_ref().unwrap().id();
            (child, pid)
        };
        let mut tail = unjank(&bus);
        tail.args(["tail", "--json", "--match", FLOOD]).stdout(Stdio::piped());
        let (mut tail, pid) = watching(tail.spawn().unwrap());
        let mut lines = BufReader::new(tail.child().stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        let reader = reader_of(pid);
        let reads = std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        stop_in_a_flood(&bus, pid);
        drop(tail);
        until_state(reader, "outlives what it reads for", |state| state.is_none());
        reads.join().unwrap().unwrap();

        let mut expect = unjank(&bus);
        expect.args(["expect", "-f"]).arg(&rules).args([
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]);
        let (mut expect, pid) = watching(expect.stdout(Stdio::piped()).spawn().unwrap());
        let mut ready = BufReader::new(expect.child().stdout.take().unwrap());
        ready.read_line(&mut String::new()).unwrap();
        stop_in_a_flood(&bus, pid);
        assert_eq!(expect.end().status.code(), Some(2));

        let (screen, line) = terminal::open();
        tcsetwinsize(&line, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 })
            .unwrap();
        let end = || Stdio::from(line.try_clone().unwrap());
        let mut command = unjank(&bus);
        command.args(["live", "--match", FLOOD]).stdin(end()).stdout(end()).stderr(end());
        let (live, pid) = watching(command.env("TERM", "xterm").spawn().unwrap());
        // A command that was started holds the line as long as it is there.
        drop(command);
        let mut screen = File::from(screen);
        let mut seen = Vec::<u8>::new();
        while !seen.windows(8).any(|word| word == b"messages") {
            let mut piece = [0; 4096];
            let count = screen.read(&mut piece).unwrap();
            seen.extend(&piece[..count]);
        }
        let mut rest = screen.try_clone().unwrap();
        let reader = reader_of(pid);
        let reads = std::thread::spawn(move || std::io::copy(&mut rest, &mut std::io::sink()));
        stop_in_a_flood(&bus, pid);
        drop((live, line));
        until_state(reader, "outlives what it reads for", |state| state.is_none());
        // The end of a terminal is an error.
        let _ = reads.join().unwrap();
    });
}

#[test]
fn ctrl_z_in_a_shell_stops_a_recorder_and_not_what_reads_the_bus() {
    if !has(&["bash", "setsid"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let (pty, line) = terminal::open();
        let end = || Stdio::from(line.try_clone().unwrap());
        let mut shell = bus.command("setsid");
        shell.args(["--ctty", "bash", "--norc", "--noprofile", "-i"]);
        shell.env("PS1", "<$?>").env("TERM", "dumb").stdin(end()).stdout(end()).stderr(end());
        let shell = Recorder(Some(shell.spawn().unwrap()));
        let mut keys = File::from(pty.try_clone().unwrap());
        let mut screen = File::from(pty);
        let mut seen = String::new();
        let mut expect = |text: &str| {
            while !seen.contains(text) {
                let mut piece = [0; 4096];
                let count = screen.read(&mut piece).unwrap();
                seen.push_str(&String::from_utf8_lossy(&piece[..count]));
            }
            let at = seen.find(text).unwrap();
            seen.drain(..at + text.len());
        };
        expect("<0>");
        let path = bus.dir().join("a.pcapng");
        let command =
            format!("{} bus record --match \"{FLOOD}\" -o {}\n", super::UNJANK, path.display());
        keys.write_all(command.as_bytes()).unwrap();
        expect("Ctrl-C ends it.");
        let job = rustix::termios::tcgetpgrp(&keys).unwrap().as_raw_nonzero().get();
        let job = u32::try_from(job).unwrap();
        let reader = reader_of(job);
        signals(&bus, 100, SIZE);
        keys.write_all(b"\x1a").unwrap();
        expect("Stopped");
        until_state(job, "does not stop", |state| state == Some('T'));
        let sent = flood_beside_stopped(&bus, "Ctrl-Z");
        assert_ne!(state(reader).unwrap().0, 'T');
        keys.write_all(b"fg\n").unwrap();
        until_state(job, "does not go on", |state| state != Some('T'));
        // Ctrl-C ends it with what it has, losses counted.
        keys.write_all(b"\x03").unwrap();
        expect("were dropped for lack of room");
        expect("<0>");
        until_state(reader, "does not end", |state| state.is_none());
        let capture = open(&path);
        let dropped: u64 = drops(&capture).iter().map(|dropped| dropped.count).sum();
        assert_eq!(floods(&capture).len() as u64 + dropped, sent + 100);
        drop(shell);
    });
}

#[test]
fn what_reads_the_bus_goes_on_when_it_is_stopped_itself() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("a.pcapng");
        let mut recorder = Recorder::of(&bus, &path, &["--match", FLOOD, "--room", "256M"]);
        let reader = reader_of(recorder.child().id());
        signals(&bus, 100, SIZE);
        for signal in [Signal::STOP, Signal::TSTP, Signal::TTIN] {
            send(reader, signal);
            until_state(reader, "stays stopped", |state| state != Some('T'));
        }
        let before = memory(&bus);
        send(reader, Signal::STOP);
        signals(&bus, MANY, SIZE);
        let grown = memory(&bus).saturating_sub(before);
        // The bus buffers until its parent gets a processor, which takes as long as the machine is busy. A reader that stays
        // stopped costs the whole flood.
        let flood = u64::from(MANY) * u64::from(SIZE);
        assert!(grown < flood / 4, "the bus grew by {grown} bytes of {flood}");
        let ended = recorder.end();
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(floods(&open(&path)).len(), usize::try_from(MANY + 100).unwrap());
    });
}

#[test]
fn what_reads_the_bus_ends_with_whoever_records_and_its_own_end_is_told() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("a.pcapng");
        let mut recorder = Recorder::of(&bus, &path, &["--match", FLOOD]);
        let reader = reader_of(recorder.child().id());
        signals(&bus, 10, SIZE);
        recorder.child().kill().unwrap();
        until_state(reader, "goes on without its parent", |state| state.is_none());

        let path = bus.dir().join("b.pcapng");
        let mut recorder = Recorder::of(&bus, &path, &["--match", FLOOD]);
        let reader = reader_of(recorder.child().id());
        signals(&bus, 10, SIZE);
        let has_all = || Capture::open(&path).is_ok_and(|it| floods(&it).len() == 10);
        until_files(bus.dir(), "all are in the file", has_all);
        // What ends programs by way of a service manager does not reach it.
        send(reader, Signal::TERM);
        send(reader, Signal::KILL);
        let ended = recorder.0.take().unwrap().wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(said(&ended).contains("the process that reads the bus was ended"), "{ended:?}");
        assert_eq!(floods(&open(&path)).len(), 10);
        let stats = unjank(&bus).arg("stats").arg(&path).output().unwrap();
        assert!(!String::from_utf8_lossy(&stats.stdout).contains("damaged"), "the file is whole");
    });
}

#[test]
fn messages_of_any_length_are_handed_over_whole() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("a.pcapng");
        let recorder = Recorder::of(&bus, &path, &["--match", FLOOD, "--room", "128M"]);
        let mut lengths = Vec::new();
        for size in [1, 250_000, 262_144, 262_145, 1_000_000, 3, 20_000_000, 5_000] {
            signals(&bus, 2, size);
            lengths.extend([size; 2]);
        }
        let ended = recorder.end();
        assert!(said(&ended).contains("none was dropped"), "{}", said(&ended));
        let bodies = floods(&open(&path));
        assert_eq!(bodies.len(), lengths.len());
        for (bytes, length) in bodies.iter().zip(lengths) {
            let length = usize::try_from(length).unwrap();
            assert!(bytes.len() >= length && bytes.len() < length + 400);
            assert!(bytes[bytes.len() - length..].iter().all(|byte| *byte == b'x'));
        }
    });
}
