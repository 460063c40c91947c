//! Finds the interactive programs of this user: the processes that hold a connection to a display server.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sys::unix_sockets;

use super::program_name::{last_component, program_name};

/// How often connections to display servers are listed, in nanoseconds.
const SEARCH_NS: u64 = 2_000_000_000;
/// By how much a search may be early, in nanoseconds.
const SLACK_NS: u64 = 25_000_000;
/// How often all processes are looked through although no new connection was seen: for those in another network namespace.
const SWEEP_NS: u64 = 10_000_000_000;
/// Sweeps take at most a fiftieth of a processor. Time in which they wait for one does not count: on a busy machine programs
/// that start would not be found for minutes.
const SWEEP_SHARE: u64 = 50;
/// The ports at which X servers listen: display 0 is at the first one. Others have those behind.
const X_PORTS: RangeInclusive<u16> = 6000..=6199;
/// The state of a connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
/// The most descriptors of a process that are looked through.
const DESCRIPTORS: usize = 4096;

/// A process, which is another one when its number is used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ProcessIdentity {
    /// Its number.
    pub(crate) process: u32,
    /// When it began, in the kernel's ticks since boot.
    pub(crate) began: u64,
}

/// The difference between two searches.
#[derive(Debug, Default)]
pub(crate) struct InteractiveChange {
    /// Interactive processes that are new.
    pub(crate) found: Vec<ProcessIdentity>,
    /// Processes that were interactive, and have ended.
    pub(crate) gone: Vec<ProcessIdentity>,
}

/// Finds interactive programs.
#[derive(Debug)]
pub(crate) struct InteractiveFinder {
    user: u32,
    /// Names of programs that count as interactive because the user says so.
    named: Vec<String>,
    known: BTreeSet<ProcessIdentity>,
    /// The clients' ends of connections to display servers at the last search.
    clients: BTreeSet<u64>,
    searched_ns: Option<u64>,
    swept_ns: u64,
    /// The processor time of the last sweep.
    sweep_cost_ns: u64,
    /// Whether a connection was seen whose process is not known yet.
    is_due: bool,
    own_namespace: Option<Vec<u8>>,
    /// How often a process in another network namespace was asked for a display.
    asked: HashMap<ProcessIdentity, u32>,
}

impl InteractiveFinder {
    /// Creates a finder of the processes of one user.
    pub(crate) fn new(user: u32, named: Vec<String>) -> InteractiveFinder {
        InteractiveFinder {
            user,
            named,
            known: BTreeSet::new(),
            clients: BTreeSet::new(),
            searched_ns: None,
            swept_ns: 0,
            sweep_cost_ns: 0,
            is_due: true,
            own_namespace: link(Path::new("/proc/self/ns/net")),
            asked: HashMap::new(),
        }
    }

    /// Searches if the interval has passed at the moment `at`; `spent` returns the processor time of this thread. Both are in
    /// nanoseconds.
    pub(crate) fn search(&mut self, at: u64, spent: &dyn Fn() -> u64) -> InteractiveChange {
        if at < self.due_ns() {
            return InteractiveChange::default();
        }
        self.searched_ns = Some(at);
        let gone: Vec<ProcessIdentity> = self
            .known
            .iter()
            .copied()
            .filter(|known| identity(known.process) != Some(*known))
            .collect();
        for process in &gone {
            self.known.remove(process);
        }
        let clients = display_clients();
        self.is_due |= clients.iter().any(|client| !self.clients.contains(client));
        self.clients = clients;
        // Whoever makes connections all the time does not make us look through all processes all the time.
        let pause = self.sweep_cost_ns.saturating_mul(SWEEP_SHARE);
        let since = at.saturating_sub(self.swept_ns);
        let mut found = Vec::new();
        if (self.is_due && since >= pause) || since >= SWEEP_NS.max(pause) {
            self.is_due = false;
            let before = spent();
            found = self.sweep();
            self.swept_ns = at;
            self.sweep_cost_ns = spent().saturating_sub(before);
        }
        InteractiveChange { found, gone }
    }

    /// Returns when the next search is due, in nanoseconds.
    pub(crate) fn due_ns(&self) -> u64 {
        // Moments are those of a tick, about: half an interval of looks does not put a search off to the next one.
        self.searched_ns.map_or(0, |searched| searched.saturating_add(SEARCH_NS - SLACK_NS))
    }

