//! What a daemon meets that would hold it up for ever: a predecessor or another service that was stopped, and things in
//! the place of its files that are none. Whoever asks gets an answer in time.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "the time of an answer is what is tested")]

use crate::fixture;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bus::client::blocking::BlockingClient;
use fixture::{Bus, NAME, OURS, Service, SharedDirectories, USER, in_time, set};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::Signal;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// What a person accepts, plus what a busy machine takes to get round to it.
const IN_TIME: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(2);

/// Asks for a change, and returns the answer and how long it took.
fn change(client: &BlockingClient, object: &str, key: &str) -> (Result<(), String>, Duration) {
    let start = Instant::now();
    let answer = client.change(object, &set(key, "value")).map(drop);
    (answer.map_err(|error| error.to_string()), start.elapsed())
}

/// Waits until a service owns the name, which another one had before.
fn wait_for_owner(bus: &Bus, service: &Service) {
    let client = bus.client();
    let is_owner = || {
        let owner = client.name_owner(NAME).unwrap()?;
        Some(client.pid_of(&owner).ok()? == service.pid())
    };
    while is_owner() != Some(true) {
        fixture::pause();
    }
}

fn fifo(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test]
fn a_stopped_predecessor_is_an_error_in_time_and_nothing_is_lost_when_it_goes_on() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let first = bus.serve(OURS, &[]);
        assert_eq!(change(&bus.client(), USER, "/before").0, Ok(()));
        first.signal(Signal::STOP);
        let second = bus.command(OURS).arg("--replace").stderr(Stdio::null()).spawn().unwrap();
        let second = Service::from(second);
        wait_for_owner(&bus, &second);
        let (answer, took) = change(&bus.client(), USER, "/during");
        let error = answer.unwrap_err();
        assert!(took < IN_TIME + SLACK, "{took:?}: {error}");
        let named = format!("process {}, is stopped", first.pid());
        assert!(error.contains(&named), "{error}");
        first.signal(Signal::CONT);
        let (status, log) = first.wait();
        assert!(status.success(), "{log}");
        assert_eq!(change(&bus.client(), USER, "/after").0, Ok(()));
        let keys = bus.command("dconf").args(["list", "/"]).output().unwrap();
        assert_eq!(String::from_utf8(keys.stdout).unwrap(), "after\nbefore\n");
    });
}

#[test]
fn a_service_of_another_session_that_was_stopped_in_a_write_is_an_error_in_time() {
    in_time(|| {
        let Some(first_bus) = Bus::start() else { return };
        let second_bus = Bus::start_beside(&first_bus, SharedDirectories::Home).unwrap();
        let first = first_bus.serve(OURS, &["--no-pacing"]);
        let _second = second_bus.serve(OURS, &["--no-pacing"]);
        assert_eq!(change(&second_bus.client(), USER, "/start").0, Ok(()));
        let address = first_bus.address().to_owned();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let mut client = BlockingClient::connect(Some(&address)).unwrap();
            client.set_timeout(Duration::from_secs(60));
            let mut number = 0;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                client.change(USER, &set("/flood", &number.to_string())).unwrap();
                number += 1;
            }
        });
        // Stopped at any moment: some of them are in the middle of a write.
        let mut refused = 0;
        for round in 0..40 {
            first.signal(Signal::STOP);
            let key = format!("/k{round}");
            let (answer, took) = change(&second_bus.client(), USER, &key);
            assert!(took < IN_TIME + SLACK, "{took:?}: {answer:?}");
            if let Err(error) = answer {
                let named = format!("process {} holds its lock and is stopped", first.pid());
                assert!(error.contains(&named), "{error}");
                refused += 1;
            }
            first.signal(Signal::CONT);
            assert_eq!(change(&second_bus.client(), USER, &key).0, Ok(()));
            if refused == 2 {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        assert!(refused > 0, "it was never stopped in a write");
    });
}

