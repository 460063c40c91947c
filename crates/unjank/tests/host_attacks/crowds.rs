//! Callers who ask for too much, and what becomes of the others meanwhile.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::fixture::fuse::{HangingMount, Server};
use super::fixture::{Bus, NAME, OURS, SET_A_B, USER, has, in_time, sandbox, skip};
use super::host_service::raw::{Host, Raw, SPAWN, shell, until};
use super::host_service::wire::{Bytes, Wire, command};
use super::{REFUSED, Wanted};

/// How long others may be held up, on a machine that has much else to do.
pub(super) const HELD_UP: Duration = Duration::from_secs(3);

/// A file system that hangs, where it can be mounted.
fn hanging() -> Option<HangingMount> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can mount a file system that hangs");
        return None;
    }
    HangingMount::make(Server::NeverAnswers)
}

#[test]
fn a_caller_with_files_that_hang_holds_up_nobody_else() {
    in_time(|| {
        if !has(&["bwrap"]) {
            return;
        }
        // Who may run nothing, one program by name, and everything.
        for policy in ["[org.evil.App]\ndeny *\n", "[org.evil.App]\nallow echo\n", ""] {
            let Some(mount) = hanging() else { return };
            let Some(host) = Host::under(policy) else { return };
            let hangs = mount.path().join("x");
            let script = format!(
                "for i in 1 2 3 4 5 6 7 8 9 10; do \
                   {SPAWN} --host {path}/echo & {SPAWN} --host --directory={path} echo & done; wait",
                path = hangs.display()
            );
            let words = ["sh", "-c", &script];
            let evil = sandbox::start(&host.bus, "org.evil.App", Some("org.evil.App"), &words);
            let Some(mut evil) = evil else { return };
            let mut slowest = Duration::ZERO;
            for _ in 0..20 {
                let start = Instant::now();
                assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8));
                slowest = slowest.max(start.elapsed());
            }
            assert!(slowest < HELD_UP, "{policy:?}: others waited {slowest:?}");
            // Each of them is answered, though none of its files is.
            let status = evil.wait().unwrap();
            assert!(status.success(), "{policy:?}: {status:?}");
            assert_eq!(host.raw().run(&shell("exit 4")), Ok(4 << 8));
            // A thread that hangs there keeps the service from ending.
            drop(mount);
        }
    });
}

/// The body of a method that takes none: one descriptor.
fn one_descriptor() -> Vec<u8> {
    let mut body = Bytes::default();
    body.number(0);
    body.0
}

#[test]
fn a_descriptor_whose_server_hangs_for_us_alone_holds_up_nobody_but_its_caller() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount a file system that hangs");
        }
        let Some(host) = Host::under("") else { return };
        // Behind the service: what hangs there ends before the service has to.
        let Some(mount) = HangingMount::make(Server::DiesWhenTold) else { return };
        let file = std::fs::File::options().read(true).write(true).open(mount.file()).unwrap();
        // The bus, which passes the descriptor on and closes it, is answered.
        mount.answer_only(&[std::process::id(), host.bus.pid()]);
        let address = host.bus.address().to_owned();
        let other_is_served = |what: &str| {
            let start = Instant::now();
            let status = Raw::connect(&address).run(&shell("exit 3"));
            assert_eq!(status, Ok(3 << 8), "{what}");
            assert!(start.elapsed() < HELD_UP, "{what}: others waited {:?}", start.elapsed());
        };
        other_is_served("before");
        let passed = [file.as_fd()];
        let post = |method: &str, signature: &str, body: &[u8]| {
            let mut wire = Wire::connect(&address);
            wire.post(method, signature, body, &passed).unwrap();
            wire
        };
        let host_command = |wanted: &Wanted<'_>, target| {
            post("HostCommand", "ayaaya{uh}a{ss}u", &command(wanted, &[(target, 0)]))
        };
        // A call that takes no descriptor; one with other arguments; one of nothing.
        for (method, signature) in [("Ping", "h"), ("HostCommand", "h"), ("Nothing", "h")] {
            let mut wire = post(method, signature, &one_descriptor());
            assert!(wire.answer().unwrap().is_err(), "{method}");
            other_is_served(method);
        }
        // A program that is not there, a command that is refused before anybody looks, one that runs.
        let missing = Wanted { words: vec![b"nothing-of-this-name\0".to_vec()], ..shell("") };
        assert!(host_command(&missing, 3).answer().unwrap().is_err());
        other_is_served("a program that is not there");
        let none = Wanted { words: Vec::new(), ..shell("") };
        assert!(host_command(&none, 1).answer().unwrap().is_err());
        other_is_served("no program");
        let runs = host_command(&shell("exit 0"), 1);
        other_is_served("a command that has it");
        // A start that hangs holds it for as long.
        let inside = [mount.path().as_os_str().as_encoded_bytes(), b"/x\0"].concat();
        let hangs = Wanted { directory: &inside, ..shell("exit 0") };
        let waits = host_command(&hangs, 1);
        other_is_served("a start that hangs");
        // A caller that leaves.
        drop((runs, waits));
        other_is_served("a caller that has left");
        drop(mount);
    });
}