    /// Looks through the processes of the user.
    fn sweep(&mut self) -> Vec<ProcessIdentity> {
        let remote = remote_display_clients();
        let mut found = Vec::new();
        let mut asked = HashMap::new();
        for process in processes_of(self.user) {
            let Some(identity) = identity(process) else { continue };
            if self.known.contains(&identity) || process == std::process::id() {
                continue;
            }
            if self.is_named(process)
                || self.holds_connection(process, &remote)
                || self.has_foreign_display(identity, &mut asked)
            {
                self.known.insert(identity);
                found.push(identity);
            }
        }
        self.asked = asked;
        found
    }

    fn is_named(&self, process: u32) -> bool {
        !self.named.is_empty() && self.named.contains(&program_name(process))
    }

    fn holds_connection(&self, process: u32, remote: &BTreeSet<u64>) -> bool {
        let mut sockets = sockets(process).into_iter();
        sockets.any(|(_, inode)| self.clients.contains(&inode) || remote.contains(&inode))
    }

    /// Asks a process of another network namespace, whose sockets the kernel does not list for us.
    fn has_foreign_display(
        &self,
        identity: ProcessIdentity,
        asked: &mut HashMap<ProcessIdentity, u32>,
    ) -> bool {
        let namespace = link(Path::new(&format!("/proc/{}/ns/net", identity.process)));
        if namespace.is_none() || namespace == self.own_namespace {
            return false;
        }
        let times = self.asked.get(&identity).copied().unwrap_or(0);
        asked.insert(identity, times.saturating_add(1));
        // A program connects to its display in the first minute or never.
        times < 6 && trace::place::has_display(identity.process)
    }
}

/// Returns the descriptors of a process that are connections to a display server, in this network namespace.
pub(crate) fn display_descriptors(process: u32) -> BTreeSet<i32> {
    let mut clients = display_clients();
    clients.extend(remote_display_clients());
    let sockets = sockets(process).into_iter();
    sockets.filter(|(_, inode)| clients.contains(inode)).map(|(descriptor, _)| descriptor).collect()
}

/// Returns the clients' ends of all connections to X servers by TCP, as behind `ssh -X`.
fn remote_display_clients() -> BTreeSet<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.into_iter().filter_map(|table| fs::read_to_string(table).ok());
    tables.flat_map(|table| connections_to_displays(&table)).collect()
}

/// Returns the numbers of the sockets in `/proc/net/tcp` that are connected to a port of an X server.
fn connections_to_displays(table: &str) -> Vec<u64> {
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(2);
            let (_, port) = fields.next()?.rsplit_once(':')?;
            let port = u16::from_str_radix(port, 16).ok()?;
            let is_connected = fields.next()? == ESTABLISHED;
            let inode = fields.nth(5)?.parse().ok()?;
            (is_connected && X_PORTS.contains(&port)).then_some(inode)
        })
        .collect()
}

/// Returns the clients' ends of all local connections to display servers.
fn display_clients() -> BTreeSet<u64> {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let servers = display_sockets(&table);
    if servers.is_empty() {
        return BTreeSet::new();
    }
    let peers = unix_sockets::peers().unwrap_or_default();
    servers.iter().filter_map(|server| peers.get(server).copied()).collect()
}

/// Returns the numbers of the sockets in `/proc/net/unix` that are bound where display servers listen.
fn display_sockets(table: &[u8]) -> BTreeSet<u64> {
    let lines = table.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
            let inode = str::from_utf8(fields.nth(6)?).ok()?.parse().ok()?;
            is_display(fields.next()?).then_some(inode)
        })
        .collect()
}

/// Returns whether a display server listens at this path.
fn is_display(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"@").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let directory = path.strip_suffix(name).unwrap_or_default();
    directory.ends_with(b"/.X11-unix/") && name.starts_with(b"X") || name.starts_with(b"wayland-")
}

/// Returns the descriptors of a process that are sockets, with the numbers of these.
fn sockets(process: u32) -> Vec<(i32, u64)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    entries
        .take(DESCRIPTORS)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let descriptor = str::from_utf8(entry.file_name().as_bytes()).ok()?.parse().ok()?;
            let target = link(&entry.path())?;
            let inode = target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
            Some((descriptor, str::from_utf8(inode).ok()?.parse().ok()?))
        })
        .collect()
}

