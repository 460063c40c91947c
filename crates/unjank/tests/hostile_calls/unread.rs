//! Long messages that wait for a service: what they take is bounded in bytes, not in messages.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{self, Bus, OURS, in_time, setting};
use super::host_service::wire::Bytes;
use super::wire::{RETURN, Reply, Target, Wire};

/// Messages that wait, unless `UNREAD_MESSAGES` says how many: by far more bytes than may be taken. The length of each.
const MESSAGES: u64 = 24;
const LENGTH: usize = 8 << 20;
/// What they may take in the service at a time: as much as may wait and the one behind on each of its connections, answers
/// that are being sent, and what the allocator keeps of all that. Without a bound they took 1.5 GB.
const MOST_MEMORY: u64 = 128 << 20;
const PATIENCE: Duration = Duration::from_secs(50);

/// The most memory that a process has had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn long_messages_that_wait_take_bounded_memory() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let mut command = bus.command(OURS);
        command.args(["--names", "dconf,session,flatpak"]).env("DCONF_BLAME", "");
        let service = bus.serve_by(command);
        // So that there is a long answer, which takes its time to be sent while messages arrive.
        let long = vec![0xff; 4096];
        for _ in 0..1000 {
            bus.client().change(fixture::USER, &long).unwrap();
        }
        let blame = "ca.desrt.dconf.ServiceInfo";
        let blame = Target::new(fixture::NAME, "/ca/desrt/dconf", blame, "Blame");
        let messages = setting("UNREAD_MESSAGES").unwrap_or(MESSAGES);
        let pid = Pid::from_raw(service.pid().cast_signed()).unwrap();
        for (name, path, interface, member, signature) in [
            (fixture::NAME, fixture::USER, "ca.desrt.dconf.Writer", "Change", "ay"),
            ("org.unjank.Session1", "/org/unjank/Recent1", "org.unjank.Recent1", "Add", "ay"),
            (
                "org.freedesktop.Flatpak",
                "/org/freedesktop/Flatpak/Development",
                "org.freedesktop.Flatpak.Development",
                "HostCommand",
                "ay",
            ),
        ] {
            bus.client().wait_for_owner(name).unwrap();
            let target = Target::new(name, path, interface, member);
            // Nothing of it makes sense, so that nothing of it is kept.
            let mut body = Bytes::default();
            body.bytes(&vec![0xff; LENGTH]);
            let mut wire = Wire::connect(bus.address(), PATIENCE).unwrap();
            wire.send(&blame, "", &[], &[], Reply::Wanted).unwrap();
            wire.send(&target, signature, &body.0, &[], Reply::Wanted).unwrap();
            (0..2).for_each(|_| drop(wire.receive().unwrap()));
            let before = peak(service.pid());
            kill_process(pid, Signal::STOP).unwrap();
            for _ in 0..messages {
                wire.send(&blame, "", &[], &[], Reply::Wanted).unwrap();
                wire.send(&target, signature, &body.0, &[], Reply::Wanted).unwrap();
            }
            kill_process(pid, Signal::CONT).unwrap();
            (0..2 * messages).for_each(|_| drop(wire.receive().unwrap()));
            let grown = peak(service.pid()) - before;
            assert!(grown < MOST_MEMORY, "{name}: {messages} messages took {grown} bytes");
            let ping = Target::new(name, path, "org.freedesktop.DBus.Peer", "Ping");
            assert_eq!(wire.call(&ping, "", &[]).unwrap().kind, RETURN);
        }
    });
}
