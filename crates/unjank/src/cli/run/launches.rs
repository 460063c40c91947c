//! Programs that the user's systemd starts, told to the keeper before they wait for anything.

use std::env;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use bus::client::BusClient;
use sys::socket::{self, Full};

/// Returns the address of the bus on which the user's systemd is, if there is one: its folder is in the runtime directory.
#[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
pub(super) fn address() -> Option<String> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.join("systemd").is_dir())?;
    let named = env::var("DBUS_SESSION_BUS_ADDRESS").ok().filter(|address| !address.is_empty());
    named.or_else(|| {
        let socket = runtime.join("bus");
        socket.exists().then(|| format!("unix:path={}", socket.display()))
    })
}

/// Starts a thread that sends a message for each program that is started, if there is anybody who tells.
pub(super) fn watch() -> Option<OwnedFd> {
    let address = address()?;
    let (ours, theirs) = socket::pair().ok()?;
    let listen = async move {
        let Ok(client) = BusClient::connect(Some(&address)).await else { return };
        let Ok(mut launches) = client.launches().await else { return };
        while launches.next().await.is_some() {
            // One that is full has been told already.
            match socket::send(&ours, b"l", None, Full::Fail) {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
                Ok(()) | Err(_) => (),
            }
        }
    };
    let builder = std::thread::Builder::new().name("launches".to_owned());
    let thread = builder.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(listen);
        }
    });
    thread.is_ok().then_some(theirs)
}
