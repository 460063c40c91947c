//! Many clients at once: each of their commands runs, and none of those that run already is lost.

use std::os::fd::AsFd;
use std::time::Instant;

use super::Wanted;
use super::crowds::HELD_UP;
use super::fixture::{has, in_time, sandbox, setting};
use super::host_service::raw::{Host, SPAWN, shell, until};
use super::host_service::wire::{Wire, command};
use host::log::CommandOutcome;

/// Starts clients that wait for commands at once, and says how many of those ended as they should, and what the others said.
/// A proxy lets a few connections wait for it and turns the next ones away; that is tried again.
const SCRIPT: &str = r#"
    one() {
        while :; do
            said=$("$@" sh -c 'exit 7' 2>&1)
            status=$?
            case $said in *'Resource temporarily unavailable'*) ;; *) break ;; esac
            # Not all at once again: what is turned away would take the processor from those that were not.
            sleep 0.$((100 + i % 900))
        done
        [ $status = 7 ] || echo "status $status: $said" >&2
        exit $status
    }
    clients=$1; shift
    all=
    i=0
    while [ $i -lt $clients ]; do
        one "$@" &
        all="$all $!"
        i=$((i + 1))
    done
    right=0
    for each in $all; do
        wait $each
        [ $? != 7 ] || right=$((right + 1))
    done
    echo "right: $right" >&2
"#;

#[test]
fn the_commands_of_many_clients_at_once_all_run() {
    match setting("CLIENTS") {
        Some(clients) => all_run(clients),
        None => in_time(|| all_run(60)),
    }
}

fn all_run(clients: u64) {
    if !has(&["bwrap", "xdg-dbus-proxy"]) {
        return;
    }
    let count = clients.to_string();
    let Some(host) = Host::with_few_descriptors() else { return };
    let limit = host.spawn(&["sh", "-c", "ulimit -Sn"]).output().unwrap();
    assert_eq!(limit.stdout, b"128\n", "a command gets the limit that we began with");
    let mut long = host.long();
    let ours = [env!("CARGO_BIN_EXE_unjank"), "host", "--"];
    let mut failed = Vec::new();
    for client in [&[SPAWN, "--host"][..], &ours] {
        let words = [&["sh", "-c", SCRIPT, "sh", &count], client].concat();
        let mut outside = host.bus.command(words[0]);
        outside.args(&words[1..]);
        let inside = sandbox::proxied(&host.bus, "org.unjank.Many", &words);
        for (mut command, place) in [Some(outside), inside]
            .into_iter()
            .zip(["host", "sandbox"])
            .filter_map(|(it, place)| Some((it?, place)))
        {
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if !said.contains(&format!("right: {count}\n")) {
                failed.push(format!("{client:?} in the {place}: {said}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let what = (long.client.try_wait(), long.command, host.log().into_iter().next());
    assert!(long.runs(), "a command of somebody else was lost: {what:?}");
}

/// The flag of a command that ends when its caller leaves the bus.
const WATCH_BUS: u32 = 2;
/// Connections whose calls wait, and the calls of each.
const CONNECTIONS: usize = 50;
const CALLS: usize = 20;

#[test]
fn commands_beyond_the_share_of_an_application_wait_and_are_not_refused() {
    in_time(|| {
        // Few descriptors: an application may have few commands that run at a time.
        let Some(host) = Host::with_descriptors(256) else { return };
        let mut raw = host.raw();
        let words = ["sleep\0", "1000\0"].map(|word| word.as_bytes().to_vec());
        // They end with their caller, however this test ends.
        let long = || Wanted { words: words.to_vec(), flags: WATCH_BUS, ..shell("") };
        let running: Vec<u32> = (0..8).map(|_| raw.command(&long()).unwrap()).collect();
        let mut asking = Wire::connect(host.bus.address());
        let mut connections = || {
            let (bus, path) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");
            let names = asking.send(bus, path, bus, "ListNames", "", &[], &[]).unwrap().unwrap();
            names.windows(3).filter(|part| part == b":1.").count()
        };
        let before = connections();
        let body = command(&shell("exit 0"), &[]);
        let mut wires: Vec<Wire> =
            (0..CONNECTIONS).map(|_| Wire::connect(host.bus.address())).collect();
        for wire in &mut wires {
            for _ in 0..CALLS {
                wire.post("HostCommand", "ayaaya{uh}a{ss}u", &body, &[]).unwrap();
            }
        }
        // Another application waits for none of them.
        let script = format!("{SPAWN} --host sh -c 'exit 7'");
        let other = sandbox::run(&host.bus, "org.a.B", Some("org.a.B"), &["sh", "-c", &script]);
        if let Some(other) = other {
            assert_eq!(other.status.code(), Some(7), "{other:?}");
        }
        let ran = |words: usize| host.log().iter().filter(|it| it.command.len() == words).count();
        // Those of callers that leave are not started.
        wires.truncate(CONNECTIONS - 10);
        assert!(until(|| connections() <= before + wires.len()), "connections did not end");
        for pid in running {
            raw.signal(pid, 9, true).unwrap();
            raw.end(pid).unwrap();
        }
        for wire in &mut wires {
            for _ in 0..CALLS {
                wire.answer().unwrap().unwrap();
            }
        }
        let own = usize::from(has(&["bwrap"]));
        let expected = (CONNECTIONS - 10) * CALLS + own;
        assert!(until(|| ran(3) >= expected), "{} of {expected} ran", ran(3));
        assert_eq!(ran(3), expected, "commands of callers that had left ran, too");
        let refused = |it: &&host::log::LogEntry| {
            matches!(it.outcome, CommandOutcome::Refused(_) | CommandOutcome::NotStarted(_))
        };
        assert_eq!(host.log().iter().filter(refused).count(), 0);
    });
}

/// Callers that leave as soon as they have asked.
const VANISHING: usize = 1000;

#[test]
fn a_thousand_callers_that_vanish_leave_nothing_and_hold_up_nobody() {
    in_time(|| {
        let Some(host) = Host::under("") else { return };
        let before = host.descriptors();
        let null = std::fs::File::open("/dev/null").unwrap();
        let passed = vec![null.as_fd(); 8];
        let handles: Vec<(u32, u32)> = (3..11).map(|target| (target, target - 3)).collect();
        // Half of them have a keeper, which has to end what nobody wants any more.
        for number in 0..VANISHING {
            let flags = if number % 2 == 0 { 0 } else { WATCH_BUS };
            let script = if flags == 0 { "exit 0" } else { "exec sleep 1000" };
            let body = command(&Wanted { flags, ..shell(script) }, &handles);
            let mut wire = Wire::connect(host.bus.address());
            wire.post("HostCommand", "ayaaya{uh}a{ss}u", &body, &passed).unwrap();
        }
        let start = Instant::now();
        assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8));
        assert!(start.elapsed() < HELD_UP, "others waited {:?}", start.elapsed());
        assert!(until(|| host.children().is_empty()), "{} are left", host.children().len());
        assert!(until(|| host.descriptors() <= before + 8), "{} are open", host.descriptors());
    });
}
