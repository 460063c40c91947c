//! Buses that break off, never answer or send nonsense, at each step: that is said in time, and nothing runs here instead.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use super::fixture::in_time;
use super::{SMALL, UNJANK, told};

/// How far the bus does its part before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It takes the connection.
    Connected,
    /// It reads the greeting.
    Greeted,
    /// It answers the greeting and reads the first calls.
    Named,
    /// It answers those and reads the command.
    Asked,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It closes the connection.
    Closes,
    /// It ends with something unread, which resets the connection.
    Resets,
    /// It says nothing more.
    Silent,
    /// It sends bytes that mean nothing.
    Garbage,
}

const STEPS: [Step; 4] = [Step::Connected, Step::Greeted, Step::Named, Step::Asked];
const FAULTS: [Fault; 4] = [Fault::Closes, Fault::Resets, Fault::Silent, Fault::Garbage];

/// The answer of a bus to `Hello`, the first call.
fn named() -> Vec<u8> {
    let mut message = b"l\x02\x01\x01".to_vec();
    let number = |message: &mut Vec<u8>, value: u32| message.extend(value.to_le_bytes());
    number(&mut message, 9);
    number(&mut message, 1);
    // Reply to the first call; from the bus; one text.
    let mut fields = b"\x05\x01u\0\x01\0\0\0\x07\x01s\0\x14\0\0\0org.freedesktop.DBus\0".to_vec();
    fields.resize(fields.len().next_multiple_of(8), 0);
    fields.extend(b"\x08\x01g\0\x01s\0");
    number(&mut message, u32::try_from(fields.len()).unwrap());
    message.extend(fields);
    message.resize(message.len().next_multiple_of(8), 0);
    message.extend(b"\x04\0\0\0:1.7\0");
    message
}

/// Reads until `end` has come, or the other end is gone.
fn read_until(stream: &mut UnixStream, end: &[u8]) {
    let mut heard = Vec::new();
    let mut byte = [0];
    while !heard.ends_with(end) && matches!(stream.read(&mut byte), Ok(1)) {
        heard.push(byte[0]);
    }
}

/// Is a bus for one connection, and fails.
fn serve(mut stream: UnixStream, step: Step, fault: Fault) {
    if step >= Step::Greeted {
        read_until(&mut stream, b"NEGOTIATE_UNIX_FD\r");
    }
    if step >= Step::Named {
        let _ = stream.write_all(b"DATA\r\nOK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n");
        read_until(&mut stream, b"AddMatc");
    }
    if step >= Step::Asked {
        let _ = stream.write_all(&named());
        read_until(&mut stream, b"HostComman");
    }
    match fault {
        Fault::Closes => {
            // What has come is read first: the end is no reset then.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        Fault::Resets => drop(stream),
        Fault::Silent => drop(stream.read_to_end(&mut Vec::new())),
        Fault::Garbage => {
            let _ = stream.write_all(&[0xff; 8192]);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Step) -> Option<std::cmp::Ordering> {
        let place = |step: &Step| STEPS.iter().position(|it| it == step);
        place(self).partial_cmp(&place(other))
    }
}

/// A bus at `path` that fails for everybody in the same way; it ends with the tests.
fn start_bus(path: &Path, step: Step, fault: Fault) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, step, fault));
        }
    });
}

/// Calls a program with a bus at `path`, and returns its status and what it says; fails if the command ran here.
fn ask(path: &Path, program: &str, words: &[&str]) -> (Option<i32>, String) {
    let mark = path.with_extension("ran");
    let mut command = Command::new(program);
    command.args(words).arg("touch").arg(&mark).stdin(Stdio::null());
    command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", path.display()));
    let (status, out, err) = told(command.output().unwrap());
    assert!(out.is_empty() && !mark.exists(), "the command ran here: {out} {err}");
    (status, err)
}

#[test]
fn a_bus_that_fails_at_any_step_runs_nothing_here_and_is_told_in_time() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        for step in STEPS {
            for fault in FAULTS {
                let path = dir.path().join(format!("{step:?}-{fault:?}"));
                start_bus(&path, step, fault);
                let within = ["host", "--answer-within", "500ms", "--"];
                let (status, said) = ask(&path, UNJANK, &within);
                assert_eq!(status, Some(125), "{step:?} {fault:?}: {said}");
                // Once it was asked for, it may have begun.
                let what = match (step, fault) {
                    (Step::Connected | Step::Greeted, _) => {
                        "unjank: cannot run touch on the host: "
                    }
                    _ => "unjank: cannot get the result of touch: ",
                };
                assert!(said.starts_with(what), "{step:?} {fault:?}: {said}");
                let why = match (step, fault) {
                    (Step::Asked, Fault::Silent) => "the service has not answered within 0.5 s",
                    (_, Fault::Silent) => "the bus has not answered within 0.5 s",
                    (Step::Named | Step::Asked, Fault::Garbage) => "bytes that are no message",
                    (Step::Named | Step::Asked, _) => "the connection to the bus broke",
                    _ => "the bus broke the connection in the greeting",
                };
                assert!(said.contains(why), "{step:?} {fault:?}: {said}");
            }
        }
    });
}

#[test]
fn under_its_other_names_it_runs_nothing_here_either() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let spawn = dir.path().join("flatpak-spawn");
        let shim = dir.path().join("touch");
        for link in [&spawn, &shim] {
            std::os::unix::fs::symlink(SMALL, link).unwrap();
        }
        for fault in [Fault::Closes, Fault::Resets, Fault::Garbage] {
            for step in STEPS {
                let path = dir.path().join(format!("{step:?}-{fault:?}"));
                start_bus(&path, step, fault);
                let (status, said) = ask(&path, spawn.to_str().unwrap(), &["--host"]);
                assert!(status == Some(1) && said.contains("unjank: cannot "), "{said}");
                let (status, said) = ask(&path, shim.to_str().unwrap(), &[]);
                assert!(status == Some(125) && said.contains("unjank: cannot "), "{said}");
            }
        }
    });
}

#[test]
fn a_bus_that_takes_nobody_is_waited_for_as_long_as_was_said() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        // Until the queue is full, which a socket that does not wait is told.
        loop {
            let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
            let kind = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
            let socket = rustix::net::socket_with(kind.0, kind.1, flags, None).unwrap();
            let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
            if rustix::net::connect(&socket, &address).is_err() {
                break;
            }
            waiting.push(socket);
        }
        let (status, said) = ask(&path, UNJANK, &["host", "--answer-within", "0.3", "--"]);
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains("the bus has not answered within 0.3 s"), "{said}");
    });
}
