//! Who a process is: its program, its command line, and the application that it belongs to.

use std::fs::File;
use std::io::Read;

use crate::bus::capture::Peer;

/// The most that is read of anything a process says about itself.
const MOST: u64 = 16 << 10;
/// The most of a command line that is kept.
const COMMAND: usize = 1024;

/// Fills in what `/proc` says of the peer's process, as far as we may look.
pub(super) fn look(peer: &mut Peer) {
    let Some(pid) = peer.pid else { return };
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    peer.exe = link.ok().map(|path| path.to_string_lossy().into_owned());
    let command = read(&format!("/proc/{pid}/cmdline"));
    let end = command.len().min(COMMAND);
    let words = String::from_utf8_lossy(&command[..end]).into_owned();
    peer.command = words.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    if peer.command.iter().all(String::is_empty) {
        peer.command.clear();
    }
    let flatpak = || {
        let info = read(&format!("/proc/{pid}/root/.flatpak-info"));
        of_flatpak(&String::from_utf8_lossy(&info))
    };
    let unit = || {
        let cgroup = read(&format!("/proc/{pid}/cgroup"));
        of_cgroup(&String::from_utf8_lossy(&cgroup))
    };
    peer.app = flatpak().or_else(unit);
}

fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What was read before an error is what there is: the process may have ended.
        let _ = file.take(MOST).read_to_end(&mut bytes);
    }
    bytes
}

/// Reads the application's name from a sandbox's description of itself.
fn of_flatpak(info: &str) -> Option<String> {
    let section = info.split("[Application]\n").nth(1)?;
    let mut lines = section.lines().take_while(|line| !line.starts_with('['));
    lines.find_map(|line| line.strip_prefix("name=")).map(str::to_owned)
}

/// Reads the application from the unit of a control group: `app[-LAUNCHER]-ID-RANDOM.scope`, or `@` in services.
fn of_cgroup(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let unit = path.split('/').rfind(|part| part.starts_with("app-"))?;
    let (name, is_scope) = match unit.strip_suffix(".scope") {
        Some(name) => (name, true),
        None => (unit.strip_suffix(".service")?, false),
    };
    let name = name.strip_prefix("app-")?;
    let name = match (is_scope, name.split_once('@')) {
        (true, _) => name.rsplit_once('-')?.0,
        (false, Some((name, _))) => name,
        (false, None) => name,
    };
    // What the launcher is called has no dot, an application's name has one unless it is all there is.
    let id = match name.split_once('-') {
        Some((launcher, id)) if !launcher.contains('.') && !id.is_empty() => id,
        _ => name,
    };
    Some(id.replace("\\x2d", "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_is_read_from_a_unit() {
        let app = |unit: &str| of_cgroup(&format!("0::/user.slice/app.slice/{unit}\n"));
        assert_eq!(app("app-gnome-org.gnome.Maps-4711.scope").as_deref(), Some("org.gnome.Maps"));
        assert_eq!(app("app-flatpak-org.a.B-1.scope").as_deref(), Some("org.a.B"));
        assert_eq!(app("app-org.kde.kate@12ab.service").as_deref(), Some("org.kde.kate"));
        let dashed = app("app-gnome-a\\x2db.desktop-1.scope");
        assert_eq!(dashed.as_deref(), Some("a-b.desktop"));
        assert_eq!(app("dbus.service"), None);
        assert_eq!(of_cgroup(""), None);
    }

    #[test]
    fn the_application_is_read_from_a_sandbox() {
        let info = "[Application]\nname=org.a.B\nruntime=x\n\n[Instance]\nname=no\n";
        assert_eq!(of_flatpak(info).as_deref(), Some("org.a.B"));
        assert_eq!(of_flatpak("[Runtime]\nname=org.a.B\n"), None);
    }

    #[test]
    fn we_are_looked_up() {
        let mut peer = Peer { pid: Some(std::process::id()), ..Peer::default() };
        look(&mut peer);
        assert_eq!(peer.exe, std::env::current_exe().ok().map(|exe| exe.display().to_string()));
        assert!(!peer.command.is_empty());
    }
}
