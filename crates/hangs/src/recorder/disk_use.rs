//! What else the disks did while a program hung: what the kernel counts of disks, of the processes of this user, and of the units of the
//! system.
//!
//! Counters are read when a hang that waits has gone on for a while, and at its end; nothing is read of a program that does not hang.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::interactive::{owner, processes};
use super::process::{control_group, parent};
use super::processor_ns;
use super::program_name::program_name;
use super::system_units::{Bytes, UnitBytes, difference};
use crate::codec::MAX_DISK_USERS;
use crate::model::{CountedProcesses, DiskUse, DiskUser};

/// What disks do is counted once a thread that is away has waited for so long, in nanoseconds.
pub(super) const DISK_USE_NS: u64 = 50_000_000;
/// After a look through all processes there is none for so many times the processor time that it took.
const PAUSE: u64 = 50;
/// The most processes that are counted: the newest.
const PROCESSES: usize = 2048;
/// Where there are more processes than this none is counted.
const ALL_PROCESSES: usize = 4096;
/// The kernel counts sectors of so many bytes, whatever those of a disk have.
const SECTOR_BYTES: u64 = 512;

/// What a process had read and written, with those children that had ended and for which it had waited.
#[derive(Clone, Copy, Debug)]
struct ProcessBytes {
    bytes: Bytes,
    parent: u32,
}

/// The processes of a moment: what they had read and written, or only who had started them, where that cannot be read.
#[derive(Debug, Default)]
struct Processes {
    counted: HashMap<u32, ProcessBytes>,
    /// Those of other users, and the user's own that do not let themselves be read, with their parents.
    others: HashMap<u32, u32>,
}

impl Processes {
    fn has(&self, process: u32) -> bool {
        self.counted.contains_key(&process) || self.others.contains_key(&process)
    }

    fn parent(&self, process: u32) -> Option<u32> {
        let counted = self.counted.get(&process).map(|process| process.parent);
        counted.or_else(|| self.others.get(&process).copied())
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        self.counted.keys().chain(self.others.keys()).copied()
    }
}

/// Returns what each process has read and written between two moments, where that is known.
fn used(before: &Processes, now: &Processes) -> Vec<(Bytes, u32)> {
    // What one had done before that has ended since is counted for the one that waited for it.
    let mut inherited: HashMap<u32, Option<Bytes>> = HashMap::new();
    for ended in before.all().filter(|process| !now.has(*process)) {
        let mut heir = before.parent(ended);
        for _ in 0..before.counted.len() + before.others.len() {
            match heir {
                Some(above) if !now.has(above) => heir = before.parent(above),
                _ => break,
            }
        }
        let Some(heir) = heir else { continue };
        let sum = inherited.entry(heir).or_insert(Some(Bytes::default()));
        let bytes = before.counted.get(&ended).map(|ended| ended.bytes);
        *sum = sum.zip(bytes).map(|(sum, bytes)| [sum[0] + bytes[0], sum[1] + bytes[1]]);
    }
    let used = |(process, later): (&u32, &ProcessBytes)| {
        // What one had done before that was there and not counted is not known.
        if before.others.contains_key(process) {
            return None;
        }
        // One that is new has done all of it since then. A number that is used again may have counted less.
        let earlier = before.counted.get(process).map_or(Bytes::default(), |earlier| earlier.bytes);
        let inherited = inherited.get(process).copied().unwrap_or(Some(Bytes::default()))?;
        Some((difference(difference(later.bytes, earlier), inherited), *process))
    };
    now.counted.iter().filter_map(used).collect()
}

/// What had been read and written at a moment.
#[derive(Debug)]
pub(super) struct DiskCounters {
    /// Of the monotonic clock, in nanoseconds.
    pub(super) at_ns: u64,
    disks: Bytes,
    processes: Processes,
    /// Which of the processes were looked at.
    counted: CountedProcesses,
    /// What units of the system had done; of those nobody knows by their processes, which may be any user's.
    units: UnitBytes,
}

