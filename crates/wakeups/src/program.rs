//! Names: what a process runs, in which unit of systemd, and the kernel's functions by their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

use super::chain::ChainHop;
use super::event::NAME_BYTES;
use sys::bpf::KernelNames;
use sys::process_file;

/// The longest command line that is read, in bytes.
const LONGEST: u64 = 4096;

/// Functions that every wait goes through: what called them says more.
const WAITING: [&str; 14] = [
    "poll_schedule_timeout",
    "schedule",
    "__schedule",
    "io_schedule",
    "schedule_timeout",
    "io_schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_preempt_disabled",
    "wait_for_completion",
    "__wait_for_common",
    "wait_woken",
    "bit_wait_io",
    "__wait_on_bit",
];

/// How the names of functions begin that are the entry of a system call.
const ENTRIES: [&str; 7] =
    ["__x64_", "x64_sys_", "do_syscall_", "do_sys_", "do_poll", "do_epoll_wait", "do_select"];

/// What `/proc` says of a process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProgramFacts {
    /// The path of its program; empty for a thread of the kernel, or without the right to it.
    pub executable: Vec<u8>,
    /// Its command line.
    pub command: Vec<Vec<u8>>,
    /// Its control group, as of cgroup 2: a path.
    pub cgroup: Vec<u8>,
    /// Whose it is; none for a thread of the kernel, and where that is not certain: of a process that has ended, or that is one
    /// user's and acts for another one.
    pub user: Option<u32>,
}

/// A unit of systemd.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SystemdUnit {
    /// Its name, as `dconf.service`.
    pub name: Vec<u8>,
    /// Whether it is one of a user's systemd.
    pub is_of_user: bool,
}

impl ProgramFacts {
    /// Reads what is known of a process now; what cannot be read is empty.
    #[must_use]
    pub fn read(process: u32) -> ProgramFacts {
        let file = |name: &str| {
            use std::io::Read;
            let mut bytes = Vec::new();
            if let Ok(file) = std::fs::File::open(format!("/proc/{process}/{name}")) {
                // What was read before a failure is as good.
                let _ = file.take(LONGEST).read_to_end(&mut bytes);
            }
            bytes
        };
        let executable = std::fs::read_link(format!("/proc/{process}/exe"));
        // It waits for the lock of the memory, and with it for a process that hangs in the kernel; the others wait for nobody.
        let command = process_file::read(process, "cmdline", LONGEST).unwrap_or_default();
        let command = command.strip_suffix(&[0]).unwrap_or(&command);
        let words = command.split(|byte| *byte == 0).map(<[u8]>::to_vec);
        let cgroups = file("cgroup");
        let second =
            cgroups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
        let user = executable.is_ok().then(|| user_of(&file("status"))).flatten();
        ProgramFacts {
            user,
            executable: executable
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .unwrap_or_default(),
            command: if command.is_empty() { Vec::new() } else { words.collect() },
            cgroup: second.unwrap_or_default().to_vec(),
        }
    }
}

impl ProgramFacts {
    /// Reads what is known of the process of a thread that had a name (`comm`, ended by a zero) a moment ago; none if the
    /// thread has ended, or has another name: it runs another program now.
    #[must_use]
    pub fn read_while_named(
        process: u32,
        thread: u32,
        name: &[u8; NAME_BYTES],
    ) -> Option<ProgramFacts> {
        let facts = ProgramFacts::read(process);
        // The name last: what was read before it belongs to it.
        let now = std::fs::read(format!("/proc/{process}/task/{thread}/comm")).ok()?;
        let now = now.strip_suffix(b"\n").unwrap_or(&now);
        let then = name.split(|byte| *byte == 0).next().unwrap_or_default();
        (now == then).then_some(facts)
    }
}

/// The most programs that are remembered.
const MOST_PROGRAMS: usize = 4096;

/// What processes ran when a thread of theirs had a name: some have ended when they are in the next chain.
#[derive(Debug, Default)]
pub struct KnownPrograms(BTreeMap<(u32, [u8; NAME_BYTES]), ProgramFacts>);

