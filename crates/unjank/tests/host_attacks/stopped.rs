//! Parties that stand still, tables that are full, another user, and descriptors that hang beside what the same daemon does
//! for others.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::log::CommandOutcome;
use listing::{Listing, ListingRequest};
use rustix::process::{Pid, Signal, kill_process};

use super::Wanted;
use super::crowds::HELD_UP;
use super::fixture::fuse::{HangingMount, Server};
use super::fixture::{Bus, NAME, OURS, SET_A_B, USER, has, in_time, sandbox, setting, skip};
use super::host_service::raw::{Host, PATIENCE, SPAWN, shell, until};
use super::host_service::wire::{Wire, command};

const LIMITS_EXCEEDED: &str = "org.freedesktop.DBus.Error.LimitsExceeded";

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: u32) -> Stopped {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The processes whose command lines hold all of these words.
fn with_words(words: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        words.iter().all(|word| line.contains(word))
    })
    .collect()
}

/// Lets others run commands for a while: for how long `STOPPED_SECONDS` says, else for a moment.
fn others_are_served(host: &Host, what: &str) {
    let time = Duration::from_secs(setting("STOPPED_SECONDS").unwrap_or(2));
    let began = Instant::now();
    while began.elapsed() < time {
        let start = Instant::now();
        assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8), "{what}");
        assert!(start.elapsed() < HELD_UP, "{what}: others waited {:?}", start.elapsed());
    }
}

#[test]
fn a_client_a_proxy_or_a_keeper_that_is_stopped_holds_up_nobody_and_learns_how_its_command_ended() {
    let test = || {
        let Some(host) = Host::start(super::Which::Ours) else { return };
        let dir = host.bus.dir().to_str().unwrap().to_owned();
        for who in ["client", "keeper", "proxy"] {
            let script = format!("read line; exit 7 # {who}");
            let words = [SPAWN, "--host", "--watch-bus", "sh", "-c", &script];
            let mut command = if who == "proxy" {
                let Some(command) = sandbox::proxied(&host.bus, "org.stopped.App", &words) else {
                    continue;
                };
                command
            } else {
                host.spawn(&words[2..])
            };
            let before = host.children();
            let mut client =
                command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
            let keeper = || host.children().into_iter().find(|pid| !before.contains(pid));
            let begun = || {
                host.log().into_iter().any(|entry| {
                    matches!(entry.outcome, CommandOutcome::Began(_))
                        && entry.command.contains(&script)
                })
            };
            assert!(until(begun), "{who}: the command did not begin");
            let pid = match who {
                "client" => client.id(),
                "keeper" => keeper().unwrap(),
                _ => with_words(&["xdg-dbus-proxy", &dir])[0],
            };
            let stopped = Stopped::stop(pid);
            // The command ends meanwhile.
            drop(client.stdin.take());
            others_are_served(&host, who);
            drop(stopped);
            let status = client.wait().unwrap();
            assert_eq!(status.code(), Some(7), "{who}");
            assert!(until(|| host.children().len() <= before.len()), "{who}: a keeper is left");
        }
    };
    if setting("STOPPED_SECONDS").is_some() { test() } else { in_time(test) }
}

#[test]
fn calls_beyond_what_may_wait_are_refused_and_others_still_run() {
    in_time(|| {
        let Some(host) = Host::with_descriptors(256) else { return };
        let mut raw = host.raw();
        // As many as one application may run.
        let running: Vec<u32> = (0..8)
            .map(|_| raw.command(&Wanted { flags: 2, ..shell("exec sleep 1000") }).unwrap())
            .collect();
        // Each in several words, of which none is too long; together more than may wait for one application.
        let words = vec![[vec![b'x'; 100 << 10], vec![0]].concat(); 60];
        let words = [vec![b"true\0".to_vec()], words].concat();
        let body = command(&Wanted { words, ..shell("") }, &[]);
        let mut wire = Wire::connect(host.bus.address());
        let calls = (160 << 20) / body.len();
        for _ in 0..calls {
            wire.post("HostCommand", "ayaaya{uh}a{ss}u", &body, &[]).unwrap();
        }
        let refused = wire.answer().unwrap();
        assert_eq!(refused, Err(LIMITS_EXCEEDED.to_owned()));
        let script = format!("{SPAWN} --host sh -c 'exit 7'");
        let other = sandbox::run(&host.bus, "org.a.B", Some("org.a.B"), &["sh", "-c", &script]);
        if let Some(other) = other {
            assert_eq!(other.status.code(), Some(7), "{other:?}");
        }
        drop(wire);
        for pid in running {
            raw.signal(pid, 9, true).unwrap();
            raw.end(pid).unwrap();
        }
        // With what waited gone, there is room again.
        assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8));
    });
}

