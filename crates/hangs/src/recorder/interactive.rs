//! Finds the interactive programs of this user: the processes that hold a connection to a display server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sys::unix_sockets;
use trace::place::is_display_path;

use super::process::{ProcessIdentity, identity};
use super::program_name::program_name;

/// How often connections to display servers are listed, in nanoseconds.
const SEARCH_NS: u64 = 1_000_000_000;
/// The same soon after a program was started, in nanoseconds, and for how long.
const SOON_NS: u64 = 50_000_000;
/// See `SOON_NS`.
const STARTING_NS: u64 = 1_500_000_000;
/// The same later: some have much to load before they connect, and of those that start together one is told.
const LATER_NS: u64 = 150_000_000;
/// See `LATER_NS`.
const STILL_STARTING_NS: u64 = 5_000_000_000;
/// So many such searches may come one after the other; each costs a wake-up.
const SOON_SEARCHES: u64 = 180;
/// After this time there may be one more, in nanoseconds: a session whose scripts start programs all the time is at rest, too.
const SOON_REFILL_NS: u64 = 1_000_000_000;
/// So many more there may be if an interactive program was found, but not more often than each ten seconds: those who use programs
/// start others, and with each come helpers that do not connect.
const SOON_FOR_FOUND: u64 = 90;
/// See `SOON_FOR_FOUND`.
const FOUND_PAUSE_NS: u64 = 10_000_000_000;
/// How often it is looked which programs have ended, in nanoseconds.
const ENDS_NS: u64 = 2_000_000_000;
/// A process that is known for so long has connected to its display, or does it seldom, in nanoseconds.
const YOUNG_NS: u64 = 30_000_000_000;
/// By how much a search may be early, in nanoseconds.
const SLACK_NS: u64 = 25_000_000;
/// How often all processes are looked through although no new connection was seen: for those in another network namespace.
const SWEEP_NS: u64 = 10_000_000_000;
/// How often processes are looked through that are known for longer than this, in nanoseconds: a program connects to its display in
/// the first minute or never.
const SWEEP_OLD_NS: u64 = 60_000_000_000;
/// Sweeps take at most a fiftieth of a processor. Time in which they wait for one does not count: on a busy machine programs
/// that start would not be found for minutes.
const SWEEP_SHARE: u64 = 50;
/// The ports at which X servers listen: display 0 is at the first one. Others have those behind.
const X_PORTS: RangeInclusive<u16> = 6000..=6199;
/// The state of a connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
/// The most descriptors of a process that are looked through.
const DESCRIPTORS: usize = 4096;

/// The difference between two searches.
#[derive(Debug, Default)]
pub(crate) struct InteractiveChange {
    /// Interactive processes that are new.
    pub(crate) found: Vec<ProcessIdentity>,
    /// Processes that were interactive, and have ended.
    pub(crate) gone: Vec<ProcessIdentity>,
}

/// A look through processes.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessScan {
    /// When it was.
    at_ns: u64,
    /// The processor time that it took.
    cost_ns: u64,
}

