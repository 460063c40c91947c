//! How long the others wait: for the disk, for memory, for a processor.
//!
//! Where the job has a cgroup of its own, the pressure totals of the cgroups beside it tell (Documentation/accounting/psi.rst): reading one brings it up to date,
//! which the kernel's own averages of two seconds and more are not. Processes beside the job without a cgroup are seen by what the disk reads for others.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The resource that a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PressureCause {
    /// A disk.
    Io,
    /// Memory that has to be found or read back.
    Memory,
    /// A processor.
    Cpu,
    /// Nothing yet: a program is about to start.
    Launch,
    /// None: the user requested the hold.
    Asked,
}

/// The times for which other programs waited, by resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureTimes {
    /// For disks.
    pub io: Duration,
    /// For memory.
    pub memory: Duration,
    /// For processors.
    pub cpu: Duration,
}

impl PressureTimes {
    /// Returns the greater of each.
    #[must_use]
    pub fn max(self, other: PressureTimes) -> PressureTimes {
        PressureTimes {
            io: self.io.max(other.io),
            memory: self.memory.max(other.memory),
            cpu: self.cpu.max(other.cpu),
        }
    }

    fn since(self, earlier: PressureTimes) -> PressureTimes {
        PressureTimes {
            io: self.io.saturating_sub(earlier.io),
            memory: self.memory.saturating_sub(earlier.memory),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}

/// The pressure files of one cgroup, open.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    io: Option<File>,
    memory: Option<File>,
    cpu: Option<File>,
    last: PressureTimes,
}

impl Group {
    fn open(path: PathBuf) -> Group {
        let open = |name: &str| File::open(path.join(name)).ok();
        let (io, memory) = (open("io.pressure"), open("memory.pressure"));
        let cpu = open("cpu.pressure");
        let mut group = Group { path, io, memory, cpu, last: PressureTimes::default() };
        group.last = group.totals();
        group
    }

