//! Finds the process of a sandbox that made the connection which its proxy passes on.
//!
//! The bus knows only the proxy. The caller is found among the processes of the sandbox, for its terminal and
//! for the log. No permission depends on it: the candidates are all processes of one application.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::instances::Instance;
use super::{Caller, CallerKind, ProcessDirectory, Speaks};
use crate::process::ProcessStat;

/// The longest command line that is read: the kernel's limit.
const MOST_LINE: u64 = 6 << 20;

/// A process behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its process number in the host's namespace.
    pub pid: u32,
    /// The path of its executable in its own mount namespace, if it is readable.
    pub exe: Option<PathBuf>,
    /// Whether it has the terminal by which it was searched.
    pub has_terminal: bool,
}

/// The known facts of a call, by which its process is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTraits {
    /// The terminal that it passed on.
    pub terminal: Option<TerminalFile>,
    /// The words of the command, which the client's own command line ends with if it is a `flatpak-spawn`.
    pub words: Vec<Vec<u8>>,
    /// When its connection to the bus was made, in ticks since boot.
    pub came: u64,
}

/// The identity of a terminal, different from terminals with the same number in other sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalFile {
    file_system: u64,
    inode: u64,
    device: u64,
}

impl TerminalFile {
    /// Returns the terminal of this descriptor, if it is one.
    #[must_use]
    pub fn of(descriptor: impl AsFd) -> Option<TerminalFile> {
        if !sys::deferred_close::is_terminal(descriptor.as_fd()) {
            return None;
        }
        let status = rustix::fs::fstat(descriptor).ok()?;
        Some(TerminalFile {
            file_system: status.st_dev,
            inode: status.st_ino,
            device: status.st_rdev,
        })
    }

    /// Returns whether the descriptor behind this link of `/proc` is this file, without a call to a file system.
    pub(crate) fn is_at(self, link: &Path) -> bool {
        let Ok(status) = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::INO) else {
            return false;
        };
        status.stx_ino == self.inode
            && makedev(status.stx_rdev_major, status.stx_rdev_minor) == self.device
            && makedev(status.stx_dev_major, status.stx_dev_minor) == self.file_system
    }
}

/// How well a process matches a call, the strongest evidence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    has_terminal: bool,
    is_connected: bool,
    has_the_words: bool,
    began: u64,
}

impl ProcessDirectory {
    /// Finds the process that made a call through the proxy `caller`; `None` if no process of its sandbox fits.
    #[must_use]
    pub fn client_behind(&self, caller: &Caller, call: &CallTraits) -> Option<Client> {
        if caller.speaks == Speaks::ForItself {
            return None;
        }
        let own = std::fs::read_link(self.proc.join("self/ns/mnt")).ok()?;
        let instance = match &caller.application {
            CallerKind::Flatpak { instance: Some(number), .. } => {
                Instance::running(self, number.clone())
            }
            _ => None,
        };
        // The sockets of a sandbox with a network namespace are not visible: then the other evidence decides.
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
            let Some(stat) = ProcessStat::within(&self.proc, pid) else { continue };
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

    /// Returns the peers of the sockets of a proxy, as far as the kernel reports them.
    fn ends_of_proxy(&self, proxy: u32) -> HashSet<u64> {
        let (Ok(sockets), Ok(peers)) = (self.sockets(proxy), sys::unix_sockets::peers()) else {
            return HashSet::new();
        };
        sockets.iter().filter_map(|socket| peers.get(socket)).copied().collect()
    }

    fn ends_with_words(&self, pid: u32, words: &[Vec<u8>]) -> bool {
        let line = sys::process_file::read_at(&self.of(pid, "cmdline"), MOST_LINE);
        let Ok(line) = line else { return false };
        let mut own = line.strip_suffix(&[0]).unwrap_or(&line).rsplit(|byte| *byte == 0);
        words.iter().rev().all(|word| own.next().is_some_and(|own| own == word.as_slice()))
    }
}

/// Returns whether a program is a proxy.
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
    fn process(host: &ProcessDirectory, pid: u32, space: &str, began: u64, line: &str) {
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
        let host = ProcessDirectory {
            proc: dir.path().join("proc"),
            instances: dir.path().join("instances"),
        };
        create_dir_all(host.proc.join("self/ns")).unwrap();
        symlink("mnt:[1]", host.proc.join("self/ns/mnt")).unwrap();
        let instance = host.instances.join("77");
        create_dir_all(&instance).unwrap();
        write(instance.join("info"), "[Application]\nname=org.a.B\n").unwrap();
        write(instance.join("bwrapinfo.json"), "{\"child-pid\": 4}").unwrap();
        // A process of the sandbox, one of another sandbox, one of the host.
        process(&host, 4, "2", 10, "spawn --host make all");
        process(&host, 5, "2", 20, "spawn --host make some");
        process(&host, 6, "2", 90, "later");
        process(&host, 7, "3", 20, "spawn --host make all");
        process(&host, 8, "1", 20, "spawn --host make all");
        let application = CallerKind::Flatpak { id: "org.a.B".into(), instance: Some("77".into()) };
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
