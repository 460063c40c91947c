//! The benchmark on a real service: the installed one beside itself.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr, reason = "a test")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use lab::place::MeasuredDirectory;
use lab::session::ServiceProgram;
use sys::clock::SystemClock;
use sys::mounts::Mounts;
use unjank_bench::lab::{Effort, Lab};
use unjank_bench::row::FigureRow;
use unjank_bench::run::chosen;
use unjank_bench::settings::FIGURES;

const PEER: &str = "/usr/libexec/dconf-service";

/// Measures `figure` with the peer on both sides; nothing if it is not installed.
fn beside_itself(figure: &str) -> Option<Vec<FigureRow>> {
    let tools = [PEER, "/usr/bin/dbus-daemon", "/usr/bin/cc", "/usr/bin/pkg-config"];
    if let Some(missing) = tools.iter().find(|tool| !Path::new(tool).exists()) {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "no {missing}");
        eprintln!("SKIPPED: no {missing}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mounts = Mounts::read().unwrap();
    let clock = SystemClock::start();
    let stop = AtomicBool::new(false);
    let lab = Lab {
        ours: ServiceProgram::plain(Path::new(PEER)),
        peer: ServiceProgram::plain(Path::new(PEER)),
        memory: MeasuredDirectory::of(memory.path(), &mounts).unwrap(),
        disk: MeasuredDirectory::of(dir.path(), &mounts),
        effort: Effort::Quick,
        clock: &clock,
        stop: &stop,
    };
    let rows = (chosen(FIGURES, &[figure.to_owned()], &lab)[0].run)(&lab).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left on the disk");
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0, "nothing is left in memory");
    Some(rows)
}

#[test]
fn a_service_beside_itself_is_neither_much_faster_nor_much_slower() {
    let Some(rows) = beside_itself("write-tmpfs") else { return };
    assert_eq!(rows[0].ours.len(), 30);
    assert!((0.2..5.0).contains(&rows[0].ratio()), "{}", rows[0].show_ratio());
}

#[test]
fn a_services_bytes_are_counted_from_outside() {
    let Some(rows) = beside_itself("memory") else { return };
    assert!(rows[0].ours.median() > 1e6, "a service of GLib takes megabytes");
    assert!(rows[1].ours.median() < rows[0].ours.median());
}

#[test]
fn our_look_ups_find_what_the_dconf_client_finds() {
    let Some(rows) = beside_itself("lookup") else { return };
    assert_eq!(rows[0].ours.len(), rows[0].peer.len());
    assert!(rows[0].peer.median() > rows[1].peer.median(), "a hash table is faster than dconf");
}

#[test]
fn eight_clients_write_at_once() {
    let Some(rows) = beside_itself("clients-disk") else { return };
    assert!(rows[0].ours.median() > 1.0);
}