#[test]
fn a_descriptor_whose_server_hangs_for_us_alone_stops_neither_settings_nor_recent_documents() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount a file system that hangs");
        }
        let Some(bus) = Bus::start() else { return };
        let mut command = bus.command(OURS);
        command.args(["--names", "dconf,session"]);
        let service = bus.serve_by(command);
        let Some(mount) = HangingMount::make(Server::DiesWhenTold) else { return };
        let file = std::fs::File::options().read(true).write(true).open(mount.file()).unwrap();
        mount.answer_only(&[std::process::id(), bus.pid()]);
        for (name, path) in [(NAME, USER), ("org.unjank.Session1", "/org/unjank/Recent1")] {
            bus.client().wait_for_owner(name).unwrap();
            let peer = "org.freedesktop.DBus.Peer";
            for (member, signature, is_served) in [("Ping", "h", false), ("Ping", "", true)] {
                let body = if is_served { Vec::new() } else { one_descriptor() };
                let passed = [file.as_fd()];
                let passed = if is_served { &[][..] } else { &passed };
                let mut wire = Wire::connect(bus.address());
                let answer = wire.send(name, path, peer, member, signature, &body, passed);
                assert_eq!(answer.unwrap().is_ok(), is_served, "{name}");
            }
        }
        bus.client().change(USER, SET_A_B).unwrap();
        drop(mount);
        drop(service);
    });
}

#[test]
fn a_program_that_cannot_be_read_is_an_error_after_a_while_however_it_is_kept() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount a file system that hangs");
        }
        let Some(host) = Host::under("") else { return };
        let Some(mount) = HangingMount::make(Server::DiesWhenTold) else { return };
        mount.answer_no_read();
        let program = [mount.file().as_os_str().as_encoded_bytes(), b"\0"].concat();
        // Started by the service itself, and by a keeper.
        for flags in [0, 2] {
            let wanted = Wanted { words: vec![program.clone()], flags, ..shell("") };
            let mut raw = host.raw();
            let error = raw.command(&wanted).unwrap_err();
            // It might have begun: a shim runs nothing in its place.
            assert_eq!(error.0, "org.freedesktop.DBus.Error.NoReply", "{flags}: {error:?}");
            assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8), "{flags}");
        }
        drop(mount);
        // Nothing of it is left, and nothing of it runs now that it could.
        assert!(until(|| host.children().is_empty()), "{:?} are left", host.children());
    });
}

#[test]
fn a_flood_of_calls_with_descriptors_takes_no_command_of_others_along() {
    in_time(|| {
        let Some(host) = Host::under("[host]\nallow sh\n") else { return };
        let mut long = host.long();
        let before = host.descriptors();
        // Nobody reads the answers: there are as many as calls.
        let null = std::fs::File::open("/dev/null").unwrap();
        let passed = vec![null.as_fd(); 16];
        let handles: Vec<(u32, u32)> = (3..19).map(|target| (target, target - 3)).collect();
        let refused = Wanted { words: vec![b"nothing\0".to_vec()], ..shell("") };
        let body = command(&refused, &handles);
        let mut wires: Vec<Wire> = (0..20).map(|_| Wire::connect(host.bus.address())).collect();
        for _ in 0..20 {
            for wire in &mut wires {
                wire.post("HostCommand", "ayaaya{uh}a{ss}u", &body, &passed).unwrap();
            }
        }
        let start = Instant::now();
        assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8));
        assert!(start.elapsed() < HELD_UP, "others waited {:?}", start.elapsed());
        for wire in &mut wires {
            for _ in 0..20 {
                assert_eq!(wire.answer().unwrap(), Err(REFUSED.to_owned()));
            }
        }
        drop(wires);
        assert!(until(|| host.descriptors() <= before + 8), "{} are open", host.descriptors());
        assert!(long.runs(), "a command of somebody else was lost");
        // The log tells of them and of everybody else.
        let log = host.log();
        assert!(log.len() < 200, "{} records", log.len());
        assert!(log.iter().any(|entry| entry.command[0] == "sh"));
    });
}

#[test]
fn what_a_command_is_called_does_nothing_to_the_terminal_of_whoever_reads_the_log() {
    let Some(host) = Host::under("[host]\nallow sh\n") else { return };
    let hostile = "\x1b]0;owned\x07\x1b[2J\nforged line\r\u{202e}";
    let words = ["sh", "-c", "exit 0", hostile].map(|word| format!("{word}\0").into_bytes());
    host.raw().run(&Wanted { words: words.to_vec(), ..shell("") }).unwrap();
    let words = vec![format!("{hostile}\0").into_bytes()];
    host.raw().command(&Wanted { words, ..shell("") }).unwrap_err();
    assert!(until(|| host.log().len() == 2), "{:#?}", host.log());
    let shown = || {
        let mut command = host.bus.command(env!("CARGO_BIN_EXE_unjank"));
        let output = command.args(["host", "log"]).output().unwrap();
        std::io::stdout().write_all(&output.stderr).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = shown();
    assert!(text.contains(r"'\x1b]0;o"), "{text}");
    let acts = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!text.contains(acts) && !text.contains("\nforged"), "{text}");
}