impl KnownPrograms {
    /// Returns what a hop's process ran when it was waited for, a moment ago; nothing where that is not certain any more.
    pub fn of_hop(&mut self, hop: &ChainHop) -> ProgramFacts {
        let key = (hop.process, hop.name);
        let now = ProgramFacts::read_while_named(hop.process, hop.who.thread, &hop.name);
        let Some(facts) = now.filter(|facts| !facts.executable.is_empty()) else {
            return self.0.get(&key).cloned().unwrap_or_default();
        };
        if self.0.len() >= MOST_PROGRAMS {
            self.0.clear();
        }
        self.0.insert(key, facts.clone());
        facts
    }
}

/// Reads the user in the lines of `/proc/PID/status`: real, effective, saved and that of files have to be the same one.
fn user_of(status: &[u8]) -> Option<u32> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let users: Vec<u32> = str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let [real, others @ ..] = &users[..] else { return None };
    (others.len() == 3 && others.iter().all(|other| other == real)).then_some(*real)
}

/// Returns the unit of systemd that a control group belongs to: the innermost service or scope.
#[must_use]
pub fn systemd_unit(cgroup: &[u8]) -> Option<SystemdUnit> {
    let parts: Vec<&[u8]> = cgroup.split(|byte| *byte == b'/').collect();
    let is_unit = |part: &&[u8]| part.ends_with(b".service") || part.ends_with(b".scope");
    let at = parts.iter().rposition(is_unit)?;
    // Below `user@1000.service` is what a user's systemd made.
    let is_manager = |part: &&[u8]| part.starts_with(b"user@");
    let is_of_user = parts[..at].iter().any(is_manager);
    Some(SystemdUnit { name: parts[at].to_vec(), is_of_user })
}

/// Functions of the kernel, by their addresses.
#[derive(Clone, Debug, Default)]
pub struct KernelFunctions(BTreeMap<u64, String>);

impl KernelFunctions {
    /// Has the kernel name addresses, or where it cannot, looks them up in `/proc/kallsyms`; there are none without the right to see
    /// addresses.
    #[must_use]
    pub fn read(addresses: &BTreeSet<u64>) -> KernelFunctions {
        if addresses.is_empty() {
            return KernelFunctions::default();
        }
        KernelFunctions::ask(addresses).unwrap_or_else(|_| KernelFunctions::look_up(addresses))
    }

    fn ask(addresses: &BTreeSet<u64>) -> std::io::Result<KernelFunctions> {
        let names = KernelNames::load()?;
        let named = |address: &u64| Ok(names.name(*address)?.map(|name| (*address, name)));
        addresses
            .iter()
            .filter_map(|address| named(address).transpose())
            .collect::<Result<_, _>>()
            .map(KernelFunctions)
    }

    fn look_up(addresses: &BTreeSet<u64>) -> KernelFunctions {
        KernelFunctions::parse(&std::fs::read("/proc/kallsyms").unwrap_or_default(), addresses)
    }

