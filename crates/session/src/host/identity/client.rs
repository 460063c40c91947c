//! The program behind a proxy: which process of a sandbox made the connection that its proxy passes on.
//!
//! The bus knows the proxy only. Who asked is found among the processes of the sandbox, for the terminal that it runs in and
//! for the log. Nothing is allowed because of it: the candidates are all processes of the one application.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::instances::Instance;
use super::{Application, Caller, Host, Speaks};
use crate::host::process::Stat;

/// A process behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number, as the host counts.
    pub pid: u32,
    /// Its executable as it sees it, if that could be read.
    pub exe: Option<PathBuf>,
    /// Whether it has the terminal that it was looked for with.
    pub has_terminal: bool,
}

/// What is known of a call, by which the process that made it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTraits {
    /// The terminal that it passed on.
    pub terminal: Option<TerminalFile>,
    /// The words of the command, which the client's own command line ends with if it is a `flatpak-spawn`.
    pub words: Vec<Vec<u8>>,
    /// When its connection came to the bus, in ticks since the machine began.
    pub came: u64,
}

/// A terminal, told from others with its numbers in other sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalFile {
    file_system: u64,
    inode: u64,
    device: u64,
}

impl TerminalFile {
    /// Returns the terminal that this descriptor is, if it is one.
    #[must_use]
    pub fn of(descriptor: impl AsFd) -> Option<TerminalFile> {
        if !rustix::termios::isatty(&descriptor) {
            return None;
        }
        let status = rustix::fs::fstat(descriptor).ok()?;
        Some(TerminalFile {
            file_system: status.st_dev,
            inode: status.st_ino,
            device: status.st_rdev,
        })
    }

    /// Says whether the descriptor behind this link of `/proc` is this file; no file system is asked.
    fn is_at(self, link: &Path) -> bool {
        let Ok(status) = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::INO) else {
            return false;
        };
        status.stx_ino == self.inode
            && makedev(status.stx_rdev_major, status.stx_rdev_minor) == self.device
            && makedev(status.stx_dev_major, status.stx_dev_minor) == self.file_system
    }
}

/// How well a process fits a call, the most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    has_terminal: bool,
    is_connected: bool,
    has_the_words: bool,
    began: u64,
}

impl Host {
    /// Finds the process that made a call through the proxy `caller`; `None` if no process of its sandbox fits.
    #[must_use]
    pub fn client_behind(&self, caller: &Caller, call: &CallTraits) -> Option<Client> {
        if caller.speaks == Speaks::ForItself {
            return None;
        }
        let own = std::fs::read_link(self.proc.join("self/ns/mnt")).ok()?;
        let instance = match &caller.application {
            Application::Flatpak { instance: Some(number), .. } => {
                Instance::running(self, number.clone())
            }
            _ => None,
        };
        // A sandbox with a network of its own has sockets of its own: then the rest has to tell.
        let ends = self.ends_of_proxy(caller.pid);
        let mut best: Option<(Fit, Client)> = None;
        for pid in std::fs::read_dir(&self.proc)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        {
            let Ok(mounts) = std::fs::read_link(self.of(pid, "ns/mnt")) else { continue };
            if mounts == own || pid == caller.pid {
                continue;
            }
            let sockets = self.sockets(pid).unwrap_or_default();
            let is_connected = !sockets.is_disjoint(&ends);
            let belongs = instance.as_ref().is_some_and(|it| it.holds(self, pid, &mounts));
            if sockets.is_empty() || !(belongs || instance.is_none() && is_connected) {
                continue;
            }
            let Some(stat) = Stat::within(&self.proc, pid) else { continue };
            let exe = self.exe(pid);
            if stat.began > call.came + 1 || is_proxy(exe.as_deref()) {
                continue;
            }
            let has_terminal = call.terminal.is_some_and(|terminal| {
                [0, 1, 2].iter().any(|fd| terminal.is_at(&self.of(pid, &format!("fd/{fd}"))))
            });
            let has_the_words = self.ends_with_words(pid, &call.words);
            let fit = Fit { has_terminal, is_connected, has_the_words, began: stat.began };
            if best.as_ref().is_none_or(|(other, _)| *other < fit) {
                best = Some((fit, Client { pid, exe, has_terminal }));
            }
        }
        best.map(|(_, client)| client)
    }

