//! Connects to a bus at an address as programs are given it (D-Bus specification, "Server Addresses").

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Connects to the first of the addresses, separated by semicolons, that answers.
///
/// # Errors
///
/// What the last of them said; `Unsupported` if none is of a Unix socket.
pub(super) fn connect(addresses: &str) -> io::Result<UnixStream> {
    let mut last = io::Error::new(io::ErrorKind::Unsupported, "not an address of a Unix socket");
    for address in addresses.split(';') {
        match target(address).map(|target| target.and_then(|at| UnixStream::connect_addr(&at))) {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None => {}
        }
    }
    Err(last)
}

/// Returns the socket of an address of a Unix socket.
fn target(address: &str) -> Option<io::Result<SocketAddr>> {
    address.strip_prefix("unix:")?.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = unescaped(value)?;
        match key {
            "path" => {
                use std::os::unix::ffi::OsStrExt;
                Some(SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(&value)))
            }
            "abstract" => Some(SocketAddr::from_abstract_name(value)),
            _ => None,
        }
    })
}

/// Reads `%2f` and the like.
fn unescaped(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_paths_and_abstract_sockets() {
        let path = |text: &str| {
            let address = target(text)?.ok()?;
            address.as_pathname().map(|path| path.display().to_string())
        };
        assert_eq!(path("unix:path=/run/a%20b,guid=12").as_deref(), Some("/run/a b"));
        assert_eq!(path("unix:guid=12,path=/x").as_deref(), Some("/x"));
        let address = target("unix:abstract=/tmp/x").unwrap().unwrap();
        assert_eq!(address.as_abstract_name(), Some(&b"/tmp/x"[..]));
        for wrong in ["tcp:host=localhost", "unix:path=%2", "unix:path=%zz", "unix:", ""] {
            assert!(target(wrong).is_none(), "{wrong}");
        }
    }
}
