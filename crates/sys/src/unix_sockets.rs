//! Which Unix sockets are connected to which, as the kernel knows it (sock_diag(7)).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_DUMP: u16 = 0x001 | 0x300;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `UDIAG_SHOW_PEER` and `UNIX_DIAG_PEER` of `linux/unix_diag.h`.
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;
/// The headers of a message, of a socket in it, and of an attribute.
const MESSAGE_HEADER: usize = 16;
const SOCKET_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// Returns the other end of each connected Unix socket of our network namespace, both as their numbers in `/proc/PID/fd`.
///
/// # Errors
///
/// As `socket(2)` and `sendto(2)`: the kernel has no `unix_diag`.
pub fn peers() -> io::Result<HashMap<u64, u64>> {
    let protocol = Some(netlink::SOCK_DIAG);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    let mut request = Vec::with_capacity(40);
    request.extend(40_u32.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    // Family, protocol, padding; all states; any number; what is wanted; no cookie.
    request.extend([u8::try_from(AddressFamily::UNIX.as_raw()).unwrap_or(1), 0, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend(SHOW_PEER.to_ne_bytes());
    request.extend([0; 8]);
    sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    read_all(&socket)
}

fn read_all(socket: &OwnedFd) -> io::Result<HashMap<u64, u64>> {
    let mut peers = HashMap::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) = recv(socket, &mut *buffer, RecvFlags::empty())?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((kind, body, after)) = message(rest) {
            match kind {
                DONE => return Ok(peers),
                ERROR => {
                    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => peers.extend(connection(body)),
            }
            rest = after;
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Takes the first message: its type, its body, and what follows.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(MESSAGE_HEADER..length)?;
    let next = length.next_multiple_of(4).min(bytes.len());
    Some((kind, body, bytes.get(next..)?))
}

/// Reads a socket and its other end, if it has one.
fn connection(body: &[u8]) -> Option<(u64, u64)> {
    let own = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?);
    let mut attributes = body.get(SOCKET_HEADER..)?;
    while let Some(header) = attributes.get(..ATTRIBUTE_HEADER) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let value = attributes.get(ATTRIBUTE_HEADER..length)?;
        if kind == PEER {
            let peer = u32::from_ne_bytes(*value.first_chunk()?);
            return Some((own.into(), peer.into()));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use std::os::unix::net::UnixStream;

    #[test]
    fn both_ends_of_a_connection_know_each_other() {
        let (one, other) = UnixStream::pair().unwrap();
        let number = |socket: &UnixStream| fstat(socket).unwrap().st_ino;
        let (one, other) = (number(&one), number(&other));
        let Ok(peers) = peers() else { return };
        assert_eq!((peers.get(&one), peers.get(&other)), (Some(&other), Some(&one)));
    }

    #[test]
    fn bytes_that_are_no_messages_are_none() {
        for bytes in [&b""[..], &[0; 3], &[0; 16], &[0xff; 40], &[16, 0, 0, 0, 20, 0]] {
            if let Some((_, body, _)) = message(bytes) {
                assert_eq!(connection(body), None);
            }
        }
        assert_eq!(connection(&[1; 24]), None);
    }
}
