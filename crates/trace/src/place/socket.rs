//! Finds the peer of a socket.

use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType, getpeername, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use kerneltrace::record::CopiedSocket;

use crate::recorder::TraceRecorder;

/// Returns of a copy what [`peer`] says of an open socket.
pub(super) fn copied_peer(
    copied: &CopiedSocket<'_>,
    process: u32,
    recorder: &mut TraceRecorder,
) -> Option<String> {
    let family = u16::from_le_bytes(copied.address.get(..2)?.try_into().ok()?);
    if AddressFamily::from_raw(family) == AddressFamily::UNIX {
        let place = address(copied.address).unwrap_or_default();
        if copied.peer == process && place.is_empty() {
            return Some(OTHER_END.to_owned());
        }
        let name = program(copied.peer).or_else(|| {
            // A program of the recording that has ended meanwhile.
            let thread = recorder.recording().threads.get(&copied.peer)?;
            Some(named(copied.peer, &String::from_utf8_lossy(&thread.name)))
        });
        return Some(unix_text(name, &place));
    }
    let kind = match copied.kind {
        1 => SocketType::STREAM,
        2 => SocketType::DGRAM,
        _ => SocketType::RAW,
    };
    Some(format!("{}{}", prefix(kind), address(copied.address)?))
}

/// What is told of a socket of a pair that the process itself has made: whom it has given the other end the kernel does not say.
const OTHER_END: &str = "the other end of a socket pair";

/// Returns the peer of the socket that `process` has as `descriptor`; `None` without permission or without a peer.
pub(super) fn peer(process: u32, descriptor: i32) -> Option<String> {
    let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
    let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The copy lives for a few microseconds: an end of file that falls into them comes that much later.
    let socket = pidfd_getfd(held, descriptor, PidfdGetfdFlags::empty()).ok()?;
    let address = getpeername(&socket).ok()??;
    if address.address_family() == AddressFamily::UNIX {
        return Some(unix(process, &socket, &SocketAddrUnix::try_from(address).ok()?));
    }
    let kind = prefix(sockopt::socket_type(&socket).ok()?);
    Some(format!("{kind}{}", internet(&address)?))
}

fn prefix(kind: SocketType) -> &'static str {
    match kind {
        SocketType::STREAM => "tcp ",
        SocketType::DGRAM => "udp ",
        _ => "",
    }
}

/// Names the program at the other end, and where it listens.
fn unix(process: u32, socket: impl AsFd, address: &SocketAddrUnix) -> String {
    let place = match (address.path_bytes(), address.abstract_name()) {
        (Some(path), _) => String::from_utf8_lossy(path).into_owned(),
        (None, Some(name)) if !name.is_empty() => format!("@{}", String::from_utf8_lossy(name)),
        _ => String::new(),
    };
    let peer = sockopt::socket_peercred(socket).ok();
    let peer = peer.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
    if peer == Some(process) && place.is_empty() {
        return OTHER_END.to_owned();
    }
    unix_text(peer.and_then(program), &place)
}

/// Names a process that lives.
fn program(process: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(named(process, name.trim_end()))
}

fn named(process: u32, name: &str) -> String {
    format!("{} ({process})", name.escape_default())
}

fn unix_text(program: Option<String>, place: &str) -> String {
    match (program, place.is_empty()) {
        (Some(program), true) => program,
        (Some(program), false) => format!("{program} at {place}"),
        (None, true) => "unix socket".to_owned(),
        (None, false) => place.to_owned(),
    }
}

fn internet(address: &SocketAddrAny) -> Option<String> {
    std::net::SocketAddr::try_from(address.clone()).ok().map(|address| address.to_string())
}

/// Reads a `struct sockaddr`, as `connect` takes it.
pub(super) fn address(bytes: &[u8]) -> Option<String> {
    let family = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match family {
        1 => {
            let name = bytes.get(2..)?;
            let (mark, name) = match name.split_first()? {
                (0, name) => ("@", name),
                _ => ("", name),
            };
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            Some(format!("{mark}{}", String::from_utf8_lossy(&name[..end])))
        }
        2 => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(format!("{}:{}", std::net::Ipv4Addr::from(address), port()?))
        }
        10 => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(format!("[{}]:{}", std::net::Ipv6Addr::from(address), port()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn the_program_that_listens_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let peer = peer(std::process::id(), client.as_raw_fd()).unwrap();
        assert!(
            peer.ends_with(&format!("({}) at {}", std::process::id(), path.display())),
            "{peer}"
        );
    }

    #[test]
    fn of_a_pair_that_a_process_has_made_itself_it_is_not_said_who_has_the_other_end() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let peer = peer(std::process::id(), socket.as_raw_fd()).unwrap();
        assert_eq!(peer, OTHER_END);
        let address = &[1, 0][..];
        let copied = |of: u32| CopiedSocket { kind: 1, peer: of, address };
        let mut recorder = crate::recorder::TraceRecorder::new(
            crate::recording::Backend::Peek,
            Vec::new(),
            std::time::SystemTime::UNIX_EPOCH,
        );
        let own = std::process::id();
        assert_eq!(copied_peer(&copied(own), own, &mut recorder).as_deref(), Some(OTHER_END));
        let other = copied_peer(&copied(own), 1, &mut recorder).unwrap();
        assert!(other.ends_with(&format!("({own})")), "{other}");
    }

    #[test]
    fn an_internet_peer_is_an_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = peer(std::process::id(), client.as_raw_fd()).unwrap();
        assert_eq!(peer, format!("tcp {}", listener.local_addr().unwrap()));
    }

    #[test]
    fn addresses_in_memory_are_read_as_connect_takes_them() {
        assert_eq!(address(b"\x02\x00\x00\x35\x7f\0\0\x35").as_deref(), Some("127.0.0.53:53"));
        assert_eq!(address(b"\x01\x00/run/bus\0xx").as_deref(), Some("/run/bus"));
        assert_eq!(address(b"\x01\x00\0abstract").as_deref(), Some("@abstract"));
        assert_eq!((address(b"\x02"), address(b"\xff\xff\0\0")), (None, None));
    }
}