impl ProcessScan {
    /// Returns whether another one is allowed: they take at most a share of a processor.
    fn may_follow(self, at_ns: u64) -> bool {
        let pause_ns = self.cost_ns.saturating_mul(SWEEP_SHARE);
        self.at_ns == 0 || at_ns.saturating_sub(self.at_ns) >= pause_ns
    }
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
    /// The servers' ends of them. Nobody has connected as long as these are the same.
    servers: BTreeSet<u64>,
    /// New clients' ends whose processes are not known yet.
    wanted: BTreeSet<u64>,
    /// The processes at the last look through them, whoever they belong to, with when they were seen first.
    seen: BTreeMap<u32, u64>,
    searched_ns: Option<u64>,
    /// When a program was last told to have been started.
    started_ns: Option<u64>,
    /// How many searches may come soon.
    soon_left: u64,
    /// When that was last made more by time, and because a program was found.
    refilled_ns: u64,
    /// See `refilled_ns`.
    rewarded_ns: u64,
    /// When it was looked which programs have ended.
    ends_ns: u64,
    /// The last looks through the processes that are new, and through all.
    scan_of_new: ProcessScan,
    sweep: ProcessScan,
    /// When the last look through all processes was that had the old ones, too.
    swept_old_ns: u64,
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
            servers: BTreeSet::new(),
            wanted: BTreeSet::new(),
            seen: BTreeMap::new(),
            searched_ns: None,
            started_ns: None,
            soon_left: SOON_SEARCHES,
            refilled_ns: 0,
            rewarded_ns: 0,
            ends_ns: 0,
            scan_of_new: ProcessScan::default(),
            sweep: ProcessScan::default(),
            swept_old_ns: 0,
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
        self.count_search(at);
        self.searched_ns = Some(at);
        let mut gone = Vec::new();
        if at.saturating_sub(self.ends_ns) >= ENDS_NS - SLACK_NS {
            self.ends_ns = at;
            let known = self.known.iter().copied();
            gone = known.filter(|known| identity(known.process) != Some(*known)).collect();
            for process in &gone {
                self.known.remove(process);
            }
        }
        self.list_clients();
        let mut found = Vec::new();
        // Whoever makes connections all the time does not make us look through all processes all the time.
        if !self.wanted.is_empty() && self.sweep.at_ns != 0 && self.scan_of_new.may_follow(at) {
            let before = spent();
            found = self.look_at_new(at);
            self.scan_of_new = ProcessScan { at_ns: at, cost_ns: spent().saturating_sub(before) };
        }
        let is_late = at.saturating_sub(self.sweep.at_ns) >= SWEEP_NS;
        let is_first = self.sweep.at_ns == 0;
        if is_first || ((is_late || !self.wanted.is_empty()) && self.sweep.may_follow(at)) {
            let before = spent();
            found.extend(self.sweep(at));
            self.sweep = ProcessScan { at_ns: at, cost_ns: spent().saturating_sub(before) };
        }
        // A number that is used again is that of another process, whose predecessor is followed no more.
        for new in &found {
            let old = self.known.iter().find(|old| old.process == new.process && *old != new);
            if let Some(old) = old.copied() {
                self.known.remove(&old);
                gone.push(old);
            }
        }
        InteractiveChange { found, gone }
    }

    /// Notes that a program was started at a moment: it may connect to the display soon.
    pub(crate) fn program_started(&mut self, at_ns: u64) {
        self.started_ns = Some(at_ns);
    }

    /// Returns a process that has connected to a display, if it is one of the user that was not found before.
    pub(crate) fn add_connected(&mut self, process: u32) -> Option<ProcessIdentity> {
        let found = self.candidate(process)?;
        self.known.insert(found);
        Some(found)
    }

    /// Notes that a program that was found is followed.
    pub(crate) fn program_followed(&mut self, at_ns: u64) {
        if at_ns.saturating_sub(self.rewarded_ns) >= FOUND_PAUSE_NS {
            self.rewarded_ns = at_ns;
            self.soon_left = (self.soon_left + SOON_FOR_FOUND).min(SOON_SEARCHES);
        }
    }

    /// Returns when the next search is due, in nanoseconds.
    pub(crate) fn due_ns(&self) -> u64 {
        self.soon_due_ns().unwrap_or_else(|| self.regular_due_ns())
    }

    fn regular_due_ns(&self) -> u64 {
        // Moments are those of a tick, about: half an interval of looks does not put a search off to the next one.
        self.searched_ns.map_or(0, |searched| searched.saturating_add(SEARCH_NS - SLACK_NS))
    }

    /// Returns when the next search is due if that is soon, because a program was started, in nanoseconds.
    pub(crate) fn soon_due_ns(&self) -> Option<u64> {
        let (searched_ns, started_ns) = (self.searched_ns?, self.started_ns?);
        let within = |interval_ns: u64, for_ns: u64| {
            let due_ns = searched_ns.saturating_add(interval_ns);
            (due_ns <= started_ns.saturating_add(for_ns)).then_some(due_ns)
        };
        let due_ns = within(SOON_NS, STARTING_NS).or_else(|| within(LATER_NS, STILL_STARTING_NS));
        due_ns.filter(|_| self.soon_left > 0)
    }

    /// Counts a search that is made now if it is one that came soon.
    fn count_search(&mut self, at_ns: u64) {
        if at_ns < self.regular_due_ns() {
            self.soon_left = self.soon_left.saturating_sub(1);
        }
        let more = at_ns.saturating_sub(self.refilled_ns) / SOON_REFILL_NS;
        self.refilled_ns += more * SOON_REFILL_NS;
        self.soon_left = self.soon_left.saturating_add(more).min(SOON_SEARCHES);
    }

    /// Lists the connections to display servers, and which of them are new.
    fn list_clients(&mut self) {
        let servers = display_servers();
        if servers == self.servers {
            return;
        }
        let clients = clients_of(&servers);
        self.wanted.extend(clients.difference(&self.clients));
        self.wanted.retain(|client| clients.contains(client));
        (self.servers, self.clients) = (servers, clients);
    }

    /// Looks who has connected: among the processes that are new, the youngest first, and then among the programs that are known.
    /// An older one is found by the next look through all.
    fn look_at_new(&mut self, at_ns: u64) -> Vec<ProcessIdentity> {
        let processes = self.processes(at_ns);
        let mut young: Vec<(u64, u32)> = processes
            .iter()
            .filter(|(_, seen_ns)| at_ns.saturating_sub(**seen_ns) < YOUNG_NS)
            .map(|(process, seen_ns)| (*seen_ns, *process))
            .collect();
        young.sort_unstable_by(|one, other| other.cmp(one));
        self.seen = processes;
        let mut found = Vec::new();
        // Not the first one alone: a child that its program has just made holds the same connection for a moment.
        for (_, process) in young {
            let Some(identity) = self.candidate(process) else { continue };
            if self.holds_connection(process, &BTreeSet::new()) {
                self.known.insert(identity);
                found.push(identity);
            }
        }
        // A program may have several connections.
        for process in self.known.iter().map(|known| known.process).collect::<Vec<_>>() {
            if self.wanted.is_empty() {
                break;
            }
            self.holds_connection(process, &BTreeSet::new());
        }
        found
    }

    /// Looks through the processes of the user: the new ones, and now and then, or if somebody has connected, all.
    fn sweep(&mut self, at_ns: u64) -> Vec<ProcessIdentity> {
        let mut found = Vec::new();
        let mut asked = HashMap::new();
        let processes = self.processes(at_ns);
        let has_old = self.sweep.at_ns == 0
            || !self.wanted.is_empty()
            || at_ns.saturating_sub(self.swept_old_ns) >= SWEEP_OLD_NS - SLACK_NS;
        if has_old {
            self.swept_old_ns = at_ns;
        }
        let is_meant = |seen_ns: u64| has_old || at_ns.saturating_sub(seen_ns) < SWEEP_OLD_NS;
        let meant: Vec<u32> = processes
            .iter()
            .filter(|(_, seen_ns)| is_meant(**seen_ns))
            .map(|(process, _)| *process)
            .collect();
        // The kernel looks through a large table for these.
        let remote = if meant.is_empty() { BTreeSet::new() } else { remote_display_clients() };
        for process in meant {
            let Some(identity) = self.candidate(process) else { continue };
            if self.is_named(process)
                || self.holds_connection(process, &remote)
                || self.has_foreign_display(identity, &mut asked)
            {
                self.known.insert(identity);
                found.push(identity);
            }
        }
        self.asked = asked;
        self.seen = processes;
        // Those that are left are other users'.
        self.wanted.clear();
        found
    }

    /// Returns all processes with when they were seen first.
    fn processes(&self, at_ns: u64) -> BTreeMap<u32, u64> {
        let first = |process| self.seen.get(&process).copied().unwrap_or(at_ns);
        processes().into_iter().map(|process| (process, first(process))).collect()
    }

    /// Returns the identity of a process of the user that is not known yet.
    fn candidate(&self, process: u32) -> Option<ProcessIdentity> {
        let is_own = || owner(process) == Some(self.user);
        let is_meant = process != std::process::id() && is_own();
        identity(process).filter(|identity| is_meant && !self.known.contains(identity))
    }

    fn is_named(&self, process: u32) -> bool {
        !self.named.is_empty() && self.named.contains(&program_name(process))
    }

    /// Returns whether a process holds a connection to a display server; its own are wanted no more.
    fn holds_connection(&mut self, process: u32, remote: &BTreeSet<u64>) -> bool {
        let mut is_one = false;
        for (_, inode) in sockets(process) {
            is_one |= self.clients.contains(&inode) || remote.contains(&inode);
            self.wanted.remove(&inode);
        }
        is_one
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

/// Returns whether the connection to the display is among descriptors of a process in this network namespace, if it is known which these are.
pub(crate) fn is_display_among(process: u32, descriptors: Option<&[i32]>) -> Option<bool> {
    let descriptors = descriptors?;
    let sockets = sockets(process);
    let is_among = |clients: &BTreeSet<u64>| {
        let mut displays = sockets.iter().filter(|(_, inode)| clients.contains(inode));
        displays.any(|(descriptor, _)| descriptors.contains(descriptor))
    };
    // The kernel looks through a large table for the remote ones.
    Some(is_among(&display_clients()) || is_among(&remote_display_clients()))
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
    clients_of(&display_servers())
}

/// Returns the servers' ends of them, with the sockets at which the servers listen.
fn display_servers() -> BTreeSet<u64> {
    display_sockets(&fs::read("/proc/net/unix").unwrap_or_default())
}

fn clients_of(servers: &BTreeSet<u64>) -> BTreeSet<u64> {
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
            is_display_path(fields.next()?).then_some(inode)
        })
        .collect()
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