    fn totals(&self) -> PressureTimes {
        let of = |file: &Option<File>| file.as_ref().and_then(total).unwrap_or_default();
        PressureTimes { io: of(&self.io), memory: of(&self.memory), cpu: of(&self.cpu) }
    }
}

/// Reads the total of the `some` line of an open pressure file.
fn total(file: &File) -> Option<Duration> {
    let mut text = [0; 256];
    let len = file.read_at(&mut text, 0).ok()?;
    parse_total(text.get(..len)?)
}

/// Returns the total of the `some` line in microseconds as a time.
fn parse_total(text: &[u8]) -> Option<Duration> {
    let line = std::str::from_utf8(text).ok()?.lines().find(|line| line.starts_with("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

/// The sibling cgroups of the job and of its ancestors, whose programs must not be slowed down.
#[derive(Debug)]
pub struct OtherCgroups {
    root: PathBuf,
    own: PathBuf,
    groups: Vec<Group>,
}

/// Cgroups whose waiting is nobody's who sits at the screen.
const NOT_FELT: [&str; 3] = ["background.slice", "system.slice", "init.scope"];

/// How the names of cgroups of jobs and of those who attend to them begin: `unjank-run-PID`, `unjank-run-PID.scope`, `unjank-run@UNIT.service`. Other services of ours work for somebody at the screen.
const JOBS: &str = "unjank-run";

/// Returns whether nobody feels what waits in the cgroup called `name`, or in those below.
fn is_not_felt(name: Option<&OsStr>) -> bool {
    name.is_some_and(|name| {
        NOT_FELT.iter().any(|&one| name == one)
            || name.as_encoded_bytes().starts_with(JOBS.as_bytes())
    })
}

impl OtherCgroups {
    /// Watches all cgroups beside `own` and beside those that it is in, up to `root`, the mount of the cgroup2 file system.
    #[must_use]
    pub fn beside(root: &Path, own: &Path) -> OtherCgroups {
        let mut others =
            OtherCgroups { root: root.to_owned(), own: own.to_owned(), groups: Vec::new() };
        others.refresh();
        others
    }

    /// Looks for cgroups that have come or gone since.
    pub fn refresh(&mut self) {
        let mut found = Vec::new();
        for inside in self.own.ancestors() {
            let Some(parent) = inside.parent() else { break };
            if inside == self.root || !parent.starts_with(&self.root) {
                break;
            }
            if is_not_felt(parent.file_name()) {
                continue;
            }
            let Ok(entries) = fs::read_dir(parent) else { continue };
            let groups = entries.filter_map(|entry| {
                let entry = entry.ok()?;
                let felt = !is_not_felt(Some(&entry.file_name()));
                let path = entry.path();
                (felt && path != inside && entry.file_type().ok()?.is_dir()).then_some(path)
            });
            found.extend(groups);
        }
        self.groups.retain(|group| found.contains(&group.path));
        for path in found {
            if !self.groups.iter().any(|group| group.path == path) {
                self.groups.push(Group::open(path));
            }
        }
    }

    /// Returns whether there is any cgroup to watch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns how long the one that waited longest has waited since the last call.
    ///
    /// Not the sum: what two of them wait for at once delays nobody twice.
    pub fn stalled(&mut self) -> PressureTimes {
        self.groups.iter_mut().fold(PressureTimes::default(), |most, group| {
            let totals = group.totals();
            let since = totals.since(group.last);
            group.last = totals;
            most.max(since)
        })
    }
}

/// What a disk reads for others than the job.
#[derive(Debug)]
pub struct ForeignReads {
    stat: File,
    last: (u64, Duration),
    last_own: u64,
}

impl ForeignReads {
    /// Watches the disk called `disk` in sysfs: `sda`, `nvme0n1`.
    ///
    /// # Errors
    ///
    /// As `open(2)`: there is no such disk.
    pub fn of(disk: &str) -> io::Result<ForeignReads> {
        let stat = File::open(Path::new("/sys/block").join(disk).join("stat"))?;
        let mut reads = ForeignReads { stat, last: (0, Duration::ZERO), last_own: 0 };
        reads.last = reads.now().unwrap_or_default();
        Ok(reads)
    }

    /// Returns how long reads of others have taken since the last call, of which the job's own processes have read `own_bytes` from disks altogether until now.
    ///
    /// It is the time that requests were under way, by the share of bytes that were not the job's, at most `elapsed`.
    pub fn stalled(&mut self, own_bytes: u64, elapsed: Duration) -> Duration {
        let Some((bytes, time)) = self.now() else { return Duration::ZERO };
        let all = bytes.saturating_sub(self.last.0);
        let took = time.saturating_sub(self.last.1);
        let own = own_bytes.saturating_sub(self.last_own);
        self.last = (bytes, time);
        self.last_own = own_bytes;
        of_others(all, own, took).min(elapsed)
    }

    /// Bytes and time of all reads so far: fields 3 and 4 of the file, in sectors of 512 bytes and milliseconds (Documentation/block/stat.rst).
    fn now(&self) -> Option<(u64, Duration)> {
        let mut text = [0; 512];
        let len = self.stat.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..len)?).ok()?;
        let mut fields = text.split_ascii_whitespace().skip(2).map(str::parse::<u64>);
        let sectors = fields.next()?.ok()?;
        Some((sectors.saturating_mul(512), Duration::from_millis(fields.next()?.ok()?)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
fn of_others(all: u64, own: u64, took: Duration) -> Duration {
    if all == 0 {
        return Duration::ZERO;
    }
    took.mul_f64(all.saturating_sub(own) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_total_is_that_of_some() {
        let text = b"some avg10=0.00 avg60=0.07 avg300=0.01 total=2222\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(parse_total(text), Some(Duration::from_micros(2222)));
        for wrong in [&b""[..], b"some total=", b"full total=3", b"some total=-1", b"\xff"] {
            assert_eq!(parse_total(wrong), None);
        }
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn those_beside_the_job_are_watched_and_the_job_is_not() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let set = |group: &str, total: u32| {
            write(&at(group).join("io.pressure"), &format!("some avg10=0 total={total}\n"));
        };
        set("user/app", 100);
        set("user/background.slice/job", 100);
        set("user/background.slice/other", 100);
        set("system.slice", 100);
        for job in ["user/unjank-run-7", "user/unjank-run@a.service"] {
            set(job, 100);
        }
        set("user/unjank-host.service", 100);
        set("rest", 100);
        let mut others = OtherCgroups::beside(root.path(), &at("user/background.slice/job"));
        assert_eq!(others.stalled(), PressureTimes::default());
        set("user/background.slice/job", 9_000_000);
        set("user/background.slice/other", 9_000_000);
        set("user/unjank-run-7", 9_000_000);
        set("user/unjank-run@a.service", 9_000_000);
        set("system.slice", 9_000_000);
        assert_eq!(others.stalled(), PressureTimes::default());
        set("user/app", 5_100);
        set("rest", 2_100);
        assert_eq!(others.stalled().io, Duration::from_millis(5));
        set("user/unjank-host.service", 3_100);
        assert_eq!(others.stalled().io, Duration::from_millis(3), "what a sandbox waits for");
        set("user/new", 100);
        others.refresh();
        set("user/new", 1_100);
        assert_eq!(others.stalled().io, Duration::from_millis(1));
    }

    #[test]
    fn reads_of_the_job_are_not_those_of_others() {
        let took = Duration::from_millis(20);
        assert_eq!(of_others(4096, 0, took), took);
        assert_eq!(of_others(4096, 4096, took), Duration::ZERO);
        assert_eq!(of_others(4096, 8192, took), Duration::ZERO);
        assert_eq!(of_others(4096, 1024, took), Duration::from_millis(15));
        assert_eq!(of_others(0, 0, took), Duration::ZERO);
    }
}
