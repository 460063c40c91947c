//! Callers who ask for too much, and what becomes of the others meanwhile.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::fixture::fuse::{HangingMount, Server};
use super::fixture::{has, in_time, sandbox, skip};
use super::host_service::raw::{Host, SPAWN, shell, until};
use super::host_service::wire::{Wire, command};
use super::{REFUSED, Wanted};
use session::host::log::Outcome;

/// How long others may be held up, on a machine that has much else to do.
const HELD_UP: Duration = Duration::from_secs(3);

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

#[test]
fn a_flood_of_calls_with_descriptors_takes_no_command_of_others_along() {
    in_time(|| {
        let Some(host) = Host::under("[host]\nallow sh\n") else { return };
        let running = std::process::Stdio::null();
        let mut long = host.spawn(&["sh", "-c", "exec sleep 1000"]);
        let mut long = long.stdin(running).spawn().unwrap();
        assert!(until(|| host
            .log()
            .iter()
            .any(|entry| matches!(entry.outcome, Outcome::Began(_)))));
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
        assert!(long.try_wait().unwrap().is_none(), "a command of somebody else was lost");
        long.kill().unwrap();
        long.wait().unwrap();
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
    assert!(text.contains(r"\x1b]0;owned\x07"), "{text}");
    let acts = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!text.contains(acts) && !text.contains("\nforged"), "{text}");
}
