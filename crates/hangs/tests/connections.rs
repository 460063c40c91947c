//! Which connections the programs in the kernel report.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;

use sys::bpf::Ring;
use unjank_hangs::kernel::{HangPrograms, ThreadEvent};

use super::kernel::load;
use super::recorder::until;

/// Of those that connect within less than this one is reported, in nanoseconds, with some time to spare.
const PAUSE_NS: u64 = 5_000_000;

/// Returns whether this kernel says who connects: Linux 6.3 and later.
fn tells_connections() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(3))
}

/// Connects to a listening socket; returns whether that is reported.
fn is_connection_told(ring: &mut Ring, listener: &UnixListener, address: &SocketAddr) -> bool {
    let _connection = UnixStream::connect_addr(address).unwrap();
    drop(listener.accept().unwrap());
    let told = Some((std::process::id(), ThreadEvent::Connected));
    let mut is_told = false;
    ring.take(usize::MAX, |bytes| is_told |= ThreadEvent::read(bytes) == told);
    is_told
}

#[test]
fn who_connects_to_a_display_is_told() {
    let Some(HangPrograms { mut ring, marker: _marker }) = load() else { return };
    if !tells_connections() {
        eprintln!("SKIPPED: Linux before 6.3 does not say who connects");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let x_dir = tempfile::Builder::new().prefix(".X1").tempdir_in("/tmp").unwrap();
    let own = std::process::id();
    let at = |path: PathBuf| SocketAddr::from_pathname(path).unwrap();
    let named = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
    let displays = [
        at(dir.path().join("wayland-0")),
        at(dir.path().join("wayland-10")),
        at(dir.path().join("gamescope-0")),
        at(x_dir.path().join("X0")),
        named(&format!("/tmp/.X11-unix/X{own}")),
    ];
    for address in &displays {
        let listener = UnixListener::bind_addr(address).unwrap();
        // Programs of other tests connect, too, and of those within a millisecond one is told.
        until(&format!("a connection to {address:?}"), || {
            is_connection_told(&mut ring, &listener, address).then_some(())
        });
    }
    let others = [
        at(dir.path().join("a")),
        at(dir.path().join("wayland-0.lock")),
        at(dir.path().join("a-very-long-name-that-is-none-of-a-display")),
        named(&format!("{own}")),
        named(&format!("/tmp/dbus-{own}")),
    ];
    for address in &others {
        let listener = UnixListener::bind_addr(address).unwrap();
        let began_ns = sys::bpf::clock_ns();
        while sys::bpf::clock_ns() - began_ns < PAUSE_NS {
            assert!(!is_connection_told(&mut ring, &listener, address), "{address:?}");
        }
    }
}