/// Returns the processes that this user owns. A process that may not be dumped belongs to root here.
fn processes_of(user: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let process = str::from_utf8(entry.file_name().as_bytes()).ok()?.parse().ok()?;
            (entry.metadata().ok()?.uid() == user).then_some(process)
        })
        .collect()
}

/// Returns the identity of a process; `None` if it has ended.
pub(crate) fn identity(process: u32) -> Option<ProcessIdentity> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    let fields = stat_fields(&stat)?;
    let state = *fields.first()?;
    let began = fields.get(19)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(ProcessIdentity { process, began })
}

/// The state of the first thread of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ThreadState {
    /// The kernel's letter for it.
    pub(crate) letter: char,
    /// Where its stack begins, which is elsewhere after each `execve`.
    pub(crate) stack_start: u64,
}

/// Returns the state of the first thread of a process; `None` if it has ended.
pub(crate) fn thread_state(process: u32) -> Option<ThreadState> {
    let stat = fs::read(format!("/proc/{process}/task/{process}/stat")).ok()?;
    let fields = stat_fields(&stat)?;
    let stack_start = fields.get(25)?.parse().ok()?;
    Some(ThreadState { letter: fields.first()?.chars().next()?, stack_start })
}

/// Returns the fields behind the name, which may contain parentheses.
fn stat_fields(stat: &[u8]) -> Option<Vec<&str>> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    Some(str::from_utf8(&stat[name + 1..]).ok()?.split_ascii_whitespace().collect())
}

/// Returns the unit of systemd that contains a process; empty if it is not known.
pub(crate) fn unit_name(process: u32) -> String {
    let groups = fs::read(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mut lines = groups.split(|byte| *byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::")).unwrap_or_default();
    let name = last_component(path);
    let is_unit = [".service", ".scope", ".slice"].iter().any(|ending| name.ends_with(ending));
    if is_unit { name } else { String::new() }
}

fn link(path: &Path) -> Option<Vec<u8>> {
    Some(fs::read_link(path).ok()?.as_os_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_display_servers_are_told_from_others() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 11 @/tmp/.X11-unix/X0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 12 /tmp/.X11-unix/X0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 13 /run/user/1000/wayland-0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 14 /run/user/1000/bus\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 15\n";
        assert_eq!(display_sockets(table), BTreeSet::from([11, 12, 13]));
        assert!(display_sockets(b"\xff\n  \n1 2 3").is_empty());
        for other in ["/home/a/.X11-unix-notes", "/tmp/X0", "/x/way", "/tmp/.X11-unix/Y"] {
            assert!(!is_display(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn connections_to_displays_by_tcp_are_told_from_others() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 00000000:1770 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
            1: 0100007F:E0C4 0100007F:177A 01 00000000:00000000 00:00000000 00000000  1000        0 12 1\n\
            2: 0100007F:177A 0100007F:E0C4 01 00000000:00000000 00:00000000 00000000     0        0 13 1\n\
            3: 0100007F:E0C6 0100007F:1770 06 00000000:00000000 00:00000000 00000000  1000        0 14 1\n\
            4: 0100007F:E0C8 0100007F:0016 01 00000000:00000000 00:00000000 00000000  1000        0 15 1\n";
        assert_eq!(connections_to_displays(table), [12], "display 10");
        assert!(connections_to_displays("nonsense : 1 2 3\n\n").is_empty());
    }

    #[test]
    fn a_program_is_found_however_long_the_last_search_waited_for_a_processor() {
        const SECOND: u64 = 1_000_000_000;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("found-later");
        fs::copy("/bin/sleep", &program).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let mut finder = InteractiveFinder::new(user, vec!["found-later".to_owned()]);
        // A millisecond each, whatever the clock says.
        let spent = std::cell::Cell::new(0);
        let spend = || spent.replace(spent.get() + SECOND / 1000);
        // Programs of this user that have a display are found, too.
        let mut search = |at| {
            let found = finder.search(at, &spend).found.into_iter().map(|found| found.process);
            found.filter(|process| program_name(*process) == "found-later").collect::<Vec<u32>>()
        };
        assert!(search(SECOND).is_empty());
        let mut child = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let found = search(SECOND + SWEEP_NS);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
    }

    #[test]
    fn this_process_has_an_identity_and_a_name() {
        let own = identity(std::process::id()).unwrap();
        assert_eq!(identity(own.process), Some(own));
        assert!(!program_name(own.process).is_empty());
        assert_eq!(identity(u32::MAX), None);
    }
}