    /// Returns the other ends of the sockets of a proxy, as far as the kernel tells.
    fn ends_of_proxy(&self, proxy: u32) -> HashSet<u64> {
        let (Ok(sockets), Ok(peers)) = (self.sockets(proxy), sys::unix_sockets::peers()) else {
            return HashSet::new();
        };
        sockets.iter().filter_map(|socket| peers.get(socket)).copied().collect()
    }

    fn ends_with_words(&self, pid: u32, words: &[Vec<u8>]) -> bool {
        let Ok(line) = std::fs::read(self.of(pid, "cmdline")) else { return false };
        let mut own = line.strip_suffix(&[0]).unwrap_or(&line).rsplit(|byte| *byte == 0);
        words.iter().rev().all(|word| own.next().is_some_and(|own| own == word.as_slice()))
    }
}

/// Says whether a program passes on what others say.
pub(super) fn is_proxy(exe: Option<&Path>) -> bool {
    exe.and_then(Path::file_name) == Some(super::PROXY.as_ref())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test stands for the kernel and Flatpak")]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    /// A process that began at this time, with a socket.
    fn process(host: &Host, pid: u32, space: &str, began: u64, line: &str) {
        let dir = host.proc.join(pid.to_string());
        create_dir_all(dir.join("ns")).unwrap();
        create_dir_all(dir.join("fd")).unwrap();
        symlink(format!("mnt:[{space}]"), dir.join("ns/mnt")).unwrap();
        symlink(format!("socket:[{pid}]"), dir.join("fd/5")).unwrap();
        symlink("/usr/bin/some", dir.join("exe")).unwrap();
        write(dir.join("cmdline"), line.replace(' ', "\0") + "\0").unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {began} 0\n");
        write(dir.join("stat"), stat).unwrap();
    }

    #[test]
    fn the_process_that_fits_a_call_best_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().join("proc"), instances: dir.path().join("instances") };
        create_dir_all(host.proc.join("self/ns")).unwrap();
        symlink("mnt:[1]", host.proc.join("self/ns/mnt")).unwrap();
        let instance = host.instances.join("77");
        create_dir_all(&instance).unwrap();
        write(instance.join("info"), "[Application]\nname=org.a.B\n").unwrap();
        write(instance.join("bwrapinfo.json"), "{\"child-pid\": 4}").unwrap();
        // The sandbox, one of another, one of the host.
        process(&host, 4, "2", 10, "spawn --host make all");
        process(&host, 5, "2", 20, "spawn --host make some");
        process(&host, 6, "2", 90, "later");
        process(&host, 7, "3", 20, "spawn --host make all");
        process(&host, 8, "1", 20, "spawn --host make all");
        let application =
            Application::Flatpak { id: "org.a.B".into(), instance: Some("77".into()) };
        let proxy = Caller { pid: 9, application, exe: None, speaks: Speaks::ForOthers };
        let found = |words: &str, came: u64| {
            let words = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let call = CallTraits { terminal: None, words, came };
            host.client_behind(&proxy, &call).map(|client| client.pid)
        };
        assert_eq!(found("make all", 30), Some(4), "the words tell");
        assert_eq!(found("something else", 30), Some(5), "the newest at that time");
        assert_eq!(found("make some", 9), Some(4), "it began in that moment");
        assert_eq!(found("make some", 8), None);
        let program = Caller { speaks: Speaks::ForItself, ..proxy.clone() };
        assert_eq!(host.client_behind(&program, &CallTraits::default()), None);
    }
}
