//! How the daemon begins and ends.
#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::fixture;

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fixture::{Bus, NAME, OURS, SET_A_B, Service, USER, has, in_time, set};
use rustix::process::{Pid, Signal, kill_process};

/// What `dconf dump /` says of the database.
fn dump(bus: &Bus) -> String {
    let output = bus.command("dconf").args(["dump", "/"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_second_instance_says_why_it_ends_with_1() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let _first = bus.serve(OURS, &[]);
        let second = bus.command(OURS).output().unwrap();
        assert_eq!(second.status.code(), Some(1));
        let text = String::from_utf8(second.stderr).unwrap();
        assert!(text.contains("the name ca.desrt.dconf already has an owner"), "{text}");
        assert!(text.contains("hint: "), "{text}");
    });
}

#[test]
fn without_a_bus_it_ends_with_1_and_a_hint() {
    in_time(|| {
        let Some(mut bus) = Bus::start() else { return };
        bus.kill();
        let output = bus.command(OURS).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("unjankd: cannot connect to the session bus"), "{text}");
    });
}

#[test]
fn an_unknown_name_is_a_usage_error() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let output = bus.command(OURS).args(["--names", "dconf,teapot"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("teapot") && text.contains("dconf"), "{text}");
    });
}

#[test]
fn each_signal_ends_it_at_once_with_0() {
    in_time(|| {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let Some(bus) = Bus::start() else { return };
            let service = bus.serve(OURS, &[]);
            bus.client().change(USER, SET_A_B).unwrap();
            let (status, text, took) = service.end(signal);
            assert_eq!(status.code(), Some(0), "{text}");
            assert!(took < Duration::from_millis(500), "{signal:?} took {took:?}");
            assert!(!text.contains("ERROR") && !text.contains("WARN"), "{text}");
        }
    });
}

/// What a process has given up, as the kernel says it.
fn given_up(process: &str) -> (String, String) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    (value("NoNewPrivs:"), value("Seccomp:"))
}

#[test]
fn what_it_never_does_it_gives_up_at_its_start_unless_commands_run_in_it() {
    in_time(|| {
        let confined = ("1".to_owned(), "2".to_owned());
        let cases = [
            ("dconf", confined.clone()),
            ("dconf,session", confined),
            ("dconf,flatpak", given_up("self")),
        ];
        for (names, wanted) in cases {
            let Some(bus) = Bus::start() else { return };
            let service = bus.serve(OURS, &["--names", names]);
            bus.client().change(USER, SET_A_B).unwrap();
            assert_eq!(given_up(&service.pid().to_string()), wanted, "{names}");
            let (status, text, _) = service.end(Signal::TERM);
            assert!(status.success() && !text.contains("WARN"), "{names}: {text}");
        }
    });
}

#[test]
fn it_ends_when_nothing_has_happened_for_a_while() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let service = bus.serve(OURS, &["--idle-exit", "1"]);
        bus.client().change(USER, SET_A_B).unwrap();
        let (status, text) = service.wait();
        assert_eq!(status.code(), Some(0), "{text}");
        assert!(text.contains("idle"), "{text}");
    });
}

#[test]
fn the_loss_of_the_bus_ends_it() {
    in_time(|| {
        let Some(mut bus) = Bus::start() else { return };
        let service = bus.serve(OURS, &["--idle-exit", "0"]);
        bus.client().change(USER, SET_A_B).unwrap();
        bus.kill();
        let (status, text) = service.wait();
        assert_eq!(status.code(), Some(0), "{text}");
    });
}

#[test]
fn idleness_costs_nothing() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let service = bus.serve(OURS, &["--idle-exit", "0"]);
        let client = bus.client();
        client.change(USER, SET_A_B).unwrap();
        let mut signals = client.subscribe(USER, "/").unwrap();
        // What follows a change is done before the next call is answered.
        client.ping().unwrap();
        // On a machine that is busy otherwise a wake-up of the kernel's may be charged to it once, but not three times.
        let used = (0..3).map(|_| {
            let before = service.cpu();
            let heard = client.next_signal(&mut signals, Some(Duration::from_secs(3)));
            assert_eq!(heard, None);
            service.cpu() - before
        });
        let least = used.take_while(|used| *used >= Duration::from_millis(10)).count();
        assert!(least < 3, "over 10 ms in each 3 s of idleness");
    });
}

#[test]
fn the_service_manager_hears_of_readiness_and_of_the_end() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let path = bus.dir().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut command = bus.command(OURS);
        command.env("NOTIFY_SOCKET", &path);
        let service = bus.serve_by(command);
        let mut heard = [0; 32];
        let len = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..len], b"READY=1");
        assert!(service.end(Signal::TERM).0.success());
        let len = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..len], b"STOPPING=1");
    });
}

#[test]
fn a_newer_instance_can_take_the_name_over() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let first = bus.serve(OURS, &[]);
        let client = bus.client();
        let old = client.name_owner(NAME).unwrap().unwrap();
        client.change(USER, SET_A_B).unwrap();
        let second = bus.command(OURS).arg("--replace").stderr(Stdio::piped()).spawn().unwrap();
        let second = Service::from(second);
        let (status, text) = first.wait();
        assert_eq!(status.code(), Some(0), "{text}");
        let new = client.wait_for_owner(NAME).unwrap();
        assert_ne!(old, new);
        assert_eq!(client.pid_of(NAME).unwrap(), second.pid());
        client.change(USER, SET_A_B).unwrap();
    });
}

#[test]
fn no_call_is_lost_while_one_daemon_follows_another() {
    in_time(|| {
        if !has(&["dconf"]) {
            return;
        }
        let Some(bus) = Bus::start_with(&[OURS, "--log-level", "warn"]) else { return };
        let bus = Arc::new(bus);
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (bus, stop) = (Arc::clone(&bus), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let client = bus.client();
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let key = format!("/w{writer}/k{}", count % 50);
                        let value = count.to_string();
                        client.change(USER, &set(&key, &value)).unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let client = bus.client();
        for _ in 0..20 {
            let owner = client.wait_for_owner(NAME).unwrap();
            let Ok(pid) = client.pid_of(&owner) else { continue };
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // Let it do some work first.
            for _ in 0..10 {
                client.change(USER, &set("/main/k", "x")).unwrap();
            }
            // It may have ended meanwhile: the signal before was on its way.
            let _ = kill_process(pid, Signal::TERM);
        }
        stop.store(true, Ordering::Relaxed);
        let counts: Vec<usize> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let dump = dump(&bus);
        for (writer, count) in counts.into_iter().enumerate() {
            let mut expected = BTreeMap::new();
            for number in 0..count {
                expected.insert(format!("k{}", number % 50), number);
            }
            for (key, value) in expected {
                let section = dump.split(&format!("[w{writer}]\n")).nth(1).unwrap();
                let section = section.split("\n\n").next().unwrap();
                let line = format!("{key}='{value}'");
                assert!(section.lines().any(|found| found == line), "{line} is not in {section}");
            }
        }
    });
}

#[test]
fn blame_tells_who_called() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let mut command = bus.command(OURS);
        command.env("DCONF_BLAME", "1");
        let _service = bus.serve_by(command);
        let client = bus.client();
        client.change(USER, SET_A_B).unwrap();
        let text = client.blame().unwrap();
        for part in [
            format!("Sender: {}", client.unique_name()),
            format!("PID: {}", std::process::id()),
            format!("Object path: {USER}"),
            "Method: Change".to_owned(),
            "Method: Blame".to_owned(),
            "0x2f, 0x61".to_owned(),
        ] {
            assert!(text.contains(&part), "{part} is not in\n{text}");
        }
    });
}