/// Returns all processes.
pub(super) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| str::from_utf8(entry.ok()?.file_name().as_bytes()).ok()?.parse().ok())
        .collect()
}

/// Returns who owns a process. One that may not be dumped belongs to root here.
pub(super) fn owner(process: u32) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{process}")).ok()?.uid())
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
            assert!(!is_display_path(other.as_bytes()), "{other}");
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

    /// A client of a display server in a directory of its own.
    fn client(dir: &Path) -> std::process::Child {
        let display = dir.join(".X11-unix");
        fs::create_dir_all(&display).unwrap();
        let server = std::os::unix::net::UnixListener::bind(display.join("X9")).unwrap();
        let connection = std::os::unix::net::UnixStream::connect(display.join("X9")).unwrap();
        // The other end is there as long as this process.
        std::mem::forget(server.accept().unwrap());
        let connection = std::os::fd::OwnedFd::from(connection);
        std::process::Command::new("/bin/sleep").arg("600").stdin(connection).spawn().unwrap()
    }

    const SECOND: u64 = 1_000_000_000;

    /// A finder whose first look through all processes, at 1000 s, took so long that there is none for an hour; and its clock.
    fn between_looks_through_all() -> (InteractiveFinder, impl Fn() -> u64) {
        let user = rustix::process::geteuid().as_raw();
        let mut finder = InteractiveFinder::new(user, Vec::new());
        let spent = std::cell::Cell::new(0);
        // Looks at others that start beside take no time.
        let spend = move || spent.replace(100 * SECOND);
        finder.search(1000 * SECOND, &spend);
        (finder, spend)
    }

    #[test]
    fn a_program_that_connects_is_found_at_once_although_a_look_through_all_is_not_due() {
        let (mut finder, spend) = between_looks_through_all();
        let dir = tempfile::tempdir().unwrap();
        let mut child = client(dir.path());
        // Another process had its number, and it is not due to look which have ended.
        let old = ProcessIdentity { process: child.id(), began: 1 };
        finder.known.insert(old);
        let change = finder.search(1001 * SECOND, &spend);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(change.found.iter().any(|found| found.process == child.id()), "{change:?}");
        assert!(change.gone.contains(&old), "{change:?}");
        assert!(!finder.known.contains(&old));
        assert!(
            finder.search(1003 * SECOND, &spend).gone.iter().any(|gone| gone.process == child.id())
        );
    }

    #[test]
    fn a_program_is_found_beside_a_younger_child_that_holds_its_connection() {
        let (mut finder, spend) = between_looks_through_all();
        let dir = tempfile::tempdir().unwrap();
        let mut program = client(dir.path());
        let of = rustix::process::Pid::from_child(&program);
        let handle = rustix::process::pidfd_open(of, rustix::process::PidfdFlags::empty()).unwrap();
        let flags = rustix::process::PidfdGetfdFlags::empty();
        let connection = rustix::process::pidfd_getfd(handle, 0, flags).unwrap();
        let mut child =
            std::process::Command::new("/bin/sleep").arg("600").stdin(connection).spawn().unwrap();
        let change = finder.search(1001 * SECOND, &spend);
        for process in [&mut program, &mut child] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        for process in [&program, &child] {
            assert!(change.found.iter().any(|found| found.process == process.id()), "{change:?}");
        }
    }

    #[test]
    fn after_a_program_was_started_who_connects_is_found_soon_and_not_forever() {
        let (mut finder, spend) = between_looks_through_all();
        let dir = tempfile::tempdir().unwrap();
        let at = |ms: u64| 1001 * SECOND + ms * 1_000_000;
        finder.search(at(0), &spend);
        let mut child = client(dir.path());
        let is_child = |change: &InteractiveChange| {
            change.found.iter().any(|found| found.process == child.id())
        };
        assert!(!is_child(&finder.search(at(100), &spend)), "no search is due");
        finder.program_started(at(100));
        assert!(is_child(&finder.search(at(150), &spend)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Programs are started all the time.
        let mut soon = 0;
        for ms in (200..60_000).step_by(50) {
            finder.program_started(at(ms));
            let before = finder.searched_ns;
            finder.search(at(ms), &spend);
            soon += u64::from(finder.searched_ns != before);
        }
        let regular = 60;
        assert!(soon <= SOON_SEARCHES + 60 + regular + 1, "{soon}");
        assert!(soon >= SOON_SEARCHES, "{soon}");
        // In a minute of rest some may be made again.
        finder.program_started(at(200_000));
        finder.search(at(200_000), &spend);
        assert!(finder.soon_due_ns().is_some());
        // It may take some seconds to load.
        let mut later = 0;
        for ms in (200_050..206_000).step_by(50) {
            later += u64::from(finder.soon_due_ns().is_some_and(|due| due <= at(ms)));
            finder.search(at(ms), &spend);
        }
        assert!((30..=55).contains(&later), "{later}");
        finder.program_followed(at(206_000));
        let left = finder.soon_left;
        assert!(left >= SOON_FOR_FOUND, "{left}");
        finder.program_followed(at(207_000));
        assert_eq!(finder.soon_left, left, "one of many that come together");
        finder.search(at(207_000), &spend);
        assert_eq!(finder.soon_due_ns(), None, "it was long ago");
    }

    #[test]
    fn an_old_process_is_looked_at_once_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("named-late");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let mut finder = InteractiveFinder::new(user, Vec::new());
        let mut found_at = Vec::new();
        for at in (10..=140).step_by(10) {
            if at == 80 {
                finder.named.push("named-late".to_owned());
            }
            let found = finder.sweep(at * SECOND);
            finder.sweep = ProcessScan { at_ns: at * SECOND, cost_ns: 0 };
            if found.iter().any(|found| found.process == child.id()) {
                found_at.push(at);
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found_at, [130]);
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
}