#[test]
fn a_fifo_in_the_place_of_any_file_is_an_answer_in_time() {
    in_time(|| {
        for (object, file) in [
            ("Writer/user", "config/dconf/user"),
            ("Writer/user", "config/dconf/.user.unjank-lock"),
            ("Writer/user", "config/dconf/.user.unjank-queue"),
            ("Writer/user", "run/dconf/user"),
            ("Writer/user", "state/unjank/settings/history.journal"),
            ("Writer/user", "state/unjank/settings/snapshots/user.1.1"),
            ("keyfile/site", "config/dconf/site.txt"),
            ("keyfile/site", "config/dconf/site.txt-lock"),
            ("keyfile/site", "run/dconf-service/keyfile/site"),
            ("journal/app", "config/dconf/app.journal-image"),
            ("journal/app", "config/dconf/app.journal-log"),
            ("shm/live", "run/dconf-service/shm/live"),
        ] {
            let Some(bus) = Bus::start() else { return };
            fifo(&bus.dir().join(file));
            let service = bus.serve(OURS, &[]);
            let object = format!("/ca/desrt/dconf/{object}");
            let (_, took) = change(&bus.client(), &object, "/a");
            assert!(took < IN_TIME, "{file}: {took:?}");
            let (again, took) = change(&bus.client(), &object, "/b");
            assert!(took < IN_TIME, "{file}: {took:?} {again:?}");
            let (status, log, took) = service.end(Signal::TERM);
            assert!(status.success() && took < IN_TIME, "{file}: {took:?} {log}");
        }
    });
}

#[test]
fn a_fifo_that_takes_the_place_of_the_database_is_an_answer_in_time() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let service = bus.serve(OURS, &[]);
        assert_eq!(change(&bus.client(), USER, "/a").0, Ok(()));
        std::fs::remove_file(bus.user_database()).unwrap();
        fifo(&bus.user_database());
        let (answer, took) = change(&bus.client(), USER, "/b");
        assert!(took < IN_TIME, "{took:?} {answer:?}");
        let error = answer.unwrap_err();
        assert!(error.contains("not a regular file"), "{error}");
        let (status, log, took) = service.end(Signal::TERM);
        assert!(status.success() && took < IN_TIME, "{took:?} {log}");
    });
}

#[test]
fn a_command_ends_where_a_fifo_is_in_the_place_of_the_file_that_it_reads() {
    in_time(|| {
        for (file, commands) in [
            (
                "config/dconf/user",
                &[
                    "settings read /a",
                    "settings list /",
                    "settings dump /",
                    "settings list-locks /",
                    "settings check",
                    "settings write /a 1",
                    "settings reset /a",
                ][..],
            ),
            (
                "config/unjank/host-policy",
                &["host policy show", "host policy allow a b", "host policy explain a b"],
            ),
        ] {
            let Some(bus) = Bus::start() else { return };
            fifo(&bus.dir().join(file));
            let _service = bus.serve(OURS, &["--names", "dconf,flatpak"]);
            for words in commands {
                let mut command = bus.command(UNJANK);
                let output = command.args(words.split(' ')).output().unwrap();
                // What only reads goes on with the other databases, as dconf does, and says so.
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(said.contains("not a regular file"), "{words}: {said}");
            }
        }
    });
}

#[test]
fn a_bus_that_takes_connections_and_never_answers_is_an_error() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let socket = bus.dir().join("silent");
        // Connections wait here to be accepted; nobody does it.
        let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let address = format!("unix:path={}", socket.display());
        let commands = ["settings write /a 1", "settings reset /a", "settings watch /"];
        let start = |words: &&str| {
            let mut command = bus.command(UNJANK);
            command.args(words.split(' ')).env("DBUS_SESSION_BUS_ADDRESS", &address);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let running: Vec<_> = commands.iter().map(start).collect();
        for (child, words) in running.into_iter().zip(commands) {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("has not answered within"), "{words}: {said}");
            assert!(!output.status.success(), "{words}");
        }
    });
}