#[test]
fn more_connections_than_identities_are_kept_refuse_nobody() {
    in_time(|| {
        let Some(host) = Host::under("[org.evil.App]\ndeny *\n") else { return };
        let mut early = host.raw();
        // None of them calls; each is one more that the bus tells of.
        let idle: Vec<Wire> = (0..600).map(|_| Wire::connect(host.bus.address())).collect();
        let mut late = host.raw();
        assert_eq!(early.run(&shell("exit 3")), Ok(3 << 8));
        assert_eq!(late.run(&shell("exit 4")), Ok(4 << 8));
        // Those whose identity was dropped are asked for again.
        for wire in idle.into_iter().step_by(100) {
            let mut wire = wire;
            wire.post("HostCommand", "ayaaya{uh}a{ss}u", &command(&shell("exit 0"), &[]), &[])
                .unwrap();
            wire.answer().unwrap().unwrap();
        }
    });
}

#[test]
fn another_user_can_open_nothing_of_the_service_and_signal_none_of_its_processes() {
    in_time(|| {
        if !has(&["setpriv", "find"]) || !rustix::process::geteuid().is_root() {
            return skip("only root can be another user");
        }
        let Some(bus) = Bus::start() else { return };
        let mut service = bus.command(OURS);
        service.args(["--names", "dconf,session,flatpak"]);
        let host = Host::by(bus, service);
        for name in [NAME, "org.unjank.Session1"] {
            host.bus.client().wait_for_owner(name).unwrap();
        }
        host.bus.client().change(USER, SET_A_B).unwrap();
        let add = ["recent", "add", "/etc/hostname"];
        let added = host.bus.command(env!("CARGO_BIN_EXE_unjank")).args(add).status().unwrap();
        assert!(added.success());
        let mut raw = host.raw();
        let pid = raw.command(&Wanted { flags: 2, ..shell("exec sleep 1000") }).unwrap();
        let keeper = host.children()[0];
        // As a home that others may look into, so that only what the service makes itself keeps them out.
        let dir = host.bus.dir();
        for path in ["", "home", "config", "cache", "data", "state", "run"] {
            let path = dir.join(path);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let stranger = |program: &str, words: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
            let output = command.args(words).stderr(Stdio::null()).output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        let text = dir.to_str().unwrap();
        let readable =
            ["(", "-type", "f", "-o", "-type", "s", ")", "(", "-readable", "-o", "-writable", ")"];
        let (_, files) = stranger("find", &[&[text], &readable[..]].concat());
        let (_, writable) = stranger("find", &[text, "-type", "d", "-writable"]);
        assert!(files.contains("/bus.conf"), "nothing was looked at");
        // What the test itself placed there, and the copies of /etc for `flatpak run`, which everybody may read.
        let ours = |path: &&str| {
            let below = |part: &str| path.contains(part);
            (below("/unjank")
                || below("dconf")
                || below("recently-used")
                || below("RecentDocuments"))
                && !path.ends_with("/bus.conf")
        };
        let found: Vec<&str> = files.lines().chain(writable.lines()).filter(ours).collect();
        assert_eq!(found, Vec::<&str>::new());
        assert!(Path::new(&dir.join("state/unjank")).exists() && writable.is_empty(), "{writable}");
        for process in [host.pid(), keeper, pid] {
            let (done, _) = stranger("sh", &["-c", &format!("kill -0 {process}")]);
            assert!(!done, "a stranger may signal {process}");
            let (done, _) = stranger("cat", &[&format!("/proc/{process}/environ")]);
            assert!(!done, "a stranger may read the environment of {process}");
        }
        raw.signal(pid, 9, true).unwrap();
        raw.end(pid).unwrap();
    });
}

#[test]
fn a_listing_begins_while_the_service_holds_a_descriptor_whose_close_hangs() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount a file system that hangs");
        }
        let Some(bus) = Bus::start() else { return };
        let mut service = bus.command(OURS);
        service.args(["--names", "session,flatpak", "--idle-exit", "0"]);
        let host = Host::by(bus, service);
        let socket = host.bus.dir().join("run/unjank/listing.sock");
        assert!(until(|| socket.exists()), "no listings are served");
        let Some(mount) = HangingMount::make(Server::DiesWhenTold) else { return };
        let file = std::fs::File::options().read(true).write(true).open(mount.file()).unwrap();
        mount.answer_only(&[std::process::id(), host.bus.pid()]);
        // A start that hangs holds the descriptor.
        let inside = [mount.path().as_os_str().as_encoded_bytes(), b"/x\0"].concat();
        let hangs = Wanted { directory: &inside, ..shell("exit 0") };
        let mut waits = Wire::connect(host.bus.address());
        let body = command(&hangs, &[(1, 0)]);
        waits.post("HostCommand", "ayaaya{uh}a{ss}u", &body, &[file.as_fd()]).unwrap();
        assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8));
        let start = Instant::now();
        let request = ListingRequest::of(Path::new("/etc"));
        let mut listing =
            Listing::over(sys::socket::connect_to(&socket).unwrap(), &request).unwrap();
        let step = listing.next(Some(PATIENCE)).unwrap();
        assert!(step.is_some() && start.elapsed() < PATIENCE, "no listing within {PATIENCE:?}");
        drop((listing, waits));
        drop(mount);
    });
}