impl DiskCounters {
    /// Reads them; `None` if those of the disks cannot be read.
    fn read() -> Option<DiskCounters> {
        let disks = of_disks(Path::new("/sys/block"))?;
        let units = UnitBytes::read(Path::new("/sys/fs/cgroup"), &disks.numbers);
        let mut numbers = processes();
        numbers.sort_unstable();
        // What a process of another user did is never read, also not by root.
        let user = rustix::process::geteuid().as_raw();
        let mut processes = Processes::default();
        // Where `/proc` hides those of other users, as with `hidepid`, the first one is hidden, too.
        // Of whom would otherwise inherit from one that was not looked at, nothing would be true.
        let mut counted = countable(parent(1).is_some(), numbers.len());
        if counted == CountedProcesses::All {
            for process in numbers.into_iter().rev() {
                let is_own = owner(process) == Some(user);
                let has_room = processes.counted.len() < PROCESSES;
                if is_own && !has_room {
                    counted = CountedProcesses::Newest;
                }
                let is_read = is_own && has_room;
                let bytes = is_read.then(|| of_process(&read(&format!("/proc/{process}/io"))?));
                match (bytes.flatten(), parent(process)) {
                    (Some(bytes), Some(parent)) => {
                        processes.counted.insert(process, ProcessBytes { bytes, parent });
                    }
                    (None, Some(parent)) => {
                        processes.others.insert(process, parent);
                    }
                    (_, None) => {}
                }
            }
        }
        let at_ns = sys::bpf::clock_ns();
        Some(DiskCounters { at_ns, disks: disks.bytes, processes, counted, units })
    }

    /// Returns what was read and written since then, for a hang that ended at a moment, just before; `None` if that cannot be read.
    pub(super) fn until(&self, end_ns: u64) -> Option<DiskUse> {
        let now = DiskCounters::read()?;
        let [read_bytes, written_bytes] = difference(now.disks, self.disks);
        let processes = self.counted.max(now.counted);
        let mut most = match processes {
            CountedProcesses::All | CountedProcesses::Newest => {
                used(&self.processes, &now.processes)
            }
            // Of what only one look has seen, the other does not say what it had done before.
            CountedProcesses::TooMany | CountedProcesses::Hidden => Vec::new(),
        };
        most.retain(|([read, written], _)| read + written > 0);
        most.sort_unstable_by_key(|([read, written], process)| {
            (std::cmp::Reverse(read + written), *process)
        });
        most.truncate(MAX_DISK_USERS);
        let named = |([read_bytes, written_bytes], process): (Bytes, u32)| DiskUser {
            program: program_name(process),
            process,
            read_bytes,
            written_bytes,
        };
        // What the user's own processes did in a unit is told of them.
        let own: BTreeSet<String> =
            most.iter().map(|(_, process)| control_group(*process)).collect();
        let mut programs: Vec<DiskUser> = most.into_iter().map(named).collect();
        programs.extend(self.units.used_until(&now.units, &own).map(
            |(unit, [read_bytes, written_bytes])| DiskUser {
                program: unit,
                process: 0,
                read_bytes,
                written_bytes,
            },
        ));
        programs.sort_by_cached_key(|user| std::cmp::Reverse(user.read_bytes + user.written_bytes));
        programs.truncate(MAX_DISK_USERS);
        Some(DiskUse {
            counted_ns: end_ns.saturating_sub(self.at_ns),
            read_bytes,
            written_bytes,
            programs,
            processes,
        })
    }
}

/// Reads counters, not too often.
#[derive(Debug, Default)]
pub(super) struct DiskObserver {
    /// When they may be read the next time, of the monotonic clock in nanoseconds.
    due_ns: u64,
}

