//! Identifies a process: its program, its command line, and its application.

use std::io;

use sys::process_file;

use crate::capture::PeerRecord;

/// The most bytes that are read of a file of `/proc`.
const MOST: u64 = 16 << 10;
/// The most bytes of a command line that are kept.
const COMMAND: usize = 1024;

/// Adds what `/proc` says of the peer's process, as far as it is readable.
pub(super) fn look(peer: &mut PeerRecord) {
    let Some(pid) = peer.pid else { return };
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    peer.exe = link.ok().map(|path| path.to_string_lossy().into_owned());
    peer.command = match process_file::read(pid, "cmdline", MOST) {
        Err(error) if process_file::is_stuck(&error) => hanging(pid),
        line => words(&line.unwrap_or_default()),
    };
    let flatpak = || {
        let info = read(pid, "root/.flatpak-info").unwrap_or_default();
        of_flatpak(&String::from_utf8_lossy(&info))
    };
    let unit = || {
        let cgroup = read(pid, "cgroup").unwrap_or_default();
        of_cgroup(&String::from_utf8_lossy(&cgroup))
    };
    peer.app = flatpak().or_else(unit);
}

/// Splits a command line; `None` if it has no words.
fn words(line: &[u8]) -> Vec<String> {
    let line = String::from_utf8_lossy(line.get(..COMMAND).unwrap_or(line)).into_owned();
    let words: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    if words.iter().all(String::is_empty) { Vec::new() } else { words }
}

/// Returns the command of a process that hangs in the kernel: its name there, and a note that more cannot be read.
fn hanging(pid: u32) -> Vec<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
    vec![name, "(hangs in the kernel; its command line cannot be read)".to_owned()]
}

fn read(pid: u32, name: &str) -> io::Result<Vec<u8>> {
    process_file::read(pid, name, MOST)
}

/// Reads the application's name from the description of a sandbox (`/.flatpak-info`).
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
    // The name of a launcher has no dot. The name of an application has one, unless it is the only part.
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
        let mut peer = PeerRecord { pid: Some(std::process::id()), ..PeerRecord::default() };
        look(&mut peer);
        assert_eq!(peer.exe, std::env::current_exe().ok().map(|exe| exe.display().to_string()));
        assert!(!peer.command.is_empty());
    }
}
