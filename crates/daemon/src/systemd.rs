//! Tells systemd that the daemon is ready, or about to end (`sd_notify(3)`).

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket of the service manager, if one started this process.
#[derive(Debug, Default)]
pub struct Notifier(Option<UnixDatagram>);

impl Notifier {
    /// Uses the address in `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    #[must_use]
    pub fn new(address: Option<OsString>) -> Notifier {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Notifier(None);
        };
        match connect(address.as_bytes()) {
            Ok(socket) => Notifier(Some(socket)),
            Err(error) => {
                tracing::warn!(?address, %error, "cannot reach the service manager");
                Notifier(None)
            }
        }
    }

    /// Reports that calls are answered from now on.
    pub fn ready(&self) {
        self.tell(b"READY=1");
    }

    /// Reports that the daemon ends: a start that is requested from now on waits for that end.
    pub fn stopping(&self) {
        self.tell(b"STOPPING=1");
    }

    fn tell(&self, state: &[u8]) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(state)
        {
            tracing::warn!(%error, "cannot tell the service manager");
        }
    }
}

fn connect(address: &[u8]) -> io::Result<UnixDatagram> {
    let address = match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_reaches_the_service_manager() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.into_os_string()));
        notifier.ready();
        notifier.stopping();
        let mut heard = [0; 32];
        for state in ["READY=1", "STOPPING=1"] {
            let len = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..len], state.as_bytes());
        }
    }

    #[test]
    fn nobody_to_tell_is_no_error() {
        Notifier::new(None).ready();
        Notifier::new(Some("/nowhere/at/all".into())).ready();
    }
}
