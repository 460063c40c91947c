//! Connections to display servers: whoever waits to read from one waits for the person at it, unless it waits for an answer.

use std::collections::HashMap;

use super::{link, socket};

/// Where an X server listens by TCP: display 0 is at this port, the others behind it.
const FIRST_X_PORT: u16 = 6000;
/// The most descriptors whose other ends are remembered.
const REMEMBERED: usize = 4096;
/// The most of a program's environment that is read.
const ENVIRONMENT: u64 = 1 << 20;

/// Returns whether a display server listens at this path; `@` stands for the abstract name space.
#[must_use]
pub fn is_display_path(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"@").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let directory = path.strip_suffix(name).unwrap_or_default();
    directory.ends_with(b"/.X11-unix/") && name.starts_with(b"X")
        || [&b"wayland-"[..], b"gamescope-"].iter().any(|beginning| name.starts_with(beginning))
}

/// Returns whether a peer, in the words of [`super::socket`], is the display server of a process.
pub(super) fn is_display(process: u32, peer: &str) -> bool {
    if let Some(address) = peer.strip_prefix("tcp ") {
        // Others listen at ports like these, too: it is a display if the program was told so.
        let port = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let number = port.and_then(|port| port.checked_sub(FIRST_X_PORT));
        return number.is_some_and(|number| remote_display(process) == Some(number));
    }
    let place = peer.rsplit_once(" at ").map_or(peer, |(_, place)| place);
    place.starts_with(['/', '@']) && is_display_path(place.as_bytes())
}

/// Returns the number of the display on another machine, or behind `ssh -X`, that the environment of a process names.
fn remote_display(process: u32) -> Option<u16> {
    let environment = sys::process_file::read(process, "environ", ENVIRONMENT).ok()?;
    let variables = environment.split(|byte| *byte == 0);
    let name = variables.filter_map(|variable| variable.strip_prefix(b"DISPLAY=")).next()?;
    let (host, number) = str::from_utf8(name).ok()?.rsplit_once(':')?;
    let number = number.split('.').next()?.parse().ok()?;
    (!host.is_empty() && !host.starts_with('/') && host != "unix").then_some(number)
}

/// The other ends of sockets, by process and descriptor, with what the descriptor was then.
#[derive(Debug, Default)]
pub(super) struct KnownPeers(HashMap<(u32, i32), (Vec<u8>, Option<String>)>);

impl KnownPeers {
    /// Returns the other end of what is a socket of `process` now.
    pub(super) fn peer(&mut self, process: u32, descriptor: i32) -> Option<String> {
        let known = self.0.get(&(process, descriptor));
        let Some(now) = link(&format!("/proc/{process}/fd/{descriptor}")) else {
            // It has ended, and we have not read of that yet.
            return known?.1.clone();
        };
        if !now.starts_with(b"socket:") {
            return None;
        }
        match known {
            Some((known, peer)) if *known == now => peer.clone(),
            _ => {
                let peer = socket::peer(process, descriptor);
                // One that is not connected yet may be soon.
                if peer.is_some() {
                    self.remember(process, descriptor, now, peer.clone());
                }
                peer
            }
        }
    }

    /// Remembers the other end of a socket.
    pub(super) fn remember(
        &mut self,
        process: u32,
        descriptor: i32,
        link: Vec<u8>,
        peer: Option<String>,
    ) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert((process, descriptor), (link, peer));
    }

    /// Returns the other end of a socket if that is the display of `process`.
    pub(super) fn display(&mut self, process: u32, descriptor: i32) -> Option<String> {
        self.peer(process, descriptor).filter(|peer| is_display(process, peer))
    }

    /// Forgets a process that has ended, or runs another program.
    pub(super) fn forget(&mut self, process: u32) {
        self.0.retain(|(of, _), _| *of != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_are_told_from_other_peers() {
        let own = std::process::id();
        for peer in [
            "Xvfb (123) at @/tmp/.X11-unix/X7",
            "/tmp/.X11-unix/X0",
            "weston (9) at /run/user/1000/wayland-1",
            "gamescope (9) at /run/user/1000/gamescope-0",
        ] {
            assert!(is_display(own, peer), "{peer}");
        }
        for peer in [
            "dbus-daemon (9) at /run/user/1000/bus",
            "wayland-proxy (9)",
            "pipewire (9) at /run/user/1000/pipewire-0",
            "a (9) at /home/a/.X11-unix-notes",
            "a (9) at /tmp/.X11-unix/Y0",
            // No display by TCP is in our environment.
            "tcp 127.0.0.1:6080",
            "tcp 127.0.0.1:80",
        ] {
            assert!(!is_display(own, peer), "{peer}");
        }
    }
}