impl DiskObserver {
    /// Returns the counters of now; `None` if they cannot be read, or were so shortly before that it would cost too much.
    pub(super) fn begin(&mut self) -> Option<DiskCounters> {
        if sys::bpf::clock_ns() < self.due_ns {
            return None;
        }
        let before_ns = processor_ns();
        let counters = DiskCounters::read();
        let now_ns = sys::bpf::clock_ns();
        // The end of a hang costs the same.
        let cost_ns = processor_ns().saturating_sub(before_ns).saturating_mul(2);
        self.due_ns = now_ns.saturating_add(cost_ns.saturating_mul(PAUSE));
        counters
    }
}

/// Returns whether processes can be looked at, of which there are so many.
fn countable(sees_all: bool, count: usize) -> CountedProcesses {
    match sees_all {
        false => CountedProcesses::Hidden,
        true if count > ALL_PROCESSES => CountedProcesses::TooMany,
        true => CountedProcesses::All,
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Returns what a process has read from disks and written to files on disks, from the text of `/proc/PID/io`.
fn of_process(text: &str) -> Option<Bytes> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let dropped = field("cancelled_write_bytes:").unwrap_or(0);
    Some([field("read_bytes:")?, field("write_bytes:")?.saturating_sub(dropped)])
}

/// What was read from and written to the disks of a machine.
#[derive(Debug, Default, Eq, PartialEq)]
struct Disks {
    bytes: Bytes,
    /// The numbers of these disks, as `8:16`.
    numbers: BTreeSet<String>,
}

/// Returns what was read from and written to the disks below a directory like `/sys/block`. One that consists of others, or has its bytes in
/// memory or in a file, is none. `None` if there is no such directory.
fn of_disks(dir: &Path) -> Option<Disks> {
    let mut sum = Disks::default();
    for disk in fs::read_dir(dir).ok()?.flatten() {
        let name = disk.file_name();
        let is_other = ["loop", "ram", "zram"]
            .iter()
            .any(|beginning| name.to_string_lossy().starts_with(beginning));
        let parts = fs::read_dir(disk.path().join("slaves"));
        if is_other || parts.is_ok_and(|mut parts| parts.next().is_some()) {
            continue;
        }
        let text = |name: &str| fs::read_to_string(disk.path().join(name)).unwrap_or_default();
        sum.numbers.insert(text("dev").trim().to_owned());
        let counters = text("stat");
        let fields: Vec<u64> =
            counters.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
        for (sum, sectors) in sum.bytes.iter_mut().zip([fields.get(2), fields.get(6)]) {
            *sum += sectors.copied().unwrap_or(0).saturating_mul(SECTOR_BYTES);
        }
    }
    Some(sum)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of tests need not be durable")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_process_gave_to_disks_is_read_without_what_it_deleted_before() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 8192\nwrite_bytes: 20480\n\
                    cancelled_write_bytes: 4096\n";
        assert_eq!(of_process(text), Some([8192, 16384]));
        assert_eq!(of_process("read_bytes: 1\nwrite_bytes: x\n"), None);
        assert_eq!(of_process(""), None);
    }

    #[test]
    fn what_a_process_did_before_is_not_told_of_the_one_that_waits_for_its_end() {
        let at = |counted: &[(u32, u32, u64)], others: &[(u32, u32)]| {
            let of = |(process, parent, written): &(u32, u32, u64)| {
                (*process, ProcessBytes { bytes: [0, *written], parent: *parent })
            };
            let counted = counted.iter().map(of).collect();
            Processes { counted, others: others.iter().copied().collect() }
        };
        let sorted = |before: &Processes, now: &Processes| {
            let mut used = used(before, now);
            used.sort_unstable_by_key(|(_, process)| *process);
            used
        };
        // A shell, a program that it runs and a child of that one, of which the last two end; and another one.
        let before = at(&[(10, 1, 5), (11, 10, 1000), (12, 11, 300), (20, 1, 7)], &[(30, 20)]);
        let now =
            at(&[(10, 1, 5 + 1000 + 300 + 40), (20, 1, 9), (31, 1, 11)], &[(30, 20), (32, 20)]);
        assert_eq!(sorted(&before, &now), [([0, 40], 10), ([0, 2], 20), ([0, 11], 31)]);
        // A child of which it is not known what it had done before, as one of another user, also behind one that ends with it.
        let before =
            at(&[(10, 1, 5), (11, 10, 1), (20, 1, 7), (40, 1, 3)], &[(12, 11), (30, 20), (41, 40)]);
        let now = at(&[(10, 1, 900), (20, 1, 800), (40, 1, 4)], &[(41, 40)]);
        assert_eq!(sorted(&before, &now), [([0, 1], 40)]);
        // One that was there and not counted has done all that it says at no known time.
        let before = at(&[(10, 1, 5)], &[(50, 1)]);
        assert_eq!(sorted(&before, &at(&[(10, 1, 6), (50, 1, 40_000)], &[])), [([0, 1], 10)]);
    }

    #[test]
    fn processes_that_one_of_two_looks_did_not_see_are_told_of_by_neither() {
        let now = DiskCounters::read().unwrap();
        for counted in [CountedProcesses::TooMany, CountedProcesses::Hidden] {
            let (disks, processes) = (Bytes::default(), Processes::default());
            let units = UnitBytes::default();
            let before = DiskCounters { at_ns: now.at_ns, disks, processes, counted, units };
            let told = before.until(now.at_ns).unwrap();
            assert!(told.programs.iter().all(|user| user.process == 0), "{told:?}");
            assert_eq!(told.processes, counted.max(now.counted));
        }
    }

    #[test]
    fn disks_that_consist_of_others_are_not_counted_twice() {
        let root = tempfile::tempdir().unwrap();
        for name in ["vda", "dm-0", "loop3", "sr0"] {
            fs::create_dir_all(root.path().join(name).join("slaves")).unwrap();
            let stat = " 10 0 16 5 20 0 48 7 0 0 0 0 0 0 0 0 0\n";
            fs::write(root.path().join(name).join("stat"), stat).unwrap();
            fs::write(root.path().join(name).join("dev"), format!("{name}:0\n")).unwrap();
        }
        symlink("../../vda", root.path().join("dm-0/slaves/vda")).unwrap();
        let disks = of_disks(root.path()).unwrap();
        assert_eq!(disks.bytes, [2 * 16 * 512, 2 * 48 * 512]);
        assert_eq!(
            disks.numbers.iter().map(String::as_str).collect::<Vec<_>>(),
            ["sr0:0", "vda:0"]
        );
        assert_eq!(of_disks(&root.path().join("missing")), None, "not nothing");
    }

    #[test]
    fn what_processes_of_others_do_is_not_counted_by_name() {
        use std::os::unix::process::CommandExt;
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            // Others cannot start one.
            return;
        }
        let mut other = std::process::Command::new("sleep").arg("600").uid(NOBODY).spawn().unwrap();
        let counters = DiskCounters::read().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(counters.processes.counted.contains_key(&std::process::id()));
        assert!(!counters.processes.counted.contains_key(&other.id()));
    }

    #[test]
    fn too_many_processes_and_hidden_ones_are_not_looked_at() {
        assert_eq!(countable(true, 4096), CountedProcesses::All);
        assert_eq!(countable(true, 4097), CountedProcesses::TooMany);
        assert_eq!(countable(false, 3), CountedProcesses::Hidden);
    }

    #[test]
    fn counters_are_not_read_all_the_time() {
        let mut observer = DiskObserver::default();
        let before = observer.begin().unwrap();
        assert!(before.processes.counted.contains_key(&std::process::id()), "{before:?}");
        assert!(observer.begin().is_none(), "it was just read");
        let used = before.until(before.at_ns + 5).unwrap();
        assert!(used.counted_ns == 5 && used.programs.len() <= MAX_DISK_USERS, "{used:?}");
    }
}
