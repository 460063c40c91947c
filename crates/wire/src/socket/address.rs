//! Where a bus listens, as `DBUS_SESSION_BUS_ADDRESS` says it (D-Bus specification, Server Addresses).

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use sys::stream::{SocketAddress, connect_to};

/// Connects to the first of the addresses in `text` at which somebody listens; waits for none longer than `limit`.
///
/// # Errors
///
/// What the last of them said; `Unsupported` if none is of a Unix socket.
pub fn connect(text: &[u8], limit: Duration) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::Unsupported, "its address is of no Unix socket");
    for one in text.split(|byte| *byte == b';') {
        match target(one) {
            Some(Target::Path(path)) => {
                match connect_to(SocketAddress::Path(Path::new(OsStr::from_bytes(&path))), limit) {
                    Ok(socket) => return Ok(socket),
                    Err(error) => last = error,
                }
            }
            Some(Target::Abstract(name)) => match connect_to(SocketAddress::Abstract(&name), limit)
            {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            },
            None => (),
        }
    }
    Err(last)
}

/// The socket of an address.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Path(Vec<u8>),
    Abstract(Vec<u8>),
}

fn target(address: &[u8]) -> Option<Target> {
    let pairs = address.strip_prefix(b"unix:")?;
    pairs.split(|byte| *byte == b',').find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&pair[..at], unescape(&pair[at + 1..])?);
        match key {
            b"path" => Some(Target::Path(value)),
            b"abstract" => Some(Target::Abstract(value)),
            _ => None,
        }
    })
}

/// Reads `%2f` and the like; nothing if it is not written so.
fn unescape(value: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_paths_and_abstract_sockets() {
        let path = |text: &str| Some(Target::Path(text.into()));
        assert_eq!(target(b"unix:path=/run/bus"), path("/run/bus"));
        assert_eq!(target(b"unix:path=/run/a%20b,guid=12"), path("/run/a b"));
        assert_eq!(target(b"unix:guid=12,path=/x"), path("/x"));
        assert_eq!(
            target(b"unix:abstract=/tmp/dbus-1"),
            Some(Target::Abstract(b"/tmp/dbus-1".into()))
        );
        for wrong in ["tcp:host=localhost", "unix:path=%2", "unix:path=%zz", "unix:", ""] {
            assert_eq!(target(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_that_answers_is_taken_and_else_the_last_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let text = format!("tcp:host=a;unix:path=/nowhere/bus;unix:path={}", path.display());
        let connect = |text: &[u8]| connect(text, Duration::from_secs(10));
        assert!(connect(text.as_bytes()).is_ok());
        let missing = connect(b"unix:path=/nowhere/bus").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(connect(b"autolaunch:").unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
