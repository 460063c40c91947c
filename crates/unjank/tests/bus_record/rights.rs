//! Who may watch: what is asked for the system bus, and in a sandbox.

use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use capture::record::BusMonitor;

use super::fixture::{self, Bus, has, in_time};
use super::{FLOOD, Recorder, UNJANK, floods, open, said, signals, unjank};

/// Writes a `pkexec` that ends with this status.
fn pkexec(programs: &Path, status: u8) {
    fixture::script(&programs.join("pkexec"), &format!("#!/bin/sh\nexit {status}\n"));
}

/// A bus that lets nobody watch, and a `pkexec` that ends with this status.
fn refused(status: u8) -> Option<Output> {
    let bus = Bus::start_denying_monitors()?;
    let programs = bus.dir().join("programs");
    std::fs::create_dir(&programs).unwrap();
    pkexec(&programs, status);
    let mut command = unjank(&bus);
    command.env("DBUS_SYSTEM_BUS_ADDRESS", bus.address()).env("PATH", &programs);
    Some(command.args(["record", "--system", "-o", "never"]).output().unwrap())
}

#[test]
fn a_dismissed_question_is_told_from_a_refusal() {
    in_time(|| {
        for (status, text) in [(126, "was dismissed"), (127, "was denied"), (0, "ended without")] {
            let Some(output) = refused(status) else { return };
            assert_eq!(output.status.code(), Some(2));
            assert!(said(&output).contains(text), "{}", said(&output));
        }
    });
}

#[test]
fn a_helper_passes_a_monitor_on() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let (ours, theirs) = sys::socket::pair().unwrap();
        let mut command = unjank(&bus);
        command.args(["hand-monitor", "--address", bus.address(), "--match", FLOOD]);
        let mut child = command.stdin(Stdio::from(theirs)).spawn().unwrap();
        drop(command);
        let monitor = BusMonitor::receive(&ours).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(monitor.is_some());
        // And without one there is an end, too.
        let (ours, theirs) = sys::socket::pair().unwrap();
        let mut command = unjank(&bus);
        command.args(["hand-monitor", "--address", "unix:path=/nowhere"]);
        let done = command.stdin(Stdio::from(theirs)).stderr(Stdio::null()).status().unwrap();
        drop(command);
        assert!(!done.success());
        assert!(BusMonitor::receive(&ours).unwrap().is_none());
    });
}

#[test]
fn in_a_sandbox_a_program_on_the_host_watches() {
    if !has(&["bwrap", "dbus-monitor"]) {
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let programs = bus.dir().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut service = bus.command(fixture::OURS);
        let service = service.args(["--names", "flatpak"]).env("PATH", path).spawn().unwrap();
        let service = Recorder(Some(service));
        bus.client().wait_for_owner("org.freedesktop.Flatpak").unwrap();
        let path = bus.dir().join("a.pcapng");
        let record = |more: &[&str]| {
            let mut words = vec![UNJANK, "bus", "record", "-o", path.to_str().unwrap()];
            words.extend(more);
            fixture::sandbox::run(&bus, "org.vim.Vim", Some("org.vim.Vim"), &words)
        };
        let is_done = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    signals(&bus, 20, 1000);
                }
            });
            let ended = record(&["--max-size", "100K"]);
            is_done.store(true, Ordering::Relaxed);
            ended
        });
        let Some(ended) = ended else { return };
        assert!(ended.status.success(), "{}", said(&ended));
        assert!(floods(&open(&path)).len() > 50);
        std::fs::remove_file(&path).unwrap();
        // On the system bus somebody is asked outside, and what he says is told here.
        for (status, text) in [(126, "was dismissed"), (127, "was denied")] {
            pkexec(&programs, status);
            let refused = record(&["--system"]).unwrap();
            assert_eq!(refused.status.code(), Some(2));
            assert!(said(&refused).contains(text), "{}", said(&refused));
        }
        drop(service);
    });
}