    /// Looks addresses up in lines as `/proc/kallsyms` has them.
    #[must_use]
    pub fn parse(text: &[u8], addresses: &BTreeSet<u64>) -> KernelFunctions {
        // The lines are in no order; of each wanted address the nearest function before it is kept.
        let mut nearest: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            let mut words = str::from_utf8(line).unwrap_or_default().split_ascii_whitespace();
            let begin = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let is_code = matches!(words.next(), Some("t" | "T" | "w" | "W"));
            let Some((begin, name)) = begin.zip(words.next()).filter(|(begin, _)| *begin > 0)
            else {
                continue;
            };
            for address in addresses.range(begin..).take_while(|_| is_code) {
                let known = nearest.entry(*address).or_insert((begin, name));
                if known.0 > begin {
                    break;
                }
                *known = (begin, name);
            }
        }
        let named = nearest.into_iter().map(|(address, (_, name))| (address, name.to_owned()));
        KernelFunctions(named.collect())
    }

    /// Returns the function in which a thread waited: the innermost that not every wait goes through.
    #[must_use]
    pub fn waited_in(&self, functions: &[u64]) -> Option<&str> {
        let named = functions.iter().filter_map(|address| self.0.get(address).map(|name| &**name));
        let named = named.map(|name| name.split('.').next().unwrap_or(name));
        // What follows is the entry of the system call, whose name is known.
        let is_entry = |name: &&str| ENTRIES.iter().any(|begin| name.starts_with(begin));
        named.take_while(|name| !is_entry(name)).find(|name| !WAITING.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_names_its_unit_and_whose_it_is() {
        let unit = |path: &str| {
            let unit = systemd_unit(path.as_bytes())?;
            Some((String::from_utf8(unit.name).unwrap(), unit.is_of_user))
        };
        let of_user = "/user.slice/user-1000.slice/user@1000.service/app.slice/dconf.service";
        assert_eq!(unit(of_user), Some(("dconf.service".into(), true)));
        let below = "/system.slice/docker.service/payload/x";
        assert_eq!(unit(below), Some(("docker.service".into(), false)));
        let login = "/user.slice/user-1000.slice/session-3.scope";
        assert_eq!(unit(login), Some(("session-3.scope".into(), false)));
        assert_eq!((unit("/"), unit("/init"), unit("")), (None, None, None));
    }

    #[test]
    fn a_wait_is_named_by_who_called_the_scheduler() {
        let text = b"ffff01 T schedule\nffff10 t hrtimer_nanosleep.cold\nffff20 D data\nbad\nffff30 T pipe_read\n";
        let wanted = BTreeSet::from([0xffff02, 0xffff05, 0xffff12, 0xffff35]);
        let functions = KernelFunctions::parse(text, &wanted);
        assert_eq!(functions.waited_in(&[0xffff05, 0xffff12]), Some("hrtimer_nanosleep"));
        assert_eq!(functions.waited_in(&[0xffff35]), Some("pipe_read"));
        assert_eq!((functions.waited_in(&[0xffff02]), functions.waited_in(&[])), (None, None));
    }

    #[test]
    fn a_process_is_a_users_only_where_it_acts_for_that_one_alone() {
        let status = |ids: &str| format!("Name:\tx\nUid:\t{ids}\nGid:\t0\t0\t0\t0\n");
        let user = |ids: &str| user_of(status(ids).as_bytes());
        assert_eq!((user("7\t7\t7\t7"), user("0\t0\t0\t0")), (Some(7), Some(0)));
        // Set-user-ID programs, and servers that act for others.
        for ids in ["7\t0\t0\t0", "7\t7\t0\t7", "0\t0\t0\t7", "7\t7\t7", "", "7\t7\t7\t-1"] {
            assert_eq!(user(ids), None, "{ids}");
        }
        assert_eq!(user_of(b"Name:\tx\n"), None);
        // 2 is a thread of the kernel.
        assert_eq!((ProgramFacts::read(2).user, ProgramFacts::read(u32::MAX).user), (None, None));
    }

    #[test]
    fn what_runs_another_program_now_is_not_taken_for_what_it_was() {
        let own = std::process::id();
        let mut name = [0; NAME_BYTES];
        let comm = std::fs::read(format!("/proc/{own}/comm")).unwrap();
        let comm = comm.strip_suffix(b"\n").unwrap();
        name[..comm.len()].copy_from_slice(comm);
        let read = ProgramFacts::read_while_named(own, own, &name);
        assert_eq!(read.unwrap().executable, ProgramFacts::read(own).executable);
        assert_eq!(ProgramFacts::read_while_named(own, own, b"launcher\0\0\0\0\0\0\0\0"), None);
        assert_eq!(ProgramFacts::read_while_named(u32::MAX, u32::MAX, &name), None);
    }

    #[test]
    fn the_kernel_names_an_address_as_its_list_does() {
        let list = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let begin = |wanted: &str| {
            let line = list.lines().find(|line| line.split(' ').nth(2) == Some(wanted))?;
            u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|begin| *begin > 0)
        };
        let Some((switch, wait)) = begin("schedule_timeout").zip(begin("hrtimer_nanosleep")) else {
            return;
        };
        let wanted = BTreeSet::from([switch + 5, wait + 9, 0x1000]);
        let Ok(asked) = KernelFunctions::ask(&wanted) else { return };
        assert_eq!(asked.waited_in(&[switch + 5, wait + 9]), Some("hrtimer_nanosleep"));
        assert_eq!(asked.waited_in(&[0x1000]), None);
        let looked_up = KernelFunctions::look_up(&BTreeSet::from([switch + 5, wait + 9]));
        assert_eq!(asked.0, looked_up.0);
    }

    #[test]
    fn a_process_has_its_program_and_its_words() {
        let own = ProgramFacts::read(std::process::id());
        assert!(own.executable.starts_with(b"/") && !own.command.is_empty());
        assert_eq!(ProgramFacts::read(u32::MAX), ProgramFacts::default());
    }
}
